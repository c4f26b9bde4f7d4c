"""On PostgreSQL a call waits for writers of its own scope, and for nobody else's; of two processes
that do the same to one thing, one does it.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.core.storage.engine.writers import SECONDS, held
from tests.core.storage.rows.test_idempotency import CALLS, World
from tests.scripted import concluder

from tallystick import Actor, PolicyRule, Tally
from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.errors import ApprovalRequired, BusyTally, Denied, StateConflict, TallystickError
from tallystick.records import Scope
from tallystick.settings import Settings
from tallystick.storage.engine.writes import EVERYTHING, Writes
from tallystick.storage.rows import journal, scopes
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick_learning import Learning

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]
ALICE = Actor(user="alice", role="operator", projects=frozenset({"apollo"}))
OF_ALICE, OF_BOB = Scope.parse("private:alice"), Scope.parse("private:bob")
APOLLO = Scope.parse("project:apollo")
ASK = PolicyRule(id="ask", name="Ask", effect="require_approval", applies_to="tool_call")
ALONE = {"import_from", "erase", "erase_user", "erase_recorded", "purge", "freeze", "thaw"}
"""The calls that run alone."""

OpenTwo = Callable[..., tuple[Tally, Tally]]


@pytest.fixture
def open_two(postgres_url: str) -> Iterator[OpenTwo]:
    """Opens two tallies on one database, as two processes have them."""
    schema = f"t{uuid.uuid4().hex}"
    with ExitStack() as stack:

        def open_both(**settings: Any) -> tuple[Tally, Tally]:
            given = Settings.read(reflection="review", **settings)
            first, second = (
                stack.enter_context(
                    Tally.open(
                        postgres_url,
                        schema=schema,
                        background=False,
                        rules=[ASK],
                        settings=given,
                        learning_model=concluder(),
                    )
                )
                for _ in range(2)
            )
            return first, second

        yield open_both


def error_of(call: Callable[[], Any]) -> TallystickError | None:
    """The error that a call raises, if it does."""
    try:
        call()
    except TallystickError as error:
        return error
    return None


def both(first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
    """Call both at once; return the results, errors among them."""
    met = threading.Barrier(2)

    def call(each: Callable[[], Any]) -> Any:
        met.wait(SECONDS)
        try:
            return each()
        except TallystickError as error:
            return error

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(call, (first, second)))


def events(tally: Tally, event: str) -> int:
    """The number of entries of an event in the journal, whose chains are whole."""
    with services_of(tally).store.database.read() as connection:
        entries = [entry.event for entry in journal.all_entries(connection)]
        for scope in scopes.all_scopes(connection):
            assert journal.verify_stream(connection, f"scope:{scope}") == []
        assert journal.verify_stream(connection, "tally") == []
    return entries.count(event)


def thread_calls(bound: BoundTally) -> None:
    """Everything that is done with threads."""
    body = Leaf("json", json.dumps({"x": "y"}).encode())
    for number in ("10", "20"):
        put = NewCheckpoint("", number, None, {"source": "input"}, body, {"messages": body})
        bound.threads.put("chat", put)
    bound.threads.copy("chat", "other")
    bound.threads.prune("chat")
    bound.threads.delete_where({"source": "input"})
    bound.threads.delete("other")


@pytest.mark.slow
def test_no_daily_call_waits_for_a_writer_of_another_scope(
    open_two: OpenTwo, tmp_path: Path
) -> None:
    first, second = open_two(busy_timeout_ms=500, learning="review", graph=True)
    with held(first, Writes.of(OF_BOB)):
        for name in sorted({*CALLS} - ALONE):
            World(second, tmp_path, name).calls()[name]("key", "a")
        alice = second.bind(ALICE)
        alice.remember(
            "Nora moved to Leeds with Felix in May.", conversation="c", entities=["Nora", "Leeds"]
        )
        Learning(alice).reflect(conversation="c")
        Learning(alice).end_session(conversation="c")
        second.drain()
        with alice.run("keeper") as run, run.step("model_call") as step:
            step.record("request", {"prompt": "reeds"})
        alice.recordings.replay_later(step.id)
        thread_calls(alice)
    assert events(second, "proposal.deferred") == 1


def test_a_body_moves_out_of_the_database_while_its_scope_is_written(
    open_two: OpenTwo, tmp_path: Path
) -> None:
    kept = {"objects": str(tmp_path), "objects_from_kb": 1}
    first, second = open_two(busy_timeout_ms=500, **kept)
    second.bind(ALICE).remember("reeds " * 900)
    with held(first, Writes.of(OF_ALICE)):
        second.drain()
    assert [file for file in tmp_path.rglob("*") if file.is_file()]


def proposal_of(bound: BoundTally) -> str:
    """A proposal that waits for a person."""
    bound.remember("We decided to feed the heron at noon.", kind="turn", conversation="birds")
    Learning(bound).reflect(conversation="birds")
    waiting = bound.reviews.list()
    bound.remember("We chose to paint the boats green.", conversation="birds")
    return waiting[0].id


def approval_of(bound: BoundTally, tool: str) -> str:
    """An approval that waits for a person."""
    with pytest.raises(ApprovalRequired) as blocked:
        bound.check_tool_call(tool, {"amount": 1})
    return blocked.value.approvals[0].id


def forgetting(bound: BoundTally, query: str) -> Callable[[], Any]:
    """The application of a preview that forgets what matches."""
    shown = bound.corrections.forget_matching(query, reason="a slip", threshold=0.9)
    return lambda: bound.corrections.forget_matching(
        query, reason="a slip", threshold=0.9, mode="apply", confirm_token=shown.confirm_token
    )


def test_a_daily_call_waits_for_a_writer_of_its_own_scope(open_two: OpenTwo) -> None:
    first, second = open_two(busy_timeout_ms=200)
    alice = second.bind(ALICE)
    alice.remember("The heron nests in March.")
    proposal, asked = proposal_of(alice), approval_of(alice, "pay")
    Learning(alice).reflect(conversation="birds", mode="async")
    calls: list[Callable[[], Any]] = [
        forgetting(alice, "heron nests"),
        lambda: alice.reviews.decide(proposal, "reject", reason="no"),
        lambda: alice.approvals.approve(asked, reason="yes"),
        lambda: Learning(alice).reflect(conversation="birds"),
        lambda: alice.threads.delete("chat"),
        lambda: services_of(second).background.runner.run(["reflect"]),
    ]
    with held(first, Writes.of(OF_ALICE)):
        waited = [isinstance(each, BusyTally) for each in map(error_of, calls)]
    assert waited == [True] * len(calls)
    for call in calls:
        call()


def test_what_is_concluded_waits_for_writers_of_what_it_is_concluded_from(
    open_two: OpenTwo,
) -> None:
    first, second = open_two(busy_timeout_ms=200)
    second.bind(ALICE, APOLLO).remember("We decided to buy a crane.", conversation="monday")
    ours, mine = second.bind(ALICE, APOLLO), second.bind(ALICE)
    [origin] = ours.memories()
    with held(first, Writes.of(APOLLO)), pytest.raises(BusyTally):
        Learning(mine).reflect([origin.id])
    waiting = Learning(mine).reflect([origin.id]).proposals[0]
    with held(first, Writes.of(APOLLO)), pytest.raises(BusyTally):
        mine.reviews.decide(waiting.id, "accept", reason="so it was")
    assert mine.reviews.decide(waiting.id, "accept", reason="so it was").state == "accepted"


def test_a_freeze_stops_those_who_wait_for_it(open_two: OpenTwo) -> None:
    first, second = open_two(busy_timeout_ms=20_000)
    alice = second.bind(ALICE)
    alice.remember("The heron nests in March.")
    proposal = proposal_of(alice)
    calls: list[Callable[[], Any]] = [
        forgetting(alice, "heron nests"),
        lambda: alice.reviews.decide(proposal, "reject", reason="no"),
        lambda: Learning(alice).reflect(conversation="birds"),
    ]

    def refused(call: Callable[[], Any]) -> str:
        with pytest.raises(Denied) as denied:
            call()
        assert denied.value.decision is not None
        return denied.value.decision.reason

    with ThreadPoolExecutor(len(calls)) as threads:
        with held(first, EVERYTHING, lambda tx: scopes.set_frozen(tx, True)):
            waiting = [threads.submit(refused, call) for call in calls]
        reasons = {each.result(SECONDS) for each in waiting}
    assert reasons == {"mutations_frozen"}


@pytest.mark.parametrize("round_", range(3))
def test_of_two_processes_one_decides_an_approval(open_two: OpenTwo, round_: int) -> None:
    first, second = open_two()
    one, other = first.bind(ALICE), second.bind(ALICE)
    asked = approval_of(one, "pay")
    results = both(
        lambda: one.approvals.approve(asked, reason="yes"),
        lambda: other.approvals.deny(asked, reason="no"),
    )
    assert sum(isinstance(each, StateConflict) for each in results) == 1
    assert events(first, "approval.granted") + events(first, "approval.denied") == 1


@pytest.mark.parametrize("round_", range(3))
def test_of_two_processes_one_reviews_a_proposal(open_two: OpenTwo, round_: int) -> None:
    first, second = open_two()
    one, other = first.bind(ALICE), second.bind(ALICE)
    proposal = proposal_of(one)
    before = len(one.memories())
    results = both(
        lambda: one.reviews.decide(proposal, "accept", reason="yes"),
        lambda: other.reviews.decide(proposal, "accept", reason="yes"),
    )
    assert sum(isinstance(each, StateConflict) for each in results) == 1
    assert (events(first, "proposal.accepted"), len(one.memories())) == (1, before + 1)


@pytest.mark.parametrize("round_", range(3))
def test_of_two_processes_one_forgets_what_matches(open_two: OpenTwo, round_: int) -> None:
    first, second = open_two()
    first.bind(ALICE).remember("The heron nests in March.")
    results = both(
        forgetting(first.bind(ALICE), "heron nests"), forgetting(second.bind(ALICE), "heron nests")
    )
    assert sum(isinstance(each, TallystickError) for each in results) == 1
    assert events(first, "memory.forget") == 1


def test_of_two_processes_one_rotates_a_token_and_both_are_journaled(open_two: OpenTwo) -> None:
    first, second = open_two()
    made = first.bind(ALICE).tokens.make("laptop")
    results = both(
        lambda: first.bind(ALICE).tokens.rotate(made.id),
        lambda: second.bind(ALICE).tokens.rotate(made.id),
    )
    assert sum(isinstance(each, StateConflict) for each in results) == 1
    assert events(first, "token.rotate") == 1


def test_two_processes_that_put_into_and_copy_one_thread_leave_it_whole(open_two: OpenTwo) -> None:
    first, second = open_two()
    body = Leaf("json", json.dumps({"x": "y" * 3_000}).encode())

    def put(tally: Tally, half: int) -> None:
        threads = tally.bind(ALICE).threads
        for number in range(10):
            id = f"{2 * number + half:03}"
            threads.put("chat", NewCheckpoint("", id, None, {}, body, {"messages": body}))
            if number % 5 == 0:
                threads.copy("chat", f"copy-{half}")
                threads.prune("chat")

    assert both(lambda: put(first, 0), lambda: put(second, 1)) == [None, None]
    assert first.bind(ALICE).threads.verify("chat") == []
    assert first.bind(ALICE).threads.verify("copy-0") == []
