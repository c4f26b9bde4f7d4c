"""A page of every route of the dashboard in a real browser, on the demo's tally: those too that
what a person does next leads to, and all of them without JavaScript.

`make test-browser` runs it with the pages of the dashboard.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import pytest
from examples.coding_agent.tools import RULES, TOOL_CLASSES
from examples.coding_agent.workspace import sample_workspace
from examples.golden_path.__main__ import OWNER, SCOPE, Demo, open_tally
from rich.console import Console
from tests.integrations.dashboard import Browser
from tests.integrations.served import Served
from tests.integrations.test_dashboard_browser import Window, check_page, pytestmark, window

from tallystick import Tally
from tallystick.errors import ApprovalRequired
from tallystick.records import ExtractedFact, Extraction
from tallystick.settings import Settings
from tallystick.testing import ScriptedLearner
from tallystick_ingest import Ingest
from tallystick_learning import Learning
from tallystick_server import serve_in_background
from tallystick_server.dashboard.application import ROUTES
from tallystick_synthesis import Synthesis

__all__ = ["pytestmark", "window"]

LEADS_ON = ("/", "/find", "/replays/{job_id}")
"""Pages that only lead to another one: that of a replay does once it is made."""


@dataclass(frozen=True)
class Demoed:
    """The demo's tally behind a window, and an address for each route that has a page."""

    window: Window
    pages: dict[str, str]


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tally]:
    """The demo's tally, played before a browser has an event loop of its own on this thread."""
    place = tmp_path_factory.mktemp("demo") / "tally"
    with sample_workspace() as workspace, open_tally(place) as tally:
        Demo(Console(file=io.StringIO(), width=80), tally, workspace).play()
    with Tally.open(
        place,
        settings=Settings.read(vector_search="chroma", reflection="review"),
        rules=RULES,
        tool_classes=TOOL_CLASSES,
        learning_model=ScriptedLearner(decide),
    ) as tally:
        yield tally


def decide(text: str) -> Extraction:
    """Return the decision that a text is."""
    return Extraction(facts=(ExtractedFact(content=text, kind="decision"),))


@pytest.fixture(scope="module")
def demo(
    tally: Tally, window: Window, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Demoed]:
    bound = tally.bind(OWNER, SCOPE)
    noted = bound.memories()[-1]
    # What a person does next in the dashboard: import a folder, make a document of memory, have it
    # reflected on, and a step replayed.
    folder = tmp_path_factory.mktemp("notes")
    (folder / "rounding.md").write_text("# Rounding\n\nThe ledger rounds half even.\n")
    Ingest(tally.bind(OWNER)).start_import(folder, adapter="files")
    planned = Synthesis(bound).plan("How is money rounded?")
    Learning(bound).reflect([bound.remember("We decided to round half even.", kind="episode").id])
    [run] = [run for run in bound.recordings.runs() if run.agent_name == "coder" and run.domain]
    compiled = [
        step.id for step in bound.recordings.steps(run.id) if step.step_kind == "model_call"
    ]
    with pytest.raises(ApprovalRequired):
        bound.check_tool_call("shell", {"command": "rm -rf ledger"})
    [asked] = bound.approvals.list()
    job = bound.recordings.replay_later(compiled[0])
    tally.drain()
    secret = tally.bind(OWNER).tokens.make("window", token_class="session").secret
    assert secret is not None
    with serve_in_background(tally, port=0) as (base,):
        stated = [
            step.id
            for step in bound.recordings.steps(run.id)
            if isinstance(step.metadata.get("langgraph_checkpoint_ns"), str)
        ]
        starts = [
            "overview",
            "imports",
            "documents",
            f"syntheses/{planned.id}",
            f"approvals/{asked.id}",
            f"steps/{compiled[1]}/changed",
            f"steps/{stated[0]}/state",
            "spaces/access?user=local",
            f"runs/{run.id}",
            f"steps/{compiled[0]}",
            f"steps/{compiled[0]}/trace?text=round",
            f"diff?before={compiled[0]}&after={compiled[1]}",
            f"memories/{noted.id}",
            f"jobs/{job.id}",
            f"replays/{job.id}",
            "memory?q=How do we round money here?",
            "export/counts?scope=project:ledger",
            "health/disk",
            f"runs/{run.id}/totals",
        ]
        there = Served(tally, "", base)
        pages: dict[str, str] = {}
        with Browser(base, secret) as browser:
            for page in browser.crawl(*starts, each=1):
                route = _route_of(urlsplit(page.url).path)
                if page.status == 200 and route is not None:
                    pages.setdefault(route, page.url)
        yield Demoed(replace(window, there=there, secret=secret, said=[]), pages)


def _route_of(path: str) -> str | None:
    for route in ROUTES:
        pattern = re.sub(r"{\w+}", "[^/]+", route.path)
        if "GET" in (route.methods or ()) and re.fullmatch(f"/ui{pattern}", path):
            return route.path
    return None


def test_the_demo_has_a_page_of_every_kind(demo: Demoed) -> None:
    every = {route.path for route in ROUTES if "GET" in (route.methods or ())}

    assert every - set(demo.pages) == set(LEADS_ON)


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_of_the_demo_breaks_a_rule(demo: Demoed, scheme: str) -> None:
    with demo.window.page(scheme) as page:
        for route, address in demo.pages.items():
            assert page.goto(address).status == 200, route
            name = re.sub(r"\W+", "-", route).strip("-")
            check_page(page, f"demo-route-{name}-{scheme}")
    assert demo.window.said == []


@pytest.mark.soak
def test_every_page_of_the_demo_is_whole_without_javascript(demo: Demoed) -> None:
    with demo.window.page(scripts=False) as page:
        for route, address in demo.pages.items():
            assert page.goto(address).status == 200, route
            assert page.locator("main h1").count() == 1, route
            assert page.locator("main").is_visible(), route
        page.goto(f"{demo.window.there.tcp}/ui")
        page.wait_for_url("**/ui/overview")
    assert demo.window.said == []


def test_a_change_of_the_demos_memory_is_previewed_first(demo: Demoed) -> None:
    change = demo.pages["/memories/{memory_id}"]
    with demo.window.page() as page:
        page.goto(f"{change}/hide")
        page.fill("#reason", "it is under review")
        page.click("button:has-text('Preview')")
        assert "Nothing has been changed yet" in page.text_content("main")
        check_page(page, "demo-previewed-light")
        page.goto(f"{demo.window.there.tcp}/ui/diff")
        check_page(page, "demo-diff-ask-light")
    with demo.window.page(inside=False) as page:
        assert page.goto(f"{demo.window.there.tcp}/ui/runs").status == 401
        check_page(page, "demo-sign-in-light")
    assert demo.window.said == []
