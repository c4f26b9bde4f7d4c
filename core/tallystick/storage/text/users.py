"""Rows of one user, in every table: what an erasure destroys, and what it hands over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, delete, exists, func, select, update
from sqlalchemy.sql.elements import ColumnElement

from tallystick.records import Scope, SourceRef
from tallystick.storage.engine import tables, texts
from tallystick.storage.rows import access_tokens, documents, parts
from tallystick.storage.rows.journal import WITH_ROW_TEXTS, run_stream

_t = tables
_PAGE = 500
_RUN, _THREAD = run_stream(""), "thread:"
_KEPT = ("runs", "steps", "step_entries", "threads", "memories", "sources", "parts")
"""Tables of a scope whose rows go, or are emptied, by rules of their own."""

_BY_CREATOR = ("working", "synthesis_runs")
"""Tables whose rows in scopes of others go with who made them."""


class User(NamedTuple):
    """A user, as identities name one: the same id in two organizations is two users."""

    id: str
    organization: str | None = None

    def owns(self, scope: Scope) -> bool:
        """Return True for a scope that belongs to the user alone."""
        diary = scope.diary_of
        return scope.organization == self.organization and (
            (scope.kind == "private" and scope.key == self.id)
            or (diary is not None and diary.user == self.id)
        )

    def is_in(self, text: str | None, *path: str) -> bool:
        """Return True if an identity that is stored as JSON, or one within it, is of the user."""
        value: Any = None if text is None else json.loads(text)
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return isinstance(value, dict) and self == (value.get("user"), value.get("organization"))


@dataclass(frozen=True)
class UserRows:
    """The rows of one user. Memories are by number."""

    scope_ids: tuple[int, ...]
    """The scopes that belong to the user alone."""
    around: tuple[int, ...]
    """The other scopes of the user's organization."""
    private: tuple[int, ...]
    """The memories of these scopes that have their text."""
    authored: tuple[int, ...]
    """The memories that the user wrote in scopes of others."""
    runs: tuple[str, ...]
    threads: tuple[int, ...]
    tokens: tuple[str, ...]
    proposals: tuple[str, ...]
    approvals: tuple[str, ...]
    entries: tuple[int, ...]
    """Entries of journals that have what the user wrote beside them."""
    rows: dict[str, int]
    """The number of the other rows that go, by table."""


def rows_of(connection: Connection, user: User) -> UserRows:
    """Return the rows of a user in every scope."""
    named = {
        row.id: Scope.parse(row.name)
        for row in connection.execute(select(_t.scopes.c.id, _t.scopes.c["name"]))
    }
    ids = tuple(sorted(number for number, scope in named.items() if user.owns(scope)))
    around = tuple(
        sorted(
            number
            for number, scope in named.items()
            if scope.organization == user.organization and number not in ids
        )
    )
    begun, entries = _list_user_entries(connection, user, ids)
    return UserRows(
        scope_ids=ids,
        around=around,
        private=_memories(connection, _t.memories.c.scope_id.in_(ids)),
        authored=_memories(
            connection,
            (_t.memories.c.created_by == user.id) & _t.memories.c.scope_id.in_(around),
        ),
        runs=tuple(
            sorted(
                {
                    *_ids(connection, _t.runs.c.id, _t.runs.c.scope_id.in_(ids)),
                    *(name.removeprefix(_RUN) for name in begun if name.startswith(_RUN)),
                }
            )
        ),
        threads=tuple(
            sorted(
                {
                    *_ids(connection, _t.threads.c.id, _t.threads.c.scope_id.in_(ids)),
                    *_threads_of(connection, begun),
                }
            )
        ),
        tokens=tuple(
            token.id
            for token in access_tokens.all_tokens(connection)
            if (token.actor.user, token.actor.organization) == user
        ),
        proposals=_by_identity(connection, _t.proposals.c.created_by, user, ids),
        approvals=_by_identity(connection, _t.approvals.c.asked_by, user, ids),
        entries=entries,
        rows={
            table.name: count
            for table, condition in _others(connection, user, ids, around)
            if (count := _count(connection, table, condition))
        },
    )


def _memories(connection: Connection, condition: ColumnElement[bool]) -> tuple[int, ...]:
    versions = _t.memory_versions
    has_text = exists().where(versions.c.doc == _t.memories.c.doc, versions.c.body.is_not(None))
    return tuple(_ids(connection, _t.memories.c.doc, condition & has_text))


def _ids(connection: Connection, column: Column[Any], condition: ColumnElement[bool]) -> list[Any]:
    return list(connection.execute(select(column).where(condition).order_by(column)).scalars())


def _count(connection: Connection, table: Any, condition: ColumnElement[bool]) -> int:
    query = select(func.count()).select_from(table).where(condition)
    return int(connection.execute(query).scalar_one())


def _list_user_entries(
    connection: Connection, user: User, scope_ids: Sequence[int]
) -> tuple[set[str], tuple[int, ...]]:
    """Return the journals that the user began, and the entries with texts that the user wrote."""
    begun: set[str] = set()
    entries: list[int] = []
    own = {
        f"scope:{name}"
        for name in _ids(connection, _t.scopes.c["name"], _t.scopes.c.id.in_(scope_ids))
    }
    columns = _t.journal.c
    query = select(
        columns.sequence,
        columns.stream,
        columns.position,
        columns.event,
        columns.body,
        columns.texts.is_not(None).label("has_texts"),
    )
    for row in connection.execute(query):
        is_actor = user.is_in(row.body, "actor")
        if is_actor and row.position == 0:
            begun.add(row.stream)
        if row.has_texts and (is_actor or row.stream in own) and row.event not in WITH_ROW_TEXTS:
            entries.append(row.sequence)
    return begun, tuple(entries)


def _threads_of(connection: Connection, streams: Iterable[str]) -> Iterator[int]:
    known = set(connection.execute(select(_t.threads.c.id)).scalars())
    for stream in streams:
        number = stream.removeprefix(_THREAD)
        if stream.startswith(_THREAD) and number.isdigit() and int(number) in known:
            yield int(number)


def _by_identity(
    connection: Connection, column: Column[Any], user: User, scope_ids: Sequence[int]
) -> tuple[str, ...]:
    """Return the rows of other scopes that have text and that the user caused."""
    table = column.table
    has_text = table.c[next(iter(texts.erased_values(table)))].is_not(None)
    query = select(table.c.id, column).where(table.c.scope_id.not_in(scope_ids), has_text)
    return tuple(sorted(row[0] for row in connection.execute(query) if user.is_in(row[1])))


def _others(
    connection: Connection, user: User, scope_ids: Sequence[int], around: Sequence[int]
) -> Iterator[tuple[Any, ColumnElement[bool]]]:
    """Yield the tables whose rows go as they are, with the condition for those of the user."""
    for table in reversed(_t.metadata.sorted_tables):
        if table.name == "access_log":
            yield table, table.c.id.in_(_reads(connection, user))
        elif "scope_id" in table.c and table.name not in _KEPT:
            condition = table.c.scope_id.in_(scope_ids)
            if table.name in _BY_CREATOR:
                condition |= (table.c.created_by == user.id) & table.c.scope_id.in_(around)
            if table.name == "synthesis_quotes":
                runs = _t.synthesis_runs
                made = (runs.c.created_by == user.id) & runs.c.scope_id.in_(around)
                condition |= table.c.run_id.in_(select(runs.c.id).where(made))
            if table.name != "tree_parts":
                yield table, condition


def _reads(connection: Connection, user: User) -> list[int]:
    log = _t.access_log
    rows = connection.execute(select(log.c.id, log.c.actor))
    return [row.id for row in rows if user.is_in(row.actor)]


def remove(tx: Connection, rows: UserRows, user: User) -> None:
    """Remove the rows of a user that stand by themselves, and what the user wrote beside entries;
    memories, runs and threads went before.
    """
    for start in range(0, len(rows.entries), _PAGE):
        page = _t.journal.c.sequence.in_(rows.entries[start : start + _PAGE])
        tx.execute(update(_t.journal).where(page).values(texts.erased_values(_t.journal)))
    tx.execute(delete(_t.access_tokens).where(_t.access_tokens.c.id.in_(rows.tokens)))
    for table, condition in list(_others(tx, user, rows.scope_ids, rows.around)):
        if table.name == "communities":
            members = _t.community_members
            inside = select(table.c.id).where(condition)
            tx.execute(delete(members).where(members.c.community_id.in_(inside)))
        tx.execute(delete(table).where(condition))
    loose = ~exists().where(_t.memory_sources.c.source_id == _t.sources.c.id)
    tx.execute(delete(_t.sources).where(_t.sources.c.scope_id.in_(rows.scope_ids), loose))
    for scope_id, key in parts.list_orphans(tx):
        if scope_id in rows.scope_ids:
            parts.drop(tx, scope_id, key)


def hand_over(tx: Connection, docs: Sequence[int], user: User) -> None:
    """Let memories of shared scopes, and their sources, belong to the scope instead of the user."""
    memories, sources, links = _t.memories, _t.sources, _t.memory_sources
    owner = select(_t.scopes.c["name"]).where(_t.scopes.c.id == memories.c.scope_id)
    for start in range(0, len(docs), _PAGE):
        page = docs[start : start + _PAGE]
        tx.execute(
            update(memories)
            .where(memories.c.doc.in_(page))
            .values(created_by=owner.scalar_subquery())
        )
        documents.hand_over(tx, page, user.id)
        linked = select(links.c.source_id).where(links.c.doc.in_(page))
        rows = tx.execute(
            select(sources.c.id, sources.c.reference, _t.scopes.c["name"])
            .join(_t.scopes, _t.scopes.c.id == sources.c.scope_id)
            .where(sources.c.id.in_(linked), sources.c.created_by == user.id)
        ).all()
        for row in rows:
            reference = SourceRef.loads(row.reference)
            if reference.author == user.id:
                reference = reference.model_copy(update={"author": None})
            tx.execute(
                update(sources)
                .where(sources.c.id == row.id)
                .values(created_by=row.name, reference=reference.dumps())
            )
