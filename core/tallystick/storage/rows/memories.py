"""Memories, their versions and sources as rows; the text of a memory is in its versions."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    text,
    update,
)

from tallystick.records import (
    ExtractionStatus,
    Memory,
    MemoryState,
    Scope,
    Source,
    SourceHash,
    SourceRef,
)
from tallystick.storage.engine import tables
from tallystick.storage.engine.batches import Read, was_read_ahead
from tallystick.storage.engine.prepared import (
    Prepared,
    PreparedIn,
    PreparedInsert,
    PreparedRow,
    in_list,
    insert_row,
    integer_list,
    key_ahead,
    settle,
)
from tallystick.storage.rows.memory_versions import add_version, parsed_body
from tallystick.storage.rows.scopes import ScopeRow

FINDABLE: tuple[MemoryState, ...] = ("active", "superseded", "duplicate", "redacted")
"""States whose words are indexed. Recall decides by state which of their fields it shows, and
where.
"""

GRAPH_VERSION = "graph-1"
"""The version of the sources, and of the `transform_version`, of what the graph made."""

_m, _v, _ms, _s, _sc, _x = (
    tables.memories,
    tables.memory_versions,
    tables.memory_sources,
    tables.sources,
    tables.scopes,
    tables.search_text,
)

_SELECT = (
    select(_m, _v.c.body, _sc.c.name.label("scope_name"), _sc.c.secret.label("scope_secret"))
    .join(_v, and_(_v.c.doc == _m.c.doc, _v.c.version == _m.c.version))
    .join(_sc, _sc.c.id == _m.c.scope_id)
)
_Row = namedtuple("_Row", _SELECT.selected_columns.keys())  # type: ignore[misc] # the columns are those of the table
_BY_ID = Prepared(_SELECT.where(_m.c.id == bindparam("id")))
_BY_IDS = PreparedIn(_SELECT, _m.c.id)
# The index has the speaker of each memory that is findable: without one its body is not read.
_BODIES = PreparedIn(
    select(_m.c.id, _v.c.body)
    .join(_v, and_(_v.c.doc == _m.c.doc, _v.c.version == _m.c.version))
    .outerjoin(_x, _x.c.doc == _m.c.doc)
    .where(or_(_x.c.words.is_(None), _x.c.speaker.is_not(None))),
    _m.c.id,
)
_OF_DOCS = _SELECT.where(in_list(_m.c.doc, "docs"))
_BY_DOCS = Prepared(_OF_DOCS)
_BY_DOCS_WITHIN = Prepared(
    # Plus nothing: SQLite would go through the index of the whole scope instead of the key.
    _OF_DOCS.where(text("+memories.scope_id IN (SELECT value FROM json_each(:scope_ids))")),
    postgresql=_OF_DOCS.where(in_list(_m.c.scope_id, "scope_ids")),
)
_LATER = ("access_count", "last_accessed", "locked_until", "forgotten_at")
"""Columns that a new memory has by default."""
_COPIED = tuple(
    column.name
    for column in _m.columns
    if column.name in Memory.model_fields and column.name not in _LATER
)
"""Columns with what a new memory has under their name."""
_INSERT_TEXT = insert_row(_m, *_COPIED, "scope_id", "content_key")
_INSERT = PreparedInsert(_INSERT_TEXT, key="doc")
_NEXT_DOC = Prepared(
    "SELECT NULL", postgresql="SELECT nextval(pg_get_serial_sequence('memories', 'doc'))"
)
NEXT_DOC: Read = (_NEXT_DOC, {})
"""Read ahead of a unit that inserts a memory: its number."""
_INSERT_AS = PreparedRow(
    _INSERT_TEXT.replace('("id"', '("doc", "id"').replace("(:id", "(:doc, :id")
)
_INSERT_SOURCE = PreparedRow(insert_row(_s))
_NEW_SOURCE = {
    name: Source.model_fields[name].default
    for name in ("privacy_class", "lifecycle_state", "schema_version")
}
_LINK = PreparedRow(insert_row(_ms, "doc", "source_id", "ordinal"))
_LINK_NEXT = Prepared(
    'INSERT INTO "memory_sources" (doc, source_id, ordinal) '
    "SELECT :doc, :source_id, count(*) FROM memory_sources WHERE doc = :doc",
    postgresql="INSERT INTO memory_sources (doc, source_id, ordinal) "
    "SELECT CAST(:doc AS BIGINT), CAST(:source_id AS TEXT), count(*) FROM memory_sources "
    "WHERE doc = :doc",
)
_SOURCES = (
    select(_ms.c.doc, _s.c.id, _s.c.reference)
    .join(_s, _s.c.id == _ms.c.source_id)
    .order_by(_ms.c.doc, _ms.c.ordinal)
)
_SOURCES_OF = Prepared(_SOURCES.where(in_list(_ms.c.doc, "docs")))
_HASHES = (
    select(_ms.c.doc, _s.c.id, _s.c.content_hash)
    .join(_s, _s.c.id == _ms.c.source_id)
    .order_by(_ms.c.doc, _ms.c.ordinal)
)
_HASHES_OF, _LINKS_OF = (
    Prepared(query.where(in_list(_ms.c.doc, "docs")))
    for query in (_HASHES, _HASHES.add_columns(_s.c.reference))
)
_NOTE_ACCESS = (
    update(_m)
    .where(_m.c.doc == bindparam("d"))
    .values(access_count=_m.c.access_count + bindparam("n"), last_accessed=bindparam("at"))
)


@dataclass(frozen=True)
class Stored:
    """A memory with the numbers of its row and its scope."""

    doc: int
    scope_id: int
    content_key: str
    forgotten_at: int | None
    memory: Memory
    secret: bytes
    links: Sequence[SourceLink] | None = None
    """Its sources in the order in which they came, where they were read with it."""

    @property
    def scope(self) -> ScopeRow:
        """The row of its scope."""
        return ScopeRow(self.scope_id, self.memory.scope, self.secret)


class InsertedMemory(NamedTuple):
    """A memory that was just written."""

    doc: int
    commitment: str
    """The commitment of its first version."""


class MemoryStatus(NamedTuple):
    """The state of one memory."""

    doc: int
    id: str
    state: str
    expires_at: int | None


class SourceLink(NamedTuple):
    """One source of a memory."""

    id: str
    reference: SourceRef


class SameContent(NamedTuple):
    """A memory with the content that was asked for."""

    memory_id: str
    scope_id: int


def insert_memory(
    tx: Connection, memory: Memory, *, scope: ScopeRow, content_key: str
) -> InsertedMemory:
    """Write a new memory with its first version."""
    row = {name: getattr(memory, name) for name in _COPIED}
    steps = json.dumps(memory.source_step_ids) if memory.source_step_ids else "[]"
    row |= {"scope_id": scope.id, "content_key": content_key, "source_step_ids": steps}
    if was_read_ahead(tx, *NEXT_DOC):
        # Its number came with the lock, so that the rows need not wait for it.
        ((doc,),) = _NEXT_DOC(tx, {})
    else:
        doc = key_ahead(tx, _m)
    if doc is None:
        doc = _INSERT(tx, row)
    else:
        _INSERT_AS(tx, {**row, "doc": doc})
    return InsertedMemory(doc, add_version(tx, doc, memory, at=memory.created_at))


_REWRITTEN: tuple[str, ...] = ("version", "kind", "state", "pinned", "expires_at", "valid_from")
_REWRITTEN += ("valid_until", "locked_until", "updated_at", "updated_by")
"""Columns with what the next version of a memory has under their name."""
_UPDATE = Prepared(
    update(_m)
    .where(_m.c.doc == bindparam("d"), _m.c.version == bindparam("expected"))
    .values(
        {name: bindparam(f"new_{name}") for name in (*_REWRITTEN, "content_key", "forgotten_at")}
    )
)


def update_row(
    tx: Connection, doc: int, memory: Memory, *, content_key: str, forgotten_at: int | None
) -> None:
    """Update the row of a memory to `memory`, which is the version after the stored one."""
    new = {name: getattr(memory, name) for name in _REWRITTEN}
    new |= {"content_key": content_key, "forgotten_at": forgotten_at}
    values = {f"new_{name}": value for name, value in new.items()}
    _UPDATE(tx, {**values, "d": doc, "expected": memory.version - 1})


def to_be_learned(
    connection: Connection,
    scope_id: int,
    conversation: str,
    user: str,
    *,
    status: ExtractionStatus = "pending",
    limit: int,
) -> list[Stored]:
    """Return what a user said in a conversation and no learner has read yet, in its order; with the
    status `failed` what no learner could read.
    """
    query = _SELECT.where(
        _m.c.scope_id == scope_id,
        _m.c.conversation == conversation,
        _m.c.created_by == user,
        _m.c.state == "active",
        _m.c.extraction_status == status,
    )
    query = query.order_by(_m.c.position, _m.c.doc).limit(limit)
    return _hydrate(connection, connection.execute(query).all())


def set_extraction_status(tx: Connection, doc: int, status: ExtractionStatus) -> None:
    """Store what became of the extraction of a memory; its version stays."""
    tx.execute(update(_m).where(_m.c.doc == doc).values(extraction_status=status))


def set_expiry(tx: Connection, doc: int, at: int | None) -> None:
    """Let a memory leave recall at a moment, microseconds UTC, or never; this adds no version."""
    tx.execute(update(_m).where(_m.c.doc == doc).values(expires_at=at))


def add_source(
    tx: Connection,
    source_id: str,
    reference: SourceRef,
    *,
    scope: ScopeRow,
    content_key: str,
    created_by: str,
    at: int,
    occurred_at: int | None,
) -> None:
    """Write a source whose bytes are stored in `parts` under `content_key` already."""
    _INSERT_SOURCE(
        tx,
        {
            **_NEW_SOURCE,
            "id": source_id,
            "scope_id": scope.id,
            "source_type": reference.source_type,
            "uri": reference.uri,
            "title": reference.title,
            "source_version": reference.version,
            "content_hash": content_key,
            "reference": reference.dumps(),
            "created_by": created_by,
            "created_at": at,
            "occurred_at": occurred_at,
        },
    )


def link_source(tx: Connection, doc: int, source_id: str, *, ordinal: int | None = None) -> None:
    """Link a memory to a source that it was derived from; the ordinal defaults to the next one."""
    if ordinal is None:
        settle(tx)
        _LINK_NEXT(tx, {"doc": doc, "source_id": source_id})
    else:
        _LINK(tx, {"doc": doc, "source_id": source_id, "ordinal": ordinal})


def get(connection: Connection, memory_id: str, *, sources: bool = True) -> Stored | None:
    """Return one memory by id, of any scope: the caller decides who may see it.

    Without `sources` they are left out, for callers that only change the text.
    """
    rows = [_Row._make(row) for row in _BY_ID(connection, {"id": memory_id})]
    if not rows:
        return None
    return _hydrate(connection, rows)[0] if sources else _load_memory(rows[0], ())


def ids_of(connection: Connection, docs: Sequence[int]) -> list[str]:
    """Return the ids of memories by number."""
    return [
        memory_id
        for start in range(0, len(docs), 500)
        for memory_id in connection.execute(
            select(_m.c.id).where(_m.c.doc.in_(docs[start : start + 500]))
        ).scalars()
    ]


def speakers_of(connection: Connection, ids: Collection[str]) -> dict[str, str]:
    """Return who said memories, by their ids, where somebody is named."""
    bodies = (
        (memory_id, parsed_body(body)) for memory_id, body in _BODIES(connection, ids) if body
    )
    return {memory_id: body["speaker"] for memory_id, body in bodies if body.get("speaker")}


def get_docs(
    connection: Connection,
    docs: Iterable[int],
    *,
    within: Collection[int] | None = None,
    links: bool = False,
) -> dict[int, Stored]:
    """Return memories by number, only those of the scopes `within` if these are given; with `links`
    their sources too.
    """
    numbers = list(docs)
    query = _BY_DOCS if within is None else _BY_DOCS_WITHIN
    scope_ids = {} if within is None else {"scope_ids": integer_list(connection, list(within))}
    memories: dict[int, Stored] = {}
    for start in range(0, len(numbers), 500):
        rows = query(
            connection,
            {"docs": integer_list(connection, numbers[start : start + 500]), **scope_ids},
        )
        memories.update(
            (stored.doc, stored)
            for stored in _hydrate(connection, [_Row._make(row) for row in rows], links=links)
        )
    return memories


def get_many(connection: Connection, ids: Collection[str]) -> list[Stored]:
    """Return memories by their ids, a few hundred at most."""
    return _hydrate(connection, [_Row._make(row) for row in _BY_IDS(connection, ids)])


def latest(
    connection: Connection,
    scope_ids: Iterable[int],
    *,
    kinds: Sequence[str] = (),
    states: Sequence[str],
    conversation: str | None = None,
    run_id: str | None = None,
    limit: int,
    before_doc: int | None = None,
    without_kind: str | None = None,
    but_docs: Sequence[int] = (),
    only_docs: Collection[int] | None = None,
    since: int | None = None,
    until: int | None = None,
) -> list[Stored]:
    """Return memories of these scopes, newest first, page by page: pass the last `doc` as
    `before_doc`.

    `since` and `until` (microseconds UTC, from the one up to the other) bound when it was said or
    happened, else remembered. Of the kind `without_kind` only those of `but_docs` are returned, and
    the entities and summaries that the graph made only where `kinds` names them.
    """
    query = _SELECT.where(_m.c.scope_id.in_(list(scope_ids)), _m.c.state.in_(list(states)))
    if kinds:
        query = query.where(_m.c.kind.in_(list(kinds)))
    else:
        query = query.where(_not_by_graph())
    if conversation is not None:
        query = query.where(_m.c.conversation == conversation)
    if run_id is not None:
        query = query.where(_m.c.source_run_id == run_id)
    if only_docs is not None:
        query = query.where(_among(connection, only_docs))
    said_at = func.coalesce(_m.c.occurred_at, _m.c.created_at)
    if since is not None:
        query = query.where(said_at >= since)
    if until is not None:
        query = query.where(said_at < until)
    if before_doc is not None:
        query = query.where(_m.c.doc < before_doc)
    if without_kind is not None:
        query = query.where(or_(_m.c.kind != without_kind, _m.c.doc.in_(list(but_docs))))
    return _hydrate(
        connection, connection.execute(query.order_by(_m.c.doc.desc()).limit(limit)).all()
    )


def pinned(
    connection: Connection, scope_ids: Sequence[int], *, without_kind: str, limit: int
) -> list[Stored]:
    """Return the pinned memories of these scopes that are active, newest first, without those of a
    kind and what the graph made.
    """
    values = {
        "scope_ids": integer_list(connection, scope_ids),
        "without_kind": without_kind,
        "most": limit,
    }
    return _hydrate(connection, [_Row._make(row) for row in _pinned()(connection, values)])


@cache
def _pinned() -> Prepared:
    query = (
        _SELECT.where(
            # As the index of pinned memories spells it.
            literal_column("memories.pinned"),
            _m.c.state == literal_column("'active'"),
            _m.c.kind != bindparam("without_kind"),
            _not_by_graph(),
        )
        .order_by(_m.c.doc.desc())
        .suffix_with(text("LIMIT :most"))
    )
    return Prepared(query.where(in_list(_m.c.scope_id, "scope_ids")))


def _not_by_graph() -> ColumnElement[bool]:
    """Return the condition that the graph did not make a memory."""
    is_other = _m.c.doc.not_in(written_summaries())
    is_named = _m.c.doc.in_(select(tables.entity_names.c.doc))
    return ~is_named & ((_m.c.kind != literal_column("'community'")) | is_other)


def written_summaries() -> Select[Any]:
    """Return the query for the summaries that the graph made; a memory of the kind `community` that
    somebody remembered is none.
    """
    return (
        select(_ms.c.doc)
        .join(_s, _s.c.id == _ms.c.source_id)
        .join(_m, _m.c.doc == _ms.c.doc)
        .where(
            _m.c.kind == literal_column("'community'"),
            _s.c.source_type == literal_column("'app_state'"),
            _s.c.source_version == literal_column(f"'{GRAPH_VERSION}'"),
        )
    )


def _among(connection: Connection, docs: Collection[int]) -> Any:
    """Return the condition that a memory is one of any number of others."""
    numbers = integer_list(connection, sorted(docs))
    if connection.dialect.name == "postgresql":
        return _m.c.doc == func.any(bindparam("only_docs", numbers))
    return _m.c.doc.in_(
        text("SELECT value FROM json_each(:only_docs)").bindparams(only_docs=numbers)
    )


def state_counts(connection: Connection, scope_ids: Iterable[int]) -> dict[str, int]:
    """Return the numbers of memories of these scopes, by state."""
    query = select(_m.c.state, func.count()).where(_m.c.scope_id.in_(list(scope_ids)))
    return {row[0]: row[1] for row in connection.execute(query.group_by(_m.c.state))}


def active_kinds(connection: Connection, scope_ids: Iterable[int]) -> dict[str, int]:
    """Return the numbers of active memories of these scopes, by kind."""
    kinds: dict[str, int] = {}
    active = _m.c.scope_id.in_(list(scope_ids)) & (_m.c.state == literal_column("'active'"))
    # Loose statements are counted apart, in the index of them: it has the kinds, so that no row of
    # theirs is read.
    for part in (_m.c.conversation.is_(None), _m.c.conversation.is_not(None)):
        query = select(_m.c.kind, func.count()).where(active, part).group_by(_m.c.kind)
        for kind, count in connection.execute(query):
            kinds[kind] = kinds.get(kind, 0) + count
    return kinds


def loose_kinds(connection: Connection, scope_id: int) -> list[str]:
    """Return the kinds of the active memories of a scope that are no turns, in order."""
    query = select(_m.c.kind).where(
        _m.c.scope_id == scope_id,
        _m.c.state == literal_column("'active'"),
        _m.c.conversation.is_(None),
    )
    return sorted(connection.execute(query.distinct()).scalars())


def scope_ids_of(connection: Connection, docs: Iterable[int]) -> set[int]:
    """Return the scopes of memories, by number."""
    query = select(_m.c.scope_id).where(_m.c.doc.in_(list(docs)))
    return set(connection.execute(query.distinct()).scalars())


def statuses(connection: Connection, scope_ids: Iterable[int]) -> list[MemoryStatus]:
    """Return the state of every memory of these scopes, oldest first."""
    query = select(_m.c.doc, _m.c.id, _m.c.state, _m.c.expires_at).where(
        _m.c.scope_id.in_(list(scope_ids))
    )
    return [MemoryStatus._make(row) for row in connection.execute(query.order_by(_m.c.doc))]


def source_refs(connection: Connection, docs: Iterable[int]) -> dict[int, list[SourceLink]]:
    """Return the sources of each memory, by its number, in the order in which they came."""
    refs: dict[int, list[SourceLink]] = {}
    for doc, source_id, reference in _SOURCES_OF(
        connection, {"docs": integer_list(connection, list(docs))}
    ):
        refs.setdefault(doc, []).append(SourceLink(source_id, SourceRef.loads(reference)))
    return refs


def with_content(
    connection: Connection, content_keys: Sequence[str], *, besides: Sequence[int]
) -> list[SameContent]:
    """Return the findable memories with one of these content keys, other than `besides`, oldest
    first.
    """
    query = select(_m.c.id, _m.c.scope_id).where(
        _m.c.content_key.in_(list(content_keys)),
        _m.c.doc.not_in(list(besides)),
        _m.c.state.in_(FINDABLE),
    )
    return [
        SameContent(row.id, row.scope_id) for row in connection.execute(query.order_by(_m.c.doc))
    ]


def note_access(tx: Connection, counts: Mapping[int, int], *, at: int) -> None:
    """Add to the access counts of memories, by number."""
    if counts:
        tx.execute(_NOTE_ACCESS, [{"d": doc, "n": n, "at": at} for doc, n in counts.items()])


def access_counts(connection: Connection, docs: Sequence[int]) -> dict[int, int]:
    """Return the number of recalls of each of these memories, by its number; those never recalled
    are left out.
    """
    query = select(_m.c.doc, _m.c.access_count).where(
        _m.c.doc.in_(list(docs)), _m.c.access_count > 0
    )
    return {row.doc: row.access_count for row in connection.execute(query)}


def written_in(connection: Connection, docs: Sequence[int], run_id: str) -> set[int]:
    """Return those of these memories that were written in a run."""
    query = select(_m.c.doc).where(_m.c.doc.in_(list(docs)), _m.c.source_run_id == run_id)
    return set(connection.execute(query).scalars())


def _hydrate(connection: Connection, rows: Sequence[Any], *, links: bool = False) -> list[Stored]:
    if not rows:
        return []
    hashes: dict[int, list[SourceHash]] = {}
    linked: dict[int, list[SourceLink]] = {}
    docs = {"docs": integer_list(connection, [row.doc for row in rows])}
    for doc, source_id, content_hash, *reference in (_LINKS_OF if links else _HASHES_OF)(
        connection, docs
    ):
        hashes.setdefault(doc, []).append(
            SourceHash.of_valid(source_id=source_id, content_hash=content_hash)
        )
        for each in reference:
            linked.setdefault(doc, []).append(SourceLink(source_id, SourceRef.loads(each)))
    return [
        _load_memory(
            row, tuple(hashes.get(row.doc, ())), linked.get(row.doc, ()) if links else None
        )
        for row in rows
    ]


def _load_memory(
    row: Any, sources: tuple[SourceHash, ...], links: Sequence[SourceLink] | None = None
) -> Stored:
    body = parsed_body(row.body) if row.body is not None else {"content": ""}
    memory = Memory.load(
        {
            **body,
            "id": row.id,
            "scope": Scope.parse(row.scope_name),
            "kind": row.kind,
            "state": row.state,
            "version": row.version,
            "pinned": row.pinned,
            "sources": sources,
            "source_run_id": row.source_run_id,
            "source_step_ids": json.loads(row.source_step_ids)
            if row.source_step_ids != "[]"
            else (),
            "extraction_status": row.extraction_status,
            "access_count": row.access_count,
            "last_accessed": row.last_accessed,
            "update_count": row.version - 1,
            "updated_by": row.updated_by,
            "conversation": row.conversation,
            "position": row.position,
            "occurred_at": row.occurred_at,
            "expires_at": row.expires_at,
            "locked_until": row.locked_until,
            "created_at": row.created_at,
            "updated_at": row.updated_at,
            "created_by": row.created_by,
            "schema_version": row.schema_version,
        }
    )
    return Stored(
        row.doc,
        row.scope_id,
        row.content_key,
        row.forgotten_at,
        memory,
        bytes(row.scope_secret),
        links,
    )
