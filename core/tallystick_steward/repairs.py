"""Repairs: each with a reason and an actor, in the journal before and after with the health of that
moment, and within bounds.

The entry before is written in the transaction that counts: two processes never exceed a bound
together.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from tallystick.errors import Denied, InvalidInput, StateConflict, TallystickError
from tallystick.jobs import Background
from tallystick.jobs.derived import Derived
from tallystick.jobs.embedding import Unembedded
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.records import AccessDecision, Actor, Finding, Health, Repair, RepairAction
from tallystick.records.times import DAY, HOUR, MINUTE, as_datetime
from tallystick.storage import Connection
from tallystick.storage.engine.writes import JOBS, TALLY, Writes
from tallystick.storage.rows import jobs, journal, measures, scopes
from tallystick.upkeep import retention
from tallystick.upkeep.jobs import note_repair, retry_jobs
from tallystick.upkeep.retention import Windows, require_operator
from tallystick_steward import taking_back
from tallystick_steward.health import judge
from tallystick_steward.readings import read, unembedded
from tallystick_steward.requeueing import Choice
from tallystick_steward.taking_back import Selection

BEGIN, END = "repair.begin", "repair.end"
COOLDOWN = 10 * MINUTE
MOST_AN_HOUR, MOST_A_DAY = 20, 100
USED_UP = "used up"
"""The state of the repairs while no more are allowed."""
_DESTRUCTIVE: tuple[RepairAction, ...] = ("purge", "rollback", "recover_many")
_INDEXES = ("search text", "vectors", "index", "segments")
_PAGES = 4
"""Pages of texts that one repair embeds at most."""


@dataclass(frozen=True)
class Act:
    """A repair that somebody asks for."""

    actor: Actor
    action: RepairAction
    reason: str
    target: str | None = None
    selection: Selection | None = None
    """What is taken back."""
    confirm_token: str | None = None
    choice: Choice | None = None
    """What the steward requeues."""

    @property
    def taken_back(self) -> Selection:
        """What it takes back. Raises InvalidInput where it does not say."""
        if self.selection is None:
            raise InvalidInput("Say what to take back: by_job, by_model, by_actor, or since.")
        return self.selection


class Outcome(NamedTuple):
    """What an action changed."""

    changed: int
    facts: dict[str, Any]


@dataclass(frozen=True)
class Repairs:
    """The repairs of one tally. Thread-safe."""

    context: MemoryContext
    background: Background
    windows: Windows
    is_unattended: bool = False
    """True where no person asked: then a setting says what is allowed."""

    def repair(self, act: Act, *, mode: str = "apply") -> Repair:
        """Carry out a repair for a person or the steward. Raises Denied, InvalidInput, and
        StateConflict within the cooldown of an action or beyond a budget, which says when.
        """
        require_reason(act.reason)
        self._admit(act, mode)
        act = replace(act, actor=act.actor.within_act(self.context.store.ids.new()))
        if act.action in _DESTRUCTIVE and mode == "preview":
            return self._preview(act)
        before = self._health()
        self._begin(act, before)
        try:
            done = self._carry_out(act)
        except TallystickError as error:
            self._end(act, Outcome(0, {"error": error.code}), "failed")
            raise
        after = self._end(act, done, "done")
        return self._result(act, "done", done.changed, done.facts).model_copy(
            update={"before": before.scores, "after": after.scores}
        )

    def _admit(self, act: Act, mode: str) -> None:
        """Raise Denied unless this actor may ask for it: what is destructive is a person's, with
        the token of a preview.
        """
        actor, gate = act.actor, self.context.gate
        if self.is_unattended:
            if act.action not in self.context.settings.unattended:
                raise gate.refuse(actor, self._decision(actor, "person_required"))
        elif act.selection is None:
            require_operator(self.context, actor)
        if act.action in _DESTRUCTIVE:
            gate.require_person(actor, "delete", actor.private_scope)
            if mode != "preview" and act.selection is not None and act.confirm_token is None:
                raise gate.refuse(actor, self._decision(actor, "confirm_token_required"))

    def _health(self) -> Health:
        return judge(read(self.context), self.context.settings.alerts)

    @staticmethod
    def _decision(actor: Actor, reason: Any) -> AccessDecision:
        return AccessDecision(
            allowed=False,
            reason=reason,
            operation="manage",
            scope=actor.private_scope,
            surface=actor.surface,
        )

    @staticmethod
    def _result(act: Act, state: Any, changed: int, facts: dict[str, Any]) -> Repair:
        return Repair(
            action=act.action,
            state=state,
            target=act.target,
            changed=changed,
            facts=facts,
            correlation_id=act.actor.correlation_id or "",
        )

    def _begin(self, act: Act, health: Health) -> None:
        """Count a repair and journal that it begins, in one transaction."""

        def unit(tx: Connection) -> None:
            if self.is_unattended and scopes.is_frozen(tx, name=scopes.AUTONOMY_FROZEN):
                raise Denied(self._decision(act.actor, "autonomy_frozen"))
            self._require_budget(tx, act, self.context.store.clock.now())
            self._note(tx, BEGIN, act, health)

        self.context.store.database.write(unit, name="steward.begin", writes=Writes.of(TALLY))

    def _require_budget(self, tx: Connection, act: Act, now: int) -> None:
        begun = journal.of_tally(tx, BEGIN, since=now - DAY, limit=2 * MOST_A_DAY)
        day = [entry.at for entry in begun]
        hour = [at for at in day if at > now - HOUR]
        own = {"action": act.action, "target": act.target}
        same = [entry.at for entry in begun if own.items() <= entry.details.items()]
        rests = max(same, default=0) + COOLDOWN
        full_hour = min(hour) + HOUR if len(hour) >= MOST_AN_HOUR else 0
        full_day = min(day) + DAY if len(day) >= MOST_A_DAY else 0
        for until, state, why in (
            (rests, "resting", f"{act.action} was done less than 10 minutes ago"),
            (full_hour, USED_UP, f"{MOST_AN_HOUR} repairs were made within an hour"),
            (full_day, USED_UP, f"{MOST_A_DAY} repairs were made within a day"),
        ):
            if until > now:
                when = as_datetime(until).isoformat(timespec="seconds")
                text = f"{why}: it may be done again at {when}"
                raise StateConflict(act.action, state=state, reason=text, what="Repair")

    def _end(self, act: Act, done: Outcome, state: str) -> Health:
        health = self._health()
        facts = {"state": state, "changed": done.changed, **done.facts}
        self.context.store.database.write(
            lambda tx: self._note(tx, END, act, health, **facts),
            name="steward.end",
            writes=Writes.of(TALLY),
        )
        return health

    def _note(self, tx: Connection, event: str, act: Act, health: Health, **facts: Any) -> None:
        details = {"action": act.action, "target": act.target, "health": health.scores, **facts}
        note_repair(tx, self.context, act.actor, event, details, reason=act.reason)

    def _preview(self, act: Act) -> Repair:
        context, actor = self.context, act.actor
        if act.action == "purge":
            due = retention.purge(context, actor, self.windows, mode="preview")
            return self._result(act, "previewed", 0, due.dump())
        with context.store.database.read() as connection:
            plan = taking_back.plan(connection, context, actor, act.taken_back)
            confirmation = taking_back.confirmation(connection, context, actor)
        token = None
        if plan.number and confirmation.secret is not None:
            token = confirmation.token(plan.as_json(), now=context.store.clock.now()).token
        shown = self._result(act, "previewed", plan.number, plan.facts)
        return shown.model_copy(update={"confirm_token": token})

    def _carry_out(self, act: Act) -> Outcome:
        carry_out: dict[RepairAction, Callable[[Act], Outcome]] = {
            "requeue": self._requeue,
            "release_lease": self._release,
            "check": self._check,
            "reembed": self._reembed,
            "reindex": self._reindex,
            "purge": self._purge,
            "rollback": self._take_back,
            "recover_many": self._take_back,
        }
        return carry_out[act.action](act)

    def _requeue(self, act: Act) -> Outcome:
        """Start jobs that failed or died anew; without a person those that were chosen."""
        facts: dict[str, Any] = {}
        if act.choice is None:
            ids = None if act.target is None else [act.target]
            done = retry_jobs(self.context, act.actor, ids, reason=act.reason, idempotency_key=None)
        else:
            chosen = act.choice
            facts = {"cause": chosen.cause, "probe": chosen.is_probe}
            done = self._move_jobs(lambda tx: jobs.requeue(tx, chosen.jobs))
        self.background.wake()
        return Outcome(len(done), {"jobs": done[:50], **facts})

    def _move_jobs(self, unit: Callable[[Connection], list[str]]) -> list[str]:
        return self.context.store.database.write(unit, name="jobs.retry", writes=Writes.of(JOBS))

    def _release(self, act: Act) -> Outcome:
        """Take back leases that ran out or whose process is gone from this machine; of a target any
        lease.
        """

        def unit(tx: Connection) -> list[str]:
            now, held = measures.leases(tx)
            ids = [
                each.id
                for each in held
                if each.id == act.target or (act.target is None and is_leaked(each, now))
            ]
            return jobs.requeue(tx, ids, under_way=True) if ids else []

        released = self._move_jobs(unit)
        self.background.wake()
        return Outcome(len(released), {"jobs": released[:50]})

    def _check(self, act: Act) -> Outcome:
        """Check what is derived; it changes nothing."""
        found = [finding for each in self.background.derived for finding in _findings(each)]
        return Outcome(0, {"checks": {finding.check: finding.status for finding in found}})

    def _reembed(self, act: Act) -> Outcome:
        """Embed some pages of the texts that have no vector, on this machine alone."""
        context = self.context
        if not context.local_embedder:
            raise InvalidInput(
                "The embedder is not on this machine: `tally reembed` says what it costs, and asks."
            )
        with context.store.database.read() as connection:
            missing = {
                number: scopes.get_by_id(connection, number).scope
                for number in unembedded(connection, context)
            }
        pages, made = _PAGES, 0
        for scope_id, name in missing.items():
            scope, writes = Unembedded(context, scope_id), Writes.of(name)
            commit = partial(context.store.database.write, name="steward.reembed", writes=writes)
            while pages and not self._is_stopped() and scope.embed_page(commit, self._is_stopped):
                pages -= 1
            made += scope.vectors
        return Outcome(made, {"scopes": len(missing)})

    def _is_stopped(self) -> bool:
        return self.is_unattended and self.context.gate.is_autonomy_frozen()

    def _reindex(self, act: Act) -> Outcome:
        """Make anew those parts of the index that do not match the database."""
        mended = [
            each.name
            for each in self.background.derived
            if each.name in _INDEXES
            and any(finding.status != "ok" for finding in _findings(each))
            and each.repair(act.actor).status == "repaired"
        ]
        return Outcome(len(mended), {"mended": mended})

    def _purge(self, act: Act) -> Outcome:
        done = retention.purge(
            self.context, act.actor, self.windows, mode="apply", reason=act.reason
        ).dump()
        counts = {name: value for name, value in done.items() if isinstance(value, int)}
        return Outcome(sum(counts.values()), counts)

    def _take_back(self, act: Act) -> Outcome:
        done = taking_back.take_back(
            self.context,
            act.actor,
            act.taken_back,
            reason=act.reason,
            confirm_token=act.confirm_token or "",
        )
        return Outcome(done.number, done.facts)


def _findings(derived: Derived) -> list[Finding]:
    found = derived.check()
    return found if isinstance(found, list) else [found]


def is_leaked(lease: measures.Leased, now: int) -> bool:
    """Return True for a lease that ran out, or whose process is gone from this machine."""
    if lease.due_at <= now:
        return True
    host, _, rest = lease.worker.partition(":")
    process = rest.partition("-")[0]
    if host != socket.gethostname() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
