"""Help of commands and options, from the table of operations."""

from __future__ import annotations

from tallystick.operations import OPERATIONS

_PERSON = "Shows it first and needs a person at a terminal."
_OPERATION_OF = {
    "pack": "context_pack",
    "preview-agent": "preview_access",
    "outbound": "outbound_calls",
    "import": "import_from",
}
"""The operation of a command by another name."""
_OWN_WORDS = frozenset({"forget", "review", "jobs", "doctor", "space", "receipt"})
"""Commands that do more than the operation of their name, and describe themselves."""
_NOTES = {
    "verify": "A bundle is checked without the tally. Exits with 1 when something differs.",
    "approve": _PERSON,
    "deny": _PERSON,
    "revoke": _PERSON,
    "erase": "To do it needs a person at a terminal.",
    "rebuild-index": "With --check only says whether it matches.",
}
"""Sentences that a command adds to the description in the table."""


def help_of(operation: str, argument: str) -> str:
    """Return the table's help of an argument, for the option that gives it."""
    return OPERATIONS[operation].help(argument)


def command_help(command: str) -> str | None:
    """Return the table's description for a command that is one operation; None for all others."""
    operation = OPERATIONS.get(_OPERATION_OF.get(command, command.replace("-", "_")))
    if operation is None or command in _OWN_WORDS:
        return None
    return f"{operation.description} {_NOTES.get(command, '')}".strip()
