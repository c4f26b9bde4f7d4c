"""Pages of policy, approvals and health: rules, what waits for a person, what needs care."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from starlette.responses import Response

from tallystick.errors import InvalidInput
from tallystick.records import Actor, Approval, ApprovalState, JobState, Json, ToolClass
from tallystick_server.dashboard.runs import scopes_of
from tallystick_server.dashboard.visits import Visit, form_page, page, reason_of

_SCOPES = 200
"""Scopes whose approvals one page looks for."""
_LISTED = 100
_APPROVAL_STATES: tuple[str, ...] = get_args(ApprovalState)
JOB_STATES: tuple[str, ...] = get_args(JobState)
_TOOL_CLASSES: tuple[str, ...] = get_args(ToolClass)


# Approvals


def _approvals(visit: Visit) -> Response:
    """What waits for a person, or was decided, in every scope of the caller."""
    state = visit.text("state") or "pending"
    if state not in ("all", *_APPROVAL_STATES):
        raise InvalidInput(
            f"state: an approval is all, {', '.join(_APPROVAL_STATES)}.", argument="state"
        )
    chosen_state = None if state == "all" else state
    home = visit.bound.scope
    looked_into = (each.scope for each in scopes_of(visit))
    every = visit.tally.scopes() if visit.is_operator else looked_into
    by_id: dict[str, Approval] = {}
    for scope in list(dict.fromkeys((home, *every)))[:_SCOPES]:
        approvals = visit.call("approvals", at=scope, state=chosen_state, limit=_LISTED)
        by_id |= {each.id: each for each in approvals}
    newest = sorted(by_id.values(), key=lambda each: -each.created_at)
    return visit.page(
        "approvals.html", approvals=newest[:_LISTED], state=state, states=_APPROVAL_STATES
    )


def _approval(visit: Visit) -> Response:
    return visit.page(
        "approval.html", approval=visit.call("approval", approval_id=visit.path("approval_id"))
    )


_DECISIONS: Mapping[str, str] = {"approve": "approved", "deny": "denied", "revoke": "revoked"}
"""What a person decides, and the sentence that says so afterwards."""


def _decide(visit: Visit) -> Response:
    """Decide about one action with exactly the arguments that its page showed."""
    decision = visit.form.get("decision", "")
    if decision not in _DECISIONS:
        raise InvalidInput(f"A decision is {', '.join(_DECISIONS)}.")
    approval: Approval = visit.call("approval", approval_id=visit.path("approval_id"))
    visit.call(decision, at=approval.scope, approval_id=approval.id, reason=reason_of(visit.form))
    return visit.go(f"/approvals/{approval.id}", note=_DECISIONS[decision])


# Policy


def _policy(visit: Visit) -> Response:
    """The rules of this tally, and which of them would decide over a call."""
    tool = visit.text("tool")
    outcome: tuple[Any] | None = None
    if tool:
        tool_class = visit.text("tool_class") or None
        if tool_class not in (None, *_TOOL_CLASSES):
            raise InvalidInput(
                f"tool_class: a tool is {', '.join(_TOOL_CLASSES)}.", argument="tool_class"
            )
        caller = visit.caller.actor
        actor: Actor = caller.replace(agent=visit.text("agent") or caller.agent)
        rule = visit.tally.rule_over_tool_call(
            tool,
            _arguments(visit.text("arguments")),
            actor=actor,
            scope=visit.bound.scope,
            tool_class=tool_class,  # type: ignore[arg-type]
        )
        outcome = (rule,)
    return visit.page(
        "policy.html",
        rules=visit.tally.rules,
        tool=tool,
        arguments=visit.text("arguments"),
        tool_class=visit.text("tool_class"),
        agent=visit.text("agent"),
        classes=_TOOL_CLASSES,
        scope=visit.bound.scope,
        outcome=outcome,
    )


def _arguments(text: str) -> Json:
    """Return arguments that a person typed as JSON. Raises InvalidInput."""
    if not text:
        return {}
    try:
        value: Json = json.loads(text)
    except ValueError as error:
        raise InvalidInput('Arguments are JSON, such as {"path": "build"}.') from error
    return value


# Health


def _health(visit: Visit) -> Response:
    """Jobs and tokens; what the doctor finds, where a person asks for it."""
    return _health_page(visit, findings=None)


def _health_page(visit: Visit, *, findings: Any) -> Response:
    state = visit.text("state")
    if state not in ("", *JOB_STATES):
        raise InvalidInput(f"state: a job is {', '.join(JOB_STATES)}.", argument="state")
    jobs = visit.call("jobs", state=[state] if state else [], limit=_LISTED)
    return visit.page(
        "health.html",
        findings=findings,
        jobs=jobs,
        state=state,
        states=JOB_STATES,
        dead=sum(job.state in ("dead", "failed") for job in jobs),
        tokens=visit.call("tokens"),
        now=visit.tally.now(),
        read_only=visit.tally.read_only,
        location=visit.tally.location,
    )


def _disk(visit: Visit) -> Response:
    """Where the bytes are, which takes a moment to count."""
    return visit.page("disk.html", sizes=visit.call("sizes"))


def _check(visit: Visit) -> Response:
    return _health_page(visit, findings=visit.call("doctor"))


def _job(visit: Visit) -> Response:
    return visit.page("job.html", job=visit.call("job", job_id=visit.path("job_id")))


def _retry(visit: Visit) -> Response:
    """Let one job, or all that failed or died, be done anew."""
    job_id = visit.form.get("job_id", "")
    job_ids = [job_id] if job_id else None
    visit.call("retry_jobs", job_ids=job_ids, reason=reason_of(visit.form))
    return visit.go(f"/jobs/{job_id}" if job_id else "/health", note="retried")


def _cancel(visit: Visit) -> Response:
    job_id = visit.form.get("job_id", "")
    visit.call("cancel_job", job_id=job_id, reason=reason_of(visit.form))
    return visit.go(f"/jobs/{job_id}", note="cancelled")


def _freeze(visit: Visit) -> Response:
    visit.call("freeze", reason=reason_of(visit.form))
    return visit.go("/health", note="frozen")


def _thaw(visit: Visit) -> Response:
    visit.call("thaw", reason=reason_of(visit.form))
    return visit.go("/health", note="thawed")


def _revoke(visit: Visit) -> Response:
    visit.call(
        "revoke_token", token_id=visit.form.get("token_id", ""), reason=reason_of(visit.form)
    )
    return visit.go("/health", note="revoked")


ROUTES = [
    page("/approvals", _approvals),
    page("/approvals/{approval_id}", _approval),
    form_page("/approvals/{approval_id}", _decide),
    page("/policy", _policy),
    page("/health", _health),
    page("/health/disk", _disk),
    form_page("/health/check", _check),
    form_page("/health/freeze", _freeze),
    form_page("/health/thaw", _thaw),
    page("/jobs/{job_id}", _job),
    form_page("/jobs/retry", _retry),
    form_page("/jobs/cancel", _cancel),
    form_page("/tokens/revoke", _revoke),
]
