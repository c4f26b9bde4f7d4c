"""The dashboard in a real browser: no violation of accessibility or of its policy, by keys alone,
and without JavaScript.

Debian's Chromium does: `make test-browser` installs it where it may, and looks at every page.
Pictures of what was seen stay in `build/screens`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.scripted import concluder

from tallystick.errors import ApprovalRequired
from tallystick.records import NewMemory
from tallystick.settings import Settings
from tallystick_ingest import Ingest
from tallystick_learning import Learning
from tallystick_server.dashboard.application import ROUTES
from tallystick_server.guard import COOKIE
from tallystick_synthesis import Synthesis

from .dashboard import Played, play, spend
from .served import ADA, ASKING, ROOT, Served, served

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: pip install --group browser"
)
axe = pytest.importorskip(
    "axe_playwright_python", reason="needs axe-playwright-python: pip install --group browser"
)

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.slow,
]
LEARNING = Settings(reflection="review", graph=True)
SAILING: list[NewMemory | str] = [
    NewMemory(
        content="Anna Schmidt sails the Seeadler from Hamburg.",
        entities=("Anna Schmidt", "Seeadler", "Hamburg"),
    ),
    "In Hamburg we met Anna Schmidt at the harbour.",
    "The Seeadler left Hamburg with Anna Schmidt at dawn.",
]
"""Memories that mention the same names, which are a community."""
SCREENS = Path(__file__).parents[2] / "build" / "screens"
AXE = Path(axe.__file__).parent / "axe.min.js"


@dataclass
class Window:
    """A dashboard that is served, and a browser to look at it."""

    there: Served
    browser: Any
    played: Played
    spent: str
    """A run with a plot of its budgets."""
    spent_step: str
    replay: str
    """A replay that waits for a worker."""
    approval: str
    proposal: str
    document: str
    imported: str
    synthesis: str
    secret: str
    said: list[str] = field(default_factory=list)
    """What the console said, and requests that left the origin."""

    @contextmanager
    def page(self, scheme: str = "light", *, scripts: bool = True, inside: bool = True) -> Any:
        """A page that notes whatever it should not do."""
        context = self.browser.new_context(
            color_scheme=scheme,
            java_script_enabled=scripts,
            viewport={"width": 1280, "height": 860},
        )
        if inside:
            where = {"url": f"{self.there.tcp}/ui", "httpOnly": True}
            context.add_cookies([{"name": COOKIE, "value": self.secret, **where}])
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: self._note(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"{page.url}: {error}"))
        page.on("request", self._note_foreign)
        try:
            yield page
        finally:
            context.close()

    def _note(self, line: str) -> None:
        if "status of 40" not in line:  # a page that says so
            self.said.append(line)

    def _note_foreign(self, request: Any) -> None:
        if not request.url.startswith(self.there.tcp):
            self.said.append(f"foreign: {request.url}")

    def screens(self) -> dict[str, str]:
        """The addresses of all screens, by name."""
        played = self.played
        return {
            "overview": "/overview",
            "reads": "/reads",
            "imports": "/imports",
            "reflections": "/reflections",
            "diary": "/diary",
            "reviews": "/reviews",
            "review": f"/reviews/{self.proposal}",
            "working": f"/runs/{played.run_id}/working",
            "runs": "/runs",
            "run": f"/runs/{played.run_id}",
            "plots": f"/runs/{self.spent}",
            "step": f"/steps/{played.step_id}",
            "memory": "/memory?q=heron",
            "inspected": f"/memories/{played.memory_id}",
            "health": "/health",
            "item": f"/steps/{played.step_id}/items/6",
            "conversation": f"/runs/{played.run_id}/conversation",
            "verified": f"/runs/{played.run_id}/verify",
            "trace": f"/steps/{played.step_id}/trace?text=nests in",
            "entry": f"/steps/{played.step_id}/entries/2",
            "replay": f"/steps/{played.step_id}/replay",
            "totals": f"/runs/{self.spent}/totals",
            "changed": f"/steps/{self.spent_step}/changed",
            "job": f"/jobs/{self.replay}",
            "replaying": f"/replays/{self.replay}",
            "diff": f"/diff?before={played.step_id}&after={played.tool_step_id}",
            "newest": "/memory",
            "communities": "/communities",
            "named": "/communities?q=Anna+Schmidt",
            "edit": f"/memories/{played.memory_id}/modify",
            "source": f"/sources/{played.source_id}",
            "spaces": "/spaces?user=ada",
            "access": "/spaces/access?user=ada",
            "make": "/make/remember",
            "export": "/export",
            "counts": "/export/counts",
            "disk": "/health/disk",
            "approvals": "/approvals",
            "approval": f"/approvals/{self.approval}",
            "policy": "/policy?tool=deploy",
            "documents": "/documents",
            "document": f"/documents/{self.document}",
            "import": f"/source-imports/{self.imported}",
            "work": "/work",
            "stewardship": "/stewardship",
            "syntheses": "/syntheses",
            "synthesis": f"/syntheses/{self.synthesis}",
            "absent": "/nothing",
        }


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    with (
        served(
            tmp_path_factory.mktemp("window"),
            rules=[ASKING],
            settings=LEARNING,
            learning_model=concluder(),
        ) as there,
        playwright.sync_playwright() as tools,
    ):
        folder = tmp_path_factory.mktemp("birds")
        (folder / "heron.md").write_text("# Birds\n\n## Herons\n\nThe heron nests in March.")
        (folder / "empty.md").write_text("")
        imported = Ingest(there.tally.bind(ROOT)).start_import(folder, adapter="files")
        there.tally.drain()
        [document] = Ingest(there.tally.bind(ROOT)).documents()
        written = Synthesis(there.tally.bind(ROOT)).plan("Where does the heron nest?")
        there.tally.bind(ROOT).remember("Count the herons.", kind="task")
        played = play(there.tally, ROOT)
        with pytest.raises(ApprovalRequired):
            there.tally.bind(ROOT).check_tool_call("deploy", {"to": "production"})
        [waiting] = there.tally.bind(ROOT).approvals.list()
        spent = spend(there.tally, ROOT, [900, 2_400, 600])
        there.tally.bind(ROOT).remember_many(SAILING)
        there.tally.drain()
        [*_, spent_step] = there.tally.bind(ROOT).recordings.steps(spent)
        told = there.tally.bind(ROOT).remember("We decided to feed the heron.", kind="episode")
        [proposal] = Learning(there.tally.bind(ROOT)).reflect([told.id]).proposals
        replay = there.tally.bind(ROOT).recordings.replay_later(played.step_id)
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            secret = there.token(ROOT, token_class="session")
            yield Window(
                there,
                browser,
                played,
                spent,
                spent_step.id,
                replay.id,
                waiting.id,
                proposal.id,
                document.id,
                imported.id,
                written.id,
                secret,
            )
        finally:
            browser.close()


_BROKEN_RULES = """axe.run().then(result => result.violations.map(
    rule => [rule.id, rule.nodes.map(node => node.html + " " + node.failureSummary)]
))"""


def check_page(page: Any, name: str) -> None:
    """Fail for a violation of accessibility, or a page wider than its window; take a picture."""
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert page.evaluate(_BROKEN_RULES) == [], name
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    page.screenshot(path=SCREENS / f"{name}.png", full_page=True)


def _look(window: Window, scheme: str, names: list[str]) -> None:
    """Open screens; fail for a violation of accessibility, of the policy, or a foreign request."""
    with window.page(scheme) as page:
        for name in names:
            response = page.goto(f"{window.there.tcp}/ui{window.screens()[name]}")
            assert response.status == (404 if name == "absent" else 200), name
            check_page(page, f"{name}-{scheme}")
    assert window.said == []


MAIN = ["overview", "run", "step", "inspected"]


@pytest.mark.parametrize(("scheme", "names"), [("light", MAIN), ("dark", ["step"])])
def test_the_main_screens_break_no_rule(window: Window, scheme: str, names: list[str]) -> None:
    _look(window, scheme, names)


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_screen_breaks_no_rule_in_both_schemes(window: Window, scheme: str) -> None:
    _look(window, scheme, list(window.screens()))


def test_no_screen_is_wider_than_a_phone(window: Window) -> None:
    """What a table has stands one below the other there, each with its name."""
    wide = []
    with window.page() as page:
        page.set_viewport_size({"width": 390, "height": 844})
        for name, address in window.screens().items():
            page.goto(f"{window.there.tcp}/ui{address}")
            if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
                wide.append(name)
    assert wide == []


def test_every_page_is_among_the_screens(window: Window) -> None:
    """All but those that lead on, and the checkpoint of a graph, which the coding agent has."""
    pages = [route.path for route in ROUTES if "GET" in (route.methods or ())]
    shown = [address.partition("?")[0] for address in window.screens().values()]
    missing = [
        path
        for path in pages
        if not any(re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), address) for address in shown)
    ]

    assert missing == ["/", "/find", "/steps/{step_id}/state"]


@pytest.mark.parametrize("scripts", [True, False])
def test_communities_are_opened_from_their_picture_by_keys(window: Window, scripts: bool) -> None:
    with window.page(scripts=scripts) as page:
        page.goto(f"{window.there.tcp}/ui/communities")
        assert page.locator("svg.graph circle").count() == 1
        page.locator("svg.graph a").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/communities#c1")
        page.fill("#q", "Anna Schmidt")
        page.keyboard.press("Enter")
        page.wait_for_url("**/communities?q=*")
        page.click("section >> text=Hamburg >> nth=-1")
        page.wait_for_url("**/memories/*")
    assert window.said == []


@pytest.mark.parametrize("scripts", [True, False])
def test_a_bar_of_a_plot_leads_to_its_step_by_keys(window: Window, scripts: bool) -> None:
    with window.page(scripts=scripts) as page:
        page.goto(f"{window.there.tcp}/ui/runs/{window.spent}")
        bars = page.locator("figure.plot a")
        assert bars.count() == 3
        bars.last.focus()
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/steps/{window.spent_step}")
    assert window.said == []


def test_a_person_gets_from_the_runs_to_a_candidate_by_keys_alone(window: Window) -> None:
    with window.page() as page:
        page.goto(f"{window.there.tcp}/ui/runs?agent=birdwatcher")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "q"
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/runs/*")
        for _ in range(2):
            page.keyboard.press("j")
        page.keyboard.press("k")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/steps/*")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/items/*")
        assert page.locator("h1").count() == 1


def _sign_in(window: Window, page: Any) -> None:
    page.goto(f"{window.there.tcp}/ui/runs")
    page.fill("#token", window.secret)
    page.click("button:has-text('Sign in')")
    page.wait_for_url("**/ui/overview")
    page.wait_for_selector("text=Sign out")


def test_without_javascript_a_person_comes_in_finds_and_corrects(window: Window) -> None:
    memory_id = window.there.tally.bind(ROOT).remember("The gong is bronze.", kind="fact").id
    with window.page(scripts=False, inside=False) as page:
        _sign_in(window, page)
        page.click("nav >> text=Memory")
        page.fill("#q", "What is the gong made of?")
        page.click("button:has-text('Search')")
        page.click("text=The gong is bronze.")
        page.click("text=Mark as wrong")
        page.fill("#reason", "it is brass")
        page.click("button:has-text('Preview')")
        assert "Nothing has been changed yet" in page.text_content("main")
        page.click("button:has-text('Mark as wrong')")
        page.wait_for_url("**note=corrected")
    history = window.there.tally.bind(ROOT).history(memory_id)
    assert [entry.correction for entry in history] == [None, "mark_wrong"]


def test_a_cookie_of_the_dashboard_is_not_readable_by_scripts(window: Window) -> None:
    with window.page(inside=False) as page:
        _sign_in(window, page)
        assert [cookie["httpOnly"] for cookie in page.context.cookies()] == [True]
        assert page.evaluate("document.cookie") == ""
        assert page.evaluate("typeof htmx") == "object"
        blocked = page.evaluate(
            """() => new Promise(done => {
                addEventListener("securitypolicyviolation", e => done(e.effectiveDirective));
                const script = document.createElement("script");
                script.textContent = "window.ran = 1";
                document.body.append(script);
            })"""
        )
        assert (blocked, page.evaluate("window.ran")) == ("script-src-elem", None)
    window.said.clear()  # the violation above


def test_a_run_that_goes_on_grows_on_its_page(window: Window) -> None:
    run = window.there.tally.bind(ROOT).run("walker")
    run.step("other", name="first stride").end()
    try:
        with window.page() as page:
            page.goto(f"{window.there.tcp}/ui/runs/{run.id}")
            assert page.locator("text=first stride").count() == 1
            run.step("other", name="second stride").end()
            page.wait_for_selector("text=second stride", timeout=15_000)
            assert urlsplit(page.url).path.endswith(run.id)
    finally:
        run.end()
    assert window.said == []


@pytest.mark.soak
def test_a_run_of_ten_thousand_steps_scrolls_and_finds(window: Window) -> None:
    with window.there.tally.bind(ADA).run("marathon") as run:
        for number in range(10_000):
            run.step("other", name=f"n{number}").end(wait=False)
    secret = window.there.token(ADA, token_class="session")
    window.secret, before = secret, window.secret
    try:
        with window.page() as page:
            page.goto(f"{window.there.tcp}/ui/runs/{run.id}")
            page.fill("#after", "9899")
            page.click("button:has-text('Go')")
            page.wait_for_selector("text=n9900")
            page.mouse.wheel(0, 100_000)
            assert page.locator(".rows tbody tr").count() == 100
    finally:
        window.secret = before
