"""The gate: every operation passes here before it reads or writes a scope.

A refusal is journaled before it is raised. Allowed reads are counted into a log that is written in
batches, so that recall never waits for it.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tallystick.access.limits import Limits
from tallystick.aio import on_event_loop
from tallystick.errors import (
    Denied,
    InvalidInput,
    InvalidScope,
    RateLimited,
    ReadOnlyTally,
    StorageError,
)
from tallystick.logs import get_logger
from tallystick.policy import MUTATIONS, PolicyState, decide, rule_on
from tallystick.records import (
    AccessDecision,
    AccessKind,
    Actor,
    Freezable,
    Json,
    Limited,
    Memory,
    ReasonCode,
    Scope,
    is_storable,
)
from tallystick.storage import Connection, Store
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import (
    access_log,
    edges,
    journal,
    memories,
    scopes,
    settings_rows,
    spaces,
)
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.storage.rows.short_ids import IdKind, IdMatch, ids_matching, steps_of_compile

_OPERATIONS: Mapping[Limited, AccessKind] = {
    "read": "read",
    "inspect": "inspect",
    "preview": "inspect",
    "export": "export",
    "write": "write",
    "modify": "correct",
    "forget": "delete",
    "erase": "delete",
}
_SPACELESS = ("private", "diary")
"""Kinds of scopes that never have a space: they are decided without reading the database."""
_NO_SPACES = PolicyState()
"""Policy state of such a scope. Its time does not count: only memberships of spaces end."""
_USERS_NAMED = "users_named_at"
"""The setting with the time at which a runtime first named a user other than the owner."""
_BATCH = 64
"""Reads that are collected in memory before the log is written."""
_MOST_READS = 4_096
"""Reads that wait in memory while the log cannot be written; older ones are dropped."""


class Journaling:
    """A block whose refusals are journaled; see `Gate.journaling`."""

    __slots__ = ("_actor", "_gate")

    def __init__(self, gate: Gate, actor: Actor) -> None:
        self._gate = gate
        self._actor = actor

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: object,
    ) -> None:
        if isinstance(error, Denied) and error.decision.audit_id is None:
            raise self._gate.refuse(self._actor, decision_of(error), str(error)) from error


class Gate:
    """Decisions about access for one store. Thread-safe."""

    def __init__(self, store: Store, *, limits: Mapping[Limited, int] | None = None) -> None:
        self._store = store
        self._limits = Limits(limits or {}, store.database)
        self._guard = threading.Lock()
        self._reads: list[dict[str, Any]] = []
        self._accessed: Counter[int] = Counter()
        with store.database.read() as connection:
            self._users_named = settings_rows.get_setting(connection, _USERS_NAMED) is not None
        store.database.on_exit(self.flush)

    def require(self, actor: Actor, operation: AccessKind, scope: Scope) -> AccessDecision:
        """Return the decision, if it allows. A refusal is journaled and raised as Denied."""
        if scope.kind in _SPACELESS and operation not in MUTATIONS and not actor.assumed:
            decision = decide(actor, operation, scope, PolicyState({}, self._store.clock.now()))
        else:
            with self._store.database.read() as connection:
                decision = self.decide(connection, actor, operation, scope)
        if not decision.allowed:
            raise self.refuse(actor, decision)
        return decision

    def check(
        self, actor: Actor, operation: AccessKind, scope: Scope, *, confirmed_later: bool = False
    ) -> None:
        """Same as `require`, without the record of a decision that allows: for every step of a
        graph.

        With `confirmed_later` the transaction that follows confirms an actor that was assumed.
        """
        is_assumed = actor.assumed and not confirmed_later
        if scope.kind not in _SPACELESS or operation in MUTATIONS or is_assumed:
            self.require(actor, operation, scope)
        elif not rule_on(actor, operation, scope, _NO_SPACES).allowed:
            raise self.refuse(actor, decide(actor, operation, scope, _NO_SPACES))

    def admit(self, actor: Actor, limited: Limited, scope: Scope, *, count: int = 1) -> None:
        """Count `count` calls of this actor, or raise RateLimited. The first refusal of a wait is
        journaled.

        Raises InvalidInput for more at once than a minute allows: no wait would let them through.
        """
        most = self._limits.most(actor, limited)
        if most is None or count < 1:
            return
        if count > most:
            raise InvalidInput(
                f"{count} at once is more than `rate_limits` lets an actor {limited} in a minute, "
                f"{most}. Do it in parts."
            )
        wait = self._limits.wait(actor, limited, self._store.clock.now(), count=count)
        if not wait:
            return
        decision = AccessDecision(
            allowed=False,
            reason="rate_limited",
            operation=_OPERATIONS[limited],
            scope=scope,
            surface=actor.surface,
            audit_id=self._limits.refusal_id(actor, limited),
        )
        if decision.audit_id is None:
            decision = decision_of(self.refuse(actor, decision))
            self._limits.note_refusal(actor, limited, decision.audit_id or "")
        raise RateLimited(decision, retry_after_us=wait)

    def require_person(self, actor: Actor, operation: AccessKind, scope: Scope) -> None:
        """Refuse what needs a person, such as to grant or to erase, where a token came in that no
        person holds at the moment. The refusal is journaled and raised as Denied.
        """
        if actor.is_attended:
            return
        raise self.refusal(actor, "person_required", operation, scope)

    def require_early(self, actor: Actor, operation: AccessKind, scope: Scope) -> None:
        """Refuse early what `confirm` would refuse in the transaction that follows; only that one
        decides. Raises Denied.

        For a scope that never has a space the database is not read; that changes are suspended,
        `confirm` sees.
        """
        if self.needs_stored_state(actor, scope):
            self.require(actor, operation, scope)
            return
        now = self._store.clock.now()
        state = PolicyState({}, now, users_named=actor.assumed and self._users_named)
        if not rule_on(actor, operation, scope, state).allowed:
            raise self.refuse(actor, decide(actor, operation, scope, state))

    def needs_stored_state(self, actor: Actor, scope: Scope) -> bool:
        """Return True if a decision depends on what the database says: the scope may have a space,
        or the actor is the owner for want of another and nobody was named as far as is known here.
        """
        return scope.kind not in _SPACELESS or (actor.assumed and not self._users_named)

    def require_or_none(
        self, actor: Actor, operation: AccessKind, scope: Scope
    ) -> AccessDecision | None:
        """Return the decision, if it allows, else None; nothing is journaled."""
        with self._store.database.read() as connection:
            decision = self.decide(connection, actor, operation, scope)
        return decision if decision.allowed else None

    def decide(
        self, connection: Connection, actor: Actor, operation: AccessKind, scope: Scope
    ) -> AccessDecision:
        """Return the decision by the snapshot of `connection`, either way; nothing is journaled."""
        return decide(actor, operation, scope, self._state_for(connection, actor, operation, scope))

    def _state_for(
        self, connection: Connection, actor: Actor, operation: AccessKind, scope: Scope
    ) -> PolicyState:
        state = self.state(connection, [scope])
        if operation in MUTATIONS and scopes.is_frozen(connection):
            state = replace(state, frozen=True)
        if actor.assumed and self.users_were_named(connection):
            state = replace(state, users_named=True)
        return state

    def users_were_named(self, connection: Connection) -> bool:
        """Return True once an adapter has named a user other than the owner, in any process."""
        if not self._users_named:
            # Never taken back, so that only a negative answer is read again.
            self._users_named = settings_rows.get_setting(connection, _USERS_NAMED) is not None
        return self._users_named

    def users_among(self, names: Iterable[str]) -> set[str]:
        """Return those names that are users with a private scope of their own in this tally."""
        found: list[Scope] = []
        for name in names:
            with suppress(InvalidScope):
                found.append(Scope.parse(f"private:{name}"))
        if not found:
            return set()
        with self._store.database.read() as connection:
            return {row.scope.key for row in scopes.find(connection, found)}

    def note_user(self, actor: Actor) -> None:
        """Store that a runtime has named a user other than the owner: from then on a call that
        names nobody is refused. Only the first one is stored, and journaled. On an event loop this
        does not wait: what the call writes is committed afterwards.
        """
        if self._users_named:
            return
        if not on_event_loop():
            with self._store.database.read() as connection:
                if self.users_were_named(connection):
                    return
        event = journal.Event(
            stream="tally",
            event="actor.named",
            actor=actor,
            at=self._store.clock.now(),
            audit_id=self._store.ids.new(),
        )

        def unit(tx: Connection) -> None:
            if settings_rows.get_setting(tx, _USERS_NAMED) is None:
                settings_rows.set_setting(tx, _USERS_NAMED, str(event.at))
                journal.append(tx, event)

        def fail() -> None:
            self._users_named = False

        self._users_named = True
        try:
            self._store.database.write_soon(
                unit, name="actor.named", failed=fail, writes=Writes.of(TALLY)
            )
        except BaseException:
            fail()
            raise

    def freeze(
        self,
        actor: Actor,
        *,
        frozen: bool,
        reason: str,
        what: Freezable = "mutations",
        idempotency_key: str | None = None,
    ) -> None:
        """Suspend every change of memory, or autonomous work alone, or take that back; an
        operator's work, journaled.

        Raises Denied, InvalidInput.
        """
        if not reason.strip():
            raise InvalidInput(
                'Say why: `reason` is empty. It is kept in the journal. Write reason="…".',
                argument="reason",
            )
        if not actor.operates_tally:
            raise self.refusal(actor, "missing_permission", "manage")
        name = "tally.freeze" if frozen else "tally.thaw"
        setting = scopes.FROZEN if what == "mutations" else scopes.AUTONOMY_FROZEN
        event = journal.Event(
            stream="tally",
            event=name,
            actor=actor,
            at=self._store.clock.now(),
            audit_id=self._store.ids.new(),
            reason=reason,
            details={} if what == "mutations" else {"what": what},
        )
        arguments: Json = reason if what == "mutations" else [reason, what]
        call = IdempotentCall(actor.private_scope, name, idempotency_key, arguments)

        def unit(tx: Connection) -> None:
            if call.read_answer(tx) is None:
                scopes.set_frozen(tx, frozen, name=setting)
                journal.append(tx, event)
                call.keep(tx, {}, at=event.at)

        self._store.database.write(unit, name="freeze")

    def is_autonomy_frozen(self) -> bool:
        """Return True while an operator suspends what nobody asked for."""
        with self._store.database.read() as connection:
            return scopes.is_frozen(connection, name=scopes.AUTONOMY_FROZEN)

    def state(self, connection: Connection, scopes: Iterable[Scope]) -> PolicyState:
        """Return the stored state that decisions about these scopes depend on."""
        stored = [scope for scope in scopes if scope.kind not in _SPACELESS]
        return PolicyState(
            spaces.of_scopes(connection, stored) if stored else {}, self._store.clock.now()
        )

    def confirm(self, tx: Connection, actor: Actor, operation: AccessKind, scope: Scope) -> None:
        """Decide again inside a writing transaction, which sees what changed since. Use within
        `journaling`.
        """
        state = self._state_for(tx, actor, operation, scope)
        if not rule_on(actor, operation, scope, state).allowed:
            raise Denied(decide(actor, operation, scope, state))

    def confirm_and_decide(
        self, tx: Connection, actor: Actor, operation: AccessKind, scope: Scope
    ) -> AccessDecision:
        """Same as `confirm`; return the decision."""
        self.confirm(tx, actor, operation, scope)
        return self.decide(tx, actor, operation, scope)

    def journaling(self, actor: Actor) -> Journaling:
        """Return a block around a write: a refusal inside it is journaled after the rollback, and
        raised with its audit id.
        """
        return Journaling(self, actor)

    def refuse(self, actor: Actor, decision: AccessDecision, message: str | None = None) -> Denied:
        """Journal a refusal; return the error to raise, with a message of its own or the usual
        one. It has no audit id where the disk takes no write: a refusal stands all the same.
        """
        audit_id = self._store.ids.new()
        event = journal.Event(
            stream=f"scope:{decision.scope}",
            event="access.denied",
            actor=actor,
            at=self._store.clock.now(),
            audit_id=audit_id,
            reason=decision.reason,
            details={"operation": decision.operation},
        )
        is_journaled = self._store.database.write_soon(
            lambda tx: journal.append(tx, event),
            name="access.denied",
            failed=lambda: None,
            writes=Writes.of(str(decision.scope)),
        )
        values = {"audit_id": audit_id if is_journaled else None}
        log_refusal(
            "access.denied",
            actor,
            decision.scope,
            decision.reason,
            operation=decision.operation,
            audit_id=values["audit_id"],
        )
        return Denied(decision.model_copy(update=values), message)

    def refusal(
        self, actor: Actor, reason: ReasonCode, operation: AccessKind, scope: Scope | None = None
    ) -> Denied:
        """Same as `refuse`, in a scope or in the private one of the actor."""
        return self.refuse(actor, AccessDecision.refusal(actor, reason, operation, scope))

    def log_read(
        self,
        actor: Actor,
        operation: str,
        scopes: Iterable[Scope],
        *,
        results: int,
        accessed: Iterable[int] = (),
    ) -> None:
        """Note an allowed read and the memories that it returned; written with the next batch. A
        tally that is only read notes nothing.
        """
        if self._store.database.unwritable is not None:
            return
        with self._guard:
            self._reads.append(
                {
                    "at": self._store.clock.now(),
                    "actor": json.dumps(actor.identity(), sort_keys=True),
                    "surface": actor.surface,
                    "operation": operation,
                    "scopes": json.dumps([str(scope) for scope in scopes]),
                    "results": results,
                }
            )
            self._accessed.update(accessed)
            is_full = len(self._reads) % _BATCH == 0
        if is_full:
            self.flush(wait=False)

    def unwritten_reads(self) -> list[dict[str, Any]]:
        """Return the reads that are still in memory, newest first, as the access log has them."""
        with self._guard:
            return [dict(read) for read in reversed(self._reads)]

    def flush(self, *, wait: bool = True) -> None:
        """Write the reads that are still in memory; `wait` for the commit. What could not be
        written is written with the next batch. Raises StorageError, of the commit with `wait` only.
        """
        with self._guard:
            reads, self._reads = self._reads, []
            accessed, self._accessed = self._accessed, Counter()
        if not reads:
            return
        at = self._store.clock.now()

        def unit(tx: Connection) -> None:
            access_log.append(tx, reads)
            memories.note_access(tx, accessed, at=at)

        def put_back(error: BaseException) -> None:
            with self._guard:
                dropped = max(0, len(reads) + len(self._reads) - _MOST_READS)
                self._reads = [*reads[dropped:], *self._reads]
                self._accessed += accessed
            get_logger("access").warning("access.log", error=type(error).__name__, count=dropped)

        def finish(answer: Future[None]) -> None:
            error = answer.exception()
            if error is not None:
                put_back(error)

        names = {name for read in reads for name in json.loads(read["scopes"])}
        try:
            future = self._store.database.submit(unit, name="access.log", writes=Writes.of(*names))
        except StorageError as error:
            put_back(error)
            raise
        future.add_done_callback(finish)
        if not wait:
            return
        try:
            future.result()
        except ReadOnlyTally as error:
            text = f"{len(reads)} reads could not be noted in the access log."
            raise ReadOnlyTally(error.reason, text) from error


def log_refusal(
    event: str, actor: Actor, scope: Scope | None, reason: str, **ids: str | None
) -> None:
    """Log a refusal by policy: to whom, in which kind of scope and why."""
    get_logger("policy").info(
        event,
        principal=actor.user,
        scope_kind=None if scope is None else scope.kind,
        surface=actor.surface,
        reason=reason,
        request_id=actor.request_id,
        **ids,
    )


def decision_of(error: Denied) -> AccessDecision:
    """Return the decision behind a refusal, which is always the record that the gate made."""
    assert isinstance(error.decision, AccessDecision)
    return error.decision


_LEAST = 6
_ID_CHARACTERS = frozenset("0123456789abcdef-")
_ID_LENGTH = 36
_DIGEST = "sha256:"


def full_id(store: Store, gate: Gate, actor: Actor, kinds: Sequence[IdKind], text: str) -> str:
    """Return the one id of these kinds that `text` is, begins or ends, among what the actor may
    see; for the id of a compile the latest step that made it.

    A text that fits nothing is returned as it is, or printable: whoever looks for it raises
    NotFound. Raises InvalidInput where several fit.
    """
    if not is_storable(text):
        return ascii(text)
    if "step" in kinds and text.startswith(_DIGEST):
        store.database.flush()
        with store.database.read() as connection:
            steps = steps_of_compile(connection, text)
            return next((step.id for step in steps if _sees(gate, connection, actor, step)), text)
    if not _LEAST <= len(text) < _ID_LENGTH or not _ID_CHARACTERS.issuperset(text):
        return text
    if "run" in kinds or "step" in kinds:
        store.database.flush()  # what is recorded already, acknowledged or not
    with store.database.read() as connection:
        matches = {
            match.id
            for kind in kinds
            for match in ids_matching(connection, kind, text)
            if _sees(gate, connection, actor, match)
        }
    if text in matches:
        return text  # an id that somebody chose may be the beginning of another one
    if len(matches) > 1:
        raise InvalidInput(f"{text} fits {len(matches)} ids. Give more of it.")
    return matches.pop() if matches else text


def _sees(gate: Gate, connection: Connection, actor: Actor, match: IdMatch) -> bool:
    return any(
        gate.decide(connection, actor, access, match.scope).allowed
        for access in ("read", "inspect")
    )


UNREADABLE = ("deleted", "hidden")
"""States in which no path gives the text, until the memory is back. Nor does one give it once its
end has passed, whether or not it was forgotten since.
"""


def visible_docs(
    connection: Connection, gate: Gate, actor: Actor, stored: Iterable[memories.Stored], now: int
) -> set[int]:
    """Return the numbers of those memories whose text this actor, who may read their scopes, may
    see.
    """
    entries = list(stored)
    superseded = [entry.doc for entry in entries if entry.memory.state == "superseded"]
    heads = (
        replacements(
            connection,
            superseded,
            lambda scope: gate.decide(connection, actor, "read", scope).allowed,
            now,
        )
        if superseded
        else {}
    )
    return {
        entry.doc
        for entry in entries
        if entry.memory.state not in UNREADABLE
        and not is_expired(entry.memory.expires_at, now)
        and (entry.memory.state != "superseded" or entry.doc in heads)
    }


def replacements(
    connection: Connection, docs: Iterable[int], may_read: Callable[[Scope], bool], now: int
) -> dict[int, memories.Stored]:
    """Return for each superseded memory the one that holds in its place, at the end of the chain;
    those of which the replacement may not be seen are left out.
    """
    ends = edges.follow_to_end(connection, "SUPERSEDES", docs, forward=False)
    stored = memories.get_docs(connection, set(ends.values()))
    return {
        doc: stored[end]
        for doc, end in ends.items()
        if end in stored
        and is_recallable(stored[end].memory, now)
        and may_read(stored[end].memory.scope)
    }


def is_expired(expires_at: int | None, now: int) -> bool:
    """Return True if a memory with this end (microseconds UTC, None for no end) has passed it at
    `now`.
    """
    return expires_at is not None and expires_at <= now


def is_recallable(memory: Memory, now: int) -> bool:
    """Return True if recall may give a memory at `now` (microseconds UTC), by its state and its
    end.
    """
    return memory.state in ("active", "redacted") and not is_expired(memory.expires_at, now)
