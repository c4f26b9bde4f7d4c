"""A compiled request is laid out as its pieces stood, with what memory adds before the turn."""

from __future__ import annotations

from collections.abc import Callable

from tallystick import Tally
from tallystick.compiler import outline
from tallystick.kit.laying_out import Piece, laid_out
from tallystick.records import ContextItem

OpenTally = Callable[..., Tally]


def piece(name: str, kind: str | None) -> Piece:
    item = None if kind is None else ContextItem.load({"id": name, "kind": kind, "content": name})
    return Piece((name,), item)


def test_what_the_compiler_cannot_see_into_stays_in_its_place(open_sqlite: OpenTally) -> None:
    pieces = [
        piece("image", None),
        piece("rules", "system"),
        piece("hello", "user_msg"),
        piece("good day", "assistant_msg"),
        piece("sound", None),
        piece("how deep?", "user_msg"),
        piece("film", None),
    ]
    with open_sqlite() as tally:
        items = [each.item for each in pieces if each.item is not None]
        sections = outline(tally.bind().compile(items, budget=2_000))

    def laid(*added: str) -> list[str]:
        return list(
            laid_out(sections, pieces, added=added, send=lambda item, piece: [item.content.upper()])
        )

    assert laid("remembered") == [
        *("image", "RULES", "HELLO", "GOOD DAY", "sound", "remembered", "HOW DEEP?", "film"),
    ]
    assert "remembered" not in laid()
