"""Context manager of `from_conn_string`: a saver or a store with a tally of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from tallystick.aio import begin_in_thread, end_in_thread
from tallystick.kit import ActorSource
from tallystick.kit.arguments import check_actor, check_scope
from tallystick.records import Actor, Scope
from tallystick.tally import BoundTally, Tally


class SetUp:
    """The answer of `setup`, which may be awaited: asynchronous code of LangGraph's own savers and
    stores writes `await saver.setup()`.
    """

    def __await__(self) -> Iterator[None]:
        return iter(())


T = TypeVar("T")


class ManagedTally(Generic[T]):
    """A tally that is opened at the beginning of a `with` or `async with` block and closed at its
    end.
    """

    def __init__(
        self,
        factory: Callable[[Tally | BoundTally], T],
        location: str,
        *,
        piece: str,
        actor: ActorSource | None,
        scope: str | Scope | None,
    ) -> None:
        """`factory` makes the piece on a tally. Raises InvalidInput before anything is opened."""
        check_actor(actor, piece)
        check_scope(scope)
        self._factory = factory
        self._location = location
        self._actor = actor
        self._piece = piece
        self._tally: Tally | None = None

    def __repr__(self) -> str:
        state = "closed" if self._tally is None else repr(self._tally.location)
        return f"<{self._piece} of a tally of its own: {state}; enter it by `with`>"

    def __enter__(self) -> T:
        tally = Tally.open(self._location)
        try:
            bound = tally.bind(self._actor) if isinstance(self._actor, Actor) else tally
            piece = self._factory(bound)
        except BaseException:
            tally.close()
            raise
        self._tally = tally
        return piece

    def __exit__(self, *_: object) -> None:
        if self._tally is not None:
            self._tally.close()
            self._tally = None

    async def __aenter__(self) -> T:
        return await begin_in_thread(self.__enter__, self.__exit__)

    async def __aexit__(self, *_: object) -> None:
        await end_in_thread(self.__exit__)
