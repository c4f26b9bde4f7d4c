"""LlamaIndex, as the contracts run it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from typing import Any, cast

from llama_index.core.agent.workflow import (
    AgentStream,
    FunctionAgent,
    ToolCallResult,
    base_agent,
)
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_index_instrumentation.dispatcher import instrument_tags
from tests.integrations.llama_scripted import USAGE, Scripted, calls

from tallystick.recorder import Player
from tallystick_llama_index import (
    TallyInstrumentation,
    TallyMemory,
    TapeLLM,
    memory_tools,
    ruled_llm,
    ruled_tools,
    tape_tools,
)

from .base import (
    Options,
    Outcome,
    Question,
    Runtime,
    Script,
    Tool,
    ToolResult,
    pieces_of,
    text_of,
)

TOOLS_WAIT = "WaitingForEvent" in inspect.getsource(base_agent)
"""True if a tool of an agent may wait: early releases take it for an error of the tool."""


class Played(Scripted):
    """A model that answers by a script of the contracts."""

    def __init__(self, script: Script, **fields: Any) -> None:
        super().__init__(**fields)
        self._script = script

    def says(self, messages: Sequence[ChatMessage]) -> ChatMessage:
        answer = self._script.answer(list(messages))
        if isinstance(answer, list):
            return calls(*answer)
        return ChatMessage(text_of(answer), role="assistant")

    def _pieces(self, messages: Sequence[ChatMessage]) -> Generator[ChatResponse, None, None]:
        answer, whole = self._script.answer(list(messages)), ""
        if isinstance(answer, list):
            yield ChatResponse(message=calls(*answer), delta="", raw=USAGE)
            return
        for piece in pieces_of(answer):
            if isinstance(piece, Exception):
                raise piece
            whole += piece
            yield ChatResponse(message=ChatMessage(whole, role="assistant"), delta=piece)
        yield ChatResponse(message=ChatMessage(whole, role="assistant"), delta="", raw=USAGE)


class LlamaIndex(Runtime):
    """Function agents."""

    name = "llama_index"
    ways = ("run", "streamed run")
    streamed = frozenset({"streamed run"})
    model_name = "scripted"
    tool_error = OSError
    model_error = ConnectionError("busy")
    inherits = True
    unasked = ()

    def play(self, script: Script, tools: list[Any], options: Options) -> Outcome:
        return asyncio.run(self._run(script, tools, options))

    def expert(self, script: Script | None, tools: Sequence[Tool], **options: Any) -> Tool:
        async def expert(question: str) -> str:
            """Ask the expert."""
            asked = Options(prompt=question, **options)
            return (await self._run(script or Script(), list(tools), asked)).text

        return expert

    def ask_once(self, player: Player, tools: Sequence[Tool]) -> None:
        options = Options(player=player)
        messages = [ChatMessage(options.system, role="system"), ChatMessage(options.prompt)]
        TapeLLM(player).chat_with_tools([*tape_tools(player, tools)], chat_history=messages)

    def patient_tool(self) -> Tool:
        async def erase(ctx: Context, value: int) -> str:
            """Erase something, if a person agrees."""
            asks = cast(Any, InputRequiredEvent)
            answer = await ctx.wait_for_event(
                HumanResponseEvent,
                waiter_id="sure",
                waiter_event=asks(prefix="really?"),
                timeout=60,
            )
            return f"erased {value}: {answer.get('response')}"

        # LlamaIndex looks for the class itself, which is text in this module.
        erase.__annotations__.update(ctx=Context, value=int)
        return erase

    def text_in(self, answer: Any) -> str:
        return str(answer["blocks"][0]["text"])

    async def _run(self, script: Script, tools: list[Any], options: Options) -> Outcome:
        agent = self._agent(script, tools, options)
        more: dict[str, Any] = {}
        if options.remembering is not None:
            more["memory"] = TallyMemory.from_defaults(options.remembering, session_id="s1")
        with ExitStack() as stack:
            if options.actor is not None:
                stack.enter_context(instrument_tags({"actor": options.actor}))
            if options.recorded is not None:
                stack.enter_context(TallyInstrumentation(options.recorded, strict=True))
            return await _drive(agent.run(options.prompt, **more), options)

    def _agent(self, script: Script, tools: list[Any], options: Options) -> FunctionAgent:
        given = {} if options.temperature is None else {"temperature": options.temperature}
        model: Any = Played(script, **given)
        made = list(tools)
        if options.tools_of is not None:
            made += memory_tools(options.tools_of)
        if options.ruled is not None:
            route: Any = "event" if options.asks else "elsewhere"
            made = [*ruled_tools(options.ruled, made, approval=route)]
            model = ruled_llm(options.ruled, model)
        if options.player is not None:
            model = TapeLLM(options.player, like=model if given else None)
            made = [*tape_tools(options.player, made, safe=options.safe)]
        fields: dict[str, Any] = {
            "name": "weigher",
            "llm": model,
            "tools": made,
            "system_prompt": options.system,
            "streaming": self.way in self.streamed,
            "timeout": options.seconds,
        }
        return FunctionAgent(**{**fields, **options.more})


async def _drive(running: Any, options: Options) -> Outcome:
    outcome = Outcome("")
    async for event in running.stream_events():
        if isinstance(event, ToolCallResult):
            output = event.tool_output
            outcome.tools.append(ToolResult(str(output.content), output.is_error))
            outcome.values.append(output.raw_output)
        elif isinstance(event, AgentStream) and event.delta:
            options.pieces.append(event.delta)
        elif isinstance(event, InputRequiredEvent):
            question = Question(
                event.get("tool", "erase"), event.get("arguments", {}), event.get("approval", None)
            )
            if options.answers is None:
                outcome.waiting.append(question)
                await running.cancel_run()
                continue
            answer = options.answers(question)
            response = answer if isinstance(answer, str) and answer else "yes" if answer else "no"
            fields: Any = {"waiter_id": event.get("waiter_id", None), "response": response}
            running.ctx.send_event(HumanResponseEvent(**fields))
    if not outcome.waiting:
        outcome.native = await running
        outcome.text = str(outcome.native)
    return outcome
