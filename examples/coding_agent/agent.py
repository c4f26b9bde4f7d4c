"""The coding agent: a LangGraph graph whose every model call gets a compiled context, and whose
tools run under rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from examples.coding_agent.context import SYSTEM, candidates
from examples.coding_agent.tools import coding_tools
from examples.coding_agent.workspace import Workspace
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from tallystick.recorder import Run
from tallystick.records import CompileConfig
from tallystick.tally import BoundTally
from tallystick_langchain import ToolRules, compile_messages

REQUEST = "Make the failing test pass. Do not edit tests. Preserve the public API."
BUDGET = 3_200
RESERVE = 200


class CodingAgent:
    """Compiles a context, asks the model, runs its tools, until it calls none."""

    def __init__(
        self,
        bound: BoundTally,
        run: Run,
        workspace: Workspace,
        model: BaseChatModel,
        *,
        request: str = REQUEST,
        budget: int = BUDGET,
        config: CompileConfig | None = None,
        known_at: int | None = None,
        tools: Callable[[list[BaseTool]], list[BaseTool]] = list,
    ) -> None:
        """`budget` is the size of each request in tokens, `config` how it is spent. `known_at` is
        the moment whose memory it works from, by default the start of `run`; `tools` may put others
        in the place of its own, such as recorded ones.
        """
        self._bound, self._run, self._workspace = bound, run, workspace
        self._request, self._budget, self._config = request, budget, config
        self._known_at = run.record.started_at if known_at is None else known_at
        self._tools = tools([tool(function) for function in coding_tools(bound, workspace)])
        self._model = model.bind_tools(self._tools)
        rules = ToolRules(bound)
        self._tool_node = ToolNode(self._tools, wrap_tool_call=rules.wrap_tool_call)
        self.patch_steps: list[str] = []
        """The steps in which the model gave a patch."""

    def graph(self, checkpointer: Any) -> Any:
        """Return the compiled graph."""
        builder = StateGraph(MessagesState)
        builder.add_node("think", self._think)
        builder.add_node("act", self._act)
        builder.add_edge(START, "think")
        builder.add_conditional_edges(
            "think", tools_condition, {"tools": "act", "__end__": "__end__"}
        )
        builder.add_edge("act", "think")
        return builder.compile(checkpointer=checkpointer)

    def _think(self, state: MessagesState) -> dict[str, list[BaseMessage]]:
        messages = state["messages"]
        with self._run.step("model_call", name="think") as step:
            answer = self._model.invoke(
                compile_messages(
                    messages,
                    self._bound,
                    budget=self._budget,
                    reserve=RESERVE,
                    system=SYSTEM,
                    tools=self._tools,
                    items=candidates(
                        self._bound, self._workspace, self._request, known_at=self._known_at
                    ),
                    memories=0,  # they are among the candidates
                    query=_query(self._request, messages),
                    compile_config=self._config,
                )
            )
        assert isinstance(answer, AIMessage)
        if any(call["name"] == "apply_patch" for call in answer.tool_calls):
            self.patch_steps.append(step.id)
        return {"messages": [_named(answer, len(messages), "answer")]}

    def _act(self, state: MessagesState) -> dict[str, list[BaseMessage]]:
        results = self._tool_node.invoke(state)["messages"]
        first = len(state["messages"])
        return {
            "messages": [
                _named(result, number, f"result of {result.name}")
                for number, result in enumerate(results, first)
            ]
        }


def _named(message: AnyMessage, number: int, name: str) -> BaseMessage:
    """Return a message under a name that a reader of the receipt understands."""
    return message.model_copy(update={"id": f"{number}:{name}"})


def _query(request: str, messages: Sequence[BaseMessage]) -> str:
    """Return the query of relevance: the request and what the tools have answered so far."""
    answers = [message.text for message in messages if isinstance(message, ToolMessage)]
    return "\n".join([request, *answers])[:4_000]


Decide = Callable[[dict[str, Any]], dict[str, Any]]
"""A person: takes the action that waits (name, args, description), returns the decision."""


def work(graph: Any, request: str, config: Any, *, decide: Decide) -> dict[str, Any]:
    """Let the agent work until it has nothing more to call, asking a person where a rule says so;
    return the state of the graph.
    """
    message = HumanMessage(request, id="0:request")
    state: dict[str, Any] = graph.invoke({"messages": [message]}, config)
    while waiting := state.get("__interrupt__"):
        decisions = [decide(action) for action in waiting[0].value["action_requests"]]
        state = graph.invoke(Command(resume={"decisions": decisions}), config)
    return state


def approve(action: dict[str, Any]) -> dict[str, Any]:
    """Approve: the person of the offline run, who says yes to everything that is asked."""
    return {"type": "approve"}
