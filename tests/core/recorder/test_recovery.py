"""A process that dies leaves runs that end as interrupted: whole chains, a receipt for each open
step, nothing lost.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick import Actor, Tally
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
OWNER = Actor(user="local", role="operator")

RECORDING = """
import sys
from tallystick import Tally
from tallystick.tally.services import services_of

tally = Tally.open(sys.argv[1], background=False)
run = tally.bind().run("coder")
for number in range(1_000_000):
    step = run.step("model_call", name=f"step {number}")
    step.record("request", {"prompt": f"number {number}", "padding": "x" * 2_000})
    step.record("response", {"text": "done"})
    print(number, step.end().digest, flush=True)
    if number % 7 == 6:
        run.end()
        run = tally.bind().run("coder")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_recorder_loses_nothing_acknowledged_and_leaves_no_half_step(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rounds = 40 if request.config.getoption("--hypothesis-profile") == "soak" else 3
    chance = random.Random(3)
    acknowledged: set[str] = set()
    for _ in range(rounds):
        command = [sys.executable, "-c", RECORDING, str(tmp_path / "tally")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        stop_after = chance.randint(5, 60)
        for count, line in enumerate(process.stdout):
            if line.endswith("\n"):
                acknowledged.add(line.split()[1])
            if count >= stop_after:
                process.send_signal(signal.SIGKILL)
                break
        process.stdout.close()
        process.wait()

    with Tally.open(tmp_path / "tally", background=False) as tally:
        recorder = tally.bind(OWNER).recordings
        runs = tally.bind(OWNER).recordings.runs(limit=1_000)
        assert {run.status for run in runs} == {"completed", "interrupted"}
        digests = set()
        for run in runs:
            assert recorder.verify(run.id).ok, recorder.verify(run.id)
            assert {step.status for step in recorder.steps(run.id)} <= {
                "completed",
                "interrupted",
            }
            digests |= {receipt.digest for receipt in recorder.receipts(run.id)}
        assert acknowledged <= digests
        assert list((tmp_path / "tally" / "alive").iterdir()) == []


def _left(tally: Tally) -> str:
    """A run with a step under way, as it stands when its process dies: no end is written."""
    bound = tally.bind(OWNER)
    run = bound.run("coder")
    ended = run.step("tool_call", name="weigh")
    ended.record("tool_result", {"tons": 3})
    ended.end()
    step = run.step("model_call", name="patch")
    step.record("request", {"prompt": "Mend it."}, summary={"model": "m"})
    run.count_gap("langchain", KeyError("odd"))
    services_of(tally).store.database.write(lambda tx: None, name="test.flush")
    return run.id


def test_what_a_dead_process_left_is_interrupted_with_what_it_kept(open_tally: OpenTally) -> None:
    tally = open_tally()
    run_id = _left(tally)
    tally.close()
    with open_tally() as tally:
        recorder = tally.bind(OWNER).recordings
        assert recorder.run(run_id).status == "interrupted"
        assert [(step.name, step.status) for step in recorder.steps(run_id)] == [
            ("weigh", "completed"),
            ("patch", "interrupted"),
        ]
        receipt = recorder.receipts(run_id)[-1]
        assert [(entry.kind, entry.summary) for entry in receipt.entries] == [
            ("request", {"model": "m"})
        ]
        verified = recorder.verify(run_id)
        assert verified.ok, verified
        assert verified.gaps == {f"run {run_id}": {"KeyError": 1}}
        assert recorder.run(run_id).gaps == 1
        assert recorder.preview_replay(receipt.step_id).request == {"prompt": "Mend it."}
    with open_tally() as tally:
        assert len(tally.bind(OWNER).recordings.receipts(run_id)) == 2


FORKING = """
import os, sys
from tallystick import Tally
from tallystick.tally.services import services_of

tally = Tally.open(sys.argv[1], background=False)
run = tally.bind().run("coder")
services_of(tally).store.database.write(lambda tx: None, name="test.flush")
child = os.fork()
if child == 0:
    tally.close()
    os._exit(0)
os.waitpid(child, 0)
with Tally.open(sys.argv[1], background=False) as other:
    print(other.bind().recordings.run(run.id).status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_that_closes_ends_no_run_of_its_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(tmp_path / "tally")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert process.stdout.split() == ["running"]


def test_the_run_of_a_living_process_is_left_alone(open_tally: OpenTally) -> None:
    with open_tally() as first:
        run_id = _left(first)
        with open_tally() as second:
            assert second.bind(OWNER).recordings.run(run_id).status == "running"
    with open_tally() as third:
        assert third.bind(OWNER).recordings.run(run_id).status == "interrupted"


class SetClock:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.at = 1_800_000_000_000_000

    def now(self) -> int:
        return self.at


@pytest.mark.parametrize("dies", [False, True])
def test_no_run_or_step_ends_before_it_began_or_begins_before_its_run(
    open_tally: OpenTally, dies: bool
) -> None:
    """Also where the clock was set back meanwhile, by an hour."""
    clock = SetClock()
    tally = open_tally(clock=clock)
    run = tally.bind(OWNER).run("coder")
    run.step("model_call", name="before").record("request", {"prompt": "Mend it."})
    clock.at -= 3_600_000_000
    run.step("model_call", name="after").end()
    if not dies:
        run.end()
    tally.close()
    with open_tally(clock=clock) as tally:
        recorder = tally.bind(OWNER).recordings
        ended = recorder.run(run.id)
        assert ended.status == ("interrupted" if dies else "completed")
        for started_at, ended_at in (
            (ended.started_at, ended.ended_at),
            *((step.started_at, step.ended_at) for step in recorder.steps(run.id)),
        ):
            assert ended_at is not None
            assert ended.started_at <= started_at <= ended_at
        assert recorder.verify(run.id).ok
