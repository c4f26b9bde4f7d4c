"""Prepared statements: one text with `:names`, translated once for each database, then given to the
driver as it is.

They serve what runs at every step of a graph and every write of a memory, where SQLAlchemy costs
more than the statement. A statement is written as text or as a SQLAlchemy construct; a second one
is given only where PostgreSQL truly differs. Many values under one name are written as SQLite takes
them, `IN (SELECT value FROM json_each(:x))`, and become `= ANY(:x)`. Values are named everywhere.
SQLite receives them by position, in the order in which the statement names them: a look-up by name
costs it as much as the rest of a small insert. A literal in a text must not look like a `:name`.

Columns that SQLite stores packed are packed and unpacked here, by the types of the construct or, in
the text of an insert, by the columns that its values are named after.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, bindparam, text
from sqlalchemy.sql import ClauseElement

from tallystick.storage.engine import tables
from tallystick.storage.engine.batches import batch_of, translate_driver_error
from tallystick.storage.engine.packing import Packed

_NAME = re.compile(r"(?<!:):([A-Za-z_]\w*)")
"""A `:name`, and no `::type` of PostgreSQL."""
_LISTED = re.compile(r"(NOT )?IN \(SELECT value FROM json_each\((:\w+)\)\)")
_ROW = re.compile(r"(INSERT INTO [^?]* VALUES )(\(\?(?:, \?)*\))( ON CONFLICT[^?]*)?")
_SILENT = re.compile(r"(?is)(INSERT|UPDATE|DELETE)\b(?!.*\bRETURNING\b)")
_INTO = re.compile(r'INSERT INTO "(\w+)"')
_AT_ONCE = (256, 128, 64, 32, 16, 8, 4, 2)
"""Rows that one insert may contain. Python's driver releases the interpreter at every statement,
and beside a thread that computes it costs more to get it back than to write a row.
"""
_MOST_VALUES = 64
"""Values of one `PreparedIn`: each number of them is a statement that is kept."""


class _Statement(NamedTuple):
    """A statement in the form that one driver takes."""

    text: str
    in_order: Callable[[Any], Any]
    """Brings the named values into the form that the driver expects."""
    read: Callable[[Any], Any]
    """Reads the result off the cursor."""


class Prepared:
    """One statement that returns its rows. Values pass as the driver knows them: integers, text and
    bytes, which is all that is stored.
    """

    def __init__(
        self,
        statement: ClauseElement | str,
        *,
        postgresql: ClauseElement | str | None = None,
        reads_bytes: bool = False,
    ) -> None:
        """Take `statement` for both databases, or for SQLite alone where `postgresql` is given. It
        is translated for a database when it is first run there: most run in few processes, and
        hardly any process needs both. With `reads_bytes` PostgreSQL sends its rows to a reader as
        they are instead of as text, which for bytes is twice as long; within a unit that writes
        they come as text.
        """
        self._on_cursor = {"binary": True} if reads_bytes else {}
        self._given: Mapping[str, ClauseElement | str] = {
            "sqlite": statement,
            "postgresql": statement if postgresql is None else postgresql,
        }
        self._translated: dict[str, _Statement] = {}
        self._is_silent: bool | None = None

    def translate(self, dialect: str) -> _Statement:
        """Return it as the driver of a database takes it."""
        found = self._translated.get(dialect)
        if found is None:
            found = self._translated[dialect] = self._translation(dialect)
        return found

    def _translation(self, dialect: str) -> _Statement:
        statement, read = self._given[dialect], self._reader(dialect)
        if dialect == "postgresql":
            text = _LISTED.sub(_any_of, _text(statement, dialect)).replace("%", "%%")
            return _Statement(_NAME.sub(r"%(\1)s", text), _identity, read)
        text, packs, unpacks = _packed_text(statement)
        names = _NAME.findall(text)
        in_order = _packing(_by_position(names), names, packs)
        return _Statement(_NAME.sub("?", text), in_order, _unpacking(read, unpacks))

    @property
    def is_silent(self) -> bool:
        """True if it returns nothing, so that nobody needs to wait for it on PostgreSQL."""
        if self._is_silent is None:
            text = self.translate("postgresql").text
            self._is_silent = self._may_wait and _SILENT.match(text) is not None
        return self._is_silent

    _may_wait = True

    def begin(self, cursor: Any, values: Any) -> tuple[str, Callable[[Any], Any]]:
        """Send it to PostgreSQL; return its text, and what reads the result off the cursor."""
        text, in_order, read = self.translate("postgresql")
        if isinstance(values, Mapping):
            cursor.execute(text, in_order(values))
        else:
            cursor.executemany(text, [in_order(row) for row in values])
        return text, read

    def _reader(self, dialect: str) -> Callable[[Any], Any]:
        """Return the function that reads the result off a cursor."""
        return _rows

    def __call__(
        self, connection: Connection, values: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> Any:
        """Run it within the connection's transaction and return its result; a sequence of mappings
        runs it once for each.

        Raises what SQLAlchemy would raise.
        """
        dialect = connection.dialect
        if dialect.name == "postgresql" and (batch := batch_of(connection)) is not None:
            return batch.run(connection, self, values)
        text, in_order, read = self.translate(dialect.name)
        driver: Any = connection.connection.dbapi_connection
        cursor = driver.cursor(**(self._on_cursor if dialect.name == "postgresql" else {}))
        try:
            if type(values) is dict or isinstance(values, Mapping):
                cursor.execute(text, in_order(values))
            elif dialect.name == "sqlite":
                _insert_many(cursor, text, [in_order(row) for row in values])
            else:
                cursor.executemany(text, [in_order(row) for row in values])
            return read(cursor)
        except dialect.loaded_dbapi.Error as error:
            raise translate_driver_error(error, text, connection) from error
        finally:
            cursor.close()


class PreparedIn:
    """A query of the rows whose column has one of some values, prepared for each number of them;
    for a column that SQLite stores packed, where `integer_list` does not serve.
    """

    def __init__(self, query: Any, column: ColumnElement[Any]) -> None:
        """Take a `select` of any columns."""
        self._query, self._column = query, column
        self._of: dict[int, Prepared] = {}

    def __call__(self, connection: Connection, values: Collection[Any]) -> list[tuple[Any, ...]]:
        """Return the rows that have one of `values`."""
        rows: list[tuple[Any, ...]] = []
        left = list(values)
        while left:
            some, left = left[:_MOST_VALUES], left[_MOST_VALUES:]
            statement = self._of.get(len(some))
            if statement is None:
                # An untyped value would not be packed.
                names: list[Any] = [
                    bindparam(f"value{n}", type_=self._column.type) for n in range(len(some))
                ]
                query = self._query.where(self._column.in_(names))
                statement = self._of[len(some)] = Prepared(query)
            rows += statement(connection, {f"value{n}": value for n, value in enumerate(some)})
        return rows


class PreparedUpdate(Prepared):
    """A statement that returns the number of rows it changed."""

    _may_wait = False

    def _reader(self, dialect: str) -> Callable[[Any], Any]:
        return _row_count


class PreparedRow(Prepared):
    """An insert of which `gathered` stores many rows at once."""

    def __call__(
        self, connection: Connection, values: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> Any:
        """Same as `Prepared`; within `gathered` it runs at the end of that."""
        held = _held(connection)
        if held is None:
            return super().__call__(connection, values)
        held.rows.setdefault(self, []).extend([values] if isinstance(values, Mapping) else values)
        return []


@dataclass
class _Held:
    """What `gathered` holds back."""

    rows: dict[PreparedRow, list[Mapping[str, Any]]] = field(default_factory=dict)
    last: dict[str, Callable[[Connection], None]] = field(default_factory=dict)
    """What is done behind the rows, by name."""
    keys: dict[str, int] = field(default_factory=dict)
    """The last key of each table that rows were given."""


_GATHERED = "tallystick.gathered_rows"


def _held(connection: Connection) -> _Held | None:
    held: _Held | None = connection.info.get(_GATHERED)
    return held


@contextmanager
def gathered(connection: Connection) -> Iterator[None]:
    """Hold back the rows of each `PreparedRow` within the block and store them together at its end,
    in the order in which the statements came first. Whoever reads them before calls `settle`. On
    PostgreSQL nobody waits for an insert, and each goes at once.
    """
    if connection.dialect.name == "postgresql" or _GATHERED in connection.info:
        yield
        return
    connection.info[_GATHERED] = _Held()
    try:
        yield
        settle(connection)
    finally:
        del connection.info[_GATHERED]


def settle(connection: Connection) -> None:
    """Store the rows that `gathered` holds back, and do what comes behind them."""
    held = _held(connection)
    if held is None:
        return
    # The order of the statements stays: a row that another one names is stored before it.
    waiting, held.rows = held.rows, {statement: [] for statement in held.rows}
    for statement, rows in waiting.items():
        if rows:
            Prepared.__call__(statement, connection, rows)
    for finish in held.last.values():
        finish(connection)


def done_last(connection: Connection) -> dict[str, Callable[[Connection], None]] | None:
    """Return what `settle` does behind the rows each time, by name, for the caller to add to; None
    outside of `gathered`.
    """
    held = _held(connection)
    return None if held is None else held.last


def key_ahead(connection: Connection, table: Table) -> int | None:
    """Return the integer key of a new row of a table that `gathered` holds back: those behind the
    last one that SQLite gave, which only this transaction can give. None outside of `gathered`.
    """
    held = _held(connection)
    if held is None:
        return None
    if table.name not in held.keys:
        rows = _LAST_KEY(connection, {"name": table.name})
        held.keys[table.name] = rows[0][0] if rows else 0
    held.keys[table.name] += 1
    return held.keys[table.name]


_LAST_KEY = Prepared("SELECT seq FROM sqlite_sequence WHERE name = :name")


class PreparedInsert(Prepared):
    """An insert of one row that returns the integer key which the database chose for it."""

    def __init__(self, statement: str, *, key: str) -> None:
        # SQLite reports the key unasked, which costs it less than RETURNING.
        super().__init__(statement, postgresql=f"{statement} RETURNING {_quote(key)}")

    def _reader(self, dialect: str) -> Callable[[Any], Any]:
        return _last_key if dialect == "sqlite" else _returned_key


def insert_row(table: Table, *columns: str) -> str:
    """Return the text that inserts one row with a value for each of `columns`, by name; by default
    for all columns.
    """
    columns = columns or tuple(column.name for column in table.columns)
    names = ", ".join(map(_quote, columns))
    values = ", ".join(f":{name}" for name in columns)
    return f"INSERT INTO {_quote(table.name)} ({names}) VALUES ({values})"


def row_of(table: Table, record: object, **columns: object) -> dict[str, Any]:
    """Return the row of a record: `columns`, and else its fields by the names of the columns."""
    names = [column.name for column in table.columns]
    return {each: columns[each] if each in columns else getattr(record, each) for each in names}


def upsert(
    table: Table, columns: Sequence[str], *, key: Sequence[str] = (), replacing: Sequence[str] = ()
) -> str:
    """Return the text that inserts one row, or, where its `key` exists, replaces the columns
    `replacing`; without these the existing row stays as it is.

    Without `key` any unique constraint counts.
    """
    target = f" ({', '.join(map(_quote, key))})" if key else ""
    changes = ", ".join(f"{_quote(name)} = excluded.{_quote(name)}" for name in replacing)
    action = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
    return f"{insert_row(table, *columns)} ON CONFLICT{target} {action}"


def in_list(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return the condition of a prepared statement that a column has one of the values that
    `integer_list` or `text_list` gives under a name.
    """
    return column.in_(text(f"SELECT value FROM json_each(:{name})"))


def _any_of(listed: re.Match[str]) -> str:
    return f"{'<> ALL' if listed[1] else '= ANY'}({listed[2]})"


def integer_list(connection: Connection, values: Sequence[int]) -> Any:
    """Return any number of integers as one value, for `in_list`."""
    if connection.dialect.name == "postgresql":
        return list(values)
    return f"[{','.join(map(str, values))}]"


def text_list(connection: Connection, values: Sequence[str]) -> Any:
    """Return any number of texts as one value; see `integer_list`."""
    return list(values) if connection.dialect.name == "postgresql" else json.dumps(list(values))


@contextmanager
def driver_errors(connection: Connection, text: str) -> Iterator[Any]:
    """Yield the driver's connection; an error raised inside the block becomes the one that
    SQLAlchemy would raise of `text`.
    """
    try:
        yield connection.connection.dbapi_connection
    except connection.dialect.loaded_dbapi.Error as error:
        raise translate_driver_error(error, text, connection) from error


def _quote(name: str) -> str:
    return f'"{name}"'


def _text(statement: ClauseElement | str, dialect: str) -> str:
    if isinstance(statement, str):
        return statement
    return str(statement.compile(dialect=_dialect(dialect)))


@cache
def _dialect(name: str) -> Any:
    dialects = import_module(f"sqlalchemy.dialects.{name}")
    return dialects.dialect(paramstyle="named")


_Convert = Callable[[Any], Any]


def _packed_text(
    statement: ClauseElement | str,
) -> tuple[str, dict[str, _Convert], list[tuple[int, _Convert]]]:
    """Return the text for SQLite, what packs its values by name, and what unpacks the columns of
    its result by position.
    """
    if isinstance(statement, str):
        into = _INTO.match(statement)
        columns = tables.metadata.tables[into[1]].columns if into else ()
        types = {column.name: column.type for column in columns}
        return statement, {n: t.pack for n, t in types.items() if isinstance(t, Packed)}, []
    compiled = statement.compile(dialect=_dialect("sqlite"))
    binds: Mapping[str, Any] = getattr(compiled, "binds", {})
    packs = {name: b.type.pack for name, b in binds.items() if isinstance(b.type, Packed)}
    selected: Iterator[tuple[int, Any]] = enumerate(getattr(statement, "selected_columns", ()))
    unpacks: list[tuple[int, _Convert]] = [
        (n, c.type.unpack) for n, c in selected if isinstance(c.type, Packed)
    ]
    return str(compiled), packs, unpacks


def _packing(in_order: _Convert, names: list[str], packs: Mapping[str, _Convert]) -> _Convert:
    """Return `in_order`, with the packed form of the values that are stored so."""
    converters = [(n, packs[name]) for n, name in enumerate(names) if name in packs]
    if not converters:
        return in_order

    def pack(values: Any) -> Any:
        row = list(in_order(values))
        for position, convert in converters:
            row[position] = convert(row[position])
        return row

    return pack


def _unpacking(read: _Convert, unpacks: Sequence[tuple[int, _Convert]]) -> _Convert:
    """Return `read`, with the values of packed columns as they were given."""
    if not unpacks:
        return read

    def unpack(cursor: Any) -> list[tuple[Any, ...]]:
        rows = []
        for row in read(cursor):
            values = list(row)
            for position, convert in unpacks:
                value = values[position]
                # Most are none, or are not packed.
                if value is not None and type(value) is not str:
                    values[position] = convert(value)
            rows.append(tuple(values))
        return rows

    return unpack


def _insert_many(cursor: Any, text: str, rows: Sequence[Any]) -> None:
    """Run a statement once for each row; an insert takes many rows at once."""
    start = 0
    for size in _AT_ONCE if len(rows) >= _AT_ONCE[-1] else ():
        of_many = _of_rows(text, size)
        if of_many is None:
            break
        while len(rows) - start >= size:
            cursor.execute(of_many, tuple(chain.from_iterable(rows[start : start + size])))
            start += size
    if start < len(rows):
        cursor.executemany(text, rows[start:])


@lru_cache(maxsize=256)
def _of_rows(text: str, count: int) -> str | None:
    """Return an insert of one row as an insert of several; None for any other statement."""
    match = _ROW.fullmatch(text)
    return None if match is None else f"{match[1]}{', '.join([match[2]] * count)}{match[3] or ''}"


def _rows(cursor: Any) -> list[tuple[Any, ...]]:
    return cursor.fetchall() if cursor.description else []


def _row_count(cursor: Any) -> int:
    return int(cursor.rowcount)


def _last_key(cursor: Any) -> int:
    return int(cursor.lastrowid)


def _returned_key(cursor: Any) -> int:
    return int(cursor.fetchone()[0])


def _by_position(names: list[str]) -> Callable[[Any], Any]:
    if len(names) > 1:
        return itemgetter(*names)
    return (lambda values: (values[names[0]],)) if names else (lambda _: ())


def _identity(values: Any) -> Any:
    return values
