"""Everything derived: the kinds of state that are made from the texts of memories, and can be made
anew at any time.

Each kind follows its scopes from a mark or from revisions (`storage/index/marks.py`), says how it
stands, is mended and made anew. The background is their driver: it lets each follow, for `drain`
and `rebuild-index` too; the doctor asks and mends each.

No kind is asked when text is erased. What is derived is declared with its owner, as all text is
(`storage/engine/texts.py`), and goes in the erasing transaction; what stands in files is of an
earlier revision than the scope's floor then, and not read.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from tallystick.errors import TallystickError
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.memory.conclusions import unfounded, withdraw_conclusion
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.searched import prepare_scope
from tallystick.records import Actor, Finding
from tallystick.storage import Connection
from tallystick.storage.engine import integrity
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import segments
from tallystick.storage.rows import edges, memories, objects, scopes

MEND = "run `tally doctor --repair`"


Status = Literal["ok", "notice", "problem", "repaired"]
Progress = Callable[[int, int], None]
"""Receives the number of things that are done, and of all."""

_FIRST_SWEEP, _SWEEP = 3_600.0, 24 * 3_600.0
"""Seconds from the opening to the first sweep of objects, and from one to the next."""
_SHOWN = 20
"""Lost objects that are named one by one."""


class Derived(ABC):
    """One kind of derived state."""

    name: ClassVar[str]
    """That of its check."""
    mends: ClassVar[Status] = "problem"
    """The status of a finding that `repair` mends."""

    def __init__(self, context: MemoryContext) -> None:
        self._context, self._database = context, context.store.database

    def follow(self) -> int:
        """Bring it up to date with the scopes that changed, or enqueue the jobs that do; return
        their number. One thread at a time calls it.
        """
        return 0

    def complete(self) -> int:
        """Bring all of it up to date now, once the jobs are done; return the number of things.
        Raises TallystickError.
        """
        return 0

    def rebuild(self, progress: Progress) -> int:
        """Make it anew, or let it be made; return the number of vectors. By default nothing: what
        each change writes in its own transaction is never behind. Raises TallystickError.
        """
        return 0

    @abstractmethod
    def check(self) -> Finding | list[Finding]:
        """Compare it with what it is derived from. Raises TallystickError where it cannot."""

    @abstractmethod
    def repair(self, actor: Actor) -> Finding:
        """Remove what does not match, or make it anew. Raises TallystickError."""

    def _says(self, status: Status, text: str) -> Finding:
        return Finding(check=self.name, status=status, text=text)

    def _begin_write(self, tx: Connection, actor: Actor) -> MemoryWrite:
        return MemoryWrite(tx, self._context, actor, self._context.store.clock.now(), None)


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
            write = self._begin_write(tx, actor)
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

    def rebuild(self, progress: Progress) -> int:
        """Remove the files: they are made anew by a recall, or before."""
        self._context.corpora.remove_files()
        self._seen.clear()
        return 0

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


class Conclusions(Derived):
    """Memories that were concluded from others: they leave recall in the transaction in which the
    last of these goes, and are erased with it.
    """

    name = "conclusions"

    def check(self) -> Finding:
        """Name conclusions that nothing bears out and that recall shows."""
        with self._database.read() as connection:
            count = len(unfounded(connection))
        if count:
            text = f"recall shows {count} conclusions whose origins are all gone: {MEND}"
            return self._says("problem", text)
        return self._says("ok", "every conclusion in recall has an origin")

    def repair(self, actor: Actor) -> Finding:
        """Withdraw them, as the loss of their origins would have."""

        def unit(tx: Connection) -> int:
            write, stray = self._begin_write(tx, actor), unfounded(tx)
            links = edges.following(tx, "DERIVED_FROM", [each.doc for each in stray], forward=True)
            origins = memories.get_docs(tx, [link.to_doc for link in links.values()])
            for each in stray:
                withdraw_conclusion(write, each, origins[links[each.doc].to_doc])
            return len(stray)

        count = self._database.write(unit, name="doctor.conclusions")
        return self._says("repaired", f"{count} conclusions were withdrawn with their origins")


class Objects(Derived):
    """Large bodies in a folder or in object storage: moved there after the commit, read by their
    digest, and deleted after the transaction that removes their part.
    """

    name, mends = "objects", "notice"

    def __init__(self, context: MemoryContext) -> None:
        super().__init__(context)
        self._sweep_at = time.monotonic() + _FIRST_SWEEP

    def follow(self) -> int:
        """Move what was written lately, and remove what was erased; once a day also what nothing
        names.
        """
        moved = objects.move(self._database)
        objects.remove_doomed(self._database)
        if time.monotonic() >= self._sweep_at:
            objects.sweep(self._database)
            self._sweep_at = time.monotonic() + _SWEEP
        return moved

    def complete(self) -> int:
        """Move every large body. Raises StorageError where the object storage is away."""
        return objects.move(self._database, everything=True)

    def check(self) -> list[Finding]:
        """Read every object outside of the database."""
        health = objects.check(self._database)
        if health is None:
            return []
        lost = [(name, "is missing") for name in health.missing]
        lost += [(name, "was altered") for name in health.altered]
        texts = [
            f"the object {name} {what}: bring it back from a copy of the object storage"
            for name, what in lost[:_SHOWN]
        ]
        if len(lost) > _SHOWN:
            texts.append(f"{len(lost) - _SHOWN} more objects are missing or were altered")
        findings = [self._says("problem", text) for text in texts]
        if health.orphans or health.waiting:
            text = (
                f"{health.orphans} objects that nothing names and {health.waiting} of what was "
                f"erased are there: {MEND}"
            )
            findings.append(self._says("notice", text))
        whole = health.named - len(lost)
        return findings or [self._says("ok", f"{whole} match their digests")]

    def repair(self, actor: Actor) -> Finding:
        """Remove what nothing names, and move every large body."""
        moved, swept = self.complete(), objects.sweep(self._database)
        text = f"{swept} objects that nothing names were removed, and {moved} large bodies moved"
        return self._says("repaired", f"{text} there")
