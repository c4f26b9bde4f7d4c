"""An agent of the Claude Agent SDK whose session outlives the machine it began on.

Each conversation is held on a disk of its own. The second goes on with the session of the first:
its transcript comes from the tally, and a rule keeps a tool from running. The third is a new
session, and the hooks bring what the user said before.

    python -m examples.claude_sessions
    python -m examples.claude_sessions --real
"""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    list_sessions_from_store,
    query,
)
from examples.running import OPERATOR, check_receipts, example_options

from tallystick import Actor, PolicyRule, Tally
from tallystick_claude_agent import TallyHooks, TallySessionStore

ANNA = Actor(user="anna")
RULE = PolicyRule.load(
    {
        "id": "no-push",
        "name": "Nothing is pushed by force",
        "effect": "deny",
        "applies_to": "tool_call",
        "conditions": {"tool": ["Bash"]},
    }
)
_PUSHES = {"calls": [{"name": "Bash", "input": {"command": "git push --force"}}]}
"""What the model of the scripted program calls."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Have a conversation, and go on with it where its disk is gone."""
    parser = example_options(__doc__)
    parser.add_argument("--real", action="store_true", help="use Claude Code, with your account")
    options = parser.parse_args(arguments)
    with Tally.open(options.tally, owner=OPERATOR, rules=[RULE]) as tally:
        asyncio.run(_converse(tally, is_real=options.real))
        print(f"\n{check_receipts(tally)}")


async def _converse(tally: Tally, *, is_real: bool) -> None:
    anna = tally.bind(ANNA)
    store, hooks = TallySessionStore(anna), TallyHooks(anna).hooks()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        work.mkdir()
        session: str | None = None
        talks = [
            ("My staging server is called heron.", False, {}),
            ("Push it to the staging server.", True, _PUSHES),
            ("What is my staging server called?", False, {}),
        ]
        for number, (prompt, resumes, script) in enumerate(talks):
            disk = Path(folder) / f"disk-{number}"
            disk.mkdir()
            given: dict[str, Any] = {"session_store": store, "hooks": hooks, "cwd": work}
            if not is_real:
                given |= {
                    "cli_path": _scripted(disk),
                    "env": {
                        "CLAUDE_CONFIG_DIR": str(disk),
                        "SCRIPT": json.dumps(script),
                    },
                }
            chosen = ClaudeAgentOptions(resume=session if resumes else None, **given)
            async for message in query(prompt=prompt, options=chosen):
                if isinstance(message, ResultMessage):
                    session = message.session_id
                    print(f"> {prompt}\n{message.result}\n")
        for each in await list_sessions_from_store(store, directory=str(work)):
            print(f"The store has the session {each.session_id[:8]}: {each.summary}")


def _scripted(disk: Path) -> str:
    """Return a program that stands for Claude Code."""
    program = disk / "claude"
    source = Path(__file__).with_name("scripted_claude.py").read_text(encoding="utf-8")
    program.write_text(source.replace("/usr/bin/env python3", sys.executable), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


if __name__ == "__main__":
    main()
