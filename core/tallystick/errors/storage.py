"""Errors of the store, and of what is stored there already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tallystick.errors.base import TallystickError


class StorageError(TallystickError):
    """The store could not do what was asked. Nothing was half written."""

    code = "storage_error"


class TallyNotFound(StorageError):
    """There is no tally at this place. Give the folder of an existing one, or let `Tally.open` make
    it.
    """

    code = "tally_not_found"


class NewerTally(StorageError):
    """This tally was written by a newer release of Tallystick. Upgrade to open it; nothing was
    changed.
    """

    code = "newer_tally"
    _facts = ("schema", "supported")

    def __init__(self, schema: str, *, supported: str) -> None:
        self.schema = schema
        self.supported = supported
        super().__init__(
            f"This tally has schema {schema}, which this release (schema {supported}) does not "
            "know. Upgrade tallystick to open it; nothing was changed."
        )


class UnreleasedTally(StorageError):
    """This tally was made by a commit of Tallystick before 0.1.0, whose schema was never released.
    Open it with that commit, or make a new tally; nothing was changed.
    """

    code = "unreleased_tally"
    _facts = ("schema", "supported")

    def __init__(self, schema: str, *, supported: str) -> None:
        self.schema = schema
        self.supported = supported
        super().__init__(
            f"This was made by a commit of Tallystick before 0.1.0: its schema {schema} was never "
            f"released, and this one reads {supported}. Nothing was changed. Open it with that "
            "commit, or make a new tally."
        )


class ClosedTally(StorageError):
    """This tally was closed. Open it again with `Tally.open`."""

    code = "closed_tally"


class ForkedTally(StorageError):
    """This process inherited the tally from its parent by fork. Open your own with `Tally.open`."""

    code = "forked_tally"


class BusyTally(StorageError):
    """Another writer held the database for longer than `busy_timeout_ms`. Nothing was written; try
    again.
    """

    code = "busy_tally"


UnwritableReason = Literal["disk_full", "read_only", "no_permission", "no_grant", "write_failed"]
"""Why a tally cannot be written."""
_UNWRITABLE: Mapping[UnwritableReason, str] = {
    "disk_full": "The disk is full. Free some space, and call again or open the tally anew.",
    "read_only": "The tally is on a read-only disk or server. Open it where it can be written.",
    "no_permission": "This process may not write the tally's files. Give it write permission to "
    "the folder and to all files in it.",
    "no_grant": "This database role may not do that in the tally's schema. Let the owner of its "
    "tables run what `tally migrate --grants ROLE` prints, or open it as that owner.",
    "write_failed": "The system refused to write the tally's files. Look at the disk, quotas and "
    "limits of this process.",
}


class ReadOnlyTally(StorageError):
    """This tally can be read here and not written. Nothing was written; `reason` says why."""

    code = "read_only_tally"
    retry = "until_back"
    _facts = ("reason",)

    def __init__(self, reason: UnwritableReason = "write_failed", message: str = "") -> None:
        self.reason: UnwritableReason = reason
        self.cause = _UNWRITABLE[reason]
        """Why it cannot be written, and what to do."""
        super().__init__(f"{message or 'Nothing was written.'} {self.cause}")


class CorruptTally(StorageError):
    """Stored bytes do not match what was written. Run `tally verify` to see where."""

    code = "corrupt_tally"


class BlockedType(StorageError):
    """Stored state names a class that may not be built. If it is yours, allow it where the saver is
    made.
    """

    code = "blocked_type"
    _facts = ("module", "name")

    def __init__(self, module: str, name: str, *, where: str = "") -> None:
        self.module = module
        self.name = name
        self.where = where
        super().__init__(
            f"Stored state{where and f' ({where})'} holds {module}.{name}, which may not be built. "
            f"If it is a type of yours, allow it: TallySaver(tally, allow=[{name}])."
        )


class InsideTransaction(StorageError):
    """A model or embedder was about to be called inside a write transaction. Call it before the
    write.
    """

    code = "inside_transaction"


class Conflict(TallystickError):
    """The change does not fit what is stored now. Nothing was changed."""

    code = "conflict"


class VersionConflict(Conflict):
    """The record changed since it was read. Read it again and decide anew."""

    code = "version_conflict"
    _facts = ("memory_id", "expected", "actual")

    reason = "version_conflict"

    def __init__(self, memory_id: str, *, expected: int, actual: int) -> None:
        self.memory_id = memory_id
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"Memory {memory_id} is at version {actual}, not {expected}. Read it again and "
            f"decide anew."
        )


class StateConflict(Conflict):
    """The record's state does not allow this change."""

    code = "state_conflict"
    _facts = ("memory_id", "state", "reason")

    def __init__(
        self, memory_id: str, *, state: str, reason: str, hint: str = "", what: str = "Memory"
    ) -> None:
        self.memory_id = memory_id
        self.state = state
        self.reason = reason
        super().__init__(f"{what} {memory_id} is {state}: {reason}.{' ' + hint if hint else ''}")


class PositionTaken(Conflict):
    """Another turn stands at this place of the conversation. Leave `position` out to append."""

    code = "position_taken"
    _facts = ("conversation", "position", "memory_id")

    def __init__(self, conversation: str, position: int, memory_id: str) -> None:
        self.conversation = conversation
        self.position = position
        self.memory_id = memory_id
        super().__init__(
            f"Conversation {conversation!r} holds another turn ({memory_id}) at position "
            f"{position}. "
            "Leave `position` out to append, or modify that turn."
        )
