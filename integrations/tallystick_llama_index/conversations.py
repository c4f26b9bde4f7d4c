"""Conversations that a TallyMemory gave to an agent, as the model of `ruled_llm` takes them over.

The model compiles the whole request: it starts from what was said, and not from what the memory
made of it, for as long as the messages live that the memory gave.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from llama_index.core.base.llms.types import ChatMessage


class Conversation(NamedTuple):
    """Messages with the session that they are from."""

    messages: list[ChatMessage]
    """All that was said, where the memory gave a part of it."""
    session: str | None = None
    turn: str | None = None
    """The turn that its memories were recalled for."""


_session: ContextVar[str | None] = ContextVar("tallystick_session", default=None)
"""The session of the memory of the chat under way."""


def enter_session(session: str | None) -> Callable[[], None]:
    """Make a session current, whose messages are in the prompt; return what makes it so no
    longer.
    """
    before = _session.get()
    _session.set(session)

    def leave() -> None:
        # Set rather than reset by token: the end may come in another context than the start.
        if _session.get() == session:
            _session.set(before)

    return leave


def session_under_way() -> str | None:
    """Return the session of the chat under way, if a TallyInstrumentation watches it, or None."""
    return _session.get()


_given: dict[int, Conversation] = {}


def note_given(messages: Sequence[ChatMessage], conversation: Conversation) -> None:
    """Note what messages of a memory were made of, for as long as they live."""
    for message in messages:
        key = id(message)
        if key not in _given:
            weakref.finalize(message, _given.pop, key, None).atexit = False
        _given[key] = conversation


def take_over(messages: Sequence[ChatMessage], *, whole: bool) -> Conversation:
    """Return the messages of a request with the session that they are from, if a memory gave some;
    the whole of its conversation in their place, where that is wanted.
    """
    known = [_given.get(id(message)) for message in messages]
    conversation = next((each for each in known if each is not None), None)
    if conversation is None or not whole:
        return (conversation or Conversation([]))._replace(messages=list(messages))
    at = known.index(conversation)
    rest = [
        message
        for message, each in zip(messages, known, strict=True)
        if each is None or each.session != conversation.session
    ]
    return conversation._replace(messages=[*rest[:at], *conversation.messages, *rest[at:]])
