"""The commands that open doors to a tally: the MCP server, hooks, and their places in the
configuration of clients.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from tallystick.errors import InvalidInput
from tallystick_cli.late_start import report_to
from tallystick_cli.options import AsJson, Where
from tallystick_cli.output import print_json, print_view
from tallystick_cli.session import open_as_owner

Answers = Literal["structured", "text"]
Boundaries = Annotated[
    list[str] | None,
    typer.Option(
        "--boundary",
        help="Scope that it leads to, such as project:apollo; repeatable, the first one is where "
        "it writes; by default your own.",
    ),
]
Agent = Annotated[
    str | None, typer.Option("--agent", help="The agent that acts for you, for the history.")
]
Rules = Annotated[
    str | None,
    typer.Option("--rules", metavar="FILE", help="TOML file of the rules over tools."),
]
InScope = Annotated[
    str, typer.Option("--scope", help="To install: project, in this folder, or user.")
]
ShowOnly = Annotated[bool, typer.Option("--show", help="Show what would be written, alone.")]


def mcp(
    action: Annotated[
        str, typer.Argument(metavar="ACTION", help="serve, install or uninstall.")
    ] = "serve",
    client: Annotated[
        str | None,
        typer.Argument(
            metavar="CLIENT", help="To install: claude-code, codex, cursor, vscode or zed."
        ),
    ] = None,
    where: Where = ".tally",
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve over standard input and output: the default.")
    ] = False,
    http: Annotated[
        int | None, typer.Option("--http", metavar="PORT", help="Serve over HTTP, with tokens.")
    ] = None,
    uds: Annotated[
        str | None, typer.Option("--uds", metavar="PATH", help="Serve over a Unix socket.")
    ] = None,
    boundary: Boundaries = None,
    agent: Agent = None,
    rules: Rules = None,
    answers: Annotated[
        str,
        typer.Option("--answers", help="structured, or text for clients that show nothing else."),
    ] = "structured",
    scope: InScope = "project",
    show: ShowOnly = False,
    as_json: AsJson = False,
) -> None:
    """Serve the tally to MCP clients, or put the server into a client's configuration."""
    if action in ("install", "uninstall"):
        from tallystick_cli.clients import CLIENTS, change_server

        if client is None:
            raise InvalidInput(f"Name the client: {', '.join(CLIENTS)}.")
        judged = [] if rules is None else ["--rules", _absolute(rules)]
        command = [_program(), "mcp", "--stdio", *_place(where, boundary, agent, scope), *judged]
        change = change_server(client, _checked(scope), command, remove=action == "uninstall")
        _make(change, show, as_json)
        return
    if action != "serve" or client is not None:
        raise InvalidInput("tally mcp takes serve, or install and uninstall with a client.")
    if stdio and (http is not None or uds is not None):
        raise InvalidInput("Serve over standard input and output, or over HTTP.")
    if answers not in get_args(Answers):
        raise InvalidInput("--answers takes structured or text.")
    form: Answers = "text" if answers == "text" else "structured"
    from tallystick_mcp import run_http, run_stdio, serve

    pipe = report_to()
    with open_as_owner(where, background=pipe is None, rules=rules) as owner:
        actor = owner.actor if agent is None else owner.actor.replace(agent=agent)
        if http is None and uds is None:
            server = serve(owner.tally, actor=actor, scopes=boundary, answers=form)
            if pipe is None:
                run_stdio(server)
                return
            from tallystick_mcp.front import report

            report(
                pipe,
                server,
                tally=where,
                actor=actor,
                scopes=boundary,
                rules=rules,
                answers=form,
            )
            return
        run_http(
            owner.tally,
            uds=uds,
            port=http,
            local=actor,
            scopes=boundary,
            answers=form,
            started=_print_addresses,
        )


def hook(
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT",
            help="session-start, prompt, before-tool, after-tool, before-compact, after-compact, "
            "turn-end or session-end; or install, uninstall.",
        ),
    ],
    where: Where = ".tally",
    format: Annotated[
        str, typer.Option("--format", help="The format of the input: neutral or claude-code.")
    ] = "neutral",
    boundary: Annotated[
        str | None,
        typer.Option("--boundary", help="Scope to work in; by default your private one."),
    ] = None,
    agent: Agent = None,
    rules: Rules = None,
    socket: Annotated[
        str | None,
        typer.Option(
            "--socket", metavar="PATH", help="Socket of `tally serve`; else that of the tally."
        ),
    ] = None,
    scope: InScope = "project",
    show: ShowOnly = False,
    as_json: AsJson = False,
) -> None:
    """Answer an event of an agent's session, as JSON, or put the hooks into Claude Code."""
    from tallystick_hooks.command import run

    options = {"--boundary": boundary, "--agent": agent}
    given = [part for name, value in options.items() if value for part in (name, value)]
    files = {"--rules": rules, "--socket": socket}
    if event in ("install", "uninstall"):
        from tallystick_cli.clients import change_hooks

        def command(name: str) -> str:
            line = shlex.join([_program(), "hook", name, "--format", "claude-code", *given])
            places = {"--tally": where, **files}
            return line + "".join(
                f" {option} {_place_in_shell(place, scope)}"
                for option, place in places.items()
                if place
            )

        _make(change_hooks(_checked(scope), command, remove=event == "uninstall"), show, as_json)
        return
    given += [part for name, value in files.items() if value for part in (name, value)]
    code = run([event, "--format", format, "--tally", where, *given])
    if code:
        raise typer.Exit(code)


def _print_addresses(addresses: list[str]) -> None:
    from tallystick_cli.terminal import Terminal

    for address in addresses:
        Terminal(stderr=True).print(f"MCP at {address}", soft_wrap=True)


def _checked(scope: str) -> Literal["project", "user"]:
    if scope == "project":
        return "project"
    if scope == "user":
        return "user"
    raise InvalidInput("--scope takes project or user.")


def _program() -> str:
    """Return the program to write into a configuration: where it is not on the path, in full."""
    return "tally" if shutil.which("tally") else str(Path(sys.argv[0]).absolute())


def _absolute(where: str) -> str:
    return where if "://" in where else str(Path(where).absolute())


def _place_in_shell(where: str, scope: str) -> str:
    """Return a place for the line of a hook, whose working folder follows the agent's."""
    if scope == "project" and "://" not in where and not Path(where).is_absolute():
        return f'"$CLAUDE_PROJECT_DIR"/{shlex.quote(where)}'
    return shlex.quote(_absolute(where))


def _place(where: str, boundary: list[str] | None, agent: str | None, scope: str) -> list[str]:
    place = ["--tally", _absolute(where) if scope == "user" else where]
    place += [part for name in boundary or () for part in ("--boundary", name)]
    return place + ([] if agent is None else ["--agent", agent])


def _make(change: object, show: bool, as_json: bool) -> None:
    """Show a change of a configuration, and make it."""
    from tallystick_cli.clients import Change

    assert isinstance(change, Change)
    existed = change.backup.exists()
    if not show:
        change.write()
    backup = change.backup if change.backup.exists() and not existed else None
    if as_json:
        print_json(
            {
                "file": str(change.file),
                "diff": change.diff,
                "written": bool(change.diff) and not show,
                "backup": None if backup is None else str(backup),
            }
        )
        return
    from rich.text import Text

    print_view(Text(change.diff.rstrip("\n") or f"{change.file} is as it should be."))
    if change.diff and not show:
        print_view(Text(f"✓ written: {change.file}", style="green"))
    if backup is not None:
        print_view(Text(f"The file as it was: {backup}", style="dim"))


COMMANDS: Mapping[str, Callable[..., None]] = {"mcp": mcp, "hook": hook}
