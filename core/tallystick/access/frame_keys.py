"""Frame keys: the keys under which the frames of an actor are made, and those that check them."""

from __future__ import annotations

import secrets

from tallystick.errors import ReadOnlyTally
from tallystick.policy import PolicyState, decide
from tallystick.records import Actor, Scope
from tallystick.records.framing import frame_key
from tallystick.storage import Store
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import scopes, spaces


class FrameKeys:
    """The keys of the scopes' frames, derived from the scopes' secrets. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._signing: dict[Scope, bytes] = {}

    def signing(self, scope: Scope) -> bytes:
        """Return the key for frames that are made in `scope`; a scope that was never written to is
        given its secret here.
        """
        # A scope's secret never changes, so a key is good as long as the tally is open.
        key = self._signing.get(scope)
        if key is None:
            with self._store.database.read() as connection:
                rows = scopes.find(connection, [scope])
            secret = rows[0].secret if rows else self._new_secret(scope)
            key = self._signing[scope] = frame_key(secret)
        return key

    def _new_secret(self, scope: Scope) -> bytes:
        """Return the secret of a scope that is new. Where it cannot be stored, one of this process:
        nothing that carries a mark of it can be stored either.
        """
        database = self._store.database
        try:
            row = database.write(
                lambda tx: scopes.ensure(tx, scope), name="frame_key", writes=Writes.of(scope)
            )
            return row.secret
        except ReadOnlyTally:
            return secrets.token_bytes(32)

    def checking(self, actor: Actor, scope: Scope) -> tuple[bytes, ...]:
        """Return the keys of the frames that `actor` may have been shown: those of `scope`, and of
        the scopes that the actor may read.

        It reads the database: call it for texts that contain a mark.
        """
        with self._store.database.read() as connection:
            stored = {space.scope: space for space in spaces.all_spaces(connection)}
            state = PolicyState(stored, self._store.clock.now())
            named = dict.fromkeys((*_named_scopes(actor), *stored))
            readable = [other for other in named if decide(actor, "read", other, state).allowed]
            rows = scopes.find(connection, dict.fromkeys((scope, *readable)))
        return tuple(frame_key(row.secret) for row in rows)


def _named_scopes(actor: Actor) -> list[Scope]:
    """Return the scopes that an actor's identity names."""
    organization = actor.organization
    diaries = [
        Scope.diary(actor.user, actor.agent, project, organization)
        for project in sorted(actor.projects)
        if actor.agent is not None
    ]
    return [
        actor.private_scope,
        *diaries,
        *(Scope(kind="project", key=key, organization=organization) for key in actor.projects),
        *(Scope(kind="delegated", key=key, organization=organization) for key in actor.delegations),
    ]
