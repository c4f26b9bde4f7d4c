"""What the handler makes of streams, retries, failures, interrupts, events, tags and nested
calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NotRequired

import pytest
from langchain_core.callbacks import (
    CallbackManagerForLLMRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.language_models import BaseChatModel, FakeListLLM, GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from tallystick import Actor, Tally
from tallystick.records import StepRecord
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick_langchain import TallyCallbackHandler

OpenTally = Callable[..., Tally]


def _says(*answers: str | AIMessage) -> GenericFakeChatModel:
    messages: Iterator[AIMessage | str] = iter(answers)
    return GenericFakeChatModel(messages=messages)


def _config(tally: Tally | BoundTally, **more: Any) -> RunnableConfig:
    config: RunnableConfig = {"callbacks": [TallyCallbackHandler(tally, strict=True)], **more}  # type: ignore[typeddict-item]
    return config


def _steps(tally: Tally) -> list[StepRecord]:
    [run] = tally.bind().recordings.runs()
    return list(tally.recordings.steps(run.id))


def _seen(tally: Tally) -> list[tuple[str, str | None, str]]:
    return [(step.step_kind, step.name, step.status) for step in _steps(tally)]


def _payloads(tally: Tally, index: int = 0) -> dict[str, Any]:
    return {
        entry.kind: entry.payload for entry in tally.recordings.entries(_steps(tally)[index].id)
    }


def _said(tally: Tally, kind: str, index: int = 0) -> dict[str, Any]:
    receipt = tally.recordings.receipt(_steps(tally)[index].id)
    [summary] = [entry.summary for entry in receipt.entries if entry.kind == kind]
    return dict(summary)


class Talker(BaseChatModel):
    """Streams words, and fails after `most` of them."""

    most: int = 99

    @property
    def _llm_type(self) -> str:
        return "talker"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for number, word in enumerate(["It ", "is ", "42."]):
            if number == self.most:
                raise ConnectionError("the line broke")
            usage: Any = {
                "input_tokens": 3 * (number == 0),
                "output_tokens": 1,
                "total_tokens": 1 + 3 * (number == 0),
            }
            yield ChatGenerationChunk(message=AIMessageChunk(content=word, usage_metadata=usage))


def test_a_stream_is_kept_whole_with_the_times_of_its_first_and_last_chunk(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        assert "".join(
            str(chunk.content) for chunk in Talker().stream("How much?", config=_config(tally))
        ) == ("It is 42.")
        assert _payloads(tally)["response"]["answer"]["content"] == "It is 42."
        summary = _said(tally, "response")
        assert summary["usage"] == {"input_tokens": 3, "output_tokens": 3}
        # LangChain ends a stream with an empty chunk of its own.
        assert summary["stream"]["chunks"] in {3, 4}
        assert 0 <= summary["stream"]["first_us"] <= summary["stream"]["last_us"]


def test_of_a_stream_that_breaks_what_was_said_is_kept(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with pytest.raises(ConnectionError):
            list(Talker(most=2).stream("How much?", config=_config(tally)))
        payloads = _payloads(tally)
        assert payloads["response"]["answer"]["content"] == "It is "
        assert payloads["error"] == {"type": "ConnectionError", "message": "the line broke"}
        assert _seen(tally) == [("model_call", "Talker", "failed")]


def test_events_of_a_stream_change_nothing_of_what_is_recorded(open_sqlite: OpenTally) -> None:
    async def follow(config: RunnableConfig) -> list[str]:
        chain = RunnableLambda(str.upper) | _says("It is 42.")
        return [
            event["event"]
            async for event in chain.astream_events("how much?", config=config, version="v2")
        ]

    with open_sqlite() as tally:
        assert "on_chat_model_stream" in asyncio.run(follow(_config(tally)))
        assert [kind for kind, _, _ in _seen(tally)] == ["model_call"]
        assert _payloads(tally)["request"]["messages"][0]["data"]["content"] == "HOW MUCH?"


def test_a_batch_has_a_run_for_each_input(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        chain = RunnableLambda(str) | FakeListLLM(responses=["one", "two", "three"])
        chain.batch(["1", "2", "3"], config=_config(tally))
        runs = tally.bind().recordings.runs()
        assert [len(list(tally.recordings.steps(run.id))) for run in runs] == [1, 1, 1]
        requests = [
            entry.payload["prompt"]
            for run in runs
            for step in tally.recordings.steps(run.id)
            for entry in tally.recordings.entries(step.id)
            if entry.kind == "request" and isinstance(entry.payload, dict)
        ]
        assert sorted(map(str, requests)) == ["1", "2", "3"]


def test_a_call_that_is_tried_again_has_a_step_for_each_try(open_sqlite: OpenTally) -> None:
    tries: list[int] = []

    def flaky(text: str) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise TimeoutError("too slow")
        return text

    with open_sqlite() as tally:
        chain = (RunnableLambda(flaky) | _says("done")).with_retry(
            stop_after_attempt=3,
            wait_exponential_jitter=False,
            retry_if_exception_type=(TimeoutError,),
        )
        assert chain.invoke("go", config=_config(tally)).content == "done"
        assert [status for _, _, status in _seen(tally)] == ["failed", "failed", "completed"]
        assert tally.bind().recordings.runs()[0].status == "completed"


def test_a_failure_outside_of_any_step_has_a_step_that_says_where(open_sqlite: OpenTally) -> None:
    def check(text: str) -> str:
        raise ValueError(f"{text} is not allowed")

    with open_sqlite() as tally:
        with pytest.raises(ValueError, match="not allowed"):
            (RunnableLambda(str) | RunnableLambda(check)).invoke("this", config=_config(tally))
        assert _seen(tally) == [("other", "check", "failed")]
        assert _payloads(tally)["error"] == {"type": "ValueError", "message": "this is not allowed"}


def test_a_failure_of_a_tool_is_told_once_however_many_chains_it_leaves(
    open_sqlite: OpenTally,
) -> None:
    @tool
    def divide(value: int) -> float:
        """One by the value."""
        return 1 / value

    def wrapped(value: int) -> float:
        try:
            return float(divide.invoke({"value": value}))
        except ZeroDivisionError as error:
            raise RuntimeError("the tool failed") from error

    with open_sqlite() as tally:
        with pytest.raises(RuntimeError):
            (RunnableLambda(int) | RunnableLambda(wrapped)).invoke("0", config=_config(tally))
        assert _seen(tally) == [("tool_call", "divide", "failed")]
        assert tally.bind().recordings.runs()[0].status == "failed"


class State(TypedDict):
    """What the graphs below know."""

    text: str
    answer: NotRequired[str]


def _asking_graph() -> Any:
    def ask(state: State) -> dict[str, Any]:
        return {"answer": interrupt({"question": "Delete a.txt?"})}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=InMemorySaver())


def test_a_graph_that_waits_for_a_person_has_a_blocked_step_and_a_blocked_run(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        graph, config = _asking_graph(), _config(tally, configurable={"thread_id": "t"})
        graph.invoke({"text": "go"}, config)
        assert _seen(tally) == [("human_approval", "ask", "blocked")]
        assert tally.bind().recordings.runs()[0].status == "blocked"
        [request] = _payloads(tally)["approval"]["interrupts"]
        assert request["value"] == {"question": "Delete a.txt?"}
        graph.invoke(Command(resume="yes"), config)
        assert [run.status for run in tally.bind().recordings.runs()] == ["completed", "blocked"]


def test_a_tool_that_waits_for_a_person_is_blocked(open_sqlite: OpenTally) -> None:
    @tool
    def delete(name: str) -> str:
        """Delete a file."""
        return f"{name}: {interrupt({'delete': name})}"

    def work(state: State) -> dict[str, Any]:
        return {"answer": delete.invoke({"name": state["text"]})}

    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    compiled = graph.compile(checkpointer=InMemorySaver())
    with open_sqlite() as tally:
        config = _config(tally, configurable={"thread_id": "t"})
        compiled.invoke({"text": "a.txt"}, config)
        assert _seen(tally) == [("tool_call", "delete", "blocked")]
        assert compiled.invoke(Command(resume="yes"), config)["answer"] == "a.txt: yes"
        first = tally.bind().recordings.runs()[0]
        assert [step.status for step in tally.recordings.steps(first.id)] == ["completed"]


def test_events_of_ones_own_are_notes_of_the_step_under_way_or_of_one_of_their_own(
    open_sqlite: OpenTally,
) -> None:
    @tool
    def slow(value: int) -> int:
        """Twice the value, told of."""
        dispatch_custom_event("progress", {"percent": 50})
        return value * 2

    async def chain(value: int, config: RunnableConfig) -> int:
        await adispatch_custom_event("begun", value, config=config)
        return int(slow.invoke({"value": value}, config=config))

    with open_sqlite() as tally:
        assert asyncio.run(RunnableLambda(chain).ainvoke(4, config=_config(tally))) == 8
        assert _seen(tally) == [("event", "begun", "completed"), ("tool_call", "slow", "completed")]
        assert _payloads(tally)["note"] == {"event": "begun", "data": 4}
        assert _payloads(tally, 1)["note"] == {"event": "progress", "data": {"percent": 50}}


def test_a_step_says_in_which_chains_it_stands_and_what_it_was_tagged(
    open_sqlite: OpenTally,
) -> None:
    def draft(state: State) -> dict[str, Any]:
        return {"answer": str(_says("hi").invoke(state["text"]).content)}

    inner = StateGraph(State)
    inner.add_node("draft", draft)
    inner.add_edge(START, "draft")
    outer = StateGraph(State)
    outer.add_node("writer", inner.compile())
    outer.add_edge(START, "writer")
    with open_sqlite() as tally:
        outer.compile().invoke({"text": "go"}, _config(tally, tags=["nightly"]))
        [step] = _steps(tally)
        assert str(step.metadata["path"]).split("/")[0] == "writer"
        assert str(step.metadata["path"]).endswith("draft")
        assert step.metadata["tags"] == ["nightly"]
        assert tally.bind().recordings.runs()[0].metadata["tags"] == ["nightly"]


def test_what_a_tool_calls_has_the_tool_as_its_parent(open_sqlite: OpenTally) -> None:
    @tool
    def ask_expert(question: str) -> str:
        """Ask another agent."""
        return str(_says("Paris").invoke(question).content)

    with open_sqlite() as tally:
        assert (
            ask_expert.invoke({"question": "Capital of France?"}, config=_config(tally)) == "Paris"
        )
        called, request = _steps(tally)
        assert (called.step_kind, called.parent_step_id) == ("tool_call", None)
        assert (request.step_kind, request.parent_step_id) == ("model_call", called.id)


def test_of_two_handlers_of_one_tally_in_the_same_call_one_records_it(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        handlers: Any = [
            TallyCallbackHandler(tally, strict=True),
            TallyCallbackHandler(tally.bind(), strict=True),
        ]
        chain = RunnableLambda(str) | _says("once", "again")
        chain.invoke("go", config={"callbacks": handlers})
        chain.invoke("go", config={"callbacks": handlers})
        assert [
            len(list(tally.recordings.steps(run.id))) for run in tally.bind().recordings.runs()
        ] == [
            1,
            1,
        ]


def test_the_end_of_a_run_names_every_surface_that_recorded_in_it(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("mine") as run:
            (RunnableLambda(str) | _says("fine")).invoke("go", config=_config(tally))
        with services_of(tally).store.database.read() as connection:
            [*_, end] = journal.entries(connection, f"run:{run.id}")
        assert (end.event, end.details["seen_by"]) == ("run.end", ["langchain", "python"])


def test_calls_of_many_threads_leave_no_gap_and_nothing_behind(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        chain: Any = RunnableLambda(str)
        for _ in range(6):
            chain = chain | RunnableLambda(str)

        def ask(number: int) -> str:
            return str(
                (chain | _says("fine")).invoke(str(number), config={"callbacks": [handler]}).content
            )

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(ask, range(160))) == {"fine"}
        runs = tally.bind().recordings.runs(limit=200)
        assert (len(runs), {(run.status, run.gaps) for run in runs}) == (160, {("completed", 0)})
        assert (handler.failures, handler._trees.callbacks) == (0, {})


def test_a_run_with_a_gap_says_so_where_it_is_verified_and_to_the_doctor(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally)

        def broken(*args: Any, **kwargs: Any) -> None:
            raise KeyError("content")

        monkeypatch.setattr("tallystick.kit.call_tree.OpenCall.answer_summary", broken)
        assert (RunnableLambda(str) | _says("fine")).invoke(
            "go", config={"callbacks": [handler]}
        ).content == "fine"
        monkeypatch.undo()
        assert handler.failures == 1
        [run] = tally.bind().recordings.runs()
        assert (run.status, run.gaps) == ("completed", 1)
        assert tally.recordings.verify(run.id).gaps
        [check] = [
            candidate
            for candidate in tally.bind().operator.doctor()
            if candidate.check == "recorder"
        ]
        assert (check.status, run.id[-8:] in check.text) == ("notice", True)


def test_a_strict_handler_raises_what_it_could_not_record(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(
            tally, actor=Actor(user="eve"), scope="project:apollo", strict=True
        )
        with pytest.raises(Exception, match="project"):
            _says("fine").invoke("go", config={"callbacks": [handler]})
