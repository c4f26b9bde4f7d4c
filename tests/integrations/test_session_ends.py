"""A session ends alike in every runtime: its conversation is reflected on where the tally does so,
and the answer says where it does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from tests.scripted import concluder

from tallystick import Actor, Tally
from tallystick.settings import Settings
from tallystick.tally import BoundTally
from tallystick_hooks.handling import handle
from tallystick_langchain import TallyMiddleware
from tallystick_learning import Learning
from tallystick_llama_index import TallyMemory
from tallystick_pydantic_ai import TallyRecorder

REVIEW = Settings(reflection="review")
OpenTally = Callable[..., Tally]
DECIDED = "We decided to keep the boats in the north harbour."


def _langchain(bound: BoundTally) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("Noted.")]))
    agent: Any = create_agent(model, [], middleware=[TallyMiddleware(bound, capture="user")])
    agent.invoke({"messages": [HumanMessage(DECIDED)]}, {"configurable": {"thread_id": "monday"}})


def _pydantic_ai(bound: BoundTally) -> None:
    agent = Agent(TestModel(), capabilities=[TallyRecorder(bound, capture="user", strict=True)])
    asyncio.run(agent.run(DECIDED, conversation_id="monday"))


def _llama_index(bound: BoundTally) -> None:
    memory = TallyMemory(bound, session_id="monday")
    memory.put(ChatMessage(DECIDED, role=MessageRole.USER))


def _hook(bound: BoundTally) -> None:
    said = {"speaker": "user", "text": DECIDED, "key": "1"}
    handle(bound, "turn-end", {"session": "monday", "turns": [said]})


def _python(bound: BoundTally) -> None:
    bound.remember(DECIDED, kind="turn", conversation="monday", speaker=bound.actor.user)


RUNTIMES = [_langchain, _pydantic_ai, _llama_index, _hook, _python]


@pytest.mark.parametrize("converse", RUNTIMES, ids=lambda each: each.__name__.strip("_"))
def test_what_a_session_decided_is_known_when_the_next_one_starts(
    open_sqlite: OpenTally, converse: Callable[[BoundTally], None]
) -> None:
    with open_sqlite(settings=REVIEW, learning_model=concluder()) as tally:
        bound = tally.bind()
        converse(bound)
        [turn] = [each for each in bound.memories(kinds=["turn"]) if each.content == DECIDED]
        assert turn.conversation == "monday"
        assert bound.memories(kinds=["decision"]) == []

        ended = Learning(bound).end_session("monday")

        assert (ended.processing, ended.waiting) == ("processed", ended.read)
        [proposal] = [each for each in bound.reviews.list() if each.derived_from == (turn.id,)]
        bound.reviews.decide(proposal.id, "accept", reason="so it is")
        assert [each.content for each in bound.memories(kinds=["decision"])] == [DECIDED]
        assert DECIDED in bound.wake().text
        assert Learning(bound).end_session("monday").proposals == (), "nothing is concluded twice"


def test_a_session_that_is_not_reflected_on_says_why(open_tally: OpenTally) -> None:
    anna = Actor(user="anna", role="operator")
    with open_tally() as tally:
        assert Learning(tally.bind(anna)).end_session("monday").processing == "off"
    with open_tally(settings=REVIEW, learning_model=concluder()) as tally:
        bound = tally.bind(anna)
        _python(bound)
        bound.operator.freeze(reason="audit", what="autonomy")
        ended = Learning(bound).end_session("monday")
        assert (ended.processing, ended.read) == ("suspended", 0)
        bound.operator.thaw(reason="over", what="autonomy")
        queued = Learning(bound).end_session("monday", mode="async")
        assert (queued.processing, bound.reviews.list()) == ("queued", [])
        tally.drain()
        assert len(bound.reviews.list()) == 1
