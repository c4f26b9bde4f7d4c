"""The Tallystick capability keeps the adapter contract on real PydanticAI runs."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.durable_exec.dbos import DBOSAgent, DBOSDurability
from pydantic_ai.exceptions import UnexpectedModelBehavior, UserError
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentedModel, instrument_model
from tests.integrations.runtimes.base import call
from tests.integrations.runtimes.pydantic_ai import scripted

from tallystick import Actor, Tally
from tallystick.errors import Denied, InvalidInput
from tallystick.tally.services import services_of
from tallystick_pydantic_ai import TallyRecorder, Tallystick

OpenTally = Callable[..., Tally]


def _run(agent: Agent[Any, Any], *args: Any, **kwargs: Any) -> Any:
    """`run_sync` on a loop that is closed afterwards."""
    return asyncio.run(agent.run(*args, **kwargs))


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
        [step] = owner.recordings.steps(owner.recordings.runs()[0].id)
        entries = {entry.kind: entry.payload for entry in owner.recordings.entries(step.id)}
        assert list(entries) == [
            "memory_read",
            "compile_request",
            "compiled",
            "request",
            "response",
        ]
        answer: Any = entries["response"]
        assert answer["answer"]["parts"][0]["content"] == "heron"


def test_a_stream_that_its_reader_leaves_is_recorded_as_cancelled(
    open_sqlite: OpenTally,
) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "her"
        await asyncio.sleep(60)

    async def ask(tally: Tally) -> None:
        agent = Agent(FunctionModel(stream_function=stream), capabilities=[Tallystick(tally)])
        async with agent.run_stream("Say heron.") as result:
            async for _ in result.stream_text(delta=True):
                return

    with open_sqlite() as tally:
        asyncio.run(ask(tally))
        owner = tally.bind()
        [run] = owner.recordings.runs()
        [step] = owner.recordings.steps(run.id)
        answer: Any = owner.recordings.entries(step.id)[-1].payload
        assert (step.status, run.status) == ("cancelled", "cancelled")
        assert answer["answer"]["parts"][0]["content"] == "her"


def test_a_request_whose_stream_cannot_begin_has_failed(open_sqlite: OpenTally) -> None:
    async def ask(tally: Tally) -> None:
        agent = Agent(scripted(ConnectionError("down")), capabilities=[Tallystick(tally)])
        async with agent.run_stream("Say heron."):
            pass

    with open_sqlite() as tally:
        with pytest.raises(ConnectionError):
            asyncio.run(ask(tally))
        owner = tally.bind()
        [run] = owner.recordings.runs()
        [request, *_] = owner.recordings.steps(run.id)
        assert (run.status, request.step_kind, request.status) == ("failed", "model_call", "failed")


def test_a_recorder_that_may_not_write_breaks_no_run_and_counts_what_it_missed(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        watching = TallyRecorder(tally, actor=Actor(user="eve"), scope="project:apollo")
        assert _run(Agent(scripted("fine"), capabilities=[watching]), "go").output == "fine"
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
            _run(Agent(scripted("fine"), capabilities=[watching]), "go")


def test_a_call_that_could_not_be_recorded_is_a_gap_of_its_run(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise KeyError("parts")

    with open_sqlite() as tally:
        monkeypatch.setattr("tallystick_pydantic_ai.recorder.request_of", broken)
        agent = Agent(scripted("fine"), capabilities=[Tallystick(tally, context=False)])
        assert _run(agent, "go").output == "fine"
        [run] = tally.bind().recordings.runs()
        assert (run.status, run.gaps) == ("completed", 1)
        assert tally.recordings.verify(run.id).gaps


def test_of_two_recorders_in_one_agent_each_call_is_recorded_once(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        twice = [TallyRecorder(tally, id="one"), TallyRecorder(tally.bind(), id="two")]
        _run(
            Agent(scripted([call("double", value=21)], "done"), capabilities=twice, tools=[double]),
            "double 21",
        )
        [run] = tally.bind().recordings.runs()
        steps = list(tally.recordings.steps(run.id))
        assert [(step.step_kind, step.status) for step in steps] == [
            ("model_call", "completed"),
            ("tool_call", "completed"),
            ("model_call", "completed"),
        ]
        for step in steps:
            kinds = [entry.kind for entry in tally.recordings.entries(step.id)]
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


def test_a_failure_outside_of_any_step_has_a_step_that_says_what(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        agent = Agent(
            scripted("three"), output_type=int, capabilities=[Tallystick(tally)], retries=0
        )
        with pytest.raises(UnexpectedModelBehavior):
            _run(agent, "go")
        [run] = tally.bind().recordings.runs()
        last = list(tally.recordings.steps(run.id))[-1]
        assert (run.status, last.step_kind, last.status) == ("failed", "other", "failed")
        [error] = [
            entry.payload for entry in tally.recordings.entries(last.id) if entry.kind == "error"
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
        runs = bound.recordings.runs()
        steps = [step for run in runs for step in bound.recordings.steps(run.id)]
        assert [step.name for step in steps if step.status == "completed"] == ["no-streams"]


def test_a_model_that_the_user_instrumented_has_one_span(open_sqlite: OpenTally) -> None:
    """The recorder stands within the instrumentation: PydanticAI would add a second one around."""
    with open_sqlite() as tally:
        recorder = TallyRecorder(tally, strict=True)
        model = InstrumentedModel(scripted("Yes."))
        wrapper = recorder.get_wrapper_model(model)
        assert isinstance(wrapper, InstrumentedModel)
        assert wrapper.instrumentation_settings is model.instrumentation_settings
        assert not isinstance(wrapper.wrapped, InstrumentedModel)
        assert instrument_model(wrapper, True) is wrapper

        assert _run(Agent(model, capabilities=[recorder]), "Hm?").output == "Yes."
        bound = tally.bind()
        [run] = bound.recordings.runs()
        [step] = bound.recordings.steps(run.id)
        assert "request" in [entry.kind for entry in bound.recordings.entries(step.id)]


def _contents(tally: Tally, user: str = "anna") -> list[tuple[str, str | None]]:
    hits = tally.bind(Actor(user=user)).memories(limit=20)
    return [(hit.content, hit.speaker) for hit in hits][::-1]


@pytest.mark.parametrize("rounds", [1, 2])
def test_words_that_led_to_a_deferred_call_are_kept_once_it_is_answered(
    open_sqlite: OpenTally, rounds: int
) -> None:
    def play(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = sum(isinstance(part, ToolReturnPart) for each in messages for part in each.parts)
        if done < rounds:
            return ModelResponse([ToolCallPart("book", {"seat": str(done)})])
        return ModelResponse([TextPart("Booked.")])

    with open_sqlite() as tally:
        anna = tally.bind(Actor(user="anna"))
        agent: Agent[None, Any] = Agent(
            FunctionModel(play),
            output_type=[str, DeferredToolRequests],
            capabilities=[Tallystick(anna, tools=False, capture="both", strict=True)],
        )

        @agent.tool_plain(requires_approval=True)
        def book(seat: str) -> str:
            return seat

        result = _run(agent, "Book me a window seat.")
        for _ in range(rounds):
            assert _contents(tally) == []
            result = _run(
                agent,
                message_history=result.all_messages(),
                deferred_tool_results=result.output.build_results(approve_all=True),
            )
        kept = [("Book me a window seat.", "anna"), ("Booked.", "agent")]
        assert [content for content, _ in _contents(tally)] == [content for content, _ in kept]
        # A run that goes on after an answer has no new words of the user.
        _run(agent, "Thanks.", message_history=result.all_messages())
        assert [content for content, _ in _contents(tally)][2:] == ["Thanks.", "Booked."]


def test_words_that_come_as_the_end_of_the_history_are_kept_once(open_sqlite: OpenTally) -> None:
    """So do those of AG-UI and A2A."""
    with open_sqlite() as tally:
        anna = tally.bind(Actor(user="anna"))
        agent: Agent[None, str] = Agent(
            FunctionModel(lambda messages, info: ModelResponse([TextPart("Noted.")])),
            capabilities=[Tallystick(anna, tools=False, capture="user", strict=True)],
        )
        history: list[ModelMessage] = [
            ModelRequest([UserPromptPart("I like aisle seats.")]),
            ModelResponse([TextPart("Noted.")]),
            ModelRequest([UserPromptPart("No, window seats.")]),
        ]
        _run(agent, message_history=history)
        assert [content for content, _ in _contents(tally)] == ["No, window seats."]


@pytest.fixture
def dbos(tmp_path: Path) -> Iterator[None]:
    DBOS.destroy(destroy_registry=True)
    DBOS(
        config={
            "name": "agents",
            "system_database_url": f"sqlite:///{tmp_path / 'dbos.sqlite'}",
            "log_level": "ERROR",
            "enable_otlp": False,
        }
    )
    yield
    DBOS.destroy(destroy_registry=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.filterwarnings("ignore")
def test_an_agent_of_dbos_is_recorded_by_its_capability_and_refused_with_what_to_use(
    open_sqlite: OpenTally, dbos: None
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(Actor(user="anna"))

        def agent(name: str, *capabilities: Any) -> Agent[None, str]:
            return Agent(
                FunctionModel(lambda messages, info: ModelResponse([TextPart("Noted.")])),
                name=name,
                capabilities=list(capabilities),
            )

        watching = Tallystick(anna, capture="user", strict=True)
        durable = agent("durable", DBOSDurability(), watching)
        old = DBOSAgent(agent("old", Tallystick(anna, strict=True)))
        silent = DBOSAgent(agent("silent", Tallystick(anna, record=False)))
        DBOS.launch()

        async def ask() -> list[str]:
            @DBOS.workflow()
            async def workflow(text: str) -> str:
                return str((await durable.run(text)).output)

            answers = [await workflow("I like window seats."), (await silent.run("Hello?")).output]
            with pytest.raises(InvalidInput, match=r"DBOSDurability.*record=False"):
                await old.run("Hello?")
            return answers

        assert asyncio.run(ask()) == ["Noted.", "Noted."]
        (run,) = anna.recordings.runs()
        assert (run.agent_name, run.status) == ("durable", "completed")
        assert [content for content, _ in _contents(tally)] == ["I like window seats."]
