"""The extension: what synthesis adds to a tally."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from tallystick.extension import Extension
from tallystick.jobs import Handler
from tallystick.jobs.derived import Derived
from tallystick.memory import MemoryContext
from tallystick.memory.artifacts import mark_stale
from tallystick.operations import Operation
from tallystick.recorder.outbound import Outbound
from tallystick.records import Actor, Finding
from tallystick.storage.rows import synthesis_rows
from tallystick_synthesis.synthesis import Synthesis

_READ = ("denied", "invalid_input", "not_found", "rate_limited")
_CHANGE = (*_READ, "state_conflict", "missing_extra")
_MODEL = (
    *("extraction_error", "model_unavailable", "credential_refused", "model_failed"),
    *("model_refused", "egress_denied", "budget_spent"),
)

_read = partial(Operation, effect="read", errors=_READ, face=Synthesis)
_change = partial(Operation, effect="change", errors=_CHANGE, face=Synthesis)


def _handlers(context: MemoryContext, outbound: Outbound) -> Sequence[Handler]:
    from tallystick_synthesis.synthesis_jobs import SynthesisHandler

    return (SynthesisHandler(context, outbound),)


class Documents(Derived):
    """The runs of synthesis: texts that repeat what they quote, and go with it."""

    name: ClassVar[str] = "synthesis"

    def check(self) -> Finding:
        """Read the body of every run."""
        with self._database.read() as connection:
            damaged = synthesis_rows.count_damaged(connection)
            count = synthesis_rows.count_runs(connection)
        if damaged:
            return self._says("problem", f"{damaged} runs of synthesis cannot be read")
        return self._says("ok", f"{count} runs of synthesis can be read")

    def repair(self, actor: Actor) -> Finding:
        """Nothing is mended here: a run is planned anew."""
        return self._says("ok", "a run is planned anew by `tally synthesize plan`")


EXTENSION: Extension[Operation] = Extension(
    on_rewrite=mark_stale,
    handlers=_handlers,
    derived=lambda context: (Documents(context),),
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
