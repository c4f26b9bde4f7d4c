"""Effects: everything that a piece of work wrote to the journal, without ids and times, so that two
ways to do it compare.
"""

from __future__ import annotations

from typing import Any

from tallystick.storage.rows import journal
from tallystick.tally import Tally
from tallystick.tally.services import services_of

_UNSTABLE = {
    "commitment",
    "source",
    "step_id",
    "run_id",
    "started_at",
    "ended_at",
    "audit_id",
    "previous",
    "digest",
}


def effects(tally: Tally) -> list[dict[str, Any]]:
    """Return the whole journal in order, without surfaces and times, ids replaced by their order of
    appearance.

    Two adapters that have the same effects give equal lists: same events, same reasons, same
    receipts.
    """
    seen: dict[str, str] = {}
    with services_of(tally).store.database.read() as connection:
        entries = journal.all_entries(connection)
    return [
        {
            "stream": entry.stream.split(":", 1)[0],
            "event": entry.event,
            "actor": entry.actor,
            "reason": entry.reason,
            "subject": _number_identity(entry.subject_id, seen),
            "details": _stable(entry.details, seen),
        }
        for entry in entries
    ]


def _number_identity(identity: str | None, seen: dict[str, str]) -> str | None:
    return None if identity is None else seen.setdefault(identity, f"#{len(seen) + 1}")


def _stable(value: Any, seen: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _stable(inner, seen) for name, inner in value.items() if name not in _UNSTABLE
        }
    if isinstance(value, list):
        return [_stable(inner, seen) for inner in value]
    if isinstance(value, str) and value in seen:
        return seen[value]
    return value
