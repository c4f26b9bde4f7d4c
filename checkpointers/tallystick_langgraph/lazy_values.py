"""Channel values of a listed checkpoint: a dict that is filled on first access.

Listing ten checkpoints of a long thread would otherwise build ten times all of its messages, to
read ten ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class _Unread:
    """Placeholder for code that reads a dict at the C level, so that it fails there instead of
    finding nothing.
    """

    def __repr__(self) -> str:
        return "<not read yet: use dict(values)>"


class LazyValues(dict[str, Any]):
    """Channel to value, read from the tally on first use; every method of a dict reads first."""

    def __init__(self, channels: frozenset[str], read: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(dict.fromkeys(sorted(channels), _Unread()))
        self._read: Callable[[], Mapping[str, Any]] | None = read

    def _fill(self) -> None:
        if self._read is not None:
            values = self._read()
            self._read = None
            super().clear()
            super().update(values)

    def __getitem__(self, name: str) -> Any:
        self._fill()
        return super().__getitem__(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self._fill()
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        self._fill()
        super().__delitem__(name)

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return super().__iter__()

    def __reversed__(self) -> Iterator[str]:
        self._fill()
        return super().__reversed__()

    def __eq__(self, other: object) -> bool:
        self._fill()
        if isinstance(other, LazyValues):
            other._fill()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __repr__(self) -> str:
        self._fill()
        return super().__repr__()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.copy(),)

    def get(self, name: str, default: Any = None) -> Any:
        self._fill()
        return super().get(name, default)

    def keys(self) -> Any:
        self._fill()
        return super().keys()

    def values(self) -> Any:
        self._fill()
        return super().values()

    def items(self) -> Any:
        self._fill()
        return super().items()

    def copy(self) -> dict[str, Any]:
        self._fill()
        return dict(super().items())

    def pop(self, *arguments: Any) -> Any:
        self._fill()
        return super().pop(*arguments)

    def popitem(self) -> tuple[str, Any]:
        self._fill()
        return super().popitem()

    def setdefault(self, name: str, default: Any = None) -> Any:
        self._fill()
        return super().setdefault(name, default)

    def update(self, *arguments: Any, **keywords: Any) -> None:
        self._fill()
        super().update(*arguments, **keywords)

    def clear(self) -> None:
        self._read = None
        super().clear()

    __hash__ = None
