"""A cache of corpora: the searchable text of the scopes that were recalled from, brought up to date
by revision.

An entry contains what the database contains and nothing else. Each recall compares the scope's
revision, in its own snapshot of the database, with that of the entry and reads the rows that
changed since; writes of other processes are found by the same comparison. An entry is of one
journal: where the database was put back from a copy, it begins anew. Text that was erased is found
by the scope's floor. A scope has one entry: of its words, or of its words and vectors once
somebody asked for these. The entries that were not used for longest are dropped when the cache
grows too large. Scopes that do not fit together and are asked in turn would evict each other at
every question: what is evicted soon after its use is read from the database as a large scope is.

Where a segment is kept, an entry begins with it rather than with nothing: in a file of an embedded
tally's folder, which is mapped; or, for a scope that is large, in the database, of which a question
reads what it needs. A question that had to analyse a scope keeps what it found; whatever has to be
made anew later is made by the background, beside the questions.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection

from tallystick.errors import StorageError
from tallystick.logs import get_logger
from tallystick.ranking.analyses import ANALYSES
from tallystick.ranking.corpus import Corpus
from tallystick.ranking.frozen import freeze, thaw
from tallystick.ranking.segment import Entry
from tallystick.ranking.vocabulary import WordVectors
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import search, segments
from tallystick.storage.index.marks import Mark, count_behind
from tallystick.storage.index.segment_files import KeptCorpus, MappedFile, SegmentFiles
from tallystick.storage.rows import journal, scopes

_MUCH = 16 * 1024 * 1024
"""Bytes of entries that are made before the allocator is asked for what was freed meanwhile."""
_WORDS = 1_000
"""Bytes of a memory without its vector in an entry, about."""
_NUMBER = 4
"""Bytes of one number of a vector in an entry."""
_RECENT = 50
"""An entry that is evicted within so many uses of the cache after its own last one would be read
whole again and again: its scope is read from the database from then on.
"""
_KEPT = 5_000
"""The fewest memories of a scope of which a segment is kept: less is analysed in a moment."""
_GROWN = 5
"""A segment is made anew when what was written since is more than one part in so many."""
_DOUBLED = 2
"""Without a background, a question makes it anew when the scope has so many times its memories."""
_LONGEST_PAUSE = 64
"""The most occasions to keep a segment that are passed over after failures."""


@dataclass
class _Entry:
    guard: threading.Lock = field(default_factory=threading.Lock)
    corpus: Corpus = field(default_factory=Corpus.empty)
    revision: int = 0
    origin: journal.Origin | None = None
    """The journal entry at which it was brought up to date."""
    fingerprint: str = ""
    """The embedder whose vectors it has; empty for words alone."""
    dimension: int = 0
    file: MappedFile | None = None
    """The file that is mapped."""
    kept: int = 0
    """The memories of the segment that it began with; 0 without one."""
    kept_at: int = -1
    """The revision of that segment."""
    used: int = 0
    """The use of the cache in which it was asked for last."""

    def clear(self) -> None:
        self.corpus, self.revision, self.origin = Corpus.empty(), 0, None
        self.forget_segment()

    def begin_with(self, segment: KeptCorpus) -> None:
        self.corpus, self.revision, self.fingerprint, self.dimension, self.file = segment
        self.kept, self.kept_at = len(segment.corpus), segment.revision

    def forget_segment(self) -> None:
        self.file, self.kept, self.kept_at = None, 0, -1

    def leave_cut_file(self) -> None:
        """Begin anew where the file was cut since it was mapped."""
        if self.file is not None and not self.file.is_whole():
            self.clear()


@dataclass
class _Pause:
    """The occasions to keep a segment that are passed over after a failure."""

    length: int = 0
    left: int = 0


class CorpusCache:
    """Corpora by scope, with the vectors of one embedder. Thread-safe."""

    def __init__(
        self,
        *,
        most_bytes: int,
        database: Database | None = None,
        large_scope: int = 50_000,
        files: SegmentFiles | None = None,
        background: bool = False,
    ) -> None:
        """Scopes of more than `large_scope` memories, or of more than half of the cache, and those
        that others evict again and again, are read from segments in `database`; files of others
        are kept in `files`, where they are given. With a `background`, which calls `prepare`, no
        question makes a segment anew.
        """
        self.most_bytes = most_bytes
        self.word_vectors: WordVectors | None = None
        """Those that all entries share: they count too."""
        self._database = database
        self._files = files
        self._background = background
        self.large_scope = large_scope
        self._guard = threading.Lock()
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._damaged: dict[int, set[int]] = {}
        """By scope the revisions of segments that are not read again."""
        self._crowded: set[int] = set()
        """Scopes that would fit alone, and were evicted soon after they were used."""
        self._uses = 0
        self._made_bytes = 0
        self._pauses: dict[int, _Pause] = {}
        self.loads = 0
        """The number of scopes that were read whole."""
        self._beside: WeakSet[CorpusCache] = WeakSet()

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
            self._uses += 1
            entry.used = self._uses
        with entry.guard:
            self._check(connection, entry, scope_id, fingerprint, dimension)
            if entry.revision > revision and self._is_rolled_back(connection, entry):
                entry.clear()
            if entry.revision >= revision:
                return entry.corpus
            is_cold = self._bring_up(connection, entry, scope_id, revision)
            corpus = entry.corpus
            if self._is_due(connection, entry, scope_id, is_cold=is_cold):
                self._keep(entry, scope_id)
        self._trim()
        return corpus

    def prepare(
        self,
        connection: Connection,
        scope_id: int,
        revision: int,
        *,
        fingerprint: str,
        dimension: int,
    ) -> bool:
        """Make the segment of a scope beside the questions, and let the next one use it; return
        False where it could not be kept. What was not in memory before is not left there.

        A question waits for it only where it would have to analyse the scope itself. `revision` was
        read in the snapshot of `connection`. Raises DimensionMismatch, StorageError.
        """
        if not self._may_save(scope_id):
            return False
        with self._guard:
            entry = self._entries.setdefault(scope_id, _Entry())
            if not entry.used:
                self._entries.move_to_end(scope_id, last=False)
        try:
            return self._prepare(connection, entry, scope_id, revision, fingerprint, dimension)
        finally:
            with self._guard:
                if not entry.used and self._entries.get(scope_id) is entry:
                    del self._entries[scope_id]

    def is_waiting(self, scope_id: int) -> bool:
        """Return True if the segment of a scope could not be kept, and is to be tried again."""
        return scope_id in self._pauses

    def size(self, scope_id: int) -> int | None:
        """Return the number of memories of a scope in the cache, or None where it was not used."""
        with self._guard:
            entry = self._entries.get(scope_id)
        return None if entry is None or not entry.revision else len(entry.corpus)

    def is_large(self, connection: Connection, scope_id: int, *, dimension: int) -> bool:
        """Return True if a scope's text, with vectors of `dimension` numbers or without any (0), is
        read from the database rather than kept in memory.
        """
        size = self.size(scope_id)
        if size is None:
            size = search.count_rows(connection, scope_id)
        return self._is_large(scope_id, size, dimension)

    def lacks_segment(
        self, connection: Connection, scope_id: int, *, fingerprint: str, dimension: int
    ) -> bool:
        """Return True if a segment of a scope is to be made: where none is kept, or much was
        written since.
        """
        count = search.count_rows(connection, scope_id)
        if count < _KEPT or self._database is None or self._database.unwritable is not None:
            return False
        if self._is_large(scope_id, count, dimension):
            stored = self._find_segment(connection, scope_id, fingerprint)
            revision = None if stored is None else stored.revision
        elif self._files is None:
            return False
        else:
            floor = scopes.floor_of(connection, scope_id)
            revision = self._files.newest_revision(scope_id, floor=floor)
        if revision is None:
            return True
        return _GROWN * count_behind(connection, scope_id, Mark.at(revision)) > count

    def distrust(self, scope_id: int, revision: int) -> None:
        """Read a damaged segment no more: the scope is analysed, and its segment made anew."""
        get_logger("storage").warning("segment.ignored", scope=scope_id, reason="damaged")
        with self._guard:
            self._damaged.setdefault(scope_id, set()).add(revision)
        self.drop(scope_id)

    def holds(self, connection: Connection, scope_id: int, doc: int) -> bool:
        """Return True if the cache, brought up to date, contains the text of a memory."""
        with self._guard:
            entry = self._entries.get(scope_id)
        if entry is None:
            return False
        with entry.guard:
            entry.leave_cut_file()
            if doc in search.hidden_docs(connection, scope_id, after=entry.revision):
                # The next recall would leave it out: drop it at once.
                self.drop(scope_id)
                return False
            return len(entry.corpus.rows_of([doc])) > 0

    def remains(self, connection: Connection, scope_id: int) -> list[str]:
        """Return what is left, in words, of segments from before the last erasure in a scope."""
        if self._files is None:
            return []
        floor = scopes.floor_of(connection, scope_id)
        left = [
            f"the file {file.parent.name}/{file.name} may have its words"
            for file in self._files.list_below_floor(scope_id, floor=floor)
        ]
        return left + [
            f"process {pid} maps a removed file that may have its words, until it recalls or ends"
            for pid in self._files.holders(scope_id, floor=floor)
        ]

    def strays(self, connection: Connection) -> list[Path]:
        """Return the segment files that are of another journal, or cannot be read."""
        if self._files is None:
            return []
        return self._files.strays(partial(journal.has_origin, connection))

    def remove_files(self, files: Iterable[Path] | None = None) -> None:
        """Remove these segment files, or every one, and drop what was read of them."""
        if self._files is not None:
            self._files.remove(files)
        self.drop()

    def beside(self, *, large_scope: int) -> CorpusCache:
        """Return an empty cache for the vectors of another embedder, which makes no segments and is
        dropped with this one.
        """
        other = CorpusCache(
            most_bytes=self.most_bytes // 2,
            database=self._database,
            large_scope=large_scope,
            background=True,
        )
        self._beside.add(other)
        return other

    def drop(self, scope_id: int | None = None) -> None:
        """Drop the text of a scope, or of all, from memory: the next recall reads it anew."""
        for other in list(self._beside):
            other.drop(scope_id)
        with self._guard:
            if scope_id is None:
                self._entries.clear()
                self._crowded.clear()
                if self.word_vectors is not None:
                    self.word_vectors.clear()
            else:
                self._entries.pop(scope_id, None)

    def remove_erased(self) -> None:
        """Remove the files from before the last erasure of each scope, and wait a moment for the
        processes that map one.
        """
        if self._files is None or self._database is None:
            return
        with self._database.read() as connection:
            floors = scopes.all_floors(connection)
        for scope_id, floor in floors.items():
            holders = self._files.remove_erased(scope_id, floor=floor)
            if holders:
                get_logger("storage").warning("segment.held", processes=holders)

    @property
    def bytes(self) -> int:
        """The approximate size of all entries, and of what they share."""
        with self._guard:
            return self._size()

    def _size(self) -> int:
        shared = 0 if self.word_vectors is None else self.word_vectors.bytes
        # They are those of the process: a tally with a small cache is not charged with all.
        shared += min(ANALYSES.bytes, self.most_bytes // 8)
        return shared + sum(entry.corpus.bytes for entry in self._entries.values())

    def _is_large(self, scope_id: int, count: int, dimension: int) -> bool:
        most = min(self.large_scope, self.most_bytes // 2 // (_WORDS + _NUMBER * dimension))
        return self._database is not None and (count > most or scope_id in self._crowded)

    def _check(
        self,
        connection: Connection,
        entry: _Entry,
        scope_id: int,
        fingerprint: str,
        dimension: int,
    ) -> None:
        """Let go of what an entry may not be answered from: vectors of another embedder, a file
        that was cut, and what was erased.
        """
        if fingerprint not in ("", entry.fingerprint):
            entry.clear()
            entry.fingerprint, entry.dimension = fingerprint, dimension
        entry.leave_cut_file()
        if 0 < entry.revision < scopes.floor_of(connection, scope_id):
            self._leave_erased(connection, entry, scope_id)

    def _bring_up(
        self, connection: Connection, entry: _Entry, scope_id: int, revision: int
    ) -> bool:
        """Bring an entry up to date; return True if it had to begin."""
        before = entry.corpus
        if entry.origin is not None and not journal.has_origin(connection, entry.origin):
            entry.clear()
        if not entry.corpus.is_sketched and self._is_large(
            scope_id, len(entry.corpus), entry.dimension
        ):
            entry.clear()
        is_cold = not entry.revision
        if is_cold:
            self._begin(connection, entry, scope_id, revision)
        changed = search.read_changes(
            connection, scope_id, after=entry.revision, fingerprint=entry.fingerprint
        )
        entry.corpus = entry.corpus.update_by_pages(changed, dimension=entry.dimension)
        entry.revision = revision
        stream = f"scope:{scopes.get_by_id(connection, scope_id).scope}"
        entry.origin = journal.origin_of(connection, stream)
        if entry.corpus is not before:
            # Each write makes a corpus beside the one before, of a scope that is small too.
            self._made_bytes += entry.corpus.bytes
        if self._made_bytes > _MUCH:
            self._made_bytes = 0
            _return_freed_memory()
        return is_cold

    def _is_rolled_back(self, connection: Connection, entry: _Entry) -> bool:
        """Return True if an entry that is newer than a snapshot is of a journal that is gone,
        rather than brought up to date by a later snapshot.
        """
        origin = entry.origin
        if self._database is None or origin is None or journal.has_origin(connection, origin):
            return False
        with self._database.read() as latest:
            return not journal.has_origin(latest, origin)

    def _begin(self, connection: Connection, entry: _Entry, scope_id: int, revision: int) -> None:
        """Begin an entry with the segment that is kept, else with everything."""
        count = search.count_rows(connection, scope_id)
        large = self._is_large(scope_id, count, entry.dimension)
        kept = self._find(connection, scope_id, revision, entry.fingerprint, is_large=large)
        if kept is not None and kept.revision <= revision:
            entry.begin_with(kept)
            return
        self.loads += 1
        everything = search.read_changes(
            connection, scope_id, after=-1, fingerprint=entry.fingerprint
        )
        entry.corpus = Corpus.empty().update_by_pages(
            everything, dimension=entry.dimension, sketches=large
        )
        entry.revision = revision

    def _find_segment(
        self, connection: Connection, scope_id: int, fingerprint: str
    ) -> segments.StoredSegment | None:
        besides = self._damaged.get(scope_id, ())
        return segments.find(connection, scope_id, fingerprint, besides=besides)

    def _read(self, connection: Connection, stored: segments.StoredSegment) -> Corpus | None:
        try:
            return segments.read(connection, stored)
        except segments.SegmentDamaged:
            self.distrust(stored.scope_id, stored.revision)
            return None

    def _prepare(
        self,
        connection: Connection,
        entry: _Entry,
        scope_id: int,
        revision: int,
        fingerprint: str,
        dimension: int,
    ) -> bool:
        with entry.guard:
            self._check(connection, entry, scope_id, fingerprint, dimension)
            if entry.revision < revision:
                self._bring_up(connection, entry, scope_id, revision)
            # Questions bring the entry up to date meanwhile, which adds to the words that it has.
            made = replace(entry, corpus=entry.corpus.with_own_words())
        with segments.reading(connection):
            if not self._save(made, scope_id):
                return False
        kept = self._find_saved(made, scope_id)
        with entry.guard:
            is_same = entry.fingerprint == made.fingerprint
            if kept is not None and is_same and entry.revision >= kept.revision:
                entry.begin_with(kept)
        return True

    def _find(
        self,
        connection: Connection,
        scope_id: int,
        revision: int,
        fingerprint: str,
        *,
        is_large: bool,
    ) -> KeptCorpus | None:
        """Return the newest segment that is kept of a scope, up to `revision`. One of the database
        is of its journal: what puts one back puts back the other.
        """
        if is_large:
            stored = self._find_segment(connection, scope_id, fingerprint)
            corpus = None if stored is None else self._read(connection, stored)
            if stored is None or corpus is None:
                return None
            about = stored.about
            return KeptCorpus(corpus, stored.revision, about["fingerprint"], about["dimension"])
        if self._files is None:
            return None
        return self._files.load(
            scope_id,
            floor=scopes.floor_of(connection, scope_id),
            fingerprint=fingerprint,
            revision=revision,
            has_origin=partial(journal.has_origin, connection),
        )

    def _is_due(
        self, connection: Connection, entry: _Entry, scope_id: int, *, is_cold: bool
    ) -> bool:
        """Return True if a question makes the segment: where none is kept or much was written
        since, and it has just analysed that; without a background, also when the scope doubled.
        """
        corpus = entry.corpus
        if len(corpus) < _KEPT or not (corpus.is_sketched or self._files is not None):
            return False
        if is_cold:
            changed = count_behind(connection, scope_id, Mark.at(entry.kept_at))
            is_due = _GROWN * changed > len(corpus)
        else:
            is_due = not self._background and len(corpus) > _DOUBLED * entry.kept
        return is_due and self._may_save(scope_id)

    def _keep(self, entry: _Entry, scope_id: int) -> None:
        """Write the segment of an entry, and use it."""
        if not self._save(entry, scope_id):
            return
        if entry.corpus.is_sketched:
            # The snapshot of this question has none of its pieces; the next one reads them.
            entry.clear()
            return
        kept = self._find_saved(entry, scope_id)
        if kept is not None:
            entry.begin_with(kept)

    def _find_saved(self, made: _Entry, scope_id: int) -> KeptCorpus | None:
        """Return the segment that was made of an entry."""
        assert self._database is not None
        with self._database.read() as connection:
            is_large = made.corpus.is_sketched
            kept = self._find(
                connection, scope_id, made.revision, made.fingerprint, is_large=is_large
            )
        return kept if kept is not None and kept.revision == made.revision else None

    def _save(self, made: _Entry, scope_id: int) -> bool:
        """Write the segment of an entry; return False where it is not kept."""
        database, corpus = self._database, made.corpus
        if database is None or database.unwritable is not None:
            return False
        about: dict[str, Any] = {
            "revision": made.revision,
            "fingerprint": made.fingerprint,
            "dimension": made.dimension,
        }
        saved = False
        if corpus.is_sketched:
            frozen = freeze(corpus)
            try:
                saved = database.write_if_possible(
                    lambda tx: segments.save(tx, scope_id, frozen, **about),
                    name="recall.segment",
                    writes=Writes.of(f"recall_segments:{scope_id}"),
                )
            except StorageError as error:
                # Another process holds the database: the question is answered without.
                get_logger("storage").warning("segment.not_kept", error=type(error).__name__)
        elif self._files is not None:
            assert made.origin is not None
            file = self._files.save(scope_id, freeze(corpus), origin=made.origin, **about)
            saved = file is not None
        with self._guard:
            if saved:
                self._pauses.pop(scope_id, None)
                self._damaged.pop(scope_id, None)
            else:
                pause = self._pauses.setdefault(scope_id, _Pause())
                pause.length = min(2 * pause.length or 1, _LONGEST_PAUSE)
                pause.left = pause.length
        return saved

    def _may_save(self, scope_id: int) -> bool:
        """Return False where the segment of a scope is not to be tried again yet."""
        with self._guard:
            pause = self._pauses.get(scope_id)
            if pause is None or not pause.left:
                return True
            pause.left -= 1
            return False

    def _leave_erased(self, connection: Connection, entry: _Entry, scope_id: int) -> None:
        """Let go of what was erased: of the rows, of the words that only they had, and of a mapped
        file.
        """
        if entry.corpus.is_sketched:
            entry.clear()
            return
        living = search.living_docs(connection, scope_id)
        docs = entry.corpus.column("doc")[entry.corpus.alive].tolist()
        gone = [
            Entry(doc, None, 0, None, "", None, None, None, None, None)
            for doc in docs
            if doc not in living
        ]
        frozen = freeze(entry.corpus.update(gone))
        # Copied: what is mapped is let go of.
        arrays = {name: values.copy() for name, values in frozen.arrays.items()}
        entry.corpus = thaw(frozen.about, arrays)
        entry.forget_segment()

    def _trim(self) -> None:
        with self._guard:
            total = self._size()
            trimmed = total > self.most_bytes and len(self._entries) > 1
            while total > self.most_bytes and len(self._entries) > 1:
                scope_id, oldest = self._entries.popitem(last=False)
                total -= oldest.corpus.bytes
                if not oldest.used:
                    continue
                if self._uses - oldest.used <= _RECENT:
                    self._crowded.add(scope_id)
                else:
                    self._crowded.discard(scope_id)
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
