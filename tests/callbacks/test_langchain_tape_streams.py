"""A tape of LangChain plays as the stream that it was: several chunks, whose sum is the recorded
answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import reduce
from operator import add
from typing import Any, cast

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, FakeListLLM, FakeStreamingListLLM
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCallChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from tallystick import Tally
from tallystick.errors import RecordedFailure
from tallystick.recorder import Player
from tallystick_langchain import TallyCallbackHandler, TapeChatModel, TapeLLM, tape_tools

OpenTally = Callable[..., Tally]
ASKED: Any = {"messages": [("user", "How heavy?")]}
USAGE: Any = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


class Streaming(BaseChatModel):
    """Answers each call with the next list of chunks; an exception among them breaks the stream."""

    script: Any

    @property
    def _llm_type(self) -> str:
        return "streaming"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self.script.pop(0):
            if isinstance(chunk, Exception):
                raise chunk
            yield ChatGenerationChunk(message=chunk)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        chunks = [chunk.message for chunk in self._stream(messages)]
        return ChatResult(generations=[ChatGeneration(message=reduce(add, chunks))])


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


@tool
def weigh(what: str) -> str:
    """Weigh something."""
    return f"{what}: 3 tons"


def _recorded(tally: Tally, chunks: list[Any]) -> tuple[list[Any], Player]:
    """What a model streams, recorded, and a player of it."""
    config: Any = {"callbacks": [TallyCallbackHandler(tally, strict=True)]}
    streamed = list(Streaming(script=[chunks]).stream("How heavy?", config=config))
    bound = tally.bind()
    return streamed, bound.recordings.player(bound.runs()[0].run_id)


def _sum(chunks: list[Any]) -> dict[str, Any]:
    summed = reduce(add, chunks).model_dump()
    return {
        name: summed[name]
        for name in ("content", "tool_calls", "invalid_tool_calls", "usage_metadata")
    }


BLOCKS: list[Any] = [
    AIMessageChunk(content=[{"type": "thinking", "thinking": "Let me ", "index": 0}]),
    AIMessageChunk(content=[{"type": "thinking", "thinking": "see.", "index": 0}]),
    AIMessageChunk(content=[{"type": "thinking", "signature": "c2ln", "index": 0}]),
    AIMessageChunk(content=[{"type": "text", "text": "Three ", "index": 1}]),
    AIMessageChunk(content=[{"type": "text", "text": "tons.", "index": 1}]),
]


@pytest.mark.parametrize(
    ("chunks", "several"),
    [
        (_says("It ", "weighs ", "three ", "tons."), True),
        (_asks('{"what": ', '"green ', 'tea 🍵"}'), True),
        ([*_says("I look."), *_asks('{"wh', 'at": "tea"}')], True),
        (BLOCKS, True),
        # An argument that is no JSON is one that LangChain calls invalid, and stays so.
        (_asks("[1, ", "2]"), True),
        # Nothing says where a piece of these belongs, so that each comes whole.
        ([AIMessageChunk(content=[{"type": "text", "text": "Three tons, as it seems."}])], False),
        (_says(""), False),
    ],
    ids=[
        "text",
        "arguments",
        "text and arguments",
        "blocks",
        "invalid",
        "blocks without a place",
        "nothing",
    ],
)
def test_a_stream_is_played_in_chunks_that_add_up(
    open_sqlite: OpenTally, chunks: list[Any], several: bool
) -> None:
    with open_sqlite() as tally:
        recorded, player = _recorded(tally, chunks)
    played = list(TapeChatModel(player).stream("How heavy?"))
    assert _sum(played) == _sum(recorded)
    assert (1 < len(played) <= len(recorded)) if several else len(played) == 1
    assert player.finish().matches


def test_a_stream_has_the_recorded_number_of_chunks_and_is_recorded_so_again(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        recorded, player = _recorded(tally, _says("It ", "weighs ", "three ", "tons."))
        config: Any = {"callbacks": [TallyCallbackHandler(tally, strict=True)]}
        assert len(list(TapeChatModel(player).stream("How heavy?", config=config))) == len(recorded)
        bound = tally.bind()
        now, then = (bound.recordings.tape(run.run_id).calls[0] for run in bound.runs())
    assert now.chunks == then.chunks == len(recorded)
    answers = [cast(Any, step.response)["answer"] for step in (now, then)]
    assert [answer["content"] for answer in answers] == ["It weighs three tons."] * 2


def test_an_agent_streams_its_tape_in_every_api(open_sqlite: OpenTally) -> None:
    def agent(model: Any, tools: list[Any]) -> Any:
        return create_agent(model, tools)

    with open_sqlite() as tally:
        script = [_asks('{"what": ', '"tea"}'), _says("It ", "weighs ", "three ", "tons.")]
        config: Any = {"callbacks": [TallyCallbackHandler(tally, strict=True)]}
        list(
            agent(Streaming(script=script), [weigh]).stream(
                ASKED, stream_mode="messages", config=config
            )
        )
        bound = tally.bind()
        run_id = bound.runs()[0].run_id
        players = [bound.recordings.player(run_id) for _ in range(3)]
    on_tape = [agent(TapeChatModel(player), tape_tools(player, [weigh])) for player in players]

    async def tokens() -> list[str]:
        return [
            chunk.text
            async for chunk, _ in on_tape[1].astream(ASKED, stream_mode="messages")
            if chunk.type != "tool"
        ]

    async def events() -> list[Any]:
        events = on_tape[2].astream_events(ASKED, version="v2")
        return [
            event["data"]["chunk"]
            async for event in events
            if event["event"] == "on_chat_model_stream"
        ]

    streamed = [
        chunk.text
        for chunk, _ in on_tape[0].stream(ASKED, stream_mode="messages")
        if chunk.type != "tool"
    ]
    for texts in (streamed, asyncio.run(tokens())):
        assert "".join(texts) == "It weighs three tons."
        assert sum(map(bool, texts)) > 2
    heard = asyncio.run(events())
    assert "".join(chunk.text for chunk in heard) == "It weighs three tons."
    arguments = [piece["args"] for chunk in heard for piece in chunk.tool_call_chunks]
    assert "".join(arguments) == '{"what": "tea"}'
    assert len(arguments) > 1
    assert all(player.finish().matches for player in players)


def test_a_stream_that_broke_breaks_where_it_did(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with pytest.raises(ConnectionError):
            _recorded(tally, [*_says("It ", "weighs "), ConnectionError("the line is dead")])
        bound = tally.bind()
        players = [bound.recordings.player(bound.runs()[0].run_id) for _ in range(2)]
    heard: list[str] = []
    with pytest.raises(ConnectionError, match="the line is dead") as caught:
        heard.extend(chunk.text for chunk in TapeChatModel(players[0]).stream("How heavy?"))
    assert isinstance(caught.value, RecordedFailure)
    assert "".join(heard) == "It weighs "
    with pytest.raises(ConnectionError, match="the line is dead"):
        TapeChatModel(players[1]).invoke("How heavy?")


def test_what_was_not_recorded_as_a_stream_is_played_as_one_all_the_same(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        config: Any = {"callbacks": [TallyCallbackHandler(tally, strict=True)]}
        Streaming(script=[_says("It weighs three tons.")]).invoke("How heavy?", config=config)
        player = tally.recordings.player(tally.bind().runs()[0].run_id)
    assert [chunk.text for chunk in TapeChatModel(player).stream("How heavy?")] == [
        "It we",
        "ighs ",
        "three",
        " tons.",
    ]


@pytest.mark.parametrize("model", [FakeListLLM, FakeStreamingListLLM])
def test_a_completion_is_played_in_chunks(open_sqlite: OpenTally, model: Any) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        answer = "".join(
            model(responses=["It weighs three tons."]).stream(
                "How heavy?", config={"callbacks": [handler]}
            )
        )
        bound = tally.bind()
        players = [bound.recordings.player(bound.runs()[0].run_id) for _ in range(2)]
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
        model = Streaming(script=[_says("It ", "weighs ", "three ", "tons.")])
        answer = "".join(model.stream_events("How heavy?", version="v3", config=config).text)
        player = tally.recordings.player(tally.bind().runs()[0].run_id)
    assert answer == "It weighs three tons."
    assert player.tape.calls[0].chunks == 4
    pieces = list(TapeChatModel(player).stream_events("How heavy?", version="v3").text)
    assert "".join(pieces) == answer
    assert len(pieces) == 4
