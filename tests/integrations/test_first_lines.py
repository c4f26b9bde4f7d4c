"""The lines that a newcomer pastes remember and recall: what was said in one conversation is sent
to the model in the next.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import BaseMessage
from langgraph.graph import START, MessagesState, StateGraph
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tallystick_html import first_lines, opening_lines

FACT, QUESTION = "My locker is number 5.", "Which locker is mine?"

Names = dict[str, Any]
Sent = list[str]


class Model(FakeListChatModel):
    """A model that keeps what it was sent."""

    sent: list[str] = []

    def _call(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> str:
        self.sent.append(str(messages))
        return super()._call(messages, *args, **kwargs)


def _langgraph(names: Names) -> tuple[Callable[[str, str], Any], Sent]:
    model = Model(responses=["Noted."])
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: names["answer"](state))
    builder.add_edge(START, "answer")
    names |= {"builder": builder, "model": model}
    return lambda text, thread: names["graph"].invoke(
        {"messages": [("user", text)]}, {"configurable": {"thread_id": thread}}
    ), model.sent


def _langchain(names: Names) -> tuple[Callable[[str, str], Any], Sent]:
    model = Model(responses=["Noted."])
    names |= {"create_agent": create_agent, "model": model, "tools": []}
    return lambda text, _: names["agent"].invoke({"messages": [("user", text)]}), model.sent


def _pydantic_ai(names: Names) -> tuple[Callable[[str, str], Any], Sent]:
    sent: Sent = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        sent.append(str(messages))
        return ModelResponse(parts=[TextPart("Noted.")])

    names |= {"Agent": Agent, "model": FunctionModel(answer)}
    return lambda text, _: names["agent"].run_sync(text), sent


def _llama_index(names: Names) -> tuple[Callable[[str, str], Any], Sent]:
    sent: Sent = []  # the model repeats its prompt
    names |= {"RetrieverQueryEngine": RetrieverQueryEngine, "llm": MockLLM()}
    return lambda text, _: sent.append(str(names["engine"].query(text))), sent


@pytest.mark.parametrize(
    ("runtime", "prepare"),
    [
        ("LangGraph", _langgraph),
        ("LangChain", _langchain),
        ("PydanticAI", _pydantic_ai),
        ("LlamaIndex", _llama_index),
    ],
)
def test_the_lines_to_paste_remember_in_one_conversation_and_recall_in_the_next(
    runtime: str, prepare: Callable[[Names], tuple[Callable[[str, str], Any], Sent]], tmp_path: Path
) -> None:
    names: Names = {}
    say, sent = prepare(names)
    exec(opening_lines(str(tmp_path / "tally")), names)
    exec(first_lines()[runtime], names)
    try:
        say(FACT, "1")
        say(QUESTION, "2")
    finally:
        if "recording" in names:
            names["recording"].detach()
        remembered = [memory.content for memory in names["tally"].bind().memories()]
        names["tally"].close()
    assert remembered == [QUESTION, FACT]
    assert FACT in sent[-1]


def test_there_are_lines_for_each_runtime_that_the_readme_names() -> None:
    assert list(first_lines()) == ["LangGraph", "LangChain", "PydanticAI", "LlamaIndex"]
