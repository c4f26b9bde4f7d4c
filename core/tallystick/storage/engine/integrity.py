"""Rows that the checks of a tally read: of the database file, the streams of the journal, stored
versions and the gaps of runs.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection, select

from tallystick.errors import CorruptTally
from tallystick.records import commitment
from tallystick.storage.engine import tables
from tallystick.storage.engine.dialects import is_pooled, is_postgres

_v, _r, _st, _a = tables.memory_versions, tables.runs, tables.streams, tables.anchors
_j, _m, _x = tables.journal, tables.memories, tables.search_text
_PAGE = 500


class RunGaps(NamedTuple):
    """A run and the number of things that could not be recorded in it."""

    run_id: str
    gaps: int


def file_problems(connection: Connection) -> list[str] | None:
    """Return what SQLite reports of its own file: pages that a disk lost, indexes that do not match
    their tables. None where a server keeps the files.
    """
    if is_postgres(connection):
        return None
    lines = connection.exec_driver_sql("PRAGMA integrity_check(20)").scalars().all()
    return [] if lines == ["ok"] else [str(line) for line in lines]


class ServerFacts(NamedTuple):
    """What a PostgreSQL server says of the connection that asks, and of its others."""

    version: str
    role: str
    may_create: bool
    """True if the role may make tables in the schema, as a migration has to."""
    connections: int
    max_connections: int
    idle_timeout: str
    """The time after which the server ends an idle connection; `0` for never."""
    is_pooled: bool = False


def server_facts(connection: Connection) -> ServerFacts | None:
    """Return what the server says of itself; None on SQLite."""
    if not is_postgres(connection):
        return None
    query = (
        "SELECT current_setting('server_version'), current_user::text, "
        "has_schema_privilege(current_schema(), 'CREATE'), "
        "(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), "
        "current_setting('max_connections')::int, "
        "coalesce(current_setting('idle_session_timeout', true), '0')"
    )
    facts = ServerFacts._make([*connection.exec_driver_sql(query).one(), False])
    return facts._replace(is_pooled=is_pooled(connection.connection.dbapi_connection))


def foreign_triggers(connection: Connection) -> list[str]:
    """Return the triggers in the database, each with its table. The schema declares none: whatever
    one writes is nobody's.
    """
    if is_postgres(connection):
        query = (
            "SELECT DISTINCT trigger_name, event_object_table FROM information_schema.triggers "
            "WHERE event_object_schema = current_schema() ORDER BY 1"
        )
    else:
        query = "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' ORDER BY 1"
    return [f"{name} on {table}" for name, table in connection.exec_driver_sql(query)]


def unreadable_text(connection: Connection) -> list[int]:
    """Read every row of the search text; return the memories of those that cannot be read."""
    docs = list(connection.execute(select(_x.c.doc).order_by(_x.c.doc)).scalars())
    pages = [docs[start : start + _PAGE] for start in range(0, len(docs), _PAGE)]
    unreadable: list[int] = []
    while pages:
        page = pages.pop()
        try:
            for row in connection.execute(select(_x).where(_x.c.doc.in_(page))):
                for text in (row.tags, row.labels, row.names or "[]"):
                    json.loads(text)
        except (CorruptTally, ValueError):
            half = len(page) // 2
            if half:
                pages += [page[:half], page[half:]]
            else:
                unreadable += page
    return sorted(unreadable)


def stream_names(connection: Connection) -> list[str]:
    """Return the names of all streams of the journal, in order."""
    return list(connection.execute(select(_st.c["name"]).order_by(_st.c["name"])).scalars())


def purged_entries(connection: Connection) -> list[int]:
    """Return the number of entries that were cut from each stream that has an anchor."""
    return list(connection.execute(select(_a.c["count"])).scalars())


def altered_versions(
    connection: Connection, scope_ids: Collection[int] | None = None
) -> tuple[int, int]:
    """Return how many versions of memories have another text than the one that they commit to, and
    how many still have a text: of these scopes, or of all.
    """
    query = select(_v.c.body, _v.c.salt, _v.c.commitment).where(_v.c.body.is_not(None))
    if scope_ids is not None:
        query = query.join(_m, _m.c.doc == _v.c.doc).where(_m.c.scope_id.in_(list(scope_ids)))
    altered = count = 0
    for row in connection.execute(query):
        count += 1
        digest = commitment("memory-version", bytes(row.salt), row.body.encode())
        altered += digest != row.commitment
    return altered, count


def refused_calls(connection: Connection, reason: str) -> int:
    """Return the number of refusals with this reason code that the journal still contains."""
    bodies = connection.execute(select(_j.c.body).where(_j.c.event == "access.denied")).scalars()
    return sum(json.loads(body).get("reason") == reason for body in bodies)


def runs_with_gaps(connection: Connection) -> list[RunGaps]:
    """Return the runs in which something could not be recorded, newest first."""
    query = select(_r.c.id, _r.c.gaps).where(_r.c.gaps > 0).order_by(_r.c.id.desc())
    return [RunGaps(row.id, row.gaps) for row in connection.execute(query)]
