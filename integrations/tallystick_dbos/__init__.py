"""Tallystick on DBOS: follow-up work carried out by durable workflows, on one host or on many."""

from tallystick.errors import require

require("dbos", extra="dbos")

from tallystick_dbos.bridge import DbosBridge  # noqa: E402

__all__ = ["DbosBridge"]
