"""Byte search: the rows, files and pieces of checkpoints that contain the bytes of a text. Used to
erase and to prove it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    Connection,
    Table,
    func,
    select,
    true,
)

from tallystick.errors import StorageError
from tallystick.storage.engine import containment, tables
from tallystick.storage.engine.containment import contains, holds, is_binary
from tallystick.storage.rows import objects
from tallystick.storage.rows.checkpoints import thread_stream
from tallystick.storage.rows.journal import WITH_ROW_TEXTS, run_stream
from tallystick.storage.rows.payloads import Payloads, dependents_of
from tallystick.storage.rows.recordings import StoredPayload
from tallystick.storage.text import file_search
from tallystick.storage.text.scope_selection import ScopeSelection

_WINDOW = 96
"""Bytes of the pieces by which a text is searched for in files, where pages cut it."""


class RecordedHit(NamedTuple):
    """A run whose name, domain, goal or metadata contain the text, or a step whose name, metadata
    or summaries do, or what stands beside their entries of the chain.
    """

    run_id: str
    step_id: str | None
    scope_id: int


class VersionHit(NamedTuple):
    """A memory of which a version contains the text."""

    memory_id: str
    scope_id: int


def _texts(table: Table) -> Iterator[Column[Any]]:
    for column in table.columns:
        if is_binary(column) or column.type.python_type is str:
            yield column


def rows_with(
    connection: Connection,
    needles: Sequence[bytes],
    *,
    within: ScopeSelection | None = None,
) -> dict[str, int]:
    """Return the number of rows of each column that contain one of `needles`, by `table.column`;
    columns without any are left out.

    Every row of every table is searched or, with `within`, those that belong to its scopes.
    """
    counts: dict[str, int] = {}
    for table in tables.metadata.sorted_tables:
        rows = true() if within is None else within.condition(table)
        held = [
            func.count().filter(contains(connection, column, needles)).label(column.name)
            for column in _texts(table)
        ]
        if held:
            found = connection.execute(select(*held).select_from(table).where(rows)).one()
            counts |= {f"{table.name}.{name}": n for name, n in found._mapping.items() if n}
    return counts


def payloads_with(connection: Connection, needles: Sequence[bytes]) -> list[StoredPayload]:
    """Return the recorded payloads that contain one of `needles`, in order."""
    entries, parts = tables.step_entries, tables.parts
    query = (
        select(entries)
        .join(parts, (parts.c.scope_id == entries.c.scope_id) & (parts.c.key == entries.c.part_key))
        .where(contains(connection, parts.c.body, needles))
    )
    entry_rows = {row.id: row for row in connection.execute(query)}
    for scope_id, key in objects.objects_with(connection, needles).parts:
        moved = select(entries).where(entries.c.scope_id == scope_id, entries.c.part_key == key)
        entry_rows |= {row.id: row for row in connection.execute(moved)}
    payloads = Payloads(connection)
    for row in dependents_of(connection, entry_rows):
        # It may share with its base the bytes before or after the text.
        body = payloads.of(row) or b""
        if any(needle in body for needle in needles):
            entry_rows[row.id] = row
    return sorted(StoredPayload(row.step_id, row.scope_id, row.id) for row in entry_rows.values())


def recorded_with(connection: Connection, needles: Sequence[bytes]) -> list[RecordedHit]:
    """Return the runs and steps whose texts contain one of `needles`, in order; of a goal, which
    may be cut off, a long piece of one is enough.
    """
    runs, steps, entries = tables.runs, tables.steps, tables.step_entries
    beside = tables.journal
    pieces = list(
        dict.fromkeys(piece for needle in needles for piece in (needle, *_pieces(needle)))
    )
    of_run = select(runs.c.id, runs.c.scope_id).where(holds(connection, runs, pieces))
    hits = [RecordedHit(row.id, None, row.scope_id) for row in connection.execute(of_run)]
    steps_of_runs = select(runs.c.id.label("run_id"), steps.c.id, runs.c.scope_id).join(
        steps, steps.c.run_id == runs.c.id
    )
    of_entries = steps_of_runs.join(entries, entries.c.step_id == steps.c.id)
    for query in (
        steps_of_runs.where(holds(connection, steps, needles)),
        of_entries.where(holds(connection, entries, needles)),
    ):
        hits += [RecordedHit(row.run_id, row.id, row.scope_id) for row in connection.execute(query)]
    entries_of_runs = (
        select(runs.c.id, runs.c.scope_id, beside.c.event, beside.c.subject_id)
        .join(beside, beside.c.stream == run_stream("") + runs.c.id)
        .where(beside.c.event.in_(WITH_ROW_TEXTS), holds(connection, beside, needles))
    )
    hits += [
        RecordedHit(row.id, row.subject_id if row.event == "receipt" else None, row.scope_id)
        for row in connection.execute(entries_of_runs)
    ]
    return sorted(dict.fromkeys(hits), key=lambda hit: (hit.run_id, hit.step_id or ""))


def versions_with(connection: Connection, needles: Sequence[bytes]) -> list[VersionHit]:
    """Return the memories of which a version contains one of `needles`."""
    memories, versions = tables.memories, tables.memory_versions
    query = select(memories.c.id, memories.c.scope_id).join(
        versions, versions.c.doc == memories.c.doc
    )
    rows = connection.execute(query.where(holds(connection, versions, needles)).distinct())
    return [VersionHit(row.id, row.scope_id) for row in rows]


def files_with(folder: Path, needles: Iterable[bytes]) -> list[str]:
    """Return the names of the files below `folder` that contain one of `needles`, or a long piece
    of one. Another process reads them (`file_search`). Raises StorageError where one cannot be
    read: then nothing is known of it.
    """
    pieces = [piece for form in needles for piece in _pieces(form)]
    if not pieces:
        return []
    request = {"folder": str(folder), "needles": [piece.hex() for piece in pieces]}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", file_search.__file__],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode == 0:
            names: list[str] = json.loads(done.stdout)
            return names
        problem = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
    except (OSError, ValueError) as error:
        problem = [str(error)]
    raise StorageError(
        f"The files of {folder} could not be searched ({problem[0]}), so nothing is proven of "
        "them. Another process of Python reads them: let it, and look at the rights of the file."
    )


def _pieces(form: bytes) -> list[bytes]:
    if len(form) <= 2 * _WINDOW:
        return [form]
    return [form[start : start + _WINDOW] for start in range(0, len(form) - _WINDOW + 1, _WINDOW)]


_t, _s, _w, _sc = tables.threads, tables.thread_states, tables.thread_writes, tables.scopes
_p, _h = tables.tree_parts, tables.tree_holds
_NAMED = select(_t.c.id, _sc.c.name.label("scope"), _t.c.name).join(_sc, _sc.c.id == _t.c.scope_id)
_BATCH = 500
"""Ids in one statement."""


class ThreadName(NamedTuple):
    """A thread by its number, and as people name it."""

    id: int
    scope: str
    name: str
    stream: str
    """The name of its journal."""


class StoredState(NamedTuple):
    """The packed columns of a checkpoint."""

    thread_id: int
    metadata: bytes
    state: bytes


def states(connection: Connection) -> Iterator[StoredState]:
    """Yield every checkpoint."""
    for row in connection.execute(select(_s.c.thread_id, _s.c.metadata, _s.c.state)):
        yield StoredState(row.thread_id, bytes(row.metadata), bytes(row.state))


def write_values(connection: Connection) -> Iterator[tuple[int, bytes]]:
    """Yield the thread and the value of every pending write."""
    for row in connection.execute(select(_w.c.thread_id, _w.c.value)):
        yield row.thread_id, bytes(row.value)


def chunk_bodies(connection: Connection) -> Iterator[tuple[int, bytes]]:
    """Yield the id and the body of every chunk."""
    for row in connection.execute(select(_p.c.id, _p.c.body)):
        yield row.id, bytes(row.body)


def holders(connection: Connection, chunk_ids: Sequence[int]) -> set[int]:
    """Return the threads that hold one of these chunks."""
    threads: set[int] = set()
    for start in range(0, len(chunk_ids), _BATCH):
        query = select(_h.c.thread_id).where(_h.c.part_id.in_(chunk_ids[start : start + _BATCH]))
        threads.update(connection.execute(query).scalars())
    return threads


def find_thread_ids(connection: Connection, needles: Sequence[bytes]) -> set[int]:
    """Return the threads of which the name, or a name in their checkpoints and writes, contains one
    of `needles`.
    """
    threads: set[int] = set()
    for thread_id in (_t.c.id, _s.c.thread_id, _w.c.thread_id):
        holding = containment.holds(connection, thread_id.table, needles)
        threads.update(connection.execute(select(thread_id).where(holding)).scalars())
    return threads


def names_of(connection: Connection, threads: Collection[int]) -> list[ThreadName]:
    """Return these threads with their names, oldest first."""
    if not threads:
        return []
    rows = connection.execute(_NAMED.where(_t.c.id.in_(threads)).order_by(_t.c.id))
    return [ThreadName(row.id, row.scope, row.name, thread_stream(row.id)) for row in rows]
