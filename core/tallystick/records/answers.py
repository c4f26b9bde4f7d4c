"""What a recorded step answers when it is asked: what the agent knew, what it did not, where it
came from.
"""

from __future__ import annotations

from tallystick.records._base import JsonObject, Record
from tallystick.records.context import CompilationDecision
from tallystick.records.recording import CompileDiff, StepRecord
from tallystick.records.source import SourceRef

__all__ = ["Known", "MemoryUse", "Provenance", "StepDiff", "Written"]


class Known(Record):
    """One candidate of a step's context: what became of it, why, and what it says."""

    item_id: str
    decision: CompilationDecision
    says: str | None = None
    """Its text as the model got it, or for what was left out as it would have stood; None where
    policy withheld it.
    """
    memory_id: str | None = None
    """The memory that it is, if it is one."""
    source_ids: tuple[str, ...] = ()
    """The raw sources that the memory was derived from."""
    source: SourceRef | None = None
    """Where the caller said that it came from."""


class Provenance(Record):
    """Where a sentence of a context came from."""

    item_id: str
    quote: str
    """The words around it, in the item."""
    memory_id: str | None = None
    source_id: str | None = None
    source: SourceRef | None = None
    raw: str | None = None
    """The source exactly as it arrived; None where there is none of ours, or the asker may not read
    it.
    """


class Written(Record):
    """One change of memory that a step made."""

    step_id: str
    memory_id: str
    event: str
    by: JsonObject
    """The ids of the actor."""
    at: int
    """Microseconds UTC."""


class MemoryUse(Record):
    """One step that had to do with a memory."""

    step: StepRecord
    how: tuple[str, ...]
    """`recalled`, `in_context`, `left_out`, `written`, in the order in which they happened."""


class StepDiff(Record):
    """How two steps differ: what they compiled, what they asked, what they were answered."""

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
    """What could not be compared, and why."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs, of what could be compared."""
        one = self.compile
        same = one is None or (
            one.is_empty and not one.rescored and one.budget_before == one.budget_after
        )
        return same and not (self.request or self.response or self.compaction)
