"""The coding agent's path in a real browser: its run, the step that guessed, and the replay.

`make test-browser` runs it with the pages of the dashboard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from examples.coding_agent import __main__ as coding_agent
from examples.coding_agent.agent import BUDGET, REQUEST, approve
from examples.coding_agent.scripted import ScriptedChatModel
from examples.coding_agent.tools import RULES, TOOL_CLASSES
from examples.coding_agent.workspace import sample_workspace
from tests.integrations.served import served
from tests.integrations.test_dashboard_browser import Window, check_page, pytestmark, window

__all__ = ["pytestmark", "window"]


@dataclass(frozen=True)
class Worked:
    """What the coding agent left behind, in a window of its own."""

    window: Window
    run_id: str
    guessed: str
    """The step whose patch was wrong."""
    replay_id: str
    """The run that made this step again."""


@pytest.fixture
def worked(window: Window, tmp_path: Path) -> Iterator[Worked]:
    with (
        served(tmp_path, rules=RULES, tool_classes=TOOL_CLASSES) as there,
        sample_workspace() as workspace,
    ):
        person = coding_agent.OWNER
        bound = there.tally.bind(person.replace(agent="coder"), scope=coding_agent.SCOPE)
        model = ScriptedChatModel()
        steps = coding_agent.change(
            bound, workspace, model, REQUEST, coding_agent.TIGHT, decide=approve
        )
        replayed = coding_agent.replay(bound, steps[0], model)
        assert replayed.run_id is not None
        secret = there.token(person, token_class="session")
        run_id = bound.recordings.step(steps[0]).run_id
        yield Worked(replace(window, there=there, secret=secret), run_id, steps[0], replayed.run_id)


@pytest.mark.parametrize("scripts", [True, False])
def test_the_golden_path_leads_from_the_run_by_the_step_that_guessed_to_its_replay(
    worked: Worked, scripts: bool
) -> None:
    """The coding agent's run, the step with the wrong patch, and what more context changed."""
    window = worked.window
    home = f"{window.there.tcp}/ui"
    with window.page(scripts=scripts) as page:
        page.goto(f"{home}/runs")
        page.click(f"a[href='/ui/runs/{worked.run_id}']")
        page.wait_for_url(f"**/runs/{worked.run_id}")
        assert REQUEST[:40] in page.text_content("main")
        page.click(f".rows a[href='/ui/steps/{worked.guessed}']")
        page.wait_for_url(f"**/steps/{worked.guessed}")
        assert "its kind had used its share of the budget" in page.text_content("main")

        # The replay that the agent's person made is a run of its own, and names this step.
        page.goto(f"{home}/runs/{worked.replay_id}")
        page.click(".rows a")
        page.click("text=side by side")
        page.wait_for_url("**/diff?*")
        compared = page.text_content("main")
        assert f"{coding_agent.TIGHT} → {BUDGET}".replace(",", "") in compared.replace("\u202f", "")

        # A person makes it again with another budget.
        page.goto(f"{home}/steps/{worked.guessed}")
        page.click("text=Replay")
        page.fill("#token_budget", str(BUDGET))
        page.click("button:has-text('Replay with these changes')")
        page.wait_for_url("**/replays/*")
        window.there.tally.drain()
        if not scripts:  # with scripts the page looks again by itself
            page.click("text=Look again")
        page.wait_for_selector("text=Side by side")
    assert window.said == []


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_of_the_coding_agent_break_no_rule(worked: Worked, scheme: str) -> None:
    window = worked.window
    steps = window.there.tally.bind(coding_agent.OWNER, coding_agent.SCOPE).recordings.steps(
        worked.run_id
    )
    replayed = window.there.tally.bind(coding_agent.OWNER, coding_agent.SCOPE).recordings.steps(
        worked.replay_id
    )
    screens = {
        "agent-run": f"/runs/{worked.run_id}",
        "agent-step": f"/steps/{worked.guessed}",
        "agent-diff": f"/diff?before={worked.guessed}&after={replayed[0].id}",
        "agent-talk": f"/runs/{worked.run_id}/conversation",
    }
    with window.page(scheme) as page:
        for name, path in screens.items():
            assert page.goto(f"{window.there.tcp}/ui{path}").status == 200, name
            check_page(page, f"{name}-{scheme}")
        [stated, *_] = [
            step.id
            for step in steps
            if page.goto(f"{window.there.tcp}/ui/steps/{step.id}/state").status == 200
        ]
        page.goto(f"{window.there.tcp}/ui/steps/{stated}/state")
        check_page(page, f"agent-state-{scheme}")
    assert window.said == []
