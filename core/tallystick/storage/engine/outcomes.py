"""Outcomes: whether a commit is there whose answer was lost, on PostgreSQL.

The server keeps the outcome of each transaction by its number, which a unit reads with its locks.
After a failover another server may have given that number to somebody else: numbers are compared
within one timeline alone, the history of a server that begins anew with each promotion. A server
that crashed gives the numbers once more of which its log had nothing yet. So after a crash a number
that was committed may be somebody else's, and only one that was not is an answer.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, text

from tallystick.storage.engine.batches import batch_of
from tallystick.storage.engine.database_errors import is_failure, was_lost
from tallystick.storage.engine.prepared import Prepared

NUMBER = Prepared("SELECT 0", postgresql="SELECT txid_current()")
"""The number of the transaction under way."""
_TIMELINE, _CRASH = "tallystick.timeline", "tallystick.crash"
_STATUS = text("SELECT txid_status(:number)")
_STATUS_AFTER_CRASH = text(
    "SELECT CASE WHEN :number >= txid_snapshot_xmax(txid_current_snapshot()) THEN 'aborted' "
    "ELSE txid_status(:number) END"
)
"""A number that nobody has got yet was lost with the transaction that had it."""
_PATIENCE = 5.0
"""Seconds for which the server is asked: it may be starting again, or still be ending the
connection that was lost.
"""
_PAUSE = 0.05


class Transaction(NamedTuple):
    """What a transaction is known by: its number, the timeline of its server, and the last crash of
    that.
    """

    number: int
    timeline: str
    crash: str


def note_timeline(driver: Any, info: dict[Any, Any]) -> None:
    """Note the timeline of the server of a new connection, and its last crash, in its `info`;
    nothing where the server does not tell, as one that only follows another.
    """
    try:
        # Statistics begin anew with each crash, and go on after a restart. Somebody may reset them
        # too: then an outcome is left open that could be known.
        query = (
            "SELECT pg_walfile_name(pg_current_wal_lsn()), stats_reset::text FROM pg_stat_bgwriter"
        )
        [name, reset] = driver.execute(query).fetchone()
        info[_TIMELINE] = name[:8]  # of 24 digits; the others are the place in the log
        info[_CRASH] = str(reset)
    except Exception as error:
        if not is_failure(error) or was_lost(error):
            raise


def transaction_of(connection: Connection) -> Transaction | None:
    """Return what the transaction under way will be known by; None on SQLite, and where the server
    tells no timeline.
    """
    timeline = connection.info.get(_TIMELINE)
    if timeline is None or batch_of(connection) is None:
        return None
    return Transaction(NUMBER(connection, {})[0][0], timeline, connection.info[_CRASH])


def is_committed(engine: Engine, transaction: Transaction | None) -> bool | None:
    """Return whether a transaction was committed; None where that cannot be known, or the server
    did not answer for some seconds.
    """
    if transaction is None:
        return None
    latest = time.monotonic() + _PATIENCE
    while True:
        try:
            with engine.connect() as connection:
                if connection.info.get(_TIMELINE) != transaction.timeline:
                    return None
                crashed = connection.info[_CRASH] != transaction.crash
                number = {"number": transaction.number}
                query = _STATUS_AFTER_CRASH if crashed else _STATUS
                status = connection.execute(query, number).scalar_one()
        except Exception as error:
            if not was_lost(error):
                if not is_failure(error):
                    raise
                return None
            status, crashed = "in progress", False  # nobody answered
        if status != "in progress":
            return {"committed": None if crashed else True, "aborted": False}.get(status)
        if time.monotonic() > latest:
            return None
        time.sleep(_PAUSE)
