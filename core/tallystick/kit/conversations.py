"""What memory shows in a session, the same in every runtime; and the context of one conversation
in one call, for code without a framework.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tallystick.compiler import FRAMED
from tallystick.errors import InvalidInput
from tallystick.kit.arguments import check_count
from tallystick.kit.call_tree import run_under_way
from tallystick.kit.rendering import framed_hits
from tallystick.records import (
    CompileConfig,
    CompiledContext,
    ContextItem,
    ItemKind,
    Memory,
    Piece,
    Remembered,
    ToolSpec,
    WorkingSet,
)
from tallystick.tally import BoundTally
from tallystick.tally.captured_turns import Captured
from tallystick.tally.observed_calls import thread_of
from tallystick.tally.services import services_of


def working_set_for(
    bound: BoundTally,
    text: str,
    *,
    conversation: str | None,
    turn: str | None,
    memories: int,
    in_prompt: bool = True,
    profile_budget: int | None = None,
    namespace: tuple[str, ...] | None = None,
) -> WorkingSet:
    """Return the working set of a session at a turn, as `bound.working_set`; nothing where no
    memories are wanted. Where nobody names the conversation it is that of the run under way.
    """
    if memories < 1:
        return WorkingSet()
    if conversation is None and (run := run_under_way(bound)) is not None:
        conversation = thread_of(run)
    return bound.working_set(
        text,
        conversation=conversation,
        in_prompt=in_prompt,
        turn=turn,
        memories=memories,
        profile_budget=profile_budget,
        namespace=namespace,
    )


def framed_pieces(bound: BoundTally, pieces: Iterable[Piece]) -> str:
    """Return pieces of a working set as one frame, as `framed_hits`; empty for none."""
    return framed_hits(bound, [piece.hit for piece in pieces])


_PAGE = 200


def turns_of(bound: BoundTally, conversation: str) -> Iterator[Memory]:
    """Yield the turns of a conversation, the newest first."""
    before: str | None = None
    while True:
        page = bound.memories(
            kinds=("turn",), conversation=conversation, limit=_PAGE, before=before
        )
        yield from page
        if len(page) < _PAGE:
            return
        before = page[-1].id


def is_user(bound: BoundTally, speaker: str | None) -> bool:
    """Return True if a speaker is the user for whom the view acts."""
    return speaker in (None, bound.actor.user, bound.actor.acting_for)


def is_of_person(bound: BoundTally, turn: Memory) -> bool:
    """Return True if a person said a turn: the user for whom the view acts, or who else stored it
    in a scope that several share.
    """
    return is_user(bound, turn.speaker) or turn.speaker == turn.created_by


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

_TURNS, _MEMORIES = 40, 3


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
    remembered = working_set_for(
        bound, message, conversation=conversation, turn=None, memories=memories
    )
    start = [] if system is None else [ContextItem(id="system", kind="system", content=system)]
    return bound.compile(
        [
            *start,
            *remembered,
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
    kind: ItemKind = "user_msg" if is_of_person(bound, turn) else "assistant_msg"
    return ContextItem(id=turn.id, kind=kind, content=turn.content)
