"""Listeners are called after the commit, on a thread of their own, within what their actor may
inspect.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tallystick import Actor, Tally
from tallystick.recorder import RecordingEvent
from tallystick.storage.rows import recordings
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]

OWNER = Actor(user="alice", surface="test")


@pytest.fixture
def tally(open_tally: OpenTally) -> Iterator[Tally]:
    with open_tally() as opened:
        yield opened


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does, a minute at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "nothing happened within a minute"
        time.sleep(0.005)


def test_a_listener_hears_of_a_run_its_steps_and_its_end_in_their_order(tally: Tally) -> None:
    bound = tally.bind(OWNER)
    events: list[RecordingEvent] = []
    subscription = bound.recordings.subscribe(events.append)
    with bound.run("coder") as run:
        with run.step("model_call", name="plan") as first:
            first.record("request", {"messages": ["hi"]})
        with run.step("tool_call") as second:
            pass
    wait_until(lambda: len(events) == 4)
    assert [(event.kind, event.step.step_id if event.step else None) for event in events] == [
        ("run_started", None),
        ("step_ended", first.id),
        ("step_ended", second.id),
        ("run_ended", None),
    ]
    assert [event.run.status for event in (events[0], events[-1])] == ["running", "completed"]
    assert events[1].step == bound.recordings.step(first.id)
    assert events[-1].run == bound.recordings.run(run.id)
    assert (subscription.missed, subscription.failures) == (0, 0)


def test_what_a_listener_hears_of_is_committed(tally: Tally) -> None:
    bound = tally.bind(OWNER)
    receipts: list[bool] = []

    def listener(event: RecordingEvent) -> None:
        if event.step is not None:
            # Straight from the database: nothing that waits is written for this reader.
            with services_of(tally).store.database.read() as connection:
                stored = recordings.find_step(connection, event.step.step_id)
            receipt = bound.recordings.receipt(event.step.step_id)
            receipts.append(stored == event.step and receipt.step_id == event.step.step_id)

    bound.recordings.subscribe(listener)
    with bound.run("coder") as run:
        for _ in range(3):
            with run.step("other"):
                pass
    wait_until(lambda: len(receipts) == 3)
    assert receipts == [True] * 3


def test_what_storage_refused_reaches_no_listener(
    tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = tally.bind(OWNER)
    events: list[RecordingEvent] = []
    bound.recordings.subscribe(events.append)
    run = bound.run("coder")
    services_of(tally).store.database.flush()
    with monkeypatch.context() as during:
        during.setattr(recordings, "add_steps", _refuse)
        with pytest.raises(ValueError, match="refused"):
            run.step("model_call", name="lost").end()
    with run.step("model_call", name="stored"):
        pass
    wait_until(lambda: any(event.step for event in events))
    assert [event.step.name for event in events if event.step is not None] == ["stored"]
    run.end()


def _refuse(*_: object) -> None:
    raise ValueError("refused")


def test_a_slow_listener_misses_what_does_not_fit_and_holds_up_nobody(tally: Tally) -> None:
    bound = tally.bind(OWNER)
    entered, leave = threading.Event(), threading.Event()
    heard: list[str] = []

    def slow(event: RecordingEvent) -> None:
        entered.set()
        assert leave.wait(60)
        heard.append(event.kind)

    other: list[RecordingEvent] = []
    bound.recordings.subscribe(other.append)
    subscription = bound.recordings.subscribe(slow, max_waiting=2)
    with bound.run("coder") as run:
        services_of(tally).store.database.flush()
        assert entered.wait(60)
        # The listener does not return, and each of these is committed all the same.
        for _ in range(10):
            with run.step("other"):
                pass
    wait_until(lambda: len(other) == 12 and subscription.missed == 12 - 1 - 2)
    leave.set()
    wait_until(lambda: len(heard) == 3)
    assert heard == ["run_started", "step_ended", "step_ended"]


def test_a_listener_hears_nothing_of_scopes_that_its_actor_may_not_inspect(tally: Tally) -> None:
    bound = tally.bind(OWNER)
    foreign: list[RecordingEvent] = []
    own: list[RecordingEvent] = []
    tally.bind(Actor(user="eve", surface="test")).recordings.subscribe(foreign.append)
    bound.recordings.subscribe(own.append)
    with bound.run("coder") as run, run.step("other"):
        pass
    eve = tally.bind(Actor(user="eve", surface="test"))
    with eve.run("spy") as spy:
        pass
    wait_until(lambda: len(own) == 3 and len(foreign) == 2)
    assert {event.run.run_id for event in own} == {run.id}
    assert {event.run.run_id for event in foreign} == {spy.id}


def test_a_closed_subscription_hears_nothing_more(tally: Tally) -> None:
    bound = tally.bind(OWNER)
    events: list[RecordingEvent] = []
    subscription = bound.recordings.subscribe(events.append)
    with bound.run("coder") as run:
        wait_until(lambda: len(events) == 1)
        subscription.close(wait_seconds=60)
        subscription.close()
        with run.step("other"):
            pass
    wait_until(lambda: not subscription.is_alive)
    assert [event.kind for event in events] == ["run_started"]
    assert subscription.closed
    assert not services_of(tally).recorder.subscriptions.any_open


def test_a_listener_may_close_its_own_subscription(tally: Tally) -> None:
    bound = tally.bind(OWNER)
    events: list[RecordingEvent] = []

    def once(event: RecordingEvent) -> None:
        events.append(event)
        subscription.close(wait_seconds=60)

    subscription = bound.recordings.subscribe(once)
    with bound.run("coder") as run, run.step("other"):
        pass
    wait_until(lambda: not subscription.is_alive)
    assert len(events) == 1


def test_a_listener_that_raises_is_counted_and_hears_what_follows(tally: Tally) -> None:
    bound = tally.bind(OWNER)
    kinds: list[str] = []

    def failing(event: RecordingEvent) -> None:
        kinds.append(event.kind)
        raise RuntimeError("odd")

    subscription = bound.recordings.subscribe(failing)
    with bound.run("coder") as run, run.step("other") as step:
        pass
    wait_until(lambda: subscription.failures == 3)
    assert kinds == ["run_started", "step_ended", "run_ended"]
    assert bound.recordings.verify(run.id).ok
    assert step.is_stored


def test_a_closing_tally_delivers_what_waits_and_closes_its_subscriptions(
    open_tally: OpenTally,
) -> None:
    tally = open_tally()
    bound = tally.bind(OWNER)
    kinds: list[str] = []

    def reading(event: RecordingEvent) -> None:
        kinds.append(f"{event.kind} {bound.recordings.run(event.run.run_id).agent_name}")

    subscription = bound.recordings.subscribe(reading)
    run = bound.run("coder")
    run.step("other").end(wait=False)
    run.end(wait=False)
    tally.close()
    assert kinds == ["run_started coder", "step_ended coder", "run_ended coder"]
    assert (subscription.missed, subscription.closed) == (0, True)


def test_no_thread_is_started_before_the_first_subscription(tally: Tally) -> None:
    def listeners() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "tallystick-listener"]

    bound = tally.bind(OWNER)
    with bound.run("coder"):
        pass
    before = len(listeners())
    subscription = bound.recordings.subscribe(lambda event: None)
    assert len(listeners()) == before + 1
    subscription.close()
    wait_until(lambda: not subscription.is_alive)
