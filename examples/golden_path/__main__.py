"""The golden path: one coding task, recorded, remembered, recalled, replayed, put on tape and
verified on one tally.

Run it with `make demo`. Without a model it is scripted and says so; with `--model openai:gpt-5` and
a key in the environment the same agent runs on a real model.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import re
from pathlib import Path
from typing import Any

from examples.golden_path import rules, scripted, tampering
from examples.golden_path.agent import REQUEST, CodingAgent
from examples.golden_path.workspace import TestRun, Workspace
from langchain_core.language_models import BaseChatModel
from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from tallystick import Actor, Tally
from tallystick.recorder import Player
from tallystick.records import ReplayResult, RunRecord, Verification
from tallystick.settings import Settings
from tallystick.tally import BoundTally
from tallystick_cli import views
from tallystick_langchain import TallyCallbackHandler, TapeChatModel, chat_model_call, tape_tools
from tallystick_langgraph import TallySaver
from tallystick_llama_index import TallyRetriever
from tallystick_pydantic_ai import Tallystick

OWNER = Actor(user="local", projects={"ledger"}, role="operator")
SCOPE = "project:ledger"
_SHOWN = 10
"""Lines of a long diff that are shown."""


def main() -> None:
    """Play the whole path and leave the tally behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", help="a real model, such as openai:gpt-5 (needs its package and key)"
    )
    parser.add_argument(
        "--tally", default=".tally", help="where to keep the tally (default .tally)"
    )
    parser.add_argument(
        "--svg", type=Path, help="also write the decision table of the patch step as a picture"
    )
    options = parser.parse_args()
    console = Console()
    workspace = Workspace()
    try:
        # Chroma serves vector search here even for a handful of memories, so that the demo shows
        # all of it at work.
        with Tally.open(
            options.tally,
            owner=OWNER,
            settings=Settings.read(vector_search="chroma"),
            rules=rules.RULES,
            tool_classes=rules.TOOL_CLASSES,
        ) as tally:
            play(console, tally, workspace, model=options.model, svg=options.svg)
    finally:
        workspace.close()


def play(
    console: Console, tally: Tally, workspace: Workspace, *, model: str | None, svg: Path | None
) -> None:
    """Play the scenes, in order."""
    bound = tally.bind(OWNER.model_copy(update={"agent": "coder"}), scope=SCOPE)
    console.print(
        Panel(
            Text.from_markup(f"[bold]{REQUEST}[/]\n" + _who_answers(model)),
            title="Tallystick: the golden path",
            title_align="left",
            border_style="blue",
        )
    )
    before = workspace.run_tests()
    console.print(_tests("Tests before", before))

    console.print(Rule("[bold]Session 1: a LangGraph agent"))
    with bound.run("coder", domain="coding", goal=REQUEST) as run:
        agent = CodingAgent(bound, run, workspace, _chat_model(model), model_name=_name(model))
        graph = agent.graph(TallySaver(bound))
        handler = TallyCallbackHandler(bound, strict=True)
        outcome = graph.invoke(
            {"messages": [("user", REQUEST)]},
            config={
                "configurable": {"thread_id": f"demo-{run.id}"},
                "callbacks": [handler],
                "recursion_limit": 60,
            },
        )
    foil = run.end()
    console.print(
        Panel(outcome["messages"][1].text, title="Plan", title_align="left", border_style="dim")
    )
    after = workspace.run_tests()

    if agent.patch_step is None:
        console.print("[yellow]The model gave no patch; the rest of the demo needs one.[/]")
        return
    _show_patch(console, bound, agent.patch_step, outcome, svg)
    console.print(_tests("Tests after", after))

    console.print(Rule("[bold]What was remembered"))
    tally.drain()
    hits = bound.recall("how is money rounded?", limit=2)
    console.print(views.hit_table(hits, query="how is money rounded?"))

    console.print(Rule("[bold]Session 2: PydanticAI, next day, on the same tally"))
    console.print(Text(f"“How do we round money here?”\n{_ask_pydantic_ai(bound, model)}"))

    console.print(Rule("[bold]The same memory through LlamaIndex"))
    for node in TallyRetriever(bound, similarity_top_k=1).retrieve("rounding convention"):
        sources = ", ".join(node.node.metadata["sources"])
        console.print(Text(f"{node.score:.2f}  {node.node.get_content()}  (from {sources})"))

    console.print(Rule("[bold]A rule: ask before what destroys"))
    for outcome_of_command in rules.attempts(bound, workspace):
        console.print(outcome_of_command)

    console.print(Rule("[bold]Replay of the patch step"))
    exact = bound.recordings.replay(agent.patch_step, call=_replay_call(model, bound))
    console.print(views.replay_view(exact))
    smaller = bound.recordings.replay(
        agent.patch_step, token_budget=_smaller_budget(bound, agent.patch_step)
    )
    console.print(views.replay_view(_shorten(smaller)))

    console.print(Rule("[bold]The whole agent again, on tape"))
    console.print(_play_tape(bound, bound.recordings.run(run.id), model))

    console.print(Rule("[bold]The receipt"))
    console.print(views.verification_view(bound.verify(run.id, foil=foil)))

    console.print(Rule("[bold]Somebody tampers with it"))
    for title, verified in tampering.attempts(
        bound.recordings.export_receipt(run.id), agent.patch_step, foil
    ):
        console.print(_tampering_panel(title, verified))
    _goodbye(console, tally, run.id, agent.patch_step)


def _show_patch(
    console: Console, bound: BoundTally, step: str, outcome: dict[str, Any], svg: Path | None
) -> None:
    request, compiled = bound.recordings.compiled(step)
    title = "The patch step: what the model saw, and why"
    console.print(views.decision_table(request, compiled, title=title, width=console.width))
    if svg is not None:
        picture = Console(record=True, width=120, file=io.StringIO())
        picture.print(views.decision_table(request, compiled, title=title, width=picture.width))
        # Rich names fonts on a server; a picture that asks nobody shows in the reader's own
        # monospace font.
        drawing = re.sub(
            r"@font-face {.*?}\s*", "", picture.export_svg(title="tally show"), flags=re.DOTALL
        )
        svg.write_text(drawing)
    patches = [
        call["args"]["patch"]
        for message in outcome["messages"]
        for call in getattr(message, "tool_calls", [])
        if call["name"] == "apply_patch"
    ]
    console.print(
        Panel(
            Syntax(patches[-1], "diff"), title="The patch", title_align="left", border_style="dim"
        )
    )


def _play_tape(bound: BoundTally, recorded: RunRecord, model: str | None) -> Panel:
    """Run the recorded agent on a fresh copy of the project: its answers come from the tape, only
    the patch is real.
    """
    tape = bound.recordings.tape(recorded.run_id)
    player = Player(tape)
    workspace = Workspace()
    try:
        with bound.run("coder, on tape", domain="coding", goal=REQUEST) as run:
            agent = CodingAgent(
                bound,
                run,
                workspace,
                TapeChatModel(player, like=_chat_model(model)),
                model_name=_name(model),
                known_at=recorded.started_at,
                tools=lambda own: tape_tools(player, own, safe=["apply_patch"]),
            )
            agent.graph(None).invoke(
                {"messages": [("user", REQUEST)]}, config={"recursion_limit": 60}
            )
        report = player.finish()
    finally:
        workspace.close()
    kinds = [call.kind for call in tape.calls]
    lines = [
        f"{kinds.count('model_call')} model calls and {kinds.count('tool_call')} tool calls were "
        f"recorded; "
        "its own code ran again, nothing was sent.",
        f"[green]✓ {report.played} of {report.calls} requests are the recorded ones "
        f"({report.fidelity})[/]",
    ]
    return Panel("\n".join(lines), title="Tape", title_align="left", border_style="green")


def _tampering_panel(title: str, verification: Verification) -> Panel:
    """Return an attempt on a copy of the receipt, and the problems that `verify` reports."""
    lines = [f"[red]✗ {problem.where}: {problem.problem}[/]" for problem in verification.problems]
    assert lines, "tampering that is not found is worth an alarm"
    return Panel("\n".join(lines), title=title, title_align="left", border_style="red")


def _shorten(result: ReplayResult) -> ReplayResult:
    """Return the result without most of a long diff of the prompt."""
    lines = result.prompt_diff
    if len(lines) <= _SHOWN:
        return result
    return result.model_copy(
        update={"prompt_diff": (*lines[:_SHOWN], f"… {len(lines) - _SHOWN} lines more")}
    )


def _ask_pydantic_ai(bound: BoundTally, model: str | None) -> str:
    from pydantic_ai import Agent

    agent = Agent(
        model or scripted.answering_model(), capabilities=[Tallystick(bound, agent_name="helper")]
    )
    return asyncio.run(agent.run("How do we round money here?")).output


def _replay_call(model: str | None, bound: BoundTally) -> Any:
    """Return the model of the replay: the same real one, or the scripted answer once more."""
    if model is not None:
        return chat_model_call(_chat_model(model))
    return chat_model_call(scripted.ScriptedChatModel(messages=iter([scripted.patching_answer()])))


def _smaller_budget(bound: BoundTally, step: str) -> int:
    """Return a budget that fits the required items and little else."""
    _, compiled = bound.recordings.compiled(step)
    return compiled.token_allocation["budget"] * 3 // 4


def _chat_model(model: str | None) -> BaseChatModel:
    if model is None:
        return scripted.coding_model()
    from langchain.chat_models import init_chat_model

    try:
        chat_model: BaseChatModel = init_chat_model(model)
    except ImportError as error:
        raise SystemExit(f"{error}\nInstall it into .venv: both sessions need it.") from error
    return chat_model


def _name(model: str | None) -> str | None:
    return None if model is None else model.rpartition(":")[2]


def _who_answers(model: str | None) -> str:
    if model is None:
        return (
            "[yellow]The model is scripted: it is offline. Files, patch, tests, memory and "
            "receipts are real.[/]"
        )
    return f"[green]The model is {model}.[/]"


def _tests(title: str, run: TestRun) -> Panel:
    lines = run.output.splitlines()
    last_lines = Text("\n".join(lines[-8:]), no_wrap=True, overflow="ellipsis")
    return Panel(
        last_lines, title=title, title_align="left", border_style="green" if run.passed else "red"
    )


def _goodbye(console: Console, tally: Tally, run_id: str, step_id: str) -> None:
    where = "" if Path(tally.location) == Path(".tally").absolute() else f" -t {tally.location}"
    lines = [
        f"tally runs{where}",
        f"tally show {views.short(step_id)}{where}",
        f"tally why {views.short(step_id)}{where}",
        f"tally recall 'rounding of money'{where}",
        f"tally verify {views.short(run_id)}{where}",
    ]
    console.print(
        Panel(
            "\n".join(lines),
            title="Look around (in .venv/bin)",
            title_align="left",
            border_style="dim",
        )
    )
    paste = (
        "from tallystick import Tally\n"
        "from tallystick_langgraph import TallySaver\n"
        'graph = builder.compile(checkpointer=TallySaver(Tally.open(".tally")))'
    )
    console.print(
        Panel(Syntax(paste, "python"), title="Three lines for your own agent", title_align="left")
    )


if __name__ == "__main__":
    main()
