"""The spool: events that wait beside a tally, each a file that is there whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick import Tally
from tallystick.spool import FOLDER, leave, list_events


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Tally.open(tmp_path / "t", background=False):
        pass
    return tmp_path / "t"


def test_events_wait_in_the_order_in_which_they_were_left_even_if_the_clock_is_set_back(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [leave(str(place), "hook", {"n": 1})]
    monkeypatch.setattr("tallystick.spool.time.time_ns", lambda: 1)
    left += [leave(str(place), "hook", {"n": n}) for n in (2, 3)]

    assert list_events(str(place)) == [f"{each}.json" for each in left]


def test_only_the_user_of_the_tally_may_read_what_waits(place: Path) -> None:
    before = os.umask(0)
    try:
        leave(str(place), "hook", {})
    finally:
        os.umask(before)

    [name] = list_events(str(place))
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (place / FOLDER, place / FOLDER / name)]
    assert modes == [0o700, 0o600]


def test_nothing_is_left_where_no_tally_is_or_too_much_waits(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tally itself is told then, which takes what waits too."""
    monkeypatch.setattr("tallystick.spool._MOST", 2)
    places = [tmp_path / "nowhere", "postgresql://user@host/name"]
    assert [leave(str(each), "hook", {}) for each in places] == [None, None]
    assert not (tmp_path / "nowhere").exists()
    assert [leave(str(place), "hook", {}) is None for _ in range(3)] == [False, False, True]


_KILLED = """
import os, signal, sys
from tallystick import spool
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, sys.argv[2], die)
spool.leave(sys.argv[1], "hook", {"text": "half"})
"""


@pytest.mark.parametrize(("at", "waiting"), [("fsync", 0), ("rename", 0)])
def test_a_process_that_is_killed_while_it_leaves_an_event_leaves_no_half_of_one(
    place: Path, at: str, waiting: int
) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(place), at], timeout=60)
    assert killed.returncode == -9
    assert len(list_events(str(place))) == waiting

    left = leave(str(place), "hook", {"event": "whole"})
    assert list_events(str(place)) == [f"{left}.json"]


def test_what_was_left_half_written_is_removed_after_an_hour(place: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, str(place), "rename"], timeout=60)
    [half] = (place / FOLDER).glob("*.partial")
    os.utime(half, (1, 1))
    leave(str(place), "hook", {})

    with Tally.open(place, background=False):
        pass

    assert not half.exists()
