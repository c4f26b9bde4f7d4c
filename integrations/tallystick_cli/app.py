"""The `tally` command: its groups, who acts, help, and the one place where errors are printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any

import typer

from tallystick import __version__
from tallystick.errors import TallystickError
from tallystick_cli import (
    approvals,
    checkpoints,
    doors,
    everyday,
    foreign,
    governance,
    jobs,
    memory,
    receipts,
    reviews,
    runs,
    serve,
    setup,
    spaces,
    tokens,
    upkeep,
)
from tallystick_cli.failures import failure_of, print_failure, wants_json
from tallystick_cli.session import set_actor
from tallystick_cli.surface import command_help

__all__ = ["GROUPS", "app", "main"]

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Everyday": ("init", "remember", "recall", "memories", "explore", "wake", "pack"),
    "One memory": (
        "inspect",
        "history",
        "modify",
        "correct",
        "forget",
        "recover",
        "promote",
        "share",
    ),
    "Runs and receipts": (
        "ui",
        "runs",
        "show",
        "why",
        "trace",
        "uses",
        "diff",
        "recompile",
        "verify",
        "receipt",
        "export-receipt",
        "tape",
        "keygen",
    ),
    "Reflection and review": ("reflect", "reviews", "review"),
    "Policy and approvals": (
        "approvals",
        "approve",
        "deny",
        "revoke",
        "spaces",
        "space",
        "preview-agent",
        "token",
        "freeze",
        "thaw",
    ),
    "Checkpoints of LangGraph": ("state", "verify-threads", "import-checkpoints"),
    "Upkeep": (
        "doctor",
        "serve",
        "jobs",
        "worker",
        "outbound",
        "purge",
        "erase",
        "prove",
        "backup",
        "restore",
        "migrate",
        "export",
        "import",
        "import-from",
        "export-to",
        "rebuild-index",
    ),
    "Doors": ("mcp", "hook"),
    "About": ("help",),
}
"""The commands by the group in which `tally --help` lists them, those reached for first on top."""

app = typer.Typer(
    help="Memory, context and receipts of agents.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"tallystick {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def who(
    context: typer.Context,
    user: Annotated[
        str | None,
        typer.Option(
            "--as",
            envvar="TALLYSTICK_AS",
            help="Who acts, where it is not the owner; a tally on PostgreSQL has none.",
        ),
    ] = None,
    project: Annotated[
        list[str] | None, typer.Option("--project", help="A project of theirs; repeatable.")
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Say who acts."""
    set_actor(user, project or ())
    if context.invoked_subcommand is None:
        context.get_help()


def help_(
    context: typer.Context,
    command: Annotated[str | None, typer.Argument(help="A command; by default all.")] = None,
) -> None:
    """Show the commands, or the options of one."""
    group: Any = context.parent
    if command is None:
        group.get_help()
        return
    name, found, _ = group.command.resolve_command(group, [command])
    found.make_context(name, ["--help"], parent=group)


_COMMANDS: Mapping[str, Callable[..., None]] = {
    **setup.COMMANDS,
    **everyday.COMMANDS,
    **memory.COMMANDS,
    **governance.COMMANDS,
    **runs.COMMANDS,
    **receipts.COMMANDS,
    **reviews.COMMANDS,
    **approvals.COMMANDS,
    **spaces.COMMANDS,
    **tokens.COMMANDS,
    **checkpoints.COMMANDS,
    **jobs.COMMANDS,
    **serve.COMMANDS,
    **upkeep.COMMANDS,
    **foreign.COMMANDS,
    **doors.COMMANDS,
    "help": help_,
}

for _group, _names in GROUPS.items():
    for _name in _names:
        _command = _COMMANDS[_name]
        _help = command_help(_name) or " ".join((_command.__doc__ or "").split())
        app.command(_name, help=_help, rich_help_panel=_group)(_command)


@cache
def build_command() -> Any:
    """Return the group of commands, which is built once in a process: that takes longer than most
    commands.
    """
    return typer.main.get_command(app)


def main() -> None:
    """Run the command. An error of Tallystick, of a file or of what was typed becomes one line or,
    with --json, one JSON object.
    """
    try:
        code = build_command()(standalone_mode=False)
    except (TallystickError, OSError, typer.TyperException, typer.Abort) as error:
        failure = failure_of(error)
        print_failure(failure, as_json=wants_json(sys.argv[1:]))
        code = failure.exit_code
    if isinstance(code, int) and code:
        sys.exit(code)
