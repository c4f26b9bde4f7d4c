"""PydanticAI, as the contracts run it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    PartDeltaEvent,
    PartStartEvent,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolDenied,
)
from pydantic_ai import (
    Tool as NativeTool,
)
from pydantic_ai.exceptions import ApprovalRequired, ModelHTTPError, UserError
from pydantic_ai.messages import RetryPromptPart, TextPartDelta, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.run import AgentRunResultEvent
from pydantic_ai.settings import ModelSettings

from tallystick import Actor, Tally
from tallystick.recorder import Player
from tallystick_pydantic_ai import (
    TallyPolicy,
    TallyRecorder,
    Tallystick,
    TapeCapability,
    memory_toolset,
    model_call,
)
from tallystick_pydantic_ai.messages import prompt_text

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


def scripted(*script: Turn | Script) -> FunctionModel:
    """Return a model that answers by a script, streamed or not."""
    turns: Any = script[0] if script and isinstance(script[0], Script) else Script(*script)  # type: ignore[arg-type]

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        reply = turns.answer(_seen(messages, info), [each.name for each in info.function_tools])
        if isinstance(reply, list):
            return ModelResponse(
                parts=[
                    ToolCallPart(each.name, each.arguments, tool_call_id=each.id) for each in reply
                ]
            )
        return ModelResponse(parts=[TextPart(text_of(reply))])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        reply = turns.answer(_seen(messages, info), [each.name for each in info.function_tools])
        if isinstance(reply, list):
            for place, each in enumerate(reply):
                part = ToolCallPart(each.name, each.arguments)
                yield {
                    place: DeltaToolCall(each.name, part.args_as_json_str(), tool_call_id=each.id)
                }
            return
        for piece in pieces_of(reply):
            if isinstance(piece, Exception):
                raise piece
            yield piece

    return FunctionModel(answer, stream_function=stream)


def _seen(messages: list[ModelMessage], info: AgentInfo) -> str:
    """Return the texts of a request."""
    texts = [
        prompt_text(part.content)
        if isinstance(part, UserPromptPart)
        else getattr(part, "content", part)
        for message in messages
        for part in message.parts
    ]
    return "\n".join(map(str, [info.instructions, *texts]))


def results_of(result: Any) -> list[ToolResult]:
    """Return the results of tools that the model reads."""
    return [
        ToolResult(
            str(part.content), isinstance(part, RetryPromptPart) or part.outcome != "success"
        )
        for part in _returned(result)
    ]


def _returned(result: Any) -> list[Any]:
    return [
        part
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]


@dataclass
class Deps:
    """The dependencies of an agent, with the actor among them."""

    actor: Actor


class PydanticAI(Runtime):
    """Agents of PydanticAI."""

    name = "pydantic_ai"
    ways = ("run", "run_stream", "run_stream_events")
    model_name = "function:answer:stream"
    tool_error = ModelRetry
    model_error = ModelHTTPError(503, "scripted", "busy")
    inherits = False
    unasked = (UserError,)

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
            options = Options(player=player)
            agent = self._agent(Script(), list(tools), options)
            async with agent.iter(options.prompt) as steps:
                async for node in steps:
                    if Agent.is_call_tools_node(node):
                        break

        asyncio.run(first())

    def patient_tool(self) -> Tool:
        def erase(ctx: RunContext[Any], value: int) -> str:
            """Erase something, if a person agrees."""
            if not ctx.tool_call_approved:
                raise ApprovalRequired
            return f"erased {value}"

        # PydanticAI looks for the class itself, which is text in this module.
        erase.__annotations__.update(ctx=RunContext[Any], value=int)
        return erase

    def tool_shapes(self, tally: Tally) -> list[tuple[str, str, list[str]]]:
        model = TestModel(call_tools=[])
        asyncio.run(Agent(model, toolsets=[memory_toolset(tally, approval="deferred")]).run("Hm?"))
        parameters = model.last_model_request_parameters
        assert parameters is not None
        return [
            (each.name, each.description or "", list(each.parameters_json_schema["properties"]))
            for each in parameters.function_tools
        ]

    def model_call(self, script: Script) -> Callable[..., Any]:
        return model_call(scripted(script))

    def text_in(self, answer: Any) -> str:
        return str(answer["parts"][0]["content"])

    async def _run(self, script: Script, tools: list[Any], options: Options) -> Outcome:
        agent = self._agent(script, tools, options)
        pieces = options.pieces
        deps = None if options.actor is None else Deps(options.actor)
        result: Any = None
        history: list[ModelMessage] | None = None
        for prompt in (*options.earlier, options.prompt):
            result = await self._call(agent, pieces, prompt, deps=deps, message_history=history)
            history = result.all_messages()
        questions = _questions(result.output)
        while options.answers is not None and questions:
            approvals: dict[str, Any] = {}
            for key, question in questions.items():
                answer = options.answers(question)
                approvals[key] = (
                    ToolDenied(answer) if isinstance(answer, str) and answer else answer
                )
            result = await self._call(
                agent,
                pieces,
                message_history=result.all_messages(),
                deferred_tool_results=DeferredToolResults(approvals=approvals),
                deps=deps,
            )
            questions = _questions(result.output)
        text = "" if questions else str(result.output)
        said = str(result.all_messages())
        values = [part.content for part in _returned(result)]
        return Outcome(text, results_of(result), values, [*questions.values()], said, result)

    def _agent(self, script: Script, tools: list[Any], options: Options) -> Agent[Any, Any]:
        quiet: dict[str, Any] = {
            "tools": False,
            "budget": options.budget,
            "memories": 0 if options.remembering is None else 8,
        }
        capabilities: list[Any] = []
        if options.remembering is not None:
            record = options.recorded is not None
            capabilities.append(Tallystick(options.remembering, record=record, **quiet))
        elif options.ruled is not None and options.recorded is not None:
            capabilities.append(Tallystick(options.ruled, **quiet))
        elif options.ruled is not None:
            capabilities.append(TallyPolicy(options.ruled))
        elif options.recorded is not None:
            capabilities.append(TallyRecorder(options.recorded, strict=True))
        if options.player is not None:
            capabilities.append(TapeCapability(options.player, safe=options.safe))
        settings = (
            None if options.temperature is None else ModelSettings(temperature=options.temperature)
        )
        output: Any = [str, DeferredToolRequests] if options.asks else str
        made = [
            NativeTool(each, requires_approval=True)
            if options.asks_for and each.__name__ in options.asks_for
            else each
            for each in tools
        ]
        fields: dict[str, Any] = {
            "tools": made,
            "toolsets": [] if options.tools_of is None else [memory_toolset(options.tools_of)],
            "instructions": options.system,
            "output_type": output,
            "deps_type": Deps,
            "model_settings": settings,
            "capabilities": capabilities,
        }
        return Agent(scripted(script), **{**fields, **options.more})

    async def _call(
        self, agent: Agent[Any, Any], pieces: list[str], *arguments: Any, **options: Any
    ) -> Any:
        if self.way == "run":
            return await agent.run(*arguments, **options)
        if self.way == "run_stream":
            async with agent.run_stream(*arguments, **options) as streamed:
                async for piece in streamed.stream_text(delta=True, debounce_by=None):
                    pieces.append(piece)
                output = await streamed.get_output()
                return SimpleNamespace(output=output, all_messages=streamed.all_messages)
        result: Any = None
        async with agent.run_stream_events(*arguments, **options) as events:
            async for event in events:
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    pieces.append(event.part.content)
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    pieces.append(event.delta.content_delta)
                elif isinstance(event, AgentRunResultEvent):
                    result = event.result
        return result


def _questions(output: Any) -> dict[str, Question]:
    if not isinstance(output, DeferredToolRequests):
        return {}
    return {
        each.tool_call_id: Question(
            each.tool_name,
            each.args_as_dict(),
            output.metadata.get(each.tool_call_id, {}).get("approval"),
        )
        for each in output.approvals
    }
