"""The command of synthesis: documents that are made of memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from tallystick.errors import TallystickError
from tallystick.operations import OPERATIONS
from tallystick.records.synthesis import SynthesisRun
from tallystick_cli.actions import Action, action_command
from tallystick_cli.commands import Answer, Call
from tallystick_cli.output import progress_bar
from tallystick_cli.views import synthesis as views
from tallystick_synthesis.markdown import page_of

_LOOK_SECONDS = 0.5


def _plan(call: Call, query: str, /) -> Any:
    return call.do(**{"format": "markdown"} | call.arguments, query=query)


def _step(
    call: Call,
    synthesis_id: str,
    /,
    *,
    later: Annotated[bool, "Leave the step to a process that runs."] = False,
) -> Answer:
    with _progress(call, synthesis_id):
        run = call.do(synthesis_id=synthesis_id, mode="async" if later else "sync")
    return Answer(
        run, ok=run.verification is None or not run.verification.verdict.startswith("blocked")
    )


def _remember(
    call: Call,
    synthesis_id: str,
    /,
    *,
    apply: Annotated[bool, "Keep the document, with the token of its preview."] = False,
) -> Any:
    return call.do(synthesis_id=synthesis_id, mode="apply" if apply else "preview")


def _show(
    call: Call,
    synthesis_id: str,
    /,
    *,
    html: Annotated[str | None, "Of show: write one page that loads nothing."] = None,
) -> SynthesisRun:
    shown: SynthesisRun = call.do(
        **{"format": "markdown"} | call.arguments, synthesis_id=synthesis_id
    )
    if html is not None:
        title = shown.request.output_type.replace("_", " ")
        Path(html).write_text(page_of(title, shown.markdown or ""), encoding="utf-8")
    return shown


synthesize = action_command(
    "Make a document of memory step by step: plan it, collect its sections, draft, verify and "
    "remember it; show it, or make anew what has changed.",
    {
        "list": Action("synthesize_runs", view=views.run_table, empty="There are no documents."),
        "plan": Action("synthesize_plan", view=views.plan_view, run=_plan),
        "sections": Action("synthesize_sections", view=views.sections_view, run=_step),
        "draft": Action("synthesize_draft", view=views.document_view, run=_step),
        "verify": Action("synthesize_verify", view=views.document_view, run=_step),
        "remember": Action("synthesize_remember", view=views.artifact_view, run=_remember),
        "refresh": Action("synthesize_refresh", view=views.document_view, run=_step),
        "show": Action("synthesize_run", view=views.document_view, run=_show),
    },
    without=("mode",),
    scope="home",
)


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
