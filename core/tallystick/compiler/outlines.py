"""Outline: what a compiled context says, in the order of a prompt, for renderers to spell in a
provider's words.

Instructions and tools, the turns of the history window, everything else as one framed block of
data, and the current turn. A renderer adds nothing and leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tallystick.errors import InvalidContext
from tallystick.records import CompiledContext, ContextItem, SectionName, TargetProfile
from tallystick.records.framing import Quote, frame, frame_body
from tallystick.records.times import moment_text

FRAMED = TargetProfile(per_item=8, per_tool=8, per_request=96)
"""The tokens of the outline itself, with some room: dashes, roles and separators, and the own
lines and codes of its two frames.
"""
_MESSAGES = frozenset({"user_msg", "assistant_msg", "tool_result"})
_ROLES = {"user_msg": "user", "assistant_msg": "assistant", "tool_result": "tool"}


@dataclass(frozen=True)
class Outline:
    """A compiled context in the order of a prompt."""

    instructions: tuple[ContextItem, ...]
    """System texts, policy, hard constraints and profile, most stable first."""
    tools: tuple[ContextItem, ...]
    """Tool schemas by name."""
    history: tuple[ContextItem, ...]
    """Earlier messages, as they were."""
    context: str
    """Task, memories, documents and quoted older turns as one framed block; empty for none."""
    turn: tuple[ContextItem, ...]
    """The latest request and what follows it."""
    remembered: str = ""
    """What is remembered among the instructions, as one framed block; empty for none."""

    @property
    def system(self) -> str:
        """The instructions as one text; remembered texts are framed, because they are data."""
        own = [item.content for item in self.instructions if item.kind != "memory"]
        return "\n\n".join(filter(None, [*own, self.remembered]))


class FrameBodies(NamedTuple):
    """The texts between the marks of a compiled context's frames; empty for no frame."""

    remembered: str
    """Memories among the instructions."""
    context: str
    """Task, memories, documents and quoted older turns."""


def frame_bodies(compiled: CompiledContext) -> FrameBodies:
    """Return the texts of the frames of a compiled context, for whoever has the key to their
    codes.
    """
    sections = _sections(compiled)
    prefix, suffix = sections["stable_prefix"], sections["volatile_suffix"]
    quoted_items = [
        *sections["task_context"],
        *(item for item in suffix if item.kind not in _MESSAGES),
    ]
    return FrameBodies(
        frame_body(quote(item) for item in prefix if item.kind == "memory"),
        frame_body(map(quote, quoted_items)),
    )


def outline(compiled: CompiledContext) -> Outline:
    """Return the outline of a compiled context. Raises InvalidContext for calls without results and
    results without calls.
    """
    sections = _sections(compiled)
    prefix, suffix = sections["stable_prefix"], sections["volatile_suffix"]
    turn = tuple(item for item in suffix if item.kind in _MESSAGES)
    # A context may have no section for earlier messages.
    history = tuple(sections.get("history", ()))
    _refuse_unpaired(history, may_wait=False)
    _refuse_unpaired(turn, may_wait=True)
    bodies = frame_bodies(compiled)
    codes = compiled.frame_codes or ("", "")
    return Outline(
        instructions=tuple(item for item in prefix if item.kind != "tool_schema"),
        tools=tuple(item for item in prefix if item.kind == "tool_schema"),
        history=history,
        context=frame(bodies.context, codes[1]),
        turn=turn,
        remembered=frame(bodies.remembered, codes[0]),
    )


def _sections(compiled: CompiledContext) -> dict[SectionName, list[ContextItem]]:
    by_id = {item.id: item for item in compiled.selected_items}
    return {
        section.name: [by_id[name] for name in section.item_ids] for section in compiled.sections
    }


def prompt_text(compiled: CompiledContext) -> str:
    """Return a compiled context as one text, for people and for diffs: no provider's request. Its
    frames have no codes.
    """
    chosen = outline(compiled.model_copy(update={"frame_codes": None}))
    parts = [
        chosen.system,
        *(f"tool: {item.content}" for item in chosen.tools),
        *map(quote_item, chosen.history),
    ]
    return "\n".join(filter(None, [*parts, chosen.context, *map(quote_item, chosen.turn)]))


def quote_item(item: ContextItem) -> str:
    """Return an item as a line for people: its label and its text as it is."""
    return f"{label(item)}{item.content}"


def quote(item: ContextItem) -> Quote:
    """Return an item as an item of a frame: its label and its text, which are escaped there."""
    return Quote(item.content, _speaker(item), _day(item))


def label(item: ContextItem) -> str:
    """Return the label before an item's text where it is quoted."""
    speaker = _speaker(item)
    return f"{_day(item)}{speaker}: " if speaker is not None else _day(item)


def _speaker(item: ContextItem) -> str | None:
    if item.kind in _ROLES:
        return item.source_ref.author or _ROLES[item.kind]
    if item.kind == "memory":
        return item.source_ref.author or None
    return item.source_ref.title or None


def _day(item: ContextItem) -> str:
    at = item.metadata.get("occurred_at") if item.kind == "memory" else None
    if not isinstance(at, int):
        return ""
    return f"[{moment_text(at, '%Y-%m-%d')}] "


def _refuse_unpaired(items: Sequence[ContextItem], *, may_wait: bool) -> None:
    open_calls: list[str] = []
    for place, item in enumerate(items):
        if item.tool_call_id is not None:
            if item.tool_call_id not in open_calls:
                raise InvalidContext(
                    f"The result {item.id!r} answers no call before it.", item_ids=(item.id,)
                )
            open_calls.remove(item.tool_call_id)
            continue
        if open_calls:
            raise InvalidContext(
                f"{item.id!r} stands between a call and its results.", item_ids=(item.id,)
            )
        open_calls = list(item.tool_call_ids)
        if open_calls and not may_wait and place == len(items) - 1:
            raise InvalidContext(f"The calls of {item.id!r} have no results.", item_ids=(item.id,))
    if open_calls and not may_wait:
        raise InvalidContext("A call in the history has no result.", item_ids=tuple(open_calls))
