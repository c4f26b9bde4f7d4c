"""ADK, as the contracts run it: real runners, with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.adk.tools import FunctionTool
from google.genai import types
from tests.integrations.runtimes.base import (
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

from tallystick import Tally
from tallystick.errors import TallystickError
from tallystick.kit import MEMORIES
from tallystick.tally import BoundTally
from tallystick_adk import TallyPlugin, TapePlugin, memory_tools, model_call

CONFIRM = "adk_request_confirmation"


class Scripted(BaseLlm):
    """A model that answers by a script, streamed or not."""

    model: str = "scripted"
    script: Any = None
    usage: Any = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer a request."""
        said = [part for each in llm_request.contents for part in each.parts or []]
        names = [
            function.name
            for tool in llm_request.config.tools or []
            for function in tool.function_declarations or []
        ]
        texts = [str(each.text or each.function_call or each.function_response) for each in said]
        sent = "\n".join([str(llm_request.config.system_instruction), *texts])
        reply = self.script.answer(sent, names)
        if isinstance(reply, list):
            parts = [
                types.Part(function_call=types.FunctionCall(name=each.name, args=each.arguments))
                for each in reply
            ]
        else:
            for piece in pieces_of(reply) if stream else ():
                if isinstance(piece, Exception):
                    raise piece
                yield self._response([types.Part(text=piece)], partial=True)
            parts = [types.Part(text=text_of(reply))]
        yield self._response(parts)

    def _response(self, parts: list[types.Part], *, partial: bool | None = None) -> LlmResponse:
        content = types.Content(role="model", parts=parts)
        usage = None if partial else self.usage
        return LlmResponse(content=content, partial=partial, usage_metadata=usage)


def scripted(*turns: Turn) -> Scripted:
    return Scripted(script=Script(*turns))


class Conversation:
    """One session of a runner, and the events that it yields."""

    def __init__(
        self,
        agent: LlmAgent,
        *plugins: BasePlugin,
        user: str = "local",
        sessions: BaseSessionService | None = None,
        **services: Any,
    ) -> None:
        self.sessions = sessions or InMemorySessionService()
        app = App(name="desk", root_agent=agent, plugins=list(plugins))
        self.runner = Runner(app=app, session_service=self.sessions, **services)
        self.named: dict[str, Any] = {"user_id": user, "session_id": "t"}
        self.events: list[Event] = []

    async def begin(self) -> None:
        await self.sessions.create_session(app_name="desk", **self.named)

    async def say(self, *parts: str | types.Part, stream: bool = False) -> list[Event]:
        """Send a message; return the events that come."""
        made = [types.Part(text=each) if isinstance(each, str) else each for each in parts]
        message = types.Content(role="user", parts=made)
        config = RunConfig(streaming_mode=StreamingMode.SSE if stream else StreamingMode.NONE)
        came = [
            event
            async for event in self.runner.run_async(
                **self.named, new_message=message, run_config=config
            )
        ]
        self.events += came
        return came

    async def confirm(self, events: list[Event], answer: bool | str) -> list[Event]:
        """Answer the confirmations that events ask for: True, or the reason of a refusal."""
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=asked.id,
                    name=CONFIRM,
                    response={
                        "confirmed": answer is True,
                        "payload": None if answer is True else {"reason": answer},
                    },
                )
            )
            for asked in asked_in(events)
        ]
        return await self.say(*parts)


def asked_in(events: list[Event]) -> list[types.FunctionCall]:
    return [call for each in events for call in each.get_function_calls() if call.name == CONFIRM]


def words_of(events: list[Event]) -> str:
    texts = [
        "".join(part.text or "" for part in event.content.parts or [])
        for event in events
        if event.content is not None and not event.partial
    ]
    return next((text for text in reversed(texts) if text), "")


class Failed(Exception):
    """ADK raises whatever a tool raises, unless a callback answers it."""


class Waits(Exception):
    """Nobody can be asked, and the invocation ended."""


class ADK(Runtime):
    """Agents of Google's Agent Development Kit."""

    name = "adk"
    ways = ("run_async", "run_async streamed")
    model_name = "scripted"
    tool_error = Failed
    model_error = RuntimeError("busy")
    inherits = True
    unasked = (Waits,)

    def play(self, script: Script, tools: list[Any], options: Options) -> Outcome:
        try:
            return asyncio.run(self._run(script, tools, options))
        except RuntimeError as error:
            # ADK puts what a plugin raises into an error of its own.
            if isinstance(error.__cause__, TallystickError):
                raise error.__cause__ from None
            raise

    def expert(self, script: Script | None, tools: Sequence[Tool], **options: Any) -> Tool:
        async def expert(question: str) -> str:
            """Ask the expert."""
            asked = Options(prompt=question, **options)
            return (await self._run(script or Script(), list(tools), asked)).text

        return expert

    def patient_tool(self) -> Tool:
        def erase(value: int) -> str:
            """Erase something, if a person agrees."""
            return f"erased {value}"

        erase.__dict__["asks"] = True
        return erase

    def tool_shapes(self, tally: Tally) -> list[tuple[str, str, list[str]]]:
        described = [each._get_declaration() for each in memory_tools(tally)]
        return [
            (each.name, each.description, list(each.parameters_json_schema["properties"]))
            for each in described
        ]

    def model_call(self, script: Script) -> Callable[..., Any]:
        return model_call(Scripted(script=script))

    def text_in(self, answer: Any) -> str:
        return "".join(part["text"] for part in answer["parts"])

    async def _run(self, script: Script, tools: list[Any], options: Options) -> Outcome:
        made: list[Any] = [
            FunctionTool(
                each,
                require_confirmation=each.__name__ in options.asks_for or hasattr(each, "asks"),
            )
            for each in tools
        ]
        if options.tools_of is not None:
            made += memory_tools(options.tools_of)
        settings = types.GenerateContentConfig(temperature=options.temperature)
        agent = LlmAgent(
            name="agent",
            model=Scripted(script=script),
            instruction=options.system,
            tools=made,
            generate_content_config=settings,
            on_tool_error_callback=_tell_error,
            **options.more,
        )
        tally = options.remembering or options.ruled or options.recorded or options.tools_of
        actor = tally.actor if isinstance(tally, BoundTally) else options.actor
        user = "local" if actor is None else actor.user
        conversation = Conversation(agent, *self._plugins(options), user=user)
        await conversation.begin()
        stream = self.way != "run_async"
        events: list[Event] = []
        for prompt in (*options.earlier, options.prompt):
            events = await conversation.say(prompt, stream=stream)
            options.pieces.extend(
                part.text or "" for each in events if each.partial for part in each.content.parts
            )
        while options.answers is not None and asked_in(events):
            [asked] = asked_in(events)
            events = await conversation.confirm(events, options.answers(_question(asked)))
        waiting = [_question(each) for each in asked_in(events)]
        if waiting and not options.asks:
            raise Waits(str(waiting))
        answers = [
            response.response or {} for each in events for response in each.get_function_responses()
        ]
        results = [ToolResult(str(each), "error" in each) for each in answers]
        errors = [each for each in events if each.error_code]
        if errors:
            results.append(ToolResult(f"{errors[0].error_code}: {errors[0].error_message}", True))
        text = "" if waiting else words_of(events)
        return Outcome(text, results, answers, waiting, str(conversation.events), events)

    def _plugins(self, options: Options) -> list[BasePlugin]:
        tally = options.remembering or options.ruled or options.recorded
        played = [] if options.player is None else [TapePlugin(options.player, safe=options.safe)]
        if tally is None:
            return [_Plain(), *played]
        context: Any = "request" if options.remembering is not None else False
        return [
            _Plain(),
            TallyPlugin(
                tally,
                record=options.recorded is not None,
                rules=options.ruled is not None or options.remembering is not None,
                strict=options.recorded is not None,
                context=context,
                budget=options.budget,
                memories=8 if context else MEMORIES,
            ),
            *played,
        ]


class _Plain(BasePlugin):
    """Takes out what ADK itself tells a model of its agent, which other runtimes do not."""

    def __init__(self) -> None:
        super().__init__("plain")

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        system = llm_request.config.system_instruction
        llm_request.config.system_instruction = system.partition("\n\nYou are an agent.")[0]


def _question(asked: types.FunctionCall) -> Question:
    arguments = asked.args or {}
    original = arguments["originalFunctionCall"]
    payload = arguments["toolConfirmation"].get("payload") or {}
    return Question(original["name"], original["args"], payload.get("approval"))


def _tell_error(tool: Any, args: Any, tool_context: Any, error: Exception) -> dict[str, Any] | None:
    return {"error": f"Error: {error}"} if isinstance(error, Failed | ZeroDivisionError) else None
