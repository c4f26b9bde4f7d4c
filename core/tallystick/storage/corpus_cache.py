"""A cache of corpora: the searchable text of the scopes that were recalled from, kept in memory and
updated by revision.

An entry contains what the database contains and nothing else. Each recall compares the scope's
revision, in its own snapshot of the database, with that of the entry and reads the rows that
changed since; writes of other processes are found by the same comparison. The entries that were not
used for longest are dropped when the cache grows too large.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from sqlalchemy import Connection

from tallystick.ranking.corpus import Corpus
from tallystick.storage import search

__all__ = ["CorpusCache"]


@dataclass
class _Entry:
    guard: threading.Lock = field(default_factory=threading.Lock)
    corpus: Corpus = field(default_factory=Corpus.empty)
    revision: int = 0


class CorpusCache:
    """Corpora by scope and embedder. Thread-safe."""

    def __init__(self, *, most_bytes: int) -> None:
        self._most = most_bytes
        self._guard = threading.Lock()
        self._entries: OrderedDict[tuple[int, str], _Entry] = OrderedDict()

    def corpus(
        self,
        connection: Connection,
        scope_id: int,
        revision: int,
        *,
        fingerprint: str = "",
        dimension: int = 0,
    ) -> Corpus:
        """Return the text of a scope as of `revision` or later, with the vectors of `fingerprint`
        if one is named.

        `revision` was read in the snapshot of `connection`. Raises DimensionMismatch.
        """
        key = (scope_id, fingerprint)
        with self._guard:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
        with entry.guard:
            if entry.revision >= revision:
                return entry.corpus
            self._bring_up(connection, entry, scope_id, revision, fingerprint, dimension)
            corpus = entry.corpus
        self._trim()
        return corpus

    def size(self, scope_id: int) -> int | None:
        """Return the number of memories of a scope in the cache, or None where it was not used."""
        with self._guard:
            entries = [
                entry for (of_scope, _), entry in self._entries.items() if of_scope == scope_id
            ]
        return max((len(entry.corpus) for entry in entries), default=None)

    def holds(self, connection: Connection, scope_id: int, doc: int) -> bool:
        """Return True if the cache, brought up to date, contains the text of a memory."""
        with self._guard:
            entries = [(key, entry) for key, entry in self._entries.items() if key[0] == scope_id]
        for _, entry in entries:
            with entry.guard:
                if doc in search.hidden_docs(connection, scope_id, after=entry.revision):
                    # The next recall would leave it out: drop it at once.
                    self.drop(scope_id)
                    return False
                if len(entry.corpus.rows_of([doc])):
                    return True
        return False

    def drop(self, scope_id: int | None = None) -> None:
        """Drop the text of a scope, or of all: the next recall reads it anew."""
        with self._guard:
            for key in [key for key in self._entries if scope_id is None or key[0] == scope_id]:
                del self._entries[key]

    def _bring_up(
        self,
        connection: Connection,
        entry: _Entry,
        scope_id: int,
        revision: int,
        fingerprint: str,
        dimension: int,
    ) -> None:
        changed = search.changed(
            connection, scope_id, after=entry.revision, fingerprint=fingerprint
        )
        corpus = entry.corpus.updated(changed, dimension=dimension)
        if entry.revision and corpus.entries != search.count_rows(connection, scope_id):
            # Rows were removed altogether, which no revision shows: begin anew.
            everything = search.changed(connection, scope_id, after=-1, fingerprint=fingerprint)
            corpus = Corpus.empty().updated(everything, dimension=dimension)
        entry.corpus, entry.revision = corpus, revision

    def _trim(self) -> None:
        with self._guard:
            total = sum(entry.corpus.bytes for entry in self._entries.values())
            while total > self._most and len(self._entries) > 1:
                _, oldest = self._entries.popitem(last=False)
                total -= oldest.corpus.bytes
