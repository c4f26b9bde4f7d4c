"""Answers about a recorded step: the candidates of its context, their origin, and their changes."""

from __future__ import annotations

from tallystick.records._base import JsonObject, Record
from tallystick.records.context import CompilationDecision
from tallystick.records.recording import CompileDiff, StepRecord
from tallystick.records.source import SourceRef
from tallystick.records.times import datetime_of


class ContextCandidate(Record):
    """One candidate of a step's context, with its decision and its text."""

    item_id: str
    decision: CompilationDecision
    says: str | None = None
    """The text as the model got it, or would have got it; None where policy withheld it."""
    memory_id: str | None = None
    """The id of the memory, if the candidate is one."""
    source_ids: tuple[str, ...] = ()
    """The raw sources that the memory was derived from."""
    source: SourceRef | None = None
    """The origin that the caller stated."""


class Provenance(Record):
    """The origin of a sentence of a context."""

    item_id: str
    quote: str
    """The sentence with the words around it in the item."""
    memory_id: str | None = None
    source_id: str | None = None
    source: SourceRef | None = None
    raw: str | None = None
    """The source exactly as it arrived; None if the tally has none, or the actor may not read it.
    """


class RecordedWrite(Record):
    """One change of memory that a step made."""

    step_id: str
    memory_id: str
    event: str
    by: JsonObject
    """The ids of the actor."""
    at: int
    """Microseconds UTC."""
    time = datetime_of("at")


class MemoryUse(Record):
    """One step that recalled, saw, left out or wrote a memory."""

    step: StepRecord
    how: tuple[str, ...]
    """`recalled`, `in_context`, `left_out`, `written`, in the order in which they happened."""


class StepDiff(Record):
    """The differences of two steps: of their contexts, requests and answers."""

    before: str
    """Id of the step."""
    after: str
    compile: CompileDiff | None = None
    """None where one of them compiled nothing or kept nothing."""
    request: tuple[str, ...] = ()
    """Lines of a unified diff of the requests."""
    response: tuple[str, ...] = ()
    """The same of the answers."""
    compaction: tuple[str, ...] = ()
    """Turns that left the history between the two."""
    notes: tuple[str, ...] = ()
    """Parts that could not be compared, and why."""

    @property
    def is_empty(self) -> bool:
        """True if nothing differs that could be compared."""
        compiled = self.compile
        same = compiled is None or (
            compiled.is_empty
            and not compiled.rescored
            and compiled.budget_before == compiled.budget_after
        )
        return same and not (self.request or self.response or self.compaction)
