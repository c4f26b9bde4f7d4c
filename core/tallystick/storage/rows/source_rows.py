"""Rows of imports, and of the records that their sources have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import Prepared, text_list, upsert

_i, _r = tables.source_imports, tables.source_records
_PAGE = 500
Row = Mapping[str, Any]
"""The columns of a row, by name."""
_KEY = ("scope_id", "source", "record_id")
_CHANGING = tuple(column.name for column in _r.columns if column.name not in _KEY)
_VERSION = Prepared(
    select(_r.c.version).where(
        _r.c.scope_id == bindparam("scope_id"),
        _r.c.source == bindparam("source"),
        _r.c.record_id == bindparam("record_id"),
        ~_r.c.is_gone,
    )
)
_PUT = Prepared(upsert(_r, (*_KEY, *_CHANGING), key=_KEY, replacing=_CHANGING))
_IMPORT, _RECORD = _i.columns.keys(), _r.columns.keys()
_FLAGS = ("lists_all", "is_resync", "is_gone")
"""Columns that SQLite returns as integers."""


def _query(names: Sequence[str], table: str, where: str) -> str:
    return f"SELECT {', '.join(names)} FROM {table} WHERE {where}"


_FIND_IMPORT = Prepared(_query([f'"{name}"' for name in _IMPORT], "source_imports", "id = :id"))
_BY_ID = Prepared(
    _query(
        _RECORD,
        "source_records",
        "scope_id = :scope_id AND source = :source "
        "AND record_id IN (SELECT value FROM json_each(:values))",
    )
)
_SAYING = Prepared(
    "SELECT dedupe, min(document_id) FROM source_records WHERE scope_id = :scope_id AND "
    "document_id IS NOT NULL AND dedupe IN (SELECT value FROM json_each(:values)) GROUP BY dedupe"
)
OPEN_IMPORTS = ("pending", "running", "paused")
"""States of an import that goes on, or can."""


@dataclass(frozen=True)
class StoredRecord:
    """What is known of one record of a source."""

    scope_id: int
    source: str
    record_id: str
    state: str
    import_id: str
    updated_at: int
    version: str | None = None
    dedupe: str | None = None
    reason: str | None = None
    detail: str | None = None
    document_id: str | None = None
    is_gone: bool = False


def add_import(tx: Connection, row: Mapping[str, Any]) -> None:
    """Insert an import."""
    tx.execute(insert(_i), dict(row))


def update_import(tx: Connection, import_id: str, **values: Any) -> None:
    """Change an import."""
    _update_of(tuple(values))(tx, {**values, "import_id": import_id})


@lru_cache
def _update_of(names: tuple[str, ...]) -> Prepared:
    changes = ", ".join(f'"{name}" = :{name}' for name in names)
    return Prepared(f"UPDATE source_imports SET {changes} WHERE id = :import_id")


def find_import(connection: Connection, import_id: str) -> Row | None:
    """Return one import of any scope, or None: the caller decides who may see it."""
    rows = _FIND_IMPORT(connection, {"id": import_id})
    return _with_flags(_IMPORT, rows[0]) if rows else None


def imports_of(
    connection: Connection, scope_id: int, *, limit: int, before: tuple[int, str] | None = None
) -> list[Row]:
    """Return the imports of a scope, newest first; `before` is the moment and the id of the last
    one of the page before.
    """
    query = select(_i).where(_i.c.scope_id == scope_id)
    if before is not None:
        query = query.where(tuple_(_i.c.created_at, _i.c.id) < tuple_(*before))
    query = query.order_by(_i.c.created_at.desc(), _i.c.id.desc()).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]


def last_import(
    connection: Connection, scope_id: int, source: str, states: Sequence[str]
) -> Row | None:
    """Return the newest import of a source in some states, or None."""
    query = select(_i).where(
        _i.c.scope_id == scope_id, _i.c.source == source, _i.c.state.in_(list(states))
    )
    query = query.order_by(_i.c.created_at.desc(), _i.c.id.desc()).limit(1)
    return _first(connection.execute(query))


def last_imports(connection: Connection) -> list[Row]:
    """Return the newest import of every source, of all scopes."""
    newest = (
        select(_i.c.scope_id, _i.c.source, func.max(_i.c.created_at).label("at"))
        .group_by(_i.c.scope_id, _i.c.source)
        .subquery()
    )
    query = select(_i).join(
        newest,
        (newest.c.scope_id == _i.c.scope_id)
        & (newest.c.source == _i.c.source)
        & (newest.c.at == _i.c.created_at),
    )
    return [dict(row) for row in connection.execute(query.order_by(_i.c.created_at)).mappings()]


def due_imports(connection: Connection, now: int) -> list[Row]:
    """Return the imports of all scopes after which the next one of their schedule is due."""
    query = select(_i).where(_i.c.due_at <= now).order_by(_i.c.due_at, _i.c.id)
    return [dict(row) for row in connection.execute(query).mappings()]


def end_schedule(tx: Connection, scope_id: int, source: str) -> None:
    """Let no import of a source begin by itself any more."""
    here = (_i.c.scope_id == scope_id) & (_i.c.source == source) & _i.c.due_at.is_not(None)
    tx.execute(update(_i).where(here).values(schedule=None, due_at=None))


def has_records(connection: Connection, scope_id: int, source: str) -> bool:
    """Return True if a record of a source is stored."""
    here = (_r.c.scope_id == scope_id) & (_r.c.source == source)
    return connection.execute(select(_r.c.record_id).where(here).limit(1)).first() is not None


def version_of(connection: Connection, scope_id: int, source: str, record_id: str) -> str | None:
    """Return the version of a record that is stored; None for one that is not, or is gone."""
    values = {"scope_id": scope_id, "source": source, "record_id": record_id}
    rows = _VERSION(connection, values)
    return rows[0][0] if rows else None


def records_by_id(
    connection: Connection, scope_id: int, source: str, record_ids: Collection[str]
) -> dict[str, StoredRecord]:
    """Return what is known of some records of a source, by their ids."""
    values = {"scope_id": scope_id, "source": source}
    rows = _BY_ID(connection, {**values, "values": text_list(connection, sorted(record_ids))})
    records = [StoredRecord(**_with_flags(_RECORD, row)) for row in rows]
    return {record.record_id: record for record in records}


def documents_saying(
    connection: Connection, scope_id: int, digests: Collection[str]
) -> dict[str, str]:
    """Return for each digest of content the document of the scope that has it."""
    values = {"scope_id": scope_id, "values": text_list(connection, sorted(digests))}
    return dict(_SAYING(connection, values))


def put_records(tx: Connection, records: Iterable[StoredRecord]) -> None:
    """Store what is known of records, in place of what was."""
    rows = [vars(record) for record in records]
    if rows:
        _PUT(tx, rows)


def note_seen(
    tx: Connection,
    scope_id: int,
    source: str,
    record_ids: Sequence[str],
    import_id: str,
    *,
    is_gone: bool,
) -> None:
    """Note that an import has seen records which did not change, or of which the source says that
    they are gone.
    """
    for start in range(0, len(record_ids), _PAGE):
        page = _r.c.record_id.in_(record_ids[start : start + _PAGE])
        here = (_r.c.scope_id == scope_id) & (_r.c.source == source) & page
        tx.execute(update(_r).where(here).values(import_id=import_id, is_gone=is_gone))


def records_of(
    connection: Connection,
    import_id: str,
    states: Sequence[str] = (),
    *,
    after: str = "",
    limit: int,
) -> list[StoredRecord]:
    """Return the records that an import saw last, in some states or any, by their ids."""
    query = select(_r).where(_r.c.import_id == import_id, _r.c.record_id > after)
    if states:
        query = query.where(_r.c.state.in_(list(states)))
    return _load(connection, query.order_by(_r.c.record_id).limit(limit))


def vanished(
    connection: Connection, scope_id: int, source: str, import_id: str, *, lists_all: bool
) -> list[StoredRecord]:
    """Return the records of a source that are not there any more: those that it says are gone, and
    with `lists_all` those that the import has not seen.
    """
    condition = _vanished(scope_id, source, import_id, lists_all)
    return _load(connection, select(_r).where(condition).order_by(_r.c.record_id))


def count_vanished(
    connection: Connection, scope_id: int, source: str, import_id: str, *, lists_all: bool
) -> int:
    """Return the number of records that `vanished` would return."""
    condition = _vanished(scope_id, source, import_id, lists_all)
    return int(connection.execute(select(func.count()).where(condition)).scalar_one())


def _vanished(scope_id: int, source: str, import_id: str, lists_all: bool) -> ColumnElement[bool]:
    is_gone: ColumnElement[bool] = _r.c.is_gone
    if lists_all:
        is_gone |= _r.c.import_id != import_id
    return (_r.c.scope_id == scope_id) & (_r.c.source == source) & is_gone


def ids_of_source(connection: Connection, scope_id: int, source: str) -> list[tuple[str, bool]]:
    """Return the ids of the records of a source in their order, each with whether it is gone."""
    query = select(_r.c.record_id, _r.c.is_gone).where(
        _r.c.scope_id == scope_id, _r.c.source == source
    )
    return [(row[0], bool(row[1])) for row in connection.execute(query.order_by(_r.c.record_id))]


def records_naming(connection: Connection, document_ids: Collection[str]) -> dict[str, int]:
    """Return for each document the number of records that are it."""
    if not document_ids:
        return {}
    query = select(_r.c.document_id, func.count()).where(_r.c.document_id.in_(sorted(document_ids)))
    return {row[0]: int(row[1]) for row in connection.execute(query.group_by(_r.c.document_id))}


def remove_records(tx: Connection, records: Iterable[StoredRecord]) -> None:
    """Forget that a source had records."""
    for each in records:
        here = (_r.c.scope_id == each.scope_id) & (_r.c.source == each.source)
        tx.execute(delete(_r).where(here, _r.c.record_id == each.record_id))


def _load(connection: Connection, query: Any) -> list[StoredRecord]:
    return [StoredRecord(**row) for row in connection.execute(query).mappings()]


def _with_flags(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    return {
        name: bool(value) if name in _FLAGS else value
        for name, value in zip(names, row, strict=True)
    }


def _first(rows: Any) -> Row | None:
    row = rows.mappings().first()
    return None if row is None else dict(row)
