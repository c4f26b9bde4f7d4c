"""LangMem's store manager on TallyStore, in a graph and outside of one: what it learns of a user is
the user's, or is refused.

`make test-peers` runs it, in the environment that has LangMem.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph

from tallystick import Actor, Tally
from tallystick.errors import Denied
from tallystick_langgraph import TallyStore

langmem = pytest.importorskip("langmem", reason="LangMem is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ADA = Actor(user="ada")
CONFIG: Any = {"configurable": {"langgraph_user_id": "ada"}}
SAID: Any = {"messages": [HumanMessage("I live in Oslo.")]}


class Model(GenericFakeChatModel):
    """Finds one memory in whatever was said."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def _manager(store: TallyStore) -> Any:
    call = {"name": "Memory", "args": {"content": "Ada lives in Oslo."}, "id": "c1"}
    model = Model(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("done")] * 4))
    return langmem.create_memory_store_manager(
        model, namespace=("memories", "{langgraph_user_id}"), store=store
    )


def _kept(tally: Tally, actor: Actor | None) -> list[str]:
    return [str(item.value) for item in tally.bind(actor).items.find()]


def _run(manager: Any, is_async: bool) -> Any:
    return asyncio.run(manager.ainvoke(SAID, CONFIG)) if is_async else manager.invoke(SAID, CONFIG)


@pytest.fixture
def tally(open_sqlite: Callable[..., Tally]) -> Any:
    with open_sqlite() as opened:
        yield opened


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_outside_of_a_graph_a_namespace_of_somebody_else_is_refused(
    tally: Tally, is_async: bool
) -> None:
    manager = _manager(TallyStore(tally, namespace=("memories", "{langgraph_user_id}")))
    with pytest.raises(Denied, match="the namespace names another user"):
        _run(manager, is_async)
    tally.bind(ADA).remember("I am known here.")
    with pytest.raises(Denied, match="the namespace names another user"):
        _run(_manager(TallyStore(tally)), is_async)
    assert (_kept(tally, None), _kept(tally, ADA)) == ([], [])


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("way", ["the view of a user", "in a runnable", "in a graph"])
def test_what_it_learns_of_a_user_is_the_users(tally: Tally, way: str, is_async: bool) -> None:
    template = ("memories", "{langgraph_user_id}")
    bound = tally.bind(ADA) if way == "the view of a user" else tally
    manager: Any = _manager(TallyStore(bound, namespace=template))
    if way == "in a runnable":
        inner = manager

        async def later(said: Any, config: Any) -> Any:
            return await inner.ainvoke(said, config)

        manager = RunnableLambda(lambda said, config: inner.invoke(said, config), later)
    if way == "in a graph":
        node = manager

        def learn(state: MessagesState) -> dict[str, Any]:
            node.invoke({"messages": state["messages"]})
            return {}

        async def learn_later(state: MessagesState) -> dict[str, Any]:
            await node.ainvoke({"messages": state["messages"]})
            return {}

        builder = StateGraph(MessagesState)
        builder.add_node("learn", learn_later if is_async else learn).add_edge(START, "learn")
        manager = builder.compile()
    _run(manager, is_async)
    [kept] = _kept(tally, ADA)
    assert "Ada lives in Oslo." in kept
    assert _kept(tally, None) == []
