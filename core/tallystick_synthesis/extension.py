"""The extension: what synthesis adds to a tally."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tallystick.extension import Extension
from tallystick.loading import Late
from tallystick.operations import Operation

if TYPE_CHECKING:
    from tallystick.jobs import Handler
    from tallystick.jobs.derived import Derived
    from tallystick.memory import MemoryContext
    from tallystick.recorder.outbound import Outbound

_READ = ("denied", "invalid_input", "not_found", "rate_limited")
_CHANGE = (*_READ, "state_conflict", "missing_extra")
_MODEL = (
    *("extraction_error", "model_unavailable", "credential_refused", "model_failed"),
    *("model_refused", "egress_denied", "budget_spent"),
)

_SYNTHESIS = Late("tallystick_synthesis.synthesis:Synthesis")

_read = partial(Operation, effect="read", errors=_READ, face=_SYNTHESIS)
_change = partial(Operation, effect="change", errors=_CHANGE, face=_SYNTHESIS)


def _handlers(context: MemoryContext, outbound: Outbound) -> Sequence[Handler]:
    from tallystick_synthesis.synthesis_jobs import SynthesisHandler

    return (SynthesisHandler(context, outbound),)


def _derived(context: MemoryContext) -> Sequence[Derived]:
    from tallystick_synthesis.derived import Documents

    return (Documents(context),)


EXTENSION: Extension[Operation] = Extension(
    on_rewrite=Late("tallystick.memory.artifacts:mark_stale"),
    handlers=_handlers,
    derived=_derived,
    operations=(
        _change(
            "synthesize_plan",
            "Plan a document",
            "Plan a document of memory: its sections, the evidence that each needs, and the gaps.",
            verb="synthesis.plan",
        ),
        _change(
            "synthesize_sections",
            "Collect sections",
            "Collect what each section of a document may use, with its sources.",
            verb="synthesis.sections",
        ),
        _change(
            "synthesize_draft",
            "Draft a document",
            "Draft a document of quotations, or by the model of the tally, every sentence with its "
            "sources.",
            errors=(*_CHANGE, *_MODEL),
            verb="synthesis.draft",
        ),
        _change(
            "synthesize_verify",
            "Verify a document",
            "Check every sentence of a draft against the sources that it cites.",
            verb="synthesis.verify",
        ),
        _change(
            "synthesize_remember",
            "Remember a document",
            "Preview the artifact of a verified draft, then keep it with the token.",
            verb="synthesis.remember",
            needs_preview=True,
        ),
        _change(
            "synthesize_refresh",
            "Refresh a document",
            "Make the sections of a document anew whose sources have changed.",
            errors=(*_CHANGE, *_MODEL),
            verb="synthesis.refresh",
        ),
        _read(
            "synthesize_runs",
            "List documents in the making",
            "List the runs of synthesis of a scope.",
            verb="synthesis.runs",
        ),
        _read(
            "synthesize_run",
            "Read a document",
            "Read a run of synthesis: plan, sections, draft, verdict, and what is stale.",
            errors=(*_READ, "missing_extra"),
            verb="synthesis.run",
        ),
    ),
)
