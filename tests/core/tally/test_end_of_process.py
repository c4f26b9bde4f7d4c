"""What a process leaves behind that ends without closing its tally."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tallystick import Tally
from tallystick.tally.services import services_of

SCRIPT = """
import sys

from tallystick import Tally

tally = Tally.open(sys.argv[1])
me = tally.bind()
me.remember("The bakery opens at six.")
me.recall("When does the bakery open?")
"""
AS_A_DEPENDENCY = """
import sys

from tallystick import Tally

def opened():
    with Tally.open(sys.argv[1]) as tally:
        yield tally

dependency = opened()
me = next(dependency).bind()
me.remember("The bakery opens at six.")
me.recall("When does the bakery open?")
"""
LAST = """
import atexit

atexit.register(lambda: me.recall("When does the bakery open?"))
"""
"""Called after all that a tally wrote by itself at the end: functions are called in reverse."""


def _run(script: str, folder: Path) -> None:
    command = [sys.executable, "-c", script, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("script", [SCRIPT, AS_A_DEPENDENCY])
def test_the_access_log_has_the_reads_of_a_process_that_closed_nothing(
    tmp_path: Path, script: str
) -> None:
    _run(script, tmp_path / "tally")
    with Tally.open(tmp_path / "tally") as tally:
        me = tally.bind()
        assert [read.operation for read in me.recordings.reads()] == ["recall"]
        assert len(me.memories()) == 1


@pytest.mark.slow
def test_a_tally_that_is_closed_when_the_threads_are_gone_does_not_hang(tmp_path: Path) -> None:
    _run(LAST + AS_A_DEPENDENCY, tmp_path / "tally")
    with Tally.open(tmp_path / "tally") as tally:
        assert len(tally.bind().memories()) == 1


def test_a_process_that_lives_on_writes_its_reads_down_by_itself(tmp_path: Path) -> None:
    place = tmp_path / "tally"
    with Tally.open(place, background=False) as tally, Tally.open(place) as other:
        tally.bind().remember("The bakery opens at six.")
        tally.bind().recall("When does the bakery open?")
        assert other.bind().recordings.reads() == []
        services_of(tally).background.turn(lambda: False)
        services_of(tally).store.database.flush()
        assert [read.operation for read in other.bind().recordings.reads()] == ["recall"]
