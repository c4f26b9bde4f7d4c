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

from examples.coding_agent.__main__ import chat_model
from examples.coding_agent.agent import REQUEST, CodingAgent, approve, work
from examples.coding_agent.tools import RULES, TOOL_CLASSES
from examples.coding_agent.workspace import TestRun, Workspace, sample_workspace
from examples.golden_path import scripted, tampering, tidying
from langgraph.checkpoint.memory import InMemorySaver
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from tallystick import Actor, Tally
from tallystick.recorder import Player
from tallystick.records import Foil, ReplayResult, RunRecord, Verification
from tallystick.settings import Settings
from tallystick.tally import BoundTally
from tallystick_cli.doors import open_in_browser
from tallystick_cli.views.common import short
from tallystick_cli.views.memories import hit_table
from tallystick_cli.views.runs import decision_table, replay_view, verification_view
from tallystick_html import CAPTURE, first_lines, opening_lines
from tallystick_langchain import TallyCallbackHandler, TapeChatModel, chat_model_call, tape_tools
from tallystick_langgraph import TallySaver
from tallystick_llama_index import TallyRetriever
from tallystick_pydantic_ai import Tallystick
from tallystick_server import serve_dashboard

OWNER = Actor(user="local", projects={"ledger"}, role="operator")
SCOPE = "project:ledger"
OPENING = (
    "An agent of LangGraph mends a failing test; then you see what its model was shown and why, "
    "what is remembered of it, and how the record of it is replayed and proved."
)
QUESTION = "How do we round money here?"
_SHOWN = 10
"""Lines of a long diff that are shown."""
_PICTURE_WIDTH = 100


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
        "--verbose", action="store_true", help="also show digests, diffs and what pytest prints"
    )
    parser.add_argument(
        "--ui", action="store_true", help="then open the dashboard of the tally in the browser"
    )
    options = parser.parse_args()
    with (
        sample_workspace() as workspace,
        open_tally(options.tally) as tally,
    ):
        Demo(Console(), tally, workspace, model=options.model, verbose=options.verbose).play()
        if options.ui:
            open_dashboard(tally)


def open_dashboard(tally: Tally) -> None:
    """Open the dashboard of the demo's tally in the browser, until Ctrl-C."""

    def started(link: str) -> None:
        opened = open_in_browser(link)
        Console().print(
            "The dashboard is open in your browser. Ctrl-C ends it." if opened else link
        )

    serve_dashboard(tally.bind(OWNER), started=started)


def open_tally(where: str | Path, **settings: Any) -> Tally:
    """Open the tally of the demo, with its owner and its rules.

    Chroma serves the search of vectors even for a handful of memories, so that all of it is at
    work; by default it does for scopes of many thousands.
    """
    return Tally.open(
        where,
        owner=OWNER,
        settings=Settings.read(vector_search="chroma", **settings),
        rules=RULES,
        tool_classes=TOOL_CLASSES,
    )


def draw_pictures(folder: Path, into: Path) -> None:
    """Play the demo on a tally in `folder` and write the pictures of the documentation."""
    with (
        sample_workspace() as workspace,
        open_tally(folder / "tally") as tally,
    ):
        demo = Demo(Console(file=io.StringIO(), width=80), tally, workspace)
        demo.play()
    for name, picture in demo.pictures.items():
        (into / name).write_text(picture, encoding="utf-8")


class Demo:
    """The four scenes of the demo, on one tally."""

    def __init__(
        self,
        console: Console,
        tally: Tally,
        workspace: Workspace,
        *,
        model: str | None = None,
        verbose: bool = False,
    ) -> None:
        self._console, self._tally, self._workspace = console, tally, workspace
        self._model, self._verbose = model, verbose
        self._bound = tally.bind(OWNER.model_copy(update={"agent": "coder"}), scope=SCOPE)
        self.pictures: dict[str, str] = {}
        """What a terminal showed, as drawings, by the names of their files."""

    def play(self) -> None:
        """Play the scenes, in order."""
        self._panel("Tallystick", f"[bold]{OPENING}[/]\n{_who_answers(self._model)}", "blue")
        self._heading("1  An agent at work, and what its model saw")
        worked = self._work()
        if worked is None:
            return
        run_id, step_id, foil = worked
        self._heading("2  What it learned is known to every runtime")
        self._remember()
        self._heading("3  A person decides about what destroys")
        self._line(f"A rule of this tally: {RULES[-1].name.lower()}. An agent is asked to tidy up.")
        for outcome in tidying.attempts(self._bound, self._workspace):
            self._line(outcome)
        self._heading("4  The record is replayed, and proved")
        self._replay(step_id)
        self._play_tape(self._bound.recordings.run(run_id))
        self._verify(run_id, step_id, foil)
        self._goodbye(run_id, step_id)

    def _work(self) -> tuple[str, str, Foil] | None:
        """Let the agent mend the project; return its run, the step of its patch, and the foil."""
        bound, workspace = self._bound, self._workspace
        self._line(f"The request: [bold]{REQUEST}[/]")
        self._tests("Tests before", workspace.run_tests())
        with bound.run("coder", domain="coding", goal=REQUEST) as run:
            agent = CodingAgent(bound, run, workspace, chat_model(self._model))
            outcome = work(
                agent.graph(TallySaver(bound)),
                REQUEST,
                {
                    "configurable": {"thread_id": f"demo-{run.id}"},
                    "callbacks": [TallyCallbackHandler(bound, strict=True)],
                    "recursion_limit": 60,
                },
                decide=self._approve_patch,
            )
        foil = run.end()
        if not agent.patch_steps:
            self._line("[yellow]The model gave no patch; the rest of the demo needs one.[/]")
            return None
        self._line(
            "Before each call of the model, Tallystick chose what fits the budget of the request. "
            "For the call that wrote the patch it chose this:"
        )
        self._show_patch(agent.patch_steps[-1], outcome)
        self._tests("Tests after", workspace.run_tests())
        return run.id, agent.patch_steps[-1], foil

    def _approve_patch(self, action: dict[str, Any]) -> dict[str, Any]:
        """Approve, as a person would who has read the patch."""
        self._line(f"? {action['name']} waits: {action['description']}. [green]Approved.[/]")
        return approve(action)

    def _remember(self) -> None:
        """Recall what the agent noted down: here, through PydanticAI and through LlamaIndex."""
        bound = self._bound
        self._tally.drain()
        self._line(
            "The agent noted a convention down, with the file that states it. A new question:"
        )
        hits = bound.recall(QUESTION, limit=2)
        self._console.print(hit_table(hits, query=QUESTION))
        self.pictures["recall.svg"] = _drawn(hit_table(hits, query=QUESTION), "tally recall QUERY")
        self._line(f"An agent of [bold]PydanticAI[/], the next day: “{QUESTION}”")
        self._line(f"  {_ask_pydantic_ai(bound, self._model)}")
        self._line("A retriever of [bold]LlamaIndex[/]: “rounding convention”")
        for node in TallyRetriever(bound, similarity_top_k=1).retrieve("rounding convention"):
            self._line(f"  {node.node.get_content()}")

    def _replay(self, step_id: str) -> None:
        """Ask for the patch once more, and compile its request anew with a smaller budget."""
        recordings = self._bound.recordings
        exact = recordings.preview_replay(step_id, call=chat_model_call(chat_model(self._model)))
        self._claim(exact.request_matches, "The recorded request was sent once more, unchanged.")
        self._claim(exact.response_matches, "The model gave the same patch.")
        budget = _smaller_budget(self._bound, step_id)
        smaller = recordings.preview_replay(step_id, token_budget=budget)
        assert smaller.diff is not None
        left = ", ".join(change.item_id for change in smaller.diff.removed)
        self._line(
            f"? What if the request had {budget} tokens? These would have been left out: {left}"
        )
        if self._verbose:
            self._console.print(replay_view(exact))
            self._console.print(replay_view(_shorten(smaller)))

    def _play_tape(self, recorded: RunRecord) -> None:
        """Run the recorded agent on a fresh copy of the project: its answers come from the record,
        only the patch is real.
        """
        tape = self._bound.recordings.tape(recorded.id)
        player = Player(tape)
        with (
            sample_workspace() as workspace,
            self._bound.run("coder, on tape", domain="coding", goal=REQUEST) as run,
        ):
            agent = CodingAgent(
                self._bound,
                run,
                workspace,
                TapeChatModel(player, like=chat_model(self._model)),
                known_at=recorded.started_at,
                tools=lambda own: tape_tools(player, own, safe=["apply_patch"]),
            )
            config = {"configurable": {"thread_id": "tape"}, "recursion_limit": 60}
            work(agent.graph(InMemorySaver()), REQUEST, config, decide=approve)
        report = player.finish()
        self._claim(
            report.matches,
            f"The whole agent ran again on its recorded answers, with nothing sent: "
            f"{report.played} of {report.calls} requests are the recorded ones.",
        )

    def _verify(self, run_id: str, step_id: str, foil: Foil) -> None:
        """Check the record, and let somebody tamper with copies of it."""
        verified = self._bound.recordings.verify(run_id, foil=foil)
        self._claim(
            verified.ok,
            f"The record is whole: {verified.receipts} receipts in a chain, and "
            f"{verified.payloads_checked} stored texts that match them.",
        )
        self.pictures["verify.svg"] = _drawn(verification_view(verified), "tally verify RUN")
        if self._verbose:
            self._console.print(verification_view(verified))
        self._line("Now somebody with access to the files tampers with copies of it:")
        receipt = self._bound.recordings.export_receipt(run_id)
        for title, tampered in tampering.attempts(receipt, step_id, foil):
            assert tampered.problems, "tampering that is not found is worth an alarm"
            self._line(f"[red]✗ {title}.[/] Caught: {_problem(tampered)}.")
            if self._verbose:
                self._console.print(verification_view(tampered))

    def _show_patch(self, step_id: str, outcome: dict[str, Any]) -> None:
        request, compiled = self._bound.recordings.compiled(step_id)

        def table(width: int) -> RenderableType:
            return decision_table(request, compiled, width=width)

        self._console.print(table(self._console.width))
        self.pictures["receipt.svg"] = _drawn(table(_PICTURE_WIDTH), "tally show STEP")
        patches = [
            call["args"]["patch"]
            for message in outcome["messages"]
            for call in getattr(message, "tool_calls", [])
            if call["name"] == "apply_patch"
        ]
        self._panel("The patch that the model gave", Syntax(patches[-1].strip(), "diff"), "dim")

    def _tests(self, title: str, run: TestRun) -> None:
        style = "green" if run.passed else "red"
        summary = run.output.splitlines()[-1] if run.output else "no output"
        self._line(f"{title}: [{style}]{summary}[/]")
        if self._verbose:
            self._panel(title, Text(run.output), style)

    def _goodbye(self, run_id: str, step_id: str) -> None:
        self._console.print(Rule("[bold]What you have just seen"))
        for point in (
            "An agent of LangGraph had each request chosen within a budget, with a reason for "
            "every item.",
            "What it noted down was found again by PydanticAI and LlamaIndex, with its source.",
            "A command that destroys waited for a person, and the approval counted for that "
            "command alone.",
            "Its steps were replayed, one by one and as a whole, without asking a model.",
            "Its record was proved to be whole, and three attempts to change it were caught.",
        ):
            self._line(f"• {point}")
        location = self._tally.location
        where = "" if Path(location) == Path(".tally").absolute() else f" -t {location}"
        commands = (
            f"tally ui{where}",
            f"tally runs{where}",
            f"tally show {short(step_id)}{where}",
            f"tally recall 'rounding of money'{where}",
            f"tally verify {short(run_id)}{where}",
        )
        self._panel("Look around: commands in .venv/bin", Text("\n".join(commands)), "dim")
        self._heading("Your own agent: the lines to paste")
        for runtime, code in {"": opening_lines(), **first_lines()}.items():
            # Without a frame, and as long as they are: they are copied from here.
            self._console.print(_pasted(runtime, code), soft_wrap=True)
        self._line(CAPTURE)
        self._line(
            "docs/getting-started.md goes on from here, for two users, in a quarter of an hour."
        )

    def _heading(self, title: str) -> None:
        self._console.print()
        self._console.print(Rule(f"[bold]{title}", align="left"))

    def _line(self, markup: str) -> None:
        self._console.print(Text.from_markup(markup))

    def _claim(self, holds: bool | None, claim: str) -> None:
        self._line(f"[green]✓ {claim}[/]" if holds else f"[red]✗ Not so: {claim}[/]")

    def _panel(self, title: str, content: RenderableType | str, style: str) -> None:
        body = Text.from_markup(content) if isinstance(content, str) else content
        self._console.print(Panel(body, title=title, title_align="left", border_style=style))


def _pasted(runtime: str, code: str) -> Text:
    title = f"# {runtime}\n" if runtime else ""
    shown = Syntax("", "python", background_color="default").highlight(f"{title}{code}")
    shown.rstrip()
    return shown


def _drawn(view: RenderableType, title: str) -> str:
    """Return what a terminal shows as a picture that asks no server for its fonts."""
    picture = Console(record=True, width=_PICTURE_WIDTH, file=io.StringIO())
    picture.print(view)
    # Rich names fonts on a server; without them a picture shows in the reader's own monospace font.
    return re.sub(r"@font-face {.*?}\s*", "", picture.export_svg(title=title), flags=re.DOTALL)


_PROBLEMS = {
    "its payload does not match its commitment": "the text does not match its receipt",
    "its bytes do not match its digest": "the receipt does not match its digest",
    "the foil you gave does not match what is stored": (
        "its end is not the one that was noted down elsewhere"
    ),
}
"""Problems that `verify` reports, for a reader who has not met its words."""


def _problem(verification: Verification) -> str:
    """Return the first problem in words."""
    problem = verification.problems[0].problem
    return _PROBLEMS.get(problem, problem)


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
    return asyncio.run(agent.run(QUESTION)).output


def _smaller_budget(bound: BoundTally, step: str) -> int:
    """Return a budget that fits the required items and little else."""
    _, compiled = bound.recordings.compiled(step)
    return compiled.token_allocation["budget"] * 3 // 4


def _who_answers(model: str | None) -> str:
    if model is None:
        return (
            "[yellow]The model is scripted, so that this works offline. Files, patch, tests, "
            "memory and records are real.[/]"
        )
    return f"[green]The model is {model}.[/]"


if __name__ == "__main__":
    main()
