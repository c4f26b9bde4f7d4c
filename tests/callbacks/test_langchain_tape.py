"""A LangChain agent runs again on its tape, however it is called, with nothing sent and no tool run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from tallystick import Tally
from tallystick.errors import InvalidInput, TapeDiverged
from tallystick.recorder import Player
from tallystick.records import Tape
from tallystick_langchain import TallyCallbackHandler, TapeChatModel, tape_tools

ASKED: Any = {"messages": [("user", "Where are orders 7 and 8?")]}


class _Clerk(BaseChatModel):
    """Looks two orders up at once, then says what it found."""

    @property
    def _llm_type(self) -> str:
        return "clerk"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(one) for one in tools], **kwargs)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        found = [message.text for message in messages if isinstance(message, ToolMessage)]
        calls: Any = [{"name": "find_order", "args": {"number": n}, "id": f"call_{n}"} for n in (7, 8)]
        answer = AIMessage(" and ".join(found), tool_calls=[] if found else calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def _tools(ran: list[int]) -> list[BaseTool]:
    @tool
    def find_order(number: int) -> str:
        """Find an order by its number."""
        ran.append(number)
        if number == 8:
            raise ToolException("there is no order 8")
        return "7 is on its way"

    find_order.handle_tool_error = True
    return [find_order]


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tape]:
    with Tally.open(tmp_path_factory.mktemp("tape") / "tally", background=False) as tally:
        bound = tally.bind()
        config: Any = {"callbacks": [TallyCallbackHandler(bound, strict=True)]}
        said = create_agent(_Clerk(), _tools([])).invoke(ASKED, config=config)
        assert said["messages"][-1].text == "7 is on its way and there is no order 8"
        yield bound.recorder.tape(bound.runs()[0].run_id)


def _agent(player: Player, ran: list[int], *, safe: Sequence[str] = (), like: BaseChatModel | None = None) -> Any:
    return create_agent(TapeChatModel(player, like=like), tape_tools(player, _tools(ran), safe=safe))


def _said(chunks: Sequence[Any]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, AIMessageChunk))


async def _streamed(agent: Any) -> str:
    return _said([chunk async for chunk, _ in agent.astream(ASKED, stream_mode="messages")])


CALLED: dict[str, Any] = {
    "invoke": lambda agent: agent.invoke(ASKED)["messages"][-1].text,
    "ainvoke": lambda agent: asyncio.run(agent.ainvoke(ASKED))["messages"][-1].text,
    "stream": lambda agent: _said([chunk for chunk, _ in agent.stream(ASKED, stream_mode="messages")]),
    "astream": lambda agent: asyncio.run(_streamed(agent)),
}


@pytest.mark.parametrize("way", CALLED)
def test_parallel_tools_and_a_failed_one_are_played_however_the_agent_is_called(way: str, tape: Tape) -> None:
    player, ran = Player(tape), list[int]()

    assert CALLED[way](_agent(player, ran)) == "7 is on its way and there is no order 8"

    assert player.finish().matches
    assert ran == []


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_safe_tool_runs_and_is_held_against_the_tape(way: str, tape: Tape) -> None:
    player, ran = Player(tape), list[int]()

    CALLED[way](_agent(player, ran, safe=["find_order"], like=_Clerk()))

    assert player.finish().matches
    assert sorted(ran) == [7, 8]


def test_a_safe_tool_that_is_called_otherwise_does_not_run(tape: Tape) -> None:
    ran: list[int] = []
    (checked,) = tape_tools(Player(tape), _tools(ran), safe=["find_order"])

    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one"):
        checked.invoke({"number": 9})

    assert ran == []


def test_a_safe_tool_that_is_not_there_is_named(tape: Tape) -> None:
    with pytest.raises(InvalidInput, match="cancel is not among the tools"):
        tape_tools(Player(tape), _tools([]), safe=["cancel"])


def test_another_prompt_of_the_system_and_another_description_of_a_tool_are_shown(tape: Tape, tmp_path: Path) -> None:
    player = Player(tape)
    with pytest.raises(TapeDiverged) as told:
        create_agent(TapeChatModel(player), tape_tools(player, _tools([])), system_prompt="Be brief.").invoke(ASKED)
    assert any("Be brief." in line for line in told.value.diff if line.startswith("+"))

    player, (other,) = Player(tape), _tools([])
    other.description = "Find any order."
    with pytest.raises(TapeDiverged) as told:
        create_agent(TapeChatModel(player), tape_tools(player, [other])).invoke(ASKED)
    changed = [line for line in told.value.diff[2:] if line.startswith(("-", "+"))]
    assert [("by its number" in line, "any order" in line) for line in changed] == [(True, False), (False, True)]
