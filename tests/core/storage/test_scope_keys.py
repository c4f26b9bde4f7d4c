"""Scopes can stand on different hosts: no write and no recall has a statement that reaches beyond
one scope, but for the tables that every host would have.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tallystick import Actor, BoundTally, Tally
from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.settings import Settings
from tallystick.storage.engine import tables
from tallystick.testing import HashEmbedder

pytestmark = pytest.mark.postgres

ADA, BOB = Actor(user="ada"), Actor(user="bob")

REFERENCE = {"settings", "scopes", "spaces", "access_tokens"}
"""Small tables that every host would have."""
LOGS = {"access_log", "operation_minutes"}
"""Tables that a write or a recall only adds to."""
KEYS: dict[str, set[str]] = {
    "anchors": {"stream"},
    "approvals": {"scope_id", "id"},
    "attachments": {"scope_id", "document_id"},
    "chunks": {"scope_id", "doc", "document_id"},
    "communities": {"scope_id", "id"},
    "community_members": {"community_id", "doc"},
    "derived": {"scope_id"},
    "documents": {"scope_id", "id"},
    "edges": {"scope_id", "id", "from_doc", "to_doc"},
    "entity_names": {"scope_id", "doc"},
    "idempotency": {"scope_id"},
    "item_summaries": {"doc"},
    "jobs": {"scope_id", "id", "subject_id"},
    "journal": {"stream"},
    "memories": {"scope_id", "doc", "id"},
    "memory_sources": {"doc", "source_id"},
    "memory_versions": {"doc"},
    "outbound_calls": {"scope_id"},
    "partitions": {"scope_id"},
    "parts": {"scope_id"},
    "proposals": {"scope_id", "id"},
    "relation_mentions": {"relation_id", "doc"},
    "recall_segments": {"scope_id"},
    "relations": {"scope_id", "id", "from_doc", "to_doc"},
    "runs": {"scope_id", "id"},
    "search_text": {"scope_id", "doc"},
    "source_imports": {"scope_id", "id"},
    "synthesis_runs": {"scope_id", "id"},
    "synthesis_quotes": {"scope_id", "doc", "run_id"},
    "source_records": {"scope_id", "document_id", "import_id"},
    "sources": {"scope_id", "id"},
    "step_entries": {"scope_id", "step_id", "id", "base_id"},
    "steps": {"run_id", "id"},
    "store_items": {"scope_id", "doc"},
    "streams": {"name"},
    "thread_states": {"thread_id"},
    "thread_writes": {"thread_id"},
    "threads": {"scope_id", "id"},
    "tree_holds": {"thread_id"},
    "tree_keys": {"scope_id"},
    "tree_parts": {"scope_id", "id"},
    "vectors": {"scope_id", "doc"},
    "working": {"scope_id"},
}
"""Tables of scopes, each with the columns whose value belongs to one scope."""

_NAMED = re.compile(r'\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:ONLY\s+)?"?([a-z_]+)"?', re.I)
_INSERT = re.compile(r'^INSERT INTO "?(\w+)"? \(([^)]*)\)', re.I)
_BOUND = r"\s*(?:=\s*(?:any\s*\()?|IN\s*\(\s*(?:SELECT\b|)?)"


def reaches_beyond(statement: str) -> str | None:
    """The table of which a statement may read or change rows of any scope; None for one that
    stays in its scope.
    """
    selects = _selects(" ".join(statement.split()))
    return next((table for one in selects if (table := _beyond(one)) is not None), None)


def _selects(statement: str) -> list[str]:
    """A statement and each select within it, without those that stand in them: a condition
    outside of one does not keep it in its scope.
    """
    found: list[str] = []
    while inner := re.search(r"\((SELECT\b[^()]*(?:\((?!SELECT\b)[^()]*\)[^()]*)*)\)", statement):
        found.append(inner[1])
        statement = statement[: inner.start()] + "()" + statement[inner.end() :]
    return [statement, *found]


def _beyond(statement: str) -> str | None:
    names: set[str] = {name for name in _NAMED.findall(statement) if name in tables.metadata.tables}
    if inserted := _INSERT.match(statement):
        table = str(inserted[1])
        names.discard(table)
        if table in KEYS and not KEYS[table] & set(re.findall(r"\w+", inserted[2])):
            return table
        if table not in KEYS and table not in REFERENCE | LOGS:
            return table
    for name in sorted(names - REFERENCE):
        if name not in KEYS:
            return name
        columns = "|".join(sorted(KEYS[name]))
        if not re.search(rf'(?<![\w])(?:"?\w+"?\.)?"?(?:{columns})"?{_BOUND}', statement, re.I):
            return name
    return None


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """Every statement that the driver is given, with its values."""
    import psycopg

    seen: list[tuple[str, Any]] = []
    with monkeypatch.context() as patched:
        for name in ("execute", "executemany"):
            original = getattr(psycopg.Cursor, name)

            def watch(
                self: Any,
                query: Any,
                values: Any = None,
                *_: Any,
                _next: Any = original,
                **more: Any,
            ) -> Any:
                seen.append((str(query), values))
                return _next(self, query, values, **more)

            patched.setattr(psycopg.Cursor, name, watch)
        yield seen


def _work(mine: BoundTally, number: int) -> list[str]:
    """What applications do all day; the ids of what was made."""
    first = mine.remember(
        f"Ada keeps heron {number} in Hamburg.",
        kind="fact",
        tags=["birds"],
        entities=["Hamburg"],
    )
    mine.remember(f"yes {number}", kind="turn", conversation="c", idempotency_key=f"k{number}")
    mine.remember_many([f"one {number}", f"two {number}"])
    mine.remember(f"It follows {number}.", derived_from=[first.id])
    mine.modify(first.id, content=f"Ada keeps two herons {number}.", reason="another")
    mine.recall("what heron does Ada keep?")
    mine.recall("who?", kinds=["fact"])
    mine.get(first.id)
    with mine.run("keeper") as run, run.step("model_call") as step:
        step.record("request", {"prompt": "reeds " * 900 + str(number)})
        step.record("response", {"text": "y"})
        mine.recall("herons")
    body = Leaf("json", json.dumps({"x": "y" * 3_000 + str(number)}).encode())
    state = NewCheckpoint("", f"1{number}", None, {"source": "input"}, body, {"messages": body})
    mine.threads.put("chat", state)
    mine.threads.get("chat", namespace="")
    mine.forget(first.id, reason="gone")
    return [first.id, run.id]


def test_every_table_is_known_to_belong_to_a_scope_or_to_every_host() -> None:
    known = set(KEYS) | REFERENCE | LOGS
    assert known == set(tables.metadata.tables)
    for table, columns in KEYS.items():
        assert columns <= set(tables.metadata.tables[table].columns.keys())


def test_no_write_and_no_recall_reaches_beyond_its_scope(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first call of a process and later on, with the graph read beside it."""
    schema = f"k{uuid.uuid4().hex}"
    settings = Settings.read(graph=True)

    def opened() -> Tally:
        return Tally.open(
            postgres_url,
            schema=schema,
            embedder=HashEmbedder(),
            settings=settings,
            background=False,
        )

    with opened() as tally:
        _work(tally.bind(ADA), 0)
        foreign = _work(tally.bind(BOB), 0)
        tally.drain()
    with opened() as tally, watched(monkeypatch) as seen:
        _work(tally.bind(ADA), 1)
        _work(tally.bind(ADA), 2)

    assert len(seen) > 100
    beyond = {(table, text) for text, _ in seen if (table := reaches_beyond(text)) is not None}
    assert beyond == set()
    others = {*foreign, "private:bob", "scope:private:bob"}
    assert not [text for text, values in seen if any(one in repr(values) for one in others)]


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("SELECT doc FROM memories WHERE state = 'active'", "memories"),
        ("SELECT * FROM (SELECT * FROM step_entries ORDER BY kind LIMIT 9) AS n", "step_entries"),
        ("INSERT INTO parts (key, body) VALUES (1, 2)", "parts"),
        ("DELETE FROM journal WHERE position < 3", "journal"),
        ("SELECT 1 FROM access_log", "access_log"),
        ("SELECT doc FROM memories WHERE scope_id = 1", None),
        ('SELECT 1 FROM vectors WHERE "vectors"."doc" IN (1, 2)', None),
        ("INSERT INTO access_log (at) VALUES (1)", None),
        ("UPDATE scopes SET revision = 1", None),
    ],
)
def test_a_statement_that_reaches_beyond_a_scope_is_noticed(
    statement: str, table: str | None
) -> None:
    assert reaches_beyond(statement) == table


def test_the_page_on_partitioning_places_every_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "scale.md").read_text(
        encoding="utf-8"
    )
    section = page.split("## Partitioning and Citus")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.split("| call |")[0].splitlines() if "|" in line]
    placed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(placed) == sorted({*KEYS, *REFERENCE, *LOGS})
    assert set(placed) == set(tables.metadata.tables)
