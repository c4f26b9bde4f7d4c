"""Tapes of LlamaIndex's own streams: chats and completions without an agent, blocks that grow;
test_runtime_tape_streams.py holds the facts of every runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from tests.integrations.llama_scripted import Scripted
from tests.integrations.runtimes.base import Script, player_of

from tallystick import Tally
from tallystick_llama_index import TallyInstrumentation, TapeLLM

OpenTally = Callable[..., Tally]
ASKED = [ChatMessage("How heavy?")]


def _pieces(stream: Any) -> list[tuple[str, str]]:
    return [(piece.delta, str(piece.message.content)) for piece in stream]


def test_a_chat_grows_to_the_recorded_answer(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            recorded = list(Scripted(Script("It weighs three tons.")).stream_chat(ASKED))
        players = [player_of(tally) for _ in range(3)]
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
        players = [player_of(tally) for _ in range(2)]
    played = list(TapeLLM(players[0]).stream_complete("How heavy?"))
    assert played[-1].text == recorded[-1].text == "".join(str(piece.delta) for piece in played)
    assert len(played) == len(recorded) > 1

    async def later() -> list[Any]:
        stream = await TapeLLM(players[1]).astream_complete("How heavy?")
        return [piece.text async for piece in stream]

    assert asyncio.run(later()) == [piece.text for piece in played]


@pytest.mark.skipif(not hasattr(types, "ToolCallBlock"), reason="this release has no such blocks")
def test_thoughts_and_arguments_grow_with_the_rest(open_sqlite: OpenTally) -> None:
    asks = types.ToolCallBlock(
        tool_call_id="c1", tool_name="weigh", tool_kwargs={"what": "green tea"}
    )
    blocks: Any = [types.ThinkingBlock(content="Let me see."), asks]
    answer = ChatMessage(role="assistant", blocks=blocks)
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            Scripted(answer).chat(ASKED)
        model = TapeLLM(player_of(tally))
    played = list(model.stream_chat(ASKED))
    assert played[-1].message == answer
    thoughts = [piece.additional_kwargs.get("thinking_delta", "") for piece in played]
    assert "".join(thoughts) == "Let me see."
    assert [piece.delta for piece in played] == [""] * len(played)
    begun = [len(piece.message.blocks) for piece in played]
    assert begun == sorted(begun)
    assert begun.count(1) > 1
    assert begun.count(2) > 1
    [request] = model.get_tool_calls_from_response(played[-1])
    assert request.tool_kwargs == {"what": "green tea"}
