"""Culprits: tells a text that its provider cannot take from a provider that is away.

A failure of several items is taken apart by halves until each failure is that of one item. Where
different items fail and none succeeds in between, the provider is to blame, and none of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from tallystick.errors import (
    BudgetSpent,
    EgressDenied,
    EmbeddingError,
    ExtractionError,
    TallystickError,
)

T = TypeVar("T")

_AWAY, _DOUBTFUL = 2, 5
"""Different items that fail one after the other where the provider is away: fewer where each error
says so itself.
"""


def retry_of(error: BaseException) -> str:
    """Return what becomes of a job that meets an error; a foreign one is tried some times."""
    return error.retry if isinstance(error, TallystickError) else "some_times"


def blames_provider(error: BaseException) -> bool:
    """Return True for an error that a provider caused: one was asked, and gave nothing usable."""
    is_providers = isinstance(error, (EmbeddingError, ExtractionError))
    return is_providers and not isinstance(error, (BudgetSpent, EgressDenied))


class Suspects:
    """The failures since the last success, each of other items."""

    def __init__(self) -> None:
        self._errors: dict[frozenset[Hashable], BaseException] = {}

    def add(self, items: frozenset[Hashable], error: BaseException) -> None:
        """Note that items failed together, in place of a larger part that they were of."""
        if not blames_provider(error) or any(each < items for each in self._errors):
            return
        others = {each: old for each, old in self._errors.items() if not each > items}
        self._errors = {**others, items: error}  # in one step: several workers share it

    def clear(self) -> None:
        """Note a success: whatever failed before did so for itself."""
        self._errors = {}

    @property
    def are_several(self) -> bool:
        """True if different items failed, and none succeeded in between."""
        return len(self._errors) >= _AWAY

    @property
    def is_away(self) -> bool:
        """True if so many failed that nothing more is worth a try for now."""
        is_certain = all(retry_of(error) == "until_back" for error in self._errors.values())
        return len(self._errors) >= (_AWAY if is_certain else _DOUBTFUL)


class Tried(NamedTuple, Generic[T]):
    """The outcome of one try of some of the items."""

    left: Sequence[T]
    """Items that are not finished."""
    error: BaseException | None = None
    is_proof: bool = True
    """True if the provider answered for one of them."""


@dataclass
class TakenApart(Generic[T]):
    """The outcome of all tries."""

    failed: list[tuple[T, BaseException]] = field(default_factory=list)
    """Items that failed by themselves."""
    left: list[T] = field(default_factory=list)
    """Items that were not tried to the end: the provider is away, or somebody stopped."""
    outage: BaseException | None = None
    """The error by which the provider is away."""
    is_proven: bool = False
    """True if the provider answered for an item: then each failure is that of its item."""


def take_apart(
    items: Sequence[T],
    attempt: Callable[[Sequence[T]], Tried[T]],
    suspects: Suspects,
    *,
    key: Callable[[T], Hashable],
    is_stopping: Callable[[], bool] = lambda: False,
) -> TakenApart[T]:
    """Try `items` together, and in halves where they fail, until each failure is that of one item
    or the provider is away. One culprit among n costs at most 2·log2(n) more tries.
    """
    result = TakenApart[T]()
    waiting: deque[_Part[T]] = deque([_Part(items, [])])
    while waiting and result.outage is None and not is_stopping():
        part = waiting.popleft()
        if len(part.items) > 1 and part.halves_finished == [True]:
            # The left half succeeded: the right one has the culprit.
            waiting.extendleft(reversed(_halves(part.items)))
            continue
        tried = attempt(part.items)
        part.halves_finished.append(tried.error is None)
        if tried.is_proof:
            result.is_proven = True
            suspects.clear()
        if tried.error is None or not tried.left:
            continue
        # Of several items only an error that speaks of the provider says more than of its culprit:
        # then the other half is asked next, and else the parts of this one, down to single items.
        is_common = retry_of(tried.error) == "until_back"
        if len(tried.left) == 1:
            result.failed.append((tried.left[0], tried.error))
        elif is_common:
            waiting.extend(_halves(tried.left))
        else:
            waiting.extendleft(reversed(_halves(tried.left)))
        if len(tried.left) == 1 or is_common:
            suspects.add(frozenset(map(key, tried.left)), tried.error)
        if suspects.is_away:
            result.outage = tried.error
    result.left = [item for part in waiting for item in part.items]
    return result


class _Part(NamedTuple, Generic[T]):
    items: Sequence[T]
    halves_finished: list[bool]
    """Whether it and the other half succeeded, as far as they were tried; both share the list."""


def _halves(items: Sequence[T]) -> list[_Part[T]]:
    middle, finished = len(items) // 2, list[bool]()
    return [_Part(items[:middle], finished), _Part(items[middle:], finished)]
