"""Dialects: what differs between SQLite and PostgreSQL.

| | SQLite | PostgreSQL |
| --- | --- | --- |
| turn of a writer | `BEGIN IMMEDIATE` | advisory locks of the transaction (`writes`) |
| snapshot of a reader | `BEGIN`; the first read fixes it | `REPEATABLE READ READ ONLY` |
| schema, limits, durability | of the connection | of each transaction (`SETTINGS`) |
| durability of a commit | `synchronous` is NORMAL, or FULL | always on |
| clock of leases | `julianday`, milliseconds | `clock_timestamp`, microseconds |
| texts, bodies and digests | packed (`packing`) | as they are; the server compresses what is long |
| many ids as one value (`integer_list`) | `json_each(:ids)` | `= ANY(:ids)` |
| place of a text in a text | `instr` | `strpos` |
| bytes within bytes | `instr` | `position(… IN …)` |
| key of a new row | `lastrowid` of the driver | `RETURNING` |
| counters of keys after an import | move by themselves | are moved (`archives.move_counter`) |
| rewriting the file (`erasing`) | `VACUUM`, then the log is truncated | `CLUSTER` |
| the engine's own check | `PRAGMA integrity_check` | none: a server keeps the files |

A connection to PostgreSQL keeps no state: behind a pooler the next transaction may run in another
session of the server, and this one serve somebody else. So each transaction begins with its schema
and its limits, and ends with them.

A statement has a second text only where this table has a line (`prepared.Prepared`). Tables,
migrations and everything else are the same for both; nothing outside of `storage` asks which it is.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from sqlalchemy import Column, Connection, Engine, event, func
from sqlalchemy.sql.compiler import Compiled
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.util import LRUCache

from tallystick.errors import InvalidInput, StorageError
from tallystick.logs import get_logger
from tallystick.storage.engine.batches import FAILED, Read, begin_batch, flush
from tallystick.storage.engine.database_errors import is_failure, is_full
from tallystick.storage.engine.outcomes import NUMBER, note_timeline
from tallystick.storage.engine.packing import FUNCTIONS, Packed
from tallystick.storage.engine.prepared import Prepared, driver_errors, settle
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

SETTINGS = "tallystick.settings"
"""The execution option that has the statement with which each transaction on PostgreSQL begins."""
_WRITING, _READING = Prepared("BEGIN IMMEDIATE"), Prepared("BEGIN")
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
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
        _WRITING(connection, {})
        return
    batch.add(connection.get_execution_options()[SETTINGS])
    batch.add(lock_statement(writes))
    batch.read_ahead(connection, [(NUMBER, {}), *reads])


def begin_alone(connection: Connection) -> None:
    """Begin a transaction as the only writer, of which no statement waits for another."""
    if is_postgres(connection):
        _begin(connection, "BEGIN", lock_statement(EVERYTHING))
    else:
        _WRITING(connection, {})


def begin_read(connection: Connection) -> None:
    """Begin a read that sees one state."""
    if is_postgres(connection):
        _begin(connection, _SNAPSHOT)
    else:
        _READING(connection, {})


def _begin(connection: Connection, first: str, *further: str) -> None:
    settings = connection.get_execution_options()[SETTINGS]
    with driver_errors(connection, first) as driver:
        # Several statements in one way to the server, which it can therefore not prepare.
        driver.execute(";".join((first, settings, *further)), prepare=False)


def transaction_settings(schema: str, *, busy_timeout_ms: int) -> str:
    """Return the statement that lets a transaction work in `schema`, acknowledge its commit once it
    is on disk, and wait for a lock no longer than the busy timeout: for the turn of the writer, and
    for tables and rows that another client holds.
    """
    path = '"' + schema.replace('"', '""') + '"'
    # A timeout of 0 would wait for ever.
    values = {
        "search_path": path.replace("'", "''"),
        "synchronous_commit": "on",
        "lock_timeout": max(1, busy_timeout_ms),
    }
    calls = (f"set_config('{name}', '{value}', true)" for name, value in values.items())
    return f"SELECT {', '.join(calls)}"


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


_BETWEEN_TRIES = 0.05
_DEFAULT_THRESHOLD = 5
"""Times that a statement is run on a connection before the server prepares it."""


def prepare_postgres(
    engine: Engine,
    *,
    prepare_threshold: int | None = None,
    wait_seconds: float = 0.0,
    make_room: Callable[[], None] = lambda: None,
) -> None:
    """Look at each new connection, and drop broken ones. Without `prepare_threshold` the server
    prepares statements where no pooler is in between. A full server is waited for, after
    `make_room` has closed what this process has idle: others may wait for that.
    """
    logging.getLogger("psycopg").addHandler(_DRIVER_LOG)
    connect: list[Callable[[], Any]] = []

    @event.listens_for(engine, "do_connect")
    def wait_for_connection(dialect: Any, _: Any, arguments: Any, options: Any) -> Any:
        until = time.monotonic() + wait_seconds
        connect[:] = [partial(dialect.connect, *arguments, **options)]
        while True:
            try:
                return connect[0]()
            except Exception as error:
                if not is_full(error) or time.monotonic() > until:
                    raise
            make_room()
            time.sleep(_BETWEEN_TRIES)

    @event.listens_for(engine, "connect")
    def look_at_server(raw: Any, record: Any) -> None:
        raw.add_notice_handler(_log_notice)
        try:
            _require_utf8(raw)
            pooled, threshold = is_pooled(raw), prepare_threshold
            if threshold is None:
                threshold = 0 if pooled else _DEFAULT_THRESHOLD
            raw.prepare_threshold = threshold or None
            if pooled:
                _require_transactions(raw)
                if threshold:
                    _require_own_statements(raw, connect[0])
            note_timeline(raw, record.info)
        except BaseException:
            raw.close()
            raise

    @event.listens_for(engine, "checkin")
    def drop_broken(raw: Any, record: Any) -> None:
        # An error raised here would leave the connection counted as in use for ever.
        if raw is not None and (
            raw.closed or FAILED in record.info or raw.info.transaction_status.name != "IDLE"
        ):
            record.invalidate()

    @event.listens_for(engine, "before_cursor_execute")
    def send_what_waits(connection: Connection, *_: Any) -> None:
        flush(connection)


def _require_utf8(raw: Any) -> None:
    encoding = raw.info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):
        raise InvalidInput(
            f"This database stores text as {encoding}, in which not every text can be written. "
            "Make one for the tally: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
        )


def is_pooled(raw: Any) -> bool:
    """Return True where something between us and the server hands out its sessions: the process
    that answers is not the one which was named when the connection was made.
    """
    [process] = raw.execute("SELECT pg_backend_pid()").fetchone()
    return bool(process != raw.info.backend_pid)


def _require_transactions(raw: Any) -> None:
    """Raise StorageError for a pooler that hands out sessions by the statement."""
    try:
        raw.execute("BEGIN")
        raw.execute("COMMIT")
    except Exception as error:
        if not is_failure(error):
            raise
        raise StorageError(
            "The pooler in front of PostgreSQL hands out connections for single statements, and a "
            "tally writes in transactions. Set pool_mode = transaction or session for this "
            "database (PgBouncer), or connect to the server itself."
        ) from error


def _require_own_statements(raw: Any, connect: Callable[[], Any]) -> None:
    """Raise InvalidInput for a pooler that mixes up the prepared statements of its clients: each
    driver gives them the same names, and the session that one had last is given to the next.
    """
    try:
        raw.execute("SELECT 1", prepare=True)
        with closing(connect()) as another:
            another.prepare_threshold = raw.prepare_threshold
            another.execute("SELECT 1", prepare=True)
    except Exception as error:
        if getattr(error, "sqlstate", None) != "42P05":  # it is there: another client's
            raise
        raise InvalidInput(
            "The pooler in front of PostgreSQL mixes up prepared statements. Leave out the setting "
            "`prepare_threshold`, or let PgBouncer (1.21 or later) keep them apart: "
            "max_prepared_statements = 200.",
            argument="settings",
        ) from error


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

    @event.listens_for(engine, "before_cursor_execute")
    def store_what_is_held(connection: Connection, *_: Any) -> None:
        settle(connection)

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
