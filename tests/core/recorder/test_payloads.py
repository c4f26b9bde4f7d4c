"""Payloads come back as they were recorded, whatever they share; what cannot be recorded is
counted, never hidden.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select, update

from tallystick import Actor, Tally
from tallystick.errors import BusyTally, ClosedTally, InvalidInput, RecorderError
from tallystick.kit.call_tree import RootRun
from tallystick.recorder import write_queue
from tallystick.recorder.context import Backlog
from tallystick.recorder.payloads import Preserialized, pieces_of, plain
from tallystick.recorder.pending import PendingStep
from tallystick.recorder.run import Step
from tallystick.records import ContextItem
from tallystick.records.canonical import json_bytes
from tallystick.settings import Settings
from tallystick.storage.engine import group_commit, tables
from tallystick.storage.rows import journal, recordings
from tallystick.storage.rows.journal import Salts
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
OWNER = Actor(user="local", role="operator")

words = st.text(alphabet='abc é\n"\\', max_size=400)
messages = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": words})
edits = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "edit", "drop", "fork", "tools"]),
        st.integers(0, 30),
        messages,
        words,
    ),
    min_size=1,
    max_size=14,
)


def _prompts(changes: list[tuple[str, int, dict[str, str], str]]) -> list[dict[str, Any]]:
    """Prompts as agents send them: they grow, are edited in the middle, cut, and two of them take
    turns.
    """
    lists: list[list[dict[str, str]]] = [[], []]
    prompts: list[dict[str, Any]] = []
    tools, which = "", 0
    for what, place, message, text in changes:
        which = 1 - which if what == "fork" else which
        history = lists[which]
        if what in {"append", "fork"} or not history:
            history.append(message)
        elif what == "edit":
            history[place % len(history)] = message
        elif what == "drop":
            del history[: place % len(history)]
        else:
            tools = text
        prompts.append(
            {
                "as_of": len(prompts),
                "fixed": ["x" * 700, "y" * 700],
                "messages": [dict(one) for one in history],
                "model": "m",
                "tools": [tools] * 3,
            }
        )
    return prompts


@settings(max_examples=25)
@given(changes=edits, reopen=st.integers(0, 14))
def test_every_payload_comes_back_as_it_was_recorded(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[str, int, dict[str, str], str]],
    reopen: int,
) -> None:
    prompts = _prompts(changes)
    folder = tmp_path_factory.mktemp("tally")
    recorded: list[tuple[str, dict[str, Any]]] = []
    runs: set[str] = set()
    tally = Tally.open(folder, background=False)
    run = tally.bind(OWNER).run("coder", retention="full_payloads")
    for place, prompt in enumerate(prompts):
        if place == reopen:
            run.end()
            tally.close()
            tally = Tally.open(folder, background=False)
            run = tally.bind(OWNER).run("coder", retention="full_payloads")
        runs.add(run.id)
        with run.step("model_call") as step:
            step.record("request", prompt)
        recorded.append((step.id, prompt))
    run.end()
    recorder = tally.bind(OWNER).recordings
    for step_id, prompt in recorded:
        assert recorder.entries(step_id)[0].payload == prompt
    for run_id in runs:
        assert recorder.verify(run_id).ok
    tally.close()


def test_of_a_payload_that_changes_in_several_places_only_these_are_stored(
    open_tally: OpenTally,
) -> None:
    lines = [f"line {number}: " + f"word{number} " * 30 for number in range(60)]
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        sizes = []
        with bound.run("chat") as run:
            for turn in range(3):
                lines[10] = lines[40] = f"turn {turn} " * 30
                with run.step("model_call") as step:
                    step.record("request", {"as_of": turn, "lines": list(lines), "more": turn})
                services_of(tally).store.database.flush()
                with services_of(tally).store.database.read() as connection:
                    bodies = connection.execute(select(tables.parts.c.body)).scalars()
                    sizes.append(sum(map(len, bodies)))
        assert sizes[0] > 12_000
        assert sizes[2] - sizes[1] < 900
        read: Any = bound.recordings.entries(step.id)[0].payload
        assert read["lines"] == lines
        assert bound.recordings.verify(run.id).ok


def test_a_growing_chat_stores_each_message_once(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        history: list[dict[str, str]] = []
        stored = {}
        with bound.run("chat") as run:
            for turn in range(1, 401):
                history.append({"role": "user", "content": f"turn {turn}: " + "word " * 40})
                with run.step("model_call") as step:
                    step.record(
                        "request", {"messages": list(history), "model": "m", "tools": ["t" * 500]}
                    )
                if turn in {10, 100, 400}:
                    with services_of(tally).store.database.read() as connection:
                        size = connection.execute(
                            select(func.sum(func.length(tables.parts.c.body)))
                        ).scalar_one()
                    stored[turn] = size / turn
        assert stored[400] <= stored[100] <= stored[10] < 1_000
        assert bound.recordings.verify(run.id).ok


def test_what_rests_on_an_erased_payload_is_kept_unless_it_says_the_same(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        secret = "The kiln door sticks on rainy mornings, so prop it."
        memory = bound.remember(secret)
        opening = [
            {"role": "user", "content": f"line {number} " + "word " * 60} for number in range(12)
        ]
        prompts = [
            opening,
            [*opening, {"role": "user", "content": secret}],
            [*opening, {"role": "user", "content": "x"}],
        ]
        prompts.append([*prompts[1], {"role": "assistant", "content": "Noted."}])
        steps = []
        with bound.run("chat", retention="full_payloads") as run:
            for prompt in prompts:
                with run.step("model_call") as step:
                    step.record("request", {"messages": prompt})
                steps.append(step.id)
        preview = bound.operator.erase(memory.id, reason="asked to", mode="preview")
        bound.operator.erase(
            memory.id, reason="asked to", mode="apply", confirm_token=preview.confirm_token
        )
        entries = [bound.recordings.entries(step)[0] for step in steps]
        assert [entry.payload_state for entry in entries] == ["kept", "erased", "kept", "erased"]
        assert [entry.payload for entry in entries[::2]] == [
            {"messages": prompts[0]},
            {"messages": prompts[2]},
        ]
        verified = bound.recordings.verify(run.id)
        assert (verified.ok, verified.payloads_absent) == (True, 2), verified
        with (
            bound.run("chat", retention="full_payloads") as later,
            later.step("model_call") as step,
        ):
            step.record("request", {"messages": prompts[2]})
        assert bound.recordings.entries(step.id)[0].payload == {"messages": prompts[2]}


def test_an_element_that_an_adapter_wrote_stands_where_a_plain_one_would() -> None:
    mine = {
        "messages": [Preserialized(b'{"a":1}'), {"b": "\ud800"}, 2**70],
        "z": {"deep": [Preserialized(b"[1]")]},
        3: float("inf"),
    }
    body = b"".join(pieces_of(mine).bodies)
    assert plain(mine)["messages"][0] == {"a": 1}  # type: ignore[index, call-overload]
    assert b'"messages":[{"a":1},{"b":"\\ud800"},1180591620717411303424]' in body


def test_what_is_kept_of_texts_that_an_adapter_wrote_takes_little_more_than_their_bytes(
    open_sqlite: OpenTally,
) -> None:
    bound = open_sqlite().bind(OWNER)
    texts = [f"{number} " + "a message of the chat " * 100 for number in range(400)]
    with bound.run("agent") as run, run.step("model_call", name="model") as step:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            kept = [Preserialized(json_bytes({"content": text})) for text in texts]
            step.record("request", {"messages": kept})
            services_of(bound).store.database.flush()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < 3 * sum(map(len, texts))


@pytest.mark.parametrize("value", [None, [None, "x"], {"a": None, "b": 2**70}, 0.5])
def test_metadata_come_back_as_they_were(open_sqlite: OpenTally, value: Any) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(OWNER)
        with bound.run("coder") as run, run.step("other", metadata={"none": None, "value": value}):
            pass
        [step] = bound.recordings.steps(run.id)
        assert repr(step.metadata) == repr({"none": None, "value": value})


def test_salts_are_never_given_twice() -> None:
    salts = Salts()
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: salts.new(), range(5_000)))
    assert len(set(drawn)) == len(drawn)
    assert {len(salt) for salt in drawn} == {16}


def test_what_was_cleared_under_one_name_is_looked_at_again_under_another(
    open_tally: OpenTally,
) -> None:
    element = Preserialized(b'"0a1b2c3d4e5f60718293a4b5c6d7e8f9"')
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        with bound.run("coder") as run, run.step("other") as step:
            for name in ("lines", "lines", "api_key"):
                step.record("note", {name: [element]})
        plain_one, again, telling = bound.recordings.entries(step.id)
    assert (plain_one.payload_state, again.payload_state) == ("kept", "kept")
    assert (telling.payload_state, sum(telling.redactions.values())) == ("redacted", 1)


def test_one_step_that_cannot_be_stored_leaves_the_others_of_its_batch_alone(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = recordings.add_entries

    def refusing(tx: Any, rows: Any) -> None:
        if any("refuse" in row["summary"] for row in rows):
            raise RecorderError("no room")
        add(tx, rows)

    with open_tally() as tally:
        bound = tally.bind(OWNER)
        run = bound.run("coder")
        monkeypatch.setattr(recordings, "add_entries", refusing)
        good, bad = run.step("tool_call", name="good"), run.step("tool_call", name="bad")
        good.record("tool_result", {"tons": 3})
        bad.record("tool_result", {"tons": 4}, summary={"refuse": True})
        good.end(wait=False)
        with pytest.raises(RecorderError, match="1 entries of step"):
            bad.end()
        run.end()
        recorder = bound.recordings
        assert [entry.payload for entry in recorder.entries(good.id)] == [{"tons": 3}]
        assert [(entry.kind, entry.summary) for entry in recorder.receipt(bad.id).entries] == [
            ("gap", {"missed": {"RecorderError": 1}})
        ]
        verified = recorder.verify(run.id)
        assert verified.ok, verified
        assert verified.gaps == {f"step {bad.id}": {"RecorderError": 1}}
        assert recorder.run(run.id).gaps == 1
        assert services_of(tally).recorder.health.gaps


@pytest.mark.parametrize(
    "value", ["half \ud800", {"\ud800": 2**70}, {"nested": [{"a": 1}]}, float("inf"), -(2**63)]
)
def test_what_a_compile_was_given_is_recorded_as_it_was_when_it_was_asked(
    open_tally: OpenTally, value: Any
) -> None:
    item = ContextItem(
        id="note", kind="memory", content="Deploys are on Friday.", metadata={"value": value}
    )
    ask = ContextItem(id="ask", kind="user_msg", content="When?")
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        memory = bound.get(bound.remember("It rains.").id).replace(attributes={"value": value})
        before = [item.dump(), memory.dump()]
        with bound.run("coder") as run, run.step("model_call") as step:
            leave = threading.Event()
            holding = services_of(tally).store.database.submit(
                lambda tx: leave.wait(60), name="slow"
            )
            busy = services_of(tally).recorder.payloads._executor.submit(leave.wait, 60)
            compiled = bound.compile([item, ask, memory], budget=500)
            item.metadata["value"] = memory.attributes["value"] = "edited since"
            leave.set()
            holding.result()
            busy.result()
        request, recorded = bound.recordings.compiled(step.id)
        assert [request.context_items[0].dump(), request.memory_records[0].dump()] == before
        assert recorded.dump() == compiled.dump()
        assert bound.recordings.verify(run.id).ok


@pytest.mark.parametrize("size", [1, 300_000], ids=["small", "large"])
def test_what_is_edited_after_it_was_recorded_is_recorded_as_it_was(
    open_tally: OpenTally, size: int
) -> None:
    payload = {"messages": [{"text": "first" * size}], "parameters": {"stop": ["a"]}}
    summary: dict[str, Any] = {"usage": {"input": 3}}
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        with bound.run("coder") as run, run.step("model_call") as step:
            leave = threading.Event()
            holding = services_of(tally).store.database.submit(
                lambda tx: leave.wait(60), name="slow"
            )
            step.record("request", payload, summary=summary)
            payload["messages"][0]["text"] = "edited"  # type: ignore[index]
            payload["parameters"]["stop"].append("b")  # type: ignore[index]
            summary["usage"]["input"] = 4
            leave.set()
            holding.result()
        [entry] = bound.recordings.entries(step.id)
        assert entry.payload == {
            "messages": [{"text": "first" * size}],
            "parameters": {"stop": ["a"]},
        }
        assert entry.summary == {"usage": {"input": 3}}
        assert bound.recordings.verify(run.id).ok


@pytest.mark.parametrize(
    "payload",
    [ContextItem(id="a", kind="other", content="x"), {"text": "x"}, {"text": "x" * 300_000}],
    ids=["a record", "small", "large"],
)
def test_what_cannot_be_sealed_is_a_gap(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch, payload: Any
) -> None:
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        run = bound.run("coder")
        step = run.step("model_call")
        step.record("request", {"text": "fine"})
        services_of(tally).store.database.flush()
        monkeypatch.setattr(type(services_of(tally).recorder.redactor), "may_hold", _refuse)
        step.record("compiled", payload)
        step.record("response", {"text": "fine"})
        with pytest.raises(RecorderError, match="1 entries of step"):
            step.end()
        run.end()
        assert bound.recordings.verify(run.id).gaps == {f"step {step.id}": {"ValueError": 1}}
        assert [entry.kind for entry in bound.recordings.entries(step.id)] == [
            "request",
            "response",
            "gap",
        ]
        assert bound.recordings.verify(run.id).ok


def test_steps_that_end_faster_than_they_are_stored_are_not_looked_at_again_and_again(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    is_stored = cast(property, Step.is_stored).fget

    def counted(step: Step) -> bool:
        nonlocal looks
        looks += 1
        return bool(cast(Any, is_stored)(step))

    monkeypatch.setattr(Step, "is_stored", property(counted))
    with open_sqlite() as tally:
        run = tally.bind(OWNER).run("coder")
        leave = threading.Event()
        holding = services_of(tally).store.database.submit(lambda tx: leave.wait(60), name="slow")
        for _ in range(2_000):
            run.step("other").end(wait=False)
        assert looks < 2 * 2_000
        leave.set()
        holding.result()
        run.end()


def _refuse(*_: Any, **__: Any) -> None:
    raise ValueError("odd")


def test_a_closed_tally_takes_no_record(open_tally: OpenTally) -> None:
    tally = open_tally()
    step = tally.bind(OWNER).run("coder").step("model_call")
    tally.close()
    with pytest.raises(ClosedTally):
        step.record("compiled", ContextItem(id="a", kind="other", content="x"))


@pytest.mark.timeout(60)
def test_an_end_that_somebody_waits_for_waits_for_no_company(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_tally() as tally:
        run = tally.bind(OWNER).run("coder")
        step = run.step("model_call")
        step.record("request", {"prompt": "Mend it."})
        services_of(tally).store.database.flush()
        monkeypatch.setattr(group_commit, "_PAUSE", 3_600)
        monkeypatch.setattr(group_commit, "_LONGEST", 3_600)
        assert step.end().status == "completed"
        assert run.end().count == 3


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Another process is writing to the database all the time."""
    other = sqlite3.connect(folder / "tally.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Tally]:
    """A tally that does not wait long for others."""
    with Tally.open(
        tmp_path, settings=Settings.read(busy_timeout_ms=20), background=False
    ) as tally:
        yield tally


def test_a_step_that_found_the_database_busy_is_stored_at_the_next_try(
    impatient: Tally, tmp_path: Path
) -> None:
    bound = impatient.bind(OWNER)
    run = bound.run("coder")
    step = run.step("model_call")
    step.record("request", {"prompt": "Mend it."})
    with _held(tmp_path):
        for _ in range(2):
            with pytest.raises(BusyTally):
                step.end()
    assert step.end().status == "completed"
    run.end()
    assert [entry.payload for entry in bound.recordings.entries(step.id)] == [
        {"prompt": "Mend it."}
    ]
    verified = bound.recordings.verify(run.id)
    assert (verified.ok, verified.gaps) == (True, {})


@pytest.mark.postgres
@pytest.mark.parametrize("waits", [True, False])
def test_a_step_that_met_a_lock_of_its_table_is_stored_at_the_next_try(
    database: str, waits: bool
) -> None:
    import psycopg

    settings = Settings.read(busy_timeout_ms=50)
    with Tally.open(database, settings=settings, background=False, owner=OWNER) as tally:
        bound = tally.bind(OWNER)
        run = bound.run("coder")
        step = run.step("model_call")
        step.record("request", {"prompt": "Mend it."})
        with psycopg.connect(database) as other:
            other.execute("LOCK TABLE tallystick.step_entries IN ACCESS EXCLUSIVE MODE")
            if waits:
                for _ in range(2):
                    with pytest.raises(BusyTally):
                        step.end()
            else:
                step.end(wait=False)
                with pytest.raises(BusyTally):
                    run.end()
        if waits:
            assert step.end().status == "completed"
        run.end()
        assert [entry.payload for entry in bound.recordings.entries(step.id)] == [
            {"prompt": "Mend it."}
        ]
        verified = bound.recordings.verify(run.id)
        assert (verified.ok, verified.gaps) == (True, {})


def test_what_nobody_waits_for_is_stored_once_the_database_is_free(
    impatient: Tally, tmp_path: Path
) -> None:
    bound = impatient.bind(OWNER)
    with _held(tmp_path):
        run = bound.run("coder")
        step = run.step("model_call")
        step.record("request", {"prompt": "Mend it."})
        step.end(wait=False)
        run.end(wait=False)
        with pytest.raises(BusyTally):
            services_of(impatient).store.database.flush()
    services_of(impatient).store.database.flush()
    assert bound.recordings.run(run.id).status == "completed"
    assert [entry.payload for entry in bound.recordings.entries(step.id)] == [
        {"prompt": "Mend it."}
    ]
    assert bound.recordings.verify(run.id).ok


def test_whoever_reads_sees_what_waited_for_the_database(
    impatient: Tally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "_RETRY_SECONDS", 3_600)
    bound = impatient.bind(OWNER)
    with _held(tmp_path):
        run = bound.run("coder")
        run.step("model_call").end(wait=False)
        with pytest.raises(BusyTally):
            bound.recordings.run(run.id)
    assert bound.recordings.run(run.id).status == "running"
    run.end()


@pytest.mark.timeout(60)
def test_what_waited_for_the_database_is_written_without_being_asked_for(
    impatient: Tally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "_RETRY_SECONDS", 0.01)
    with _held(tmp_path):
        step = impatient.bind(OWNER).run("coder").step("model_call")
        with pytest.raises(BusyTally):
            step.end()
    other = sqlite3.connect(tmp_path / "tally.db")
    while other.execute("SELECT status FROM steps").fetchall() != [("completed",)]:
        time.sleep(0.01)
    other.close()


def test_what_an_adapter_misses_once_the_tally_is_closed_is_counted_and_raises_nothing(
    open_tally: OpenTally,
) -> None:
    tally = open_tally()
    run = tally.bind(OWNER).run("coder")
    tally.close()
    run.count_gap("langchain", KeyError("odd"))
    assert services_of(tally).recorder.health.gaps["langchain: KeyError"] == 1


def test_a_step_that_ends_while_it_is_written_is_not_stored_as_ended_before_its_receipt(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    storable = PendingStep._storable

    def ending(pending: PendingStep, waiting: Any) -> Any:
        monkeypatch.setattr(PendingStep, "_storable", storable)
        hook = threading.Thread(target=lambda: step.end(wait=False))
        hook.start()
        hook.join()
        return storable(pending, waiting)

    with open_tally() as tally:
        run = tally.bind(OWNER).run("coder")
        rows: list[Any] = []
        for name in ("add_steps", "end_steps"):
            monkeypatch.setattr(recordings, name, _noting(rows, getattr(recordings, name)))
        monkeypatch.setattr(PendingStep, "_storable", ending)
        step = run.step("model_call")
        services_of(tally).store.database.flush()
        run.end()
        assert [row["ended_at"] is None for row in rows] == [True, False]
        assert step.is_stored
        assert tally.bind(OWNER).recordings.verify(run.id).ok


def _noting(rows: list[Any], write: Callable[..., None]) -> Callable[..., None]:
    def noting(tx: Any, new_rows: Any) -> None:
        rows.extend(new_rows)
        write(tx, new_rows)

    return noting


def test_a_run_that_goes_on_as_it_was_recorded_first_verifies(open_tally: OpenTally) -> None:
    """The row of a run told of its gaps at its end alone."""
    with open_tally() as tally:
        object.__setattr__(services_of(tally).recorder, "backlog", Backlog(-1))
        bound = tally.bind(OWNER)
        run = bound.run("coder")
        step = run.step("model_call")
        step.record("note", {"text": "left out"})
        step.end(wait=False)
        verification = bound.recordings.verify(run.id)
        assert (verification.ok, len(verification.gaps), bound.recordings.run(run.id).gaps) == (
            True,
            1,
            1,
        )
        before = update(tables.runs).where(tables.runs.c.id == run.id)
        services_of(tally).store.database.write(
            lambda tx: tx.execute(before.values(gaps=0)), name="test"
        )
        assert bound.recordings.verify(run.id).ok
        services_of(tally).store.database.write(
            lambda tx: tx.execute(before.values(gaps=2)), name="test"
        )
        assert not bound.recordings.verify(run.id).ok
        run.end()
        assert bound.recordings.verify(run.id).ok


def test_what_is_missed_of_a_run_that_was_purged_changes_nothing_that_the_purge_said(
    open_tally: OpenTally,
) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        bound = tally.bind(OWNER)
        with bound.run("coder") as run:
            run.step("model_call").end(wait=False)
        operator = tally.bind(Actor(user="root", role="operator")).operator
        operator.choose_windows(journal_days=30)
        clock.advance(days=40)
        operator.purge(mode="apply", reason="r")
        assert bound.recordings.verify(run.id).purged is not None
        run.count_gap("langchain", KeyError("late"))
        services_of(tally).store.database.flush()
        verified = bound.recordings.verify(run.id)
        assert (verified.ok, verified.gaps) == (True, {f"run {run.id}": {"KeyError": 1}})


def test_a_step_whose_commit_fails_gets_its_receipt_and_each_gap_counts_once(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_tally() as tally:
        object.__setattr__(services_of(tally).recorder, "backlog", Backlog(-1))
        bound = tally.bind(OWNER)
        run = bound.run("coder")
        services_of(tally).store.database.flush()
        step = run.step("model_call")
        step.record("note", {"text": "left out"})
        with monkeypatch.context() as during:
            during.setattr(group_commit, "_commit", _refuse)
            with pytest.raises((ValueError, RecorderError)):
                step.end()
        run.count_gap("langchain", KeyError("odd"))
        services_of(tally).store.database.flush()
        assert bound.recordings.verify(run.id).ok
        run.end()
        verified = bound.recordings.verify(run.id)
        assert verified.gaps == {
            f"run {run.id}": {"KeyError": 1},
            f"step {step.id}": {"QueueFull": 1, "ValueError": 1},
        }
        assert (verified.ok, bound.recordings.run(run.id).gaps) == (True, 3)


def test_a_gap_that_could_not_be_written_is_not_counted_in_the_run(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_tally() as tally:
        object.__setattr__(services_of(tally).recorder, "backlog", Backlog(-1))
        bound = tally.bind(OWNER)
        run = bound.run("coder")
        step = run.step("model_call")
        services_of(tally).store.database.flush()
        with monkeypatch.context() as during:
            during.setattr(recordings, "end_steps", lambda tx, rows: _refuse() if rows else None)
            step.record("note", {"text": "left out"})
            step.end(wait=False)
            services_of(tally).store.database.flush()
        run.count_gap("langchain", KeyError("odd"))
        with monkeypatch.context() as during:
            during.setattr(write_queue, "_RETRY_SECONDS", 3_600)
            services_of(tally).store.database.flush()
            assert (bound.recordings.run(run.id).gaps, bound.recordings.verify(run.id).ok) == (
                1,
                True,
            )
        with pytest.raises(RecorderError, match="1 entries of step"):
            run.end()
        assert bound.recordings.verify(run.id).ok


def test_a_tally_that_is_closed_while_its_database_is_busy_counts_what_is_lost(
    impatient: Tally, tmp_path: Path
) -> None:
    with _held(tmp_path):
        step = impatient.bind(OWNER).run("coder").step("model_call")
        step.record("request", {"prompt": "Mend it."})
        with pytest.raises(RecorderError, match="3 things of 1 run could not be written"):
            impatient.close()
    assert services_of(impatient).recorder.health.gaps == {"recorder: ClosedTally": 1}
    # Nothing of the run is stored, so that the journal of the tally says it.
    with Tally.open(tmp_path, background=False) as tally:
        with services_of(tally).store.database.read() as connection:
            entries = list(journal.entries(connection, "tally"))
        assert [entry.details for entry in entries if entry.event == "recording.lost"] == [
            {"count": 3}
        ]


def test_a_full_queue_leaves_payloads_out_and_says_so(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        object.__setattr__(services_of(tally).recorder, "backlog", Backlog(10_000))
        bound = tally.bind(OWNER)
        with bound.run("coder") as run:
            step = run.step("model_call")
            leave = threading.Event()
            holding = services_of(tally).store.database.submit(
                lambda tx: leave.wait(60), name="slow"
            )
            for number in range(6):
                step.record("note", {"text": f"{number}" * 4_000})
            leave.set()
            holding.result()
            receipt = step.end()
        missing = [
            entry
            for entry in receipt.entries
            if entry.payload_state == "not_kept" and entry.kind == "note"
        ]
        assert receipt.entries[-1].summary == {"missed": {"QueueFull": len(missing)}}
        assert missing
        assert bound.recordings.run(run.id).gaps == len(missing)


def test_what_an_adapter_missed_is_told_while_the_run_goes_on_and_once_it_has_ended(
    open_tally: OpenTally,
) -> None:
    def told() -> tuple[bool, int, dict[str, dict[str, int]]]:
        services_of(tally).store.database.flush()
        verified = bound.recordings.verify(run.id)
        return verified.ok, bound.recordings.run(run.id).gaps, verified.gaps

    with open_tally() as tally:
        bound = tally.bind(OWNER)
        run = bound.run("coder")
        run.count_gap("langchain", ValueError("odd"))
        assert told() == (True, 1, {f"run {run.id}": {"ValueError": 1}})
        run.count_gap("langchain", ValueError("odd again"))
        run.count_gap("langchain", KeyError("odd"))
        assert told() == (True, 3, {f"run {run.id}": {"ValueError": 2, "KeyError": 1}})
        run.count_gap("langchain", KeyError("and again"))
        run.end()
        assert told() == (True, 4, {f"run {run.id}": {"ValueError": 2, "KeyError": 2}})
        run.count_gap("langchain", TypeError("after the end"))
        assert told() == (
            True,
            5,
            {f"run {run.id}": {"ValueError": 2, "KeyError": 2, "TypeError": 1}},
        )
        findings = bound.operator.doctor()
        recorded = [each.text for each in findings if each.check == "recorder"]
        assert recorded == [
            f"5 things could not be recorded, in 1 run: run `tally verify` on {run.id[-8:]}"
        ]


def test_what_could_not_be_told_of_a_gap_is_told_with_the_next(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        run = bound.run("coder")
        services_of(tally).store.database.flush()
        with monkeypatch.context() as during:
            during.setattr(recordings, "set_gaps", _refuse)
            run.count_gap("langchain", KeyError("odd"))
            services_of(tally).store.database.flush()
        assert bound.recordings.verify(run.id).gaps == {}
        run.count_gap("langchain", TypeError("odd"))
        services_of(tally).store.database.flush()
        assert bound.recordings.verify(run.id).gaps == {
            f"run {run.id}": {"KeyError": 1, "TypeError": 1}
        }
        run.end()
        assert bound.recordings.verify(run.id).ok
        assert bound.recordings.run(run.id).gaps == 2


TOKEN = "ghp_" + "a1B2" * 9


def _named_by_secrets(tally: Tally, retention: Any) -> tuple[str, str]:
    """Record a run in which everything is named by a secret; return all that is said of it, and of
    one that is recorded so.
    """
    bound = tally.bind()
    metadata: dict[str, Any] = {"tags": [TOKEN], TOKEN: "key", "api_key": "sommerregen77"}
    with (
        bound.run(f"agent {TOKEN}", domain=TOKEN, retention=retention, metadata=metadata) as run,
        run.step("event", name=f"step {TOKEN}", metadata=metadata) as step,
    ):
        step.record(
            "note", {"a": 1}, summary={"event": TOKEN, "token_exact": True, "list": [TOKEN]}
        )
        step.end(metadata={"end": TOKEN})
    recordings_ = bound.recordings
    said = (recordings_.run(run.id), recordings_.steps(run.id), recordings_.receipts(run.id))
    return run.id, f"{said} {[record.dumps() for record in said[1]]} {said[0].dumps()}"


@pytest.mark.parametrize("retention", ["redacted_payloads", "metadata_only"])
def test_names_metadata_and_summaries_are_recorded_without_secrets(
    open_sqlite: OpenTally, tmp_path: Path, retention: Any
) -> None:
    with open_sqlite() as tally:
        run_id, said = _named_by_secrets(tally, retention)
        bundle = tally.bind().recordings.export_receipt(run_id)

    assert "agent [redacted:github_token:1]" in said
    assert TOKEN not in said
    assert TOKEN[4:].encode() not in bundle
    assert "sommerregen77" not in said
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if TOKEN[4:].encode() in path.read_bytes()] == []


def test_names_are_kept_where_payloads_are_kept_in_full(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        assert TOKEN in _named_by_secrets(tally, "full_payloads")[1]


def test_a_secret_where_a_goal_is_cut_is_redacted_whole(open_sqlite: OpenTally) -> None:
    secret = "ghp_" + "a1B2" * 9
    with open_sqlite() as tally:
        with tally.bind().run("coder", goal=f"{'x ' * 240}{secret} and more") as run:
            pass
        goal = str(tally.recordings.run(run.id).goal)
        assert (len(goal), secret[:8] in goal) == (500, False)


@pytest.mark.parametrize("argument", ["agent_name", "domain"])
def test_a_run_has_names_and_no_texts_for_names(open_sqlite: OpenTally, argument: str) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        names = {"agent_name": "coder", "domain": None, argument: "x" * 1_001}
        with pytest.raises(InvalidInput, match=f"`{argument}` has 1,001 characters"):
            bound.run(names["agent_name"] or "", domain=names["domain"])
        assert bound.recordings.runs() == []


def test_a_name_that_a_runtime_made_too_long_is_cut(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        root = RootRun.join(tally.bind(), "step|" * 1_000, goal=None, metadata={})
        root.end("completed")
        tally.drain()
        assert len(tally.bind().recordings.runs()[0].agent_name) == 1_000
