"""Commands of governance: copy a memory to other scopes, prove that it is gone, suspend every
change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import typer
from rich.text import Text

from tallystick_cli import views
from tallystick_cli.options import (
    Apply,
    AsJson,
    Into,
    Key,
    MemoryId,
    Reason,
    Token,
    Where,
)
from tallystick_cli.output import print_json, print_result, print_view
from tallystick_cli.session import id_of, open_as_owner
from tallystick_cli.table_help import help_of


def promote(
    memory: MemoryId,
    into: Into,
    reason: Reason,
    apply: Apply = False,
    token: Token = None,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Preview a copy of a memory into another scope, and who would read it; with --apply and the
    --token make it.
    """
    _cross("promote", memory, into, reason, apply, token, key, where, as_json)


def share(
    memory: MemoryId,
    into: Into,
    reason: Reason,
    apply: Apply = False,
    token: Token = None,
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Same as promote, for a copy that says what its origin says and is withdrawn when that
    goes.
    """
    _cross("share", memory, into, reason, apply, token, key, where, as_json)


def _cross(
    operation: Literal["promote", "share"],
    memory: str,
    into: str,
    reason: str,
    apply: bool,
    token: str | None,
    key: str | None,
    where: str,
    as_json: bool,
) -> None:
    with open_as_owner(where) as owner:
        crossing = getattr(owner, operation)(
            id_of(memory),
            into,
            reason=reason,
            mode="apply" if apply else "preview",
            confirm_token=token,
            idempotency_key=key,
        )
    print_result(crossing, views.crossing_view, as_json=as_json)


def prove(
    memory: MemoryId,
    text: Annotated[
        str | None,
        typer.Option("--text", help=help_of("prove_erased", "text")),
    ] = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Prove that a forgotten memory is reached by nothing, an erased one held by nothing. Exits
    with 1 if it is.
    """
    with open_as_owner(where) as owner:
        name = id_of(memory)
        erased = any(entry.event == "ERASE" for entry in owner.inspect(name).history)
        proof = (
            owner.operator.prove_erased(name, text=text)
            if erased or text is not None
            else owner.operator.prove_unreachable(name)
        )
    print_result(proof, views.proof_view, as_json=as_json)
    if not proof.holds:
        raise typer.Exit(1)


What = Annotated[
    Literal["mutations", "autonomy"], typer.Option("--what", help=help_of("freeze", "what"))
]


def freeze(
    reason: Reason,
    what: What = "mutations",
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Suspend every change of memory, or autonomous work alone, until `tally thaw`."""
    with open_as_owner(where) as owner:
        owner.operator.freeze(reason=reason, what=what, idempotency_key=key)
    if as_json:
        print_json({"frozen": True, "what": what, "reason": reason})
        return
    text = (
        "✓ nothing is changed until you thaw it: tally thaw --reason …"
        if what == "mutations"
        else "✓ nothing is learned until you thaw it: tally thaw --what autonomy --reason …"
    )
    print_view(Text(text, style="green"))


def thaw(
    reason: Reason,
    what: What = "mutations",
    key: Key = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Let memory be changed again, or autonomous work go on."""
    with open_as_owner(where) as owner:
        owner.operator.thaw(reason=reason, what=what, idempotency_key=key)
    if as_json:
        print_json({"frozen": False, "what": what, "reason": reason})
        return
    text = "memory may be changed again" if what == "mutations" else "autonomous work goes on"
    print_view(Text(f"✓ {text}", style="green"))


COMMANDS: Mapping[str, Callable[..., None]] = {
    "promote": promote,
    "share": share,
    "prove": prove,
    "freeze": freeze,
    "thaw": thaw,
}
