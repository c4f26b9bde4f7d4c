"""Erasing: remove the text of memories from every table, and rewrite the files, in which the engine
keeps removed rows.
"""

from __future__ import annotations

import json
import sqlite3
import time
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)

from tallystick.errors import BusyTally, ReadOnlyTally, StorageError
from tallystick.records import JournalEntry, part_key
from tallystick.storage.engine import containment, tables, texts
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.dialects import unpack
from tallystick.storage.index import communities, graph, search, segments
from tallystick.storage.rows import (
    documents,
    edges,
    journal,
    memories,
    parts,
    recordings,
    scopes,
    synthesis_rows,
)
from tallystick.storage.rows.journal import WITH_ROW_TEXTS, run_stream
from tallystick.storage.rows.payloads import Payloads, dependents_of, detach
from tallystick.storage.rows.recordings import StoredPayload

_m, _v = tables.memories, tables.memory_versions
_ms, _s, _p, _e, _steps = (
    tables.memory_sources,
    tables.sources,
    tables.parts,
    tables.step_entries,
    tables.steps,
)
_j, _ed = tables.journal, tables.edges
_ERASED = "erased:"
_OF_MEMORIES = [table for table in texts.owned_by(tables.metadata, "memory") if "doc" in table.c]
"""Tables whose rows belong to one memory, those that refer to others first."""
_TEXT_TABLES = texts.tables_with_text(tables.metadata)
_PATIENCE = 30.0
"""Seconds for which others are waited for at least."""
_ONE_TRY = 2.0
_BETWEEN = 0.05
_PAGE = 500


class VersionText(NamedTuple):
    """One version of a memory with its body."""

    version: int
    body: str | None


class OwnSource(NamedTuple):
    """A source that only the memories in question were drawn from."""

    id: str
    scope_id: int
    part_key: str
    """The key of its bytes."""


def texts_of(connection: Connection, doc: int) -> list[VersionText]:
    """Return every version of a memory with its body, None where that was erased."""
    query = select(_v.c.version, _v.c.body).where(_v.c.doc == doc).order_by(_v.c.version)
    return [VersionText(row.version, row.body) for row in connection.execute(query)]


def own_sources(connection: Connection, docs: Sequence[int]) -> list[OwnSource]:
    """Return the sources of these memories that no other memory was drawn from, by id."""
    other = _ms.alias("other")
    # A conclusion that stays is linked with the sources of what it was drawn from.
    drawn = exists().where(
        _ed.c.from_doc == other.c.doc, _ed.c.to_doc.in_(list(docs)), _ed.c.kind == "DERIVED_FROM"
    )
    shared = exists().where(other.c.source_id == _s.c.id, other.c.doc.not_in(list(docs)), ~drawn)
    query = (
        select(_s.c.id, _s.c.scope_id, _s.c.content_hash)
        .join(_ms, _ms.c.source_id == _s.c.id)
        .where(_ms.c.doc.in_(list(docs)), ~shared)
        .distinct()
        .order_by(_s.c.id)
    )
    return [OwnSource(row.id, row.scope_id, row.content_hash) for row in connection.execute(query)]


def drawn_from(connection: Connection, docs: Iterable[int], *, promoted: bool) -> set[int]:
    """Return the memories that were concluded from these, directly or not, and shared copies.

    With `promoted` copies that somebody promoted are among them. Summaries of communities are not,
    which `destroy` removes, nor conclusions that somebody said too: those stand by themselves.
    """
    first = frozenset(docs)
    reached, ahead = set(first), list(first)
    concluded = _ed.c.kind == "DERIVED_FROM"
    if not promoted:
        # The link of a promoted copy belongs to the scope of its origin.
        concluded &= _ed.c.scope_id == _m.c.scope_id
    drawn = (
        select(_ed.c.from_doc)
        .join(_m, _m.c.doc == _ed.c.from_doc)
        .where(concluded | (_ed.c.kind == "SHARES"))
        .where(_m.c.doc.not_in(memories.written_summaries()))
    )
    while ahead:
        page, ahead = ahead[:_PAGE], ahead[_PAGE:]
        docs = set(connection.execute(drawn.where(_ed.c.to_doc.in_(page))).scalars()) - reached
        docs -= _said_too(connection, docs)
        reached |= docs
        ahead += sorted(docs)
    return reached - first


def _said_too(connection: Connection, docs: Iterable[int]) -> set[int]:
    """Return those of these memories whose text somebody remembered besides: a second source has
    the same bytes.
    """
    query = (
        select(_ms.c.doc, _s.c.source_type)
        .join(_s, _s.c.id == _ms.c.source_id)
        .join(_m, (_m.c.doc == _ms.c.doc) & (_m.c.content_key == _s.c.content_hash))
        .where(_ms.c.doc.in_(list(docs)))
        .order_by(_ms.c.doc, _ms.c.ordinal, _s.c.id)
    )
    said, begun = set[int](), set[int]()
    for doc, source_type in connection.execute(query):
        if doc in begun and source_type != "memory":
            said.add(doc)
        begun.add(doc)
    return said


def destroy(tx: Connection, docs: Sequence[int], *, at: int, keep_rows: bool = True) -> None:
    """Remove the text of memories from versions, words, vectors, links and sources.

    With `keep_rows` the rows stay, as tombstones without text; else they are removed too, links
    first. Entities that only these memories mentioned are removed with them, and summaries of
    communities that were made from them.
    """
    summaries = [doc for doc in communities.summaries_of(tx, docs) if doc not in docs]
    if summaries:
        destroy(tx, summaries, at=at, keep_rows=False)
    for scope_id in search.scopes_of(tx, docs):
        scopes.raise_floor(tx, scope_id)
        segments.remove(tx, scope_id)
    mentioned = graph.remove(tx, docs)
    documents.destroy_raw(tx, docs, keep_rows=keep_rows)
    synthesis_rows.destroy_quoting(tx, docs)
    sources = own_sources(tx, docs)
    keys = _part_keys(tx, docs, sources)
    for doc in docs:
        edges.remove(tx, doc)
    tx.execute(
        delete(tables.jobs).where(
            tables.jobs.c.subject_id.in_(select(_m.c.id).where(_m.c.doc.in_(docs)))
        )
    )
    moments: dict[str, dict[str, Any]] = {
        _m.name: {
            "content_key": _ERASED + unpack(tx, _m.c.id),
            "forgotten_at": at,
            "updated_at": at,
        },
        _v.name: {"erased_at": at},
    }
    values: dict[str, Any]
    for table in _OF_MEMORIES:
        here, emptied = table.c.doc.in_(docs), texts.erased_values(table)
        if not keep_rows or (table is not _ms and not emptied):
            tx.execute(delete(table).where(here))
        elif emptied:
            values = {**emptied, **moments.get(table.name, {})}
            tx.execute(update(table).where(here).values(values))
    source_ids = [source.id for source in sources]
    # What is destroyed and what stays share no source: each goes with its last memory.
    is_gone, is_own = _ms.c.doc.in_(list(docs)), _ms.c.source_id.in_(source_ids)
    tx.execute(delete(_ms).where(is_gone, ~is_own))
    tx.execute(delete(_ms).where(is_own, ~is_gone))
    erased = _s.c.id.in_(source_ids)
    if keep_rows:
        values = {**texts.erased_values(_s), "content_hash": _ERASED + unpack(tx, _s.c.id)}
        tx.execute(update(_s).where(erased).values(values))
    else:
        tx.execute(delete(_s).where(erased))
    for scope_id, key in keys:
        parts.drop(tx, scope_id, key)
    orphans = graph.without_mention(tx, mentioned)
    if orphans:
        destroy(tx, orphans, at=at, keep_rows=False)


def _part_keys(
    connection: Connection, docs: Sequence[int], sources: Iterable[OwnSource]
) -> set[tuple[int, str]]:
    """Return the parts that these memories and their own sources stand on, or stood on in an
    earlier version.
    """
    keys = {(source.scope_id, source.part_key) for source in sources}
    for stored in memories.get_docs(connection, docs).values():
        keys.add((stored.scope_id, stored.content_key))
        for version in texts_of(connection, stored.doc):
            if version.body is not None:
                content = json.loads(version.body)["content"].encode("utf-8", "surrogatepass")
                keys.add((stored.scope_id, part_key(stored.scope.secret, content)))
    return keys


def erase_payloads(
    tx: Connection, payloads: Iterable[StoredPayload], *, at: int
) -> dict[str, dict[str, list[int]]]:
    """Remove recorded payloads with their salts.

    A payload that has one of them as its base and is not among them is stored whole first. Returns
    the positions of the removed ones, by run and step.
    """
    places = {entry_id: (step_id, scope_id) for step_id, scope_id, entry_id in payloads}
    stored = Payloads(tx)
    resting = [
        (row, body) for row in dependents_of(tx, places) if (body := stored.of(row)) is not None
    ]
    for row, body in resting:
        if row.base_id in places:
            detach(tx, scopes.get_by_id(tx, row.scope_id), row.id, body, at=at)
    erased: dict[str, dict[str, list[int]]] = {}
    for entry_id, (step_id, scope_id) in places.items():
        same = _e.c.id == entry_id
        query = select(_e.c.part_key, _e.c.position, _steps.c.run_id).join(
            _steps, _steps.c.id == _e.c.step_id
        )
        key, position, run_id = tx.execute(query.where(same)).one()
        insort(erased.setdefault(run_id, {}).setdefault(step_id, []), position)
        values = {
            "payload_state": "erased",
            "part_key": None,
            "salt": None,
            "base_id": None,
            "copied": None,
        }
        tx.execute(update(_e).where(same).values(values))
        if key is not None:
            parts.drop(tx, scope_id, key)
    return erased


def erase_recorded_texts(
    tx: Connection, run_id: str, step_ids: Collection[str] | None, *, of_run: bool
) -> list[int]:
    """Remove the texts of steps of a run that have ended, of all of them for None, and with
    `of_run` those of the run: names, goal, metadata and summaries, and what stands beside their
    entries of the chain.

    Return the positions of the entries that committed to them.
    """
    positions: list[int] = []
    committed: list[int] = []
    cleared: list[str] = []
    for entry, has_salt in _text_entries(tx, run_id, step_ids, of_run=of_run):
        positions.append(entry.position)
        if has_salt:
            committed.append(entry.position)
        if entry.event == "receipt" and entry.subject_id is not None:
            cleared.append(entry.subject_id)
        else:
            recordings.clear_run_texts(tx, run_id)
    recordings.clear_step_texts(tx, cleared)
    here = (_j.c.stream == run_stream(run_id)) & _j.c.position.in_(positions)
    tx.execute(update(_j).where(here).values(texts.erased_values(_j)))
    return committed


def erase_texts_beside(tx: Connection, stream: str) -> None:
    """Remove what people wrote beside the entries of a stream that commit to no rows, but for the
    reasons of erasures.
    """
    others = (_j.c.stream == stream) & _j.c.event.not_in((*WITH_ROW_TEXTS, "payload.erase"))
    tx.execute(update(_j).where(others).values(texts.erased_values(_j)))


def has_recorded_texts(
    connection: Connection, run_id: str, step_ids: Collection[str] | None
) -> list[str]:
    """Return those of some steps of a run, for None of all, whose texts can be erased."""
    return [
        entry.subject_id
        for entry, has_salt in _text_entries(connection, run_id, step_ids, of_run=False)
        if entry.subject_id is not None and has_salt
    ]


def _text_entries(
    connection: Connection, run_id: str, step_ids: Collection[str] | None, *, of_run: bool
) -> Iterator[tuple[JournalEntry, bool]]:
    """Yield the entries of a run's chain that are about its texts, each with True if its salt is
    there.
    """
    for row in journal.rows_of(connection, run_stream(run_id)):
        of_step = row.event == "receipt" and (step_ids is None or row.subject_id in step_ids)
        if of_step or (of_run and row.event in WITH_ROW_TEXTS and row.event != "receipt"):
            yield journal.read_row(row), row.salt is not None


def chained_texts(
    connection: Connection, needles: Sequence[bytes], *, streams: Sequence[str] | None
) -> list[str]:
    """Return the entries of journals, as `stream#position`, that contain one of `needles` in the
    bytes that their digest covers, or in the name of their stream: nothing can erase those.
    """
    condition = or_(
        containment.contains(connection, _j.c.body, needles),
        containment.contains(connection, _j.c.stream, needles),
    )
    if streams is not None:
        condition = and_(condition, _j.c.stream.in_(list(streams)))
    query = select(_j.c.stream, _j.c.position).where(condition).order_by(_j.c.sequence)
    return [f"{row.stream}#{row.position}" for row in connection.execute(query)]


def versions_with_text(connection: Connection, doc: int) -> int:
    """Return the number of versions of a memory that still have their text or salt."""
    query = (
        select(func.count())
        .select_from(_v)
        .where(_v.c.doc == doc, _v.c.body.is_not(None) | _v.c.salt.is_not(None))
    )
    return int(connection.execute(query).scalar_one())


def living_sources(connection: Connection, source_ids: Sequence[str]) -> int:
    """Return the number of links from memories to those of these sources that are not erased."""
    query = select(func.count()).select_from(_s).join(_ms, _ms.c.source_id == _s.c.id)
    query = query.where(_s.c.id.in_(source_ids), _s.c.lifecycle_state != "erased")
    return int(connection.execute(query).scalar_one())


def erase_journal_texts(
    tx: Connection,
    needles: Sequence[bytes],
    subject_ids: Sequence[str],
    *,
    streams: Sequence[str] | None,
) -> int:
    """Remove what people wrote beside entries that contain it, or that are about these records;
    return the number of entries. The chain goes on to verify. `streams` None is every one.
    """
    condition = _with_texts(tx, needles, subject_ids, streams)
    return int(tx.execute(update(_j).where(condition).values(texts.erased_values(_j))).rowcount)


def count_journal_texts(
    connection: Connection,
    needles: Sequence[bytes],
    subject_ids: Sequence[str],
    *,
    streams: Sequence[str] | None,
) -> int:
    """Return the number of entries that `erase_journal_texts` would change."""
    condition = _with_texts(connection, needles, subject_ids, streams)
    return int(connection.execute(select(func.count()).where(condition)).scalar_one())


def _with_texts(
    connection: Connection,
    needles: Sequence[bytes],
    subject_ids: Sequence[str],
    streams: Sequence[str] | None,
) -> ColumnElement[bool]:
    in_texts = or_(
        containment.contains(connection, _j.c.texts, needles),
        _j.c.subject_id.in_(list(subject_ids)),
    )
    # Entries that commit to rows too lose their texts with these: `erase_recorded_texts`.
    condition = and_(_j.c.texts.is_not(None), _j.c.event.not_in(WITH_ROW_TEXTS), in_texts)
    return condition if streams is None else and_(condition, _j.c.stream.in_(list(streams)))


def rewrite_file(database: Database) -> None:
    """Same as `rewrite`, for a database that is a file; a server keeps its own pages."""
    if not database.is_postgres:
        rewrite(database)


def rewrite(database: Database) -> None:
    """Write the database anew without the remains of removed rows, and empty its log.

    Users of this process wait meanwhile; those of others are waited for, several times as long as
    one write waits. Raises BusyTally, StorageError.
    """
    if database.is_postgres:
        for table in _TEXT_TABLES:
            _rewrite_table(database, table)
        return
    file = database.url.database
    assert file is not None
    until = time.monotonic() + max(_PATIENCE, 3 * database.busy_timeout_ms / 1_000)
    while True:
        try:
            with database.quiet():
                _rewrite_file(file)
        except (BusyTally, sqlite3.OperationalError) as error:
            is_busy = isinstance(error, BusyTally) or "locked" in str(error)
            if not is_busy:
                raise StorageError(
                    f"The database could not be rewritten ({error}). What was erased is gone from "
                    f"its tables; `tally doctor --repair` rewrites the file."
                ) from error
            if time.monotonic() > until:
                raise BusyTally(
                    "Others use the database without a pause: what was erased is gone from its "
                    "tables, and the file is rewritten when the tally is opened next."
                ) from error
            # The users of this process have their turn in between.
            time.sleep(_BETWEEN)
        else:
            return


def _rewrite_table(database: Database, table: Table) -> None:
    """Do what VACUUM FULL does, in a transaction: with its schema and its limits, and refused where
    the role may not, of which VACUUM only warns.
    """
    try:
        with database.migrating() as connection:
            key = table.primary_key.name
            connection.exec_driver_sql(f'CLUSTER "{table.name}" USING "{key}"')
            connection.exec_driver_sql(f'ALTER TABLE "{table.name}" SET WITHOUT CLUSTER')
    except ReadOnlyTally as error:
        if error.reason != "no_grant":
            raise
        raise StorageError(
            "What was erased is gone from the tables, and not yet from their files: only the role "
            "that owns the tables may write them anew. Run `tally doctor --repair` as that role."
        ) from error


def _rewrite_file(file: str) -> None:
    connection = sqlite3.connect(file, timeout=_ONE_TRY, isolation_level=None)
    try:
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("VACUUM")
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.close()
    if busy:
        raise BusyTally
