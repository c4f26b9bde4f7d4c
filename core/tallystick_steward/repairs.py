"""Repairs: each with a reason and an actor, in the journal before and after with the health of that
moment, and within bounds.

The entry before is written in the transaction that counts: two processes never exceed a bound
together.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, get_args

from tallystick.errors import Denied, InvalidInput, StateConflict, TallystickError
from tallystick.jobs import Background
from tallystick.jobs.embedding import Unembedded
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.records import AccessDecision, Actor, Health, Repair, RepairAction
from tallystick.records.times import as_datetime
from tallystick.storage import Connection
from tallystick.storage.engine.writes import JOBS, TALLY, Writes
from tallystick.storage.index import search
from tallystick.storage.rows import jobs, measures, scopes
from tallystick.upkeep import retention
from tallystick.upkeep.jobs import note_repair, retry_jobs
from tallystick.upkeep.retention import Windows, require_operator
from tallystick_steward import taking_back
from tallystick_steward.health import judge
from tallystick_steward.readings import DAY, HOUR, MINUTE, lately, read
from tallystick_steward.requeueing import Choice
from tallystick_steward.taking_back import Selection

BEGIN, END = "repair.begin", "repair.end"
ACTIONS: tuple[RepairAction, ...] = get_args(RepairAction)
COOLDOWN = 10 * MINUTE
MOST_AN_HOUR, MOST_A_DAY = 20, 100
USED_UP = "used up"
"""The state of the repairs while no more are allowed."""
_DESTRUCTIVE: tuple[RepairAction, ...] = ("purge", "rollback", "recover_many")
_INDEXES = ("search text", "vectors", "index", "segments")
_PAGES = 4
"""Pages of texts that one repair embeds at most."""


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

    def repair(
        self,
        actor: Actor,
        action: str,
        *,
        reason: str,
        target: str | None = None,
        selection: Selection | None = None,
        mode: str = "apply",
        confirm_token: str | None = None,
        choice: Choice | None = None,
    ) -> Repair:
        """Carry out a repair for a person or the steward, who has chosen what it requeues. Raises
        Denied, InvalidInput, which lists the actions, and StateConflict within the cooldown of an
        action or beyond a budget, which says when.
        """
        chosen = require_action(action)
        require_reason(reason)
        if not self.is_unattended and chosen not in ("recover_many", "rollback"):
            require_operator(self.context, actor)
        if self.is_unattended and chosen not in self.context.settings.unattended:
            raise self._needs_person(actor)
        if chosen in _DESTRUCTIVE:
            self.context.gate.require_person(actor, "delete", actor.private_scope)
        acting = actor.within_act(self.context.store.ids.new())
        correlation_id = acting.correlation_id or ""
        if chosen in _DESTRUCTIVE and mode == "preview":
            return self._preview(acting, chosen, target, selection, correlation_id)
        if chosen in _DESTRUCTIVE and chosen != "purge" and confirm_token is None:
            raise self.context.gate.refuse(actor, self._decision(actor, "confirm_token_required"))
        before = self._health()
        self._begin(acting, chosen, target, before, reason)
        try:
            done = self._act(acting, chosen, target, selection, reason, confirm_token, choice)
        except TallystickError as error:
            self._end(acting, chosen, target, Outcome(0, {"error": error.code}), "failed", reason)
            raise
        after = self._end(acting, chosen, target, done, "done", reason)
        return Repair(
            action=chosen,
            state="done",
            target=target,
            changed=done.changed,
            facts=done.facts,
            correlation_id=correlation_id,
            before=scores_of(before),
            after=scores_of(after),
        )

    def _health(self) -> Health:
        return judge(read(self.context), self.context.settings.alerts)

    def _needs_person(self, actor: Actor) -> Denied:
        return self.context.gate.refuse(actor, self._decision(actor, "person_required"))

    @staticmethod
    def _decision(actor: Actor, reason: Any) -> AccessDecision:
        return AccessDecision(
            allowed=False,
            reason=reason,
            operation="manage",
            scope=actor.private_scope,
            surface=actor.surface,
        )

    def _begin(
        self, actor: Actor, action: RepairAction, target: str | None, health: Health, reason: str
    ) -> None:
        """Count a repair and journal that it begins, in one transaction."""

        def unit(tx: Connection) -> None:
            if self.is_unattended and scopes.is_frozen(tx, name=scopes.AUTONOMY_FROZEN):
                raise Denied(self._decision(actor, "autonomy_frozen"))
            now = self.context.store.clock.now()
            self._require_budget(tx, action, target, now)
            self._journal(tx, BEGIN, actor, action, target, health, {}, reason)

        self.context.store.database.write(unit, name="steward.begin", writes=Writes.of(TALLY))

    def _require_budget(
        self, tx: Connection, action: RepairAction, target: str | None, now: int
    ) -> None:
        begun = lately(tx, BEGIN, since=now - DAY, limit=2 * MOST_A_DAY)
        same = [
            entry.at
            for entry in begun
            if entry.details.get("action") == action and entry.details.get("target") == target
        ]
        within_hour = [entry.at for entry in begun if entry.at > now - HOUR]
        for until, state, why in (
            (
                max(same, default=0) + COOLDOWN,
                "resting",
                f"{action} was done less than 10 minutes ago",
            ),
            (
                min(within_hour) + HOUR if len(within_hour) >= MOST_AN_HOUR else 0,
                USED_UP,
                f"{MOST_AN_HOUR} repairs were made within an hour",
            ),
            (
                min(entry.at for entry in begun) + DAY if len(begun) >= MOST_A_DAY else 0,
                USED_UP,
                f"{MOST_A_DAY} repairs were made within a day",
            ),
        ):
            if until > now:
                when = as_datetime(until).isoformat(timespec="seconds")
                raise StateConflict(
                    action,
                    state=state,
                    reason=f"{why}: it may be done again at {when}",
                    what="Repair",
                )

    def _end(
        self,
        actor: Actor,
        action: RepairAction,
        target: str | None,
        done: Outcome,
        state: str,
        reason: str,
    ) -> Health:
        health = self._health()
        facts = {"state": state, "changed": done.changed, **done.facts}
        self.context.store.database.write(
            lambda tx: self._journal(tx, END, actor, action, target, health, facts, reason),
            name="steward.end",
            writes=Writes.of(TALLY),
        )
        return health

    def _journal(
        self,
        tx: Connection,
        event: str,
        actor: Actor,
        action: RepairAction,
        target: str | None,
        health: Health,
        facts: dict[str, Any],
        reason: str,
    ) -> None:
        details = {"action": action, "target": target, "health": scores_of(health), **facts}
        note_repair(tx, self.context, actor, event, details, reason=reason)

    def _preview(
        self,
        actor: Actor,
        action: RepairAction,
        target: str | None,
        selection: Selection | None,
        correlation_id: str,
    ) -> Repair:
        previewed = Repair(
            action=action, state="previewed", target=target, correlation_id=correlation_id
        )
        if action == "purge":
            due = retention.purge(self.context, actor, self.windows, mode="preview")
            return previewed.model_copy(update={"facts": due.dump()})
        chosen = _require_selection(action, target, selection)
        with self.context.store.database.read() as connection:
            plan = taking_back.plan(connection, self.context, actor, chosen)
            confirmation = taking_back.confirmation(connection, self.context, actor)
        token = None
        if plan.number and confirmation.secret is not None:
            now = self.context.store.clock.now()
            token = confirmation.token(plan.as_json(), now=now).token
        return previewed.model_copy(
            update={
                "changed": plan.number,
                "facts": {name: count for name, count in plan.counts.items() if count},
                "confirm_token": token,
            }
        )

    def _act(
        self,
        actor: Actor,
        action: RepairAction,
        target: str | None,
        selection: Selection | None,
        reason: str,
        confirm_token: str | None,
        choice: Choice | None,
    ) -> Outcome:
        if action in ("rollback", "recover_many"):
            done = taking_back.take_back(
                self.context,
                actor,
                _require_selection(action, target, selection),
                reason=reason,
                confirm_token=confirm_token or "",
                correlation_id=actor.correlation_id or "",
            )
            return Outcome(done.number, {name: n for name, n in done.counts.items() if n})
        simple: dict[str, Callable[[], Outcome]] = {
            "requeue": lambda: self._requeue(actor, target, choice, reason),
            "release_lease": lambda: self._release(target),
            "check": self._check,
            "reembed": self._reembed,
            "reindex": lambda: self._reindex(actor),
            "purge": lambda: self._purge(actor, reason),
        }
        return simple[action]()

    def _requeue(
        self, actor: Actor, target: str | None, choice: Choice | None, reason: str
    ) -> Outcome:
        """Start jobs that failed or died anew; without a person those that were chosen."""
        facts: dict[str, Any] = {}
        if choice is None:
            ids = None if target is None else [target]
            done = retry_jobs(self.context, actor, ids, reason=reason, idempotency_key=None)
        else:
            facts = {"cause": choice.cause, "probe": choice.is_probe}
            done = self.context.store.database.write(
                lambda tx: jobs.requeue(tx, choice.jobs), name="jobs.retry", writes=Writes.of(JOBS)
            )
        self.background.wake()
        return Outcome(len(done), {"jobs": done[:50], **facts})

    def _release(self, target: str | None) -> Outcome:
        """Take back leases that ran out or whose process is gone from this machine; of a target any
        lease.
        """

        def unit(tx: Connection) -> list[str]:
            now, held = measures.leases(tx)
            ids = [
                each.id
                for each in held
                if each.id == target or (target is None and is_leaked(each, now))
            ]
            return jobs.requeue(tx, ids, under_way=True) if ids else []

        released = self.context.store.database.write(
            unit, name="jobs.retry", writes=Writes.of(JOBS)
        )
        self.background.wake()
        return Outcome(len(released), {"jobs": released[:50]})

    def _check(self) -> Outcome:
        """Check what is derived; it changes nothing."""
        statuses: dict[str, str] = {}
        for each in self.background.derived:
            found = each.check()
            for finding in found if isinstance(found, list) else [found]:
                statuses[finding.check] = finding.status
        return Outcome(0, {"checks": statuses})

    def _reembed(self) -> Outcome:
        """Embed some pages of the texts that have no vector, on this machine alone."""
        context = self.context
        fingerprint = context.settled_fingerprint()
        if not context.local_embedder or fingerprint is None:
            raise InvalidInput(
                "The embedder is not on this machine: `tally reembed` says what it costs, and asks."
            )
        with context.store.database.read() as connection:
            missing = search.scopes_missing_vectors(
                connection, fingerprint, local_embedder=context.local_embedder
            )
        pages, made = _PAGES, 0
        for scope_id in sorted(missing):
            scope = Unembedded(context, scope_id)
            with context.store.database.read() as connection:
                writes = Writes.of(scopes.get_by_id(connection, scope_id).scope)
            commit = partial(context.store.database.write, name="steward.reembed", writes=writes)
            while pages and not self._is_stopped() and scope.embed_page(commit, self._is_stopped):
                pages -= 1
            made += scope.vectors
        return Outcome(made, {"scopes": len(missing)})

    def _is_stopped(self) -> bool:
        return self.is_unattended and self.context.gate.is_autonomy_frozen()

    def _reindex(self, actor: Actor) -> Outcome:
        """Make anew those parts of the index that do not match the database."""
        mended = []
        for each in self.background.derived:
            if each.name not in _INDEXES:
                continue
            found = each.check()
            wrong = [f for f in (found if isinstance(found, list) else [found]) if f.status != "ok"]
            if wrong and each.repair(actor).status == "repaired":
                mended.append(each.name)
        return Outcome(len(mended), {"mended": mended})

    def _purge(self, actor: Actor, reason: str) -> Outcome:
        done = retention.purge(
            self.context, actor, self.windows, mode="apply", reason=reason
        ).dump()
        counts = {name: value for name, value in done.items() if isinstance(value, int)}
        return Outcome(sum(counts.values()), counts)


def require_action(name: str) -> RepairAction:
    """Return an action by its name. Raises InvalidInput, which lists them."""
    for action in ACTIONS:
        if action == name:
            return action
    raise InvalidInput(f"There is no repair {name!a}: {', '.join(ACTIONS)}.", argument="action")


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


def scores_of(health: Health) -> dict[str, int]:
    """Return the scores of a health by part."""
    return {each.domain: each.score for each in health.domains}


def _require_selection(
    action: RepairAction, target: str | None, selection: Selection | None
) -> Selection:
    if action == "rollback":
        if target is None:
            raise InvalidInput("`rollback` takes the correlation id of an act.", argument="target")
        return Selection(None, None, None, target, 0, 2**62)
    if selection is None:
        raise InvalidInput("Say what to take back: by_job, by_model, by_actor, or since.")
    return selection
