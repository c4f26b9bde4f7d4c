"""Repairs: each with a reason and an actor, in the journal before and after with the health of that
moment, and within bounds.

The entry before is written in the transaction that counts: two processes never exceed a bound
together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tallystick.errors import Denied, InvalidInput, StateConflict, TallystickError
from tallystick.jobs import TALLY_ACTOR, Background, leases
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.records import (
    AccessDecision,
    Actor,
    Health,
    Json,
    JsonObject,
    Repair,
    RepairAction,
    RepairState,
)
from tallystick.records.times import DAY, HOUR, MINUTE, as_datetime
from tallystick.storage import Connection
from tallystick.storage.engine.writes import JOBS, TALLY, Writes
from tallystick.storage.rows import jobs, journal, scopes
from tallystick.upkeep import retention
from tallystick.upkeep.doctor import run_check
from tallystick.upkeep.jobs import note_repair, retry_jobs
from tallystick.upkeep.retention import Windows, require_operator
from tallystick_steward import taking_back
from tallystick_steward.health import judge
from tallystick_steward.readings import lacking_vectors, read
from tallystick_steward.taking_back import Selection

BEGIN, END = "repair.begin", "repair.end"
COOLDOWN = 10 * MINUTE
MOST_AN_HOUR, MOST_A_DAY = 20, 100
USED_UP = "used up"
"""The state of the repairs while no more are allowed."""
_TAKE_BACK: tuple[RepairAction, ...] = ("rollback", "recover_many")
_DESTRUCTIVE: tuple[RepairAction, ...] = ("purge", *_TAKE_BACK)
_INDEXES = ("search text", "vectors", "index", "segments")
_PAGES = 4
"""Pages of texts that one repair embeds at most."""
_SHOWN = 50
"""Jobs that are named."""


@dataclass(frozen=True)
class Act:
    """A repair that somebody asks for."""

    actor: Actor
    action: RepairAction
    reason: str
    target: str | None = None
    selection: Selection = field(default_factory=Selection)
    """What is taken back."""
    confirm_token: str | None = None
    jobs: Sequence[str] = ()
    """The jobs that the steward requeues, all of which failed by one cause."""
    cause: str | None = None
    """Their kind, and the code of their failure."""
    is_probe: bool = False
    """True for one job that asks whether the cause lasts."""
    is_for_person: bool = False
    """True where everything was done that is allowed without one."""

    def result(
        self, changed: int, facts: Mapping[str, Json], *, state: RepairState = "done"
    ) -> Repair:
        """Return what it did, or would do."""
        return Repair(
            action=self.action,
            state=state,
            target=self.target,
            changed=changed,
            facts=dict(facts),
            correlation_id=self.actor.correlation_id or "",
        )


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
            self._end(act, act.result(0, {"error": error.code}, state="failed"), before)
            raise
        after = self._end(act, done, before)
        if _asker(act.actor.identity()) is not None:
            return done  # of others' scopes even a score tells something
        return done.replace(before=before.scores, after=after.scores)

    def needs_person(self, act: Act) -> bool:
        """Return True for what nobody may do unattended."""
        return act.is_for_person or act.action not in self.context.settings.unattended

    def _admit(self, act: Act, mode: str) -> None:
        """Raise Denied unless this actor may ask for it: what is destructive is a person's, with
        the token of a preview.
        """
        actor, gate = act.actor, self.context.gate
        if self.is_unattended:
            if self.needs_person(act):
                raise gate.refusal(actor, "person_required", "manage")
        elif act.action not in _TAKE_BACK:
            require_operator(self.context, actor)
        if act.action in _DESTRUCTIVE:
            gate.require_person(actor, "delete", actor.private_scope)
            if act.action in _TAKE_BACK and mode != "preview" and act.confirm_token is None:
                raise gate.refusal(actor, "confirm_token_required", "manage")

    def _health(self) -> Health:
        return judge(read(self.context), self.context.settings.alerts)

    def _begin(self, act: Act, health: Health) -> None:
        """Count a repair and journal that it begins, in one transaction."""

        def unit(tx: Connection) -> None:
            if self.is_unattended and scopes.is_frozen(tx, name=scopes.AUTONOMY_FROZEN):
                raise Denied(AccessDecision.refusal(act.actor, "autonomy_frozen", "manage"))
            self._require_budget(tx, act, self.context.store.clock.now())
            self._note(tx, BEGIN, act, health)

        self.context.store.database.write(unit, name="steward.begin", writes=Writes.of(TALLY))

    def _require_budget(self, tx: Connection, act: Act, now: int) -> None:
        lately = journal.of_tally(tx, BEGIN, since=now - DAY, limit=20 * MOST_A_DAY)
        begun = [each for each in lately if _asker(each.actor) == _asker(act.actor.identity())]
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

    def _end(self, act: Act, done: Repair, before: Health) -> Health:
        after = self._health()
        facts = {"state": done.state, "changed": done.changed, **done.facts}
        facts["helped"] = sum(after.scores.values()) > sum(before.scores.values())
        self.context.store.database.write(
            lambda tx: self._note(tx, END, act, after, **facts),
            name="steward.end",
            writes=Writes.of(TALLY),
        )
        return after

    def _note(self, tx: Connection, event: str, act: Act, health: Health, **facts: Any) -> None:
        details = {"action": act.action, "target": act.target, "health": health.scores, **facts}
        note_repair(tx, self.context, act.actor, event, details, reason=act.reason)

    def _preview(self, act: Act) -> Repair:
        context, actor = self.context, act.actor
        if act.action == "purge":
            due = retention.purge(context, actor, self.windows, mode="preview")
            return act.result(0, due.dump(), state="previewed")
        with context.store.database.read() as connection:
            plan = taking_back.plan(connection, context, actor, act.selection)
        shown = act.result(plan.number, plan.facts, state="previewed")
        if not plan.number:
            return shown
        confirmation = context.store.database.write(
            lambda tx: taking_back.confirmation(tx, context, actor),
            name="steward.preview",
            writes=Writes.of(actor.private_scope),
        )
        token = confirmation.token(plan.as_json(), now=context.store.clock.now()).token
        return shown.replace(confirm_token=token)

    def _carry_out(self, act: Act) -> Repair:
        carry_out: dict[RepairAction, Callable[[Act], Repair]] = {
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

    def _requeue(self, act: Act) -> Repair:
        """Start jobs that failed or died anew; without a person those that were chosen."""
        if act.cause is None:
            ids = None if act.target is None else [act.target]
            done = retry_jobs(self.context, act.actor, ids, reason=act.reason, idempotency_key=None)
            return self._requeued(act, done)
        done = self._move_jobs(lambda tx: jobs.requeue(tx, act.jobs))
        return self._requeued(act, done, cause=act.cause, probe=act.is_probe)

    def _release(self, act: Act) -> Repair:
        """Take back leases that ran out or whose process is gone from this machine; of a target any
        lease.
        """
        return self._requeued(act, self._move_jobs(lambda tx: leases.release(tx, act.target)))

    def _move_jobs(self, unit: Callable[[Connection], list[str]]) -> list[str]:
        return self.context.store.database.write(unit, name="jobs.retry", writes=Writes.of(JOBS))

    def _requeued(self, act: Act, job_ids: list[str], **facts: Json) -> Repair:
        self.background.wake()
        return act.result(len(job_ids), {"jobs": [*job_ids[:_SHOWN]], **facts})

    def _check(self, act: Act) -> Repair:
        """Check what is derived; it changes nothing."""
        checks: JsonObject = {
            finding.check: finding.status
            for each in self.background.derived
            for finding in run_check(each.name, each.check)
        }
        return act.result(0, {"checks": checks})

    def _reembed(self, act: Act) -> Repair:
        """Embed some pages of the texts that have no vector, on this machine alone."""
        context = self.context
        if not context.local_embedder:
            raise InvalidInput(
                "The embedder is not on this machine: `tally reembed` says what it costs, and asks."
            )
        with context.store.database.read() as connection:
            missing = lacking_vectors(connection, context)
        pages = _PAGES
        for scope in missing:
            commit = scope.committing("steward.reembed")
            while pages and not self._is_stopped() and scope.embed_page(commit, self._is_stopped):
                pages -= 1
        return act.result(sum(scope.vectors for scope in missing), {"scopes": len(missing)})

    def _is_stopped(self) -> bool:
        return self.is_unattended and self.context.gate.is_autonomy_frozen()

    def _reindex(self, act: Act) -> Repair:
        """Make anew those parts of the index that do not match the database."""
        mended: list[Json] = [
            each.name
            for each in self.background.derived
            if each.name in _INDEXES
            and any(finding.status != "ok" for finding in run_check(each.name, each.check))
            and each.repair(act.actor).status == "repaired"
        ]
        return act.result(len(mended), {"mended": mended})

    def _purge(self, act: Act) -> Repair:
        done = retention.purge(
            self.context, act.actor, self.windows, mode="apply", reason=act.reason
        ).dump()
        counts = {name: value for name, value in done.items() if isinstance(value, int)}
        return act.result(sum(counts.values()), {**counts})

    def _take_back(self, act: Act) -> Repair:
        done = taking_back.take_back(
            self.context,
            act.actor,
            act.selection,
            reason=act.reason,
            confirm_token=act.confirm_token or "",
        )
        return act.result(done.number, done.facts)


def _asker(identity: Mapping[str, Any]) -> str | None:
    """Return the user whose own bounds count a repair; None for an operator and the steward, who
    share those of the tally.
    """
    user = str(identity.get("user"))
    return None if identity.get("role") == "operator" or user == TALLY_ACTOR.user else user
