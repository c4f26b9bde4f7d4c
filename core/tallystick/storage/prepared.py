"""Statements that run at every step of a graph and every write of a memory: compiled once per
dialect, then given to the driver as they are.

Values have names here. SQLite is given them by place, in the order in which the statement names
them: to look each name up costs it as much as the rest of a small insert.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Self, cast

from sqlalchemy import Column, Connection
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import ClauseElement, Insert

__all__ = ["PreparedUpdate", "Prepared", "PreparedInsert", "among", "driver_errors"]

_DIALECTS = {
    "sqlite": cast(Any, sqlite.dialect)(paramstyle="named"),
    "postgresql": cast(Any, postgresql.dialect)(paramstyle="pyformat"),
}
_NAME = re.compile(r"(?<!:):([A-Za-z_]\w*)")
_ROW = re.compile(r"(INSERT INTO [^?]* VALUES )(\(\?(?:, \?)*\))( ON CONFLICT[^?]*)?")
_AT_ONCE = (256, 128, 64, 32, 16, 8, 4, 2)
"""Rows that one insert may hold. Python's driver lets go of the interpreter at every statement, and
beside a thread that computes it costs more to get it back than to write a row.
"""


class Prepared:
    """One statement. Values pass as the driver knows them: integers, text and bytes, which is all
    that is stored.
    """

    def __init__(self, statement: ClauseElement | Mapping[str, ClauseElement]) -> None:
        of = statement if isinstance(statement, Mapping) else dict.fromkeys(_DIALECTS, statement)
        self._prepare(
            {name: str(of[name].compile(dialect=dialect)) for name, dialect in _DIALECTS.items()}
        )

    @classmethod
    def written(cls, *, sqlite: str, postgresql: str) -> Self:
        """A statement written out, for what the two databases say differently."""
        self = cls.__new__(cls)
        self._prepare({"sqlite": sqlite, "postgresql": postgresql})
        return self

    def _prepare(self, texts: dict[str, str]) -> None:
        by_place = _in_order(_NAME.findall(texts["sqlite"]))
        self._made: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
            "sqlite": (_NAME.sub("?", texts["sqlite"]), by_place, self._answer("sqlite")),
            "postgresql": (texts["postgresql"], _as_given, self._answer("postgresql")),
        }

    def _answer(self, dialect: str) -> Callable[[Any], Any]:
        """What is read off the cursor when the statement has run."""
        return _rows

    def __call__(
        self, connection: Connection, values: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> Any:
        """Run it within the connection's transaction and give its rows; a sequence of mappings runs
        it once for each.

        Raises what SQLAlchemy would raise.
        """
        dialect = connection.dialect
        text, arranged, answer = self._made[dialect.name]
        driver: Any = connection.connection.dbapi_connection
        cursor = driver.cursor()
        try:
            if type(values) is dict or isinstance(values, Mapping):
                cursor.execute(text, arranged(values))
            elif dialect.name == "sqlite":
                _insert_many(cursor, text, [arranged(one) for one in values])
            else:
                cursor.executemany(text, [arranged(one) for one in values])
            return answer(cursor)
        except dialect.loaded_dbapi.Error as error:
            raise _translated(error, text, connection) from error
        finally:
            cursor.close()


class PreparedUpdate(Prepared):
    """A statement that answers how many rows it changed."""

    def _answer(self, dialect: str) -> Callable[[Any], Any]:
        return _changed


class PreparedInsert(Prepared):
    """An insert of one row that answers the integer key which the database made for it."""

    def __init__(self, statement: Insert, key: Column[int]) -> None:
        # SQLite knows the key without being asked, which costs it less than RETURNING.
        super().__init__({"sqlite": statement, "postgresql": statement.returning(key)})

    def _answer(self, dialect: str) -> Callable[[Any], Any]:
        return _key_known if dialect == "sqlite" else _key_returned


def _insert_many(cursor: Any, text: str, rows: Sequence[Any]) -> None:
    """Run a statement once for each row; an insert takes many rows at once."""
    done = 0
    for size in _AT_ONCE if len(rows) >= _AT_ONCE[-1] else ():
        many = _of_rows(text, size)
        if many is None:
            break
        while len(rows) - done >= size:
            cursor.execute(many, tuple(chain.from_iterable(rows[done : done + size])))
            done += size
    if done < len(rows):
        cursor.executemany(text, rows[done:])


@lru_cache(maxsize=256)
def _of_rows(text: str, count: int) -> str | None:
    """An insert of one row as an insert of several; None for any other statement."""
    found = _ROW.fullmatch(text)
    return None if found is None else f"{found[1]}{', '.join([found[2]] * count)}{found[3] or ''}"


def _rows(cursor: Any) -> list[tuple[Any, ...]]:
    return cursor.fetchall() if cursor.description else []


def _changed(cursor: Any) -> int:
    return int(cursor.rowcount)


def _key_known(cursor: Any) -> int:
    return int(cursor.lastrowid)


def _key_returned(cursor: Any) -> int:
    return int(cursor.fetchone()[0])


def _in_order(names: list[str]) -> Callable[[Any], Any]:
    if len(names) > 1:
        return itemgetter(*names)
    return (lambda values: (values[names[0]],)) if names else (lambda _: ())


def _as_given(values: Any) -> Any:
    return values


@contextmanager
def driver_errors(connection: Connection, text: str) -> Iterator[Any]:
    """The driver's connection; what it raises inside the block becomes what SQLAlchemy would raise
    of `text`.
    """
    try:
        yield connection.connection.dbapi_connection
    except connection.dialect.loaded_dbapi.Error as error:
        raise _translated(error, text, connection) from error


def _translated(error: Exception, text: str, connection: Connection) -> BaseException:
    dialect = connection.dialect
    lost = dialect.is_disconnect(cast(Any, error), connection.connection.dbapi_connection, None)
    return DBAPIError.instance(
        text, None, error, dialect.loaded_dbapi.Error, dialect=dialect, connection_invalidated=lost
    )


def among(connection: Connection, values: Sequence[int]) -> Any:
    """Any number of integers as one value, for `IN (SELECT value FROM json_each(:x))` and `=
    ANY(%(x)s)`.
    """
    if connection.dialect.name == "postgresql":
        return list(values)
    return f"[{','.join(map(str, values))}]"
