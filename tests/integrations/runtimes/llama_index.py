"""LlamaIndex, as the contracts run it."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar, cast

from llama_index.core.agent.react.formatter import ReActChatFormatter
from llama_index.core.agent.workflow import (
    AgentStream,
    FunctionAgent,
    ReActAgent,
    ToolCallResult,
    base_agent,
)
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_index_instrumentation.dispatcher import instrument_tags
from tests.integrations.llama_scripted import Reasoning, Scripted

from tallystick import Tally
from tallystick.recorder import Player
from tallystick_llama_index import (
    TallyInstrumentation,
    TallyMemory,
    TapeLLM,
    llm_call,
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
)

TOOLS_WAIT = "WaitingForEvent" in inspect.getsource(base_agent)
"""True if a tool of an agent may wait: early releases take it for an error of the tool."""


class LlamaIndex(Runtime):
    """Function agents."""

    name = "llama_index"
    ways = ("run", "streamed run")
    model_name = "scripted"
    tool_error = OSError
    model_error = ConnectionError("busy")
    inherits = True
    unasked = ()
    agent_class: ClassVar[type[Any]] = FunctionAgent
    model_class: ClassVar[type[Any]] = Scripted

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

    def tool_shapes(self, tally: Tally) -> list[tuple[str, str, list[str]]]:
        described = [each.metadata for each in memory_tools(tally)]
        return [
            (each.get_name(), each.description, list(each.get_parameters_dict()["properties"]))
            for each in described
        ]

    def model_call(self, script: Script) -> Callable[..., Any]:
        return llm_call(Scripted(script))

    def text_in(self, answer: Any) -> str:
        return str(answer["blocks"][0]["text"])

    async def _run(self, script: Script, tools: list[Any], options: Options) -> Outcome:
        # LlamaIndex's own ReAct agent asks what its workflows no longer want to be asked.
        warnings.filterwarnings("ignore", "is_running called from within a step")
        agent = self._agent(script, tools, options)
        more: dict[str, Any] = {}
        if options.remembering is not None:
            more["memory"] = TallyMemory.from_defaults(options.remembering, session_id="s1")
        elif options.earlier:
            more["memory"] = ChatMemoryBuffer.from_defaults(token_limit=1_000_000)
        with ExitStack() as stack:
            if options.actor is not None:
                stack.enter_context(instrument_tags({"actor": options.actor}))
            if options.recorded is not None:
                stack.enter_context(TallyInstrumentation(options.recorded, strict=True))
            for prompt in options.earlier:
                await _drive(agent.run(prompt, **more), options)
            return await _drive(agent.run(options.prompt, **more), options)

    def _agent(self, script: Script, tools: list[Any], options: Options) -> Any:
        given = {} if options.temperature is None else {"temperature": options.temperature}
        model: Any = self.model_class(script, **given)
        made = list(tools)
        if options.tools_of is not None:
            made += memory_tools(options.tools_of)
        if options.ruled is not None:
            route: Any = "event" if options.asks else "elsewhere"
            made = [*ruled_tools(options.ruled, made, approval=route)]
        watched = options.ruled or options.remembering
        if watched is not None:
            memories = 0 if options.remembering is None else 8
            model = ruled_llm(watched, model, budget=options.budget, memories=memories)
        if options.player is not None:
            model = TapeLLM(options.player, like=model if given else None)
            made = [*tape_tools(options.player, made, safe=options.safe)]
        fields: dict[str, Any] = {
            "name": "weigher",
            "llm": model,
            "tools": made,
            "system_prompt": options.system,
            "streaming": self.way == "streamed run",
            "timeout": options.seconds,
        }
        return self.agent_class(**{**fields, **options.more})


class ReAct(LlamaIndex):
    """Agents that write as text what they do."""

    name = "llama_index react"
    agent_class = ReActAgent
    model_class = Reasoning

    def _agent(self, script: Script, tools: list[Any], options: Options) -> Any:
        # Early releases have no other place for the instructions.
        formatter = ReActChatFormatter.from_defaults(context=options.system)
        more = {"formatter": formatter, **options.more}
        return super()._agent(script, tools, replace(options, more=more))


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
