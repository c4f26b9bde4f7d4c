"""The dashboard on the demo's own data, in a real browser: whatever a link leads to is opened,
some pages of each kind, in both colour schemes.

`make test-browser` runs it with the pages of the dashboard.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from examples.coding_agent.workspace import sample_workspace
from examples.golden_path.__main__ import OWNER, Demo, open_tally
from rich.console import Console
from tests.integrations.served import Served
from tests.integrations.test_dashboard_browser import Window, check_page, pytestmark, window

from tallystick_server import serve_in_background

__all__ = ["pytestmark", "window"]

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|(?<=/)\d+$")
_ADDRESSES = "all => all.map(each => new URL(each.getAttribute('href'), location).href)"
_OF_EACH = 4
"""Pages of a kind that are opened: steps differ in what they have."""
EXPECTED = {
    "approvals",
    "communities",
    "diary",
    "export",
    "health",
    "memories-one",
    "memories-one-modify",
    "memory",
    "overview",
    "policy",
    "reads",
    "reviews",
    "runs",
    "runs-one",
    "runs-one-conversation",
    "runs-one-verify",
    "sources-one",
    "spaces",
    "steps-one",
    "steps-one-entries-one",
    "steps-one-items-one",
    "steps-one-replay",
}
"""Kinds of pages to which the demo's data leads by links alone."""


@pytest.fixture(scope="module")
def demo(window: Window, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    folder = tmp_path_factory.mktemp("demo")
    with sample_workspace() as workspace, open_tally(folder / "tally") as tally:
        played = Demo(Console(file=io.StringIO(), width=80), tally, workspace)
        # The browser has an event loop in this thread.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(played.play).result()
        with serve_in_background(tally, uds=folder / "s", port=0) as (unix, tcp):
            secret = tally.bind(OWNER).tokens.make("window", token_class="session").secret
            assert secret is not None
            yield replace(window, there=Served(tally, unix, tcp), secret=secret, said=[])


def kind_of(path: str) -> str:
    """The page that an address leads to, without the record that it shows."""
    return "-".join(part for part in _ID.sub("one", path).split("/") if part) or "home"


def links(page: Any, home: str) -> Iterator[str]:
    for address in page.eval_on_selector_all("a[href]", _ADDRESSES):
        if address.startswith(home):
            yield address.partition("#")[0]


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_that_the_demo_leads_to_breaks_no_rule(demo: Window, scheme: str) -> None:
    home = f"{demo.there.tcp}/ui"
    waiting, seen, opened = [f"{home}/overview"], Counter[str](), set[str]()
    with demo.page(scheme) as page:
        while waiting:
            address = waiting.pop(0)
            kind = kind_of(urlsplit(address).path.removeprefix("/ui"))
            if address in opened or seen[kind] == _OF_EACH:
                continue
            opened.add(address)
            seen[kind] += 1
            response = page.goto(address)
            assert response.status == 200, address
            check_page(page, f"demo-{kind}-{seen[kind]}-{scheme}")
            waiting += links(page, home)
    assert demo.said == []
    assert seen.keys() >= EXPECTED, EXPECTED - seen.keys()
