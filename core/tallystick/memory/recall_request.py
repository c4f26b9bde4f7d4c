"""The request of a recall: what is asked for beside the query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tallystick.errors import InvalidInput
from tallystick.memory.fields import STORE_ITEM
from tallystick.ranking import RecallWeights
from tallystick.records import Hit, MemoryState
from tallystick.storage.rows import memories


@dataclass(frozen=True)
class RecallRequest:
    """The arguments of a recall, beside the query."""

    limit: int = 10
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """All of them."""
    conversation: str | None = None
    source: str | None = None
    """The id or the address of a source."""
    docs: frozenset[int] | None = None
    """Only these memories, by number."""
    namespace: tuple[str, ...] | None = None
    """The items of stores beneath this namespace as well; empty for all of them, None for none."""
    since: int | None = None
    until: int | None = None
    """The time at which it was said or happened, else remembered, microseconds UTC: from `since` up
    to `until`, exclusive.
    """
    states: tuple[MemoryState, ...] = ()
    """By default what holds, active or redacted; never hidden or deleted."""
    as_of: int | None = None
    """The moment at which a memory must be valid, microseconds UTC; None is now."""
    asked_at: int | None = None
    """The moment from which "last week" is seen; None is now."""
    run_id: str | None = None
    """The run under way."""
    project: str | None = None
    """The project that the caller is bound to."""
    weights: RecallWeights | None = None
    sources: bool = True
    """True if hits name their sources."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Only memories with these labels: `status`, `project`, `assignee`, `language`."""
    min_score: float = 0.0
    only_confident: bool = False
    """All hits where the best is likely to answer, else none."""
    """The least score of a hit."""
    budget: Callable[[Sequence[Hit]], list[Hit]] | None = None
    """Returns the hits that fit a budget of tokens."""

    @property
    def findable_states(self) -> tuple[MemoryState, ...]:
        """The states of the memories that are asked for."""
        return self.states or memories.FINDABLE

    @property
    def filters(self) -> bool:
        """True if the request filters memories."""
        return self._narrows or bool(self.states)

    @property
    def brings_replacements(self) -> bool:
        """True if what replaced a memory joins it, although it was not found itself."""
        return not self._narrows and (not self.states or "active" in self.states)

    @property
    def _narrows(self) -> bool:
        return bool(
            self.kinds
            or self.tags
            or self.conversation
            or self.source
            or self.labels
            or self.docs is not None
        ) or not (self.since is None and self.until is None and self.as_of is None)


def require_answerable(request: RecallRequest) -> None:
    """Raise InvalidInput for a request that nothing can answer."""
    if STORE_ITEM in request.kinds and request.namespace is None:
        raise InvalidInput(
            f"A {STORE_ITEM} is recalled for a call of its namespace only. Name the `namespace`; "
            f"() is all of them.",
            argument="namespace",
        )
    closed = sorted(set(request.states) - set(memories.FINDABLE))
    if closed:
        raise InvalidInput(
            f"Recall never shows what is {' or '.join(closed)}. Use states of "
            f"{', '.join(memories.FINDABLE)}, or list "
            "it by `memories(states=…)`."
        )
