"""Sessions of the harnesses' own programs with a scripted model, with hooks and plugin at once
where a harness has both. They run where `HARNESS_PROGRAMS` names a folder with the programs, in a
home of their own: nobody is logged in, and the model is on the loopback.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.terminals import run_piped

from tallystick import Tally

from .harness_sessions import ANSWERED, SAID
from .scripted_model import COMMAND, scripted_model
from .test_harness_paths import calls, turns

_PROGRAMS = os.environ.get("HARNESS_PROGRAMS", "")
pytestmark = [pytest.mark.skipif(not _PROGRAMS, reason="needs the harnesses"), pytest.mark.slow]
LINES: dict[str, tuple[str, ...]] = {
    "claude-code": ("claude", "-p", SAID, "--allowedTools", "Bash"),
    "codex": (
        *("codex", "exec", "--dangerously-bypass-approvals-and-sandbox"),
        *("--dangerously-bypass-hook-trust", SAID),
    ),
    "gemini-cli": ("gemini", "--yolo", "--model", "gemini-2.5-flash", "-p", SAID),
    "opencode": ("opencode", "run", SAID),
}
FORMS = {
    "claude-code": ("hooks", "plugin"),
    "codex": ("hooks",),
    "gemini-cli": ("hooks", "plugin"),
    "opencode": ("plugin",),
}


def configure(home: Path, work: Path, url: str) -> dict[str, str]:
    """Write the settings of every harness; return the environment of a session."""
    (home / ".codex").mkdir(parents=True)
    (home / ".codex" / "config.toml").write_text(
        'model = "scripted"\nmodel_provider = "local"\ncheck_for_update_on_startup = false\n'
        f'[model_providers.local]\nname = "local"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
    )
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text(
        json.dumps(
            {
                "privacy": {"usageStatisticsEnabled": False},
                "general": {"disableAutoUpdate": True},
                "security": {"auth": {"selectedType": "gemini-api-key"}},
            }
        )
    )
    provider: dict[str, Any] = {
        "npm": "@ai-sdk/openai-compatible",
        "models": {"scripted": {"name": "scripted"}},
    }
    provider["options"] = {"baseURL": f"{url}/v1", "apiKey": "none"}
    opencode: dict[str, Any] = {
        "autoupdate": False,
        "share": "disabled",
        "provider": {"local": provider},
    }
    opencode |= {"model": "local/scripted", "small_model": "local/scripted"}
    (work / "opencode.json").write_text(json.dumps(opencode))
    return {
        "PATH": os.pathsep.join([_PROGRAMS, os.environ["PATH"]]),
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": "none",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }


@pytest.mark.parametrize("harness", LINES)
def test_a_session_of_a_harness_is_kept_once(
    harness: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    subprocess.run(["git", "init", "-q", "."], check=True)
    with scripted_model() as model:
        environment = configure(home, work, model.url)
        monkeypatch.setenv("HOME", str(home))
        with Tally.open(work / ".tally", background=False) as tally:
            tally.bind().remember("Herons nest at the staging server.", pinned=True)
        for form in FORMS[harness]:
            code, _, error = run_piped(
                "hook", "install", harness, "--scope", "user", "--form", form
            )
            assert code == 0, error
        ended = subprocess.run(
            LINES[harness],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert ANSWERED in ended.stdout, ended.stderr
    assert any("Herons nest" in text for text in model.asked), "the model was shown what is known"
    with Tally.open(work / ".tally", background=False) as tally:
        bound = tally.bind()
        # OpenCode puts the words of its command line into quotation marks.
        assert {text.strip('"'): times for text, times in turns(bound).items()} == {
            SAID: 1,
            ANSWERED: 1,
        }
        assert len(calls(bound)) == 1
        assert COMMAND in "".join(model.asked)
        told = {run.metadata.get("event") for run in bound.recordings.runs(limit=100)}
    assert {"prompt", "after-tool", "turn-end"} <= told
