"""The `tally` command: read, recall and verify a tally from the terminal."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tallystick_cli.version import VERSION_LINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystick_cli.app import build_command

__all__ = ["build_command", "main"]

_MISUSE = 2


def main() -> None:
    """Run the command. The version and hooks are answered first, before what the other commands
    need is loaded; a server over standard input loads the core at its first call.
    """
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"{VERSION_LINE}\n")
        return
    if sys.argv[1:2] == ["hook"]:
        from tallystick_hooks.quick import answer

        code = answer(sys.argv[2:], _answer_here)
        if code is not None:
            sys.exit(code)
    from tallystick.loading import loading

    _require_extras()
    if "mcp" in sys.argv and find_spec("mcp") is not None:
        with loading():
            from tallystick_mcp.late_start import may_start_late, start_late

        if may_start_late(sys.argv[1:]):
            code = start_late()
            if code is not None:
                sys.exit(code)
    with loading():
        from tallystick_cli.app import main as run

    try:
        run()
    except SystemExit as ended:
        from tallystick_hooks.events import EVENTS
        from tallystick_hooks.quick import code_of_misuse

        if ended.code != _MISUSE or sys.argv[1:2] != ["hook"] or not {*EVENTS} & {*sys.argv[2:3]}:
            raise

        # A client takes this code of a hook for a refusal.
        sys.exit(code_of_misuse(sys.argv[2:]))


def __getattr__(name: str) -> Any:
    if name != "build_command":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _require_extras()
    from tallystick_cli.app import build_command

    return build_command


def _answer_here(arguments: Sequence[str], text: str | None, refusal: str | None) -> int:
    from tallystick_hooks.command import run

    return run(arguments, text, refusal)


def _require_extras() -> None:
    from tallystick.errors import require

    require("typer", extra="cli")
    require("rich", extra="cli")
