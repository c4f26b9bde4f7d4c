"""The flows that LangGraph documents, played on TallySaver and on its own saver in memory: both
tell the same story.

Each flow asserts what LangGraph promises of it. Beside that, everything the two savers hold
afterwards is compared: the history of every namespace, its values, metadata, parents and pending
writes, in order.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint import base as checkpoint_base
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, StateSnapshot, StateUpdate, interrupt
from typing_extensions import TypedDict

from tallystick import Actor, Tally
from tallystick_langgraph import TallySaver

OpenTally = Callable[..., Tally]
THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def _joined(old: list[Any], new: list[Any]) -> list[Any]:
    return old + new


class _Log(TypedDict):
    log: Annotated[list[Any], _joined]


def _all_joined(old: Any, new: Any) -> Any:
    return [*(old or []), *(item for many in new for item in many)]


class _Delta(TypedDict):
    log: Annotated[list[Any], DeltaChannel(_all_joined, snapshot_frequency=3)]


class Driver:
    """A graph's methods, synchronously or on one event loop; with a durability if the flow is to
    have one.
    """

    def __init__(
        self, saver: BaseCheckpointSaver[Any], runner: asyncio.Runner | None, durability: Any = None
    ) -> None:
        self.saver, self._runner, self._durability = saver, runner, durability
        self.calls: list[str] = []

    def node(self, name: str) -> Callable[[Any], dict[str, Any]]:
        """A node that notes its call and appends its name."""

        def run(state: Any) -> dict[str, Any]:
            self.calls.append(name)
            return {"log": [name]}

        return run

    def chain(self, *nodes: tuple[str, Any], nested: Any = False, **options: Any) -> Any:
        """A graph of nodes one after the other; one that is `nested` has the saver of the graph
        around it.
        """
        graph: Any = StateGraph(_Log)
        names = [name for name, _ in nodes]
        for name, node in nodes:
            graph.add_node(name, node)
        for source, other in zip([START, *names], [*names, END], strict=True):
            graph.add_edge(source, other)
        return graph.compile(checkpointer=None if nested else self.saver, **options)

    def play(self, graph: Any, input: Any, config: RunnableConfig = THREAD, **options: Any) -> Any:
        if self._durability is not None:
            options.setdefault("durability", self._durability)
        if self._runner is None:
            return graph.invoke(input, config, **options)
        return self._runner.run(graph.ainvoke(input, config, **options))

    def state(self, graph: Any, config: RunnableConfig = THREAD, **options: Any) -> StateSnapshot:
        snapshot: StateSnapshot = (
            graph.get_state(config, **options)
            if self._runner is None
            else self._runner.run(graph.aget_state(config, **options))
        )
        return snapshot

    def history(self, graph: Any, config: RunnableConfig = THREAD) -> list[StateSnapshot]:
        async def gathered() -> list[StateSnapshot]:
            return [snapshot async for snapshot in graph.aget_state_history(config)]

        return (
            list(graph.get_state_history(config))
            if self._runner is None
            else self._runner.run(gathered())
        )

    def update(
        self, graph: Any, config: RunnableConfig, values: Any, as_node: str | None = None
    ) -> RunnableConfig:
        updated: RunnableConfig = (
            graph.update_state(config, values, as_node)
            if self._runner is None
            else self._runner.run(graph.aupdate_state(config, values, as_node))
        )
        return updated


# Human in the loop


def approval(driver: Driver) -> None:
    """A pause asks, and what answers it goes on; the node begins anew, those before it do not."""

    def ask(state: _Log) -> dict[str, Any]:
        driver.calls.append("ask")
        return {"log": [("answer", interrupt({"question": "send?", "draft": state["log"][-1]}))]}

    graph = driver.chain(
        ("draft", driver.node("draft")), ("ask", ask), ("send", driver.node("send"))
    )
    paused = driver.play(graph, {"log": ["start"]})
    held = driver.state(graph)
    again = driver.play(graph, None)
    result = driver.play(graph, Command(resume="yes"))

    assert [pause.value for pause in paused["__interrupt__"]] == [
        {"question": "send?", "draft": "draft"}
    ]
    assert paused["__interrupt__"] == again["__interrupt__"]
    assert (held.next, held.interrupts) == (("ask",), tuple(paused["__interrupt__"]))
    assert result["log"] == ["start", "draft", ("answer", "yes"), "send"]
    assert driver.calls == ["draft", "ask", "ask", "ask", "send"]


def several_questions(driver: Driver) -> None:
    """The pauses of one node are answered in their order, however often the node begins anew."""

    def ask(state: _Log) -> dict[str, Any]:
        answers = [interrupt("name?"), interrupt("age?")]
        while not isinstance(answers[-1], int):
            answers.append(interrupt(f"{answers[-1]!r} is no age"))
        return {"log": answers}

    graph = driver.chain(("ask", ask))
    replies = [driver.play(graph, {"log": []})]
    for answer in ("Ann", "old", "very old"):
        replies.append(driver.play(graph, Command(resume=answer)))
    result = driver.play(graph, Command(resume=42))

    assert [reply["__interrupt__"][0].value for reply in replies] == [
        "name?",
        "age?",
        "'old' is no age",
        "'very old' is no age",
    ]
    assert result["log"] == ["Ann", "old", "very old", 42]


def questions_side_by_side(driver: Driver) -> None:
    """Nodes that pause in one step are answered one by one, by the id of each pause; what is done
    stays done.
    """

    def asking(name: str) -> Callable[[_Log], dict[str, Any]]:
        def ask(state: _Log) -> dict[str, Any]:
            driver.calls.append(name)
            return {"log": [f"{name} {interrupt(name)}"]}

        return ask

    graph: Any = StateGraph(_Log)
    for name in ("a", "b"):
        graph.add_node(name, asking(name))
        graph.add_edge(START, name)
    graph.add_node("plain", driver.node("plain"))
    graph.add_edge(START, "plain")
    compiled = graph.compile(checkpointer=driver.saver)
    paused = driver.play(compiled, {"log": []})
    ids = {pause.value: pause.id for pause in paused["__interrupt__"]}
    half = driver.play(compiled, Command(resume={ids["b"]: "for b"}))
    result = driver.play(compiled, Command(resume={ids["a"]: "for a"}))

    assert sorted(ids) == ["a", "b"]
    assert [pause.value for pause in half["__interrupt__"]] == ["a"]
    assert result["log"] == ["a for a", "b for b", "plain"]
    assert driver.calls.count("plain") == 1


def breakpoints(driver: Driver) -> None:
    """A graph that stops before and after nodes goes on with state that was edited meanwhile."""
    graph = driver.chain(
        ("one", driver.node("one")),
        ("two", driver.node("two")),
        ("three", driver.node("three")),
        interrupt_before=["two"],
        interrupt_after=["two"],
    )
    driver.play(graph, {"log": []})
    before = driver.state(graph)
    driver.update(graph, THREAD, {"log": ["edited"]})
    driver.play(graph, None)
    after = driver.state(graph)
    result = driver.play(graph, None)

    assert (before.next, after.next) == (("two",), ("three",))
    assert result["log"] == ["one", "edited", "two", "three"]


def tools_in_review(driver: Driver) -> None:
    """A pause is rejected, and a Command leads elsewhere and writes on its way."""

    def review(state: _Log) -> Command[Any]:
        verdict = interrupt("ok?")
        return Command(goto="run" if verdict == "ok" else "mend", update={"log": [verdict]})

    graph: Any = StateGraph(_Log)
    graph.add_node("review", review, destinations=("run", "mend"))
    graph.add_node("mend", driver.node("mend"))
    graph.add_node("run", driver.node("run"))
    graph.add_edge(START, "review")
    graph.add_edge("mend", "review")
    graph.add_edge("run", END)
    compiled = graph.compile(checkpointer=driver.saver)
    driver.play(compiled, {"log": []})
    refused = driver.play(compiled, Command(resume="no", update={"log": ["by hand"]}))
    result = driver.play(compiled, Command(resume="ok"))

    assert "__interrupt__" in refused
    assert result["log"] == ["by hand", "no", "mend", "ok", "run"]


# Time travel


def time_travel(driver: Driver) -> None:
    """From an older checkpoint only what came after it runs again, and what was is not lost."""
    graph = driver.chain(*((name, driver.node(name)) for name in ("one", "two", "three")))
    driver.play(graph, {"log": ["first"]})
    old = driver.history(graph)
    [middle] = [snapshot for snapshot in old if snapshot.next == ("two",)]
    driver.calls.clear()
    replayed = driver.play(graph, None, middle.config)
    new = driver.history(graph)

    assert replayed["log"] == ["first", "one", "two", "three"]
    assert driver.calls == ["two", "three"]
    assert [snapshot.config for snapshot in new[-len(old) :]] == [
        snapshot.config for snapshot in old
    ]
    assert driver.state(graph, middle.config).values == {"log": ["first", "one"]}


def fork(driver: Driver) -> None:
    """State that is edited in the past goes on beside what came of it at first."""
    graph = driver.chain(*((name, driver.node(name)) for name in ("one", "two", "three")))
    first = driver.play(graph, {"log": ["first"]})
    head = driver.state(graph)
    [middle] = [snapshot for snapshot in driver.history(graph) if snapshot.next == ("two",)]
    forked = driver.update(graph, middle.config, {"log": ["edited"]})
    other = driver.play(graph, None, forked)
    aside = driver.update(graph, middle.config, {"log": ["skipped"]}, as_node="two")
    third = driver.play(graph, None, aside)

    assert first["log"] == ["first", "one", "two", "three"]
    assert other["log"] == ["first", "one", "edited", "two", "three"]
    assert third["log"] == ["first", "one", "skipped", "three"]
    assert driver.state(graph, head.config).values == {"log": first["log"]}
    assert driver.state(graph, forked).parent_config == middle.config


def fork_of_a_pause(driver: Driver) -> None:
    """A pause is answered again from the checkpoint at which it was asked, with another answer."""
    graph = driver.chain(
        ("ask", lambda state: {"log": [interrupt("which?")]}),
        ("end", driver.node("end")),
    )
    driver.play(graph, {"log": []})
    paused = driver.state(graph)
    first = driver.play(graph, Command(resume="this"))
    forked = driver.update(graph, paused.config, None, as_node="__copy__")
    driver.play(graph, None, forked)
    other = driver.play(graph, Command(resume="that"))

    assert (first["log"], other["log"]) == (["this", "end"], ["that", "end"])


def written_by_hand(driver: Driver) -> None:
    """Several updates at once make the checkpoints that a run would have made."""
    graph = driver.chain(("one", driver.node("one")), ("two", driver.node("two")))
    steps = [[StateUpdate({"log": ["in"]}, START)], [StateUpdate({"log": ["by hand"]}, "one")]]
    if driver._runner is None:
        graph.bulk_update_state(THREAD, steps)
    else:
        driver._runner.run(graph.abulk_update_state(THREAD, steps))
    result = driver.play(graph, None)

    assert result["log"] == ["in", "by hand", "two"]
    assert driver.calls == ["two"]


# Subgraphs


def subgraph_pause(driver: Driver) -> None:
    """A pause two graphs below is shown above, its state can be seen, and it goes on where it
    stopped.
    """
    low = driver.chain(
        ("low", driver.node("low")),
        ("ask", lambda state: {"log": [interrupt("deep?")]}),
        nested=True,
    )
    middle = driver.chain(("middle", driver.node("middle")), ("inner", low), nested=True)
    graph = driver.chain(
        ("outer", driver.node("outer")), ("child", middle), ("last", driver.node("last"))
    )
    driver.play(graph, {"log": []})
    held = driver.state(graph, subgraphs=True)
    child = held.tasks[0].state
    assert isinstance(child, StateSnapshot)
    grandchild = child.tasks[0].state
    assert isinstance(grandchild, StateSnapshot)
    result = driver.play(graph, Command(resume="deeply"))

    assert (held.next, child.next, grandchild.next) == (("child",), ("inner",), ("ask",))
    assert grandchild.values == {"log": ["outer", "middle", "low"]}
    assert [pause.value for pause in held.interrupts] == ["deep?"]
    assert driver.calls == ["outer", "middle", "low", "last"]
    assert result["log"][-2:] == ["deeply", "last"]


def subgraph_edit(driver: Driver) -> None:
    """The state of a paused subgraph is edited in its own namespace before it goes on."""
    inner = driver.chain(
        ("one", driver.node("one")),
        ("two", lambda state: {"log": [("saw", len(state["log"]))]}),
        nested=True,
        interrupt_before=["two"],
    )
    graph = driver.chain(("child", inner))
    driver.play(graph, {"log": []})
    task = driver.state(graph).tasks[0]
    namespace: Any = task.state
    held = driver.state(graph, namespace)
    driver.update(graph, namespace, {"log": ["edited"]})
    result = driver.play(graph, None)

    assert held.values == {"log": ["one"]}
    assert namespace["configurable"]["checkpoint_ns"].startswith("child:")
    assert result["log"][-1] == ("saw", 2)


def subgraph_history(driver: Driver) -> None:
    """A subgraph runs again from one of its own older checkpoints."""
    inner = driver.chain(*((name, driver.node(name)) for name in ("one", "two")), nested=True)
    pausing = driver.chain(
        ("ask", lambda state: {"log": [interrupt("?")]}), ("after", inner), nested=True
    )
    graph = driver.chain(("child", pausing))
    driver.play(graph, {"log": []})
    inside: Any = driver.state(graph).tasks[0].state
    paused, _ = driver.history(graph, inside)
    driver.play(graph, Command(resume="first"))
    driver.calls.clear()
    again = driver.play(graph, Command(resume="second"), paused.config)

    assert paused.next == ("ask",)
    assert again["log"][-3:] == ["second", "one", "two"]
    assert driver.calls == ["one", "two"]


def stateful_subgraph(driver: Driver) -> None:
    """A subgraph with a memory of its own goes on where it was in the turn before."""
    graph: Any = StateGraph(_Log)
    graph.add_node("count", lambda state: {"log": [len(state["log"])]})
    graph.add_edge(START, "count")
    inner = graph.compile(checkpointer=True)

    def call(state: _Log) -> dict[str, Any]:
        return {"log": [inner.invoke({"log": ["in"]})["log"]]}

    outer = driver.chain(("call", call))
    result: dict[str, Any] = {}
    for _ in range(3):
        result = driver.play(outer, {"log": []})

    assert result["log"] == [["in", 1], ["in", 1, "in", 3], ["in", 1, "in", 3, "in", 5]]


# Steps that fail, fan out, or are tasks


def failure(driver: Driver) -> None:
    """What succeeded beside a failure is kept and not run again; the failure stands at its
    checkpoint.
    """
    broken = [True]

    def fail(state: _Log) -> dict[str, Any]:
        driver.calls.append("fail")
        if broken:
            # Where tasks share a loop, the first failure cancels the others.
            for _ in range(500):
                stored = driver.saver.get_tuple(THREAD)
                if stored is not None and any(
                    channel == "log" for _, channel, _ in stored.pending_writes or []
                ):
                    break
                time.sleep(0.01)
            time.sleep(0.3)  # what is stored has yet to be told to the task that waits for it
            raise RuntimeError("no luck")
        return {"log": ["luck"]}

    graph: Any = StateGraph(_Log)
    graph.add_node("fail", fail)
    graph.add_node("good", driver.node("good"))
    for name in ("fail", "good"):
        graph.add_edge(START, name)
    compiled = graph.compile(checkpointer=driver.saver)
    with pytest.raises(RuntimeError, match="no luck"):
        driver.play(compiled, {"log": []})
    held = driver.state(compiled)
    broken.clear()
    result = driver.play(compiled, None)

    assert {task.name: str(task.error) for task in held.tasks} == {
        "fail": "RuntimeError('no luck')",
        "good": "None",
    }
    assert sorted(result["log"]) == ["good", "luck"]
    assert driver.calls.count("fail") == 2


def fan_out(driver: Driver) -> None:
    """Tasks that were sent keep their order, a pause in one of them does not repeat the others."""

    def work(state: Any) -> dict[str, Any]:
        driver.calls.append(state["n"])
        return {"log": [(state["n"], interrupt("?")) if state["n"] == 3 else state["n"]]}

    graph: Any = StateGraph(_Log)
    graph.add_node("work", work)
    graph.add_conditional_edges(
        START, lambda state: [Send("work", {"n": n}) for n in range(12)], ["work"]
    )
    compiled = graph.compile(checkpointer=driver.saver)
    driver.play(compiled, {"log": []})
    result = driver.play(compiled, Command(resume="three"))

    assert result["log"] == [(n, "three") if n == 3 else n for n in range(12)]
    assert sorted(driver.calls) == sorted([*range(12), 3])


def functions(driver: Driver) -> None:
    """A workflow of tasks: a task that is done is not done again when the workflow goes on, and it
    knows its past.
    """

    @task
    def double(number: int) -> int:
        driver.calls.append(f"double {number}")
        return 2 * number

    @entrypoint(checkpointer=driver.saver)
    def workflow(number: int, *, previous: Any = None) -> Any:
        doubled = [double(value) for value in (number, number + 1)]
        return entrypoint.final(
            value=[value.result() for value in doubled] + [interrupt("sure?"), previous],
            save=number,
        )

    paused = driver.play(workflow, 1)
    first = driver.play(workflow, Command(resume="yes"))
    driver.play(workflow, 5)
    second = driver.play(workflow, Command(resume="no"))

    assert [pause.value for pause in paused["__interrupt__"]] == ["sure?"]
    assert (first, second) == ([2, 4, "yes", None], [10, 12, "no", 1])
    assert sorted(driver.calls) == ["double 1", "double 2", "double 5", "double 6"]


def delta_pause(driver: Driver) -> None:
    """A channel that keeps only its writes is whole at a pause, in the past and in a fork."""

    graph: Any = StateGraph(_Delta)
    graph.add_node("one", driver.node("one"))
    graph.add_node("ask", lambda state: {"log": [f"{interrupt('?')} to {len(state['log'])}"]})
    graph.add_edge(START, "one")
    graph.add_edge("one", "ask")
    compiled = graph.compile(checkpointer=driver.saver)
    result: dict[str, Any] = {}
    for turn in range(3):
        driver.play(compiled, {"log": [turn]})
        result = driver.play(compiled, Command(resume="yes"))
    past = [snapshot for snapshot in driver.history(compiled) if snapshot.next == ("ask",)][1]
    forked = driver.play(compiled, None, driver.update(compiled, past.config, {"log": ["edited"]}))

    assert result["log"] == [0, "one", "yes to 2", 1, "one", "yes to 5", 2, "one", "yes to 8"]
    assert past.values["log"] == result["log"][:5]
    assert forked["log"] == [*result["log"][:5], "edited"]


WHOLE = [
    approval,
    several_questions,
    questions_side_by_side,
    breakpoints,
    tools_in_review,
    subgraph_pause,
    subgraph_edit,
    stateful_subgraph,
    fan_out,
    functions,
]
"""Flows that hold whatever is kept of the steps between."""
_ORDERED = hasattr(checkpoint_base, "writes_sort_key")
"""Whether this release of LangGraph says in which order pending writes stand. Those before it also
fork a delta channel at a pause with a write too many, on their own savers as well.
"""
FLOWS = [
    *WHOLE,
    failure,
    time_travel,
    fork,
    fork_of_a_pause,
    written_by_hand,
    subgraph_history,
    *([delta_pause] if _ORDERED else []),
]


# The stories


_NAMES = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+\+00:00")


def story(saver: BaseCheckpointSaver[Any]) -> list[str]:
    """Everything a saver holds of the thread, oldest first, with ids and times numbered as they
    come up.

    Snapshots of delta channels are left out: the saver in memory also shows them where they were
    not put again.
    """
    checkpoints = sorted(saver.list(THREAD), key=lambda checkpoint: checkpoint.checkpoint["id"])
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], f"#{len(numbers)}")

    lines = []
    for checkpoint in checkpoints:
        latest = saver.get_tuple(checkpoint.config)
        assert latest is not None
        if isinstance(saver, TallySaver):
            assert repr(latest.pending_writes) == repr(checkpoint.pending_writes)
        assert dict(latest.checkpoint["channel_values"]) == dict(
            checkpoint.checkpoint["channel_values"]
        )
        config: Any = checkpoint.config
        above: Any = checkpoint.parent_config
        summary = (
            config["configurable"]["checkpoint_ns"],
            checkpoint.checkpoint["id"],
            above and above["configurable"]["checkpoint_id"],
            {
                channel: value
                for channel, value in sorted(checkpoint.checkpoint["channel_values"].items())
                if not isinstance(value, _DeltaSnapshot)
            },
            sorted(checkpoint.checkpoint["channel_versions"]),
            sorted(checkpoint.metadata.items()),
            latest.pending_writes
            if _ORDERED
            else sorted(repr(write[1:]) for write in latest.pending_writes or []),
        )
        lines.append(_NAMES.sub(numbered, _TIME.sub("now", repr(summary))))
    return lines


@contextmanager
def _runner(kind: str) -> Iterator[asyncio.Runner | None]:
    if kind == "sync":
        yield None
        return
    with asyncio.Runner() as runner:
        yield runner


def _told(
    flow: Callable[[Driver], None], saver: BaseCheckpointSaver[Any], kind: str, durability: Any
) -> list[str]:
    with _runner(kind) as runner:
        flow(Driver(saver, runner, durability))
    return story(saver)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_a_documented_flow_leaves_what_langgraphs_own_saver_holds(
    open_sqlite: OpenTally, flow: Callable[[Driver], None], kind: str
) -> None:
    with open_sqlite() as tally:
        assert _told(flow, TallySaver(tally), kind, None) == _told(
            flow, InMemorySaver(), kind, None
        )


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability_keeps_what_it_says(open_sqlite: OpenTally, durability: str) -> None:
    with open_sqlite() as tally:
        for number, flow in enumerate(WHOLE):
            saver = TallySaver(tally.bind(Actor(user=f"user {number}")))
            kind = ("sync", "async")[number % 2]
            assert _told(flow, saver, kind, durability) == _told(
                flow, InMemorySaver(), kind, durability
            ), flow


@pytest.mark.postgres
def test_the_flows_hold_on_postgres_too(postgres_url: str) -> None:
    with Tally.open(postgres_url, schema="flows", background=False) as tally:
        for number, flow in enumerate(FLOWS):
            saver = TallySaver(tally.bind(Actor(user=f"user {number}")))
            kind = ("sync", "async")[number % 2]
            assert _told(flow, saver, kind, None) == _told(flow, InMemorySaver(), kind, None), flow
