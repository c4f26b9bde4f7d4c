"""A database file that was cut off or changed on the disk: what is read is what was put, or a clear
error.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint

from tallystick import Tally
from tallystick.checkpoints import Leaf, PendingWrite
from tallystick.errors import CorruptTally, TallyNotFound, TallystickError
from tallystick.tally.services import services_of
from tallystick_langgraph import TallySaver

THREADS = [f"thread {number}" for number in range(4)]


def _config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


Held = dict[str, tuple[str, frozenset[str]]]
"""Checkpoint to its state and its pending writes."""


def _held(saver: TallySaver, thread: str) -> Held:
    """Every checkpoint of a thread by its id, and what is given as the latest."""
    listed = {
        checkpoint.checkpoint["id"]: _summary(checkpoint)
        for checkpoint in saver.list(_config(thread))
    }
    stored = saver.get_tuple(_config(thread))
    return {**listed, "latest": _summary(stored) if stored is not None else NOTHING}


NOTHING = ("", frozenset[str]())


def _summary(checkpoint: CheckpointTuple) -> tuple[str, frozenset[str]]:
    state = repr(
        (
            checkpoint.checkpoint["id"],
            dict(checkpoint.checkpoint["channel_values"]),
            checkpoint.metadata,
        )
    )
    return state, frozenset(map(repr, checkpoint.pending_writes or ()))


def _is_part(part: tuple[str, frozenset[str]], whole: tuple[str, frozenset[str]]) -> bool:
    """Whether a state is the one that was put, with no write that was not."""
    return part[0] == whole[0] and part[1] <= whole[1]


class Whole:
    """A closed tally, and what its threads hold."""

    def __init__(self, place: Path, held: dict[str, Held]) -> None:
        self.place, self.held = place, held


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A closed tally with a few threads, and what they hold."""
    place = tmp_path_factory.mktemp("whole") / "tally"
    with Tally.open(place, background=False) as tally:
        saver = TallySaver(tally)
        for thread in THREADS:
            config, messages = _config(thread), list[Any]()
            for turn in range(6):
                chance = random.Random(f"{thread} {turn}")
                messages += [
                    HumanMessage(chance.randbytes(60).hex(), id=f"{turn}.{n}") for n in range(8)
                ]
                checkpoint: Any = {
                    **empty_checkpoint(),
                    "channel_values": {"messages": messages, "n": turn},
                }
                config = saver.put(config, checkpoint, {"step": turn}, {})
                saver.put_writes(config, [("messages", messages[-1:])], f"task {turn}")
        held = {thread: _held(saver, thread) for thread in THREADS}
    return Whole(place, held)


def _noticed(tally: Tally, thread: str) -> bool:
    try:
        return any(check.status == "problem" for check in tally.bind().operator.doctor()) or bool(
            tally.bind().threads.verify(thread)
        )
    except CorruptTally:
        return True


def _changed(body: bytes, how: str, at: float, bits: int) -> bytes:
    place = int(at * (len(body) - 1))
    match how:
        case "cut":
            return body[: max(1, place)]
        case "flip":
            return body[:place] + bytes((body[place] ^ bits,)) + body[place + 1 :]
        case "zeros":
            return body[:place] + bytes(min(4096, len(body) - place)) + body[place + 4096 :]
        case "page":
            # A page of the same file in the place of another, as a disk may write it.
            page, other = place // 4096 * 4096, (place * 7919) % len(body) // 4096 * 4096
            return body[:page] + body[other : other + 4096] + body[page + 4096 :]
        case _:
            return random.Random(bits).randbytes(len(body))


@given(
    st.sampled_from(["cut", "flip", "zeros", "page", "noise"]), st.floats(0, 1), st.integers(1, 255)
)
@example("cut", 0.0, 1)
@example("cut", 1.0, 1)
@example("cut", 0.5, 1)
@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_damaged_file_gives_what_was_put_or_a_clear_error(
    whole: Whole, tmp_path: Path, how: str, at: float, bits: int
) -> None:
    place, held = whole.place, whole.held
    copied = tmp_path / "tally"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(place, copied)
    [file] = [
        candidate
        for candidate in copied.rglob("*")
        if candidate.is_file() and candidate.read_bytes()[:6] == b"SQLite"
    ]
    file.write_bytes(_changed(file.read_bytes(), how, at, bits))
    try:
        tally = Tally.open(copied, background=False)
    except TallystickError:
        return
    with tally:
        saver = TallySaver(tally)
        for thread in THREADS:
            with contextlib.suppress(TallystickError):
                readable = _held(saver, thread)
                if readable == held[thread]:
                    continue
                # SQLite does not see every page that took the place of another: rows may be
                # missing, none is wrong, and what verifies the thread, or the doctor, says so.
                latest = readable.pop("latest")
                assert all(_is_part(summary, held[thread][id]) for id, summary in readable.items())
                assert latest == NOTHING or any(
                    _is_part(latest, summary) for summary in held[thread].values()
                )
                assert _noticed(tally, thread)


def test_an_empty_file_is_no_tally(tmp_path: Path) -> None:
    (tmp_path / "tally.db").touch()
    with pytest.raises(TallyNotFound):
        Tally.open(tmp_path, create=False)


ROWS = {
    "threads": ("puts", "states", "seal", "epoch"),
    "thread_states": ("id", "namespace", "parent_id", "position", "marks", "metadata", "state"),
    "thread_writes": ("task_id", "position", "task_path", "channel", "value", "code"),
    "tree_parts": ("digest", "body"),
    "tree_holds": ("part_id",),
}
CELLS = [(table, column) for table, columns in ROWS.items() for column in columns]
CELLS.append(("thread_states", "code"))


def _other(value: Any, how: str, at: float, bits: int, foreign: Any) -> Any:
    """A value of a row in the place of another."""
    if how == "foreign":
        return foreign
    if isinstance(value, int):
        return value ^ bits if how == "flip" else value * bits
    if value is None:
        return "x"
    body = value.encode() if isinstance(value, str) else bytes(value)
    place = int(at * (len(body) - 1))
    if how == "flip" and body:
        body = body[:place] + bytes((body[place] ^ bits,)) + body[place + 1 :]
    elif how == "cut":
        body = body[:place]
    else:
        body = random.Random(bits).randbytes(len(body))
    return body.decode("utf-8", "replace") if isinstance(value, str) else body


@given(
    st.sampled_from(CELLS),
    st.sampled_from(["flip", "cut", "noise", "foreign"]),
    st.floats(0, 1),
    st.integers(1, 255),
)
@settings(
    max_examples=settings().max_examples // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_changed_row_gives_what_was_put_or_a_clear_error(
    whole: Whole, tmp_path: Path, cell: tuple[str, str], how: str, at: float, bits: int
) -> None:
    """25 rows as a rule, 500 under `make soak`: bits flipped, cut off, of another row, noise."""
    table, column = cell
    copied = tmp_path / "tally"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(whole.place, copied)
    with contextlib.closing(sqlite3.connect(copied / "tally.db")) as database, database:
        rows = database.execute(f"SELECT {column} FROM {table} ORDER BY 1").fetchall()
        value, foreign = rows[int(at * (len(rows) - 1))][0], rows[bits % len(rows)][0]
        changed = _other(value, how, at, bits, foreign)
        with contextlib.suppress(sqlite3.IntegrityError, OverflowError):
            database.execute(
                f"UPDATE {table} SET {column} = ? WHERE {column} IS ?", (changed, value)
            )
    with Tally.open(copied, background=False) as tally:
        saver = TallySaver(tally)
        for thread in THREADS:
            try:
                readable = _held(saver, thread)
            except TallystickError:
                continue
            if readable == whole.held[thread]:
                continue
            latest = readable.pop("latest")
            held = whole.held[thread]
            assert all(id in held and _is_part(each, held[id]) for id, each in readable.items())
            assert latest == NOTHING or any(_is_part(latest, each) for each in held.values())
            assert _noticed(tally, thread), (table, column, how)


def test_a_thread_that_was_renamed_by_hand_is_noticed_before_its_first_checkpoint_too(
    tmp_path: Path,
) -> None:
    with Tally.open(tmp_path / "tally", background=False) as tally:
        threads = tally.bind().threads
        write = PendingWrite("task", "", 0, "channel", Leaf("json", b"1"))
        threads.put_writes("chat", namespace="", checkpoint_id="1", writes=[write])
        assert threads.verify() == []
        services_of(tally).store.database.write(
            lambda tx: tx.exec_driver_sql("UPDATE threads SET name = 'another'"), name="harm"
        )
        [problem] = threads.verify()
    assert problem.where == "thread another checkpoint 1"
    assert "does not match its code" in problem.problem
