"""RemoteBinder: the binder of a piece on a tally that is elsewhere, where a token says who acts."""

from __future__ import annotations

from typing import Any

from tallystick.errors import InvalidInput
from tallystick.kit.arguments import check_scope
from tallystick.kit.binder import ActorSource, Binder, named_actor, refuse_other
from tallystick.kit.elsewhere import TallyElsewhere
from tallystick.records import Actor, CallContext, Scope
from tallystick.tally import BoundTally, Tally


class RemoteBinder:
    """Gives each call of one piece the tally behind a server. Thread-safe."""

    is_fixed = True
    """Every call has the same actor, whatever it carries."""

    def __init__(
        self,
        tally: TallyElsewhere,
        *,
        runtime: str,
        piece: str,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
    ) -> None:
        """Raises InvalidInput for an `actor`, and InvalidScope."""
        if actor is not None:
            raise InvalidInput(
                f"{piece} on a tally behind a server acts as whom its token names. Leave `actor` "
                "out, and connect with a token of that user."
            )
        check_scope(scope)
        self._tally = tally if scope is None else tally.within(scope)
        self._scope = scope
        self._runtime, self._piece = runtime, piece
        self._actor: Actor | None = None

    @property
    def tally(self) -> TallyElsewhere:
        """The tally behind the server."""
        return self._tally

    def describe(self, **options: Any) -> str:
        """Return the piece as a short text for `repr`."""
        facts = {"scope": None if self._scope is None else str(self._scope), **options}
        given = [f"{name}={value!r}" for name, value in facts.items() if value is not None]
        return f"{self._piece}({', '.join([repr(self._tally), *given])})"

    def call(self, **places: Any) -> CallContext:
        """Return the context of a call of this piece, with the places that the runtime fills."""
        return CallContext(self._runtime, self._piece, **places)

    def current_run_id(self) -> None:
        """Return None: nothing here is recorded by that tally."""

    def bound(self, call: CallContext | None = None) -> TallyElsewhere:
        """Return the tally for one call. Raises Denied with `principal_mismatch` where the call
        names another user than the token.
        """
        named = None if call is None else named_actor(call)
        if call is not None and named is not None:
            if self._actor is None:
                self._actor = self._tally.whoami()
            refuse_other(call, self._actor, named)
        return self._tally


def binder_of(
    tally: Tally | BoundTally | TallyElsewhere,
    *,
    runtime: str,
    piece: str,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
) -> Binder | RemoteBinder:
    """Return the binder of a piece that works on a tally here and on one that is elsewhere. Raises
    InvalidInput, InvalidScope.
    """
    if isinstance(tally, TallyElsewhere):
        return RemoteBinder(tally, runtime=runtime, piece=piece, actor=actor, scope=scope)
    return Binder(tally, runtime=runtime, piece=piece, actor=actor, scope=scope)
