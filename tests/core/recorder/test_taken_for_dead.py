"""A process that lives may be taken for dead: its step was ended by another one, and it goes on in
a new one. A process that died leaves its runs interrupted, behind a pooler too.
"""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from tests.core.recorder.printed_verifier import printed_verifier
from tests.servers import pgbouncer

from tallystick import Actor, Tally
from tallystick.recorder import verify_bundle
from tallystick.storage.engine import liveness
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
OWNER = Actor(user="local", role="operator")


def _take_for_dead(tally: Tally, monkeypatch: pytest.MonkeyPatch, open_other: OpenTally) -> None:
    """Let another process end the runs of this one, as if its sign of life had failed."""
    token = services_of(tally).store.liveness.token
    with monkeypatch.context() as patch:
        patch.setattr(liveness.Liveness, "is_gone", lambda self, process: process == token)
        open_other().close()


def test_who_was_taken_for_dead_goes_on_in_a_new_step(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        run = bound.run("coder")
        run.step("tool_call", name="weigh").end()
        step = run.step("model_call", name="patch")
        step.record("request", {"prompt": "Mend it."})
        services_of(tally).store.database.flush()
        first = step.id
        _take_for_dead(tally, monkeypatch, open_tally)
        assert bound.recordings.run(run.id).status == "interrupted"
        assert bound.recordings.verify(run.id).ok

        # It learns it at its next write, which ends nothing.
        step.record("response", {"text": "Mended."})
        services_of(tally).store.database.flush()
        assert bound.recordings.run(run.id).status == "running"
        assert bound.recordings.verify(run.id).ok
        receipt = step.end()
        run.step("tool_call", name="weigh").end()
        run.end()

        assert receipt.step_id == step.id != first
        assert receipt.continues == first
        assert [
            (each.name, each.status, [entry.kind for entry in bound.recordings.entries(each.id)])
            for each in bound.recordings.steps(run.id)
        ] == [
            ("weigh", "completed", []),
            ("patch", "interrupted", ["request"]),
            ("patch", "completed", ["response"]),
            ("weigh", "completed", []),
        ]
        assert bound.recordings.run(run.id).status == "completed"
        verified = bound.recordings.verify(run.id)
        assert verified.ok, verified.problems
        bundle = bound.recordings.export_receipt(run.id)
        assert verify_bundle(bundle).ok
        assert printed_verifier()(io.BytesIO(bundle)) == []
    with open_tally() as tally:
        assert tally.bind(OWNER).recordings.verify(run.id).ok


def test_whatever_is_written_first_resumes_the_run(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a run, a gap, a new step, or many runs in one commit; and more than once."""
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        runs = [bound.run("coder") for _ in range(4)]
        open_steps = [run.step("model_call", name="patch") for run in runs]
        for _ in range(2):
            services_of(tally).store.database.flush()
            _take_for_dead(tally, monkeypatch, open_tally)
            runs[1].count_gap("langchain", KeyError("odd"))
            runs[2].step("tool_call", name="weigh").end()
            for step in open_steps[:3]:
                step.record("request", {"prompt": "Mend it."})
        for run in runs:
            run.end()
            verified = bound.recordings.verify(run.id)
            assert verified.ok, verified.problems
            assert bound.recordings.run(run.id).status == "completed"
        assert runs[0].record.gaps == 0
        steps = bound.recordings.steps(runs[0].id)
        assert [step.status for step in steps] == ["interrupted"] * 3
        receipts = bound.recordings.receipts(runs[0].id)
        # Another process, which ended the second, knows nothing of the first.
        assert [receipt.continues for receipt in receipts] == [None, None, steps[1].id]


def test_a_write_under_way_and_its_recovery_wait_for_one_another(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that records without a pause is taken for dead again and again."""
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        run = bound.run("coder")
        step = run.step("model_call", name="patch")
        for number in range(8):
            for each in range(20):
                step.record("request", {"prompt": f"number {number}.{each}"})
            if number % 2:
                services_of(tally).store.database.commit_now()
            _take_for_dead(tally, monkeypatch, open_tally)
        run.end()
        verified = bound.recordings.verify(run.id)
        assert verified.ok, verified.problems
        listed = [
            entry
            for each in bound.recordings.steps(run.id)
            for entry in bound.recordings.entries(each.id)
        ]
        assert len(listed) == 160


@pytest.fixture(params=["direct", "transaction"])
def url(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "direct":
            yield postgres_url
        else:
            yield stack.enter_context(pgbouncer(postgres_url, "transaction", size=4))


@pytest.mark.postgres
@pytest.mark.timeout(120)
def test_a_run_is_alive_as_long_as_its_process_whatever_becomes_of_idle_connections(
    url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = f"t{uuid.uuid4().hex}"
    monkeypatch.setattr(liveness, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(liveness, "LEASE_SECONDS", 1.0)

    def status(run_id: str) -> Any:
        with Tally.open(url, schema=schema, background=False) as another:
            return another.bind(OWNER).recordings.run(run_id).status

    with Tally.open(url, schema=schema, background=False) as tally:
        bound = tally.bind(OWNER)
        run = bound.run("walker")
        step = run.step("model_call", name="0")
        services_of(tally).store.database.flush()
        with psycopg.connect(postgres_url, autocommit=True) as administrator:
            for _ in range(3):
                administrator.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle' "
                    "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
                time.sleep(0.5)
                assert status(run.id) == "running"
        step.end()
        run.end()
        assert bound.recordings.verify(run.id).ok
        left = bound.run("walker")
        left.step("model_call", name="0").end()
    assert status(left.id) == "interrupted"


LEFT = """
import sys, time
from tallystick import Actor, Tally
from tallystick.storage.engine import liveness

liveness.BEAT_SECONDS, liveness.LEASE_SECONDS = 0.2, 2.0
tally = Tally.open(sys.argv[1], schema=sys.argv[2], background=False)
run = tally.bind(Actor(user="local", role="operator")).run("walker")
run.step("model_call", name="0").end()
print(run.id, flush=True)
time.sleep(600)
"""


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_killed_process_leaves_its_run_interrupted(url: str) -> None:
    schema = f"t{uuid.uuid4().hex}"
    process = subprocess.Popen(
        [sys.executable, "-c", LEFT, url, schema], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    seen = []
    for _ in range(2):
        time.sleep(2.5)
        with Tally.open(url, schema=schema, background=False) as tally:
            recordings = tally.bind(OWNER).recordings
            seen.append(recordings.run(run_id).status)
            assert recordings.verify(run_id).ok
        process.send_signal(signal.SIGKILL)
        process.wait()
    process.stdout.close()
    assert seen == ["running", "interrupted"]
