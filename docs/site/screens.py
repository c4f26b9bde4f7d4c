"""The pictures of the dashboard in the documentation, taken in Chromium from the demo's tally.

`make docs-refresh` takes them, where playwright and Chromium are to be had.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from examples.coding_agent.workspace import sample_workspace
from examples.golden_path.__main__ import OWNER, SCOPE, Demo, open_tally
from rich.console import Console

from tallystick.tally import Tally
from tallystick_server import serve_in_background
from tallystick_server.guard import COOKIE

DOCS = Path(__file__).parent.parent
_SIZE = {"width": 1120, "height": 760}


def main() -> None:
    """Take every picture."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("The dashboard's pictures need Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with (
        sample_workspace() as workspace,
        tempfile.TemporaryDirectory() as folder,
        open_tally(Path(folder) / "tally") as tally,
    ):
        Demo(Console(file=io.StringIO(), width=80), tally, workspace).play()
        with sync_playwright() as tools:
            options = ["--no-sandbox", "--force-color-profile=srgb"]
            browser = tools.chromium.launch(executable_path=chromium, args=options)
            _take(tally, browser)
            browser.close()


def _take(tally: Tally, browser: Any) -> None:
    bound = tally.bind(OWNER, SCOPE)
    run = next(run for run in reversed(bound.recordings.runs()) if run.agent_name == "coder")
    step = [step for step in bound.recordings.steps(run.run_id) if step.step_kind == "model_call"][
        2
    ]
    [memory] = bound.memories()
    screens = {
        "dashboard-step.png": f"/steps/{step.step_id}",
        "dashboard-runs.png": "/runs",
        "dashboard-memory.png": f"/memories/{memory.id}",
    }
    secret = tally.bind(OWNER).tokens.make("pictures", token_class="session").secret
    with serve_in_background(tally, port=0) as (base,):
        context = browser.new_context(viewport=_SIZE, color_scheme="light")
        context.add_cookies([{"name": COOKIE, "value": secret, "url": f"{base}/ui"}])
        page = context.new_page()
        page.goto(f"{base}/ui/runs/{run.run_id}/verify")
        for name, path in screens.items():
            page.goto(f"{base}/ui{path}")
            page.screenshot(path=DOCS / name)


if __name__ == "__main__":
    main()
