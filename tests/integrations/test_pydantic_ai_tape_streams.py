"""Streams of PydanticAI: parts that begin and grow, on a tape and in a recording;
test_runtime_tape_streams.py holds the facts of every runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from tests.integrations.runtimes.base import Script, player_of
from tests.integrations.runtimes.pydantic_ai import PydanticAI, scripted

from tallystick import Tally
from tallystick.recorder import Player
from tallystick_pydantic_ai import TallyRecorder, TapeCapability

OpenTally = Callable[..., Tally]
ARGS = ('{"what": ', '"green ', 'tea 🍵"}')
WORDS = ("It ", "weighs ", "three ", "tons.")
BROKEN = ("It ", "weighs ", ConnectionError("the line is dead"))


def weigh(what: str) -> str:
    """Weigh something."""
    return f"{what}: 3 tons"


def _agent(*answers: list[Any]) -> Agent[Any, Any]:
    """An agent whose model streams these pieces, one answer a call."""
    replies = iter(answers)

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for piece in next(replies):
            yield piece

    return Agent(FunctionModel(stream_function=stream), name="weigher", tools=[weigh])


async def _events(agent: Agent[Any, Any], capability: Any) -> list[Any]:
    async with agent.run_stream_events("How heavy?", capabilities=[capability]) as stream:
        return [event async for event in stream]


def _record(tally: Tally, *answers: list[Any]) -> tuple[list[Any], Player]:
    events = asyncio.run(_events(_agent(*answers), TallyRecorder(tally, strict=True)))
    return events, player_of(tally)


def _texts(events: list[Any]) -> list[Any]:
    """The end of each part that was streamed, put together from its events."""
    parts: list[Any] = []
    for event in events:
        if isinstance(event, PartStartEvent):
            parts.append(event.part)
        elif isinstance(event, PartDeltaEvent):
            delta: Any = event.delta
            parts[-1] = delta.apply(parts[-1])
    return [part.args if isinstance(part, ToolCallPart) else part.content for part in parts]


def _deltas(events: list[Any]) -> int:
    return sum(isinstance(event, PartStartEvent | PartDeltaEvent) for event in events)


def test_arguments_grow_and_the_events_are_those_that_were_recorded(open_sqlite: OpenTally) -> None:
    first, *rest = ARGS
    asks = [
        {0: DeltaToolCall("weigh", first, tool_call_id="call_1")},
        *({0: DeltaToolCall(None, piece)} for piece in rest),
    ]
    with open_sqlite() as tally:
        recorded, player = _record(tally, asks, [*WORDS])
    played = asyncio.run(_events(_agent(), TapeCapability(player)))
    assert _texts(played) == _texts(recorded) == ["".join(ARGS), "".join(WORDS)]
    assert _deltas(played) == _deltas(recorded) == 7
    kinds = [event.event_kind for event in played]
    assert kinds == [event.event_kind for event in recorded]
    assert {"part_start", "function_tool_result"} <= set(kinds)
    assert player.finish().matches


def test_thoughts_are_streamed_before_what_is_said(open_sqlite: OpenTally) -> None:
    thoughts = [{0: DeltaThinkingPart(content=word)} for word in ("Let ", "me ", "see.")]
    with open_sqlite() as tally:
        recorded, player = _record(tally, [*thoughts, "Three ", "tons."])
    played = asyncio.run(_events(_agent(), TapeCapability(player)))
    starts = [type(event.part) for event in played if isinstance(event, PartStartEvent)]
    assert starts == [ThinkingPart, TextPart]
    assert _texts(played) == _texts(recorded) == ["Let me see.", "Three tons."]
    assert _deltas(played) == _deltas(recorded)


def test_text_grows_for_whoever_reads_the_stream(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        _record(tally, [*WORDS])
        first, second = player_of(tally), player_of(tally)

    async def read(player: Player, form: str) -> tuple[list[Any], ModelResponse]:
        capabilities = [TapeCapability(player)]
        async with _agent().run_stream("How heavy?", capabilities=capabilities) as result:
            stream = getattr(result, form)(debounce_by=None)
            return [each async for each in stream], result.response

    texts, answer = asyncio.run(read(first, "stream_text"))
    assert texts == ["It we", "It weighs ", "It weighs three", "It weighs three tons."]
    assert (answer.text, answer.state) == ("It weighs three tons.", "complete")
    responses, _ = asyncio.run(read(second, "stream_response"))
    seen = [(response.text or "", response.state) for response in responses]
    assert seen[:2] == [("It we", "incomplete"), ("It weighs ", "incomplete")]
    assert seen[-1] == ("It weighs three tons.", "complete")


def _steps(tally: Tally) -> tuple[list[str], list[str], list[dict[Any, Any]]]:
    """The states of all runs and of all steps, and the entries of each step, oldest first."""
    runs = tally.bind().recordings.runs()[::-1]
    steps = [step for run in runs for step in tally.recordings.steps(run.id)]
    entries = [{entry.kind: entry for entry in tally.recordings.entries(step.id)} for step in steps]
    return [run.status for run in runs], [step.status for step in steps], entries


def test_a_stream_that_breaks_or_is_left_keeps_what_it_said_until_then(
    open_sqlite: OpenTally,
) -> None:
    async def leave(tally: Tally) -> None:
        capabilities = [TallyRecorder(tally, strict=True)]
        agent = _agent([*WORDS])
        async with agent.run_stream_events("How heavy?", capabilities=capabilities) as stream:
            async for event in stream:
                if isinstance(event, PartDeltaEvent):
                    raise KeyError("nobody listens any more")

    with open_sqlite() as tally:
        with pytest.raises(ConnectionError):
            PydanticAI("run_stream_events").run(Script(BROKEN), recorded=tally)
        with pytest.raises(KeyError):
            asyncio.run(leave(tally))
        runs, steps, entries = _steps(tally)
        assert runs == steps == ["failed", "cancelled"]
        error = {"type": "ConnectionError", "message": "the line is dead"}
        assert entries[0]["error"].payload == error
        responses = [each["response"] for each in entries]
        texts = [each.payload["answer"]["parts"][0]["content"] for each in responses]
        assert texts == ["It weighs ", "It weighs "]
        assert [each.summary["stream"]["chunks"] for each in responses] == [2, 2]


def test_a_model_that_falls_back_is_timed_and_told_of_as_any(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        for pieces in (WORDS, ("It ", ConnectionError("dead"))):
            refused = scripted(ModelHTTPError(503, "first", "busy"))
            agent = Agent(FallbackModel(refused, scripted(pieces)), name="weigher")
            try:
                asyncio.run(_events(agent, TallyRecorder(tally, strict=True)))
            except ConnectionError:
                assert pieces is not WORDS
        _, steps, entries = _steps(tally)
        assert steps == ["completed", "failed"]
        assert [each["response"].summary["stream"]["chunks"] for each in entries] == [4, 1]


def test_a_request_that_is_cancelled_is_recorded_so(open_sqlite: OpenTally) -> None:
    async def cancel(tally: Tally) -> None:
        begun = asyncio.Event()

        async def slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        agent = Agent(FunctionModel(slow), capabilities=[TallyRecorder(tally)])
        running = asyncio.create_task(agent.run("How heavy?"))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with open_sqlite() as tally:
        asyncio.run(cancel(tally))
        runs, steps, _ = _steps(tally)
        assert (runs, steps) == (["cancelled"], ["cancelled"])
