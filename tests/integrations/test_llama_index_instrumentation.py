"""TallyInstrumentation keeps the adapter contract on real LlamaIndex models, tools, agents and
query engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.tools import FunctionTool
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import instrument_tags
from tests.integrations.llama_scripted import Scripted, calls
from workflows.errors import WorkflowCancelledByUser, WorkflowTimeoutError

from tallystick import Actor, Tally
from tallystick.errors import RecorderError
from tallystick.records import RunRecord
from tallystick.records.framing import has_frame
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.testing.adapter_contract import AdapterContract
from tallystick_llama_index import TallyInstrumentation, TallyMemory, TallyRetriever, llm_call

OpenTally = Callable[..., Tally]

# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


async def double(value: int) -> int:
    """Twice the value."""
    return value * 2


def _double() -> FunctionTool:
    return FunctionTool.from_defaults(
        async_fn=double, fn=lambda value: value * 2, name="double", description="Twice."
    )


def _run(tally: Tally) -> RunRecord:
    [run] = tally.bind().recordings.runs()
    return run


def _steps(tally: Tally) -> list[tuple[str, str | None, str]]:
    return [
        (step.step_kind, step.name, step.status) for step in tally.recordings.steps(_run(tally).id)
    ]


def _payloads(tally: Tally, place: int = 0) -> dict[str, Any]:
    step = tally.recordings.steps(_run(tally).id)[place]
    return {entry.kind: entry.payload for entry in tally.recordings.entries(step.id)}


def _summary(tally: Tally, place: int = 0) -> dict[str, Any]:
    return dict(tally.recordings.receipts(_run(tally).id)[place].entries[-1].summary)


async def _ask(agent: FunctionAgent, prompt: str = "double 21", **options: Any) -> str:
    return str(await agent.run(prompt, **options))


@pytest.mark.smoke
class TestInstrumentation(AdapterContract):
    verbs = frozenset({"model_call", "tool_call"})

    def model_call(self, bound: BoundTally, prompt: str, answer: str) -> None:
        with TallyInstrumentation(bound, strict=True):
            Scripted(answer).chat([ChatMessage(prompt)])

    def tool_call(self, bound: BoundTally, value: int) -> None:
        with TallyInstrumentation(bound, strict=True):
            _double().call(value=value)


AGENT = [
    ("model_call", "scripted", "completed"),
    ("tool_call", "double", "completed"),
    ("model_call", "scripted", "completed"),
]
"""Early releases describe a model by its class alone."""


@pytest.mark.parametrize("streaming", [False, True])
def test_an_agent_is_one_run_with_a_step_for_each_call(
    open_sqlite: OpenTally, streaming: bool
) -> None:
    with open_sqlite() as tally:
        agent = FunctionAgent(
            name="calculator",
            tools=[_double()],
            streaming=streaming,
            system_prompt="You calculate.",
            llm=Scripted(calls(("c1", "double", {"value": 21})), "It is 42."),
        )
        with TallyInstrumentation(tally, strict=True):
            assert asyncio.run(_ask(agent)) == "It is 42."

        run = _run(tally)
        assert (run.agent_name, run.status, run.goal) == (
            "calculator",
            "completed",
            "double 21",
        )
        assert [(kind, str(name).lower(), status) for kind, name, status in _steps(tally)] == AGENT
        request = _payloads(tally)["request"]
        assert [message["role"] for message in request["messages"]] == ["system", "user"]
        assert [tool["function"]["name"] for tool in request["tools"]] == ["double"]
        assert _payloads(tally, 1) == {
            "tool_call": {"name": "double", "arguments": {"value": 21}, "tool_call_id": "c1"},
            "tool_result": {"result": 42},
        }
        assert tally.recordings.verify(run.id).ok


def test_parallel_tools_and_one_that_fails_have_a_step_each(open_sqlite: OpenTally) -> None:
    async def divide(value: int) -> float:
        """One by the value."""
        return 1 / value

    with open_sqlite() as tally:
        tool_calls = calls(
            ("c1", "double", {"value": 1}),
            ("c2", "divide", {"value": 0}),
            ("c3", "double", {"value": 2}),
        )
        agent = FunctionAgent(tools=[_double(), divide], llm=Scripted(tool_calls, "Done."))
        with TallyInstrumentation(tally, strict=True):
            asyncio.run(_ask(agent))

        assert sorted(
            (name, status) for kind, name, status in _steps(tally) if kind == "tool_call"
        ) == [
            ("divide", "failed"),
            ("double", "completed"),
            ("double", "completed"),
        ]
        assert _run(tally).status == "completed"
        places = {step.name: step.step_index for step in tally.recordings.steps(_run(tally).id)}
        error = _payloads(tally, places["divide"])["error"]
        assert (error["type"], error["message"]) == ("ZeroDivisionError", "division by zero")


def test_a_stream_is_recorded_whole_with_the_times_of_its_first_and_last_chunk(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            answer = [
                piece.delta for piece in Scripted("her on").stream_chat([ChatMessage("Say heron.")])
            ]

        assert answer == ["her ", "on", ""]
        assert (
            _run(tally).status,
            _payloads(tally)["response"]["answer"]["blocks"][0]["text"],
        ) == (
            "completed",
            "her on",
        )
        summary = _summary(tally)
        assert summary["usage"] == {"input_tokens": 7, "output_tokens": 2}
        stream = summary["stream"]
        assert stream["chunks"] == 3
        assert 0 <= stream["first_us"] <= stream["last_us"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("her on", "completed"),
        (ConnectionError("down"), "failed"),
        (("her ", ConnectionError("broken")), "failed"),
    ],
)
def test_a_run_that_hands_out_a_stream_ends_as_the_stream_does(
    open_sqlite: OpenTally, answer: Any, status: str
) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        with TallyInstrumentation(tally, strict=True):
            with suppress(ConnectionError):
                list(Scripted(answer).stream_chat([ChatMessage("Say heron.")]))
            stream = Scripted("her on").stream_chat([ChatMessage("Say heron.")])
            next(iter(stream))
            stream.close()
        assert [run.status for run in owner.recordings.runs()] == ["cancelled", status]


def test_a_stream_that_nobody_reads_to_its_end_keeps_what_was_said_and_is_called_cancelled(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            stream = Scripted("her on").stream_chat([ChatMessage("Say heron.")])
            next(stream)
            stream.close()

        assert [status for _, _, status in _steps(tally)] == ["cancelled"]
        assert _payloads(tally)["response"]["answer"]["blocks"][0]["text"] == "her "
        assert _payloads(tally)["error"]["type"] == "GeneratorExit"


def test_streams_of_the_same_messages_that_are_open_together_are_calls_of_their_own(
    open_sqlite: OpenTally,
) -> None:
    async def ask() -> None:
        messages = [ChatMessage("Say heron.")]
        streams = [await Scripted("her on").astream_chat(messages) for _ in range(3)]
        for stream in streams:
            async for _ in stream:
                pass

    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            asyncio.run(ask())

        recordings = tally.bind().recordings
        assert [len(recordings.steps(run.id)) for run in recordings.runs()] == [1, 1, 1]


def test_a_chat_that_is_made_of_a_completion_is_one_model_call(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            MockLLM().chat([ChatMessage("Say heron.")])

        assert [kind for kind, _, _ in _steps(tally)] == ["model_call"]
        assert "messages" in _payloads(tally)["request"]


def test_a_query_is_a_run_with_its_retrieval_and_its_answer(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        stored = tally.bind().remember("The heron nests in March.", speaker="Ada")
        engine = RetrieverQueryEngine.from_args(TallyRetriever(tally), llm=MockLLM())
        with TallyInstrumentation(tally, strict=True):
            engine.query("When does the heron nest?")

        run = _run(tally)
        assert (run.agent_name, run.goal) == (
            "RetrieverQueryEngine",
            "When does the heron nest?",
        )
        assert next((kind, name) for kind, name, _ in _steps(tally)) == (
            "retrieval",
            "TallyRetriever",
        )
        looked = _payloads(tally)
        assert list(looked) == ["request", "memory_read", "response"]
        assert looked["request"]["query"] == "When does the heron nest?"
        [document] = looked["response"]["documents"]
        assert (document["id"], document["node"]["text"]) == (
            stored.id,
            "The heron nests in March.",
        )
        assert document["score"] is not None
        assert [kind for kind, _, _ in _steps(tally)][1:] == ["model_call"]


def test_an_asynchronous_retrieval_is_recorded_alike(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        tally.bind().remember("The heron nests in March.")
        with TallyInstrumentation(tally, strict=True):
            asyncio.run(TallyRetriever(tally).aretrieve("heron"))

        assert _steps(tally) == [("retrieval", "TallyRetriever", "completed")]
        assert list(_payloads(tally)) == ["request", "memory_read", "response"]


def test_what_a_tool_remembers_is_joined_to_its_step(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        note = FunctionTool.from_defaults(
            lambda text: owner.remember(text).id, name="note", description="Note."
        )
        with TallyInstrumentation(tally, strict=True):
            note.call(text="Noted.")
            owner.remember("Outside of any step.")

        assert list(_payloads(tally)) == ["tool_call", "memory_write", "tool_result"]
        outside, inside = owner.memories()
        assert (len(inside.source_step_ids), outside.source_step_ids) == (1, ())


def test_an_agent_in_a_tool_is_part_of_the_run_under_that_tool(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        inner = FunctionAgent(name="inner", tools=[_double()], llm=Scripted("I say 42."))

        async def ask(question: str) -> str:
            """Ask a colleague."""
            return str(await inner.run(question))

        outer = FunctionAgent(
            name="outer",
            tools=[ask],
            llm=Scripted(calls(("c1", "ask", {"question": "double 21"})), "42."),
        )
        with TallyInstrumentation(tally, strict=True):
            asyncio.run(_ask(outer))

        assert _run(tally).agent_name == "outer"
        steps = tally.recordings.steps(_run(tally).id)
        assert [step.step_kind for step in steps] == [
            "model_call",
            "tool_call",
            "model_call",
            "model_call",
        ]
        assert [step.parent_step_id for step in steps] == [None, None, steps[1].id, None]


def test_agents_side_by_side_stay_apart(open_sqlite: OpenTally) -> None:
    async def ask_all() -> None:
        agents = [
            FunctionAgent(name=f"agent-{n}", tools=[], llm=Scripted(f"said {n}")) for n in range(3)
        ]
        await asyncio.gather(*(_ask(agent, f"question {n}") for n, agent in enumerate(agents)))

    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            asyncio.run(ask_all())

        for run in tally.bind().recordings.runs():
            [step] = tally.recordings.steps(run.id)
            request, response = tally.recordings.entries(step.id)
            number = run.agent_name.removeprefix("agent-")
            assert f"question {number}" in str(request.payload)
            assert f"said {number}" in str(response.payload)
        assert len(tally.bind().recordings.runs()) == 3


def test_two_instrumentations_of_one_tally_record_each_event_once(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        agent = FunctionAgent(
            tools=[_double()], llm=Scripted(calls(("c1", "double", {"value": 21})), "42.")
        )
        with TallyInstrumentation(tally, strict=True), TallyInstrumentation(tally, strict=True):
            asyncio.run(_ask(agent))

        assert [kind for kind, _, _ in _steps(tally)] == ["model_call", "tool_call", "model_call"]


def test_memory_that_is_given_to_an_agent_stands_in_its_run_and_is_marked_in_the_request(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        tally.bind().remember("The heron nests in March.")
        memory = TallyMemory.from_defaults(tally, session_id="s1")
        agent = FunctionAgent(tools=[_double()], llm=Scripted("In March."))
        with TallyInstrumentation(tally, strict=True):
            asyncio.run(_ask(agent, "When does the heron nest?", memory=memory))

        steps = tally.recordings.steps(_run(tally).id)
        kinds = [entry.kind for step in steps for entry in tally.recordings.entries(step.id)]
        assert "compiled" in kinds
        place = next(step.step_index for step in steps if step.step_kind == "model_call")
        sent = [
            block["text"]
            for message in _payloads(tally, place)["request"]["messages"]
            for block in message["blocks"]
        ]
        assert [has_frame(text) for text in sent if "March" in text] == [True]
        assert sum("nests in March" in turn.content for turn in tally.bind().memories()) == 1


def test_calls_inside_a_run_join_it(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True), tally.bind().run("mine") as run:
            Scripted("heron").chat([ChatMessage("Say heron.")])
            assert run.record.ended_at is None

        assert (_run(tally).agent_name, len(_steps(tally))) == ("mine", 1)


def test_a_recorded_model_call_replays_through_a_model_and_is_not_recorded_again(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            Scripted("heron").chat([ChatMessage("Say heron.")], temperature=0.5)
            [step] = tally.recordings.steps(_run(tally).id)
            same = tally.recordings.preview_replay(step.id, call=llm_call(Scripted("heron")))
            other = tally.recordings.preview_replay(step.id, call=llm_call(Scripted("stork")))

        assert (same.fidelity, same.request_matches, same.response_matches) == ("exact", True, True)
        assert other.response_matches is False
        assert _payloads(tally)["request"]["parameters"] == {"temperature": 0.5}


def test_a_recorder_that_may_not_write_breaks_no_call_and_counts_what_it_missed(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        watching = TallyInstrumentation(tally, actor=Actor(user="eve"), scope="project:apollo")
        with watching:
            assert Scripted("heron").chat([ChatMessage("Say heron.")]).message.content == "heron"

        assert watching.failures > 0
        assert any(
            where.startswith("llama_index") for where in services_of(tally).recorder.health.gaps
        )


def test_a_strict_instrumentation_raises_what_it_missed_when_it_is_detached(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        watching = TallyInstrumentation(
            tally, actor=Actor(user="eve"), scope="project:apollo", strict=True
        ).attach()
        Scripted("heron").chat([ChatMessage("Say heron.")])

        with pytest.raises(RecorderError, match=r"Denied: .*project") as missed:
            watching.detach()
        assert any("Traceback" in note for note in missed.value.__notes__)
        assert not any(
            "Tally" in type(handler).__name__ for handler in get_dispatcher().event_handlers
        )


def test_tags_may_say_who_acts(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        agent = FunctionAgent(tools=[_double()], llm=Scripted("hi"))
        watching = TallyInstrumentation(
            tally, actor=lambda call: Actor(user=call.metadata["who"]), strict=True
        )
        with watching, instrument_tags({"who": "alice"}):
            asyncio.run(_ask(agent, "hi"))

        assert len(tally.bind(Actor(user="alice")).recordings.runs()) == 1
        assert tally.bind(Actor(user="bob")).recordings.runs() == []


def test_credentials_in_what_a_model_says_of_itself_are_not_recorded(
    open_sqlite: OpenTally,
) -> None:
    class PreparedInsert(MockLLM):
        api_key: str = "hunter2-hunter2"

    with open_sqlite() as tally:
        with (
            TallyInstrumentation(tally, strict=True),
            tally.bind().run("mine", retention="full_payloads"),
        ):
            PreparedInsert(max_tokens=None).chat(
                [ChatMessage("hi")], extra_headers={"Authorization": "Bearer hunter2-hunter2"}
            )

        assert "hunter2" not in str(_payloads(tally))


@pytest.mark.parametrize(
    ("how", "status"),
    [("cancelled by its user", "cancelled"), ("out of time", "failed")],
)
def test_a_workflow_that_is_stopped_is_not_called_completed(
    open_sqlite: OpenTally, how: str, status: str
) -> None:
    begun = asyncio.Event()

    async def slow(what: str) -> str:
        """Take an hour."""
        begun.set()
        await asyncio.sleep(3_600)
        return what

    async def stopped() -> None:
        tool_calls = calls(("c1", "slow", {"what": "tea"}))
        timeout = 0.2 if how == "out of time" else None
        running = FunctionAgent(
            llm=Scripted(tool_calls), tools=[slow], streaming=False, timeout=timeout
        ).run("Go on.")
        await begun.wait()
        if how == "cancelled by its user":
            await running.cancel_run()
        with pytest.raises((WorkflowCancelledByUser, WorkflowTimeoutError)):
            await running

    with open_sqlite() as tally:
        with TallyInstrumentation(tally, capture="user", strict=True):
            asyncio.run(stopped())
        bound = tally.bind()
        [run] = bound.recordings.runs()
        assert run.status == status
        assert [step.status for step in bound.recordings.steps(run.id)] == [
            "completed",
            "cancelled",
        ]
        assert bound.recordings.verify(run.id).ok
        assert bound.memories() == []
