"""A unit writes what it declared: every row that is written is of a scope that its unit named.

Triggers of the writer's connection look at each row, however its statement was made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.core.storage.rows.test_idempotency import CALLS, World
from tests.scripted import concluder

from tallystick import Actor, Tally
from tallystick.checkpoints import Leaf, NewCheckpoint, PendingWrite
from tallystick.ports import write_transaction
from tallystick.records import PolicyRule
from tallystick.settings import Settings
from tallystick.storage.engine import group_commit, tables, writes
from tallystick.storage.engine.writes import EVERYTHING, Writes
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick_learning import Learning

OpenTally = Callable[..., Tally]
ADA = Actor(user="ada", role="operator", projects={"apollo"})

THROUGH = {
    "memory_versions": "(SELECT scope_id FROM memories WHERE doc = {row}.doc)",
    "memory_sources": "(SELECT scope_id FROM memories WHERE doc = {row}.doc)",
    "steps": "(SELECT scope_id FROM runs WHERE id = {row}.run_id)",
    "thread_states": "(SELECT scope_id FROM threads WHERE id = {row}.thread_id)",
    "thread_writes": "(SELECT scope_id FROM threads WHERE id = {row}.thread_id)",
    "tree_holds": "(SELECT scope_id FROM threads WHERE id = {row}.thread_id)",
    "relation_mentions": "(SELECT scope_id FROM memories WHERE doc = {row}.doc)",
    "community_members": "(SELECT scope_id FROM memories WHERE doc = {row}.doc)",
}
"""Where the scope of a row is, in tables that have none of their own."""
WITHOUT_LOCK = {
    "runs": "written by the process that plays it",
    "steps": "written by the process that plays the run",
    "step_entries": "written by the process that plays the run",
    "jobs": "leased under a lock of their own, and enqueued as new rows",
    "parts": "inserted where they are missing, in the order of their keys",
    "outbound_calls": "counted under a lock of their own, in all scopes at once",
}
"""Tables that a unit may write without the lock of their scope, and why."""


class Watch:
    """The rows that units wrote to scopes which they had not declared."""

    def __init__(self) -> None:
        self.declared: Writes = EVERYTHING
        self.unit = ""
        self.undeclared: set[tuple[str, str]] = set()
        self.seen: set[str] = set()

    def note(self, table: str, scope: str | None) -> None:
        if self.declared.names is None or scope is None:
            return
        self.seen.add(table)
        if scope not in self.declared.names and table not in WITHOUT_LOCK:
            self.undeclared.add((table, self.unit))


@contextmanager
def watched(tally: Tally, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Watch the rows of every unit that declares something."""
    watch = Watch()
    declare, begin = writes.declare_writes, write_transaction

    def declared(tx: Any, what: Writes) -> None:
        watch.declared = what
        declare(tx, what)

    def named(name: str) -> Any:
        watch.unit = name
        return begin(name)

    def install(tx: Any) -> None:
        driver = tx.connection.dbapi_connection
        driver.create_function("note_write", 2, watch.note)
        for table in tables.metadata.tables.values():
            scope = "{row}.scope_id" if "scope_id" in table.columns else THROUGH.get(table.name)
            if scope is None:
                continue
            for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                driver.execute(
                    f"CREATE TEMP TRIGGER watch_{table.name}_{event} AFTER {event} ON main."
                    f"{table.name} BEGIN SELECT note_write('{table.name}', (SELECT name FROM "
                    f"scopes WHERE id = {scope.format(row=row)})); END"
                )

    services_of(tally).store.database.write(install, name="test")
    with monkeypatch.context() as patched:
        patched.setattr(group_commit, "declare_writes", declared)
        patched.setattr(group_commit, "write_transaction", named)
        yield watch


@pytest.mark.sqlite
def test_no_call_writes_to_a_scope_that_its_unit_did_not_declare(
    open_sqlite: OpenTally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = PolicyRule(id="ask", name="Ask", effect="require_approval", applies_to="tool_call")
    settings = Settings(reflection="review")
    with (
        open_sqlite(
            clock=StepClock(), rules=[asking], settings=settings, learning_model=concluder()
        ) as tally,
        watched(tally, monkeypatch) as watch,
    ):
        # What others imported is a tally that nobody watches; a freeze holds up the others.
        for name in sorted({*CALLS} - {"import_from", "freeze", "thaw"}):
            World(tally, tmp_path, name).calls()[name]("key", "a")
        assert watch.undeclared == set()
        assert watch.seen >= {"memories", "memory_versions", "search_text", "vectors", "sources"}
        assert watch.seen >= {"approvals", "idempotency", "working"}


@pytest.mark.sqlite
def test_no_work_in_the_background_writes_to_a_scope_that_it_did_not_declare(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is learned, the graph, and jobs; a run, and the thread of a graph."""
    settings = Settings(learning="review", graph=True, reflection="review")
    with (
        open_sqlite(owner=ADA, settings=settings, learning_model=concluder()) as tally,
        watched(tally, monkeypatch) as watch,
    ):
        mine = tally.bind(ADA)
        first = mine.remember(
            "Nora moved to Leeds with Felix in May.", conversation="c", entities=["Nora", "Leeds"]
        )
        mine.remember("Nora lives in Cork now.", conversation="c", related_to=[first.id])
        tally.drain()
        Learning(mine).reflect(conversation="c")
        mine.remember("We decided to feed the heron at noon.", kind="turn", conversation="c")
        Learning(mine).end_session(conversation="c")
        tally.drain()
        with mine.run("keeper") as run, run.step("model_call") as step:
            step.record("request", {"prompt": "reeds " * 900})
            mine.recall("Where does Nora live?")
        body = Leaf("json", json.dumps({"x": "y" * 3_000}).encode())
        state = NewCheckpoint("", "10", None, {"source": "input"}, body, {"messages": body})
        mine.threads.put("chat", state)
        written = PendingWrite("task", "", 0, "messages", body)
        mine.threads.put_writes("chat", namespace="", checkpoint_id="10", writes=[written])
        assert watch.undeclared == set()
        assert watch.seen >= {"edges", "jobs", "threads", "thread_states", "thread_writes"}
        assert watch.seen >= {"runs", "steps", "step_entries", "parts", "tree_parts", "tree_holds"}


@pytest.mark.sqlite
def test_a_row_of_another_scope_is_noticed(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_sqlite(owner=ADA) as tally, watched(tally, monkeypatch) as watch:
        tally.bind(ADA).remember("The heron nests in March.")

        def unit(tx: Any) -> None:
            tx.exec_driver_sql("UPDATE memories SET kind = 'fact'")
            tx.exec_driver_sql("DELETE FROM memory_versions")

        services_of(tally).store.database.write(unit, name="sly", writes=Writes.of("private:bob"))
        assert watch.undeclared == {("memories", "sly"), ("memory_versions", "sly")}
