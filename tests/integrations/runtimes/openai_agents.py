"""The OpenAI Agents SDK, as the contracts run it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import openai
from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    ModelSettings,
    RunConfig,
    Usage,
    function_tool,
)
from agents.items import ToolCallOutputItem
from agents.run import AgentRunner
from agents.testing import ScriptedModel, assistant_message, function_call
from openai.types.responses import ResponseTextDeltaEvent

from tallystick import Tally
from tallystick.kit import MEMORIES
from tallystick.recorder import Player
from tallystick_openai_agents import TallyRunner, TapeRunner, memory_tools, model_call
from tallystick_openai_agents.messages import text_in

from .base import (
    Options,
    Outcome,
    Question,
    Runtime,
    Script,
    Tool,
    ToolResult,
    Turn,
    pieces_of,
    text_of,
)

_FAILED = ("Error", "tool_call")


class Scripted(Model):
    """A model that answers by a script, streamed or not."""

    model = "scripted"

    def __init__(self, *script: Turn | Script) -> None:
        turns: Any = script[0] if script and isinstance(script[0], Script) else Script(*script)  # type: ignore[arg-type]
        self._script: Script = turns

    def _reply(self, request: dict[str, Any]) -> Any:
        said = [
            text_in(item.get("content") or item.get("output") or item.get("arguments"))[0]
            for item in request["input"]
        ]
        names = [tool.name for tool in request["tools"]]
        names += [handoff.tool_name for handoff in request["handoffs"]]
        return self._script.answer(
            "\n".join(map(str, [request["system_instructions"], *said])), names
        )

    async def get_response(self, **request: Any) -> ModelResponse:  # type: ignore[override]
        reply = self._reply(request)
        output: list[Any] = (
            [function_call(each.name, each.arguments, call_id=each.id) for each in reply]
            if isinstance(reply, list)
            else [assistant_message(text_of(reply))]
        )
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    async def stream_response(self, **request: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        reply = self._reply(request)
        if not isinstance(reply, list):
            for number, piece in enumerate(pieces_of(reply)):
                if isinstance(piece, Exception):
                    raise piece
                yield ResponseTextDeltaEvent(
                    type="response.output_text.delta",
                    delta=piece,
                    item_id="m",
                    content_index=0,
                    output_index=0,
                    logprobs=[],
                    sequence_number=number,
                )
        whole: Any = (
            [function_call(each.name, each.arguments, call_id=each.id) for each in reply]
            if isinstance(reply, list)
            else [assistant_message(text_of(reply))]
        )
        async for event in ScriptedModel([whole]).stream_response(**request):
            if not event.type.endswith(".delta"):
                yield event


class Failed(Exception):
    """A tool of the SDK tells the model of any exception that it raises."""


class Waits(Exception):
    """Nobody can be asked, and the run was interrupted."""


class OpenAIAgents(Runtime):
    """Agents of the OpenAI Agents SDK."""

    name = "openai_agents"
    ways = ("run", "run_stream")
    model_name = "scripted"
    tool_error = Failed
    model_error = openai.OpenAIError("busy")
    inherits = False
    unasked = (Waits,)

    def play(self, script: Script, tools: list[Any], options: Options) -> Outcome:
        return asyncio.run(self._run(script, tools, options))

    def expert(self, script: Script | None, tools: Sequence[Tool], **options: Any) -> Tool:
        async def expert(question: str) -> str:
            """Ask the expert."""
            asked = Options(prompt=question, **options)
            return (await self._run(script or Script(), list(tools), asked)).text

        return expert

    def ask_once(self, player: Player, tools: Sequence[Tool]) -> None:
        async def first() -> None:
            agent = self._agent(Script(), list(tools), Options())
            result = TapeRunner(player).run_streamed(agent, Options().prompt)
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.completed":
                    result.cancel()
                    break

        asyncio.run(first())

    def patient_tool(self) -> Tool:
        def erase(value: int) -> str:
            """Erase something, if a person agrees."""
            return f"erased {value}"

        erase.__dict__["asks"] = True
        return erase

    def tool_shapes(self, tally: Tally) -> list[tuple[str, str, list[str]]]:
        return [
            (each.name, each.description, list(each.params_json_schema["properties"]))
            for each in memory_tools(tally)
            if isinstance(each, FunctionTool)
        ]

    def model_call(self, script: Script) -> Callable[..., Any]:
        return model_call(Scripted(script))

    def text_in(self, answer: Any) -> str:
        return text_in(answer["output"][0]["content"])[0]

    async def _run(self, script: Script, tools: list[Any], options: Options) -> Outcome:
        agent = self._agent(script, tools, options)
        runner, tallied = self._runner(options)
        settings: Any = None
        if options.temperature is not None:
            settings = ModelSettings(temperature=options.temperature)
        config = RunConfig(tracing_disabled=True, model_settings=settings, group_id="t")

        async def call(input: Any) -> Any:
            given: Any = {"context": options.actor, "run_config": config}
            if self.way == "run":
                return await runner.run(agent, input, **given)
            result = runner.run_streamed(agent, input, **given)
            async for event in result.stream_events():
                if event.type == "raw_response_event" and (
                    event.data.type == "response.output_text.delta"
                ):
                    options.pieces.append(event.data.delta)
            return result

        history: list[Any] = []
        result: Any = None
        for prompt in (*options.earlier, options.prompt):
            result = await call([*history, {"role": "user", "content": prompt}])
            history = result.to_input_list()
        outputs = _outputs(result)
        while options.answers is not None and result.interruptions:
            state = result.to_state()
            for item in result.interruptions:
                answer = options.answers(_question(tallied, item))
                if answer is True:
                    state.approve(item)
                else:
                    state.reject(item, rejection_message=answer or None)
            result = await call(state)
            outputs = _outputs(result)
        waiting = [_question(tallied, item) for item in result.interruptions]
        if waiting and not options.asks:
            raise Waits(", ".join(str(each.approval) for each in waiting))
        values = [_value(output) for output in outputs]
        results = [ToolResult(str(output), str(output).startswith(_FAILED)) for output in outputs]
        text = "" if waiting else str(result.final_output)
        return Outcome(text, results, values, waiting, str(result.to_input_list()), result)

    def _runner(self, options: Options) -> tuple[AgentRunner, TallyRunner | None]:
        context: Any = "request" if options.remembering is not None else False
        tally = options.remembering or options.ruled or options.recorded
        tallied: TallyRunner | None = None
        if tally is not None:
            tallied = TallyRunner(
                tally,
                record=options.recorded is not None,
                rules=options.ruled is not None or options.remembering is not None,
                strict=options.recorded is not None,
                context=context,
                budget=options.budget,
                memories=8 if context else MEMORIES,
            )
        if options.player is not None:
            return TapeRunner(options.player, safe=options.safe, runner=tallied), tallied
        return tallied or AgentRunner(), tallied

    def _agent(self, script: Script, tools: list[Any], options: Options) -> Agent[Any]:
        made: list[Any] = [
            function_tool(
                each,
                needs_approval=each.__name__ in options.asks_for or hasattr(each, "asks"),
                failure_error_function=_tell_error,
            )
            for each in tools
        ]
        made += [] if options.tools_of is None else memory_tools(options.tools_of)
        fields: dict[str, Any] = {"instructions": options.system, "tools": made}
        return Agent("agent", model=Scripted(script), **{**fields, **options.more})


def _tell_error(context: Any, error: Exception) -> str:
    return f"Error: {error}"


def _question(runner: TallyRunner | None, item: Any) -> Question:
    approval = None if runner is None else runner.approval_of(item)
    return Question(item.tool_name, json.loads(item.raw_item.arguments), approval)


def _outputs(result: Any) -> list[Any]:
    return [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]


def _value(output: Any) -> Any:
    try:
        return json.loads(output)
    except (TypeError, ValueError):
        return output
