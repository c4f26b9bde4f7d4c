"""Forks: a child of a busy parent opens the tally anew and works, or is told at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.pages import every

from tallystick import Actor, BoundTally, Tally
from tallystick.errors import ForkedTally, TallystickError
from tallystick.recorder import Run
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")
_SECONDS = 60
"""After which a child that hangs is ended: its answer is then empty."""


def _child(work: Callable[[], str]) -> Callable[[], str]:
    """Fork a child that does `work`; return the function that waits for its answer."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_SECONDS)
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 - the answer of the child
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)

    def answer_of_child() -> str:
        with os.fdopen(reading, "rb") as answers:
            answer = answers.read().decode()
        os.waitpid(child, 0)
        return answer

    return answer_of_child


def _in_child(work: Callable[[], str]) -> str:
    return _child(work)()


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except ForkedTally:
        return "refused"
    return "done"


def _step(run: Run) -> None:
    with run.step("model_call") as step:
        step.record("request", {"prompt": "Mend it."})


def _works(open_tally: OpenTally, text: str) -> str:
    with open_tally(embedder=HashEmbedder()) as tally:
        anna = tally.bind(ANNA)
        memory = anna.remember(text)
        with anna.run("child") as run:
            _step(run)
        assert anna.get(memory.id).content == text
        assert anna.recordings.verify(run.id).ok
    return "works"


@contextmanager
def _load(anna: BoundTally) -> Iterator[list[str]]:
    """Threads that remember, recall and record without a pause; yields the ids they were given."""
    ended = threading.Event()
    ids: list[str] = []
    failures: list[TallystickError] = []

    def work(turn: Callable[[int], object]) -> None:
        number = 0
        while not ended.is_set():
            number += 1
            try:
                turn(number)
            except TallystickError as error:
                failures.append(error)

    def record(number: int) -> None:
        with anna.run("parent") as run:
            _step(run)

    turns: list[Callable[[int], object]] = [
        lambda number: ids.append(anna.remember(f"fact {number}").id),
        lambda number: ids.append(anna.remember(f"claim {number}").id),
        lambda number: anna.recall("fact"),
        record,
    ]
    threads = [threading.Thread(target=work, args=(turn,)) for turn in turns]
    for thread in threads:
        thread.start()
    try:
        yield ids
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failures == []


@pytest.mark.slow
def test_every_child_of_a_busy_parent_opens_the_tally_anew(
    open_tally: OpenTally, request: pytest.FixtureRequest
) -> None:
    """Six forks on each database, 300 under `make soak`; the parent loses nothing."""
    forks = 300 if request.config.getoption("--hypothesis-profile") == "soak" else 6

    def live(number: int) -> str:
        answers = [
            _refusal(lambda: anna.remember("in the child")),
            _refusal(lambda: _step(run)),
            _refusal(tally.close),
        ]
        return " ".join([*answers, _works(open_tally, f"child {number}")])

    with open_tally(embedder=HashEmbedder()) as tally:
        anna = tally.bind(ANNA)
        with anna.run("parent") as run, _load(anna) as ids:
            for number in range(forks):
                answer = _in_child(partial(live, number))
                assert answer == "refused refused done works"
                _step(run)
        contents = {memory.content for memory in every(anna.memories)}
        assert {f"child {number}" for number in range(forks)} <= contents
        assert all(anna.get(memory_id) for memory_id in ids[-20:])
        verified = anna.recordings.verify(run.id)
        assert verified.ok
        assert len(anna.recordings.receipts(run.id)) == forks


def test_a_step_in_a_child_is_refused_at_once_whatever_the_parent_just_recorded(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally, tally.bind(ANNA).run("parent") as run:
        step = run.step("model_call")
        answer = _in_child(
            lambda: " ".join(
                [
                    _refusal(lambda: run.step("tool_call")),
                    _refusal(lambda: step.record("request", {})),
                    _refusal(step.end),
                    _refusal(run.end),
                    _refusal(lambda: tally.bind(ANNA).recall("anything")),
                ]
            )
        )
        assert answer == "refused " * 4 + "refused"
        step.end()


def test_the_blocks_that_a_child_was_forked_in_end_in_it(open_tally: OpenTally) -> None:
    def leave() -> str:
        with tally:
            pass
        return f"{tally!r}"[:6]

    with open_tally() as tally:
        tally.bind(ANNA).remember("before")
        assert _in_child(leave) == "Tally("
        tally.bind(ANNA).remember("after")


def test_a_fork_inside_of_a_write_tells_the_child_and_holds_up_nobody(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        database = services_of(tally).store.database
        answer = database.write(
            lambda tx: _child(lambda: _works(open_tally, "in the child")), name="test.fork"
        )()
        # On a server the child has a session of its own, but is still inside of the write.
        told = "InsideTransaction" if database.is_postgres else "ForkedTally: This process was"
        assert answer.startswith(told)
        with database.read():
            answer = _in_child(lambda: _works(open_tally, "beside a read"))
        told = "works" if database.is_postgres else "ForkedTally: This process was"
        assert answer.startswith(told)
        tally.bind(ANNA).remember("after")
        assert _in_child(lambda: _works(open_tally, "in another child")) == "works"


def test_threads_fork_at_once_in_a_process_with_several_tallies(tmp_path: Path) -> None:
    answers: list[str] = []

    def opened(name: str) -> OpenTally:
        return lambda **options: Tally.open(tmp_path / name, background=False, **options)

    def fork(name: str) -> None:
        answers.extend(_in_child(lambda: _works(opened(name), name)) for _ in range(3))

    with opened("first")() as first, opened("second")() as second:
        first.bind().remember("one")
        second.bind().remember("two")
        threads = [threading.Thread(target=fork, args=(name,)) for name in ("first", "second")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first.bind().remember("three")
    assert answers == ["works"] * 6


def test_a_child_goes_on_when_its_parent_has_closed(open_tally: OpenTally) -> None:
    """What the parent's end removes is nothing that the child works with."""
    tally = open_tally(embedder=HashEmbedder())
    tally.bind(ANNA).remember("before")
    opened: multiprocessing.SimpleQueue[str] = multiprocessing.SimpleQueue()
    closed: multiprocessing.SimpleQueue[str] = multiprocessing.SimpleQueue()

    def outlive() -> str:
        with open_tally(embedder=HashEmbedder()) as own:
            own.bind(ANNA).remember("beside the parent")
            opened.put("opened")
            closed.get()
            own.bind(ANNA).remember("after the parent")
        return "works"

    answer = _child(outlive)
    opened.get()
    tally.close()
    closed.put("closed")
    assert answer() == "works"
    with open_tally() as other:
        contents = sorted(memory.content for memory in other.bind(ANNA).memories())
        assert contents == ["after the parent", "before", "beside the parent"]


def test_multiprocessing_by_fork_works_on_a_tally_of_its_own(open_tally: OpenTally) -> None:
    forking = multiprocessing.get_context("fork")
    answers = forking.SimpleQueue()

    def work(number: int) -> None:
        answers.put(_works(open_tally, f"worker {number}"))

    with open_tally() as tally:
        tally.bind(ANNA).remember("before")
        processes = [forking.Process(target=work, args=(number,)) for number in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(_SECONDS)
            assert process.exitcode == 0
        assert [answers.get(), answers.get()] == ["works", "works"]
        assert len(tally.bind(ANNA).memories()) == 3
