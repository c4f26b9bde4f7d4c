"""A cache of corpora: the searchable text of the scopes that were recalled from, kept in memory and
updated by revision.

An entry contains what the database contains and nothing else. Each recall compares the scope's
revision, in its own snapshot of the database, with that of the entry and reads the rows that
changed since; writes of other processes are found by the same comparison. A scope has one entry: of
its words, or of its words and vectors once somebody asked for these. The entries that were not used
for longest are dropped when the cache grows too large.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import Connection

from tallystick.ranking.corpus import Corpus
from tallystick.storage import search

__all__ = ["CorpusCache"]

_MUCH = 8 * 1024 * 1024
"""Bytes by which an entry grows before the allocator is asked for what was freed meanwhile."""


@dataclass
class _Entry:
    guard: threading.Lock = field(default_factory=threading.Lock)
    corpus: Corpus = field(default_factory=Corpus.empty)
    revision: int = 0
    fingerprint: str = ""
    """The embedder whose vectors it has; empty for words alone."""
    dimension: int = 0


class CorpusCache:
    """Corpora by scope, with the vectors of one embedder. Thread-safe."""

    def __init__(self, *, most_bytes: int) -> None:
        self._most = most_bytes
        self._guard = threading.Lock()
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self.loads = 0
        """The number of scopes that were read whole."""

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
        if one is named; without one they may be there.

        `revision` was read in the snapshot of `connection`. Raises DimensionMismatch.
        """
        with self._guard:
            entry = self._entries.setdefault(scope_id, _Entry())
            self._entries.move_to_end(scope_id)
        with entry.guard:
            if fingerprint not in ("", entry.fingerprint):
                entry.corpus, entry.revision = Corpus.empty(), 0
                entry.fingerprint, entry.dimension = fingerprint, dimension
            if entry.revision >= revision:
                return entry.corpus
            self._bring_up(connection, entry, scope_id, revision)
            corpus = entry.corpus
        self._trim()
        return corpus

    def size(self, scope_id: int) -> int | None:
        """Return the number of memories of a scope in the cache, or None where it was not used."""
        with self._guard:
            entry = self._entries.get(scope_id)
        return None if entry is None else len(entry.corpus)

    def holds(self, connection: Connection, scope_id: int, doc: int) -> bool:
        """Return True if the cache, brought up to date, contains the text of a memory."""
        with self._guard:
            entry = self._entries.get(scope_id)
        if entry is None:
            return False
        with entry.guard:
            if doc in search.hidden_docs(connection, scope_id, after=entry.revision):
                # The next recall would leave it out: drop it at once.
                self.drop(scope_id)
                return False
            return len(entry.corpus.rows_of([doc])) > 0

    def drop(self, scope_id: int | None = None) -> None:
        """Drop the text of a scope, or of all: the next recall reads it anew."""
        with self._guard:
            if scope_id is None:
                self._entries.clear()
            else:
                self._entries.pop(scope_id, None)

    @property
    def bytes(self) -> int:
        """The approximate size of all entries."""
        with self._guard:
            return sum(entry.corpus.bytes for entry in self._entries.values())

    def _bring_up(
        self, connection: Connection, entry: _Entry, scope_id: int, revision: int
    ) -> None:
        fingerprint, dimension, before = entry.fingerprint, entry.dimension, entry.corpus.bytes
        self.loads += entry.revision == 0
        changed = search.changed(
            connection, scope_id, after=entry.revision, fingerprint=fingerprint
        )
        corpus = entry.corpus.updated_by_pages(changed, dimension=dimension)
        if entry.revision and corpus.entries != search.count_rows(connection, scope_id):
            # Rows were removed altogether, which no revision shows: begin anew.
            self.loads += 1
            everything = search.changed(connection, scope_id, after=-1, fingerprint=fingerprint)
            corpus = Corpus.empty().updated_by_pages(everything, dimension=dimension)
        entry.corpus, entry.revision = corpus, revision
        if corpus.bytes - before > _MUCH:
            _return_freed_memory()

    def _trim(self) -> None:
        with self._guard:
            total = sum(entry.corpus.bytes for entry in self._entries.values())
            trimmed = total > self._most and len(self._entries) > 1
            while total > self._most and len(self._entries) > 1:
                _, oldest = self._entries.popitem(last=False)
                total -= oldest.corpus.bytes
        if trimmed:
            _return_freed_memory()


def _return_freed_memory() -> None:
    """Give memory that was freed back to the system.

    A load leaves the heap of glibc full of holes, which it keeps: measured, three times the corpus.
    """
    trim = _trimmer()
    if trim is not None:
        trim(0)


@cache
def _trimmer() -> Any:
    """Return glibc's `malloc_trim`; None with another allocator."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
