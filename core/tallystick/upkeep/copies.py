"""Copies: the text of memories beside the memories themselves, within an operator's reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.checkpoints.removing import threads_containing
from tallystick.memory import MemoryContext
from tallystick.memory.fields import INDEX, item_value
from tallystick.records import AccessKind, Actor, Scope
from tallystick.storage import Connection
from tallystick.storage.rows import scopes
from tallystick.storage.rows.recordings import StoredPayload
from tallystick.storage.text import byte_search
from tallystick.storage.text.byte_search import ThreadName


class OperatorScopes:
    """The scopes in which an actor may do an operation, as one snapshot sees them."""

    def __init__(
        self, connection: Connection, context: MemoryContext, actor: Actor, operation: AccessKind
    ) -> None:
        self.whole = actor.operates_tally
        """True if they are all of the tally."""
        self._connection, self._context, self._actor = connection, context, actor
        self._operation: AccessKind = operation
        self._allowed: dict[Scope, bool] = {}

    def covers(self, scope: Scope) -> bool:
        """Return True if a scope is one of them."""
        if scope not in self._allowed:
            decision = self._context.gate.decide(
                self._connection, self._actor, self._operation, scope
            )
            self._allowed[scope] = self.whole or decision.allowed
        return self._allowed[scope]

    def covers_number(self, scope_id: int) -> bool:
        """Return True if the scope with this number is one of them."""
        return self.covers(scopes.get_by_id(self._connection, scope_id).scope)

    def scopes(self) -> list[Scope]:
        """Return all of them that were written to."""
        return [scope for scope in scopes.all_scopes(self._connection) if self.covers(scope)]


_LONG = 16
"""Characters of a text of an item from which on other copies of it are searched for: shorter ones
are found anywhere.
"""


@dataclass(frozen=True)
class Copies:
    """The copies of some texts, as far as the operator's reach goes."""

    payloads: tuple[StoredPayload, ...] = ()
    """Recorded payloads that contain a text."""
    threads: tuple[ThreadName, ...] = ()
    """Threads of checkpoints."""
    recorded: tuple[byte_search.RecordedHit, ...] = ()
    """Runs and steps whose names, goal, metadata or summaries contain a text."""
    memories: tuple[str, ...] = ()
    """Memories of which a version contains a text."""
    encrypted: int = 0
    """Pieces of checkpoints that are encrypted, and so were not searched."""
    within: tuple[int, ...] | None = None
    """The numbers of the scopes within reach; None is every one."""

    @classmethod
    def find(
        cls,
        connection: Connection,
        needles: Sequence[bytes],
        ids: Iterable[str],
        reach: OperatorScopes,
    ) -> Copies:
        """Search for `needles`, and in payloads for the ids of the memories too."""
        within = (
            None
            if reach.whole
            else tuple(row.id for row in scopes.find(connection, reach.scopes()))
        )
        if not needles:
            return cls(within=within)
        threads = threads_containing(connection, needles)
        # A payload that names a memory contains it by its id where it does not quote it.
        payloads = byte_search.payloads_with(
            connection, [*needles, *(memory_id.encode() for memory_id in ids)]
        )
        recorded = byte_search.recorded_with(connection, needles)
        versions = byte_search.versions_with(connection, needles)
        return cls(
            tuple(hit for hit in payloads if reach.covers_number(hit.scope_id)),
            tuple(thread for thread in threads.threads if reach.covers(Scope.parse(thread.scope))),
            tuple(hit for hit in recorded if reach.covers_number(hit.scope_id)),
            tuple(hit.memory_id for hit in versions if reach.covers_number(hit.scope_id)),
            threads.encrypted,
            within,
        )

    @classmethod
    def in_scopes(
        cls, connection: Connection, needles: Sequence[bytes], within: Sequence[int]
    ) -> Copies:
        """Search for `needles` in what was recorded in these scopes, by number."""
        payloads = byte_search.payloads_with(connection, needles)
        recorded = byte_search.recorded_with(connection, needles)
        return cls(
            payloads=tuple(hit for hit in payloads if hit.scope_id in within),
            recorded=tuple(hit for hit in recorded if hit.scope_id in within),
            within=tuple(within),
        )


def searched_texts(body: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of a version by which its copies are searched for: its content, and for an
    item of a store the texts of its value.
    """
    content = str(body["content"])
    yield content
    if INDEX in body.get("attributes", {}):
        yield from (text for text in _strings(item_value(content)) if len(text) >= _LONG)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _strings(inner)
