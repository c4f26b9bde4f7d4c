"""A tape of LlamaIndex plays as the stream that it was: answers that grow to the recorded one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from tests.integrations.llama_scripted import Scripted, calls

from tallystick import Tally
from tallystick.recorder import Player
from tallystick_llama_index import TallyInstrumentation, TapeLLM, tape_tools

OpenTally = Callable[..., Tally]
ASKED = [ChatMessage("How heavy?")]

# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


def _player(tally: Tally) -> Player:
    bound = tally.bind()
    return bound.recordings.player(bound.runs()[0].run_id)


def _pieces(stream: Any) -> list[tuple[str, str]]:
    return [(piece.delta, str(piece.message.content)) for piece in stream]


def test_a_chat_streams_its_tape_in_as_many_pieces_as_were_recorded(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            recorded = list(Scripted("It weighs three tons.").stream_chat(ASKED))
        players = [_player(tally) for _ in range(3)]
    grown = [
        ("It w", "It w"),
        ("eigh", "It weigh"),
        ("s th", "It weighs th"),
        ("ree ", "It weighs three "),
        ("tons.", "It weighs three tons."),
    ]
    assert _pieces(TapeLLM(players[0]).stream_chat(ASKED)) == grown
    assert len(grown) == len(recorded)

    async def later() -> list[Any]:
        return [piece async for piece in await TapeLLM(players[1]).astream_chat(ASKED)]

    assert _pieces(asyncio.run(later())) == grown
    assert TapeLLM(players[2]).chat(ASKED).message.content == "It weighs three tons."
    assert all(player.finish().matches for player in players)


def test_a_completion_streams_its_tape(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            recorded = list(MockLLM(max_tokens=4).stream_complete("How heavy?"))
        players = [_player(tally) for _ in range(2)]
    played = list(TapeLLM(players[0]).stream_complete("How heavy?"))
    assert played[-1].text == recorded[-1].text == "".join(str(piece.delta) for piece in played)
    assert len(played) == len(recorded) > 1

    async def later() -> list[Any]:
        return [
            piece.text async for piece in await TapeLLM(players[1]).astream_complete("How heavy?")
        ]

    assert asyncio.run(later()) == [piece.text for piece in played]


def test_an_agent_streams_its_tape_and_a_chat_engine_too(open_sqlite: OpenTally) -> None:
    def weigh(what: str) -> str:
        """Weigh something."""
        return f"{what}: 3 tons"

    async def ran(llm: Any, tools: list[Any]) -> tuple[str, list[str]]:
        agent = FunctionAgent(name="weigher", llm=llm, tools=tools, streaming=True)
        running = agent.run("How heavy?")
        heard = [
            event.delta async for event in running.stream_events() if isinstance(event, AgentStream)
        ]
        return str(await running), [piece for piece in heard if piece]

    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            model = Scripted(calls(("c1", "weigh", {"what": "tea"})), "It weighs three tons.")
            answer, _ = asyncio.run(ran(model, [weigh]))
        player = _player(tally)
    again, heard = asyncio.run(ran(TapeLLM(player), tape_tools(player, [weigh])))
    assert again == answer == "".join(heard) == "It weighs three tons."
    assert len(heard) > 2
    assert player.finish().matches


@pytest.mark.skipif(not hasattr(types, "ToolCallBlock"), reason="this release has no such blocks")
def test_thoughts_and_arguments_grow_with_the_rest(open_sqlite: OpenTally) -> None:
    answer = ChatMessage(
        role="assistant",
        blocks=[
            types.ThinkingBlock(content="Let me see."),
            types.ToolCallBlock(
                tool_call_id="c1", tool_name="weigh", tool_kwargs={"what": "green tea"}
            ),
        ],
    )
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            Scripted(answer).chat(ASKED)
        player = _player(tally)
    model = TapeLLM(player)
    played = list(model.stream_chat(ASKED))
    assert played[-1].message == answer
    assert (
        "".join(piece.additional_kwargs.get("thinking_delta", "") for piece in played)
        == "Let me see."
    )
    assert [piece.delta for piece in played] == [""] * len(played)
    begun = [len(piece.message.blocks) for piece in played]
    assert begun == sorted(begun)
    assert begun.count(1) > 1
    assert begun.count(2) > 1
    [request] = model.get_tool_calls_from_response(played[-1])
    assert request.tool_kwargs == {"what": "green tea"}


def test_a_stream_that_broke_breaks_where_it_did(open_sqlite: OpenTally) -> None:
    class Breaking(Scripted):
        """Its line goes dead."""

        def __init__(self, *script: str) -> None:
            super().__init__(*script)

        def _pieces(self, messages: Any) -> Any:
            for place, piece in enumerate(super()._pieces(messages)):
                if place == 2:
                    raise ConnectionError("the line is dead")
                yield piece

    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True), pytest.raises(ConnectionError):
            list(Breaking("It weighs three tons.").stream_chat(ASKED))
        players = [_player(tally) for _ in range(2)]
    heard: list[str] = []
    with pytest.raises(ConnectionError, match="the line is dead"):
        heard.extend(str(piece.delta) for piece in TapeLLM(players[0]).stream_chat(ASKED))
    assert "".join(heard) == "It weighs"
    with pytest.raises(ConnectionError, match="the line is dead"):
        TapeLLM(players[1]).chat(ASKED)
