"""Hooks and tools of an agent while its server is killed and started again: what is told as done is
done, an agent is never stopped by a broken hook, and no tool runs past rules that nobody checked.

Small in every run of the tests, minutes in `make soak`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tallystick import Tally
from tallystick.errors import TallystickError
from tallystick_server import RemoteTally

from .test_server_processes import OWNER, process, where

__all__ = ["where"]

_HOOK = [sys.executable, "-m", "tallystick_hooks.command"]
_MOST_CALLS = 2_000
"""Calls of tools in the life of one server, which ends before."""
_RULES: list[dict[str, Any]] = [
    {
        "id": "no",
        "name": "No force",
        "effect": "deny",
        "applies_to": "tool_call",
        "conditions": {"tool": ["force_push"]},
    }
]


def _hook(place: Path, event: str, *options: str, **payload: Any) -> tuple[int, str]:
    """Answer one event as an agent has it answered: as a process."""
    done = subprocess.run(
        [*_HOOK, event, "--tally", str(place), *options],
        input=json.dumps({"session": "s1", **payload}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


@pytest.mark.slow
def test_hooks_and_tools_succeed_while_their_server_is_killed_and_started_again(
    where: Path,
) -> None:
    is_soak = settings().max_examples > 100
    lives, hooks_a_life = (12, 12) if is_soak else (2, 3)
    chance = random.Random(7)
    rules = where.parent / "rules.json"
    rules.write_text(json.dumps(_RULES))
    asked = answered = 0
    stored: dict[str, str] = {}
    cut_off: list[str] = []

    def call_tools(life: int) -> None:
        """Remember and recall through the server, until it is gone."""
        nonlocal asked, answered
        with RemoteTally.connect(f"unix:{where / 'serve.sock'}", attempts=1) as remote:
            for number in range(_MOST_CALLS):
                text = f"Life {life} saw heron {number}."
                asked += 1
                try:
                    stored[remote.remember(text, idempotency_key=text).id] = text
                except TallystickError:
                    cut_off.append(text)
                    return
                answered += 1

    for life in range(lives):
        with process(where) as server:
            caller = threading.Thread(target=call_tools, args=(life,))
            caller.start()
            for number in range(hooks_a_life):
                asked += 3
                code, answer = _hook(where, "prompt", prompt=f"Which heron {number}?")
                answered += code == 0 and bool(json.loads(answer))
                code, _ = _hook(where, "after-tool", tool="ls", call_id=f"{life}-{number}")
                answered += code == 0
                # The rules of a file hold whether a server is there or not.
                call = {"tool": "force_push", "call_id": f"f{life}-{number}"}
                code, answer = _hook(where, "before-tool", "--rules", str(rules), **call)
                assert code == 2, "a denied tool ran"
                answered += json.loads(answer)["decision"] == "deny"
            if chance.random() < 0.5:
                os.kill(server.pid, signal.SIGKILL)
            else:
                server.send_signal(signal.SIGTERM)
            caller.join()
            server.wait(timeout=60)
        # Between two lives there is no server: the command answers by itself, and leaves the agent
        # alone where it cannot.
        asked += 1
        code, _ = _hook(where, "prompt", prompt="Which heron?")
        answered += code == 0
        broken = where.parent / "nowhere"
        assert _hook(broken, "prompt", prompt="Which heron?")[0] == 0, "a hook stopped the agent"
        assert _hook(broken, "before-tool", "--rules", str(rules), tool="ls")[0] == 2

    # What was cut off is asked for again with its key, and is there once.
    with process(where), RemoteTally.connect(f"unix:{where / 'serve.sock'}") as remote:
        for text in cut_off:
            stored[remote.remember(text, idempotency_key=text).id] = text
            answered += 1
    assert len(set(stored.values())) == len(stored)
    assert answered >= 0.99 * asked, f"{answered} of {asked}"
    with Tally.open(where, background=False) as tally:
        mine = tally.bind(OWNER)
        for memory_id, text in stored.items():
            assert mine.get(memory_id).content == text
        assert all(finding.status != "problem" for finding in mine.operator.doctor())
