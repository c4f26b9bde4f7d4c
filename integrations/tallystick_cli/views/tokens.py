"""Views of access tokens: who comes in with them, for what, until when."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from tallystick.records import AccessToken
from tallystick_cli.views.common import local_time, plain_table, short


def token_table(tokens: Iterable[AccessToken], now: int) -> Table:
    """Return tokens, one in a row, as they stand at `now`, microseconds UTC."""
    table = plain_table("id", "name", "class", "who", "good for", "until")
    for token in tokens:
        is_good = token.is_good_at(now)
        end = f"{'' if is_good else 'ended '}{local_time(token.revoked_at or token.expires_at)}"
        table.add_row(
            Text(short(token.id), style="cyan"),
            token.name,
            token.token_class,
            _who(token),
            _bounds(token),
            Text(end, style="" if is_good else "dim"),
        )
    return table


def token_line(token: AccessToken) -> Text:
    """Return what became of one token."""
    if token.revoked_at is not None:
        return Text(f"✓ {token.name} lets nobody in any more", style="green")
    return Text(
        f"✓ {token.name}: {token.token_class} token {short(token.id)} for {_who(token)}, "
        f"good for {_bounds(token)} until {local_time(token.expires_at)}",
        style="green",
    )


def _who(token: AccessToken) -> str:
    actor = token.actor
    role = " (operator)" if actor.role == "operator" else ""
    return f"{actor.user}{f' with {actor.agent}' if actor.agent else ''}{role}"


def _bounds(token: AccessToken) -> str:
    operations = "all" if token.operations is None else ", ".join(token.operations)
    scopes = "" if token.scopes is None else f" in {', '.join(map(str, token.scopes))}"
    return f"{operations}{scopes}"
