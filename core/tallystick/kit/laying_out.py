"""A request of a runtime as pieces in their order, and a compiled context laid out as pieces again:
parts that the compiler cannot see into pass in their place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from tallystick.compiler import Outline, outline
from tallystick.kit.rendering import changed_items
from tallystick.kit.request_compiling import memory_text
from tallystick.records import CompiledContext, ContextItem, ToolSpec

Count = Callable[[str], int]
M = TypeVar("M")
INSTRUCTIONS = "instructions-0"
"""Id of the item of instructions that are one text."""


class Piece(NamedTuple):
    """Parts of a request that belong together, in their place."""

    raw: tuple[Any, ...]
    item: ContextItem | None
    """None for what passes untouched."""
    text: str = ""
    """The text of what passes untouched, which rules see and which is counted."""
    after: str | None = None
    """Id of the item without which what passes untouched says nothing."""


@dataclass(frozen=True)
class ReadRequest:
    """A request as the compiler reads it."""

    instructions: Sequence[ContextItem]
    pieces: Sequence[Piece]
    tools: Sequence[ToolSpec] = ()
    beside: Sequence[str] = ()
    """Texts beside the pieces, such as the schema of the answer, which pass untouched."""

    @property
    def items(self) -> list[ContextItem]:
        """Return the items, instructions first."""
        return [*self.instructions, *(each.item for each in self.pieces if each.item is not None)]

    def untouched(self, count: Count) -> int:
        """Return the tokens of what passes untouched."""
        texts = [each.text for each in self.pieces if each.item is None]
        return sum(map(count, [*texts, *self.beside]))

    def for_rules(self, own_text: Callable[[str], str]) -> dict[str, Any]:
        """Return items and tools as rules over items see them: whatever passes untouched counts as
        a text of the system. What memory added went through its compile: `own_text`, which takes
        the frames of the tally out of a text, leaves nothing of it.
        """
        passing = [
            ContextItem(id=f"untouched-{place}", kind="system", content=piece.text)
            for place, piece in enumerate(self.pieces)
            if piece.item is None
        ]
        said = [each for each in self.items if not each.content or own_text(each.content).strip()]
        return {"items": [*said, *passing], "tools": self.tools}


def before_request(
    messages: Sequence[M], added: M | None, is_request: Callable[[M], bool]
) -> list[M]:
    """Return messages with what memory adds before the latest request of the user, else behind
    all.
    """
    places = [place for place, message in enumerate(messages) if is_request(message)]
    at = places[-1] if places else len(messages)
    return [*messages[:at], *([] if added is None else [added]), *messages[at:]]


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
                if piece.after is None or piece.after in shown:
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


class LaidOut(NamedTuple):
    """A compiled context as the parts of a request whose instructions are one text."""

    instructions: str | None
    parts: list[Any]
    tools: frozenset[str | None]
    """Names of the tools that may be offered."""


def lay_out(
    compiled: CompiledContext,
    read: ReadRequest,
    *,
    message: Callable[[str], Any],
    change: Callable[[ContextItem, Piece], Iterable[Any]],
    is_profile_apart: bool = True,
) -> LaidOut:
    """Return the parts of a compiled context; unchanged ones are the objects that came in, and
    `change` gives those of an item that the compiler changed. The profile stands behind the
    instructions, or unless it is apart in the `message` with what memory adds. Raises
    InvalidContext for calls and results that do not pair.
    """
    sections, changed = outline(compiled), changed_items(compiled)
    texts = [each.content for each in sections.instructions if each.id == INSTRUCTIONS]
    texts += [sections.remembered] if sections.remembered else []
    context = sections.context if is_profile_apart else memory_text(compiled)
    parts = laid_out(
        sections,
        read.pieces,
        added=[message(context)] if context else [],
        send=lambda item, piece: change(item, piece) if item.id in changed else piece.raw,
    )
    names = (item.source_ref.title for item in sections.tools)
    return LaidOut("\n\n".join(texts) or None, list(parts), frozenset(names))
