"""Settings: small values that a tally stores about itself, by name."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select

from tallystick.storage import tables
from tallystick.storage.prepared import Prepared, upsert

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
