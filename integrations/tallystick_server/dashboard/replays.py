"""Pages that compare: two steps side by side, and a step made again, exactly or with changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from tallystick.errors import InvalidInput, NotFound
from tallystick.records import (
    CompilationRequest,
    CompileDiff,
    DecisionChange,
    Job,
    ReplayRecipe,
    ScoreWeights,
    StepDiff,
    StepRecord,
)
from tallystick_server.dashboard.visits import Visit, form_page, page, whole_number

WEIGHTS: tuple[str, ...] = tuple(
    name for name in ScoreWeights.model_fields if name != "half_life_seconds"
)
"""The weights of a score that a replay may change, in thousandths."""
_LISTED = 400
"""Lines of a difference that a page shows."""


def _diff(visit: Visit) -> Response:
    """Two steps side by side."""
    before, after = visit.text("before"), visit.text("after")
    if not (before and after):
        return visit.page("diff_ask.html", before=before, after=after)
    return _render_diff(visit, visit.call("diff", before=before, after=after))


def _diff_with_previous(visit: Visit) -> Response:
    """A step beside the one of its kind before."""
    return _render_diff(visit, visit.call("changed", step_id=visit.path("step_id")))


def _render_diff(visit: Visit, diff: StepDiff) -> Response:
    sides = []
    for step_id in (diff.before, diff.after):
        step: StepRecord = visit.call("step", step_id=step_id)
        sides.append((step, visit.call("run", run_id=step.run_id)))
    return visit.page(
        "diff.html",
        diff=diff,
        sides=sides,
        outcome=_outcome(visit, diff.after),
        rows=[] if diff.compile is None else _rows(diff.compile),
        request=_lines(diff.request),
        response=_lines(diff.response),
    )


def _outcome(visit: Visit, step_id: str) -> dict[str, bool | None]:
    """Return whether a replay made the recorded request, and had the recorded answer; None for what
    is no exact replay, and where no model was asked.
    """
    for entry in visit.call("entries", step_id=step_id):
        outcome = entry.summary.get("replay")
        if isinstance(outcome, dict):
            names = {"request": "request_matches", "response": "response_matches"}
            facts = {name: outcome.get(field) for name, field in names.items()}
            return {n: each if isinstance(each, bool) else None for n, each in facts.items()}
    return {"request": None, "response": None}


def _rows(diff: CompileDiff) -> list[tuple[str, DecisionChange]]:
    """Return the candidates that differ, each with how, those that left first."""
    listed = {change.item_id for change in (*diff.removed, *diff.added, *diff.changed)}
    policy = [change for change in diff.policy if change.item_id not in listed]
    return [
        *(("left", change) for change in diff.removed),
        *(("came", change) for change in diff.added),
        *(("changed", change) for change in diff.changed),
        *(("policy", change) for change in policy),
        *(("score", change) for change in diff.rescored),
    ]


_MARKS = {"+": "add", "-": "gone", "@": "place"}


def _lines(lines: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the lines of a difference, each with its class."""
    shown = [(_MARKS.get(line[:1], ""), line) for line in lines[:_LISTED]]
    if len(lines) > _LISTED:
        shown.append(("place", f"… {len(lines) - _LISTED} lines more"))
    return shown


def _ask(visit: Visit) -> Response:
    """The form of a replay."""
    step: StepRecord = visit.call("step", step_id=visit.path("step_id"))
    run = visit.call("run", run_id=step.run_id)
    request = _request(visit, step.id)
    weights = request.compile_config.weights.model_dump()
    return visit.page(
        "replay.html",
        step=step,
        run=run,
        request=request,
        weights=[(name, weights[name]) for name in WEIGHTS],
        may_send=bool(visit.tally.settings.providers),
        candidates=[
            *visit.call("knew", step_id=step.id),
            *visit.call("unseen", step_id=step.id),
        ],
    )


def _request(visit: Visit, step_id: str) -> CompilationRequest:
    """Return what a step compiled. Raises NotFound."""
    for entry in visit.call("entries", step_id=step_id):
        if entry.kind == "compile_request" and entry.payload is not None:
            return CompilationRequest.load(entry.payload)
    raise NotFound(f"Step {step_id} kept no context that could be made again.")


def _replay(visit: Visit) -> Response:
    """Make a step again: as a job, or at once where a text is edited, which no queue keeps, and
    where a model is asked, for the person who is there.
    """
    step: StepRecord = visit.call("step", step_id=visit.path("step_id"))
    recipe, send = _recipe(visit, step), visit.form.get("send") == "yes"
    if send or any(text is not None for text in recipe.context_mutations.values()):
        result = visit.call("replay", step_id=step.id, recipe=recipe.dump(), send=send)
        return visit.go("/diff", before=step.id, after=result.step_id)
    job: Job = visit.call("replay_later", step_id=step.id, recipe=recipe.dump())
    return visit.go(f"/replays/{job.id}")


def _recipe(visit: Visit, step: StepRecord) -> ReplayRecipe:
    """Return what a form wants changed. Raises InvalidInput."""
    form = visit.form
    changes: dict[str, Any] = {}
    if form.get("how") != "exact":
        request = _request(visit, step.id)
        changes = _changes(form, request)
        if not changes:
            raise InvalidInput("Nothing would be different. Change something, or replay exactly.")
    return ReplayRecipe.load(changes)


def _changes(form: Mapping[str, str], request: CompilationRequest) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, field in (("model", "model_override"), ("provider", "provider_override")):
        text = form.get(name, "").strip()
        if text and text != (getattr(request, name) or ""):
            changes[field] = text
    for name, present in (
        ("token_budget", request.token_budget),
        ("response_reserve", request.response_reserve),
    ):
        number = whole_number(name, form.get(name, ""))
        if name == "token_budget" and number == 0:
            raise InvalidInput(
                "token_budget: a context needs at least one token.", argument="token_budget"
            )
        if number is not None and number != present:
            changes[name] = number
    present_weights = request.compile_config.weights.model_dump()
    weights = {
        name: number
        for name in WEIGHTS
        if (number := whole_number(name, form.get(f"weight_{name}", ""))) is not None
        and number != present_weights[name]
    }
    if weights:
        changes["score_weights"] = weights
    if form.get("without_rules") == "yes":
        changes["policy_rules"] = []
    mutations: dict[str, str | None] = {
        name.removeprefix("drop:"): None for name in form if name.startswith("drop:")
    }
    edited = form.get("edited", "").strip()
    if edited:
        mutations[edited] = form.get("text", "")
    if mutations:
        changes["context_mutations"] = mutations
    return changes


def _show_replay(visit: Visit) -> Response:
    """A replay on its way, and then its comparison."""
    job: Job = visit.call("job", job_id=visit.path("job_id"))
    result = job.result or {}
    after = result.get("step_id")
    if job.kind != "replay":
        raise NotFound(f"There is no replay {job.id} that you may see.")
    if job.state == "done" and isinstance(after, str) and after:
        return visit.go("/diff", before=job.subject_id, after=after)
    return visit.page("replaying.html", job=job, result=result)


ROUTES = [
    page("/diff", _diff),
    page("/steps/{step_id}/changed", _diff_with_previous),
    page("/steps/{step_id}/replay", _ask),
    form_page("/steps/{step_id}/replay", _replay),
    page("/replays/{job_id}", _show_replay),
]
