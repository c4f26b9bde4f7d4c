"""Occurrences: the memory that a text is a second occurrence of, and the next place in a
conversation. Where the number of the scope is known before its lock, they are read with it
(`…_ahead`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, literal_column, select

from tallystick.records import Memory
from tallystick.storage.engine import tables
from tallystick.storage.engine.batches import Read
from tallystick.storage.engine.prepared import Prepared, settle, text_list

_m = tables.memories
_STATEMENT = Prepared(
    select(_m.c.doc, _m.c.id, _m.c.version).where(
        _m.c.scope_id == bindparam("scope_id"),
        _m.c.kind == bindparam("kind"),
        _m.c.content_key == bindparam("content_key"),
        _m.c.state == literal_column("'active'"),
        _m.c.conversation.is_(None),
    )
)
_TURN = Prepared(
    select(_m.c.doc, _m.c.id, _m.c.version, _m.c.content_key, _m.c.state).where(
        _m.c.scope_id == bindparam("scope_id"),
        _m.c.conversation == bindparam("conversation"),
        _m.c.position == bindparam("position"),
    )
)
_LAST_POSITION = Prepared(
    select(func.max(_m.c.position)).where(
        _m.c.scope_id == bindparam("scope_id"), _m.c.conversation == bindparam("conversation")
    )
)

_NEXT_POSITIONS = Prepared(
    "SELECT conversation, coalesce(max(position) + 1, 0) FROM memories WHERE scope_id = :scope_id "
    "AND conversation IN (SELECT value FROM json_each(:conversations)) GROUP BY conversation"
)


class Statement(NamedTuple):
    """A loose memory, which is no turn of a conversation."""

    doc: int
    id: str
    version: int


class Turn(NamedTuple):
    """A memory that is a turn of a conversation."""

    doc: int
    id: str
    version: int
    content_key: str
    state: str


def statement_ahead(scope_id: int, kind: str, content_key: str) -> Read:
    """Return what is read ahead of a unit that calls `find_statement` first."""
    return _STATEMENT, {"scope_id": scope_id, "kind": kind, "content_key": content_key}


def find_statement(tx: Connection, scope_id: int, kind: str, content_key: str) -> Statement | None:
    """Return the active loose memory of this scope with the same content, or None."""
    _, values = statement_ahead(scope_id, kind, content_key)
    rows = _STATEMENT(tx, values)
    return Statement(*rows[0]) if rows else None


def next_position_ahead(scope_id: int, conversation: str) -> Read:
    """Return what is read ahead of a unit that asks for a turn, or for the next place."""
    return _LAST_POSITION, {"scope_id": scope_id, "conversation": conversation}


@dataclass
class Occurrences:
    """The occurrences in a scope, for the transaction that adds memories to it: the end of a
    conversation is read once. Whoever adds one notes it.
    """

    tx: Connection
    scope_id: int
    _ends: dict[str, int] = field(default_factory=dict)
    _statements: set[tuple[str, str]] = field(default_factory=set)

    def find_statement(self, kind: str, content_key: str) -> Statement | None:
        """Return the active loose memory of this scope with the same content, or None."""
        if (kind, content_key) in self._statements:
            settle(self.tx)
        return find_statement(self.tx, self.scope_id, kind, content_key)

    def read_ends(self, conversations: Collection[str]) -> None:
        """Read the ends of several conversations together."""
        names = text_list(self.tx, sorted(conversations))
        values = {"scope_id": self.scope_id, "conversations": names}
        self._ends = dict.fromkeys(conversations, 0) | dict(_NEXT_POSITIONS(self.tx, values))

    def find_turn(self, conversation: str, position: int) -> Turn | None:
        """Return the turn at this position of a conversation, or None."""
        if position >= self.next_position(conversation):
            return None
        settle(self.tx)
        values = {"scope_id": self.scope_id, "conversation": conversation, "position": position}
        rows = _TURN(self.tx, values)
        return Turn(*rows[0]) if rows else None

    def next_position(self, conversation: str) -> int:
        """Return the position after the last turn of a conversation; 0 for a new one."""
        if conversation not in self._ends:
            _, values = next_position_ahead(self.scope_id, conversation)
            ((last,),) = _LAST_POSITION(self.tx, values)
            self._ends[conversation] = 0 if last is None else int(last) + 1
        return self._ends[conversation]

    def note(self, memory: Memory, content_key: str) -> None:
        """Note a memory that was added."""
        if memory.conversation is None or memory.position is None:
            self._statements.add((memory.kind, content_key))
        else:
            end = self.next_position(memory.conversation)
            self._ends[memory.conversation] = max(end, memory.position + 1)
