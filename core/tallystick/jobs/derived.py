"""Everything derived: the kinds of state that are made from the texts of memories, and can be made
anew at any time.

Each kind follows its scopes from a mark or from revisions (`storage/index/marks.py`), says how it
stands, and is mended. The background lets each follow, the doctor asks and mends each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from tallystick.errors import TallystickError
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.recall import prepare_scope
from tallystick.records import Actor, Finding
from tallystick.storage import Connection
from tallystick.storage.engine import integrity
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import segments
from tallystick.storage.rows import memories, scopes

MEND = "run `tally doctor --repair`"


Status = Literal["ok", "notice", "problem", "repaired"]


class Derived(ABC):
    """One kind of derived state."""

    name: ClassVar[str]
    """That of its check."""

    def __init__(self, context: MemoryContext) -> None:
        self._context, self._database = context, context.store.database

    def follow(self) -> int:
        """Bring it up to date with the scopes that changed, or enqueue the jobs that do; return
        their number. One thread at a time calls it.
        """
        return 0

    @abstractmethod
    def check(self) -> Finding:
        """Compare it with what it is derived from. Raises TallystickError where it cannot."""

    @abstractmethod
    def repair(self, actor: Actor) -> Finding:
        """Remove what does not match, or make it anew. Raises TallystickError."""

    def _says(self, status: Status, text: str) -> Finding:
        return Finding(check=self.name, status=status, text=text)


class Words(Derived):
    """The words by which memories are found: written in the transaction of each change."""

    name = "search text"

    def check(self) -> Finding:
        """Read the words of every memory."""
        if count := len(self._unreadable()):
            text = f"the words by which {count} memories are found cannot be read: {MEND}"
            return self._says("problem", text)
        return self._says("ok", "the words of every memory can be read")

    def repair(self, actor: Actor) -> Finding:
        """Derive the words of memories from their texts, where they cannot be read."""
        docs = self._unreadable()

        def unit(tx: Connection) -> None:
            write = MemoryWrite(tx, self._context, actor, self._context.store.clock.now(), None)
            for stored in memories.get_docs(tx, docs).values():
                write.derive_text(stored)

        self._database.write(unit, name="doctor.search_text")
        text = f"the words of {len(docs)} memories were derived from their texts"
        return self._says("repaired", text)

    def _unreadable(self) -> list[int]:
        with self._database.read() as connection:
            return integrity.unreadable_text(connection)


class Segments(Derived):
    """What recall analysed of large scopes, in files or in the database: made before somebody asks,
    so that a first recall reads.
    """

    name = "segments"

    def __init__(self, context: MemoryContext) -> None:
        super().__init__(context)
        self._seen: dict[int, int] = {}
        """By scope its revision at the last look."""

    def follow(self) -> int:
        """Analyse each scope that was written since the last look, or could not be kept then, and
        lacks it; return their number.
        """
        corpora = self._context.corpora
        with self._database.read() as connection:
            revisions = scopes.all_revisions(connection)
        prepared = 0
        for scope_id, revision in revisions.items():
            if self._seen.get(scope_id) == revision:
                continue
            try:
                with self._database.read() as connection:
                    prepared += prepare_scope(connection, self._context, scope_id)
            except TallystickError as error:
                # It is tried again after the next write; a recall does it by itself meanwhile, and
                # says what is wrong. Jobs and other chores do not wait for it.
                get_logger("jobs").warning("scope.not_prepared", error=type(error).__name__)
            if not corpora.is_waiting(scope_id):
                self._seen[scope_id] = revision
        return prepared

    def check(self) -> Finding:
        """Read every segment in the database, and the beginning of every file."""
        with self._database.read() as connection:
            damaged, strays = self._wrong(connection)
        if strays:
            text = (
                f"{len(strays)} files of what recall derived, {strays[0].name} among them, are of "
                "a journal other than this tally's, as after its database was put back from a "
                f"copy, and are not used: {MEND}"
            )
            return self._says("problem", text)
        if damaged:
            text = (
                f"{sum(damaged.values())} pieces of what recall derived from {len(damaged)} scopes "
                f"are damaged, and are not used: {MEND}"
            )
            return self._says("problem", text)
        return self._says("ok", "what recall derived is whole")

    def repair(self, actor: Actor) -> Finding:
        """Remove what is damaged or of another journal."""
        with self._database.read() as connection:
            damaged, strays = self._wrong(connection)
        self._context.corpora.remove_files(strays)
        for scope_id in damaged:
            unit = partial(segments.remove, scope_id=scope_id)
            writes = Writes.of(f"recall_segments:{scope_id}")
            self._database.write(unit, name="doctor.segments", writes=writes)
        text = (
            f"removed the segments of {len(damaged)} scopes and {len(strays)} files: the next "
            "recall makes them anew"
        )
        return self._says("repaired", text)

    def _wrong(self, connection: Connection) -> tuple[dict[int, int], list[Path]]:
        return segments.count_damaged(connection), self._context.corpora.strays(connection)
