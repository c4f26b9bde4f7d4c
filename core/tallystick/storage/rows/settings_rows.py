"""Settings: small values that a tally stores about itself, by name."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, select

from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import Prepared, upsert

_s = tables.settings
_GET = Prepared(select(_s.c.value).where(_s.c.name == bindparam("name")))
_SET = Prepared(upsert(_s, ("name", "value"), key=("name",), replacing=("value",)))


def get_setting(connection: Connection, name: str) -> str | None:
    """Return one value, or None where it was never set."""
    rows = _GET(connection, {"name": name})
    return rows[0][0] if rows else None


def set_setting(tx: Connection, name: str, value: str) -> None:
    """Store one value, in place of an earlier one."""
    _SET(tx, {"name": name, "value": value})


_UNRECORDED = "recorder.unrecorded"


def count_unrecorded(connection: Connection) -> int:
    """Return how many events of no run were never recorded, in every process so far."""
    return int(get_setting(connection, _UNRECORDED) or 0)


def add_unrecorded(tx: Connection, count: int) -> None:
    """Add to the number of events of no run that were never recorded."""
    set_setting(tx, _UNRECORDED, str(count_unrecorded(tx) + count))


_RATE = "rate."
"""Begins the names of counts of calls, whose values sort as texts."""


def get_rate(connection: Connection, name: str) -> int:
    """Return when the calls of one rate have passed their share, microseconds UTC; 0 for none."""
    return int(get_setting(connection, _RATE + name) or 0)


def add_rate(tx: Connection, name: str, share: int, now: int) -> int:
    """Add calls to a rate, remove those that have ended, and return when its share has passed."""
    due = max(get_rate(tx, name), now) + share
    tx.execute(delete(_s).where(_s.c.name.like(f"{_RATE}%"), _s.c.value < _sortable(now)))
    set_setting(tx, _RATE + name, _sortable(due))
    return due


def _sortable(moment: int) -> str:
    return f"{moment:020}"
