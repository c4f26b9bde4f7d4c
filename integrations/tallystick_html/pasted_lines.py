"""The first lines of each runtime: a newcomer pastes them, and an agent remembers and recalls."""

from __future__ import annotations

from collections.abc import Mapping

_OPEN = """\
from tallystick import Tally
tally = Tally.open({place!r})"""

_RUNTIMES: Mapping[str, str] = {
    "LangGraph": """\
from tallystick_langchain import TallyCallbackHandler, compile_messages
from tallystick_langgraph import TallySaver, TallyStore

def answer(state):
    return {"messages": [model.invoke(compile_messages(state, tally))]}

graph = builder.compile(checkpointer=TallySaver(tally), store=TallyStore(tally))
graph = graph.with_config(callbacks=[TallyCallbackHandler(tally, capture="user")])""",
    "LangChain": """\
from tallystick_langchain import TallyMiddleware
agent = create_agent(model, tools, middleware=[TallyMiddleware(tally, capture="user")])""",
    "PydanticAI": """\
from tallystick_pydantic_ai import Tallystick
agent = Agent(model, capabilities=[Tallystick(tally, capture="user")])""",
    "LlamaIndex": """\
from tallystick_llama_index import TallyInstrumentation, TallyRetriever
engine = RetrieverQueryEngine.from_args(TallyRetriever(tally), llm=llm)
recording = TallyInstrumentation(tally, capture="user").attach()""",
}

CAPTURE = 'capture="user" remembers what the user says; without it an agent remembers nothing.'
"""What has to be said beneath the lines."""


def opening_lines(place: str = ".tally") -> str:
    """Return the lines that open the tally of a folder or database, before all others."""
    return _OPEN.format(place=place)


def first_lines() -> Mapping[str, str]:
    """Return the lines to paste behind those that open a tally, by the name of the runtime."""
    return _RUNTIMES
