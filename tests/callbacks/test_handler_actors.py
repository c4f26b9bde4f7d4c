"""The handler learns who acts from the first place that knows, and starts one run for a root."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from tallystick import Actor, CallContext, Tally
from tallystick.errors import Denied
from tallystick_langchain import TallyCallbackHandler

OpenTally = Callable[..., Tally]
ADA, BOB = Actor(user="ada"), Actor(user="bob")
WAYS: Mapping[str, dict[str, Any]] = {
    "owner": {},
    "user_id": {"configurable": {"user_id": "ada"}},
    "langgraph_auth_user_id": {"configurable": {"langgraph_auth_user_id": "ada"}},
    "actor": {"configurable": {"actor": ADA}},
    "metadata": {"metadata": {"user_id": "ada"}},
    "context": {"context": {"user_id": "ada"}},
}
IS_ASYNC = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
OF_WAY = pytest.mark.parametrize("way", WAYS)


def _call(graph: Any, given: Any, way: str, handler: Any, *, is_async: bool) -> Any:
    named = WAYS[way]
    config = {
        "configurable": {"thread_id": "t", **named.get("configurable", {})},
        "metadata": named.get("metadata", {}),
        "callbacks": [handler],
    }
    options = {"context": named["context"]} if "context" in named else {}
    if is_async:
        return asyncio.run(graph.ainvoke(given, config, **options))
    return graph.invoke(given, config, **options)


def _bound(tally: Tally, way: str) -> Any:
    return tally.bind() if way == "owner" else tally.bind(ADA)


def _runs(tally: Tally, way: str) -> list[tuple[str, str | None]]:
    return [(run.status, run.goal) for run in reversed(_bound(tally, way).recordings.runs())]


def _kept(tally: Tally, way: str) -> list[str]:
    return [memory.content for memory in _bound(tally, way).memories()]


def _graph(node: Any, **parts: Any) -> Any:
    schema: Any = dict
    builder = StateGraph(MessagesState, context_schema=schema).add_node("node", node)
    return builder.add_edge(START, "node").compile(checkpointer=InMemorySaver(), **parts)


@IS_ASYNC
@OF_WAY
def test_a_graph_in_which_nothing_is_called_is_recorded_and_captured(
    open_sqlite: OpenTally, way: str, is_async: bool
) -> None:
    graph = _graph(lambda state: {"messages": [AIMessage("done")]})
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, capture="user", strict=True)
        _call(graph, {"messages": [HumanMessage("Book it.")]}, way, handler, is_async=is_async)
        assert (_runs(tally, way), _kept(tally, way), handler.failures) == (
            [("completed", "Book it.")],
            ["Book it."],
            0,
        )
        if way != "owner":
            assert tally.bind().recordings.runs() == []


@IS_ASYNC
@OF_WAY
def test_a_graph_that_asks_and_is_resumed_is_a_blocked_run_and_one_that_goes_on(
    open_sqlite: OpenTally, way: str, is_async: bool
) -> None:
    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(str(interrupt("Sure?")))]}

    graph = _graph(ask)
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, capture="user", strict=True)
        _call(graph, {"messages": [HumanMessage("Book it.")]}, way, handler, is_async=is_async)
        _call(graph, Command(resume="yes"), way, handler, is_async=is_async)
        runs = _runs(tally, way)
        assert (runs, handler.failures) == (
            [("blocked", "Book it."), ("completed", "Book it.")],
            0,
        )


@IS_ASYNC
@OF_WAY
def test_an_entrypoint_that_asks_and_its_tasks_are_recorded_for_whoever_acts(
    open_sqlite: OpenTally, way: str, is_async: bool
) -> None:
    @task
    def double(number: int) -> int:
        return number * 2

    @task
    async def double_later(number: int) -> int:
        return number * 2

    schema: Any = dict

    @entrypoint(checkpointer=InMemorySaver(), context_schema=schema)
    def work(number: int) -> Any:
        return [double(number).result(), interrupt("Sure?")]

    @entrypoint(checkpointer=InMemorySaver(), context_schema=schema)
    async def work_later(number: int) -> Any:
        return [await double_later(number), interrupt("Sure?")]

    graph = work_later if is_async else work
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        for _ in range(3):
            _call(graph, 2, way, handler, is_async=is_async)
            assert _call(graph, Command(resume="y"), way, handler, is_async=is_async) == [4, "y"]
        statuses = [status for status, _ in _runs(tally, way)]
        assert (statuses, handler.failures) == (["blocked", "completed"] * 3, 0)


@IS_ASYNC
def test_two_users_of_one_graph_have_runs_of_their_own(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    graph = _graph(lambda state: {"messages": [AIMessage("done")]})
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, capture="user", strict=True)
        for user in ("ada", "bob", "ada"):
            config: Any = {
                "configurable": {"thread_id": user, "user_id": user},
                "callbacks": [handler],
            }
            said = {"messages": [HumanMessage(f"I am {user}.")]}
            if is_async:
                asyncio.run(graph.ainvoke(said, config))
            else:
                graph.invoke(said, config)
        counts = [len(tally.bind(each).recordings.runs()) for each in (ADA, BOB, None)]
        assert counts == [2, 1, 0]
        assert [memory.content for memory in tally.bind(BOB).memories()] == ["I am bob."]


def test_a_chain_without_a_model_is_recorded_for_its_user(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, capture="user", strict=True)
        for chain in (RunnableLambda(str.upper), RunnableLambda(str.upper) | str.lower):
            config: Any = {"configurable": {"user_id": "ada"}, "callbacks": [handler]}
            chain.invoke("Hello there.", config)
            asyncio.run(chain.ainvoke("Hello there.", config))
            list(chain.stream("Hello there.", config))
            chain.batch(["Hello there."], config)
        assert [run.status for run in tally.bind(ADA).recordings.runs()] == ["completed"] * 8
        assert handler.failures == 0


@IS_ASYNC
def test_a_batch_of_functions_is_a_run_for_each_of_its_inputs_of_whoever_acts(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    chain: Any = RunnableLambda(lambda number: number + 1) | (lambda number: number * 2)
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        config: Any = {"callbacks": [handler], **WAYS["user_id"]}
        inputs = [1, 2, 3]
        answers = (
            asyncio.run(chain.abatch(inputs, config)) if is_async else chain.batch(inputs, config)
        )

        assert answers == [4, 6, 8]
        assert [run.status for run in tally.bind(ADA).recordings.runs()] == ["completed"] * 3
        assert tally.bind().recordings.runs() == []


def test_a_function_that_falls_back_is_asked_with_all_that_the_call_carries(
    open_sqlite: OpenTally,
) -> None:
    def actor(call: CallContext) -> Actor:
        return Actor(user=call.configurable.get("customer") or "guest")

    graph = _graph(lambda state: {"messages": [AIMessage("done")]})
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, actor=actor, capture="user", strict=True)
        config: Any = {
            "configurable": {"thread_id": "t", "customer": "ada"},
            "callbacks": [handler],
        }
        graph.invoke({"messages": [HumanMessage("Book it.")]}, config)
        assert [run.status for run in tally.bind(ADA).recordings.runs()] == ["completed"]
        assert tally.bind(Actor(user="guest")).recordings.runs() == []


def test_two_places_of_a_graph_that_disagree_are_refused_and_counted(
    open_sqlite: OpenTally,
) -> None:
    graph = _graph(lambda state: {"messages": [AIMessage("done")]})
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally)
        config: Any = {
            "configurable": {"thread_id": "t", "user_id": "bob"},
            "callbacks": [handler],
        }
        given = {"messages": [HumanMessage("Book it.")]}
        graph.invoke(given, config, context={"user_id": "ada"})
        assert handler.failures >= 1
        for actor in (ADA, BOB, None):
            assert tally.bind(actor).recordings.runs() == []
        strict = TallyCallbackHandler(tally, strict=True)
        with pytest.raises(Denied) as no:
            graph.invoke(given, {**config, "callbacks": [strict]}, context={"user_id": "ada"})
        assert no.value.reason == "principal_mismatch"


@pytest.mark.parametrize("way", ["owner", "user_id"])
@IS_ASYNC
def test_a_thousand_tasks_at_once_make_one_run(
    open_sqlite: OpenTally, way: str, is_async: bool
) -> None:
    gate, is_asked = threading.Barrier(4), threading.Event()

    @task
    def step(number: int) -> int:
        # LangGraph reads its futures for each one that it adds, and bears none that ends then.
        is_asked.wait(timeout=30)
        if number < 4:
            gate.wait(timeout=30)
        return number

    @task
    async def step_later(number: int) -> int:
        return number

    @entrypoint()
    def work(count: int) -> int:
        asked = [step(number) for number in range(count)]
        is_asked.set()
        return sum(each.result() for each in asked)

    @entrypoint()
    async def work_later(count: int) -> int:
        return sum(await asyncio.gather(*[step_later(number) for number in range(count)]))

    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        total = _call(work_later if is_async else work, 1_000, way, handler, is_async=is_async)
        assert total == sum(range(1_000))
        assert [status for status, _ in _runs(tally, way)] == ["completed"]
        assert (handler.failures, handler._trees.callbacks) == (0, {})


def test_roots_that_wait_for_who_acts_start_one_run_however_many_threads_ask(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick_langchain.trees.goal_of", _slow_goal)

    def fan_out(number: Any, config: Any = None) -> int:
        with ThreadPoolExecutor(8) as pool:
            inner = RunnableLambda(lambda each: each)
            named: Any = {**config, "configurable": {"user_id": "ada"}}
            return sum(pool.map(lambda each: inner.invoke(each, named), range(number)))

    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        for _ in range(3):
            root: Any = RunnableLambda(lambda number, config: fan_out(number, config))
            assert root.invoke(8, {"callbacks": [handler]}) == 28
        assert [run.status for run in tally.bind(ADA).recordings.runs()] == ["completed"] * 3
        assert handler.failures == 0


def _slow_goal(inputs: Any) -> str:
    threading.Event().wait(0.05)
    return "a goal"


@IS_ASYNC
def test_what_could_not_be_recorded_is_counted_for_every_process_and_raised_where_strict(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    graph = _graph(lambda state: {"messages": [AIMessage("done")]})
    given = {"messages": [HumanMessage("Book it.")]}
    with open_sqlite() as tally:
        _call(graph, given, "user_id", TallyCallbackHandler(tally), is_async=is_async)
        assert _recorder_finding(tally).status == "ok"
        handler = TallyCallbackHandler(tally)
        for _ in range(3):
            _call(graph, given, "owner", handler, is_async=is_async)
        assert handler.failures >= 3
        strict = TallyCallbackHandler(tally, strict=True)
        with pytest.raises(Denied, match="missing_actor"):
            _call(graph, given, "owner", strict, is_async=is_async)
        count = handler.failures + strict.failures
    with open_sqlite() as tally:
        finding = _recorder_finding(tally)
        assert finding.status == "notice"
        assert f"{count} events of no run" in finding.text


def _recorder_finding(tally: Tally) -> Any:
    [finding] = [each for each in tally.bind().operator.doctor() if each.check == "recorder"]
    return finding
