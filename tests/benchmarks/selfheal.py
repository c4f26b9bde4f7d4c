"""Sixty injected incidents, with the loop beside alerts only: what is solved alone, how long it
takes, and what was done that did not help.

    make bench-selfheal

The incidents are listed in `selfheal_incidents.json`, whose digest was committed before the loop
was written. Each is played in a tally of its own on a clock that is moved by a minute a turn, four
pauses of the loop, for two hours at most. With alerts only a person looks `PERSON` minutes after
the first sign of trouble and does then what the runbook says; the same person answers what the loop
asks. It exits with 1 below a bar.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from sqlalchemy import delete, update
from tests.benchmarks.measures import Measure, figure, least, lines, missed, most

from tallystick.jobs import leases
from tallystick.records import Actor, Autonomy, Job, Repair
from tallystick.settings import Settings
from tallystick.storage.engine import tables
from tallystick.storage.engine.dialects import database_clock
from tallystick.storage.rows import jobs, journal, memories
from tallystick.tally import Tally
from tallystick.tally.services import services_of
from tallystick_steward import Steward
from tallystick_steward.health import WELL, judge
from tallystick_steward.loop import Loop
from tallystick_steward.readings import read

HERE = Path(__file__).parent
INCIDENTS = HERE / "selfheal_incidents.json"
KINDS = (
    "queue_stall",
    "leaked_lease",
    "provider_outage",
    "index_drift",
    "accidental_forget",
    "poison_text",
    "full_disk",
)
OWNER = Actor(user="olga", role="operator")
MINUTE_US = 60_000_000
LONGEST = 120
"""Minutes for which an incident is played."""
PERSON = 20
"""Minutes from the first sign to a person's act, with alerts only."""
OF_THE_TEXT = "text_refused"


class Clock:
    """A clock that the bench moves."""

    def __init__(self) -> None:
        self.at = 1_800_000_000_000_000

    def now(self) -> int:
        self.at += 1
        return self.at


@dataclass
class Played:
    """How an incident went."""

    kind: str
    solved: bool
    alone: bool
    minutes: float
    actions: int = 0
    """Repairs, without probes."""
    probes: int = 0
    """Single jobs that asked whether a cause lasts."""
    failed_probes: int = 0
    """Those of them that failed again."""
    false_actions: int = 0
    """Repairs that changed nothing, or whose jobs failed again at once."""
    unjournaled: int = 0
    safety: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


def incidents() -> list[dict[str, Any]]:
    """Return the list. Raises SystemExit where it is not the one that was committed."""
    text = INCIDENTS.read_bytes()
    digest = (HERE / "selfheal_incidents.sha256").read_text().strip()
    if hashlib.sha256(text).hexdigest() != digest:
        raise SystemExit("The incidents are not those that were listed before the loop.")
    listed: list[dict[str, Any]] = json.loads(text)
    return listed


class World:
    """One tally with one incident."""

    def __init__(self, folder: Path, incident: dict[str, Any], *, with_loop: bool) -> None:
        self.incident, self.kind = incident, str(incident["kind"])
        self.clock = Clock()
        autonomy: Autonomy = "execute" if with_loop else "off"
        self.tally = Tally.open(
            folder,
            owner=OWNER,
            background=False,
            clock=self.clock,
            settings=Settings(autonomy=autonomy),
        )
        self.services = services_of(self.tally)
        self.bound = self.tally.bind(OWNER)
        texts = [f"Fact {number} of {incident['id']}." for number in range(incident["memories"])]
        self.ids = [each.id for each in self.bound.remember_many(texts)]
        self.loop = Loop(
            self.services.memory, self.services.background, self.services.windows, "bench"
        )
        self.poisoned: set[str] = set()
        self.ends_at = 0
        # The worker: what became due is done between two turns, unless it is away.
        self.away_until = 0
        getattr(self, f"_{self.kind}")()

    def _database_time(self) -> int:
        with self.services.store.database.read() as connection:
            return database_clock(connection)

    def _fail(self, code: str, state: str, *where: Any) -> None:
        """Let jobs that are due fail again, at the time of the database."""

        def unit(tx: Any) -> None:
            values = {"state": state, "error_code": code, "due_at": None}
            due = update(tables.jobs).where(tables.jobs.c.state == "pending", *where)
            tx.execute(due.values(updated_at=database_clock(tx), **values))

        self.services.store.database.write(unit, name="bench")

    def _add_jobs(self, ids: list[str], **columns: Any) -> list[str]:
        database, made = self.services.store.database, []

        def unit(tx: Any) -> None:
            for memory_id in ids:
                stored = memories.get(tx, memory_id)
                assert stored is not None
                made.append(
                    jobs.enqueue(
                        tx,
                        job_id=self.services.store.ids.new(),
                        kind="embed",
                        subject_id=memory_id,
                        scope_id=stored.scope_id,
                        actor=OWNER,
                        at=self.clock.now(),
                    )
                )
            # Jobs are moved at the time of the database, whatever the clock of the bench says.
            values = {"updated_at": database_clock(tx), **columns}
            tx.execute(update(tables.jobs).where(tables.jobs.c.id.in_(made)).values(values))

        database.write(unit, name="bench")
        return made

    # What goes wrong

    def _queue_stall(self) -> None:
        """Jobs died with the worker that held them; the worker is back."""
        self._add_jobs(
            self.ids[: self.incident["jobs"]], state="dead", error_code="lease_expired", due_at=None
        )

    def _leaked_lease(self) -> None:
        """A process that is gone holds leases that do not run out for long."""
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        self._add_jobs(
            self.ids[: self.incident["jobs"]],
            state="leased",
            leased_by=f"{socket.gethostname()}:{gone.pid}-bench:1",
            due_at=self._database_time() + 55 * MINUTE_US,
        )

    def _provider_outage(self) -> None:
        """A provider refused until it was back: the attempts of its jobs are used up."""
        self.ends_at = self.clock.at + self.incident["minutes"] * MINUTE_US
        self._add_jobs(self.ids[:10], state="dead", error_code="model_unavailable", due_at=None)

    def _index_drift(self) -> None:
        """Vectors were lost."""
        with self.services.store.database.read() as connection:
            found = memories.get(connection, self.ids[0])
            assert found is not None
            docs = [
                stored.doc
                for each in self.ids[: self.incident["lost"]]
                if (stored := memories.get(connection, each)) is not None
            ]
        lost = delete(tables.vectors).where(tables.vectors.c.doc.in_(docs))
        self.services.store.database.write(lambda tx: tx.execute(lost), name="bench")

    def _accidental_forget(self) -> None:
        """An agent forgot much that it should not have."""
        agent = self.tally.bind(Actor(user="olga", agent="cleaner"))
        for memory_id in self.ids[: self.incident["forgotten"]]:
            agent.forget(memory_id, reason="a sweep")

    def _poison_text(self) -> None:
        """A text that fails by itself took the jobs beside it with it."""
        count = self.incident["poisoned"]
        self.poisoned = set(
            self._add_jobs(self.ids[:count], state="failed", error_code=OF_THE_TEXT, due_at=None)
        )
        self._add_jobs(
            self.ids[count : count + 9], state="dead", error_code="lease_expired", due_at=None
        )

    def _full_disk(self) -> None:
        """Nothing is written until somebody frees the disk; jobs died meanwhile."""
        self.ends_at = self.clock.at + self.incident["minutes"] * MINUTE_US
        self._add_jobs(self.ids[:8], state="dead", error_code="read_only_tally", due_at=None)

    # What goes on

    def turn(self) -> None:
        """Let a minute pass, and the worker do what is due; what its provider or disk does not let
        it do dies again.
        """
        self.clock.at += MINUTE_US
        if self.clock.at < self.ends_at:
            is_provider = self.kind == "provider_outage"
            self._fail("model_unavailable" if is_provider else "read_only_tally", "dead")
            return
        self._fail(OF_THE_TEXT, "failed", tables.jobs.c.id.in_(self.poisoned))
        self.services.background.runner.run(["embed", "reembed"])

    @property
    def is_solved(self) -> bool:
        """True once everything is as it was, but for texts that fail by themselves."""
        memory = self.services.memory
        listed = self.bound.jobs.list(limit=100)
        open_jobs = [job for job in self._troubled(listed) if job.state not in ("done", "empty")]
        living = len(self.bound.memories(limit=100))
        seen = read(memory)
        return (
            not open_jobs
            and not seen.unembedded_scopes
            and living == min(100, len(self.ids))
            and self.clock.at >= self.ends_at
        )

    def _troubled(self, listed: Sequence[Job]) -> list[Job]:
        return [job for job in listed if job.id not in self.poisoned]

    def have_failed(self, job_ids: Sequence[str]) -> bool:
        """Return True if one of these jobs failed again."""
        return any(self.bound.jobs.get(each).state in ("failed", "dead") for each in job_ids)

    def _wanted(self) -> list[str]:
        """Return the repairs that the runbook names for what is wrong."""
        seen = read(self.services.memory)
        with self.services.store.database.read() as connection:
            leaked = leases.leaked(connection)
        failed = self._troubled(self.bound.jobs.list(state=["failed", "dead"], limit=100))
        wrong = {
            "release_lease": bool(leaked),
            "requeue": bool(failed),
            "reembed": bool(seen.unembedded_scopes),
            "recover_many": bool(seen.deletes),
        }
        return [action for action, is_wrong in wrong.items() if is_wrong]

    def person_acts(self) -> None:
        """Do what the runbook says, for what is still wrong."""
        steward = Steward(self.bound)
        with self.services.store.database.read() as connection:
            done = {
                str(entry.details.get("action"))
                for entry in journal.entries(connection, "tally")
                if entry.event == "repair.begin"
                and entry.details.get("target") is None
                and entry.at > self.clock.at - 11 * MINUTE_US
            }
        for action in self._wanted():
            if action == "recover_many":
                since = self.clock.at - 3 * 60 * MINUTE_US
                chosen: dict[str, Any] = {
                    "by_actor": "olga/cleaner",
                    "since": since,
                    "reason": "a wrong sweep",
                }
                seen = steward.recover_many(**chosen)
                if seen.confirm_token is not None:
                    steward.recover_many(**chosen, mode="apply", confirm_token=seen.confirm_token)
            elif action not in done:
                steward.repair(action, reason="the runbook says so")  # type: ignore[arg-type]


def play(folder: Path, incident: dict[str, Any], *, with_loop: bool) -> Played:
    """Play one incident, and say how it went."""
    world = World(folder, incident, with_loop=with_loop)
    begun = world.clock.at
    person_at = begun + PERSON * MINUTE_US
    alone, has_acted, turns = True, False, 0
    repairs: list[Repair] = []
    latest: list[Repair] = []
    failed: set[str] = set()
    """Repairs whose jobs failed again in the minute after them."""
    with world.tally:
        before = len(world.bound.memories(limit=100))
        while world.clock.at < begun + LONGEST * MINUTE_US:
            world.turn()
            turns += 1
            failed |= {e.correlation_id for e in latest if world.have_failed(_jobs_of(e))}
            latest = []
            # Looked at after an act, and every fifth minute: it takes longer than the turn.
            if (has_acted or turns % 5 == 0) and world.is_solved:
                break
            has_acted = False
            if with_loop:
                done = world.loop.turn()
                latest = [] if done is None else list(done.repairs)
                repairs += latest
                has_acted = bool(latest)
            if world.clock.at >= person_at and (not with_loop or _is_asked(world)):
                world.person_acts()
                alone, has_acted = False, True
                person_at = world.clock.at + PERSON * MINUTE_US
        solved = world.is_solved
        living = len(world.bound.memories(limit=100))
        safety = int(living < before)
        with world.services.store.database.read() as connection:
            entries = [
                entry
                for entry in journal.entries(connection, "tally")
                if entry.actor.get("user") == "tallystick"
            ]
        health = judge(read(world.services.memory), world.services.settings.alerts)
    events = Counter(entry.event for entry in entries)
    probes = [each for each in repairs if each.facts.get("probe")]
    others = [each for each in repairs if not each.facts.get("probe")]
    return Played(
        kind=world.kind,
        solved=solved,
        alone=solved and alone,
        minutes=(world.clock.at - begun) / MINUTE_US,
        actions=len(others),
        probes=len(probes),
        failed_probes=sum(each.correlation_id in failed for each in probes),
        false_actions=sum(not each.changed or each.correlation_id in failed for each in others),
        unjournaled=len(repairs) - min(events["repair.begin"], events["repair.end"]),
        safety=safety,
        facts={"well": health.score >= WELL},
    )


def _jobs_of(repair: Repair) -> list[str]:
    listed: Any = repair.facts.get("jobs") or []
    return list(listed)


def _is_asked(world: World) -> bool:
    return bool(world.bound.approvals.list())


Results = dict[bool, list[Played]]
"""How each incident went, with the loop and with alerts only."""


def play_all(kinds: Sequence[str] = ()) -> Results:
    """Play the incidents of some kinds, by default of all, in both ways."""
    results: Results = {True: [], False: []}
    for with_loop, incident in product(
        results, (each for each in incidents() if not kinds or each["kind"] in kinds)
    ):
        with tempfile.TemporaryDirectory() as folder:
            played = play(Path(folder) / "tally", incident, with_loop=with_loop)
            results[with_loop].append(played)
    return results


def measures_of(results: Results) -> list[Measure]:
    """Return the figures beside their bars."""
    ours, alerts = results[True], results[False]
    actions = sum(each.actions for each in ours)
    alone = 100 * sum(each.alone for each in ours) / len(ours)
    less = 100 * (1 - sum(e.minutes for e in ours) / sum(e.minutes for e in alerts))
    false = 100 * sum(each.false_actions for each in ours) / max(1, actions)
    return [
        least("solved alone, percent", alone, 80, "not solved"),
        least("time to repair less than with alerts only, percent", less, 50, "not solved"),
        most("false repairs, percent", false, 5, "false repair", f"of {actions}"),
        most("safety incidents", sum(each.safety for each in ours), 0, "safety"),
        most("actions not in the journal", sum(e.unjournaled for e in ours), 0, "journal"),
        figure("not solved", sum(not each.solved for each in ours), "not solved"),
    ]


def main() -> int:
    """Print the table; return 1 below a bar."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", nargs="*", default=())
    chosen = parser.parse_args().kinds
    results = play_all(chosen)
    ours, alerts = results[True], results[False]
    print(
        "| incident | played | solved alone | MTTR, min | alerts only, min | repairs | false "
        "| probes | failed |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for kind in dict.fromkeys(each.kind for each in ours):
        mine = [each for each in ours if each.kind == kind]
        theirs = [each for each in alerts if each.kind == kind]
        print(
            f"| {kind} | {len(mine)} | {sum(each.alone for each in mine)} "
            f"| {mean(each.minutes for each in mine):.1f} "
            f"| {mean(each.minutes for each in theirs):.1f} "
            f"| {sum(each.actions for each in mine)} | {sum(each.false_actions for each in mine)} "
            f"| {sum(each.probes for each in mine)} | {sum(each.failed_probes for each in mine)} |"
        )
    found = measures_of(results)
    print("", *lines(found), sep="\n")
    return 1 if missed(found) and not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
