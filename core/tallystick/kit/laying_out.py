"""A request of a runtime as pieces in their order, and a compiled context laid out as pieces again:
parts that the compiler cannot see into pass in their place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tallystick.compiler import Outline
from tallystick.records import ContextItem


class Piece(NamedTuple):
    """Parts of a request that belong together, in their place."""

    raw: tuple[Any, ...]
    item: ContextItem | None
    """None for what passes untouched."""


def laid_out(
    sections: Outline,
    pieces: Sequence[Piece],
    *,
    added: Sequence[Any],
    send: Callable[[ContextItem, Piece], Iterable[Any]],
) -> Iterator[Any]:
    """Yield what is sent in its order: turns as the compiler laid them out, `added` before the
    current turn, and the rest, which stays in any case, where it stood among them. `send` gives the
    parts of an item that is shown.
    """
    shown = {item.id: item for item in (*sections.instructions, *sections.history, *sections.turn)}
    places = {each.item.id: place for place, each in enumerate(pieces) if each.item is not None}
    standing = deque(
        place
        for place, each in enumerate(pieces)
        if each.item is None or each.item.kind == "system"
    )
    is_added = not added

    def before(end: int) -> Iterator[Any]:
        while standing and standing[0] < end:
            piece = pieces[standing.popleft()]
            if piece.item is None:
                yield from piece.raw
            elif piece.item.id in shown:
                yield from send(shown[piece.item.id], piece)

    for item in (*sections.history, *sections.turn):
        yield from before(places[item.id])
        if not is_added and sections.turn and item is sections.turn[0]:
            yield from added
            is_added = True
        yield from send(item, pieces[places[item.id]])
    yield from before(len(pieces))
    if not is_added:
        yield from added
