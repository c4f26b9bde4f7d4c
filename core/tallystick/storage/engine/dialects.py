"""Dialects: what differs between SQLite and PostgreSQL.

| | SQLite | PostgreSQL |
| --- | --- | --- |
| turn of a writer | `BEGIN IMMEDIATE` | advisory locks of the transaction (`writes`) |
| snapshot of a reader | `BEGIN`; the first read fixes it | `REPEATABLE READ READ ONLY` |
| durability of a commit | `synchronous` is NORMAL, or FULL | always on |
| clock of leases | `julianday`, milliseconds | `clock_timestamp`, microseconds |
| texts, bodies and digests | packed (`packing`) | as they are; the server compresses what is long |
| many ids as one value (`integer_list`) | `json_each(:ids)` | `= ANY(:ids)` |
| place of a text in a text | `instr` | `strpos` |
| bytes within bytes | `instr` | `position(… IN …)` |
| key of a new row | `lastrowid` of the driver | `RETURNING` |
| counters of keys after an import | move by themselves | are moved (`archives.move_counter`) |
| rewriting the file (`erasing`) | `VACUUM`, then the log is truncated | `VACUUM FULL` |
| the engine's own check | `PRAGMA integrity_check` | none: a server keeps the files |

A statement has a second text only where this table has a line (`prepared.Prepared`). Tables,
migrations and everything else are the same for both; nothing outside of `storage` asks which it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Engine, event, func
from sqlalchemy.sql.compiler import Compiled
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.util import LRUCache

from tallystick.logs import get_logger
from tallystick.storage.engine.batches import Read, begin_batch, flush
from tallystick.storage.engine.outcomes import NUMBER, note_timeline
from tallystick.storage.engine.packing import FUNCTIONS, Packed
from tallystick.storage.engine.prepared import Prepared
from tallystick.storage.engine.writes import EVERYTHING, Writes, lock_statement

_CHECKPOINT_PAGES = 4_000
"""Pages of 4 kB in the write-ahead log of SQLite at which a commit moves them to the file: 16 MB.

A small write changes some thirty pages, mostly the same ones, so that a fourth as many moves write
much less in all.
"""


class _Statements(LRUCache[Any, Compiled]):
    """Statements that SQLAlchemy has translated, by database and version, where an engine's own
    cache has its dialect: translating a statement takes longer than running it.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the translation of a statement, or `default`."""
        return super().get(_of_any_engine(key), default)

    def __setitem__(self, key: Any, value: Compiled) -> None:
        super().__setitem__(_of_any_engine(key), value)


def _of_any_engine(key: Any) -> Any:
    dialect, *of_statement = key
    return dialect.name, dialect.server_version_info, *of_statement


STATEMENTS = _Statements(1_000)
"""Those of every tally that this process opens."""

TAKE_TURN = Prepared("BEGIN IMMEDIATE", postgresql=lock_statement(EVERYTHING))
"""Begin a transaction as the only writer."""
SNAPSHOT = Prepared("BEGIN", postgresql="SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
"""Begin a read that sees one state."""
_TURN = "(30739, hashtext(current_schema() || ':' || :name))"
TRY_TURN = Prepared("SELECT 1", postgresql=f"SELECT pg_try_advisory_xact_lock{_TURN}")
"""Take the turn of a name until the transaction ends; false where another process has it."""
WAIT_FOR_TURN = Prepared("SELECT 1", postgresql=f"SELECT true FROM pg_advisory_xact_lock{_TURN}")
"""The same, after whoever has it."""
_CLOCK = Prepared(
    "SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    postgresql="SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
)


def take_turn(connection: Connection, writes: Writes, reads: Sequence[Read] = ()) -> None:
    """Begin a transaction as the only writer of what it will write; on PostgreSQL with its number,
    and what its unit reads first.
    """
    batch = begin_batch(connection)
    if batch is None:
        TAKE_TURN(connection, {})
        return
    batch.add(lock_statement(writes))
    batch.read_ahead(connection, [(NUMBER, {}), *reads])


def is_postgres(connection: Connection) -> bool:
    """Return True on PostgreSQL, False on SQLite."""
    return connection.dialect.name == "postgresql"


def database_clock(connection: Connection) -> int:
    """Return the time of the database, microseconds UTC: leases of several machines share it."""
    return int(_CLOCK(connection, {})[0][0])


def text_position(connection: Connection) -> Callable[..., Any]:
    """Return the function that gives the place of a text in a text, from 1, or 0."""
    return func.strpos if is_postgres(connection) else func.instr


def unpack(connection: Connection, column: Column[Any]) -> ColumnElement[Any]:
    """Return a column as the database itself can search and measure it."""
    if is_postgres(connection) or not isinstance(column.type, Packed):
        return column
    kind = column.type.impl_instance
    function: ColumnElement[Any] = getattr(func, column.type.function)(column, type_=kind)
    return function


def _log_notice(notice: Any) -> None:
    """Log what a server says beside its answers, by its codes: its words may quote a row."""
    get_logger("storage").warning(
        "postgres.notice", state=notice.sqlstate, reason=notice.severity_nonlocalized
    )


class _DriverLog(logging.Handler):
    """Takes what the driver warns of, such as a connection that a restart cut, to our log: where an
    application has set up no logging, Python writes it to standard error.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Log that the driver warned; its words may quote a row."""
        get_logger("storage").warning("postgres.driver", reason=record.levelname)


_DRIVER_LOG = _DriverLog(logging.WARNING)


def prepare_postgres(engine: Engine, schema: str, *, busy_timeout_ms: int) -> None:
    """Let each new connection work in `schema`, acknowledge a commit once it is on disk, and wait
    for a lock no longer than the busy timeout: for the turn of the writer, and for tables and rows
    that another client holds.
    """
    name = schema.replace('"', '""')
    logging.getLogger("psycopg").addHandler(_DRIVER_LOG)

    @event.listens_for(engine, "connect")
    def enter_schema(raw: Any, record: Any) -> None:
        raw.add_notice_handler(_log_notice)
        with raw.cursor() as cursor:
            cursor.execute(f'SET search_path TO "{name}"')
            cursor.execute("SET synchronous_commit TO on")
            # 0 would wait for ever.
            cursor.execute(f"SET lock_timeout TO {max(1, busy_timeout_ms)}")
        raw.commit()
        note_timeline(raw, record.info)

    @event.listens_for(engine, "checkin")
    def let_the_driver_begin(raw: Any, record: Any) -> None:
        if raw is None or not (raw.closed or raw.autocommit):
            return
        # An error raised here would leave the connection counted as in use for ever.
        is_idle = not raw.closed and raw.info.transaction_status.name == "IDLE"
        if not is_idle or raw.prepare_threshold is None:  # which a failure leaves: see `Batch`
            record.invalidate()
        else:
            raw.autocommit = False

    @event.listens_for(engine, "before_cursor_execute")
    def send_what_waits(connection: Connection, *_: Any) -> None:
        flush(connection)


def let_go_of_socket(connection: Connection | None) -> None:
    """Put nothing in place of a socket to PostgreSQL that a forked child shares with its parent:
    whatever the driver sends later goes nowhere, and the parent's session ends with the parent.
    """
    if connection is None or connection.closed:
        return
    driver: Any = connection.connection.dbapi_connection
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, driver.fileno())
    os.close(nowhere)


def prepare_sqlite(
    engine: Engine,
    *,
    busy_timeout_ms: int,
    full_durability: bool,
    writing: bool,
    damaged: Callable[[], Exception],
) -> None:
    """Set up each new connection: its log, its durability, and for readers that they only read.

    `damaged` makes the error for a file that is no database.
    """

    @event.listens_for(engine, "connect")
    def set_up(raw: Any, _record: Any) -> None:
        # pysqlite's own handling of transactions defers the lock; ours are begun explicitly.
        raw.isolation_level = None
        for name, function in FUNCTIONS.items():
            raw.create_function(name, 1, function, deterministic=True)
        cursor = raw.cursor()
        cursor.execute(f"PRAGMA busy_timeout={busy_timeout_ms}")
        if writing:
            try:
                cursor.execute("PRAGMA journal_mode=WAL")
            except UnicodeDecodeError as error:
                # SQLite quotes a damaged schema in its message.
                raise damaged() from error
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA synchronous={'FULL' if full_durability else 'NORMAL'}")
        cursor.execute("PRAGMA temp_store=MEMORY")
        cursor.execute("PRAGMA cache_size=-16000")
        cursor.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        if not writing:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()
