"""The commands of the server: a tally over HTTP, and its dashboard in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

from tallystick.errors import InvalidInput
from tallystick.tally import Tally
from tallystick_cli.commands import Call, command
from tallystick_cli.output import print_json, print_view
from tallystick_cli.session import open_as_owner, require_person

_SOCKET = "serve.sock"
Rules = Annotated[str | None, "TOML file of the rules over tools, models and memory."]


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

    with open_as_owner(call.where, background=True, rules=rules) as owner:
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

    with open_as_owner(call.where, background=True, rules=rules) as owner:

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
