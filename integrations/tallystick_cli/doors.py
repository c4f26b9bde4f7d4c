"""Commands that open doors to a tally: server, dashboard, MCP and hooks, also in clients' files."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from tallystick.errors import InvalidInput
from tallystick.tally import Tally
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.output import print_json, print_view
from tallystick_cli.session import open_as_owner, require_person
from tallystick_hooks.clients import CLIENTS, Change, ClientScope, change_server, is_installed
from tallystick_hooks.events import PATHS, HookFormat
from tallystick_hooks.harnesses import HARNESSES
from tallystick_hooks.starting import check_command, check_server, place_for, program
from tallystick_hooks.wiring import Form, Wiring, other_form

_FORMATS = get_args(HookFormat)
Agent = Annotated[str | None, "The agent that acts for you, for the history."]
Rules = Annotated[str | None, "TOML file of the rules."]
ShowOnly = Annotated[bool, "Only show what would be written."]
Place = Annotated[
    ClientScope,
    typer.Option("--scope", help="To install: project, in this folder, or user."),
]


@command(
    helps={
        "action": "To serve, or to change a client's configuration.",
        "boundary": "Scope that it leads to, such as project:apollo; the first one is where it "
        "writes; by default your own.",
        "approval": "Who asks you before a change: the client that can (ask), or by itself, before "
        "each call of a tool (elsewhere).",
    },
    tally="place",
)
def mcp(
    call: Call,
    action: Literal["serve", "install", "uninstall"] = "serve",
    client: Annotated[str | None, f"To install: {', '.join(CLIENTS)}."] = None,
    /,
    stdio: Annotated[bool, "Serve over standard input and output: the default."] = False,
    http: Annotated[int | None, "Serve over HTTP on this port, with tokens."] = None,
    uds: Annotated[str | None, "Serve over the Unix socket at this path."] = None,
    boundary: tuple[str, ...] = (),
    agent: Agent = None,
    person: Annotated[bool, "Act as you: for a program of yours that is no model."] = False,
    approval: Literal["ask", "elsewhere"] = "ask",
    rules: Rules = None,
    place: Place = "project",
    show: ShowOnly = False,
) -> Answer | None:
    """Serve the tally to MCP clients, or put the server into a client's configuration."""
    if action != "serve":
        if client is None:
            raise InvalidInput(f"Name the client: {', '.join(CLIENTS)}.")
        arguments = ["--tally", place_for(call.where, place)]
        arguments += _option_words("--boundary", *boundary)
        arguments += ["--person"] if person else _option_words("--agent", agent or client)
        arguments += [] if approval == "ask" else ["--approval", approval]
        arguments += [] if rules is None else ["--rules", place_for(rules, place)]
        is_tried = action == "install" and not show
        start = program(place) if action == "install" else [sys.executable]
        line = [*start, "mcp", "--stdio", *arguments]
        change = change_server(client, place, line, remove=action == "uninstall")
        if is_tried:
            with open_as_owner(call.where, create=True, rules=rules):
                pass
            print_view(f"✓ the server starts, with {check_server(line)} tools", stderr=True)
        return _make([change], show)
    if client is not None:
        raise InvalidInput("tally mcp takes serve, or install and uninstall with a client.")
    if stdio and (http is not None or uds is not None):
        raise InvalidInput("Serve over standard input and output, or over HTTP.")
    if person and agent is not None:
        raise InvalidInput("With --person nobody acts as an agent: leave --agent out.")
    from tallystick_mcp import run_http, run_stdio, serve
    from tallystick_mcp.late_start import report_to

    pipe = report_to()
    with open_as_owner(call.where, create=True, background=pipe is None, rules=rules) as owner:
        actor = owner.actor if agent is None else owner.actor.replace(agent=agent)
        manner: Any = {"approval": approval, "person": person}
        manner["scopes"] = boundary or None
        if http is not None or uds is not None:

            def print_addresses(addresses: Iterable[str]) -> None:
                print_view(*(f"MCP at {address}" for address in addresses), stderr=True)

            run_http(
                owner.tally, uds=uds, port=http, local=actor, started=print_addresses, **manner
            )
            return None
        server = serve(owner.tally, actor=actor, **manner)
        if pipe is None:
            run_stdio(server)
            return None
        from tallystick_mcp.front import report

        report(pipe, server, tally=call.where, actor=actor, rules=rules, **manner)
    return None


@command(
    helps={
        "event": "session-start, prompt, before-tool, permission, after-tool, subagent-start, "
        "subagent-end, before-compact, after-compact, turn-end or session-end; or install, "
        "uninstall."
    },
    tally="place",
)
def hook(
    call: Call,
    event: str,
    client: Annotated[str | None, f"To install: {', '.join(HARNESSES)}."] = None,
    /,
    format: Annotated[str, f"The format of the input: {', '.join(_FORMATS)}."] = "neutral",
    boundary: Annotated[str | None, "Scope to work in; by default your private one."] = None,
    agent: Agent = None,
    rules: Rules = None,
    socket: Annotated[str | None, "Socket of `tally serve`; else that of the tally."] = None,
    via: Annotated[str | None, f"Where the hook is written down: {', '.join(PATHS)}."] = None,
    form: Annotated[Form | None, "To install: hooks, which are commands, or a plugin."] = None,
    place: Place = "project",
    show: ShowOnly = False,
) -> Answer | None:
    """Answer an event of an agent's session, as JSON, or put the hooks into a coding harness."""
    words = [*_option_words("--boundary", boundary), *_option_words("--agent", agent)]
    files = {"--rules": rules, "--socket": socket}
    if event in ("install", "uninstall"):
        start = program(place) if event == "install" else [sys.executable]
        files = {"--tally": call.where, **files}
        wiring = Wiring(client or "claude-code", place, start, words, files)
        if event == "install":
            return _install(call, wiring, form or wiring.form, show)
        return _uninstall(call, wiring, form, show)
    if client is not None:
        raise InvalidInput("tally hook takes a harness with install and uninstall alone.")
    from tallystick_hooks.command import run

    words += [part for option, file in files.items() for part in _option_words(option, file)]
    words += _option_words("--via", via)
    if code := run([event, "--format", format, "--tally", call.where, *words]):
        raise typer.Exit(code)
    return None


def _install(call: Call, wiring: Wiring, form: Form, show: bool) -> Answer:
    """Put hooks or a plugin into a harness; one form beside the other stays until it is taken
    out.
    """
    made, other = wiring.put_in(form), other_form(form)
    if not show:
        with open_as_owner(call.where, create=True, rules=wiring.files["--rules"]):
            pass
        check_command([*wiring.start, "hook", "--help"])
        faster = "While `tally serve` runs it answers the hooks, faster than each by itself."
        print_view("✓ the hooks start", faster, stderr=True)
        if is_installed(wiring.take_out(other)):
            again = f"tally hook uninstall {wiring.client} --form {other} --scope {wiring.place}"
            print_view(
                f"The {other} stay beside it: each event is kept once. After a session with the "
                f"new ones: {again}",
                stderr=True,
            )
    return _make(made, show)


def _uninstall(call: Call, wiring: Wiring, form: Form | None, show: bool) -> Answer:
    """Take out hooks, or one form of them, which waits for a session that the other has told of."""
    if form is None:
        return _make([*wiring.take_out("hooks"), *wiring.take_out("plugin")], show)
    taken = wiring.take_out(form)
    other = other_form(form)
    if not show and is_installed(taken) and is_installed(wiring.take_out(other)):
        with open_as_owner(call.where, create=True) as owner:
            if not wiring.is_used(other, owner):
                raise InvalidInput(
                    f"The {other} beside it told of no session yet, so that one would be lost. "
                    "Begin one first, or take out both: leave --form out."
                )
    return _make(taken, show)


def _option_words(option: str, *values: str | None) -> list[str]:
    return [part for value in values if value for part in (option, value)]


def _make(changes: Sequence[Change], show: bool) -> Answer:
    """Make changes of a configuration, unless they are only to be shown."""
    made = [_make_one(change, show) for change in changes]
    values = [each.value for each in made]
    lines = [line for each in made for line in each.view]
    return Answer(values[0] if len(values) == 1 else values, lines)


def _make_one(change: Change, show: bool) -> Answer:
    backup = None if change.backup.exists() else str(change.backup)
    if not show:
        change.write()
    is_written = bool(change.diff) and not show
    if backup is not None and not Path(backup).exists():
        backup = None
    lines = [change.diff.rstrip("\n") or f"{change.file} is as it should be."]
    done = "written" if change.file.exists() else "removed"
    lines += [f"✓ {done}: {change.file}"] if is_written else []
    lines += [] if backup is None else [f"The file as it was: {backup}"]
    facts = {"diff": change.diff, "written": is_written, "backup": backup}
    return Answer({"file": str(change.file), **facts}, lines)


_SOCKET = "serve.sock"


@command(tally="place")
def serve(
    call: Call,
    port: Annotated[int | None, "On this port, where every caller needs a token; 0 is any."] = None,
    uds: Annotated[str | None, "On the Unix socket at this path, which only you may open."] = None,
    host: Annotated[str, "The address of the port, such as 0.0.0.0."] = "127.0.0.1",
    name: Annotated[tuple[str, ...], "A name by which this server is reached."] = (),
    rules: Rules = None,
) -> None:
    """Serve the tally over HTTP until it is stopped (Ctrl-C, SIGTERM).

    Without --port and --uds it listens on a Unix socket in the tally's folder. There a caller
    without a token is the owner; on a port every caller has one, which `tally token make` makes.
    """
    from tallystick_server import serve as serve_tally

    with open_as_owner(call.where, create=True, background=True, rules=rules) as owner:
        tally = owner.tally

        def started(addresses: list[str]) -> None:
            if call.as_json:
                print_json({"state": "serving", "tally": tally.location, "addresses": addresses})
            else:
                print_view(*(f"Serving at {address}" for address in addresses), "Ctrl-C ends it.")

        serve_tally(
            tally,
            uds=uds if uds is not None or port is not None else str(socket_of(tally)),
            port=port,
            host=host,
            hosts=name,
            local=owner.actor,
            started=started,
        )


@command(tally="place")
def ui(
    call: Call,
    port: Annotated[int, "On this port of the loopback; 0 is any that is free."] = 0,
    browser: Annotated[bool, "Whether to open the browser."] = True,
    rules: Rules = None,
) -> None:
    """Open the dashboard in the browser: what agents knew and why, memory, approvals, health.

    The link works once. The session that it begins ends with the command (Ctrl-C).
    """
    require_person("tally ui")
    from tallystick_server import serve_dashboard

    with open_as_owner(call.where, create=True, background=True, rules=rules) as owner:

        def started(link: str) -> None:
            opened = browser and open_in_browser(link)
            if call.as_json:
                print_json({"state": "serving", "tally": owner.tally.location, "link": link})
                return
            once = [] if opened else ["Open it by this link, which works once:", link]
            address = link.partition("/enter")[0]
            print_view(f"The dashboard is at {address}", *once, "Ctrl-C ends it.")

        serve_dashboard(owner, port=port, started=started)


def open_in_browser(link: str) -> bool:
    """Open a link in the browser of this machine. Return False where there is none to open."""
    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False


def socket_of(tally: Tally) -> Path:
    """Return the socket at which a tally in a folder is served. Raises InvalidInput for another."""
    folder = Path(tally.location)
    if not folder.is_dir():
        raise InvalidInput("This tally has no folder for a socket. Give --uds PATH or --port.")
    return folder / _SOCKET
