"""A coding agent on a local repository, from the request to the receipts.

It plans, reads, patches, tests and looks at its diff; rules decide what needs a person. What the
workspace came to is remembered, and the step that guessed wrong is replayed with more context. The
request is a task that the session completes; a second session starts from the handover.

    python -m examples.coding_agent
    python -m examples.coding_agent --repo . --request "…" --model openai:gpt-5 --tally .tally
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from examples.coding_agent.agent import BUDGET, REQUEST, CodingAgent, approve, work
from examples.coding_agent.context import remember_workspace
from examples.coding_agent.scripted import ScriptedChatModel
from examples.coding_agent.tools import RULES, TOOL_CLASSES
from examples.coding_agent.workspace import Workspace, sample_workspace
from examples.running import check_receipts, example_options
from langchain_core.language_models import BaseChatModel

from tallystick import Actor, Tally
from tallystick.records import CompileConfig, ReplayResult
from tallystick.tally import BoundTally
from tallystick_hooks.handling import handle
from tallystick_langchain import TallyCallbackHandler, chat_model_call, render_chat
from tallystick_langgraph import TallySaver
from tallystick_work import Work

OWNER = Actor(user="local", projects={"code"}, role="operator")
"""The person for whom the agent works, and who decides what it asks."""
SCOPE = "project:code"
TIGHT = 2_800
THRIFTY = CompileConfig(class_ceilings={"retrieval": 0})
"""Nothing is looked up for the model, which sees what its tools answer: thrifty, and blind."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Let the agent work, and show what is left behind."""
    parser = example_options(__doc__)
    parser.add_argument("--repo", type=Path, help="a git repository (by default a sample)")
    parser.add_argument("--request", default=REQUEST, help="what to change")
    parser.add_argument("--model", help="a real model, such as openai:gpt-5")
    parser.add_argument("--budget", type=int, default=TIGHT, help="tokens of each request")
    options = parser.parse_args(arguments)
    opened = sample_workspace() if options.repo is None else nullcontext(Workspace(options.repo))
    with (
        opened as workspace,
        Tally.open(options.tally, owner=OWNER, rules=RULES, tool_classes=TOOL_CLASSES) as tally,
    ):
        bound = tally.bind(OWNER.model_copy(update={"agent": "coder"}), scope=SCOPE)
        model = chat_model(options.model)
        decide = approve if options.model is None else ask
        steps = change(bound, workspace, model, options.request, options.budget, decide=decide)
        print(f"\nA second session starts with:\n{start_session(bound, 'second')}")
        if steps:
            show_replay(replay(bound, steps[0], model))
        print(check_receipts(tally))
        if options.tally != ":memory:":
            print(f"Look at each step in the dashboard: tally ui -t {options.tally}")


def change(
    bound: BoundTally,
    workspace: Workspace,
    model: BaseChatModel,
    request: str,
    budget: int,
    *,
    decide: Any,
) -> list[str]:
    """Let the agent make a change and remember the workspace; return the steps with a patch."""
    print(f"{workspace.summary().splitlines()[0]}: {request}\n")
    tasks = Work(bound)
    task = bound.remember(request, kind="task", attributes={"priority": "high"}).id
    started = tasks.start(task, assignee="coder")
    print(f"Task {task[-8:]} on branch {started.branch}")
    with bound.run("coder", domain="coding", goal=request) as run:
        agent = CodingAgent(
            bound, run, workspace, model, request=request, budget=budget, config=THRIFTY
        )
        state = work(
            agent.graph(TallySaver(bound)),
            request,
            {
                "configurable": {"thread_id": f"coder-{run.id}"},
                "callbacks": [TallyCallbackHandler(bound, strict=True)],
                "recursion_limit": 60,
            },
            decide=decide,
        )
        summary = remember_workspace(bound, workspace, run, request=request)
        tasks.submit(task, commits=[workspace.commit])
        done = tasks.complete(task, learnings=[bound.get(summary.id).content])
        print(f"Task {task[-8:]} is {done.task.status}; its episode is {done.episode_id[-8:]}")
    for message in state["messages"][1:]:
        print(f"{message.type:5} {_first_line(message)}")
    print(f"\n{workspace.diff()}\nRemembered: {bound.get(summary.id).content}")
    return agent.patch_steps


def start_session(bound: BoundTally, session: str) -> str:
    """Return the first text that a new session of the agent gets, as a hook gives it: what is
    blocked, open, decided and learned in the project.
    """
    return str(handle(bound, "session-start", {"session": session, "agent": "coder"})["context"])


def replay(bound: BoundTally, step_id: str, model: BaseChatModel) -> ReplayResult:
    """Make the step again with a larger budget and with files, as a recorded run of its own."""
    return bound.recordings.replay(
        step_id,
        token_budget=BUDGET,
        compile_overrides=CompileConfig(),
        render=render_chat,
        call=chat_model_call(model),
        notes="would more context have helped?",
    )


def show_replay(result: ReplayResult) -> None:
    """Print what would have been different."""
    assert result.diff is not None
    came = ", ".join(change.item_id for change in result.diff.added) or "nothing"
    print(f"\nThe first patch again, with {BUDGET} tokens: {came} came into the context.")
    print("The model answers the same." if result.response_matches else "The model's answer:")
    if not result.response_matches:
        answer: Any = result.response
        print(f"  {answer['answer']['content'] if answer else 'none'}")
    print(f"Recorded as run {result.run_id}.")


def chat_model(name: str | None) -> BaseChatModel:
    """Return the model of this name, or the scripted one."""
    if name is None:
        return ScriptedChatModel()
    from langchain.chat_models import init_chat_model

    try:
        model: BaseChatModel = init_chat_model(name)
    except ImportError as error:
        raise SystemExit(f"{error}\nInstall it into .venv.") from error
    return model


def ask(action: dict[str, Any]) -> dict[str, Any]:
    """Ask at the terminal whether an action may happen."""
    print(f"\n{action['name']} waits: {action['description']}")
    print("\n".join(f"{name}: {value}" for name, value in action["args"].items()))
    if input("Approve? [y/N] ").strip().lower() == "y":
        return {"type": "approve"}
    return {"type": "reject", "message": "A person said no."}


def _first_line(message: Any) -> str:
    calls = ", ".join(
        f"{call['name']}({', '.join(map(repr, call['args'].values()))[:60]})"
        for call in getattr(message, "tool_calls", [])
    )
    text = next(iter(message.text.splitlines()), "")
    return f"{text[:70]}  → {calls}" if calls else text[:90]


if __name__ == "__main__":
    main()
