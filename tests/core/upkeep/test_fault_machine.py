"""Faults at random: a process is killed while it remembers, learns, imports, exports and purges, a
text poisons its reader, a writer holds the database, its file is put back from an older copy or
taken away. Nothing acknowledged is lost but what the older copy had not, nothing is there twice,
every chain verifies, and recall answers with what is there.

A few rounds in every run of the tests, minutes in `make soak`.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tallystick import Actor, Tally
from tallystick.errors import CorruptTally

ROOT = Actor(user="root", role="operator")

_WORKER = """
import json, shutil, sys
from pathlib import Path
from tallystick import Actor, Tally
from tallystick.records import ExtractedFact, Extraction
from tallystick.settings import Settings
from tallystick.testing import HashEmbedder, ScriptedLearner

def read(text):
    if "poison" in text:
        raise ValueError("This text cannot be read.")
    return Extraction(facts=(ExtractedFact(content=f"It was said that {text}", confidence=90),))

place, seed = Path(sys.argv[1]), int(sys.argv[2])
root = Actor(user="root", role="operator")
tally = Tally.open(
    place, owner=root, background=False, embedder=HashEmbedder(),
    settings=Settings.read(learning="review"), learning_model=ScriptedLearner(read),
)
bound, number = tally.bind(root), 0

def say(kind, *more):
    print(json.dumps([kind, *more]), flush=True)

say("open")
while True:
    number += 1
    name = f"heron{seed}x{number}"
    text = f"The {name} nests at the pier." + (" poison" if number % 7 == 0 else "")
    say("remembered", bound.remember(text).id, text)
    with bound.run("keeper") as run, run.step("other") as step:
        step.record("response", {"text": text})
    say("ran", run.id)
    gone = bound.remember(f"The {name} leaves.", mode="raw")
    bound.forget(gone.id, reason="it left")
    say("forgot", gone.id)
    if number % 3 == 0:
        tally.drain()
        say("learned")
    if number % 4 == 0:
        folder = place.parent / f"export-{seed}-{number}"
        bound.operator.export(folder)
        with Tally.open(place.parent / f"copy-{seed}-{number}", owner=root) as copy:
            copy.bind(root).operator.import_from(folder)
        shutil.rmtree(place.parent / f"copy-{seed}-{number}")
        shutil.rmtree(folder)
        say("moved")
    if number % 5 == 0:
        bound.operator.purge(mode="apply", reason="windows")
        say("purged")
"""


class Machine:
    """A tally whose processes die, with what they acknowledged."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.place, self.chance = folder / "tally", chance
        self.said: dict[str, str] = {}
        self.runs: set[str] = set()
        self.forgotten: set[str] = set()
        self.older: tuple[Path, dict[str, str], set[str], set[str]] | None = None
        self.rounds = 0

    def work(self, fault: Callable[[], None] = lambda: None) -> list[list[Any]]:
        """Let a process work for a moment, with a fault meanwhile, and kill it."""
        self.rounds += 1
        process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(self.place), str(self.rounds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline()]
        fault()
        time.sleep(self.chance.uniform(0.05, 1.5))
        process.kill()
        rest, errors = process.communicate()
        lines += rest.splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.endswith("\n")]
        for kind, *more in told:
            if kind == "remembered":
                self.said[more[0]] = more[1]
            elif kind == "ran":
                self.runs.add(more[0])
            elif kind == "forgot":
                self.forgotten.add(more[0])
        assert "Traceback" not in errors, errors
        return told

    def copy(self) -> None:
        """Keep a copy of the database, as somebody does who copies a file."""
        target = self.place.parent / "older.db"
        copy_database(self.place / "tally.db", target)
        self.older = (target, dict(self.said), set(self.runs), set(self.forgotten))

    def put_back(self) -> None:
        """Put the copy back; what was said since is not in it."""
        if self.older is None:
            return
        target, said, runs, forgotten = self.older
        for name in ("tally.db", "tally.db-wal", "tally.db-shm"):
            (self.place / name).unlink(missing_ok=True)
        shutil.copy(target, self.place / "tally.db")
        self.said, self.runs, self.forgotten = dict(said), set(runs), set(forgotten)

    def hold(self) -> None:
        """Hold the database for a moment, as another program does."""
        with closing(sqlite3.connect(self.place / "tally.db", timeout=5)) as held:
            held.execute("BEGIN IMMEDIATE")
            time.sleep(0.5)

    def take_away(self) -> None:
        """Take the file away under a process: it must not acknowledge what nobody will find."""
        saved = self.place.parent / "saved.db"
        copy_database(self.place / "tally.db", saved)
        (self.place / "tally.db").rename(self.place.parent / "gone.db")

    def check(self) -> None:
        """Hold what was acknowledged against what is there."""
        with Tally.open(self.place, owner=ROOT, background=False) as tally:
            bound = tally.bind(ROOT)
            stored = {memory.id: memory for memory in every_memory(bound)}
            assert {each: stored[each].content for each in self.said} == self.said
            assert not self.forgotten & {
                each for each, one in stored.items() if one.state == "active"
            }
            texts = [one.content for one in stored.values() if one.state == "active"]
            assert len(texts) == len(set(texts))
            assert all(bound.recordings.verify(run_id).ok for run_id in self.runs)
            for memory_id in self.chance.sample(sorted(self.said), min(5, len(self.said))):
                word = self.said[memory_id].split()[1]
                assert memory_id in {hit.memory.id for hit in bound.recall(word, limit=5)}
            problems = [one for one in bound.operator.doctor() if one.status == "problem"]
            assert [one.check for one in problems if one.check not in ("jobs", "learning")] == []


def copy_database(source: Path, target: Path) -> None:
    """Copy a database; a connection that stays open would take the log of its successor away."""
    with closing(sqlite3.connect(source)) as before, closing(sqlite3.connect(target)) as after:
        before.backup(after)


def every_memory(bound: Any) -> list[Any]:
    found, before = [], None
    while page := bound.memories(limit=200, before=before):
        found += page
        before = page[-1].id
    return found


@pytest.mark.slow
def test_no_fault_loses_what_was_acknowledged(tmp_path: Path) -> None:
    soaks = settings.get_current_profile_name() == "soak"
    chance = random.Random(random.SystemRandom().randrange(2**32) if soaks else 7)
    machine = Machine(tmp_path, chance)
    machine.work()
    faults: list[Callable[[], None]] = [lambda: None, machine.hold]
    for number in range(60 if soaks else 6):
        if number % 3 == 1:
            machine.copy()
        machine.work(chance.choice(faults))
        if number % 3 == 2:
            machine.put_back()
        machine.check()


@pytest.mark.slow
def test_a_file_that_is_taken_away_ends_the_process_that_wrote_to_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, random.Random(1))
    machine.work()
    machine.check()
    with Tally.open(machine.place, owner=ROOT, background=False) as tally:
        machine.take_away()
        with pytest.raises(CorruptTally):
            tally.bind(ROOT).remember("The heron nests nowhere.")
    shutil.copy(tmp_path / "saved.db", machine.place / "tally.db")
    machine.check()
