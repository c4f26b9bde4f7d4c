"""An id that is a UUID or a number is an id: a call is recorded, and its thread found by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from llama_index.core.base.llms.types import ChatMessage
from llama_index_instrumentation.dispatcher import instrument_tags
from pydantic_ai import Agent, ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from tests.integrations.llama_scripted import Scripted

from tallystick import Actor, Tally
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware
from tallystick_langgraph import TallySaver
from tallystick_llama_index import TallyInstrumentation, TallyMemory
from tallystick_pydantic_ai import TallyRecorder

OpenTally = Callable[..., Tally]
ID = UUID("0199f2a4-0000-7000-8000-000000000001")


class Model(GenericFakeChatModel):
    """A chat model that plays its answers, whatever tools it is offered."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def _model() -> Model:
    return Model(messages=iter([AIMessage("Yes.")] * 3))


@pytest.mark.parametrize("id", [ID, 7], ids=["UUID", "int"])
@pytest.mark.parametrize("observer", ["handler", "middleware", "both"])
def test_a_thread_of_any_id_is_recorded(open_sqlite: OpenTally, id: Any, observer: str) -> None:
    with open_sqlite() as tally:
        handler, middleware = TallyCallbackHandler(tally), TallyMiddleware(tally)
        saver = TallySaver(tally)
        agent = create_agent(
            _model(),
            middleware=[] if observer == "handler" else [middleware],
            checkpointer=saver,
        )
        config: Any = {
            "configurable": {"thread_id": id, "user_id": ID, "when": object()},
            "metadata": {"job": ID, "user_id": ID},
            "callbacks": [] if observer == "middleware" else [handler],
        }
        inputs: Any = {"messages": [("user", "Hm?")]}
        agent.invoke(inputs, config)

        assert (handler.failures, middleware.failures) == (0, 0)
        bound = tally.bind(Actor(user=str(ID)))
        [run] = bound.recordings.runs()
        [step] = [step for step in bound.recordings.steps(run.id) if step.step_kind == "model_call"]
        assert step.metadata["thread_id"] == str(id)
        assert bound.recordings.verify(run.id).ok
        # The step names the thread as the saver does, so that there is a way back to it.
        place: Any = saver.at_step(step.id, config=config)
        assert place["configurable"]["thread_id"] == str(id)


def test_a_chain_with_a_uuid_in_its_metadata_is_recorded(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally)
        chain = RunnableLambda(lambda text: text) | _model()
        chain.invoke("Hm?", {"metadata": {"thread_id": ID, "job": ID}, "callbacks": [handler]})

        assert handler.failures == 0
        [run] = tally.bind().recordings.runs()
        assert run.metadata["thread_id"] == str(ID)


def test_a_run_of_pydantic_ai_takes_ids_of_any_type(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        recorder = TallyRecorder(tally)
        model = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("Yes.")]))
        agent = Agent(model, capabilities=[recorder])
        conversation: Any = ID
        asyncio.run(
            agent.run("Hm?", metadata={"user_id": ID, "job": ID}, conversation_id=conversation)
        )

        assert recorder.failures == 0
        assert len(tally.bind(Actor(user=str(ID))).recordings.runs()) == 1


def test_llama_index_takes_ids_of_any_type(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with TallyInstrumentation(tally) as watching, instrument_tags({"user_id": ID, "job": ID}):
            Scripted("Yes.").chat([ChatMessage("Hm?")])
            memory = TallyMemory(tally, session_id=ID)
            memory.put(ChatMessage("I like tea."))

        assert watching.failures == 0
        bound = tally.bind(Actor(user=str(ID)))
        assert len(bound.recordings.runs()) == 1
        assert [turn.conversation for turn in bound.memories(kinds=["turn"])] == [str(ID)]
