"""Failures of a command: a line for a person, or one JSON object for a program.

Exit codes: 0, done; 1, done and something does not match, or a person said no; 2, refused or
failed; 3, a page that does not match the record in it; 130, interrupted. With `--json` standard
output has the one object `{"error": {"code", "message", "facts"}}`, and standard error stays empty.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Any

import typer

from tallystick.errors import TallystickError
from tallystick.operations import error_json
from tallystick_cli.output import print_json, print_view

_REMEDIES = {
    "unverified_membership": " Here: tally --project NAME and the command.",
    "principal_mismatch": " Here: tally --as USER and the command.",
    "missing_actor": " Here: tally --as USER and the command.",
}
"""What a person at a terminal may do, by the reason of a refusal."""


@dataclass(frozen=True)
class Failure:
    """A failure, as it is printed."""

    code: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)
    usage: str | None = None
    """The line that says how the command is written."""
    exit_code: int = 2


def wants_json(arguments: list[str]) -> bool:
    """Return True if the command that these arguments call is to print JSON."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def failure_of(error: TallystickError | OSError | typer.TyperException | typer.Abort) -> Failure:
    """Return what is printed about an error."""
    if isinstance(error, TallystickError):
        described = error_json(error)
        remedy = _REMEDIES.get(getattr(error, "reason", ""), "")
        return Failure(described["code"], described["message"] + remedy, described["facts"])
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        file = None if error.filename is None else str(error.filename)
        name = None if error.errno is None else errno.errorcode.get(error.errno)
        message = reason if file is None else f"{file}: {reason}"
        return Failure("os_error", f"{message}.", {"errno": name, "file": file})
    if isinstance(error, typer.TyperException):
        return _usage_failure(error)
    return Failure("aborted", "Nothing was done.", exit_code=1)


def print_failure(failure: Failure, *, as_json: bool) -> None:
    """Print a failure: as JSON on standard output, else for a person on standard error."""
    if as_json:
        facts = {"code": failure.code, "message": failure.message, "facts": failure.facts}
        print_json({"error": facts})
        return
    style = "red" if failure.exit_code > 1 else "yellow"
    print_view(f"tally: {failure.message}", style=style, stderr=True)
    if failure.usage is not None:
        print_view(failure.usage, style="dim", stderr=True)


def _usage_failure(error: typer.TyperException) -> Failure:
    """Return the failure of a command that was written wrongly, with how it is written."""
    context: Any = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split())
    if not message.endswith((".", "?", "!")):
        message += "."
    if context is None:
        return Failure("usage", message)
    option = getattr(error, "option_name", None)
    commands = context.command.commands.values() if context.parent is None else ()
    if any(option in each.opts for command in commands for each in command.params):
        message += f" {option} comes after the command: tally COMMAND {option}."
    path = context.command_path.removeprefix("tally").strip()
    usage = f"{context.get_usage()}\nAll options: tally help {path}".strip()
    return Failure("usage", message, {"command": path or None}, usage)
