"""The Tallystick capability keeps the adapter contract on real PydanticAI runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.exceptions import UnexpectedModelBehavior, UserError
from pydantic_ai.messages import ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentedModel, instrument_model

from tallystick import Actor, Tally
from tallystick.errors import Denied, InvalidInput
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.testing.adapter_contract import AdapterContract
from tallystick_pydantic_ai import TallyRecorder, Tallystick, memory_toolset, model_call
from tallystick_pydantic_ai.messages import prompt_text

OpenTally = Callable[..., Tally]


def _calls(name: str, arguments: dict[str, Any]) -> FunctionModel:
    """A model that calls one tool and then says `done`."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        return ModelResponse(
            parts=[
                TextPart("done") if returned else ToolCallPart(name, arguments, tool_call_id="c1")
            ]
        )

    return FunctionModel(answer)


def _says(text: str) -> FunctionModel:
    return FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart(text)]))


def _run(agent: Agent[Any, Any], *args: Any, **kwargs: Any) -> Any:
    """`run_sync` on a loop that is closed afterwards."""
    return asyncio.run(agent.run(*args, **kwargs))


def _through_tool(bound: BoundTally, name: str, arguments: dict[str, Any]) -> Any:
    """What a memory tool returns in an agent that does not record; approvals are given."""
    agent = Agent(
        _calls(name, arguments),
        toolsets=[memory_toolset(bound)],
        output_type=[str, DeferredToolRequests],
    )
    result = _run(agent, "go")
    if isinstance(result.output, DeferredToolRequests):
        approved = result.output.build_results(approve_all=True)
        result = _run(agent, message_history=result.all_messages(), deferred_tool_results=approved)
    [returned] = [
        part
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    return returned.content


@pytest.mark.smoke
class TestCapability(AdapterContract):
    verbs = frozenset(
        {"recall", "context", "remember", "modify", "forget", "model_call", "tool_call"}
    )

    def recall(self, bound: BoundTally, query: str) -> Sequence[str]:
        answer = _through_tool(bound, "memory_search", {"query": query})
        assert answer.get("error") in (None, "Denied")
        return [memory["id"] for memory in answer.get("memories", [])]

    def remember(self, bound: BoundTally, content: str) -> None:
        answer = _through_tool(bound, "memory_store", {"content": content})
        assert answer.get("status") in ("created", "skipped") or answer["error"] == "Denied"

    def modify(
        self, bound: BoundTally, memory_id: str, content: str, reason: str, if_version: int
    ) -> None:
        arguments = {
            "memory_id": memory_id,
            "content": content,
            "reason": reason,
            "if_version": if_version,
        }
        answer = _through_tool(bound, "memory_modify", arguments)
        assert answer.get("status") == "changed" or answer["error"] in (
            "StateConflict",
            "VersionConflict",
        )

    def forget(self, bound: BoundTally, memory_id: str, reason: str) -> None:
        answer = _through_tool(bound, "memory_forget", {"memory_id": memory_id, "reason": reason})
        assert answer.get("state") == "deleted" or answer["error"] == "StateConflict"

    def context(self, bound: BoundTally, query: str) -> str:
        contexts: list[str] = []

        def listen(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            prompts = [part for part in messages[-1].parts if isinstance(part, UserPromptPart)]
            contexts.append("\n".join(prompt_text(part.content) or "" for part in prompts))
            return ModelResponse(parts=[TextPart("So.")])

        _run(Agent(FunctionModel(listen), capabilities=[Tallystick(bound, tools=False)]), query)
        return contexts[0]

    def model_call(self, bound: BoundTally, prompt: str, answer: str) -> None:
        agent = Agent(_says(answer), capabilities=[Tallystick(bound, context=False)])
        assert _run(agent, prompt).output == answer

    def tool_call(self, bound: BoundTally, value: int) -> None:
        agent = Agent(
            _calls("double", {"value": value}), capabilities=[Tallystick(bound, tools=False)]
        )

        @agent.tool_plain
        def double(value: int) -> int:
            return value * 2

        _run(agent, "go")


def test_a_tool_that_forgets_waits_for_approval(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        stored = owner.remember("Keep me.")
        model = _calls("memory_forget", {"memory_id": stored.id, "reason": "tidy"})
        agent = Agent(
            model, capabilities=[Tallystick(tally)], output_type=[str, DeferredToolRequests]
        )

        waiting = _run(agent, "forget it").output

        assert isinstance(waiting, DeferredToolRequests)
        assert [call.tool_name for call in waiting.approvals] == ["memory_forget"]
        assert owner.get(stored.id).content == "Keep me."
        steps = owner.recordings.steps(owner.runs()[0].run_id)
        assert [(step.step_kind, step.status) for step in steps] == [
            ("model_call", "completed"),
            ("human_approval", "blocked"),
        ]


def test_what_a_tool_writes_is_joined_to_its_step(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        agent = Agent(
            _calls("memory_store", {"content": "Noted."}), capabilities=[Tallystick(tally)]
        )
        _run(agent, "note it")

        owner = tally.bind()
        [memory] = owner.memories()
        tool = owner.recordings.steps(owner.runs()[0].run_id)[1]
        assert (memory.source_run_id, memory.source_step_ids) == (tool.run_id, (tool.step_id,))
        assert [entry.kind for entry in owner.recordings.entries(tool.step_id)] == [
            "tool_call",
            "memory_write",
            "tool_result",
        ]
        [entry] = owner.history(memory.id)
        assert (entry.correlation_id, entry.request_id, bool(entry.session_id)) == (
            tool.step_id,
            tool.run_id,
            True,
        )


def test_a_streamed_answer_is_recorded_whole(open_sqlite: OpenTally) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for piece in ("her", "on"):
            yield piece

    async def ask(tally: Tally) -> str:
        agent = Agent(FunctionModel(stream_function=stream), capabilities=[Tallystick(tally)])
        async with agent.run_stream("Say heron.") as result:
            return await result.get_output()

    with open_sqlite() as tally:
        assert asyncio.run(ask(tally)) == "heron"
        owner = tally.bind()
        [step] = owner.recordings.steps(owner.runs()[0].run_id)
        entries = {entry.kind: entry.payload for entry in owner.recordings.entries(step.step_id)}
        assert list(entries) == [
            "memory_read",
            "compile_request",
            "compiled",
            "request",
            "response",
        ]
        answer: Any = entries["response"]
        assert answer["answer"]["parts"][0]["content"] == "heron"


def test_a_recorded_request_replays_through_a_model(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        _run(Agent(_says("heron"), capabilities=[Tallystick(tally)]), "Say heron.")
        [step] = tally.recordings.steps(tally.bind().runs()[0].run_id)

        same = tally.recordings.replay(step.step_id, call=model_call(_says("heron")))
        other = tally.recordings.replay(step.step_id, call=model_call(_says("stork")))

    assert (same.request_matches, same.response_matches, other.response_matches) == (
        True,
        True,
        False,
    )


@dataclass
class _Deps:
    actor: Actor


def test_the_deps_say_who_acts(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        agent = Agent(
            _calls("memory_store", {"content": "Mine."}),
            deps_type=_Deps,
            capabilities=[Tallystick(tally)],
        )
        _run(agent, "note it", deps=_Deps(Actor(user="alice")))

        assert [memory.content for memory in tally.bind(Actor(user="alice")).memories()] == [
            "Mine."
        ]
        assert tally.bind().memories() == []


def test_a_run_that_fails_is_recorded_as_failed(open_sqlite: OpenTally) -> None:
    def broken(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ConnectionError("no route")

    with open_sqlite() as tally:
        with pytest.raises(ConnectionError):
            _run(Agent(FunctionModel(broken), capabilities=[Tallystick(tally)]), "go")
        [run] = tally.bind().runs()
        [step] = tally.recordings.steps(run.run_id)
        assert (run.status, step.status) == ("failed", "failed")


def test_a_stream_has_the_times_of_its_first_and_last_chunk(open_sqlite: OpenTally) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for piece in ("her", "on"):
            yield piece

    async def ask(tally: Tally) -> str:
        agent = Agent(
            FunctionModel(stream_function=stream), capabilities=[Tallystick(tally, context=False)]
        )
        async with agent.run_stream("Say heron.") as result:
            return await result.get_output()

    with open_sqlite() as tally:
        asyncio.run(ask(tally))
        [step] = tally.recordings.steps(tally.bind().runs()[0].run_id)
        [answer] = [
            entry.summary
            for entry in tally.recordings.receipt(step.step_id).entries
            if entry.kind == "response"
        ]
        times: Any = answer["stream"]
        assert times["chunks"] >= 2
        assert 0 <= times["first_us"] <= times["last_us"]


def test_a_recorder_that_may_not_write_breaks_no_run_and_counts_what_it_missed(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        watching = TallyRecorder(tally, actor=Actor(user="eve"), scope="project:apollo")
        assert _run(Agent(_says("fine"), capabilities=[watching]), "go").output == "fine"
        assert watching.failures == 1
        assert any(
            where.startswith("pydantic_ai") for where in services_of(tally).recorder.health.gaps
        )


def test_a_strict_recorder_raises_what_it_could_not_record(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        watching = TallyRecorder(
            tally, actor=Actor(user="eve"), scope="project:apollo", strict=True
        )
        with pytest.raises(Denied, match="project"):
            _run(Agent(_says("fine"), capabilities=[watching]), "go")


def test_a_call_that_could_not_be_recorded_is_a_gap_of_its_run(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise KeyError("parts")

    with open_sqlite() as tally:
        monkeypatch.setattr("tallystick_pydantic_ai.capability.request_of", broken)
        assert (
            _run(Agent(_says("fine"), capabilities=[Tallystick(tally, context=False)]), "go").output
            == "fine"
        )
        [run] = tally.bind().runs()
        assert (run.status, run.gaps) == ("completed", 1)
        assert tally.recordings.verify(run.run_id).gaps


def test_of_two_recorders_in_one_agent_each_call_is_recorded_once(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        twice = [TallyRecorder(tally, id="one"), TallyRecorder(tally.bind(), id="two")]
        _run(
            Agent(_calls("double", {"value": 21}), capabilities=twice, tools=[double]), "double 21"
        )
        [run] = tally.bind().runs()
        steps = list(tally.recordings.steps(run.run_id))
        assert [(step.step_kind, step.status) for step in steps] == [
            ("model_call", "completed"),
            ("tool_call", "completed"),
            ("model_call", "completed"),
        ]
        for step in steps:
            kinds = [entry.kind for entry in tally.recordings.entries(step.step_id)]
            assert len(kinds) == len(set(kinds)) == 2


def double(value: int) -> int:
    """Twice the value."""
    return value * 2


def test_a_recorder_that_would_be_loaded_late_is_refused(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with pytest.raises(InvalidInput, match="defer_loading"):
            TallyRecorder(tally, defer_loading=True)
        with pytest.raises(InvalidInput, match="defer_loading"):
            replace(Tallystick(tally), id="late", defer_loading=True)


def test_an_agent_in_a_tool_of_an_agent_is_part_of_its_run(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        inner = Agent(
            _says("Paris"), name="expert", capabilities=[Tallystick(tally, context=False)]
        )
        outer = Agent(
            _calls("ask", {"question": "Capital of France?"}),
            capabilities=[Tallystick(tally, tools=False)],
        )

        @outer.tool_plain
        async def ask(question: str) -> str:
            """Ask an expert."""
            return (await inner.run(question)).output

        _run(outer, "go")
        [run] = tally.bind().runs()
        request, called, expert, answered = tally.recordings.steps(run.run_id)
        assert [request.step_kind, called.step_kind, answered.step_kind] == [
            "model_call",
            "tool_call",
            "model_call",
        ]
        assert (expert.step_kind, expert.parent_step_id) == ("model_call", called.step_id)


def test_a_failure_outside_of_any_step_has_a_step_that_says_what(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        agent = Agent(_says("three"), output_type=int, capabilities=[Tallystick(tally)], retries=0)
        with pytest.raises(UnexpectedModelBehavior):
            _run(agent, "go")
        [run] = tally.bind().runs()
        last = list(tally.recordings.steps(run.run_id))[-1]
        assert (run.status, last.step_kind, last.status) == ("failed", "other", "failed")
        [error] = [
            entry.payload
            for entry in tally.recordings.entries(last.step_id)
            if entry.kind == "error"
        ]
        assert isinstance(error, dict)
        assert error["type"] == "UnexpectedModelBehavior"


class _NoStreams(Model):
    """A model of the user's that answers in one piece alone."""

    @property
    def model_name(self) -> str:
        return "no-streams"

    @property
    def system(self) -> str:
        return "mine"

    async def request(
        self, messages: Any, model_settings: Any, model_request_parameters: Any
    ) -> ModelResponse:
        return ModelResponse(parts=[TextPart("Yes.")])


def test_a_model_without_streams_says_so_itself(open_sqlite: OpenTally) -> None:
    async def stream(agent: Agent[Any, Any]) -> None:
        async with agent.run_stream("Hm?"):
            pass

    with open_sqlite() as tally:
        recorder = TallyRecorder(tally, strict=True)
        agent = Agent(_NoStreams(), capabilities=[recorder])
        with pytest.raises(UserError, match="_NoStreams does not support streamed requests"):
            asyncio.run(stream(agent))
        assert _run(agent, "Hm?").output == "Yes."

        bound = tally.bind()
        runs = bound.runs()
        steps = [step for run in runs for step in bound.recordings.steps(run.run_id)]
        assert [step.name for step in steps if step.status == "completed"] == ["no-streams"]


def test_a_model_that_the_user_instrumented_has_one_span(open_sqlite: OpenTally) -> None:
    """The recorder stands within the instrumentation: PydanticAI would add a second one around."""
    with open_sqlite() as tally:
        recorder = TallyRecorder(tally, strict=True)
        model = InstrumentedModel(_says("Yes."))
        wrapper = recorder.get_wrapper_model(model)
        assert isinstance(wrapper, InstrumentedModel)
        assert wrapper.instrumentation_settings is model.instrumentation_settings
        assert not isinstance(wrapper.wrapped, InstrumentedModel)
        assert instrument_model(wrapper, True) is wrapper

        assert _run(Agent(model, capabilities=[recorder]), "Hm?").output == "Yes."
        bound = tally.bind()
        [run] = bound.runs()
        [step] = bound.recordings.steps(run.run_id)
        assert "request" in [entry.kind for entry in bound.recordings.entries(step.step_id)]
