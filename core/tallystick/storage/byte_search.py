"""Traces: where in the database and in its files the bytes of a text stand. Used to erase, and to
prove it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    LargeBinary,
    Table,
    Text,
    bindparam,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import TypeEngine

from tallystick.storage import tables
from tallystick.storage.payloads import Payloads, dependents_of

__all__ = [
    "files_with",
    "forms",
    "goals_with",
    "holds",
    "payloads_with",
    "rows_with",
    "versions_with",
]

_SHORT = 12
"""Bytes below which a text is looked for as a whole JSON value: shorter ones stand inside of other
words.
"""
_WINDOW = 96
"""Bytes of the pieces by which a text is looked for in files, where pages cut it."""
_READ = 1 << 20


def forms(text: str) -> tuple[bytes, ...]:
    """The ways in which a text is stored: as it is, and as JSON within JSON."""
    found: list[bytes] = []
    shape = text
    for _ in range(3):
        plain = shape.encode("utf-8", "surrogatepass")
        found.append(plain)
        found.append(json.dumps(shape)[1:-1].encode())
        shape = json.dumps(shape, ensure_ascii=False)[1:-1]
    distinct = tuple(dict.fromkeys(found))
    if len(distinct[0]) >= _SHORT:
        return distinct
    return (*(b'"' + form + b'"' for form in distinct[:2]), b'\\"' + distinct[0] + b'\\"')


def holds(
    connection: Connection, column: Column[Any], needles: Sequence[bytes]
) -> ColumnElement[bool]:
    """The condition that a column holds one of `needles`; no pattern, so nothing in them needs
    escaping.
    """
    postgres = connection.dialect.name == "postgresql"
    position = func.position if postgres else func.instr
    kind: TypeEngine[Any] = LargeBinary() if isinstance(column.type, LargeBinary) else Text()
    conditions: list[ColumnElement[bool]] = []
    for number, needle in enumerate(needles):
        value: Any = needle
        if not isinstance(column.type, LargeBinary):
            try:
                value = needle.decode()
            except UnicodeDecodeError:
                continue
            if "\x00" in value:
                continue
        name = f"needle_{column.table.name}_{column.name}_{number}"
        if postgres:
            op = bindparam(name, value, type_=kind).op("IN")(column)
            conditions.append(position(op) > 0)
        else:
            conditions.append(position(column, bindparam(name, value, type_=kind)) > 0)
    return or_(False, *conditions)


def _texts(table: Table) -> Iterator[Column[Any]]:
    for column in table.columns:
        python: Any = getattr(column.type, "impl", column.type)
        if isinstance(python, LargeBinary) or column.type.python_type is str:
            yield column


def rows_with(
    connection: Connection,
    needles: Sequence[bytes],
    *,
    among: Callable[[Table], ColumnElement[bool] | None] = lambda table: true(),
) -> dict[str, int]:
    """How many rows of each column of every table hold one of `needles`, as `table.column`; none
    left out.

    `among` says which rows of a table are looked at; None leaves the table out.
    """
    found: dict[str, int] = {}
    for table in tables.metadata.sorted_tables:
        rows = among(table)
        if rows is None:
            continue
        for column in _texts(table):
            query = (
                select(func.count())
                .select_from(table)
                .where(rows, holds(connection, column, needles))
            )
            count = int(connection.execute(query).scalar_one())
            if count:
                found[f"{table.name}.{column.name}"] = count
    return found


def payloads_with(connection: Connection, needles: Sequence[bytes]) -> list[tuple[str, int, str]]:
    """Recorded payloads that hold one of `needles`: (step id, scope id, entry id)."""
    entries, parts = tables.step_entries, tables.parts
    query = (
        select(entries)
        .join(parts, (parts.c.scope_id == entries.c.scope_id) & (parts.c.key == entries.c.part_key))
        .where(holds(connection, parts.c.body, needles))
    )
    found = {row.id: row for row in connection.execute(query)}
    payloads = Payloads(connection)
    for row in dependents_of(connection, found):
        # It may have kept of its base what stands before or after the text.
        body = payloads.of(row) or b""
        if any(needle in body for needle in needles):
            found[row.id] = row
    return sorted((row.step_id, row.scope_id, row.id) for row in found.values())


def goals_with(connection: Connection, needles: Sequence[bytes]) -> list[tuple[str, int]]:
    """(run id, scope id) where the goal of a run, which may be cut off, holds one of `needles` or
    much of one.
    """
    runs = tables.runs
    pieces = [piece for needle in needles for piece in (needle, *_pieces(needle))]
    found = connection.execute(
        select(runs.c.id, runs.c.scope_id, runs.c.user_goal).where(runs.c.user_goal.is_not(None))
    )
    goals = [
        (row.id, row.scope_id, row.user_goal.encode("utf-8", "surrogatepass")) for row in found
    ]
    return sorted(
        (run_id, scope_id)
        for run_id, scope_id, goal in goals
        if any(piece in goal for piece in pieces)
    )


def versions_with(connection: Connection, needles: Sequence[bytes]) -> list[tuple[str, int]]:
    """(memory id, scope id) where a version of a memory holds one of `needles`."""
    memories, versions = tables.memories, tables.memory_versions
    query = select(memories.c.id, memories.c.scope_id).join(
        versions, versions.c.doc == memories.c.doc
    )
    found = connection.execute(query.where(holds(connection, versions.c.body, needles)).distinct())
    return [(row.id, row.scope_id) for row in found]


def files_with(folder: Path, texts: Iterable[str]) -> list[str]:
    """The files below `folder` that hold a text, or a longer piece of one, by name."""
    needles = [piece for text in texts for form in forms(text) for piece in _pieces(form)]
    found = []
    for file in sorted(folder.rglob("*")):
        if file.is_file() and needles and _file_holds(file, needles):
            found.append(str(file.relative_to(folder)))
    return found


def _pieces(form: bytes) -> list[bytes]:
    if len(form) <= 2 * _WINDOW:
        return [form]
    return [form[start : start + _WINDOW] for start in range(0, len(form) - _WINDOW + 1, _WINDOW)]


def _file_holds(file: Path, needles: Sequence[bytes]) -> bool:
    longest = max(map(len, needles))
    with file.open("rb") as stream:
        rest = b""
        while block := stream.read(_READ):
            window = rest + block
            if any(needle in window for needle in needles):
                return True
            rest = window[-longest:]
    return False
