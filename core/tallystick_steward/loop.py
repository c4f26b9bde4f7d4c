"""The loop: looks at health, does one allowed repair at a time, and looks again.

    off       nothing
    observe   the journal says what would be done (`steward.observed`)
    execute   what `unattended` allows is done; the rest is asked of a person

Three repairs that did not help halt it, until a person clears the halt. One process at a time has
the loop: it takes the turn in the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from tallystick.access.approvals import Approvals, GuardedCall
from tallystick.errors import Denied, StateConflict
from tallystick.jobs import TALLY_ACTOR, Background, leases
from tallystick.memory import MemoryContext
from tallystick.records import Actor, Alert, Approval, Health, JsonObject, PolicyRule, Repair
from tallystick.records.times import DAY, HOUR, MINUTE
from tallystick.storage import Connection
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import job_list, journal, journal_reading, settings_rows
from tallystick.upkeep.alerts import call_listeners, clear_alert, raise_alert, standing
from tallystick.upkeep.jobs import note_repair
from tallystick.upkeep.retention import Windows
from tallystick_steward.alerts import update
from tallystick_steward.health import WELL, judge
from tallystick_steward.readings import Readings, read
from tallystick_steward.repairs import BEGIN, END, MOST_A_DAY, USED_UP, Act, Repairs
from tallystick_steward.requeueing import requeue_stuck

OBSERVED, ESCALATED, RESUMED = "steward.observed", "steward.escalated", "steward.resumed"
EVERY = 15.0
"""Seconds from one look to the next."""
_TURN = "steward.turn"
_TURN_US = 2 * MINUTE
_FRUITLESS = 3
"""Repairs in a row that did not help, after which the loop halts."""
_SNAPSHOT_JOBS, _SNAPSHOT_ENTRIES = 20, 50
_OWNER = "owner"
_LOOKED_AT = 1_000
"""Entries of the tally's journal in which an operator is looked for."""
_RULE = PolicyRule(
    id="steward",
    name="what the steward may not do alone",
    effect="require_approval",
    applies_to="tool_call",
)


class Turn(NamedTuple):
    """What one turn of the loop did."""

    health: Health
    repairs: tuple[Repair, ...] = ()
    proposed: tuple[Act, ...] = ()
    """What it would have done, with `observe`."""
    escalated: Approval | None = None
    is_halted: bool = False


def propose(context: MemoryContext, readings: Readings) -> list[Act]:
    """Return the repairs that would help by these readings, the most harmless first."""
    with context.store.database.read() as connection:
        leaked = len(leases.leaked(connection))
        acts = requeue_stuck(connection, readings.now)
    if leaked:
        acts.insert(0, Act(TALLY_ACTOR, "release_lease", f"{leaked} leases are held by nobody"))
    if readings.unembedded_scopes:
        text = f"texts of {readings.unembedded_scopes} scopes have no vector"
        acts.append(Act(TALLY_ACTOR, "reembed", text))
    if readings.deletes:
        acts.append(Act(TALLY_ACTOR, "recover_many", "a caller forgot much more than usual"))
    return acts


@dataclass(frozen=True)
class Loop:
    """The loop of one tally, as one process runs it. Thread-safe."""

    context: MemoryContext
    background: Background
    windows: Windows
    holder: str
    """The name under which this process takes the turn."""

    def turn(self) -> Turn | None:
        """Look at the tally, and act until it is well, nothing more is allowed, or an operator
        freezes autonomy; None where it is off, the database takes no write or another process
        has the turn.
        """
        autonomy = self.context.settings.autonomy
        is_idle = autonomy == "off" or self.context.store.database.unwritable is not None
        if is_idle or not self._take_turn():
            return None
        readings = read(self.context)
        update(self.context, readings)
        health = judge(readings, self.context.settings.alerts)
        acts = propose(self.context, readings)
        if not acts:
            return Turn(health)
        if autonomy == "observe":
            self._observe(acts, health)
            return Turn(health, proposed=tuple(acts))
        return self._execute(acts, health)

    def _execute(self, acts: list[Act], health: Health) -> Turn:
        if self._is_halted():
            return Turn(health, is_halted=True)
        repairs = Repairs(self.context, self.background, self.windows, is_unattended=True)
        repairs_made: list[Repair] = []
        escalated: Approval | None = None
        for act in acts:
            if self.context.gate.is_autonomy_frozen():
                break
            if repairs.needs_person(act):
                escalated = self._escalate(act.action, act.reason, health) or escalated
                continue
            try:
                repairs_made.append(repairs.repair(act))
            except StateConflict as conflict:
                if conflict.state == USED_UP:
                    escalated = self._escalate(act.action, conflict.reason, health) or escalated
                continue  # it rests: the journal says when it was done
            except Denied:
                break  # frozen between the look and the act
            seen = read(self.context)
            health = judge(seen, self.context.settings.alerts)
            if health.score >= WELL and not propose(self.context, seen):
                break
        is_halted = self._is_fruitless()
        if is_halted:
            text = f"{_FRUITLESS} repairs in a row did not help: a person has to look"
            raise_alert(self.context, "steward_halted", text, repairs=_FRUITLESS)
            escalated = self._escalate("check", text, health)
        return Turn(health, tuple(repairs_made), escalated=escalated, is_halted=is_halted)

    def _take_turn(self) -> bool:
        """Take the turn for two minutes, unless another process has it."""
        now = self.context.store.clock.now()

        def unit(tx: Connection) -> bool:
            until, _, holder = (settings_rows.get_setting(tx, _TURN) or "0:").partition(":")
            if int(until) > now and holder != self.holder:
                return False
            settings_rows.set_setting(tx, _TURN, f"{now + _TURN_US}:{self.holder}")
            return True

        return self.context.store.database.write(unit, name="steward.turn", writes=Writes.of(TALLY))

    def _observe(self, acts: list[Act], health: Health) -> None:
        """Journal what would be done, once a day for each action."""
        reasons = {act.action: act.reason for act in reversed(acts)}
        since = self.context.store.clock.now() - DAY

        def unit(tx: Connection) -> None:
            entries = journal.of_tally(tx, OBSERVED, since=since)
            observed = {str(entry.details.get("action")) for entry in entries}
            for action, reason in reasons.items():
                if action not in observed:
                    details = {"action": action, "health": health.scores}
                    note_repair(tx, self.context, TALLY_ACTOR, OBSERVED, details, reason=reason)

        self.context.store.database.write(unit, name="steward.observe", writes=Writes.of(TALLY))

    def _is_halted(self) -> bool:
        with self.context.store.database.read() as connection:
            return "steward_halted" in standing(connection)

    def _is_fruitless(self) -> bool:
        """Return True if the last repairs, since a person resumed the loop, did not help. A probe
        is none: it asks whether its cause lasts.
        """
        since = self.context.store.clock.now() - DAY
        with self.context.store.database.read() as connection:
            entries = journal.of_tally(connection, END, RESUMED, since=since, limit=MOST_A_DAY)
        helped = [
            entry.details.get("helped", True)
            for entry in takewhile(lambda entry: entry.event == END, entries)
            if entry.actor.get("user") == TALLY_ACTOR.user and not entry.details.get("probe")
        ]
        return len(helped) >= _FRUITLESS and not any(helped[:_FRUITLESS])

    def _escalate(self, action: str, reason: str, health: Health) -> Approval | None:
        """Ask a person, once for what waits and once an hour: with health, jobs, the last entries
        of the journal and what was tried. None where one decided within the hour.
        """
        context, now = self.context, self.context.store.clock.now()
        with context.store.database.read() as connection:
            person = _person(connection)
            escalations = journal.of_tally(connection, ESCALATED, since=now - HOUR)
            recent = journal_reading.after(connection, 0, limit=_SNAPSHOT_ENTRIES, newest=True)
            tried = journal.of_tally(connection, BEGIN, since=now - DAY, limit=_SNAPSHOT_JOBS)
            troubled = job_list.list_jobs(
                connection, states=("failed", "dead"), limit=_SNAPSHOT_JOBS
            )
        approvals = Approvals(
            context.store,
            context.gate,
            context.redactor,
            person.model_copy(update={"surface": TALLY_ACTOR.surface}),
            person.private_scope,
        )
        subject = f"steward.{action}"
        for each in approvals.in_state("pending", limit=50):
            if each.subject == subject:
                return each
        if any(each.details.get("action") == action for each in escalations):
            return None
        snapshot: JsonObject = {
            "health": {**health.scores},
            "jobs": [{"id": job.id, "kind": job.kind, "code": job.error_code} for job in troubled],
            "journal": [entry.audit_id for entry in recent],
            "tried": [str(entry.details.get("action")) for entry in tried],
        }
        [answer] = approvals.ask([(GuardedCall("tool_call", subject, snapshot), _RULE)])
        details = {"action": action, "approval": answer.approval.id, "health": health.scores}
        context.store.database.write(
            lambda tx: note_repair(tx, context, TALLY_ACTOR, ESCALATED, details, reason=reason),
            name="steward.escalate",
            writes=Writes.of(TALLY),
        )
        return answer.approval


def _person(connection: Connection) -> Actor:
    """Return who is asked: the owner, and of a tally on a server the operator who acted last."""
    owner = settings_rows.get_setting(connection, _OWNER)
    if owner is not None:
        return Actor.loads(owner)
    acted = (entry.actor for entry in journal.of_tally(connection, limit=_LOOKED_AT))
    operators = (str(each["user"]) for each in acted if each.get("role") == "operator")
    return Actor(user=next(operators, "operator"))


def resume(context: MemoryContext, actor: Actor, reason: str) -> None:
    """Let a loop that was halted go on; the caller has checked that an operator asks."""

    def unit(tx: Connection) -> Alert:
        note_repair(tx, context, actor, RESUMED, {}, reason=reason)
        return clear_alert(tx, context, "steward_halted")

    cleared = context.store.database.write(unit, name="steward.resume", writes=Writes.of(TALLY))
    call_listeners(context, [cleared])
