"""Imports: the rows of an export come into a tally, one group of scopes after the other.

Everything is read and checked once before anything is written. Then each group (`export_groups`) is
brought (`merging`) and verified in a transaction of its own: an import that was cut off has brought
some of them, which the journal says, and the same call brings the others. An export of an early
schema is brought up to date as a whole, in one transaction and an empty tally. Derived rows and
Chroma are made anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick.errors import CorruptTally, StateConflict, TallystickError
from tallystick.memory import MemoryContext
from tallystick.records import Actor, Transfer
from tallystick.storage import Connection, integrity, journal, search, settings_rows
from tallystick.storage import portable as rows
from tallystick.storage.export_groups import ExportGroups, Group
from tallystick.storage.idempotency import IdempotentCall
from tallystick.storage.merging import (
    NUMBERED,
    Merge,
    is_here,
    merge_order,
    require_free,
    require_verified,
    reserve_entries,
    reserve_numbers,
)
from tallystick.storage.migrations import texts_beside
from tallystick.storage.writes import EVERYTHING, Writes
from tallystick.upkeep.export_files import ExportFiles
from tallystick.upkeep.portable import CHOICES, Progress, transfer_of
from tallystick.upkeep.retention import require_operator

_GROUP_ROWS = 50_000
"""Rows by which a group is full: a few seconds on PostgreSQL."""
_GROUP_SCOPES = 1_000
"""Scopes by which a group is full; each is locked while it is brought."""
_MOST_READS = 32
"""How often a file is read at most: the groups of a large export are larger."""


def import_from(
    context: MemoryContext,
    actor: Actor,
    folder: Path,
    *,
    idempotency_key: str | None = None,
    progress: Progress = lambda done, total: None,
) -> Transfer:
    """Read `folder` into this tally, one group of scopes after the other. Raises Denied,
    InvalidInput, StateConflict, CorruptTally; the message says what was imported.

    What the files and the scopes that are here tell is refused before anything is written. A scope
    that is there already, from an earlier import of the same, is left as it is: a call that was cut
    off is made again as it was, and goes on. `progress` is called with the rows that were read, and
    how many there are to be read: all are read twice.
    """
    require_operator(context, actor)
    files = ExportFiles(folder)
    call = IdempotentCall(actor.private_scope, "import", idempotency_key, files.manifest["digest"])
    with context.store.database.read() as connection:
        answered = call.answered(connection)
    if answered is not None:
        return Transfer.load(answered)
    files.check()
    one = _Import(context, actor, files, call, progress)
    try:
        if files.manifest["schema"] < texts_beside.SCHEMA:
            return one.bring_whole()
        return one.bring_groups()
    except TallystickError as error:
        error.args = (f"{error} {one.standing}",)
        raise


class _Import:
    """One import of one export."""

    def __init__(
        self,
        context: MemoryContext,
        actor: Actor,
        files: ExportFiles,
        call: IdempotentCall,
        progress: Progress,
    ) -> None:
        self._context, self._actor, self._database = context, actor, context.store.database
        self._files, self._call, self._progress = files, call, progress
        self._result = transfer_of(files.manifest, states=files.memory_states())
        self._heads = files.heads()
        self._lines = sum(entry["lines"] for entry in files.manifest["files"].values())
        self._read = 0
        self._settings: dict[str, str] = {}
        self._behind = 0
        self._here = 0
        """Scopes of the export that are in the tally."""

    @property
    def standing(self) -> str:
        """What of the export is in the tally, as a sentence."""
        if not self._here:
            return "Nothing was imported."
        return (
            f"{self._here} of {len(self._result.scopes)} scopes are imported and stay; the same "
            "call, made again, goes on with the others."
        )

    def bring_groups(self) -> Transfer:
        """Bring the scopes that are missing, each group in a transaction of its own."""
        groups = self._read_groups()
        missing = self._missing(groups)
        self._reserve(groups, missing)
        size = max(_GROUP_ROWS, self._lines // _MOST_READS)
        made = groups.made(self._result.present, rows=size, scopes=_GROUP_SCOPES)
        to_bring: list[Group | None] = [each for each in made if missing.intersection(each.names)]
        for group in to_bring[:-1]:
            self._commit(groups, group, missing)
        self._commit(groups, to_bring[-1] if to_bring else None, missing, is_last=True)
        return self._result

    def bring_whole(self) -> Transfer:
        """Bring an export of an early schema into an empty tally, all or nothing: its rows keep
        their numbers, and are brought up to date together.
        """
        self._database.write(self._fill, name="import")
        return self._result

    def _read_groups(self) -> ExportGroups:
        """Read and check everything once. Raises CorruptTally."""
        groups = ExportGroups(self._files.manifest["scopes"])
        for table in merge_order():
            count = 0
            for page in self._files.pages(table, with_bytes=table == "scopes"):
                for row in page:
                    if table == "settings":
                        self._settings |= _chosen_setting(row)
                    else:
                        groups.add(table, row)
                count += len(page)
                self._tell(len(page))
            if count != self._files.count(table):
                raise CorruptTally(f"{table}.jsonl of the export has not the lines it should have.")
        return groups

    def _missing(self, groups: ExportGroups) -> set[str]:
        """Return the scopes that are not here yet. Raises StateConflict for what is in the way."""
        present: list[str] = []
        conflicts: list[StateConflict] = []
        with self._database.read() as connection:
            for name, secret in groups.secrets.items():
                try:
                    if is_here(connection, name, secret, self._heads):
                        present.append(name)
                except StateConflict as error:
                    conflicts.append(error)
            self._here = len(present)
            if conflicts:
                raise conflicts[0]
            missing = set(groups.secrets).difference(present)
            for table in NUMBERED:
                require_free(connection, table, groups.numbers(table, missing))
        self._result = self._result.model_copy(update={"present": tuple(present)})
        return missing

    def _reserve(self, groups: ExportGroups, missing: set[str]) -> None:
        """Keep the numbers that stay from being given to others while groups are brought."""

        def unit(tx: Connection) -> int:
            for table in NUMBERED:
                if numbers := groups.numbers(table, missing):
                    reserve_numbers(tx, table, numbers[-1])
            return reserve_entries(tx, *groups.entries) if groups.entries else 0

        if missing:
            self._behind = self._database.write(unit, name="import.numbers")

    def _commit(
        self, groups: ExportGroups, group: Group | None, missing: set[str], *, is_last: bool = False
    ) -> None:
        """Bring a group, or none where all are here, with an entry in the tally's journal; the last
        one with the settings, and the answer of the call.
        """
        here = self._here + len(missing.intersection(group.names if group else ()))
        names = {"tally", str(self._actor.private_scope)}
        if group is not None:
            names.update(group.names, group.needed)

        def unit(tx: Connection) -> None:
            if group is not None:
                self._bring(tx, groups, group)
            if is_last:
                self._adopt_settings(tx)
            self._note(tx, here)
            if is_last:
                self._call.keep(tx, self._result.dump(), at=self._context.store.clock.now())
                self._tell(2 * self._lines)

        is_few = len(names) <= 2 * _GROUP_SCOPES
        self._database.write(
            unit, name="import", writes=Writes.of(*names) if is_few else EVERYTHING
        )
        self._here = here

    def _bring(self, tx: Connection, groups: ExportGroups, group: Group) -> None:
        merge = Merge(
            tx, self._heads, unwritten=group.unwritten, needed=group.needed, behind=self._behind
        )
        for table in merge_order():
            wanted = groups.lines_of(table, group)
            if wanted is None:
                continue
            for page in self._files.pages(table, wanted):
                merge.add(table, page)
                self._tell(len(page))
        search.queue_for_index(tx, merge.finish(), scope_id=None)

    def _fill(self, tx: Connection) -> None:
        schema = self._files.manifest["schema"]
        if rows.non_empty_table(tx) is not None:
            raise StateConflict(
                "of this import",
                state="not empty",
                reason=f"an export of schema {schema} is brought up to date as a whole",
                hint="Import it into a new tally, and export that.",
                what="The tally",
            )
        own = rows.set_aside_own_journal(tx)
        for table in rows.table_names():
            for page in self._files.pages(table):
                self._tell(2 * len(page))
                if table == "settings":
                    for row in page:
                        self._settings |= _chosen_setting(row)
                    continue
                if table == "access_log":
                    # Who looked at an empty tally has a line of his own already.
                    page = [_without_id(row) for row in page]
                rows.add_rows(tx, table, page)
        self._adopt_settings(tx)
        rows.upgrade_rows(tx, schema)
        search.queue_for_index(tx, rows.docs_with_vectors(tx), scope_id=None)
        rows.move_sequences(tx)
        rows.put_back_own_journal(tx, own)
        require_verified(tx, integrity.stream_names(tx), self._heads)
        self._note(tx, len(self._result.scopes))
        self._call.keep(tx, self._result.dump(), at=self._context.store.clock.now())
        self._tell(2 * self._lines)

    def _adopt_settings(self, tx: Connection) -> None:
        """Adopt the settings that somebody chose, unless this tally has its own."""
        for name, value in self._settings.items():
            if settings_rows.get_setting(tx, name) is None:
                settings_rows.set_setting(tx, name, value)

    def _note(self, tx: Connection, here: int) -> None:
        details = {
            "format": self._result.format,
            "digest": self._result.digest,
            "scopes": here,
            "of": len(self._result.scopes),
        }
        event = journal.Event(
            stream="tally",
            event="tally.import",
            actor=self._actor,
            at=self._context.store.clock.now(),
            audit_id=self._context.store.ids.new(),
            details=details,
        )
        journal.append(tx, event)

    def _tell(self, count: int) -> None:
        """Call `progress` with so many more rows."""
        total = 2 * self._lines
        self._read = min(self._read + count, total)
        self._progress(self._read, total)


def _chosen_setting(row: Mapping[str, Any]) -> dict[str, str]:
    name, value = row["name"], row["value"]
    if name not in CHOICES:
        raise CorruptTally(f"The export holds the setting {name!a}, which no release writes.")
    if not re.fullmatch(CHOICES[name], value):
        raise CorruptTally(f"The export holds a value of {name} that no release writes.")
    return {name: value}


def _without_id(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "id"}
