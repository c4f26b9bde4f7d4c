"""What is recalled for a turn, the same in every runtime; and the context of one conversation in
one call, for code without a framework.

An agent calls its model several times for one request of the user. The request is recalled once:
the same hits are shown at each call, so that the prompt keeps its prefix, until one of them was
changed, forgotten or withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tallystick.compiler import FRAMED
from tallystick.errors import InvalidInput
from tallystick.kit.arguments import check_count
from tallystick.kit.call_tree import run_under_way
from tallystick.records import (
    CompileConfig,
    CompiledContext,
    ContextItem,
    Hit,
    Memory,
    Remembered,
    ToolSpec,
)
from tallystick.tally import BoundTally
from tallystick.tally.captured_turns import Captured, Turn
from tallystick.tally.services import services_of


def recall_for_turn(
    bound: BoundTally,
    text: str,
    *,
    limit: int,
    turn: str | None,
    outside_of: str | None = None,
    namespace: tuple[str, ...] | None = None,
) -> list[Hit]:
    """Return the hits for the latest request of a user, best first, at most `limit`.

    `turn` identifies the request: the run that answers it, or its conversation and its place there.
    The same words in another turn are recalled anew, so that what was learnt since is found, and
    always where `turn` is None. `outside_of` names a conversation whose own turns are left out,
    because its messages are in the prompt already. Items of stores are recalled beneath
    `namespace` alone. An empty text, a limit of 0, or a request that nothing is likely to answer
    recalls nothing.
    Raises as `recall`.
    """
    text = text.strip()
    if not text or limit < 1:
        return []
    if turn is None:
        return _recall(bound, text, limit, outside_of, namespace)
    key = Turn(str(bound.actor), str(bound.scope), turn, text, limit, outside_of, namespace)
    turn_hits = services_of(bound).turn_hits
    hits = turn_hits.get(key)
    if hits is None or not bound.still_stand(hits):
        hits = _recall(bound, text, limit, outside_of, namespace)
        turn_hits.put(key, hits)
    return list(hits)


def _recall(
    bound: BoundTally,
    text: str,
    limit: int,
    outside_of: str | None,
    namespace: tuple[str, ...] | None,
) -> list[Hit]:
    if outside_of is None:
        return list(bound.recall(text, limit=limit, namespace=namespace, only_confident=True))
    # Twice as many are asked for, because some may be left out.
    hits = bound.recall(text, limit=2 * limit, namespace=namespace, only_confident=True)
    return [hit for hit in hits if hit.memory.conversation != outside_of][:limit]


def note_turns(
    bound: BoundTally, turns: Iterable[tuple[str, str, Remembered]], *, observer: str
) -> None:
    """Note turns that a memory of a runtime has stored by itself, each with its role (`user` or
    `assistant`) and its text: `keep_turn` of the run under way answers `duplicate` for them.
    Nothing outside of a run.
    """
    run = run_under_way(bound)
    if run is None:
        return
    captured = services_of(bound).captured_turns.of(run.id)
    with captured.guard:
        for role, text, remembered in turns:
            words = captured.words(role, text)
            captured.see(observer, words)
            captured.add(words, Captured(observer, remembered, bound.scope))


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
