"""The command of synthesis: documents that are made of memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal

from tallystick.errors import InvalidInput, TallystickError
from tallystick.operations import OPERATIONS
from tallystick.records.synthesis import SynthesisRun
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.output import progress_bar
from tallystick_cli.session import id_of
from tallystick_cli.views import synthesis as views
from tallystick_synthesis.markdown import page_of

_LOOK_SECONDS = 0.5
_STEPS = {
    "sections": "synthesize_sections",
    "draft": "synthesize_draft",
    "verify": "synthesize_verify",
    "refresh": "synthesize_refresh",
}


@command(
    *("synthesize_plan", "synthesize_draft", "synthesize_verify", "synthesize_remember"),
    *("synthesize_sections", "synthesize_refresh", "synthesize_runs", "synthesize_run"),
    without=("query", "synthesis_id", "mode"),
    helps={
        "action": "list, plan QUERY, sections, draft, verify, remember or refresh RUN, or show RUN."
    },
    scope="home",
)
def synthesize(
    call: Call,
    action: Literal[
        "list", "plan", "sections", "draft", "verify", "remember", "refresh", "show"
    ] = "list",
    what: Annotated[str | None, "Of plan what it is about, else the id of a run."] = None,
    /,
    apply: Annotated[bool, "Keep the document, with the token of its preview."] = False,
    later: Annotated[bool, "Leave the step to a process that runs."] = False,
    html: Annotated[str | None, "Of show: write one page that loads nothing."] = None,
) -> Answer:
    """Make a document of memory step by step: plan it, collect its sections, draft, verify and
    remember it; show it, or make anew what has changed.
    """
    if html is not None and action != "show":
        raise InvalidInput("Only show takes --html.")
    if apply and action != "remember":
        raise InvalidInput("Only remember takes --apply.")
    if later and action not in _STEPS:
        raise InvalidInput("--later is for sections, draft, verify and refresh.")
    if action == "list":
        runs = call.do("synthesize_runs")
        return Answer(runs, views.run_table(runs) if runs else "There are no documents.")
    if action == "plan":
        given = {"format": "markdown", **call.arguments, "query": what or ""}
        run = call.do("synthesize_plan", **given)
        return Answer(run, views.plan_view(run))
    if what is None:
        raise InvalidInput(f"tally synthesize {action} takes the id of a run.")
    run_id = id_of(what)
    if action == "remember":
        mode = "apply" if apply else "preview"
        kept = call.do("synthesize_remember", synthesis_id=run_id, mode=mode)
        return Answer(kept, views.artifact_view(kept))
    if action == "show":
        shown: SynthesisRun = call.do(
            "synthesize_run", **{"format": "markdown"} | call.arguments, synthesis_id=run_id
        )
        if html is not None:
            title = shown.request.output_type.replace("_", " ")
            Path(html).write_text(page_of(title, shown.markdown or ""), encoding="utf-8")
        return Answer(shown, views.document_view(shown))
    mode = "async" if later else "sync"
    with _progress(call, run_id):
        run = call.do(_STEPS[action], synthesis_id=run_id, mode=mode)
    is_passed = run.verification is None or not run.verification.verdict.startswith("blocked")
    view = views.sections_view(run) if action == "sections" else views.document_view(run)
    return Answer(run, view, is_passed)


@contextmanager
def _progress(call: Call, run_id: str) -> Iterator[None]:
    """Show how many sections a model has drafted while the block runs: they are stored one by
    one.
    """
    is_over = threading.Event()
    with progress_bar("Synthesis", "sections", hidden=call.as_json) as advance:

        def look() -> None:
            while not is_over.wait(_LOOK_SECONDS):
                with suppress(TallystickError):  # what went wrong, the step itself says
                    run = OPERATIONS["synthesize_run"].call(call.bound, {"synthesis_id": run_id})
                    if run.stage == "collected":
                        advance(len(run.draft), len(run.sections))

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield
        finally:
            is_over.set()
            looking.join()
