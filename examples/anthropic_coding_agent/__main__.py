"""The coding agent without a framework: the same tools, rules and context, on Anthropic's Messages
API.

    python -m examples.anthropic_coding_agent
    python -m examples.anthropic_coding_agent --model claude-sonnet-5     # with ANTHROPIC_API_KEY
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from examples.anthropic_coding_agent.offline import offline_client
from examples.coding_agent.agent import BUDGET, REQUEST, RESERVE
from examples.coding_agent.context import SYSTEM, candidates, remember_workspace
from examples.coding_agent.tools import RULES, TOOL_CLASSES, coding_tools
from examples.coding_agent.workspace import Workspace, sample_workspace
from examples.running import check_receipts, example_options
from pydantic import TypeAdapter

from tallystick import Actor, ContextItem, Tally, ToolSpec
from tallystick.compiler import FRAMED
from tallystick.errors import ActionDenied, ApprovalRequired
from tallystick.recorder import Run
from tallystick.records import ModelToolCall
from tallystick.tally import BoundTally
from tallystick_anthropic import MessagesProvider

OWNER = Actor(user="local", projects={"code"}, role="operator")
SCOPE = "project:code"
MOST_CALLS = 40
"""Calls of the model after which the agent stops."""

Decide = Callable[[Any], bool]
"""A person: takes the approval that waits, and answers True to let the action happen."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Let the agent work, and show what is left behind."""
    parser = example_options(__doc__)
    parser.add_argument("--repo", type=Path, help="a git repository (by default a sample)")
    parser.add_argument("--request", default=REQUEST, help="what to change")
    parser.add_argument("--model", help="a real model, such as claude-sonnet-5")
    options = parser.parse_args(arguments)
    client = None if options.model else offline_client()
    provider = MessagesProvider(options.model or "claude-sonnet-5", client=client)
    opened = sample_workspace() if options.repo is None else nullcontext(Workspace(options.repo))
    with (
        opened as workspace,
        Tally.open(options.tally, owner=OWNER, rules=RULES, tool_classes=TOOL_CLASSES) as tally,
    ):
        bound = tally.bind(OWNER.model_copy(update={"agent": "coder"}), scope=SCOPE)
        decide = (lambda approval: True) if options.model is None else ask
        with bound.run("coder", domain="coding", goal=options.request) as run:
            print(work(bound, run, workspace, provider, options.request, decide=decide))
            remember_workspace(bound, workspace, run, request=options.request)
        print(f"\n{workspace.diff()}\n{workspace.run_tests().summary}")
        print(check_receipts(tally))


def work(
    bound: BoundTally,
    run: Run,
    workspace: Workspace,
    provider: MessagesProvider,
    request: str,
    *,
    decide: Decide,
) -> str:
    """Compile, ask the model, run its tools, until it calls none; return its last words."""
    tools = {function.__name__: function for function in coding_tools(bound, workspace)}
    specs = [_spec(function) for function in tools.values()]
    talk = [
        ContextItem(id="system", kind="system", content=SYSTEM),
        ContextItem(id="request", kind="user_msg", content=request),
    ]
    for _ in range(MOST_CALLS):
        answers = [item.content for item in talk if item.kind == "tool_result"]
        with run.step("model_call", name="think"):
            compiled = bound.compile(
                [*talk, *candidates(bound, workspace, request, known_at=run.record.started_at)],
                budget=BUDGET,
                reserve=RESERVE,
                query="\n".join([request, *answers])[:4_000],
                tools=specs,
                target=FRAMED,
            )
            call = bound.call_model(compiled, provider=provider)
        talk.append(call.item())
        print(f"model {call.text.splitlines()[0] if call.text else ''}")
        if not call.tool_calls:
            return call.text
        for tool_call in call.tool_calls:
            talk.append(_run_tool(bound, run, tools, tool_call, decide=decide))
            print(f"tool  {tool_call.name}: {talk[-1].content.splitlines()[-1][:70]}")
    return f"Stopped after {MOST_CALLS} calls."


def _spec(function: Any) -> ToolSpec:
    """Return a function as the compiler and the model see it."""
    return ToolSpec(
        name=function.__name__,
        description=function.__doc__ or "",
        parameters=TypeAdapter(function).json_schema(),
    )


def _run_tool(
    bound: BoundTally,
    run: Run,
    tools: Mapping[str, Callable[..., str]],
    call: ModelToolCall,
    *,
    decide: Decide,
) -> ContextItem:
    """Run a tool as far as rules and a person let it, recorded; return its result."""
    with run.step("tool_call", name=call.name) as step:
        arguments = {"arguments": call.arguments, "tool_call_id": call.id}
        step.record("tool_call", {"name": call.name, **arguments})
        try:
            result = tools[call.name](**_allowed(bound, call, decide=decide))
        except ActionDenied as error:
            result = str(error)
        step.record("tool_result", {"result": result})
    return ContextItem(
        id=f"result of {call.name} {call.id}",
        kind="tool_result",
        content=result,
        tool_call_id=call.id,
    )


def _allowed(bound: BoundTally, call: ModelToolCall, *, decide: Decide) -> dict[str, object]:
    """Return the arguments with which a tool may run. Raises ActionDenied."""
    try:
        check = bound.check_tool_call(call.name, call.arguments, tool_call_id=call.id)
    except ApprovalRequired as error:
        person = bound.tally.bind(OWNER, scope=SCOPE)
        for approval in error.approvals:
            verdict = person.approvals.approve if decide(approval) else person.approvals.deny
            verdict(approval.id, reason="decided while the agent waited")
        check = bound.check_tool_call(call.name, call.arguments, tool_call_id=call.id)
    allowed: dict[str, object] = check.arguments
    return allowed


def ask(approval: Any) -> bool:
    """Ask at the terminal whether an action may happen."""
    print(f"\n{approval.subject} waits: {approval.reason}\n{approval.arguments}")
    return input("Approve? [y/N] ").strip().lower() == "y"


if __name__ == "__main__":
    main()
