"""The search tables: the words and vectors by which memories are found, and who changed when.

Every query carries the numbers of the scopes that policy allowed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    text,
    update,
)

from tallystick.ranking.segment import Entry
from tallystick.records import text_digest
from tallystick.storage.engine import tables
from tallystick.storage.engine.dialects import text_position
from tallystick.storage.engine.prepared import (
    Prepared,
    PreparedRow,
    in_list,
    insert_row,
    integer_list,
    upsert,
)
from tallystick.storage.index.marks import Mark, rows_behind
from tallystick.storage.rows.jobs import EMBED

LOCAL_ONLY = 128
"""The mark of a text that no remote embedder receives."""

_x, _v, _m = tables.search_text, tables.vectors, tables.memories
_s, _ms, _sc = tables.sources, tables.memory_sources, tables.scopes
_ADD_VECTOR = PreparedRow(insert_row(_v, "doc", "fingerprint", "scope_id", "version", "vector"))
_SHOWN = ("revision", "words", "marks", "speaker", "tags", "names", "labels", "subject")
_SHOW = PreparedRow(upsert(_x, ("doc", "scope_id", *_SHOWN), key=("doc",), replacing=_SHOWN))
_LACKING = (
    select(_x.c.doc, _m.c.version)
    .join(_m, _m.c.doc == _x.c.doc)
    .where(
        _x.c.words.is_not(None),
        ~exists().where(_v.c.doc == _x.c.doc, _v.c.fingerprint == bindparam("fingerprint")),
    )
)
_WITHOUT_VECTOR = Prepared(_LACKING.where(in_list(_x.c.doc, "docs")))
_DROP_VECTORS = Prepared(delete(_v).where(_v.c.doc == bindparam("doc")))
_HIDE = Prepared(
    "UPDATE search_text SET words = NULL, marks = 0, speaker = NULL, tags = '[]', names = NULL, "
    "labels = '{}', subject = NULL, revision = :to_revision WHERE doc = :d"
)
_TOUCH = Prepared(
    update(_x).where(_x.c.doc == bindparam("d")).values(revision=bindparam("to_revision"))
)
_COUNT = select(func.count()).select_from(_x).where(_x.c.scope_id == bindparam("scope_id"))
_ENTRIES = (
    select(
        _x.c.doc,
        _x.c.words,
        _x.c.marks,
        _x.c.speaker,
        _m.c.kind,
        _m.c.conversation,
        _m.c.position,
        _m.c.occurred_at,
        _m.c.expires_at,
        _v.c.vector,
        _x.c.names,
        _m.c.state,
        _m.c.valid_from,
        _m.c.valid_until,
        _m.c.created_at,
    )
    .join(_m, _m.c.doc == _x.c.doc)
    .outerjoin(_v, and_(_v.c.doc == _x.c.doc, _v.c.fingerprint == bindparam("fingerprint")))
    .order_by(_x.c.doc)
)
_CHANGED = Prepared(_ENTRIES.where(in_list(_x.c.doc, "docs")), reads_bytes=True)
_PAGE = 2_000
_SAVED = select(_v.c.doc, _v.c.vector).where(_v.c.fingerprint == bindparam("fingerprint"))
_OF_DOCS = _SAVED.where(in_list(_v.c.doc, "docs"))
# Plus nothing: SQLite would go through the index of the whole scope instead of the key.
_VECTORS_OF = Prepared(
    _OF_DOCS.where(text("scope_id + 0 IN (SELECT value FROM json_each(:scope_ids))")),
    postgresql=_OF_DOCS.where(in_list(_v.c.scope_id, "scope_ids")),
    reads_bytes=True,
)
_AT_ONCE = 3_000
"""Vectors that one statement reads."""


class TextRow(NamedTuple):
    """The searchable text of a memory."""

    words: str
    """As `ranking.indexed_words` writes them."""
    marks: int
    """The percentage of the text that is code, and LOCAL_ONLY."""
    speaker: str | None
    tags: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """The names of one person, where the memory lists them."""
    labels: tuple[tuple[str, str], ...] = ()
    """What lists and recall filter by, such as the status, by name."""
    subject: str | None = None


def show_text(tx: Connection, doc: int, scope_id: int, row: TextRow, *, revision: int) -> None:
    """Make a memory findable, or findable by other words, as of `revision`."""
    values = {
        "doc": doc,
        "scope_id": scope_id,
        "revision": revision,
        "words": row.words,
        "marks": row.marks,
        "speaker": row.speaker,
        "tags": json.dumps(row.tags, ensure_ascii=False) if row.tags else "[]",
        "names": json.dumps(row.names, ensure_ascii=False) if row.names else None,
        "labels": json.dumps(dict(row.labels), ensure_ascii=False) if row.labels else "{}",
        "subject": None if row.subject is None else text_digest("subject", row.subject),
    }
    _SHOW(tx, values)


def hide_text(tx: Connection, doc: int, *, revision: int) -> None:
    """Make a memory unfindable as of `revision`: remove its words, and its vectors of every
    embedder.
    """
    _HIDE(tx, {"d": doc, "to_revision": revision})
    _DROP_VECTORS(tx, {"doc": doc})


def drop_vectors(tx: Connection, doc: int) -> None:
    """Remove the vectors of a memory, of every embedder: its text changed."""
    _DROP_VECTORS(tx, {"doc": doc})


def touch(tx: Connection, docs: Iterable[int], *, revision: int) -> None:
    """Note that something beside the words of these memories changed, such as a vector that came
    later.
    """
    rows = [{"d": doc, "to_revision": revision} for doc in docs]
    if rows:
        _TOUCH(tx, rows[0] if len(rows) == 1 else rows)


def add_vectors(
    tx: Connection, rows: Iterable[tuple[int, int, int, bytes]], fingerprint: str
) -> None:
    """Store (doc, scope id, version, vectors of its slices) rows under one embedder."""
    columns = ("doc", "scope_id", "version", "vector")
    values = [{**dict(zip(columns, row, strict=True)), "fingerprint": fingerprint} for row in rows]
    if values:
        _ADD_VECTOR(tx, values[0] if len(values) == 1 else values)


def count_rows(connection: Connection, scope_id: int) -> int:
    """Return the number of memories of a scope that are findable or once were."""
    return int(connection.execute(_COUNT, {"scope_id": scope_id}).scalar_one())


def read_changes(
    connection: Connection, scope_id: int, *, after: int, fingerprint: str
) -> Iterator[list[Entry]]:
    """Yield pages of the memories of a scope whose words or vectors changed since revision `after`,
    by number.

    `fingerprint` names the embedder whose vectors are read; an empty one reads none. Rows as
    objects take several times the memory of the corpus that is made of them: hence the pages.
    """
    docs = sorted(row.doc for row in rows_behind(connection, scope_id, Mark.at(after)))
    for start in range(0, len(docs), _PAGE):
        page = docs[start : start + _PAGE]
        values = {"docs": integer_list(connection, page), "fingerprint": fingerprint}
        yield [Entry._make(row) for row in _CHANGED(connection, values)]


def hidden_docs(connection: Connection, scope_id: int, *, after: int) -> set[int]:
    """Return the memories of a scope that are no longer findable since revision `after`."""
    query = select(_x.c.doc).where(
        _x.c.scope_id == scope_id, _x.c.revision > after, _x.c.words.is_(None)
    )
    return set(connection.execute(query).scalars())


def living_docs(connection: Connection, scope_id: int) -> set[int]:
    """Return the findable memories of a scope."""
    query = select(_x.c.doc).where(_x.c.scope_id == scope_id, _x.c.words.is_not(None))
    return set(connection.execute(query).scalars())


def scopes_of(connection: Connection, docs: Sequence[int]) -> list[int]:
    """Return the scopes of those of these memories that are findable or once were, in order."""
    query = select(_x.c.scope_id).where(_x.c.doc.in_(list(docs))).distinct()
    return sorted(connection.execute(query).scalars())


def has_words(connection: Connection, doc: int) -> bool:
    """Return True if words of a memory are indexed."""
    query = select(_x.c.doc).where(_x.c.doc == doc, _x.c.words.is_not(None))
    return connection.execute(query).first() is not None


def has_vectors(connection: Connection, doc: int) -> bool:
    """Return True if a vector of a memory is stored, of any embedder."""
    return connection.execute(select(_v.c.doc).where(_v.c.doc == doc)).first() is not None


def vectors_of(
    connection: Connection, scope_ids: Sequence[int], fingerprint: str, docs: Sequence[int]
) -> dict[int, bytes]:
    """Return the vectors of those of `docs` that are in these scopes, by number: this checks
    Chroma's proposals.
    """
    vectors: dict[int, bytes] = {}
    for start in range(0, len(docs), _AT_ONCE):
        rows = _VECTORS_OF(
            connection,
            {
                "docs": integer_list(connection, docs[start : start + _AT_ONCE]),
                "scope_ids": integer_list(connection, scope_ids),
                "fingerprint": fingerprint,
            },
        )
        vectors.update((doc, bytes(vector)) for doc, vector in rows)
    return vectors


def find_tagged(connection: Connection, scope_ids: Sequence[int], tags: Sequence[str]) -> set[int]:
    """Return the findable memories of these scopes that have all of `tags`."""
    position = text_position(connection)
    query = select(_x.c.doc).where(
        _x.c.scope_id.in_(list(scope_ids)),
        *(position(_x.c.tags, json.dumps(tag, ensure_ascii=False)) > 0 for tag in tags),
    )
    return set(connection.execute(query).scalars())


def find_labelled(
    connection: Connection, scope_ids: Sequence[int], labels: Mapping[str, str]
) -> set[int]:
    """Return the findable memories of these scopes that have all of these labels."""
    position = text_position(connection)
    pieces = [json.dumps({name: value}, ensure_ascii=False)[1:-1] for name, value in labels.items()]
    query = select(_x.c.doc).where(
        _x.c.scope_id.in_(list(scope_ids)),
        *(position(_x.c.labels, piece) > 0 for piece in pieces),
    )
    return set(connection.execute(query).scalars())


def label_values(
    connection: Connection, scope_ids: Sequence[int], names: Sequence[str]
) -> dict[str, set[str]]:
    """Return the values that active memories of these scopes have for labels, by name."""
    query = (
        select(_x.c.labels)
        .join(_m, _m.c.doc == _x.c.doc)
        .where(_x.c.scope_id.in_(list(scope_ids)), _m.c.state == "active", _x.c.labels != "{}")
        .distinct()
    )
    values: dict[str, set[str]] = {name: set() for name in names}
    for labels in connection.execute(query).scalars():
        for name, value in json.loads(labels).items():
            if name in values:
                values[name].add(value)
    return values


def about_subjects(
    connection: Connection, scope_ids: Sequence[int], subjects: Collection[str], *, most: int
) -> list[int]:
    """Return the active memories of these scopes about one of `subjects`, newest first."""
    digests = [text_digest("subject", subject) for subject in subjects]
    query = (
        select(_x.c.doc)
        .join(_m, _m.c.doc == _x.c.doc)
        .where(
            _x.c.scope_id.in_(list(scope_ids)),
            _x.c.subject.in_(digests),
            _m.c.state == "active",
        )
    )
    return list(connection.execute(query.order_by(_x.c.doc.desc()).limit(most)).scalars())


def active_docs(
    connection: Connection,
    scope_ids: Sequence[int],
    *,
    now: int,
    kinds: Sequence[str] = (),
    tags: Sequence[str] = (),
    speaker: str | None = None,
    source_type: str | None = None,
    since: int | None = None,
    until: int | None = None,
) -> list[int]:
    """Return the active memories of these scopes that have not expired at `now` and pass every
    filter, newest first.

    Times are those at which it was said or happened, else remembered: from `since` up to `until`.
    """
    at = func.coalesce(_m.c.occurred_at, _m.c.created_at)
    query = select(_m.c.doc).where(
        _m.c.scope_id.in_(list(scope_ids)),
        _m.c.state == "active",
        or_(_m.c.expires_at.is_(None), _m.c.expires_at > now),
    )
    if kinds:
        query = query.where(_m.c.kind.in_(list(kinds)))
    if speaker is not None:
        query = query.join(_x, _x.c.doc == _m.c.doc).where(_x.c.speaker == speaker)
    if source_type is not None:
        of_type = select(_ms.c.doc).join(_s, _s.c.id == _ms.c.source_id)
        query = query.where(_m.c.doc.in_(of_type.where(_s.c.source_type == source_type)))
    if since is not None:
        query = query.where(at >= since)
    if until is not None:
        query = query.where(at < until)
    docs = list(connection.execute(query.order_by(_m.c.doc.desc())).scalars())
    if not tags:
        return docs
    fitting = find_tagged(connection, scope_ids, tags)
    return [doc for doc in docs if doc in fitting]


def from_source(connection: Connection, scope_ids: Sequence[int], source: str) -> set[int]:
    """Return the memories derived from a source of these scopes, named by its id or its address."""
    query = (
        select(_ms.c.doc)
        .join(_s, _s.c.id == _ms.c.source_id)
        .where(_s.c.scope_id.in_(list(scope_ids)), or_(_s.c.id == source, _s.c.uri == source))
    )
    return set(connection.execute(query).scalars())


def docs_missing_vectors(
    connection: Connection,
    fingerprint: str,
    *,
    scope_id: int,
    after: int,
    limit: int | None,
    local_embedder: bool = True,
    beside_jobs: bool = False,
) -> list[int]:
    """Return the findable memories of a scope above the number `after` that have no vector of this
    embedder yet, in order.

    Those that must not leave the machine are left out unless the embedder is a local one. Those
    whose embedding is a job that waits, failed or died are left to the job queue, but for
    `beside_jobs`.
    """
    query = (
        select(_x.c.doc)
        .where(_x.c.scope_id == scope_id, _x.c.doc > after)
        .where(_lacks_vector(fingerprint, local_embedder, beside_jobs))
        .order_by(_x.c.doc)
        .limit(limit)
    )
    return [row.doc for row in connection.execute(query)]


def scopes_missing_vectors(
    connection: Connection,
    fingerprint: str,
    *,
    local_embedder: bool = True,
    beside_jobs: bool = False,
) -> list[int]:
    """Return the scopes with memories that `docs_missing_vectors` returns, in order."""
    lacks = _lacks_vector(fingerprint, local_embedder, beside_jobs)
    lacking = exists().where(_x.c.scope_id == _sc.c.id, lacks)
    return list(connection.execute(select(_sc.c.id).where(lacking).order_by(_sc.c.id)).scalars())


def _lacks_vector(fingerprint: str, local_embedder: bool, beside_jobs: bool) -> ColumnElement[bool]:
    has_vector = exists().where(_v.c.doc == _x.c.doc, _v.c.fingerprint == fingerprint)
    jobs = tables.jobs
    has_job = exists().where(
        _m.c.doc == _x.c.doc,
        jobs.c.subject_id == _m.c.id,
        jobs.c.kind == EMBED,
        jobs.c.version.in_((0, _m.c.version)),
        jobs.c.state.not_in(("done", "empty")),
    )
    condition = and_(_x.c.words.is_not(None), ~has_vector)
    if not beside_jobs:
        condition = and_(condition, ~has_job)
    return condition if local_embedder else and_(condition, _x.c.marks.op("&")(LOCAL_ONLY) == 0)


def without_vector(connection: Connection, fingerprint: str, docs: Sequence[int]) -> dict[int, int]:
    """Return those of `docs` that are findable and have no vector of this embedder, each with the
    version of its memory.
    """
    values = {"docs": integer_list(connection, docs), "fingerprint": fingerprint}
    return dict(_WITHOUT_VECTOR(connection, values))


@dataclass(frozen=True)
class Point:
    """A stored vector with the version that it belongs to."""

    doc: int
    scope_id: int
    version: int
    vector: bytes


def page_of_points(
    connection: Connection,
    fingerprint: str,
    *,
    after: int,
    most: int,
    scope_ids: Collection[int] | None = None,
    docs: Sequence[int] | None = None,
) -> list[Point]:
    """Return a page of the current vectors of one embedder with a number above `after`, in order:
    of some scopes or memories, or of all.
    """
    query = (
        select(_v.c.doc, _v.c.scope_id, _v.c.version, _v.c.vector)
        .where(_v.c.fingerprint == fingerprint, _v.c.doc > after)
        .order_by(_v.c.doc)
        .limit(most)
    )
    if scope_ids is not None:
        query = query.where(_v.c.scope_id.in_(list(scope_ids)))
    if docs is not None:
        query = query.where(_v.c.doc.in_(list(docs)))
    return [
        Point(row.doc, row.scope_id, row.version, bytes(row.vector))
        for row in connection.execute(query)
    ]


def large_scopes(
    connection: Connection, *, above: int, among: Sequence[int] | None = None
) -> set[int]:
    """Return the scopes with more than `above` memories that are findable or once were, of all or
    among some.
    """
    query = select(_x.c.scope_id).group_by(_x.c.scope_id).having(func.count() > above)
    if among is not None:
        query = query.where(_x.c.scope_id.in_(list(among)))
    return set(connection.execute(query).scalars())


def count_points(
    connection: Connection, fingerprint: str, *, scope_ids: Collection[int] | None = None
) -> int:
    """Return the number of vectors of one embedder, of some scopes or of all."""
    query = select(func.count()).select_from(_v).where(_v.c.fingerprint == fingerprint)
    if scope_ids is not None:
        query = query.where(_v.c.scope_id.in_(list(scope_ids)))
    return int(connection.execute(query).scalar() or 0)


def count_some(
    connection: Connection, fingerprint: str, scope_ids: Sequence[int], *, most: int
) -> int:
    """Return the number of vectors of these scopes of one embedder, counting up to `most`."""
    some = (
        select(_v.c.doc)
        .where(_v.c.scope_id.in_(list(scope_ids)), _v.c.fingerprint == fingerprint)
        .limit(most)
        .subquery()
    )
    return int(connection.execute(select(func.count()).select_from(some)).scalar_one())


def points(connection: Connection, fingerprint: str, docs: Sequence[int]) -> list[Point]:
    """Return the current vectors of `docs` of one embedder; those without one are left out."""
    return page_of_points(connection, fingerprint, after=-1, most=len(docs), docs=docs)
