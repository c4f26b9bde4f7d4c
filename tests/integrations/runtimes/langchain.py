"""LangChain, as the contracts run it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ToolCallChunk,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from tallystick import Tally
from tallystick.errors import ApprovalRequired
from tallystick.recorder import Player
from tallystick_langchain import (
    TallyCallbackHandler,
    TallyMiddleware,
    TapeChatModel,
    ToolRules,
    chat_model_call,
    compile_messages,
    memory_tools,
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
    Turn,
    pieces_of,
    text_of,
)


class Scripted(BaseChatModel):
    """A model with a name and a temperature that answers by a script, streamed or not."""

    script: Any = None
    model_name: str = "scripted-1"
    temperature: float = 0.5

    def __init__(self, *script: Turn | Script, **fields: Any) -> None:
        given = script[0] if script and isinstance(script[0], Script) else Script(*script)  # type: ignore[arg-type]
        super().__init__(**{"script": given, **fields})

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name, "temperature": self.temperature}

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = self.script.answer(messages, _offered(kwargs))
        if isinstance(answer, list):
            calls: Any = [
                {"name": each.name, "args": each.arguments, "id": each.id} for each in answer
            ]
            message = AIMessage("", tool_calls=calls)
        else:
            message = AIMessage(text_of(answer))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self.script.answer(messages, _offered(kwargs))
        chunks: Any = (
            [
                ToolCallChunk(
                    name=each.name,
                    args=json.dumps(each.arguments),
                    id=each.id,
                    index=place,
                    type="tool_call_chunk",
                )
                for place, each in enumerate(answer)
            ]
            if isinstance(answer, list)
            else pieces_of(answer)
        )
        for chunk in chunks:
            if isinstance(chunk, Exception):
                raise chunk
            message = (
                AIMessageChunk(content=chunk)
                if isinstance(chunk, str)
                else AIMessageChunk(content="", tool_call_chunks=[chunk])
            )
            yield ChatGenerationChunk(message=message)


def _offered(arguments: Mapping[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in arguments.get("tools") or ()]


def tools_of(functions: Sequence[Tool | BaseTool]) -> list[BaseTool]:
    """Return functions as tools whose errors the model may read."""
    tools: list[BaseTool] = []
    for function in functions:
        made = function if isinstance(function, BaseTool) else tool(function)
        made.handle_tool_error = True if made is not function else made.handle_tool_error
        tools.append(made)
    return tools


class LangChain(Runtime):
    """Agents of `create_agent`."""

    name = "langchain"
    ways = ("invoke", "ainvoke", "stream", "astream")
    model_name = "scripted-1"
    tool_error = ToolException
    model_error = ConnectionError("busy")
    inherits = True
    unasked = (ApprovalRequired,)
    has_middleware: ClassVar[bool] = True

    def __init__(self, way: str | None = None, *, watched: bool = False) -> None:
        super().__init__(way)
        self.watched = watched

    def __repr__(self) -> str:
        return f"{super().__repr__()}{' watched' if self.watched else ''}"

    def play(self, script: Script, tools: list[Any], options: Options) -> Outcome:
        agent = self._agent(script, tools, options)
        configurable: dict[str, Any] = {"thread_id": "t"}
        if options.actor is not None:
            configurable["actor"] = options.actor
        config: dict[str, Any] = {"configurable": configurable}
        middleware = self.has_middleware and (options.ruled or options.remembering)
        if options.recorded is not None and (self.watched or not middleware):
            config["callbacks"] = [TallyCallbackHandler(options.recorded, strict=True)]
        state: Any = None
        for prompt in (*options.earlier, options.prompt):
            state = self._call(agent, {"messages": [("user", prompt)]}, config, options.pieces)
        while options.answers is not None and "__interrupt__" in state:
            answers = {
                each.id: _resume(each.value, options.answers) for each in state["__interrupt__"]
            }
            state = self._call(agent, Command(resume=answers), config, options.pieces)
        questions = [
            question for each in state.get("__interrupt__", ()) for question in _asked(each.value)
        ]
        returned = [each for each in state["messages"] if isinstance(each, ToolMessage)]
        results = [ToolResult(str(each.text), each.status == "error") for each in returned]
        text, history = str(state["messages"][-1].text), str(state["messages"])
        values = [_value_of(str(each.text)) for each in returned]
        return Outcome(text, results, values, questions, history, state)

    def expert(self, script: Script | None, tools: Sequence[Tool], **options: Any) -> Tool:
        def expert(question: str) -> str:
            """Ask the expert."""
            return self.run(script, tools, prompt=question, **options).text

        return expert

    def ask_once(self, player: Player, tools: Sequence[Tool]) -> None:
        options = Options(player=player)
        agent = self._agent(Script(), list(tools), options, interrupt_before=["tools"])
        agent.invoke({"messages": [("user", options.prompt)]}, {"configurable": {"thread_id": "t"}})

    def patient_tool(self) -> Tool:
        def erase(value: int) -> str:
            """Erase something, if a person agrees."""
            return f"erased {value}: {interrupt('really?')}"

        return erase

    def tool_shapes(self, tally: Tally) -> list[tuple[str, str, list[str]]]:
        return [(each.name, each.description, list(each.args)) for each in memory_tools(tally)]

    def model_call(self, script: Script) -> Callable[..., Any]:
        return chat_model_call(Scripted(script))

    def text_in(self, answer: Any) -> str:
        return str(answer["content"])

    def _agent(self, script: Script, tools: list[Any], options: Options, **more: Any) -> Any:
        """Return an agent of `create_agent`."""
        more = {**options.more, **more}
        middleware: list[Any] = list(more.pop("middleware", ()))
        watched = options.ruled or options.remembering
        if watched is not None:
            middleware.append(
                TallyMiddleware(
                    watched,
                    strict=True,
                    budget=options.budget,
                    memories=0 if options.remembering is None else 8,
                    record=options.recorded is not None,
                )
            )
        if options.asks_for:
            asks: Any = dict.fromkeys(options.asks_for, True)
            middleware.append(HumanInTheLoopMiddleware(interrupt_on=asks))
        given = {} if options.temperature is None else {"temperature": options.temperature}
        made = tools_of(tools)
        if options.tools_of is not None:
            made += memory_tools(options.tools_of)
        model: Any = Scripted(script, **given)
        if options.player is not None:
            model = TapeChatModel(options.player, like=model if given else None)
            made = tape_tools(options.player, made, safe=options.safe)
        return create_agent(
            model,
            made,
            system_prompt=options.system,
            middleware=middleware,
            checkpointer=InMemorySaver() if options.asks else None,
            **more,
        )

    def _call(self, agent: Any, value: Any, config: dict[str, Any], pieces: list[str]) -> Any:
        if self.way == "invoke":
            return agent.invoke(value, config)
        if self.way == "ainvoke":
            return asyncio.run(agent.ainvoke(value, config))
        state: Any = None

        def take(mode: str, chunk: Any) -> None:
            nonlocal state
            if mode == "values":
                state = chunk
            elif chunk[0].type != "tool" and chunk[0].text:
                pieces.append(str(chunk[0].text))

        async def stream() -> None:
            async for mode, chunk in agent.astream(value, config, stream_mode=modes):
                take(mode, chunk)

        modes = ["messages", "values"]
        if self.way == "astream":
            asyncio.run(stream())
        else:
            for mode, chunk in agent.stream(value, config, stream_mode=modes):
                take(mode, chunk)
        return state


class LangGraph(LangChain):
    """A graph that is made by hand, of a model and its tools."""

    has_middleware = False

    def __repr__(self) -> str:
        return f"langgraph {self.way}"

    def _agent(self, script: Script, tools: list[Any], options: Options, **more: Any) -> Any:
        model, made = Scripted(script), tools_of(tools)
        if options.tools_of is not None:
            made += memory_tools(options.tools_of)
        graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
        compiling = options.ruled or options.remembering

        def answer(state: Any) -> dict[str, Any]:
            messages: Any = state["messages"]
            answering: Runnable[Any, Any] = model
            if compiling is not None:
                messages = compile_messages(
                    state,
                    compiling,
                    budget=options.budget,
                    memories=0 if options.remembering is None else 8,
                    system=options.system,
                    tools=made,
                )
                answering = model.bind_tools(messages.tools)
            return {"messages": [answering.invoke(messages)]}

        graph.add_node("agent", answer)
        ruled: dict[str, Any] = {"handle_tool_errors": False}
        if options.ruled is not None:
            rules = ToolRules(options.ruled)
            wraps = {"wrap_tool_call": rules.wrap_tool_call}
            ruled = {**wraps, "awrap_tool_call": rules.awrap_tool_call, "handle_tool_errors": True}
        graph.add_node("tools", ToolNode(made, **ruled))
        graph.add_edge(START, "agent")
        graph.add_conditional_edges("agent", tools_condition)
        graph.add_edge("tools", "agent")
        return graph.compile(checkpointer=InMemorySaver())


def _value_of(text: str) -> Any:
    """Return the result of a tool, which LangChain gives as text."""
    try:
        return json.loads(text) if text.startswith("{") else text
    except ValueError:
        return text


def _asked(value: Any) -> list[Question]:
    """Return the questions of an interrupt."""
    if not isinstance(value, dict) or "action_requests" not in value:
        return [Question(str(value), {}, None)]
    return [
        Question(request["name"], request["args"], request.get("approval_id"))
        for request in value["action_requests"]
    ]


def _resume(value: Any, answer: Any) -> Any:
    """Return the value with which an interrupt goes on."""
    answers = [answer(question) for question in _asked(value)]
    if not isinstance(value, dict) or "action_requests" not in value:
        return answers[0]
    decisions = [
        {"type": "approve"}
        if each is True
        else {"type": "reject", **({"message": each} if each else {})}
        for each in answers
    ]
    return {"decisions": decisions}
