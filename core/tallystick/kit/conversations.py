"""The context of one conversation in one call, for code without a framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.compiler import FRAMED
from tallystick.errors import InvalidInput
from tallystick.kit.arguments import check_count
from tallystick.kit.turn_recall import recall_for_turn
from tallystick.records import CompileConfig, CompiledContext, ContextItem, Memory, ToolSpec
from tallystick.tally import BoundTally

AGENT_CONFIG = CompileConfig(turn_share=20)
"""For agents with tools: the results that the turn will bring have room from the first step on."""

_TURNS, _MEMORIES = 40, 8


def conversation_context(
    bound: BoundTally,
    message: str,
    *,
    conversation: str,
    budget: int,
    system: str | None = None,
    tools: Sequence[ToolSpec] = (),
    items: Sequence[ContextItem | Mapping[str, Any]] = (),
    turns: int = _TURNS,
    memories: int = _MEMORIES,
    **options: Any,
) -> CompiledContext:
    """Return the context for the user's next message: the instructions, the last turns of the
    conversation, what is remembered from elsewhere, and the message.

    `items` stand behind the message: the calls and results of tools so far. `options` are those of
    `bound.compile`. Turns are those that `bound.keep_turn` stored of runs whose metadata has this
    `thread_id`. Raises as `recall` and `compile`.
    """
    if not isinstance(bound, BoundTally):
        raise InvalidInput(
            "conversation_context takes a tally that is bound: tally.bind(Actor(user=…)).",
            argument="bound",
        )
    if not message.strip():
        raise InvalidInput("There is no message to answer.", argument="message")
    check_count("turns", turns)
    check_count("memories", memories)
    earlier: list[Memory] = []
    if turns:
        earlier = bound.memories(kinds=("turn",), conversation=conversation, limit=turns)[::-1]
    hits = recall_for_turn(bound, message, limit=memories, turn=None, outside_of=conversation)
    start = [] if system is None else [ContextItem(id="system", kind="system", content=system)]
    return bound.compile(
        [
            *start,
            *hits,
            *(_turn(bound, turn) for turn in earlier),
            ContextItem(id="message", kind="user_msg", content=message),
            *items,
        ],
        budget=budget,
        query=message,
        tools=tools,
        **{"target": FRAMED, "config": AGENT_CONFIG if tools else None, **options},
    )


def _turn(bound: BoundTally, turn: Memory) -> ContextItem:
    is_user = turn.speaker in (None, bound.actor.user, bound.actor.acting_for)
    return ContextItem(
        id=turn.id, kind="user_msg" if is_user else "assistant_msg", content=turn.content
    )
