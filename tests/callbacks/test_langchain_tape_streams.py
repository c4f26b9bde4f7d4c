"""Tapes of LangChain's own streams: chunks of every shape, completions and events;
tests/integrations/test_runtime_tape_streams.py holds the facts of every runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import reduce
from operator import add
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import FakeListLLM, FakeStreamingListLLM
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCallChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from tests.integrations.runtimes.base import player_of
from tests.integrations.runtimes.langchain import Scripted

from tallystick import Tally
from tallystick.errors import RecordedFailure
from tallystick.recorder import Player
from tallystick_langchain import TallyCallbackHandler, TapeChatModel, TapeLLM, tape_tools

OpenTally = Callable[..., Tally]
USAGE: Any = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


class Streaming(Scripted):
    """Answers each call with the next list of chunks; an exception among them breaks the stream."""

    chunks: Any

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self.chunks.pop(0):
            if isinstance(chunk, Exception):
                raise chunk
            yield ChatGenerationChunk(message=chunk)


def _says(*words: str) -> list[AIMessageChunk]:
    return [
        *(AIMessageChunk(content=word) for word in words),
        AIMessageChunk(content="", usage_metadata=USAGE),
    ]


def _asks(*args: str) -> list[AIMessageChunk]:
    """A call of a tool whose arguments come in pieces."""
    named = [{"name": "weigh", "id": "call_1"}, *[{"name": None, "id": None}] * (len(args) - 1)]
    return [
        AIMessageChunk(
            content="",
            tool_call_chunks=[ToolCallChunk(**name, args=piece, index=0, type="tool_call_chunk")],  # type: ignore[typeddict-item]
        )
        for name, piece in zip(named, args, strict=True)
    ]


def _recorded(tally: Tally, chunks: list[Any]) -> tuple[list[Any], Player]:
    """Return the chunks that a model streams, recorded, and a player of it."""
    config: Any = {"callbacks": [TallyCallbackHandler(tally, strict=True)]}
    streamed = list(Streaming(chunks=[chunks]).stream("How heavy?", config=config))
    return streamed, player_of(tally)


def _sum(chunks: list[Any]) -> dict[str, Any]:
    summed = reduce(add, chunks).model_dump()
    names = ("content", "tool_calls", "invalid_tool_calls", "usage_metadata")
    return {name: summed[name] for name in names}


BLOCKS: list[Any] = [
    AIMessageChunk(content=[{"type": "thinking", "thinking": "Let me ", "index": 0}]),
    AIMessageChunk(content=[{"type": "thinking", "thinking": "see.", "index": 0}]),
    AIMessageChunk(content=[{"type": "thinking", "signature": "c2ln", "index": 0}]),
    AIMessageChunk(content=[{"type": "text", "text": "Three ", "index": 1}]),
    AIMessageChunk(content=[{"type": "text", "text": "tons.", "index": 1}]),
]
SHAPES: dict[str, tuple[list[Any], bool]] = {
    "text": (_says("It ", "weighs ", "three ", "tons."), True),
    "arguments": (_asks('{"what": ', '"green ', 'tea 🍵"}'), True),
    "text and arguments": ([*_says("I look."), *_asks('{"wh', 'at": "tea"}')], True),
    "blocks": (BLOCKS, True),
    # An argument that is no JSON is one that LangChain calls invalid, and stays so.
    "invalid": (_asks("[1, ", "2]"), True),
    # Nothing says where a piece of these belongs, so that each comes whole.
    "blocks without a place": (
        [AIMessageChunk(content=[{"type": "text", "text": "Three tons, as it seems."}])],
        False,
    ),
    "nothing": (_says(""), False),
}


@pytest.mark.parametrize(("chunks", "several"), SHAPES.values(), ids=SHAPES)
def test_a_stream_is_played_in_chunks_that_add_up(
    open_sqlite: OpenTally, chunks: list[Any], several: bool
) -> None:
    with open_sqlite() as tally:
        recorded, player = _recorded(tally, chunks)
    played = list(TapeChatModel(player).stream("How heavy?"))
    assert _sum(played) == _sum(recorded)
    assert (1 < len(played) <= len(recorded)) if several else len(played) == 1
    assert player.finish().matches


def test_arguments_of_tools_are_streamed_as_events(open_sqlite: OpenTally) -> None:
    @tool
    def weigh(what: str) -> str:
        """Weigh something."""
        return f"{what}: 3 tons"

    inputs: Any = {"messages": [("user", "How heavy?")]}
    with open_sqlite() as tally:
        chunks = [_asks('{"what": ', '"tea"}'), _says("It ", "weighs ", "three ", "tons.")]
        recorded: Any = create_agent(Streaming(chunks=chunks), [weigh])
        handler = TallyCallbackHandler(tally, strict=True)
        list(recorded.stream(inputs, {"callbacks": [handler]}, stream_mode="messages"))
        player = player_of(tally)
    agent: Any = create_agent(TapeChatModel(player), tape_tools(player, [weigh]))

    async def listen() -> list[Any]:
        return [event async for event in agent.astream_events(inputs, version="v2")]

    events = asyncio.run(listen())
    heard = [each["data"]["chunk"] for each in events if each["event"] == "on_chat_model_stream"]
    assert "".join(chunk.text for chunk in heard) == "It weighs three tons."
    arguments = [piece["args"] for chunk in heard for piece in chunk.tool_call_chunks]
    assert "".join(arguments) == '{"what": "tea"}'
    assert len(arguments) > 1
    assert "on_tool_end" in [each["event"] for each in events]
    assert player.finish().matches


def test_a_model_whose_stream_broke_breaks_where_it_did(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with pytest.raises(ConnectionError):
            _recorded(tally, [*_says("It ", "weighs "), ConnectionError("the line is dead")])
        model = TapeChatModel(player_of(tally))
    heard: list[str] = []
    with pytest.raises(ConnectionError, match="the line is dead") as caught:
        heard.extend(chunk.text for chunk in model.stream("How heavy?"))
    assert isinstance(caught.value, RecordedFailure)
    assert "".join(heard) == "It weighs "


@pytest.mark.parametrize("model", [FakeListLLM, FakeStreamingListLLM])
def test_a_completion_is_played_in_chunks(open_sqlite: OpenTally, model: Any) -> None:
    with open_sqlite() as tally:
        config: Any = {"callbacks": [TallyCallbackHandler(tally, strict=True)]}
        words = model(responses=["It weighs three tons."]).stream("How heavy?", config=config)
        answer = "".join(words)
        players = [player_of(tally) for _ in range(2)]
    assert answer == "It weighs three tons."
    played = list(TapeLLM(player=players[0]).stream("How heavy?"))
    assert "".join(played) == answer
    assert len(played) > 2

    async def later() -> list[str]:
        return [piece async for piece in TapeLLM(player=players[1]).astream("How heavy?")]

    assert asyncio.run(later()) == played
    assert all(player.finish().matches for player in players)


def test_an_answer_with_parts_of_its_own_comes_whole(open_sqlite: OpenTally) -> None:
    """What providers put beside the content is the same whether it streams or not."""
    with open_sqlite() as tally:
        chunk = AIMessageChunk(
            content="Three tons.", additional_kwargs={"reasoning_content": "Heavy."}, id="msg_1"
        )
        recorded, player = _recorded(tally, [chunk, *_says("")])
    played = reduce(add, TapeChatModel(player).stream("How heavy?"))
    assert isinstance(played, AIMessage)
    assert (played.id, played.additional_kwargs) == ("msg_1", {"reasoning_content": "Heavy."})
    assert played.content == reduce(add, recorded).content


def test_a_stream_that_is_told_in_events_is_recorded_and_played(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        config: Any = {"callbacks": [TallyCallbackHandler(tally, strict=True)]}
        model = Streaming(chunks=[_says("It ", "weighs ", "three ", "tons.")])
        answer = "".join(model.stream_events("How heavy?", version="v3", config=config).text)
        player = player_of(tally)
    assert answer == "It weighs three tons."
    assert player.tape.calls[0].chunks == 4
    pieces = list(TapeChatModel(player).stream_events("How heavy?", version="v3").text)
    assert "".join(pieces) == answer
    assert len(pieces) == 4
