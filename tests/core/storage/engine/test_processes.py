"""What happens when processes die, fork, or work on one tally side by side."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tallystick import Actor, Tally
from tallystick.errors import ForkedTally
from tallystick.settings import Settings
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]

WRITER = """
import sys
from tallystick import Actor, Tally
from tallystick.testing import HashEmbedder

tally = Tally.open(sys.argv[1], embedder=HashEmbedder(), background=False)
owner = tally.bind()
start = int(sys.argv[2])
print("ready", flush=True)
for number in range(start, start + int(sys.argv[3])):
    memory = owner.remember(f"fact number {number}")
    print(number, memory.id, flush=True)
tally.close()
"""


def _writer(place: Path, start: int, count: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, str(place), str(start), str(count)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def _acknowledged(lines: list[str]) -> dict[int, str]:
    return {
        int(line.split()[0]): line.split()[1]
        for line in lines
        if line.endswith("\n") and line[0].isdigit()
    }


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """SIGKILL at random points of 150 remembers, in `make soak` of 3,000, until all are written."""
    place, chance = tmp_path / "tally", random.Random(11)
    count = 150 if settings().max_examples <= 100 else 3_000
    acknowledged: dict[int, str] = {}
    kills = 0
    while len(acknowledged) < count:
        start = max(acknowledged, default=-1) + 1
        process = _writer(place, start, count - start)
        assert process.stdout is not None
        lines: list[str] = []
        stop_after = chance.randint(1, count // 3)
        for line in process.stdout:
            lines.append(line)
            if len(lines) > stop_after:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
        lines += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        acknowledged |= _acknowledged(lines)

    assert kills >= 2
    with Tally.open(place, background=False) as tally:
        owner = tally.bind()
        for number, memory_id in acknowledged.items():
            assert owner.get(memory_id).content == f"fact number {number}"
        with services_of(tally).store.database.read() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
            from tallystick.storage.rows import journal

            assert journal.verify_stream(connection, "scope:private:local") == []
        # At most one write per kill was committed without its answer having arrived.
        assert count <= len(owner.memories(limit=2 * count)) <= count + kills
        owner.remember("and it still works")


@pytest.mark.slow
def test_a_second_process_reads_and_writes_while_the_first_owns_chroma(tmp_path: Path) -> None:
    place = tmp_path / "tally"
    with Tally.open(
        place, settings=Settings.read(vector_search="chroma"), background=False
    ) as first:
        owner = first.bind()
        owner.remember("The heron nests in March.")
        assert first.drain().left == 0
        assert owner.recall("heron").path == "chroma"
        files = {
            path: path.stat().st_mtime_ns
            for path in (place / "chroma").rglob("*")
            if path.is_file()
        }

        second = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from tallystick import Tally; from tallystick.settings import "
                "Settings\n"
                "tally = Tally.open(sys.argv[1], settings=Settings.read(vector_search='chroma'), "
                "background=False)\n"
                "found = tally.bind().recall('heron')\n"
                "tally.bind().remember('The stork nests in April.')\n"
                "print(found.path, found[0].memory.content, len(found.warnings), "
                "tally.drain().indexed)\n"
                "print('chromadb' in sys.modules)\n"
                "tally.close()",
                str(place),
            ],
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )

        assert second.stdout.strip() == "exact The heron nests in March. 1 0\nFalse", second.stderr
        assert {path: path.stat().st_mtime_ns for path in files} == files
        assert owner.recall("stork April")[0].memory.content == "The stork nests in April."
        assert first.drain().indexed == 1


def test_ownership_of_chroma_passes_on_when_the_owner_closes(tmp_path: Path) -> None:
    place, settings = tmp_path / "tally", Settings.read(vector_search="chroma")
    with (
        Tally.open(place, settings=settings, background=False) as first,
        Tally.open(place, settings=settings, background=False) as second,
    ):
        first.bind().remember("The heron nests in March.")
        assert first.drain().left == 0
        second.bind().remember("The stork nests in April.")
        assert second.drain().left == 1
        first.close()
        assert second.drain().left == 0


@pytest.mark.slow
def test_two_writing_processes_lose_no_write(tmp_path: Path) -> None:
    place = tmp_path / "tally"
    Tally.open(place, background=False).close()
    writers = [_writer(place, start, 150) for start in (0, 150)]
    outputs = [writer.communicate(timeout=120)[0] for writer in writers]

    assert [writer.returncode for writer in writers] == [0, 0]
    acknowledged = _acknowledged(
        [line + "\n" for output in outputs for line in output.splitlines()]
    )
    assert sorted(acknowledged) == list(range(300))
    with Tally.open(place, background=False) as tally:
        assert len(tally.bind().memories(limit=1_000)) == 300


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_refuses_and_the_parent_goes_on(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        owner.remember("before the fork")
        answers: multiprocessing.SimpleQueue[str] = multiprocessing.SimpleQueue()
        child = os.fork()
        if child == 0:
            try:
                owner.remember("in the child")
                answers.put("wrote")
            except ForkedTally:
                answers.put("ForkedTally")
            finally:
                os._exit(0)
        os.waitpid(child, 0)

        assert answers.get() == "ForkedTally"
        owner.remember("after the fork")
        assert len(owner.memories()) == 2


def test_the_background_keeps_vectors_and_chroma_up_to_date(tmp_path: Path) -> None:
    settings = Settings.read(vector_search="chroma")
    with Tally.open(tmp_path / "tally", settings=settings) as tally:
        tally.bind().remember("The heron nests in March.")
        for _ in range(200):
            if tally.bind().recall("heron").path == "chroma":
                break
            time.sleep(0.1)
        index = services_of(tally).index
        assert index is not None
        assert index.count() == 1
        assert services_of(tally).background.failures == 0


def test_an_owner_is_recorded_when_the_tally_is_made(tmp_path: Path) -> None:
    from tallystick.errors import SettingsError

    Tally.open(tmp_path / "tally", owner=Actor(user="alice"), background=False).close()
    with Tally.open(tmp_path / "tally", background=False) as tally:
        assert tally.owner == Actor(user="alice")
    with pytest.raises(SettingsError, match="belongs to alice"):
        Tally.open(tmp_path / "tally", owner=Actor(user="bob"), background=False)
