"""Views of synthesis: runs, plans, sections, documents and what is kept of them."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from tallystick.records.synthesis import ArtifactPreview, SynthesisRun
from tallystick_cli.views import common
from tallystick_cli.views.common import rows, short

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
