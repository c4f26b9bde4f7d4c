"""Each example plays offline to its end, and shows what its page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from examples.claude_sessions import __main__ as claude_sessions
from examples.langgraph_wrapper import __main__ as langgraph_wrapper
from examples.openai_context_demo import __main__ as openai_context_demo
from examples.refund_desk import __main__ as refund_desk
from examples.research_agent import __main__ as research_agent
from examples.running import APART, EXAMPLES, OPERATOR, check_receipts

from tallystick import Actor, Tally

ROOT = Path(__file__).parent.parent.parent


def test_the_request_to_openai_has_what_was_chosen_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    openai_context_demo.main([])
    shown = capsys.readouterr().out

    decisions = dict(re.findall(r"^  \w+ +(\S+) +(\w+)$", shown, re.M))
    assert decisions["menu:friday"] == "selected_by_score"
    assert decisions["menu:parking"] == "below_relevance"
    request = shown.partition("The request:")[2]
    assert "allergic to nuts" in request
    assert "the mill" not in request
    assert "receipts that verify: 2" in shown


def test_a_graph_on_a_tally_does_what_it_did_and_remembers_each_user_by_themselves(
    capsys: pytest.CaptureFixture[str],
) -> None:
    langgraph_wrapper.main([])
    before, _, after = capsys.readouterr().out.partition("\nAfter:")

    for shown in (before, after):
        assert "ada: Book the night train to Oslo? Yes. Booked: the night train to Oslo" in shown
        assert "bob: Book the ferry to Riga? Yes. Booked: the ferry to Riga" in shown
    assert before.count("I know of no trip.") == 2
    assert "ada, in another conversation: You go by the night train to Oslo." in after
    assert "bob, in another conversation: You go by the ferry to Riga." in after
    assert "receipts that verify: 6" in after


def test_few_lines_take_the_graph_onto_a_tally_and_the_page_shows_them() -> None:
    diff = "".join(langgraph_wrapper.diff())
    changed = [line for line in diff.splitlines()[2:] if line[0] in "+-"]

    assert len([line for line in changed if line.strip("+-")]) <= 24
    page = (ROOT / "docs/examples/langgraph-wrapper.md").read_text(encoding="utf-8")
    assert f"```diff\n{diff}```" in page


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_deep_agent_keeps_files_apart_and_records_its_researcher_below_the_call(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("deepagents")
    from examples.deep_agent import __main__ as deep_agent

    deep_agent.main([])
    shown = capsys.readouterr().out

    page = (ROOT / "docs/examples/deep-agent.md").read_text(encoding="utf-8")
    assert f"```text\n{shown}```" in page
    assert "ada: There is the night train at 22:10, 14 hours. I like seats by the window." in shown
    assert "\n  tool_call task\n    model_call" in shown


def test_research_cites_keeps_a_contradiction_and_publishes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    research_agent.main([])
    shown = capsys.readouterr().out

    assert "opened in 1931. [2]" in shown
    assert "opened in 1933. [3]" in shown
    assert "Sources disagree: [3]" in shown
    assert "[2] corpus/atlas.md" in shown
    assert "[4] https://archive.example/heron-bridge" in shown
    assert "researcher: publish was denied by a rule" in shown
    assert "summariser: 6 memories withheld" in shown
    assert "In one sentence: The Heron Bridge is 212 metres long." in shown
    assert "receipts that verify: " in shown


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_has_its_page(name: str) -> None:
    page = ROOT / "docs" / "examples" / f"{name.replace('_', '-')}.md"

    assert f"python -m examples.{name}" in page.read_text(encoding="utf-8")
    assert f"examples/{page.name}" in (ROOT / "docs/index.md").read_text(encoding="utf-8")


def test_every_example_is_run_by_the_command_that_runs_all() -> None:
    """All but the demo, which has a command of its own, and what needs another environment."""
    folders = {file.parent.name for file in (ROOT / "examples").glob("*/__main__.py")}

    assert folders - {"golden_path", *APART} == set(EXAMPLES)


def test_receipts_of_every_user_are_checked_and_none_at_all_is_an_alarm() -> None:
    with Tally.open(":memory:", owner=OPERATOR, background=False) as tally:
        with pytest.raises(SystemExit, match="nothing was recorded"):
            check_receipts(tally)

        for user in ("ada", "bob"):
            with tally.bind(Actor(user=user)).run("helper") as run, run.step("model_call") as step:
                step.record("response", "Hello.")
        assert check_receipts(tally) == "receipts that verify: 2, runs: 2"


def test_a_session_of_claude_goes_on_where_its_disk_is_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    claude_sessions.main([])
    shown = capsys.readouterr().out
    shown = re.sub(r'code="\d+"', 'code="…"', re.sub(r"session [0-9a-f]{8}", "session …", shown))

    page = (ROOT / "docs/examples/claude-sessions.md").read_text(encoding="utf-8")
    assert f"```text\n{shown}```" in page


def test_a_refund_waits_for_a_person_and_each_agent_has_its_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refund_desk.main([])
    shown = capsys.readouterr().out

    page = (ROOT / "docs/examples/refund-desk.md").read_text(encoding="utf-8")
    assert f"```text\n{shown}```" in page
