"""Access tokens: made and taken back by people, and looked up for each request over a network.

A secret is 32 random bytes. The tally keeps its SHA-256 digest alone, without a salt, because there
is nothing to guess. Who comes in, in which role and for which projects, the token says and nobody
else.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from tallystick.access.gate import Gate
from tallystick.errors import Denied, InvalidInput, NotFound, StateConflict, Unauthenticated
from tallystick.records import (
    AccessDecision,
    AccessKind,
    AccessToken,
    Actor,
    Duration,
    ReasonCode,
    Scope,
    Scopes,
    TokenClass,
    checked_arguments,
    require_length,
    seconds,
    tuple_of,
)
from tallystick.records.arguments import IdempotencyKey, Reason
from tallystick.storage import Connection, Store
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import access_tokens, journal
from tallystick.storage.rows.idempotency import IdempotentCall

_SECRET_BYTES = 32
_PREFIX = "tally_"
"""By which a secret is known for one, so that engines that look for secrets find it."""
_SECOND_US = 1_000_000
_HOUR = 3_600
_DAY = 24 * _HOUR
_LIFE_S: dict[TokenClass, int] = {"personal": 90 * _DAY, "scoped": 90 * _DAY, "session": 8 * _HOUR}
_LONGEST_S: dict[TokenClass, int] = {
    "personal": 366 * _DAY,
    "scoped": 366 * _DAY,
    "session": 24 * _HOUR,
}
_MOST_BOUNDS = 100

AccessKinds = Annotated[Sequence[AccessKind], tuple_of(AccessKind)]
TokenId = Annotated[str, Field(description="Id of an access token.")]


def authenticate(store: Store, secret: str) -> AccessToken:
    """Return the token of a secret. Raises Unauthenticated alike for what never was a token and for
    one that has run out or was revoked.
    """
    if isinstance(secret, str) and secret.isascii() and secret.startswith(_PREFIX):
        with store.database.read() as connection:
            token = access_tokens.of_digest(connection, _digest(secret))
        if token is not None and token.is_good_at(store.clock.now()):
            return token
    raise Unauthenticated


@checked_arguments
class AccessTokens:
    """The access tokens that one actor may make, see or take back. Thread-safe."""

    def __init__(self, store: Store, gate: Gate, actor: Actor) -> None:
        """Use `bound.tokens`."""
        self._store = store
        self._gate = gate
        self._actor = actor

    def make(
        self,
        name: Annotated[
            str, Field(description="By which it is known, such as the machine that has it.")
        ],
        *,
        token_class: Annotated[
            TokenClass,
            Field(
                description="Good for all, for some scopes or operations, "
                "or for a person's sitting."
            ),
        ] = "personal",
        actor: Annotated[
            Actor | None, Field(description="Who comes in with it; by default whoever makes it.")
        ] = None,
        scopes: Annotated[
            Scopes | None, Field(description="The scopes that it is good for.")
        ] = None,
        operations: Annotated[AccessKinds | None, Field(description="What it is good for.")] = None,
        expires_in: Annotated[
            Duration | None,
            Field(
                description="Seconds, or an ISO 8601 duration, until it ends; else by its class."
            ),
        ] = None,
        idempotency_key: IdempotencyKey = None,
    ) -> AccessToken:
        """Make a token with which `actor`, by default this one, comes in over a network.

        The answer has its `secret`, once: sent again under the same key, the call gives the token
        without it. A person makes tokens for himself and for agents of his, never with more than he
        has; an operator for anybody. `scopes` and `operations` are what a `scoped` token is good
        for. It lasts `expires_in` (a timedelta, or seconds): by default 90 days, a `session` 8
        hours. Raises Denied, InvalidInput, IdempotencyMismatch.
        """
        holder = (actor or self._actor).replace(
            surface="token", request_id=None, session_id=None, credential=None
        )
        within = None if scopes is None else tuple(map(holder.home, scopes))
        with self._gate.journaling(self._actor):
            self._require_allowed(holder, within, operations)
        life = self._life(token_class, expires_in)
        _require_bounds(name, token_class, holder, within, operations)
        now = self._store.clock.now()
        token = AccessToken(
            id=self._store.ids.new(),
            token_class=token_class,
            name=name,
            actor=holder,
            scopes=within,
            operations=None if operations is None else tuple(operations),
            created_at=now,
            created_by=self._actor.identity(),
            expires_at=now + life * _SECOND_US,
        )
        asked = [name, token_class, holder.dump(), token.dump()["scopes"], operations, life]
        call = IdempotentCall(self._actor.private_scope, "token.make", idempotency_key, asked)
        secret = _new_secret()

        def unit(tx: Connection) -> AccessToken:
            answered = call.read_answer(tx)
            if answered is not None:
                return AccessToken.load(answered)
            access_tokens.add(tx, token, _digest(secret))
            self._journal(tx, "token.make", token)
            call.keep(tx, token, at=now)
            return token.replace(secret=secret)

        return self._store.database.write(unit, name="token.make", writes=self._writes())

    def list(self) -> tuple[AccessToken, ...]:
        """Return the tokens of this actor, for an operator those of everybody, newest first; also
        those that have ended.
        """
        with self._store.database.read() as connection:
            every = access_tokens.all_tokens(connection)
        return tuple(token for token in every if self._may_see(token))

    def rotate(self, token_id: TokenId, *, idempotency_key: IdempotencyKey = None) -> AccessToken:
        """Revoke a token and make another in its place, with the same bounds and as long a life.

        The answer is the new one with its secret, once. Raises NotFound, Denied, StateConflict for
        one that has ended, IdempotencyMismatch.
        """
        call = IdempotentCall(self._actor.private_scope, "token.rotate", idempotency_key, token_id)
        secret = _new_secret()

        def unit(tx: Connection) -> AccessToken:
            answered = call.read_answer(tx)
            if answered is not None:
                return AccessToken.load(answered)
            old, now = self._visible(tx, token_id), self._store.clock.now()
            if not old.is_good_at(now):
                raise StateConflict(
                    token_id,
                    state="ended",
                    reason="it was revoked or has run out",
                    hint="Make a new one.",
                    what="Token",
                )
            self._require_allowed(old.actor, old.scopes, old.operations)
            new = old.replace(
                id=self._store.ids.new(),
                created_at=now,
                created_by=self._actor.identity(),
                expires_at=now + (old.expires_at - old.created_at),
            )
            ended = old.replace(revoked_at=now, revoked_reason="rotated", replaced_by=new.id)
            access_tokens.replace(tx, ended)
            access_tokens.add(tx, new, _digest(secret))
            self._journal(tx, "token.rotate", ended)
            self._journal(tx, "token.make", new)
            call.keep(tx, new, at=now)
            return new.replace(secret=secret)

        with self._gate.journaling(self._actor):
            return self._store.database.write(unit, name="token.rotate", writes=self._writes())

    def revoke(
        self, token_id: TokenId, *, reason: Reason, idempotency_key: IdempotencyKey = None
    ) -> AccessToken:
        """End a token: the next request with it is refused. Revoking twice changes nothing.

        Raises NotFound, InvalidInput, IdempotencyMismatch.
        """
        if not reason.strip():
            raise InvalidInput(
                'Say why: `reason` is empty. It is kept with the token. Write reason="…".',
                argument="reason",
            )
        require_length("reason", reason)
        call = IdempotentCall(
            self._actor.private_scope, "token.revoke", idempotency_key, [token_id, reason]
        )

        def unit(tx: Connection) -> AccessToken:
            answered = call.read_answer(tx)
            if answered is not None:
                return AccessToken.load(answered)
            token, now = self._visible(tx, token_id), self._store.clock.now()
            if token.revoked_at is None:
                token = token.replace(revoked_at=now, revoked_reason=reason)
                access_tokens.replace(tx, token)
                self._journal(tx, "token.revoke", token, reason)
            call.keep(tx, token, at=now)
            return token

        return self._store.database.write(unit, name="token.revoke", writes=self._writes())

    def _writes(self) -> Writes:
        """Return what a change of tokens writes: they have no scope, and are journaled with the
        tally; answers are kept in the scope of the actor.
        """
        return Writes.of(TALLY, self._actor.private_scope)

    def _require_allowed(
        self,
        holder: Actor,
        scopes: Sequence[Scope] | None,
        operations: Sequence[AccessKind] | None,
    ) -> None:
        """Raise Denied unless this actor is a person who may let `holder` in."""
        reason = self._refusal(holder, scopes, operations)
        if reason is not None:
            raise Denied(AccessDecision.refusal(self._actor, reason, "manage"))

    def _refusal(
        self,
        holder: Actor,
        scopes: Sequence[Scope] | None,
        operations: Sequence[AccessKind] | None,
    ) -> ReasonCode | None:
        maker = self._actor
        if maker.agent is not None or not maker.is_attended:
            return "person_required"
        bounds = maker.credential
        if bounds is not None and not (
            _is_within(scopes, bounds.scopes) and _is_within(operations, bounds.operations)
        ):
            return "outside_credential"
        if maker.is_operator:
            in_reach = maker.organization in (None, holder.organization)
            return None if in_reach else "missing_organization"
        if (holder.user, holder.organization) != (maker.user, maker.organization):
            return "principal_mismatch"
        if holder.role == "operator" and maker.role != "operator":
            return "missing_permission"
        is_less = holder.projects <= maker.projects and holder.delegations <= maker.delegations
        return None if is_less else "unverified_membership"

    def _life(self, token_class: TokenClass, expires_in: Duration | None) -> int:
        if expires_in is None:
            return _LIFE_S[token_class]
        life, longest = seconds(expires_in, name="expires_in"), _LONGEST_S[token_class]
        if not 1 <= life <= longest:
            raise InvalidInput(
                f"`expires_in` of a {token_class} token is 1 to {longest:,} seconds."
            )
        return life

    def _may_see(self, token: AccessToken) -> bool:
        actor, bounds = self._actor, self._actor.credential
        if actor.agent is not None:
            return False
        if bounds is not None and not bounds.manages:
            return token.id == bounds.token_id  # a narrow token sees itself alone
        if actor.is_operator and actor.organization in (None, token.actor.organization):
            return True
        return (token.actor.user, token.actor.organization) == (actor.user, actor.organization)

    def _visible(self, connection: Connection, token_id: str) -> AccessToken:
        token = access_tokens.find(connection, token_id) if token_id.isprintable() else None
        if token is None or not self._may_see(token):
            raise NotFound(f"There is no token {token_id} that {self._actor.user} may see.")
        return token

    def _journal(
        self, tx: Connection, event: str, token: AccessToken, reason: str | None = None
    ) -> None:
        journal.append(
            tx,
            journal.Event(
                stream="tally",
                event=event,
                actor=self._actor,
                at=self._store.clock.now(),
                audit_id=self._store.ids.new(),
                reason=reason,
                subject_id=token.id,
                details={"class": token.token_class, "expires_at": token.expires_at},
            ),
        )


def _require_bounds(
    name: str,
    token_class: TokenClass,
    holder: Actor,
    scopes: Sequence[Scope] | None,
    operations: Sequence[AccessKind] | None,
) -> None:
    """Raise InvalidInput for a token whose bounds do not fit its class."""
    if not name.strip():
        raise InvalidInput("Give the token a name by which you will know it.")
    require_length("name", name)
    if token_class == "scoped" and scopes is None and operations is None:
        raise InvalidInput("Say what a scoped token is good for: `scopes`, `operations` or both.")
    if token_class == "personal" and (scopes is not None or operations is not None):
        raise InvalidInput("A token with `scopes` or `operations` is a scoped one, or a session.")
    if token_class == "session" and holder.agent is not None:
        raise InvalidInput("A session is a person's: it has no agent.")
    for bounds, what in ((scopes, "scopes"), (operations, "operations")):
        if bounds is not None and not 0 < len(bounds) <= _MOST_BOUNDS:
            raise InvalidInput(f"`{what}` has 1 to {_MOST_BOUNDS} entries, or is left out.")


def _is_within(wanted: Sequence[object] | None, bounds: Sequence[object] | None) -> bool:
    return bounds is None or (wanted is not None and set(wanted) <= set(bounds))


def _new_secret() -> str:
    return _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
