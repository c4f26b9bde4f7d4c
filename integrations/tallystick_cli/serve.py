"""The commands of the server: a tally over HTTP, on a socket of this user, on a port, or on both;
and its dashboard, in the browser.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from tallystick.errors import InvalidInput
from tallystick.tally import Tally
from tallystick_cli.options import AsJson, Where
from tallystick_cli.output import print_json, print_view
from tallystick_cli.person import require_person
from tallystick_cli.session import open_as_owner

_SOCKET = "serve.sock"
Rules = Annotated[
    str | None,
    typer.Option(
        "--rules", metavar="FILE", help="TOML file of the rules over tools, models and memory."
    ),
]


def serve(
    port: Annotated[
        int | None,
        typer.Option("--port", help="On this port, where every caller needs a token; 0 is any."),
    ] = None,
    uds: Annotated[
        str | None,
        typer.Option("--uds", metavar="PATH", help="On this Unix socket, which only you may open."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="The address of the port, such as 0.0.0.0.")
    ] = "127.0.0.1",
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="A name by which this server is reached; repeatable."),
    ] = None,
    rules: Rules = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Serve the tally over HTTP until it is stopped (Ctrl-C, SIGTERM).

    Without --port and --uds it listens on a Unix socket in the tally's folder. There a caller
    without a token is the owner; on a port every caller has one, which `tally token make` makes.
    """
    from tallystick_server import serve as serve_tally

    with open_as_owner(where, background=True, rules=rules) as owner:
        tally = owner.tally
        socket = uds if uds is not None or port is not None else str(socket_of(tally))

        def started(addresses: list[str]) -> None:
            if as_json:
                print_json({"state": "serving", "tally": tally.location, "addresses": addresses})
                return
            from rich.text import Text

            for address in addresses:
                print_view(Text.assemble("Serving at ", (address, "cyan")))
            print_view(Text("Ctrl-C ends it.", style="dim"))

        serve_tally(
            tally,
            uds=socket,
            port=port,
            host=host,
            hosts=name or (),
            local=owner.actor,
            started=started,
        )


def ui(
    port: Annotated[
        int, typer.Option("--port", help="On this port of the loopback; 0 is any that is free.")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open the browser.")
    ] = True,
    rules: Rules = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Open the dashboard in the browser: what agents knew and why, memory, approvals, health.

    The link works once. The session that it begins ends with the command (Ctrl-C).
    """
    require_person("tally ui")
    from tallystick_server import serve_dashboard

    with open_as_owner(where, background=True, rules=rules) as owner:

        def started(link: str) -> None:
            opened = browser and open_in_browser(link)
            if as_json:
                print_json({"state": "serving", "tally": owner.tally.location, "link": link})
                return
            from rich.text import Text

            address = link.partition("/enter")[0]
            print_view(Text.assemble("The dashboard is at ", (address, "cyan")))
            if not opened:
                print_view(Text("Open it by this link, which works once:", style="dim"))
                print_view(Text(link, style="cyan", overflow="fold"))
            print_view(Text("Ctrl-C ends it.", style="dim"))

        serve_dashboard(owner, port=port, started=started)


def open_in_browser(link: str) -> bool:
    """Open a link in the browser of this machine. Return False where there is none to open."""
    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False


def socket_of(tally: Tally) -> Path:
    """Return the Unix socket at which a tally in a folder is served by default. Raises
    InvalidInput for one on PostgreSQL, which has no folder.
    """
    folder = Path(tally.location)
    if not folder.is_dir():
        raise InvalidInput("This tally has no folder for a socket. Give --uds PATH or --port.")
    return folder / _SOCKET


COMMANDS: Mapping[str, Callable[..., None]] = {"ui": ui, "serve": serve}
