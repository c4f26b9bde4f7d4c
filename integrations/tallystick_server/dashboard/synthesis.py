"""Pages of documents that are made of memory: what they rest on, their verdict, what is stale."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tallystick.errors import InvalidInput
from tallystick.records.synthesis import SynthesisRun
from tallystick_server.dashboard.runs import scopes_of
from tallystick_server.dashboard.visits import Visit, form_page, page

_LISTED = 100
_TYPES = ("architecture_overview", "release_notes", "onboarding_guide", "audit_packet", "custom")
_STEPS = {
    "collect": "synthesize_sections",
    "draft": "synthesize_draft",
    "verify": "synthesize_verify",
    "refresh": "synthesize_refresh",
}
"""What a person does with a document, and its operation."""


def _syntheses(visit: Visit) -> Response:
    """The documents of one scope, and the form for another one."""
    return visit.page(
        "syntheses.html",
        runs=visit.call("synthesize_runs", limit=_LISTED),
        types=_TYPES,
        scope=visit.bound.scope,
        scopes=[each for each in scopes_of(visit) if each.readable],
    )


def _plan(visit: Visit) -> Response:
    """Plan a document by its type, its question and the titles of its sections."""
    titles = [line.strip() for line in visit.form.get("outline", "").splitlines() if line.strip()]
    planned: SynthesisRun = visit.call(
        "synthesize_plan",
        query=visit.form.get("query", "").strip(),
        output_type=visit.form.get("output_type", _TYPES[0]),
        audience=visit.form.get("audience", "").strip() or "team",
        outline=[{"title": title} for title in titles],
    )
    return visit.go(f"/syntheses/{planned.id}")


def _synthesis(visit: Visit) -> Response:
    """One document: its sections beside their sources, its gaps, and what may be done with it."""
    return _show(visit, visit.call("synthesize_run", synthesis_id=visit.path("synthesis_id")))


def _show(visit: Visit, run: SynthesisRun, preview: Any = None) -> Response:
    drafted = {section.number: section for section in run.draft}
    return visit.page(
        "synthesis.html",
        run=run,
        sections=[
            (planned, _section_of(run, planned.number), drafted.get(planned.number))
            for planned in run.plan
        ],
        preview=preview,
    )


def _section_of(run: SynthesisRun, number: int) -> Any:
    return next((each for each in run.sections if each.number == number), None)


def _step(visit: Visit) -> Response:
    """Take the next step of a document; what is to be kept is previewed first."""
    action, synthesis_id = visit.form.get("action", ""), visit.path("synthesis_id")
    run: SynthesisRun = visit.call("synthesize_run", synthesis_id=synthesis_id)
    if action == "preview":
        preview = visit.call("synthesize_remember", at=run.scope, synthesis_id=synthesis_id)
        return _show(visit, run, preview)
    if action == "remember":
        visit.call(
            "synthesize_remember",
            at=run.scope,
            synthesis_id=synthesis_id,
            mode="apply",
            confirm_token=visit.form.get("confirm_token", ""),
        )
        return visit.go(f"/syntheses/{synthesis_id}", note="remembered")
    if action not in _STEPS:
        raise InvalidInput(f"action: a document takes {', '.join([*_STEPS, 'remember'])}.")
    visit.call(_STEPS[action], at=run.scope, synthesis_id=synthesis_id)
    return visit.go(f"/syntheses/{synthesis_id}")


ROUTES = [
    page("/syntheses", _syntheses),
    form_page("/syntheses", _plan),
    page("/syntheses/{synthesis_id}", _synthesis),
    form_page("/syntheses/{synthesis_id}", _step),
]
