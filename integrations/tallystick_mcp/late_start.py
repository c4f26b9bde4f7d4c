"""A late start: `tally mcp` over standard input loads the core of its server at the first call.

Python never gives back what it has loaded, and a client keeps a server for each of its windows, of
which most are asked nothing. So the command runs in a child of the process: it opens the tally,
refuses what is to be refused, reports what the server answers before its first call, and ends. The
process itself has loaded the SDK meanwhile, and serves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

_OPTIONS_OF_ALL = ("--as", "--project")
"""Options that come before the command, each with a value."""
_NOT_OVER_STDIO = ("install", "uninstall", "--http", "--uds", "--help")

_pipe: int | None = None


def may_start_late(arguments: Sequence[str]) -> bool:
    """Return True if the arguments serve MCP over standard input, where there is `fork`."""
    rest = list(arguments)
    while rest and rest[0].partition("=")[0] in _OPTIONS_OF_ALL:
        rest = rest[1:] if "=" in rest[0] else rest[2:]
    if rest[:1] != ["mcp"] or not hasattr(os, "fork"):
        return False
    return not any(each.partition("=")[0] in _NOT_OVER_STDIO for each in rest)


def start_late() -> int | None:
    """Return None in a child, which goes on as the command; here the exit code, after serving."""
    global _pipe
    read, write = os.pipe()
    child = os.fork()  # Before any thread: what is loaded until here has none.
    if child == 0:
        os.close(read)
        _pipe = write
        return None
    os.close(write)
    try:
        from tallystick_mcp.front import run

        with open(read, encoding="utf-8") as pipe:
            start = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0 and start:
            run(json.loads(start))
    except KeyboardInterrupt:
        return 130
    return 128 - code if code < 0 else code


def report_to() -> int | None:
    """Return the pipe to the process that serves, in the child that is to report to it."""
    return _pipe
