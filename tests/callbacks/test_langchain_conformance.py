"""The handler on a graph of LangGraph, and the middleware on an agent of LangChain, keep the
contract of capture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from tallystick.records import Json
from tallystick.tally import BoundTally
from tallystick.testing.capture import CaptureContract, Scene
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware

Call = tuple[str, dict[str, Any]]
SCRIPTS: dict[Scene, list[list[Call]]] = {
    "text": [],
    "parallel tools": [[("double", {"value": 1}), ("double", {"value": 2})]],
    "error": [[("divide", {"value": 0})]],
    "retry": [[("flaky", {"value": 1})], [("flaky", {"value": 1})]],
    "streaming": [],
    "nested agent": [[("expert", {"question": "How much?"})]],
    "approval": [[("erase", {"value": 1})]],
}
"""What the model asks for, turn by turn; then it says that it is 42."""


class Scripted(BaseChatModel):
    """Asks for the tools of its script, one turn for each answer of tools, then says `It is 42.`"""

    script: list[list[Call]] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        answered = {
            message.tool_call_id for message in messages if isinstance(message, ToolMessage)
        }
        for turn, calls in enumerate(self.script):
            tool_calls = [
                {"name": name, "args": arguments, "id": f"c{turn}{place}"}
                for place, (name, arguments) in enumerate(calls)
            ]
            if not answered.issuperset(str(call["id"]) for call in tool_calls):
                return ChatResult(
                    generations=[ChatGeneration(message=AIMessage("", tool_calls=tool_calls))]
                )
        return ChatResult(generations=[ChatGeneration(message=AIMessage("It is 42."))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for word in ("It ", "is ", "42."):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))


def _tools(middleware: Sequence[Any] = ()) -> list[BaseTool]:
    tries: list[int] = []

    @tool
    def double(value: int) -> int:
        """Twice the value."""
        return value * 2

    @tool
    def divide(value: int) -> float:
        """One by the value."""
        return 1 / value

    @tool
    def flaky(value: int) -> int:
        """The value, at the second try."""
        tries.append(value)
        if len(tries) == 1:
            raise ToolException("try again")
        return value

    @tool
    def expert(question: str) -> str:
        """Ask another agent."""
        inner: Any = create_agent(Scripted(), middleware=middleware)
        return str(inner.invoke({"messages": [("user", question)]})["messages"][-1].content)

    @tool
    def erase(value: int) -> str:
        """Erase something, if a person agrees."""
        return f"gone: {interrupt({'erase': value})}"

    flaky.handle_tool_error = True
    return [double, divide, flaky, expert, erase]


class _Played(CaptureContract):
    def answer_text(self, response: Json) -> str:
        assert isinstance(response, dict)
        answer = response["answer"]
        assert isinstance(answer, dict)
        return str(answer["content"])

    def agent(self, bound: BoundTally, scene: Scene) -> Any:
        """The agent of a scene, which is asked `How much?`."""
        raise NotImplementedError

    def config(self, bound: BoundTally) -> Any:
        """Of its calls."""
        return {"configurable": {"thread_id": "t"}}

    def play(self, bound: BoundTally, scene: Scene) -> None:
        agent, config = self.agent(bound, scene), self.config(bound)
        inputs = {"messages": [("user", "How much?")]}
        if scene == "streaming":
            list(agent.stream(inputs, config, stream_mode="messages"))
        elif "__interrupt__" in agent.invoke(inputs, config):
            agent.invoke(Command(resume="yes"), config)


class TestHandlerOnGraph(_Played):
    def agent(self, bound: BoundTally, scene: Scene) -> Any:
        model = Scripted(script=SCRIPTS[scene])

        def answer(state: MessagesState) -> dict[str, Any]:
            return {"messages": [model.invoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("agent", answer)
        graph.add_node("tools", ToolNode(_tools(), handle_tool_errors=False))
        graph.add_edge(START, "agent")
        graph.add_conditional_edges("agent", tools_condition)
        graph.add_edge("tools", "agent")
        return graph.compile(checkpointer=InMemorySaver())

    def config(self, bound: BoundTally) -> Any:
        return {
            "configurable": {"thread_id": "t"},
            "callbacks": [TallyCallbackHandler(bound, strict=True)],
        }


class TestHandlerOnAgent(TestHandlerOnGraph):
    def agent(self, bound: BoundTally, scene: Scene) -> Any:
        return create_agent(Scripted(script=SCRIPTS[scene]), _tools(), checkpointer=InMemorySaver())


class TestMiddlewareOnAgent(_Played):
    sees_chunks = False

    def agent(self, bound: BoundTally, scene: Scene) -> Any:
        watching = TallyMiddleware(bound, memories=0, strict=True)
        tools, model = _tools([watching]), Scripted(script=SCRIPTS[scene])
        return create_agent(model, tools, middleware=[watching], checkpointer=InMemorySaver())


class TestMiddlewareWithHandler(TestMiddlewareOnAgent):
    sees_chunks = True

    def config(self, bound: BoundTally) -> Any:
        return {
            "configurable": {"thread_id": "t"},
            "callbacks": [TallyCallbackHandler(bound, strict=True)],
        }
