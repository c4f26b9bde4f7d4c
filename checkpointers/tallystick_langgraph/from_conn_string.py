"""What `from_conn_string` gives: a saver or a store with a tally of its own, for a `with` or an
`async with` block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from tallystick.aio import in_thread
from tallystick.records import Actor
from tallystick.tally import Tally

__all__ = ["Opened"]

T = TypeVar("T")


class Opened(Generic[T]):
    """Opens the tally at the beginning of the block and closes it at its end."""

    def __init__(self, made: Callable[..., T], where: str, options: Mapping[str, Any]) -> None:
        self._made = made
        self._where = where
        self._options = options
        self._tally: Tally | None = None

    def __enter__(self) -> T:
        self._tally = Tally.open(self._where)
        actor = self._options.get("actor")
        bound = self._tally.bind(actor) if isinstance(actor, Actor) else self._tally
        return self._made(bound, **self._options)

    def __exit__(self, *_: object) -> None:
        if self._tally is not None:
            self._tally.close()

    async def __aenter__(self) -> T:
        return await in_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self.__exit__)
