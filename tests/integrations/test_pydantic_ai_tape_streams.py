"""A tape of PydanticAI plays as the stream that it was: parts that begin and grow to the recorded
answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.tools import DeferredToolRequests

from tallystick import Tally
from tallystick.errors import RecordedFailure
from tallystick.recorder import Player
from tallystick_pydantic_ai import TallyRecorder, TapeCapability

OpenTally = Callable[..., Tally]
ARGS = ('{"what": ', '"green ', 'tea 🍵"}')


def _streaming(*script: list[Any]) -> FunctionModel:
    """A model that streams its script, one answer a call; an exception in it breaks the stream."""
    replies = iter(script)

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for piece in next(replies):
            if isinstance(piece, Exception):
                raise piece
            yield piece

    return FunctionModel(stream_function=stream)


def _asks() -> list[Any]:
    first, *rest = ARGS
    return [
        {0: DeltaToolCall("weigh", first, tool_call_id="call_1")},
        *({0: DeltaToolCall(None, piece)} for piece in rest),
    ]


def weigh(what: str) -> str:
    """Weigh something."""
    return f"{what}: 3 tons"


def _agent(*script: list[Any]) -> Agent[Any, Any]:
    return Agent(
        _streaming(*script), name="weigher", tools=[weigh], output_type=[str, DeferredToolRequests]
    )


async def _events(agent: Agent[Any, Any], capability: Any) -> list[Any]:
    async with agent.run_stream_events("How heavy?", capabilities=[capability]) as stream:
        return [event async for event in stream]


def _recorded(tally: Tally, *script: list[Any]) -> tuple[list[Any], list[Player]]:
    bound = tally.bind()
    events = asyncio.run(_events(_agent(*script), TallyRecorder(tally, strict=True)))
    return events, [bound.recordings.player(bound.runs()[0].run_id) for _ in range(2)]


def _grown(events: list[Any]) -> list[Any]:
    """What each part that was streamed says in the end, put together from its events."""
    results: list[Any] = []
    for event in events:
        if isinstance(event, PartStartEvent):
            results.append(event.part)
        elif isinstance(event, PartDeltaEvent):
            delta: Any = event.delta
            results[-1] = delta.apply(results[-1])
    return [part.args if isinstance(part, ToolCallPart) else part.content for part in results]


def _deltas(events: list[Any]) -> int:
    return sum(isinstance(event, PartStartEvent | PartDeltaEvent) for event in events)


def test_an_agent_streams_its_tape_in_as_many_events_as_were_recorded(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        recorded, players = _recorded(tally, _asks(), ["It ", "weighs ", "three ", "tons."])
    played = asyncio.run(_events(_agent(), TapeCapability(players[0])))
    assert _grown(played) == _grown(recorded) == ["".join(ARGS), "It weighs three tons."]
    assert _deltas(played) == _deltas(recorded) == 7
    assert [event.event_kind for event in played] == [event.event_kind for event in recorded]
    assert players[0].finish().matches


def test_thoughts_are_streamed_before_what_is_said(open_sqlite: OpenTally) -> None:
    thoughts = [{0: DeltaThinkingPart(content=word)} for word in ("Let ", "me ", "see.")]
    with open_sqlite() as tally:
        recorded, players = _recorded(tally, [*thoughts, "Three ", "tons."])
    played = asyncio.run(_events(_agent(), TapeCapability(players[0])))
    starts = [type(event.part) for event in played if isinstance(event, PartStartEvent)]
    assert starts == [ThinkingPart, TextPart]
    assert _grown(played) == _grown(recorded) == ["Let me see.", "Three tons."]
    assert _deltas(played) == _deltas(recorded)


def test_text_grows_for_whoever_reads_the_stream(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        _, players = _recorded(tally, ["It ", "weighs ", "three ", "tons."])

    async def texts(player: Player) -> tuple[list[str], list[str], ModelResponse]:
        async with _agent().run_stream(
            "How heavy?", capabilities=[TapeCapability(player)]
        ) as result:
            texts = [text async for text in result.stream_text(debounce_by=None)]
            return texts, [], result.response

    async def responses(player: Player) -> list[tuple[str, str]]:
        async with _agent().run_stream(
            "How heavy?", capabilities=[TapeCapability(player)]
        ) as result:
            return [
                (response.text or "", response.state)
                async for response in result.stream_response(debounce_by=None)
            ]

    grown, _, answer = asyncio.run(texts(players[0]))
    assert grown == ["It we", "It weighs ", "It weighs three", "It weighs three tons."]
    assert (answer.text, answer.state) == ("It weighs three tons.", "complete")
    seen = asyncio.run(responses(players[1]))
    assert [text for text, _ in seen[:2]] == ["It we", "It weighs "]
    assert {state for _, state in seen[:2]} == {"incomplete"}
    assert seen[-1] == ("It weighs three tons.", "complete")


def test_a_stream_that_broke_breaks_where_it_did(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        with pytest.raises(ConnectionError):
            _recorded(tally, ["It ", "weighs ", ConnectionError("the line is dead")])
        players = [bound.recordings.player(bound.runs()[0].run_id) for _ in range(2)]
    heard: list[str] = []

    async def listen(player: Player) -> None:
        async with _agent().run_stream(
            "How heavy?", capabilities=[TapeCapability(player)]
        ) as result:
            heard.extend([text async for text in result.stream_text(delta=True, debounce_by=None)])

    async def events(player: Player) -> None:
        async with _agent().run_stream_events(
            "How heavy?", capabilities=[TapeCapability(player)]
        ) as stream:
            async for event in stream:
                if isinstance(event, PartStartEvent):
                    heard.extend(_grown([event]))
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    heard.append(event.delta.content_delta)

    with pytest.raises(ConnectionError, match="the line is dead") as caught:
        asyncio.run(events(players[0]))
    assert isinstance(caught.value, RecordedFailure)
    assert "".join(heard) == "It weighs "
    with pytest.raises(ConnectionError, match="the line is dead"):
        asyncio.run(listen(players[1]))


def test_a_stream_that_breaks_or_is_left_keeps_what_it_said_until_then(
    open_sqlite: OpenTally,
) -> None:
    async def left(agent: Agent[Any, Any], tally: Tally) -> None:
        async with agent.run_stream_events(
            "How heavy?", capabilities=[TallyRecorder(tally, strict=True)]
        ) as stream:
            async for event in stream:
                if isinstance(event, PartDeltaEvent):
                    raise KeyError("nobody listens any more")

    with open_sqlite() as tally:
        recorder, bound = tally.recordings, tally.bind()
        with pytest.raises(ConnectionError):
            _recorded(tally, ["It ", "weighs ", ConnectionError("the line is dead")])
        with pytest.raises(KeyError):
            asyncio.run(left(_agent(["It ", "weighs ", "three ", "tons."]), tally))
        steps = [step for run in reversed(bound.runs()) for step in recorder.steps(run.run_id)]
        entries = [
            {entry.kind: entry for entry in recorder.entries(step.step_id)} for step in steps
        ]
        assert [step.status for step in steps] == ["failed", "cancelled"]
        assert [run.status for run in reversed(bound.runs())] == ["failed", "cancelled"]
        errors: Any = [step_entries["error"].payload for step_entries in entries]
        assert errors[0] == {"type": "ConnectionError", "message": "the line is dead"}
        responses: Any = [step_entries["response"].payload for step_entries in entries]
        assert [response["answer"]["parts"][0]["content"] for response in responses] == [
            "It weighs ",
            "It weighs ",
        ]
        streams: Any = [step_entries["response"].summary["stream"] for step_entries in entries]
        assert [stream["chunks"] for stream in streams] == [2, 2]


def test_a_model_that_falls_back_is_timed_and_told_of_as_any(open_sqlite: OpenTally) -> None:
    def falling_back(*pieces: Any) -> Agent[Any, Any]:
        refused = [ModelHTTPError(503, "first", "busy")]
        return Agent(FallbackModel(_streaming(refused), _streaming(list(pieces))), name="weigher")

    with open_sqlite() as tally:
        bound = tally.bind()
        asyncio.run(
            _events(
                falling_back("It ", "weighs ", "three ", "tons."), TallyRecorder(tally, strict=True)
            )
        )
        with pytest.raises(ConnectionError):
            asyncio.run(
                _events(
                    falling_back("It ", ConnectionError("dead")), TallyRecorder(tally, strict=True)
                )
            )
        steps = [
            step for run in reversed(bound.runs()) for step in bound.recordings.steps(run.run_id)
        ]
        assert [step.status for step in steps] == ["completed", "failed"]
        summaries: Any = [bound.recordings.entries(step.step_id)[1].summary for step in steps]
        assert [summary["stream"]["chunks"] for summary in summaries] == [4, 1]


def test_a_request_that_is_cancelled_is_recorded_so(open_sqlite: OpenTally) -> None:
    async def cancelled(tally: Tally) -> None:
        begun = asyncio.Event()

        async def slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            begun.set()
            await asyncio.sleep(3_600)
            raise AssertionError

        running = asyncio.create_task(
            Agent(FunctionModel(slow), capabilities=[TallyRecorder(tally)]).run("How heavy?")
        )
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with open_sqlite() as tally:
        asyncio.run(cancelled(tally))
        [run] = tally.bind().runs()
        assert (run.status, [step.status for step in tally.recordings.steps(run.run_id)]) == (
            "cancelled",
            ["cancelled"],
        )
