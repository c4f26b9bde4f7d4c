"""Context manager of `from_conn_string`: a saver or a store with a tally of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from tallystick.aio import in_thread
from tallystick.records import Actor
from tallystick.tally import Tally

__all__ = ["ManagedTally"]

T = TypeVar("T")


class ManagedTally(Generic[T]):
    """A tally that is opened at the beginning of a `with` or `async with` block and closed at its
    end.
    """

    def __init__(
        self, factory: Callable[..., T], location: str, options: Mapping[str, Any]
    ) -> None:
        self._factory = factory
        self._location = location
        self._options = options
        self._tally: Tally | None = None

    def __enter__(self) -> T:
        self._tally = Tally.open(self._location)
        actor = self._options.get("actor")
        bound = self._tally.bind(actor) if isinstance(actor, Actor) else self._tally
        return self._factory(bound, **self._options)

    def __exit__(self, *_: object) -> None:
        if self._tally is not None:
            self._tally.close()

    async def __aenter__(self) -> T:
        return await in_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self.__exit__)
