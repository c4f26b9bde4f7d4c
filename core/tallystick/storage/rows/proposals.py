"""Rows of proposals: what extraction and reflection suggest, and what became of each. What may be
applied is decided above.

Every change names the states that it starts from, so that two writers never both make it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select, tuple_, update
from sqlalchemy.sql.elements import ColumnElement

from tallystick.records import JsonObject, Proposal, ProposalContent, ProposalState, Scope
from tallystick.storage.engine import containment, tables, texts
from tallystick.storage.engine.prepared import Prepared, integer_list, row_of, text_list
from tallystick.storage.rows import scopes
from tallystick.storage.rows.scopes import ScopeRow

_t = tables.proposals
# Asked at each recall: built once.
_ABOUT = Prepared(
    "SELECT id FROM proposals WHERE target_id IN (SELECT value FROM json_each(:targets)) AND "
    "scope_id IN (SELECT value FROM json_each(:scopes)) AND state IN ('pending', 'deferred') AND "
    "action IN ('UPDATE', 'END', 'CONTRADICTS')"
)
_APPLIED_SINCE = Prepared(
    "SELECT id FROM proposals WHERE scope_id IN (SELECT value FROM json_each(:scopes)) AND "
    "state = 'applied' AND decided_at > :since ORDER BY created_at, id"
)
_BATCH = 500


class StoredProposal(NamedTuple):
    """A proposal and the row of its scope."""

    record: Proposal
    scope: ScopeRow


def add(tx: Connection, proposal: Proposal, *, scope: ScopeRow) -> None:
    """Insert a new proposal."""
    row = row_of(
        _t,
        proposal,
        scope_id=scope.id,
        payload=None if proposal.content is None else proposal.content.dumps(),
        sources=json.dumps(proposal.sources),
        derived_from=json.dumps(proposal.derived_from),
        target_id=proposal.target,
        made_id=proposal.made,
        created_by=json.dumps(proposal.created_by),
        decided_by=_json(proposal.decided_by),
    )
    tx.execute(insert(_t), row)


def find(connection: Connection, proposal_id: str) -> StoredProposal | None:
    """Return one proposal of any scope, or None: the caller decides who may see it."""
    row = connection.execute(select(_t).where(_t.c.id == proposal_id)).mappings().first()
    return None if row is None else _load_proposal(connection, row)


def of_scope(
    connection: Connection,
    scope: Scope,
    states: Sequence[ProposalState] = (),
    *,
    limit: int,
    after: tuple[int, str] | None = None,
) -> list[StoredProposal]:
    """Return the proposals of a scope, in some states or any, oldest first; `after` is the moment
    and the id of the last one of the page before.
    """
    rows = scopes.find(connection, [scope])
    if not rows:
        return []
    query = select(_t).where(_t.c.scope_id == rows[0].id)
    if states:
        query = query.where(_t.c.state.in_(list(states)))
    if after is not None:
        query = query.where(tuple_(_t.c.created_at, _t.c.id) > tuple_(*after))
    query = query.order_by(_t.c.created_at, _t.c.id).limit(limit)
    return [_load_proposal(connection, row) for row in connection.execute(query).mappings()]


def of_memories(connection: Connection, memory_ids: Sequence[str]) -> list[StoredProposal]:
    """Return the proposals that were drawn from one of these memories, are about one as their
    target, or made one; oldest first.
    """
    wanted = set(memory_ids)
    if not wanted:
        return []
    rows = connection.execute(select(_t.c.id, _t.c.derived_from, _t.c.target_id, _t.c.made_id))
    ids = [
        row.id
        for row in rows
        if not wanted.isdisjoint((row.target_id, row.made_id, *json.loads(row.derived_from)))
    ]
    return _in_pages(connection, ids)


def about_targets(
    connection: Connection, scope_ids: Sequence[int], memory_ids: Sequence[str]
) -> list[StoredProposal]:
    """Return the proposals of these scopes that wait and would replace, end or contradict one of
    these memories, newest first.
    """
    rows = _ABOUT(
        connection,
        {
            "targets": text_list(connection, memory_ids),
            "scopes": integer_list(connection, scope_ids),
        },
    )
    return _in_pages(connection, [str(row[0]) for row in rows])[::-1]


def applied_since(
    connection: Connection, scope_ids: Sequence[int], since: int
) -> list[StoredProposal]:
    """Return the proposals of these scopes that were applied after a moment, oldest first."""
    values = {"scopes": integer_list(connection, scope_ids), "since": since}
    return _in_pages(connection, [str(row[0]) for row in _APPLIED_SINCE(connection, values)])


def without_words(connection: Connection, scope_id: int, *, limit: int) -> list[StoredProposal]:
    """Return the newest changes of a scope that an agent gave and that wait for the turn which says
    so.
    """
    query = (
        select(_t)
        .where(
            _t.c.scope_id == scope_id,
            _t.c.state == "pending",
            _t.c.reason == "span_missing",
            _t.c.origin == "agent",
        )
        .order_by(_t.c.created_at.desc(), _t.c.id.desc())
        .limit(limit)
    )
    return [_load_proposal(connection, row) for row in connection.execute(query).mappings()]


def in_scopes(connection: Connection, scope_ids: Sequence[int]) -> list[StoredProposal]:
    """Return the proposals of these scopes that still have words, oldest first."""
    texts = _t.c.payload.is_not(None) | _t.c.decided_reason.is_not(None)
    return _having(connection, _t.c.scope_id.in_(scope_ids) & texts)


def without_source(connection: Connection) -> list[StoredProposal]:
    """Return the proposals with words of which a memory that they were drawn from has no text."""
    query = select(_t.c.id, _t.c.derived_from).where(_t.c.payload.is_not(None))
    origins = {row.id: json.loads(row.derived_from) for row in connection.execute(query)}
    memories, versions = tables.memories, tables.memory_versions
    living = set(
        connection.execute(
            select(memories.c.id).join(versions).where(versions.c.body.is_not(None))
        ).scalars()
        if origins
        else ()
    )
    ids = [each for each, drawn in origins.items() if not living.issuperset(drawn)]
    return _in_pages(connection, ids)


def _in_pages(connection: Connection, ids: Sequence[str]) -> list[StoredProposal]:
    return [
        stored
        for start in range(0, len(ids), _BATCH)
        for stored in _having(connection, _t.c.id.in_(ids[start : start + _BATCH]))
    ]


def has_made(connection: Connection, scope_id: int, memory_id: str) -> bool:
    """Return True if a person accepted a proposal of this scope that became this memory."""
    query = select(_t.c.id).where(
        _t.c.scope_id == scope_id,
        _t.c.made_id == memory_id,
        # Applied is what no person looked at.
        _t.c.state.in_(("accepted", "edited")),
    )
    return connection.execute(query.limit(1)).first() is not None


def move(
    tx: Connection,
    proposal_id: str,
    *,
    before: Sequence[ProposalState],
    after: ProposalState,
    decided_by: JsonObject | None = None,
    content: ProposalContent | None = None,
    made: str | None = None,
    **columns: Any,
) -> bool:
    """Move a proposal from one of some states to another and set columns; False if it is in a state
    that is not among them.
    """
    values = dict(columns)
    if decided_by is not None:
        values["decided_by"] = json.dumps(decided_by)
    if content is not None:
        values["payload"] = content.dumps()
    if made is not None:
        values["made_id"] = made
    changed = tx.execute(
        update(_t)
        .where(_t.c.id == proposal_id, _t.c.state.in_(list(before)))
        .values(state=after, **values)
    )
    return bool(changed.rowcount)


def with_text(
    connection: Connection, needles: Sequence[bytes], *, within: Sequence[int] | None
) -> list[StoredProposal]:
    """Return the proposals whose words, or the reason that a person gave, contain one of `needles`,
    in these scopes or, for None, in all.
    """
    if not needles:
        return []
    return _having(connection, containment.holds(connection, _t, needles, within))


def withdraw(tx: Connection, proposal_ids: Iterable[str], *, at: int) -> None:
    """Remove the words of proposals and the reasons that people gave; those that still wait are
    withdrawn.
    """
    chosen = _t.c.id.in_(list(proposal_ids))
    tx.execute(update(_t).where(chosen).values(texts.erased_values(_t)))
    waiting = chosen & _t.c.state.in_(["pending", "deferred"])
    ended = {"state": "withdrawn", "reason": "source_gone", "decided_at": at}
    tx.execute(update(_t).where(waiting).values(ended))


def _having(connection: Connection, condition: ColumnElement[bool]) -> list[StoredProposal]:
    query = select(_t).where(condition).order_by(_t.c.created_at, _t.c.id)
    return [_load_proposal(connection, row) for row in connection.execute(query).mappings()]


def _json(value: JsonObject | None) -> str | None:
    return None if value is None else json.dumps(value)


def _load_proposal(connection: Connection, row: Any) -> StoredProposal:
    fields = dict(row)
    scope = scopes.get_by_id(connection, fields.pop("scope_id"))
    payload, decided_by = fields.pop("payload"), fields["decided_by"]
    fields |= {
        "scope": scope.scope,
        "content": None if payload is None else json.loads(payload),
        "sources": json.loads(fields["sources"]),
        "derived_from": json.loads(fields["derived_from"]),
        "target": fields.pop("target_id"),
        "made": fields.pop("made_id"),
        "created_by": json.loads(fields["created_by"]),
        "decided_by": None if decided_by is None else json.loads(decided_by),
    }
    return StoredProposal(Proposal.load(fields), scope)
