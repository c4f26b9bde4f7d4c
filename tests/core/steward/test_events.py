"""Events: told at least once, behind a cursor, never above the reader's right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tallystick.errors import InvalidInput, InvalidRecord
from tallystick.records import Actor, TallyEvent
from tallystick.storage import Connection
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import journal_reading
from tallystick.tally import Tally
from tallystick.tally.services import services_of
from tallystick.upkeep.alerts import clear_alert
from tallystick_steward import Steward

OpenTally = Callable[..., Tally]
OPERATOR = Actor(user="olga", role="operator")
ADA, BOB = Actor(user="ada"), Actor(user="bob")


def test_changes_and_ends_of_runs_are_told_in_order(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        steward = Steward(ada)
        stored = ada.remember("The heron nests at the weir.")
        ada.forget(stored.id, reason="moved away")
        with ada.recordings.start_run("watching", scope=ada.scope) as run:
            pass
        told = steward.events(after=0)
    assert [(each.kind, each.event, each.subject_id) for each in told] == [
        ("memory.changed", "memory.add", stored.id),
        ("memory.changed", "memory.forget", stored.id),
        ("run.ended", "run.end", told[2].subject_id),
    ]
    assert run.id
    assert "heron" not in "".join(each.dumps() for each in told)


def test_an_event_is_told_only_to_whoever_may_read_its_scope(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        tally.bind(ADA).remember("Private to Ada.")
        tally.bind(BOB).remember("Private to Bob.")
        assert {str(each.scope) for each in Steward(tally.bind(BOB)).events(after=0)} == {
            "private:bob"
        }


def test_alerts_are_told_to_operators(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        ada = tally.bind(ADA)
        stored = ada.remember_many([f"Fact {number}." for number in range(20)])
        for each in stored:
            ada.forget(each.id, reason="a sweep")
        tally.drain()
        of_ada = Steward(ada).events(after=0, kinds=("alert.raised",))
        of_operator = Steward(tally.bind(OPERATOR)).events(after=0, kinds=("alert.raised",))
    assert of_ada == []
    assert [each.facts for each in of_operator] == [{"alert": "delete_spike"}]


def test_a_cursor_goes_on_where_the_reader_stopped(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        ada.remember_many([f"Fact {number}." for number in range(5)])
        steward = Steward(ada)
        first = steward.events(after=0, limit=2)
        rest = steward.events(after=first[-1].cursor)
    ids = [each.id for each in (*first, *rest)]
    assert len(set(ids)) == 5


def test_an_unknown_kind_names_the_right_ones(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally, pytest.raises((InvalidInput, InvalidRecord)) as refused:
        Steward(tally.bind(ADA)).subscribe(print, kinds=("memory.changes",))  # type: ignore[arg-type]
    assert "memory.changed" in str(refused.value)


def test_a_listener_that_fails_is_called_again_with_the_same_event(open_tally: OpenTally) -> None:
    told: list[str] = []
    done = threading.Event()

    def listen(event: TallyEvent) -> None:
        told.append(event.id)
        if len(told) == 1:
            raise RuntimeError("not ready")
        done.set()

    with open_tally() as tally:
        ada = tally.bind(ADA)
        subscription = Steward(ada).subscribe(listen)
        ada.remember("The heron nests at the weir.")
        assert done.wait(20)
        subscription.close()
        assert subscription.failures == 1
    assert len(told) == 2
    assert len(set(told)) == 1


@pytest.mark.postgres
def test_an_event_that_is_numbered_first_and_committed_last_is_told(database: str) -> None:
    """Two connections write at once, and the reader's cursor is behind both before the first
    commits.
    """
    numbered, may_commit = threading.Event(), threading.Event()
    with (
        Tally.open(database, background=False) as slow,
        Tally.open(database, background=False) as quick,
    ):
        services = services_of(slow)
        told: list[str] = []
        subscription = Steward(quick.bind(OPERATOR)).subscribe(
            lambda event: told.append(event.event), after=0
        )

        def unit(tx: Connection) -> int:
            clear_alert(tx, services.memory, "steward_halted")
            number = journal_reading.last_sequence(tx)
            numbered.set()
            assert may_commit.wait(30)
            return number

        write = partial(services.store.database.write, unit, name="test", writes=Writes.of(TALLY))
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(write)
            assert numbered.wait(30)
            quick.bind(OPERATOR).remember("The heron nests at the weir.")
            _wait_for(lambda: told == ["memory.add"] and subscription.cursor > 0)
            between = subscription.cursor
            may_commit.set()
            assert first.result() <= between
        _wait_for(lambda: len(told) == 2)
        subscription.close()
    assert told == ["memory.add", "alert.cleared"]


def _wait_for(is_so: Callable[[], bool]) -> None:
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


_WRITER = """
import sys
from tallystick import Tally
from tallystick.records import Actor
with Tally.open(sys.argv[1], background=False) as tally:
    ada = tally.bind(Actor(user="ada"))
    for number in range(100_000):
        stored = ada.remember(f"Fact {number} of a writer.", mode="raw")
        print(stored.id, flush=True)
"""
_READER = """
import sys
from pathlib import Path
from tallystick import Tally
from tallystick.records import Actor
from tallystick_steward import Steward
where, kept = sys.argv[1], Path(sys.argv[2])
lines = kept.read_text().splitlines() if kept.exists() else []
whole = [line.split() for line in lines if len(line.split()) == 3]
after = max((int(line[0]) for line in whole), default=0)
with Tally.open(where, background=False) as tally, kept.open("a") as out:
    def listen(event):
        out.write(f"\\n{event.cursor} {event.id} {event.subject_id}")
        out.flush()
    Steward(tally.bind(Actor(user="ada"))).subscribe(listen, after=after)
    print("reading", flush=True)
    sys.stdin.read()
"""


def _start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is of POSIX")
def test_none_is_lost_where_either_side_is_killed(tmp_path: Path) -> None:
    where, kept = tmp_path / "tally", tmp_path / "told"
    with Tally.open(where, background=False) as tally:
        tally.bind(ADA).remember("The beginning.")
    stored: list[str] = []
    for _ in range(3):
        reader = _start(_READER, str(where), str(kept))
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        writer = _start(_WRITER, str(where))
        assert writer.stdout is not None
        stored += [writer.stdout.readline().strip() for _ in range(20)]
        _kill(reader)
        stored += [writer.stdout.readline().strip() for _ in range(10)]
        _kill(writer)
        stored += [line.strip() for line in writer.stdout if len(line.strip()) == 36]
        for stream in (reader.stdin, reader.stdout, writer.stdin, writer.stdout):
            assert stream is not None
            stream.close()
    with Tally.open(where, background=False) as tally:
        lines = [line.split() for line in kept.read_text().splitlines()]
        told = [line for line in lines if len(line) == 3]
        after = max(int(line[0]) for line in told)
        rest = Steward(tally.bind(ADA)).events(after=after, limit=1_000)
    by_memory: dict[str, set[str]] = {}
    for _, event_id, memory_id in told:
        by_memory.setdefault(memory_id, set()).add(event_id)
    for event in rest:
        by_memory.setdefault(str(event.subject_id), set()).add(event.id)
    assert set(stored) <= set(by_memory)
    assert {len(ids) for ids in by_memory.values()} == {1}
