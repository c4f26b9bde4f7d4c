"""The command of synthesis: documents that are made of memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text

from tallystick.errors import InvalidInput, TallystickError
from tallystick.operations import OPERATIONS
from tallystick.records.synthesis import ArtifactPreview, SynthesisRun
from tallystick_cli.actions import Action, action_command
from tallystick_cli.commands import Answer, Call
from tallystick_cli.output import progress_bar
from tallystick_cli.views import common
from tallystick_cli.views.common import rows, short
from tallystick_synthesis.markdown import page_of

run_table = rows(
    "id stage type=request.output_type says=request.query",
    artifact=lambda each: each.artifact_id and short(each.artifact_id),
)
_PLANNED = rows("number section kinds evidence gap", section=lambda each: " / ".join(each.path))
_COLLECTED = rows(
    "number section items sources contradicting redacted stale hidden gap",
    section=lambda each: " / ".join(each.path),
    items=lambda each: len(each.items),
    sources=lambda each: len(each.source_ids),
    contradicting=lambda each: len(each.unresolved),
    redacted=lambda each: each.redacted,
    stale=lambda each: len(each.stale),
)


def plan_view(run: SynthesisRun) -> RenderableType:
    """Return the sections of a plan, with what is missing."""
    return Group(Text(f"{run.id}  {run.plan_digest}"), _PLANNED(run.plan))


def sections_view(run: SynthesisRun) -> RenderableType:
    """Return what each section may use."""
    return Group(Text(run.id), _COLLECTED(run.sections))


def document_view(run: SynthesisRun) -> RenderableType:
    """Return a document with its verdict, and what speaks against it."""
    lines: list[RenderableType] = [Text(f"{run.id}  {run.stage}")]
    if run.markdown is not None:
        lines.append(Text(run.markdown))
    if run.job_id is not None and not run.draft:
        lines.append(Text(f"job {short(run.job_id)}"))
    known = run.verification
    if known is not None:
        counts = f"{known.quoted} of {known.sentences} sentences are quoted"
        lines.append(Text(f"{known.verdict.replace('_', ' ')}: {counts}"))
        for claim in (*known.unsupported, *known.unsettled):
            place = f"{claim.section}.{claim.sentence}"
            lines.append(Text(f"{place} {claim.reason}: {common.says(claim.text)}"))
    if run.stale_sections:
        numbers = ", ".join(map(str, run.stale_sections))
        lines.append(Text(f"stale: sections {numbers}"))
    return Group(*lines)


def artifact_view(kept: ArtifactPreview) -> RenderableType:
    """Return what is kept of a document, or would be."""
    state = "kept as" if kept.mode == "apply" else "would be kept"
    name = f" {short(kept.memory_id)}" if kept.memory_id else ""
    replaced = f", in the place of {short(kept.replaces)}" if kept.replaces else ""
    return Text(
        f"{state}{name} in {kept.readers}: {kept.sections} sections, {kept.sources} sources, "
        f"{kept.verdict.replace('_', ' ')}{replaced}"
    )


_LOOK_SECONDS = 0.5


def _plan(call: Call, query: str = "", /) -> Any:
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
    given = {"format": "markdown"} | ({} if html is not None else call.arguments)
    shown: SynthesisRun = call.do(**given, synthesis_id=synthesis_id)
    if html is not None:
        if shown.markdown is None:
            raise InvalidInput("There is no draft to write as a page: draft it first.")
        page = page_of(shown.request.output_type.replace("_", " "), shown.markdown)
        Path(html).write_text(page, encoding="utf-8", errors="backslashreplace")
    return shown


synthesize = action_command(
    "Make a document of memory step by step: plan it, collect its sections, draft, verify and "
    "remember it; show it, or make anew what has changed.",
    {
        "list": Action("synthesize_runs", view=run_table, empty="There are no documents."),
        "plan": Action("synthesize_plan", view=plan_view, run=_plan),
        "sections": Action("synthesize_sections", view=sections_view, run=_step),
        "draft": Action("synthesize_draft", view=document_view, run=_step),
        "verify": Action("synthesize_verify", view=document_view, run=_step),
        "remember": Action("synthesize_remember", view=artifact_view, run=_remember),
        "refresh": Action("synthesize_refresh", view=document_view, run=_step),
        "show": Action("synthesize_run", view=document_view, run=_show),
    },
    without=("mode", "scopes"),
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
