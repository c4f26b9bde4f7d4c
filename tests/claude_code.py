"""The Claude Agent SDK with a program that speaks the protocol of Claude Code, for tests."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, Message, ResultMessage, query

_SOURCE = Path(__file__).parent.parent / "examples" / "claude_sessions" / "scripted_claude.py"


def program_in(folder: Path) -> str:
    """Put the program of a scripted model into a folder; return its path. CLAUDE_CONFIG_DIR is to
    be the folder `home` in it.
    """
    program = folder / "claude"
    source = _SOURCE.read_text(encoding="utf-8")
    program.write_text(source.replace("/usr/bin/env python3", sys.executable), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (folder / "home").mkdir()
    return str(program)


async def say(
    program: str, prompt: str, script: dict[str, Any] | None = None, **options: Any
) -> list[Message]:
    """Send a prompt; return the messages that come."""
    chosen = ClaudeAgentOptions(
        cli_path=program,
        env={"SCRIPT": json.dumps(script or {})},
        cwd=Path(program).parent,
        **options,
    )
    return [each async for each in query(prompt=prompt, options=chosen)]


async def ask(
    program: str, prompt: str, script: dict[str, Any] | None = None, **options: Any
) -> ResultMessage:
    """Send a prompt; return its result."""
    result = (await say(program, prompt, script, **options))[-1]
    assert isinstance(result, ResultMessage)
    return result
