"""The `tally` command: its groups, who acts, help, and the one place where errors are printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
import typer.core

from tallystick.errors import TallystickError
from tallystick.loading import loading
from tallystick.tally.spellings import command_for
from tallystick_cli.commands import Command
from tallystick_cli.output import failure_of, line_of, print_failure, wants_json
from tallystick_cli.session import set_actor
from tallystick_cli.version import VERSION_LINE

GROUPS: Mapping[str, Mapping[str, str]] = {
    group: {name: file for file, names in files.items() for name in names.split()}
    for group, files in {
        "Everyday": {"setup": "init", "everyday": "remember recall memories explore wake pack"},
        "One memory": {
            "memory": "inspect history modify correct forget recover promote share working"
        },
        "Documents and sources": {"documents": "document source-import"},
        "Runs and receipts": {
            "doors": "ui",
            "runs": "runs show why trace uses diff recompile",
            "receipts": "verify receipt export-receipt tape keygen",
            "evidence": "evidence",
        },
        "Work": {"work": "task plan link aliases keep-apart"},
        "Synthesis": {"synthesis": "synthesize"},
        "Reflection and review": {"memory": "reflect reviews review"},
        "Policy and approvals": {
            "access": "approvals approve deny revoke spaces space preview-agent token freeze thaw"
        },
        "Stewardship": {
            "stewardship": "health alerts metrics events timeline repair rollback take-back "
            "backfill resume-autonomy compare analytics"
        },
        "Checkpoints of LangGraph": {"runs": "state verify-threads import-checkpoints"},
        "Upkeep": {
            "setup": "trust",
            "upkeep": "doctor purge erase erase-user prove backup restore migrate export import "
            "rebuild-index reembed jobs worker outbound",
            "foreign": "import-from export-to",
            "doors": "serve",
        },
        "Doors": {"doors": "mcp hook"},
        "About": {"app": "help"},
    }.items()
}
"""The commands by the group in which `tally --help` lists them, those reached for first on top, and
the file of each, which has a function of that name.
"""


_AS = "Who acts, where it is not the owner; a tally on PostgreSQL has none."
_VERSION = "Print the version."


def _print_version(value: bool) -> None:
    if value:
        typer.echo(VERSION_LINE)
        raise typer.Exit


def who(
    context: typer.Context,
    user: Annotated[str | None, typer.Option("--as", envvar="TALLYSTICK_AS", help=_AS)] = None,
    project: Annotated[
        list[str] | None, typer.Option("--project", help="A project of theirs; repeatable.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help=_VERSION)
    ] = False,
) -> None:
    """Say who acts."""
    set_actor(user, project or ())
    if context.invoked_subcommand is None:
        context.get_help()


def help(
    context: typer.Context,
    command: Annotated[str | None, typer.Argument(help="A command; by default all.")] = None,
) -> None:
    """Show the commands, or the options of one."""
    group: Any = context.parent
    if command is None:
        group.get_help()
        return
    name, subcommand, _ = group.command.resolve_command(group, [command])
    subcommand.make_context(name, ["--help"], parent=group)


_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}


class _Commands(Mapping[str, Any]):
    """The commands by name, each loaded and built when it is asked for: a server keeps what its
    process has loaded for as long as it runs, and one command needs none of the others.
    """

    def __iter__(self) -> Iterator[str]:
        return iter(_GROUP_OF)

    def __len__(self) -> int:
        return len(_GROUP_OF)

    def __getitem__(self, name: str) -> Any:
        return _build_command(name)


@cache
def _build_command(name: str) -> Any:
    group, attribute = _GROUP_OF[name], name.replace("-", "_")
    with loading():
        file = import_module(f"tallystick_cli.{GROUPS[group][name]}")
    command = getattr(file, f"{attribute}_" if iskeyword(attribute) else attribute)
    command = command.build() if isinstance(command, Command) else command
    app = typer.Typer(add_completion=False)
    help = " ".join((command.__doc__ or "").split())
    app.command(name, help=help, rich_help_panel=group)(command)
    return typer.main.get_command(app)


class _Group(typer.core.TyperGroup):
    """The group of commands, which answers the name of another memory's verb with ours."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        spelling = command_for(args[0])
        if spelling is None or args[0] in self.commands:
            return super().resolve_command(ctx, args)
        command: Any = self.commands[spelling]
        line = line_of(typer.Context(command, info_name=spelling, parent=ctx))
        ctx.fail(f"No such command {args[0]!r}. Write: {line}")


@cache
def build_command() -> Any:
    """Return the group of commands, of which each is built once in a process."""
    app = typer.Typer(
        cls=_Group,
        help="Memory, context and receipts of agents.",
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(who)
    group: Any = typer.main.get_command(app)
    group.commands = _Commands()
    return group


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
