"""An agent that tidies up under rules: what reads runs, what destroys waits for a person, and a
grant is for exact arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from examples.coding_agent.tools import coding_tools
from examples.coding_agent.workspace import Workspace
from examples.golden_path.scripted import tidying_model
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command

from tallystick.tally import BoundTally
from tallystick_langchain import TallyMiddleware
from tallystick_langgraph import TallySaver


def attempts(bound: BoundTally, workspace: Workspace) -> Iterator[str]:
    """Yield what happens to each command of an agent that tidies the workspace."""
    (workspace.root / "build").mkdir()
    [shell] = [
        tool(function)
        for function in coding_tools(bound, workspace)
        if function.__name__ == "shell"
    ]
    agent = create_agent(
        tidying_model(),
        [shell],
        middleware=[TallyMiddleware(bound, memories=0, agent_name="tidier")],
        checkpointer=TallySaver(bound),
    )
    config: Any = {"configurable": {"thread_id": f"tidy-{bound.tally.new_id()}"}}
    request: Any = {"messages": [("user", "Tidy up.")]}
    state = agent.invoke(request, config)
    yield f"[green]✓ {_latest(state)}[/]"
    yield f"[yellow]? {_question(state)}[/]"

    state = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    if "__interrupt__" not in state:
        yield f"[green]✓ a person approved exactly this: {_result(state, 2)}[/]"
        yield f"[red]✗ {_result(state, 3)}[/]"
        return
    yield f"[green]✓ a person approved exactly this: {_latest(state)}[/]"
    yield f"[yellow]? other arguments are another call: {_question(state)}[/]"

    no: Any = {"type": "reject", "message": "Not the sources."}
    state = agent.invoke(Command(resume={"decisions": [no]}), config)
    yield f"[red]✗ a person said no to that: {_latest(state)}[/]"


def _latest(state: Mapping[str, Any]) -> str:
    results = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    return str(results[-1].text)


def _result(state: Mapping[str, Any], number: int) -> str:
    """Return the result of the call of this number."""
    results = [
        str(message.text)
        for message in state["messages"]
        if isinstance(message, ToolMessage) and message.tool_call_id == f"call_{number}"
    ]
    return results[0]


def _question(state: Mapping[str, Any]) -> str:
    [interrupt] = state["__interrupt__"]
    [action] = interrupt.value["action_requests"]
    return f"{action['args']['command']} waits: {action['description']}"
