"""The commands that open doors to a tally: the MCP server, and its place in a client's
configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import typer

from tallystick_cli.options import Where
from tallystick_cli.session import open_as_owner

__all__ = ["COMMANDS"]

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
    str | None,
    typer.Option("--agent", help="The agent that acts for you, as the history names it."),
]


def mcp(
    where: Where = ".tally",
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve over standard input and output: the default.")
    ] = False,
    boundary: Boundaries = None,
    agent: Agent = None,
    answers: Annotated[
        Answers,
        typer.Option("--answers", help="text for clients that show their models nothing else."),
    ] = "structured",
) -> None:
    """Serve the tally to MCP clients."""
    from tallystick_mcp import serve
    from tallystick_mcp.transports import run_stdio

    with open_as_owner(where, background=True) as owner:
        actor = owner.actor if agent is None else owner.actor.replace(agent=agent)
        run_stdio(serve(owner.tally, actor=actor, scopes=boundary, answers=answers))


COMMANDS: Mapping[str, Callable[..., None]] = {"mcp": mcp}
