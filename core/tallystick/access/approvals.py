"""Approvals: actions that wait for a person, decided once, for exactly one action.

An approval is bound to the digest of the exact action: its kind, its name, its arguments and the
actor whose action it is, under the key of the scope. Every move from one state to another is one
transaction with its journal event.

    pending -> granted -> used
       |          |-----> revoked, expired
       |----> denied ---> revoked
       |----> expired

Must hold: an action runs at most once for a grant. `use` moves `granted` to `used` by a statement
that names the state it starts from, in the transaction that decides, and writers take turns; the
action starts after that commit. A grant is therefore lost with a process that dies in between, and
never used twice.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tallystick.access.gate import Gate, log_refusal
from tallystick.errors import Denied, InvalidInput, NotFound, StateConflict, TokenRefused
from tallystick.policy.redaction import Redactor
from tallystick.records import (
    AccessDecision,
    Actor,
    Approval,
    ApprovalState,
    GuardedAction,
    Json,
    PolicyRule,
    Scope,
    canonical_json,
    json_bytes,
    part_key,
)
from tallystick.storage import Connection, Store
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import approvals as rows
from tallystick.storage.rows import journal, scopes, settings_rows
from tallystick.storage.rows.approvals import StoredApproval
from tallystick.storage.rows.idempotency import IdempotentCall

_SECOND_US = 1_000_000
_DAY = 24 * 3600
_WAIT_US = 7 * _DAY * _SECOND_US
"""The time for which an action waits for a decision, and for which a denial holds, microseconds."""
_GRANT_S = _DAY
"""The life of a grant for which no other was chosen, seconds."""
_LONGEST_GRANT_S = 30 * _DAY

_Moved = Literal["granted", "denied", "revoked"]
_FROM: dict[_Moved, tuple[ApprovalState, ...]] = {
    "granted": ("pending",),
    "denied": ("pending",),
    "revoked": ("granted", "denied"),
}


@dataclass(frozen=True)
class GuardedCall:
    """One action as it is about to happen."""

    action: GuardedAction
    subject: str
    """The name of the tool or model."""
    arguments: Json
    """The exact arguments: the digest covers them as they are."""

    def digest(self, secret: bytes, actor: Actor) -> str:
        """Return the keyed digest of the action by this actor."""
        exact = ["approval", self.action, self.subject, actor.identity(), self.arguments]
        return part_key(secret, json_bytes(exact))


class Answer(NamedTuple):
    """The answer to an action that wants an approval."""

    state: Literal["asked", "waiting", "granted", "denied"]
    """`granted` uses the grant up."""
    approval: Approval


@dataclass(frozen=True)
class Approvals:
    """The approvals of one scope, as one actor may ask for, see or decide them. Thread-safe."""

    store: Store
    gate: Gate
    redactor: Redactor
    actor: Actor
    scope: Scope

    def ask(
        self,
        calls: Sequence[tuple[GuardedCall, PolicyRule]],
        *,
        token: str | None = None,
        run_id: str | None = None,
        step_id: str | None = None,
        receipts: tuple[str, ...] = (),
    ) -> list[Answer]:
        """Use the grants of these actions, if all of them are granted; otherwise ask for those that
        nobody was asked for yet.

        To ask again for an action that waits gives the same approval: a runtime that runs a step
        anew when it resumes asks once. `token` is that of the grant of the only action. Raises
        Denied where the actor may not record in the scope, and TokenRefused.
        """
        store = self.store

        def unit(tx: Connection) -> list[Answer] | TokenRefused:
            self.gate.confirm(tx, self.actor, "record", self.scope)
            scope, now = scopes.ensure(tx, self.scope), store.clock.now()
            self._expire(tx, scope.id, now)
            digests = [call.digest(scope.secret, self.actor) for call, _ in calls]
            if token is not None:
                refused = self._refused_token(tx, scope, digests[0], token, now)
                if refused is not None:
                    return refused
            latest = [self._latest(tx, scope.id, digest, now) for digest in digests]
            if all(stored is not None and stored.record.state == "granted" for stored in latest):
                return [
                    Answer("granted", self._use(tx, stored, now, step_id))
                    for stored in latest
                    if stored is not None
                ]
            answers: list[Answer] = []
            for (call, rule), digest, stored in zip(calls, digests, latest, strict=True):
                if stored is None:
                    approval = self._pending(call, rule, now, run_id, step_id, receipts)
                    rows.add(tx, StoredApproval(approval, scope, digest))
                    self._journal(tx, approval, "asked", at=now, step_id=step_id)
                    answers.append(Answer("asked", approval))
                elif stored.record.state == "denied":
                    answers.append(Answer("denied", stored.record))
                elif stored.record.state == "pending":
                    answers.append(Answer("waiting", stored.record))
            return answers

        with self.gate.journaling(self.actor):
            answered = store.database.write(unit, name="approval.ask", writes=Writes.of(self.scope))
        if isinstance(answered, TokenRefused):
            raise answered
        return answered

    def in_state(
        self, state: ApprovalState | None, *, limit: int, before: str | None = None
    ) -> list[Approval]:
        """Return the approvals of the scope that this actor may decide, or whose action is its own,
        newest first, and only those listed after the one with the id `before`. Raises InvalidInput,
        and NotFound for an unknown `before`.
        """
        self._expire_overdue()
        with self.store.database.read() as connection:
            decides = self._decides(connection, self.scope)
            last = None if before is None else self._visible(connection, before).record
            stored = rows.of_scope(
                connection,
                self.scope,
                state,
                limit=limit if decides else 1_000_000,
                before=last,
            )
            records = [approval.record for approval in stored]
            own = [each for each in records if decides or self._is_own(connection, each)]
        return own[:limit]

    def get(self, approval_id: str) -> Approval:
        """Return one approval of any scope. Raises NotFound alike where there is none and where
        the actor may not see it.
        """
        with self.store.database.read() as connection:
            stored = self._visible(connection, approval_id)
        if stored.record.state in rows.OPEN and stored.record.expires_at <= self.store.clock.now():
            self._expire_overdue(stored.record.scope)
            with self.store.database.read() as connection:
                stored = self._visible(connection, approval_id)
        return stored.record

    def decide(
        self,
        approval_id: str,
        to: _Moved,
        *,
        reason: str,
        expires_in: int | None = None,
        idempotency_key: str | None = None,
    ) -> Approval:
        """Grant, deny or take back, by a person and for a reason.

        Raises NotFound, Denied for whoever may not decide, InvalidInput, StateConflict where it was
        decided, used or left to expire, and IdempotencyMismatch.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidInput(
                'Say why: `reason` is empty. It is kept with the approval. Write reason="…".',
                argument="reason",
            )
        life = _GRANT_S if expires_in is None else expires_in
        if type(life) is not int or not 1 <= life <= _LONGEST_GRANT_S:
            raise InvalidInput(
                f"`expires_in` is a number of seconds from 1 to {_LONGEST_GRANT_S:,}."
            )
        if to == "granted":
            self.gate.require_person(self.actor, "manage", self.scope)
        arguments = [approval_id, reason, expires_in]
        with self.store.database.read() as connection:
            asked = self._visible(connection, approval_id)

        def unit(tx: Connection) -> StoredApproval | StateConflict:
            stored = self._visible(tx, approval_id)
            if not self._decides(tx, stored.record.scope):
                scope = stored.record.scope
                raise Denied(
                    AccessDecision.refusal(self.actor, "missing_permission", "manage", scope)
                )
            call = IdempotentCall(stored.scope, f"approval.{to}", idempotency_key, arguments)
            answered = call.read_answer(tx)
            if answered is not None:
                shown = {"arguments": stored.record.arguments}
                first = Approval.load({**answered, **shown})
                return StoredApproval(first, stored.scope, stored.digest)
            now = self.store.clock.now()
            self._expire(tx, stored.scope.id, now)
            current = rows.find(tx, approval_id) or stored
            state = current.record.state
            if state not in _FROM[to]:
                return _conflict(current.record, to)
            end = now + life * _SECOND_US if to == "granted" else current.record.expires_at
            rows.move(
                tx,
                approval_id,
                before=state,
                after=to,
                expires_at=end,
                decided_by=json_bytes(self.actor.identity()).decode(),
                decided_reason=reason,
                decided_at=now,
            )
            decided = rows.find(tx, approval_id) or current
            self._journal(tx, decided.record, to, at=now, reason=reason)
            # The arguments stay in one place, from which they can be erased.
            call.keep(tx, {**decided.record.dump(), "arguments": None}, at=now)
            return decided

        with self.gate.journaling(self.actor):
            decided = self.store.database.write(
                unit, name="approval.decide", writes=Writes.of(asked.record.scope)
            )
        if isinstance(decided, StateConflict):
            raise decided
        if to != "granted":
            return decided.record
        return decided.record.model_copy(update={"token": _token_of(decided)})

    def journal_denial(
        self, action: GuardedAction, subject: str, rule_id: str, reason: str, *, step_id: str | None
    ) -> None:
        """Journal that a rule denied an action of this actor."""
        store = self.store
        event = journal.Event(
            stream=f"scope:{self.scope}",
            event="call.denied",
            actor=self.actor,
            at=store.clock.now(),
            audit_id=store.ids.new(),
            reason=reason,
            correlation_id=step_id,
            details={"action": action, "rule": rule_id},
            texts={"subject": subject},
        )
        store.database.write(
            lambda tx: journal.append(tx, event), name="call.denied", writes=Writes.of(self.scope)
        )
        ids = {"rule_id": rule_id, "operation": action, "audit_id": event.audit_id}
        log_refusal("call.denied", self.actor, self.scope, reason, **ids)

    def _pending(
        self,
        call: GuardedCall,
        rule: PolicyRule,
        now: int,
        run_id: str | None,
        step_id: str | None,
        receipts: tuple[str, ...],
    ) -> Approval:
        return Approval(
            id=self.store.ids.new(),
            scope=self.scope,
            action=call.action,
            subject=call.subject,
            arguments=self.redactor.redact_json(call.arguments).value,
            rule_id=rule.id,
            reason=rule.description or rule.name,
            asked_by=self.actor.identity(),
            surface=self.actor.surface,
            run_id=run_id,
            step_id=step_id,
            receipts=receipts,
            created_at=now,
            expires_at=now + _WAIT_US,
        )

    def _latest(
        self, tx: Connection, scope_id: int, digest: str, now: int
    ) -> StoredApproval | None:
        """Return the approval that answers for an action: the open one, else a denial that still
        holds.
        """
        latest = rows.newest_of(tx, scope_id, digest, rows.OPEN)
        if latest is None:
            latest = rows.newest_of(tx, scope_id, digest, ("denied",))
            if latest is not None and latest.record.expires_at <= now:
                return None
        return latest

    def _use(
        self, tx: Connection, stored: StoredApproval, now: int, step_id: str | None
    ) -> Approval:
        approval = stored.record
        moved = rows.move(tx, approval.id, before="granted", after="used", used_at=now)
        assert moved, "the writer reads and moves in one turn"
        self._journal(tx, approval, "used", at=now, step_id=step_id)
        return approval.model_copy(update={"state": "used", "used_at": now})

    def _refused_token(
        self, tx: Connection, scope: scopes.ScopeRow, digest: str, token: str, now: int
    ) -> TokenRefused | None:
        """Return the error for a token that is not of exactly this action, or no longer good."""
        approval_id, _, _ = token.rpartition(".")
        stored = rows.find(tx, approval_id) if approval_id.isprintable() else None
        if (
            stored is None
            or stored.scope.id != scope.id
            or stored.digest != digest
            or not hmac.compare_digest(_token_of(stored).encode(), token.encode("utf-8", "replace"))
        ):
            return TokenRefused("token_foreign")
        state = stored.record.state
        if state == "granted":
            return None
        reasons = {"used": "token_used", "revoked": "token_revoked", "expired": "token_expired"}
        return TokenRefused(reasons.get(state, "token_foreign"), approval_id=approval_id)

    def _expire_overdue(self, scope: Scope | None = None) -> None:
        """Note in storage and journal which approvals of the scope have run out, if any did."""
        now = self.store.clock.now()
        with self.store.database.read() as connection:
            scope_rows = scopes.find(connection, [scope or self.scope])
            due = any(rows.overdue(connection, row.id, now) for row in scope_rows)
        if due:
            self.store.database.write(
                lambda tx: self._expire(tx, scope_rows[0].id, now),
                name="approval.expire",
                writes=Writes.of(scope or self.scope),
            )

    def _expire(self, tx: Connection, scope_id: int, now: int) -> None:
        for stored in rows.overdue(tx, scope_id, now):
            if rows.move(tx, stored.record.id, before=stored.record.state, after="expired"):
                self._journal(tx, stored.record, "expired", at=now, reason="its time is over")

    def _visible(self, connection: Connection, approval_id: str) -> StoredApproval:
        stored = rows.find(connection, approval_id) if approval_id.isprintable() else None
        if stored is not None:
            scope = stored.record.scope
            if (
                self._decides(connection, scope)
                or self._is_own(connection, stored.record)
                # An agent that may look into the scope learns why it may not decide there.
                or (
                    self.actor.agent is not None
                    and self.gate.decide(connection, self.actor, "inspect", scope).allowed
                )
            ):
                return stored
        raise NotFound(f"There is no approval {approval_id} that {self.actor.user} may see.")

    def _is_own(self, connection: Connection, approval: Approval) -> bool:
        """Return True for an action of this actor's, if its token is good for looking there, and it
        is still of the scope: a token for fewer projects is of fewer scopes than its owner.
        """
        bounds = self.actor.credential
        return (
            approval.asked_by == self.actor.identity()
            and (bounds is None or bounds.covers("inspect", approval.scope))
            and any(
                self.gate.decide(connection, self.actor, operation, approval.scope).allowed
                for operation in ("read", "write")
            )
        )

    def _decides(self, connection: Connection, scope: Scope) -> bool:
        """Return True if this actor may decide in a scope: a person whose scope it is, a steward of
        its space, or an operator.
        """
        actor, bounds = self.actor, self.actor.credential
        if actor.agent is not None:
            return False
        if bounds is not None and not bounds.covers("manage", scope):
            return False
        diary = scope.diary_of
        if diary is not None and (diary.user, scope.organization) == (
            actor.user,
            actor.organization,
        ):
            return True
        return (
            scope == actor.private_scope
            or self.gate.decide(connection, actor, "manage", scope).allowed
        )

    def _journal(
        self,
        tx: Connection,
        approval: Approval,
        event: str,
        *,
        at: int,
        reason: str | None = None,
        step_id: str | None = None,
    ) -> None:
        _journal(tx, self.store, self.actor, approval, event, at=at, reason=reason, step_id=step_id)


def erase_arguments(
    tx: Connection,
    store: Store,
    actor: Actor,
    stored: Iterable[StoredApproval],
    *,
    at: int,
    needles: Sequence[bytes] | None = None,
) -> int:
    """Erase the arguments of approvals, the reasons given and the names of what was to be called;
    return their number. With `needles` a name stays that contains none of them.

    An action that nobody can look at any more cannot be decided: what is open expires.
    """
    erased = list(stored)
    for approval in erased:
        state = approval.record.state
        if state in rows.OPEN and rows.move(tx, approval.record.id, before=state, after="expired"):
            reason = "its arguments were erased"
            record = approval.record.model_copy(update={"subject": ""})
            _journal(tx, store, actor, record, "expired", at=at, reason=reason)
    rows.erase_arguments(tx, [approval.record.id for approval in erased], needles=needles)
    return len(erased)


def _journal(
    tx: Connection,
    store: Store,
    actor: Actor,
    approval: Approval,
    event: str,
    *,
    at: int,
    reason: str | None = None,
    step_id: str | None = None,
) -> None:
    # The digest of the action is keyed and stays out of the chain; the id says which one it is.
    details: dict[str, Any] = {
        "action": approval.action,
        "rule": approval.rule_id,
    }
    journal.append(
        tx,
        journal.Event(
            stream=f"scope:{approval.scope}",
            event=f"approval.{event}",
            actor=actor,
            at=at,
            audit_id=store.ids.new(),
            reason=reason,
            correlation_id=step_id,
            subject_id=approval.id,
            details=details,
            texts={"subject": approval.subject} if approval.subject else None,
        ),
    )


def _conflict(approval: Approval, to: _Moved) -> StateConflict:
    verbs = {"granted": "granted", "denied": "denied", "revoked": "taken back"}
    return StateConflict(
        approval.id,
        state=approval.state,
        reason=f"it cannot be {verbs[to]} any more"
        if approval.state != "pending"
        else "nothing was decided that could be taken back",
        hint="Let the action ask anew." if approval.state != "pending" else "Deny it instead.",
        what="Approval",
    )


def _token_of(stored: StoredApproval) -> str:
    """Return the token of a grant; it is made of what is stored, and differs with every grant."""
    approval = stored.record
    fields = ["approval-token", approval.id, stored.digest, approval.expires_at]
    return (
        f"{approval.id}.{part_key(stored.scope.secret, canonical_json(fields)).partition(':')[2]}"
    )


_RULES = "policy.call_rules"
"""Setting: the rules that the tally was last opened with."""
_ENFORCERS = "policy.enforcers"
"""Setting: the pieces that enforce them, by the subject of the rules, each with its last start."""


class EnforcedRule(NamedTuple):
    """A rule, and the pieces that enforce it."""

    rule_id: str
    applies_to: str
    pieces: tuple[str, ...]


def note_rules(store: Store, actor: Actor, rules: Iterable[PolicyRule]) -> None:
    """Note the rules that a process enforces, unless they are noted already."""
    noted = sorted([rule.id, rule.applies_to, rule.effect] for rule in rules)
    with store.database.read() as connection:
        if not noted or _get_setting(connection, _RULES, []) == noted:
            return

    def unit(tx: Connection) -> None:
        settings_rows.set_setting(tx, _RULES, json.dumps(noted))
        _journal_rule(tx, store, actor, "policy.rules", {"rules": [rule[0] for rule in noted]})

    store.database.write_if_possible(unit, name="policy.rules", writes=Writes.of(TALLY))


def note_enforcer(store: Store, actor: Actor, applies_to: str, piece: str) -> None:
    """Note that `piece` enforces rules over `applies_to` in this process."""

    def unit(tx: Connection) -> None:
        enforcers = _get_setting(tx, _ENFORCERS, {})
        enforcers.setdefault(applies_to, {})[piece] = store.clock.now()
        settings_rows.set_setting(tx, _ENFORCERS, json.dumps(enforcers, sort_keys=True))
        details = {"applies_to": applies_to, "piece": piece}
        _journal_rule(tx, store, actor, "policy.enforcer", details)

    # It is noted anew at each start, so that nothing has to be done where it fails.
    store.database.write_soon(
        unit, name="policy.enforcer", failed=lambda: None, writes=Writes.of(TALLY)
    )


def rules_and_enforcers(connection: Connection) -> Sequence[EnforcedRule]:
    """Return the rules with the pieces that enforce them, by the id of the rule."""
    enforcers = _get_setting(connection, _ENFORCERS, {})
    return [
        EnforcedRule(rule_id, applies_to, tuple(sorted(enforcers.get(applies_to, ()))))
        for rule_id, applies_to, _ in _get_setting(connection, _RULES, [])
    ]


def _get_setting(connection: Connection, name: str, default: Any) -> Any:
    value = settings_rows.get_setting(connection, name)
    return default if value is None else json.loads(value)


def _journal_rule(
    tx: Connection, store: Store, actor: Actor, event: str, details: dict[str, Any]
) -> None:
    journal.append(
        tx,
        journal.Event(
            stream="tally",
            event=event,
            actor=actor,
            at=store.clock.now(),
            audit_id=store.ids.new(),
            details=details,
        ),
    )
