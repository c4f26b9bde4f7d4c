"""Recall across processes: whoever dies, the database and the index agree and each finds what the
others wrote.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pages import every

from tallystick import Tally
from tallystick.settings import Settings
from tallystick.testing import HashEmbedder

CHROMA = Settings.read(vector_search="chroma")

DRAINED_WRITER = """
import sys
from tallystick import Tally
from tallystick.settings import Settings
from tallystick.testing import HashEmbedder

settings = Settings.read(vector_search="chroma")
tally = Tally.open(sys.argv[1], embedder=HashEmbedder(), settings=settings)
owner = tally.bind()
start = int(sys.argv[2])
tally.drain()
print("ready", flush=True)
for number in range(start, start + int(sys.argv[3])):
    print(number, owner.remember(f"fact number {number}").id, flush=True)
    if number % 40 == 39:
        tally.drain()
tally.close()
"""

NEIGHBOUR = """
import sys, time
from tallystick import Tally
from tallystick.settings import Settings
from tallystick.testing import HashEmbedder

place, name, seconds, names = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4].split(",")
settings = Settings.read(vector_search="chroma")
with Tally.open(place, embedder=HashEmbedder(), settings=settings) as tally:
    owner = tally.bind()
    owner.remember(f"{name} greets everyone")
    print("ready", flush=True)
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        owner.remember(f"{name} counts {number}")
        print(name, number, flush=True)
        number += 1
        if number % 20 == 0:
            assert owner.recall(f"{name} counts {number - 1}", limit=50)
    for other in names:
        found = owner.recall(f"{other} greets everyone", limit=20)
        said = [hit.memory.content for hit in found]
        assert f"{other} greets everyone" in said, (other, found.path, found.warnings)
    print("found everyone", flush=True)
"""


def _soaking(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--hypothesis-profile") == "soak")


def _start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_killed_owner_of_chroma_loses_nothing_and_the_index_agrees(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """SIGKILL at random points while the drainer runs; 50 rounds of 100 writes under `make
    soak`.
    """
    rounds = 50 if _soaking(request) else 3
    place, chance = tmp_path / "tally", random.Random(7)
    acknowledged: dict[int, str] = {}
    for _ in range(rounds):
        process = _start(DRAINED_WRITER, place, max(acknowledged, default=-1) + 1, 100)
        assert process.stdout is not None
        assert process.stderr is not None
        stop_after = chance.randint(1, 100)
        for count, line in enumerate(process.stdout):
            if line[0].isdigit() and line.endswith("\n"):
                told, memory_id = line.split()
                acknowledged[int(told)] = memory_id
            if count >= stop_after:
                process.send_signal(signal.SIGKILL)
                break
        process.stdout.close()
        process.wait()
        assert process.returncode in (0, -signal.SIGKILL), process.stderr.read()
        process.stderr.close()

    with Tally.open(place, embedder=HashEmbedder(), settings=CHROMA, background=False) as tally:
        owner = tally.bind()
        assert tally.drain().left == 0
        agreed = tally.reconcile_index(repair=False)
        assert agreed.whole, agreed
        assert agreed.checked >= len(acknowledged)
        for number in sorted(acknowledged)[:: max(1, len(acknowledged) // 60)]:
            found = owner.recall(f"fact number {number}")
            assert found.path == "chroma"
            assert acknowledged[number] in {hit.memory.id for hit in found}
        assert all(owner.get(memory_id) for memory_id in acknowledged.values())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_processes_side_by_side_find_what_the_others_wrote(
    tmp_path: Path, request: pytest.FixtureRequest, count: int
) -> None:
    """The owner of Chroma is killed in the middle; for 30 seconds under `make soak`."""
    seconds = 30 if _soaking(request) else 3
    place = tmp_path / "tally"
    Tally.open(place, embedder=HashEmbedder(), background=False).close()
    names = [f"worker{number}" for number in range(count)]
    first = _start(NEIGHBOUR, place, names[0], 3_600, names[0])
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    others = [_start(NEIGHBOUR, place, name, seconds, ",".join(names)) for name in names[1:]]
    acknowledged = {"worker0": 0}
    for line in first.stdout:
        acknowledged["worker0"] = int(line.split()[1])
        if acknowledged["worker0"] >= 20 * seconds:
            first.send_signal(signal.SIGKILL)
            break
    first.communicate()
    for name, process in zip(names[1:], others, strict=True):
        said, problems = process.communicate(timeout=120 + seconds)
        assert process.returncode == 0, problems
        assert said.endswith("found everyone\n")
        acknowledged[name] = said.count(f"{name} ") - 1

    with Tally.open(place, embedder=HashEmbedder(), settings=CHROMA, background=False) as tally:
        owner = tally.bind()
        tally.drain()
        agreed = tally.reconcile_index(repair=True)
        assert agreed.whole or agreed.rebuilt
        assert tally.reconcile_index(repair=False).whole
        kept = {memory.content for memory in every(owner.memories)}
        for name, last in acknowledged.items():
            assert all(f"{name} counts {number}" in kept for number in range(last + 1)), name
