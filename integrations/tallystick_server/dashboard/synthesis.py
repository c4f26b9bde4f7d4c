"""Pages of documents that are made of memory: what they rest on, their verdict, what is stale."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from starlette.responses import Response

from tallystick.errors import InvalidInput, NotFound
from tallystick.records.synthesis import SynthesisRun
from tallystick_server.dashboard.runs import scopes_of
from tallystick_server.dashboard.visits import Visit, form_page, page
from tallystick_synthesis.templates import output_types

_LISTED = 100
_STEPS = {
    "collect": "synthesize_sections",
    "draft": "synthesize_draft",
    "write": "synthesize_draft",
    "verify": "synthesize_verify",
    "refresh": "synthesize_refresh",
}
"""What a person does with a document, and its operation."""
_HOW = {"write": {"drafter": "model", "mode": "async"}}
"""A model takes its time: it is a job that drafts, and the page shows how far it is."""


def _syntheses(visit: Visit) -> Response:
    """The documents of one scope, and the form for another one."""
    before = visit.text("before") or None
    runs = visit.call("synthesize_runs", limit=_LISTED, before=before)
    return visit.page(
        "syntheses.html",
        runs=runs,
        older=visit.again(before=runs[-1].id) if len(runs) == _LISTED else None,
        is_first=before is None,
        types=output_types(),
        scope=visit.bound.scope,
        scopes=[each for each in scopes_of(visit) if each.readable],
    )


def _plan(visit: Visit) -> Response:
    """Plan a document by its type, its question and the titles of its sections."""
    chosen = visit.form.get("output_type")
    planned: SynthesisRun = visit.call(
        "synthesize_plan",
        query=visit.form.get("query", "").strip(),
        **({} if chosen is None else {"output_type": chosen}),
        audience=visit.form.get("audience", "").strip() or "team",
        outline=_outline(visit.form.get("outline", "")),
    )
    return visit.go(f"/syntheses/{planned.id}")


def _outline(text: str) -> list[dict[str, Any]]:
    """Return the sections of a text with a title in each line; one that is indented deeper than the
    line above belongs to that one.
    """
    top: list[dict[str, Any]] = []
    above: list[tuple[int, list[dict[str, Any]]]] = [(-1, top)]
    for line in text.expandtabs(4).splitlines():
        if title := line.strip():
            indent = len(line) - len(line.lstrip())
            while above[-1][0] >= indent:
                above.pop()
            section: dict[str, Any] = {"title": title, "sections": []}
            above[-1][1].append(section)
            above.append((indent, section["sections"]))
    return top


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
        is_awaited=run.stage == "collected" and _is_waiting(visit, run),
    )


def _is_waiting(visit: Visit, run: SynthesisRun) -> bool:
    """Return True while a job is to go on with a document."""
    if run.job_id is None:
        return False
    with suppress(NotFound):  # who reads the document may not read its job
        return not visit.call("job", job_id=run.job_id).is_over
    return False


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
    visit.call(_STEPS[action], at=run.scope, synthesis_id=synthesis_id, **_HOW.get(action, {}))
    return visit.go(f"/syntheses/{synthesis_id}")


ROUTES = [
    page("/syntheses", _syntheses),
    form_page("/syntheses", _plan),
    page("/syntheses/{synthesis_id}", _synthesis),
    form_page("/syntheses/{synthesis_id}", _step),
]
