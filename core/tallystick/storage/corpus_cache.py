"""Shelves: the searchable text of the scopes that were asked, kept in memory and brought up to date
by revision.

A shelf holds what the database holds and nothing else. Each question compares the scope's revision,
in its own snapshot of the database, with that of the shelf and reads the rows that changed since;
what other processes wrote is found by the same comparison. Shelves that were not asked for longest
go when they grow too large.
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
class _Shelf:
    guard: threading.Lock = field(default_factory=threading.Lock)
    corpus: Corpus = field(default_factory=Corpus.empty)
    revision: int = 0


class CorpusCache:
    """Corpora by scope and embedder. Thread-safe."""

    def __init__(self, *, most_bytes: int) -> None:
        self._most = most_bytes
        self._guard = threading.Lock()
        self._shelves: OrderedDict[tuple[int, str], _Shelf] = OrderedDict()

    def corpus(
        self,
        connection: Connection,
        scope_id: int,
        revision: int,
        *,
        fingerprint: str = "",
        dimension: int = 0,
    ) -> Corpus:
        """The text of a scope as of `revision` or later; with the vectors of `fingerprint`, if one
        is named.

        `revision` was read in the snapshot of `connection`. Raises DimensionMismatch.
        """
        key = (scope_id, fingerprint)
        with self._guard:
            shelf = self._shelves.setdefault(key, _Shelf())
            self._shelves.move_to_end(key)
        with shelf.guard:
            if shelf.revision >= revision:
                return shelf.corpus
            self._bring_up(connection, shelf, scope_id, revision, fingerprint, dimension)
            corpus = shelf.corpus
        self._trim()
        return corpus

    def size(self, scope_id: int) -> int | None:
        """How many memories of a scope are held, or None when it was not asked for."""
        with self._guard:
            found = [shelf for (held, _), shelf in self._shelves.items() if held == scope_id]
        return max((len(shelf.corpus) for shelf in found), default=None)

    def holds(self, connection: Connection, scope_id: int, doc: int) -> bool:
        """Whether the text of a memory stands in a shelf, brought up to date first."""
        with self._guard:
            held = [(key, shelf) for key, shelf in self._shelves.items() if key[0] == scope_id]
        for _, shelf in held:
            with shelf.guard:
                if doc in search.gone(connection, scope_id, after=shelf.revision):
                    # What the next question would leave out is dropped at once.
                    self.drop(scope_id)
                    return False
                if len(shelf.corpus.rows_of([doc])):
                    return True
        return False

    def drop(self, scope_id: int | None = None) -> None:
        """Let go of the text of a scope, or of all: it is read anew when it is asked for."""
        with self._guard:
            for key in [key for key in self._shelves if scope_id is None or key[0] == scope_id]:
                del self._shelves[key]

    def _bring_up(
        self,
        connection: Connection,
        shelf: _Shelf,
        scope_id: int,
        revision: int,
        fingerprint: str,
        dimension: int,
    ) -> None:
        entries = search.changed(
            connection, scope_id, after=shelf.revision, fingerprint=fingerprint
        )
        corpus = shelf.corpus.updated(entries, dimension=dimension)
        if shelf.revision and corpus.entries != search.count_rows(connection, scope_id):
            # Rows went altogether, which no revision tells: begin anew.
            everything = search.changed(connection, scope_id, after=-1, fingerprint=fingerprint)
            corpus = Corpus.empty().updated(everything, dimension=dimension)
        shelf.corpus, shelf.revision = corpus, revision

    def _trim(self) -> None:
        with self._guard:
            total = sum(shelf.corpus.bytes for shelf in self._shelves.values())
            while total > self._most and len(self._shelves) > 1:
                _, oldest = self._shelves.popitem(last=False)
                total -= oldest.corpus.bytes
