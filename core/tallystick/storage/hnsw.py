"""The HNSW index: vectors of large scopes in a table of pgvector's `halfvec`, on PostgreSQL.

It is derived from the vectors of one embedder, and made where the setting `vector_search` asks for
it rather than by a migration: the extension is not everywhere. The table is partitioned by hash of
scope, each partition with an index of its own, so that a search goes through one of them.

A trigger keeps it in step with the table of vectors, whichever process or release writes that: a
vector that is removed leaves the index in the same transaction, and the memory of a new one waits
until the background brings it in, as an insert into the index costs more than the rest of a write.
So in every snapshot each vector of an indexed scope is in the index or waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection

from tallystick.errors import SettingsError, StorageError
from tallystick.storage import search
from tallystick.storage.database import Database
from tallystick.storage.dialects import is_postgres
from tallystick.storage.prepared import Prepared

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PREFIX = "hnsw_"
_PARTITIONS = 16
_MOST_NUMBERS = 4_000
"""The longest vectors of which pgvector makes an index as `halfvec`."""
_OLDEST = (0, 8)
"""The release of pgvector from which on a search goes on where a filter left too few."""
_EF_SEARCH = 800
"""The candidates that a search keeps at least: with the server's default of 40 a question for more
got 40.
"""
_EF_SEARCH_MOST = 1_000
_SCANNED = 20_000
"""The vectors that a search goes through at most, those of other scopes in its partition included.
"""


class HnswIndex(NamedTuple):
    """The index that is there."""

    fingerprint: str
    """The embedder whose vectors it has."""
    dimension: int
    schema: str
    """Where the extension is, which may be outside of the tally's own schema."""


class Compared(NamedTuple):
    """How the index differs from the vectors of its scopes. What waits is no difference."""

    checked: int
    missing: int
    stale: int
    ghosts: int
    """In the index and not among the vectors."""
    partitions: int
    """Partitions that have no valid index."""


_ABOUT = """
CREATE TABLE hnsw_about (fingerprint text NOT NULL, dimension integer NOT NULL)
"""
_SCOPES = """
CREATE TABLE hnsw_scopes (scope_id bigint PRIMARY KEY, is_erased boolean NOT NULL DEFAULT false)
"""
_WAITING = """
CREATE TABLE hnsw_waiting (
    scope_id bigint NOT NULL, doc bigint NOT NULL, PRIMARY KEY (scope_id, doc)
)
"""
_VECTORS = """
CREATE TABLE hnsw_vectors (
    scope_id bigint NOT NULL, doc bigint NOT NULL, slice integer NOT NULL,
    version integer NOT NULL, embedding {schema}.halfvec({dimension}) NOT NULL,
    PRIMARY KEY (scope_id, doc, slice)
) PARTITION BY HASH (scope_id)
"""
_PARTITION = """
CREATE TABLE hnsw_vectors_{number} PARTITION OF hnsw_vectors
FOR VALUES WITH (MODULUS {count}, REMAINDER {number})
"""
_INDEX = """
CREATE INDEX hnsw_nearest ON hnsw_vectors USING hnsw (embedding {schema}.halfvec_cosine_ops)
"""
# What waits is removed before what is in the index. The background holds the row of what waits
# while it brings a vector in: a removal that comes meanwhile waits there, and its second statement,
# which has a snapshot of its own, then sees the vector. In the other order it would miss it, and
# leave in the index what was forgotten.
_FOLLOW = """
CREATE FUNCTION hnsw_follow() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND EXISTS (
        SELECT FROM hnsw_about WHERE fingerprint = OLD.fingerprint
    ) THEN
        DELETE FROM hnsw_waiting WHERE scope_id = OLD.scope_id AND doc = OLD.doc;
        DELETE FROM hnsw_vectors WHERE scope_id = OLD.scope_id AND doc = OLD.doc;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO hnsw_waiting (scope_id, doc)
        SELECT s.scope_id, NEW.doc FROM hnsw_scopes AS s, hnsw_about AS a
        WHERE s.scope_id = NEW.scope_id AND a.fingerprint = NEW.fingerprint
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$
"""
_TRIGGER = """
CREATE TRIGGER hnsw_follow AFTER INSERT OR UPDATE OR DELETE ON vectors
FOR EACH ROW EXECUTE FUNCTION hnsw_follow()
"""

_IS_THERE = Prepared("SELECT to_regclass('hnsw_about') IS NOT NULL")
_EXTENSION = Prepared(
    "SELECT e.extversion, n.nspname FROM pg_extension AS e "
    "JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
)
_FIND = Prepared(
    "SELECT a.fingerprint, a.dimension, n.nspname FROM hnsw_about AS a "
    "JOIN pg_extension AS e ON e.extname = 'vector' "
    "JOIN pg_namespace AS n ON n.oid = e.extnamespace"
)
_DESCRIBE = Prepared(
    "INSERT INTO hnsw_about (fingerprint, dimension) VALUES (:fingerprint, :dimension)"
)
_SCOPE_IDS = Prepared("SELECT scope_id FROM hnsw_scopes ORDER BY scope_id")
_ADD_SCOPE = Prepared(
    "INSERT INTO hnsw_scopes (scope_id) VALUES (:scope_id) ON CONFLICT DO NOTHING "
    "RETURNING scope_id"
)
_LET_WAIT = Prepared(
    "INSERT INTO hnsw_waiting (scope_id, doc) SELECT scope_id, doc FROM vectors "
    "WHERE scope_id = :scope_id AND fingerprint = :fingerprint ON CONFLICT DO NOTHING"
)
_WAITING_SCOPES = Prepared("SELECT DISTINCT scope_id FROM hnsw_waiting ORDER BY scope_id")
_WAITING_DOCS = Prepared(
    "SELECT w.doc FROM hnsw_scopes AS s LEFT JOIN hnsw_waiting AS w ON w.scope_id = s.scope_id "
    "WHERE s.scope_id = :scope_id LIMIT :most"
)
_TAKE = Prepared(
    "DELETE FROM hnsw_waiting WHERE scope_id = :scope_id AND doc IN ("
    "SELECT doc FROM hnsw_waiting WHERE scope_id = :scope_id AND doc > :after ORDER BY doc "
    "LIMIT :most FOR UPDATE SKIP LOCKED) RETURNING doc"
)
_ADD = Prepared(
    "INSERT INTO hnsw_vectors (scope_id, doc, slice, version, embedding) "
    "VALUES (:scope_id, :doc, :slice, :version, :embedding)"
)
_HAS_VECTORS = Prepared(
    "SELECT 1 FROM hnsw_vectors WHERE scope_id = :scope_id AND doc = :doc LIMIT 1"
)
# In any order: whatever is proposed is scored again, and what comes out of order is not lost.
_TUNE = Prepared(
    "SELECT set_config('hnsw.ef_search', :ef_search, true), "
    "set_config('hnsw.iterative_scan', 'relaxed_order', true), "
    "set_config('hnsw.max_scan_tuples', :most, true)"
)
_PARTITION_OF = Prepared(
    "SELECT number FROM generate_series(0, :partitions - 1) AS number "
    "WHERE satisfies_hash_partition('hnsw_vectors'::regclass, :partitions, number, "
    "CAST(:scope_id AS bigint))"
)
_NOTE_ERASED = Prepared("UPDATE hnsw_scopes SET is_erased = true WHERE scope_id = :scope_id")
_ERASED = Prepared("SELECT scope_id FROM hnsw_scopes WHERE is_erased ORDER BY scope_id")
_NOTE_REMADE = Prepared("UPDATE hnsw_scopes SET is_erased = false WHERE scope_id = :scope_id")
_COMPARE = Prepared(
    "SELECT count(v.doc), "
    "count(*) FILTER (WHERE v.doc IS NOT NULL AND h.doc IS NULL AND w.doc IS NULL), "
    "count(*) FILTER (WHERE v.version <> h.version OR v.slices <> h.slices), "
    "count(*) FILTER (WHERE v.doc IS NULL) "
    "FROM (SELECT doc, version, octet_length(vector) / (2 * :dimension) AS slices FROM vectors "
    "WHERE scope_id = :scope_id AND fingerprint = :fingerprint) AS v "
    "FULL JOIN (SELECT doc, min(version) AS version, count(*) AS slices FROM hnsw_vectors "
    "WHERE scope_id = :scope_id GROUP BY doc) AS h ON h.doc = v.doc "
    "LEFT JOIN (SELECT doc FROM hnsw_waiting WHERE scope_id = :scope_id) AS w ON w.doc = v.doc"
)
_VALID = Prepared(
    "SELECT count(*) FROM pg_inherits AS part "
    "JOIN pg_index AS i ON i.indrelid = part.inhrelid AND i.indisvalid "
    "JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS m ON m.oid = c.relam "
    "WHERE part.inhparent = to_regclass('hnsw_vectors') AND m.amname = 'hnsw'"
)


def is_part(table: str) -> bool:
    """Return True for the name of a table of the index: no backup has it."""
    return table.startswith(_PREFIX)


def install(database: Database) -> None:
    """Let the database have the extension. Raises SettingsError where it cannot."""
    if not database.is_postgres:
        raise SettingsError(
            '`vector_search = "hnsw"` is for a tally on PostgreSQL. Use "auto" or "chroma" here.'
        )
    with database.read() as connection:
        rows = _EXTENSION(connection, {})
    if not rows:
        if database.unwritable is not None:
            return
        try:
            database.write(_create_extension, name="hnsw.extension")
        except StorageError as error:
            # Another process may have made it at the same moment.
            with database.read() as connection:
                rows = _EXTENSION(connection, {})
            if not rows:
                raise SettingsError(
                    '`vector_search = "hnsw"` needs the extension pgvector, and this database '
                    f"has none ({str(error).removesuffix('.')}). Install it on the server and run "
                    "CREATE EXTENSION vector, or use another `vector_search`."
                ) from error
        with database.read() as connection:
            rows = _EXTENSION(connection, {})
    ((version, _),) = rows
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise SettingsError(
            f'`vector_search = "hnsw"` needs pgvector {oldest} or later, and this database has '
            f"{version}. Update it and run ALTER EXTENSION vector UPDATE."
        )


def _create_extension(tx: Connection) -> None:
    # Not in the schema of the tally: others of this database use it too.
    tx.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")


def find(connection: Connection) -> HnswIndex | None:
    """Return the index that is there, or None."""
    if not is_postgres(connection) or not _IS_THERE(connection, {})[0][0]:
        return None
    rows = _FIND(connection, {})
    return HnswIndex(*rows[0]) if rows else None


def make(tx: Connection, fingerprint: str, dimension: int) -> None:
    """Make the index anew, empty, for the vectors of an embedder; those of the scopes that an
    earlier one had wait for it. Raises SettingsError.
    """
    if dimension > _MOST_NUMBERS:
        raise SettingsError(
            f'`vector_search = "hnsw"` takes vectors of up to {_MOST_NUMBERS} numbers, and those '
            f"of {fingerprint} have {dimension}."
        )
    known = scope_ids(tx)
    drop(tx)
    ((_, schema),) = _EXTENSION(tx, {})
    names = {"schema": _quoted(schema), "dimension": dimension, "count": _PARTITIONS}
    statements = [_ABOUT, _SCOPES, _WAITING, _VECTORS.format(**names)]
    statements += [_PARTITION.format(number=number, **names) for number in range(_PARTITIONS)]
    for statement in (*statements, _INDEX.format(**names), _FOLLOW, _TRIGGER):
        tx.exec_driver_sql(statement)
    _DESCRIBE(tx, {"fingerprint": fingerprint, "dimension": dimension})
    for scope_id in known:
        add_scope(tx, scope_id, fingerprint)


def drop(tx: Connection) -> None:
    """Remove the index; the extension stays."""
    tx.exec_driver_sql("DROP FUNCTION IF EXISTS hnsw_follow() CASCADE")
    tx.exec_driver_sql("DROP TABLE IF EXISTS hnsw_vectors, hnsw_waiting, hnsw_scopes, hnsw_about")


def scope_ids(connection: Connection) -> list[int]:
    """Return the scopes that the index has; none where there is no index."""
    if not is_postgres(connection) or not _IS_THERE(connection, {})[0][0]:
        return []
    return [scope_id for (scope_id,) in _SCOPE_IDS(connection, {})]


def add_scope(tx: Connection, scope_id: int, fingerprint: str) -> None:
    """Take a scope into the index: all of its vectors wait for it. The unit has declared the
    scope, so that nobody writes a vector there meanwhile.
    """
    if _ADD_SCOPE(tx, {"scope_id": scope_id}):
        _LET_WAIT(tx, {"scope_id": scope_id, "fingerprint": fingerprint})


def waiting_scopes(connection: Connection) -> list[int]:
    """Return the scopes with memories that wait for the index."""
    return [scope_id for (scope_id,) in _WAITING_SCOPES(connection, {})]


def waiting(connection: Connection, scope_id: int, *, most: int) -> list[int] | None:
    """Return memories of a scope that wait for the index, up to `most`; None for a scope that the
    index does not have.
    """
    rows = _WAITING_DOCS(connection, {"scope_id": scope_id, "most": most})
    return [doc for (doc,) in rows if doc is not None] if rows else None


def bring_in(
    tx: Connection, index: HnswIndex, scope_id: int, *, after: int, most: int
) -> list[int]:
    """Bring vectors of memories that wait into the index, each slice of a text as a row; return the
    memories, with numbers above `after`, in order. Those that another transaction changes or brings
    in are passed over.
    """
    rows = _TAKE(tx, {"scope_id": scope_id, "after": after, "most": most})
    docs = sorted(doc for (doc,) in rows)
    if not docs:
        return []
    values: list[dict[str, Any]] = [
        {
            "scope_id": point.scope_id,
            "doc": point.doc,
            "slice": number,
            "version": point.version,
            "embedding": embedding,
        }
        for point in search.points(tx, index.fingerprint, docs)
        for number, embedding in enumerate(_slices(point.vector, index.dimension))
    ]
    if values:
        _ADD(tx, values)
    return docs


def analyze(tx: Connection, scope_id: int) -> None:
    """Let the planner know the partition of a scope: without figures it takes a scope for a few
    rows, and sorts all of them.
    """
    tx.exec_driver_sql(f"ANALYZE hnsw_vectors_{_partition_of(tx, scope_id)}")


def nearest(
    connection: Connection,
    index: HnswIndex,
    scope_id: int,
    vector: NDArray[np.float32],
    *,
    most: int,
) -> list[int]:
    """Return the memories of a scope whose slices are the `most` nearest that the index finds, each
    once.
    """
    ef_search = min(max(_EF_SEARCH, most), _EF_SEARCH_MOST)
    _TUNE(connection, {"ef_search": str(ef_search), "most": str(_SCANNED)})
    values = {"scope_id": scope_id, "vector": _literal(vector.tolist()), "most": most}
    return list(dict.fromkeys(doc for (doc,) in _nearest(index.schema)(connection, values)))


@cache
def _nearest(schema: str) -> Prepared:
    return Prepared(
        "SELECT doc FROM hnsw_vectors WHERE scope_id = :scope_id "
        f"ORDER BY embedding OPERATOR({_quoted(schema)}.<=>) :vector LIMIT :most"
    )


def has_vectors(connection: Connection, scope_id: int, doc: int) -> bool:
    """Return True if the index has a vector of a memory."""
    if find(connection) is None:
        return False
    return bool(_HAS_VECTORS(connection, {"scope_id": scope_id, "doc": doc}))


def note_erased(tx: Connection, within: Iterable[int]) -> None:
    """Note that text of these scopes is erased. Their vectors left the index; what its files keep
    of them leaves by `start_over_erased`.
    """
    if find(tx) is not None:
        for scope_id in sorted(set(within)):
            _NOTE_ERASED(tx, {"scope_id": scope_id})


def start_over_erased(tx: Connection) -> None:
    """Empty the partitions of which something was erased, so that their files are new; the vectors
    that are left wait.
    """
    index = find(tx)
    if index is None:
        return
    erased = [scope_id for (scope_id,) in _ERASED(tx, {})]
    emptied = {_partition_of(tx, scope_id) for scope_id in erased}
    for number in sorted(emptied):
        tx.exec_driver_sql(f"TRUNCATE hnsw_vectors_{number}")
    for scope_id in scope_ids(tx):
        if _partition_of(tx, scope_id) in emptied:
            values = {"scope_id": scope_id, "fingerprint": index.fingerprint}
            _LET_WAIT(tx, values)
            _NOTE_REMADE(tx, {"scope_id": scope_id})


def compare(connection: Connection, index: HnswIndex) -> Compared:
    """Compare the index with the vectors of its scopes, by memory, version and slices."""
    ((valid,),) = _VALID(connection, {})
    counts = [0, 0, 0, 0]
    for scope_id in scope_ids(connection):
        values = {
            "scope_id": scope_id,
            "fingerprint": index.fingerprint,
            "dimension": index.dimension,
        }
        (row,) = _COMPARE(connection, values)
        counts = [count + of_scope for count, of_scope in zip(counts, row, strict=True)]
    checked, missing, stale, ghosts = counts
    return Compared(checked, missing, stale, ghosts, _PARTITIONS - int(valid))


def _partition_of(connection: Connection, scope_id: int) -> int:
    values = {"scope_id": scope_id, "partitions": _PARTITIONS}
    ((number,),) = _PARTITION_OF(connection, values)
    return int(number)


def _slices(blob: bytes, dimension: int) -> list[str]:
    """Return the vectors of a blob as pgvector reads them."""
    import numpy as np

    rows = np.frombuffer(blob, dtype="<f2").reshape(-1, dimension)
    return [_literal(row) for row in rows.tolist()]


def _literal(numbers: Sequence[float]) -> str:
    # Five digits are more than sixteen bits have.
    return f"[{','.join(map('{:.5g}'.format, numbers))}]"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
