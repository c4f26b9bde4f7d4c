"""Statements that run at every step of a graph: compiled once per dialect, then given to the driver as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import ClauseElement

__all__ = ["Hot", "among"]

_DIALECTS = {
    "sqlite": cast(Any, sqlite.dialect)(paramstyle="named"),
    "postgresql": cast(Any, postgresql.dialect)(paramstyle="pyformat"),
}


class Hot:
    """One statement. Values pass as the driver knows them: integers, text and bytes, which is all that is stored."""

    def __init__(self, statement: ClauseElement | Mapping[str, ClauseElement]) -> None:
        of = statement if isinstance(statement, Mapping) else dict.fromkeys(_DIALECTS, statement)
        self._texts = {name: str(of[name].compile(dialect=dialect)) for name, dialect in _DIALECTS.items()}

    @classmethod
    def written(cls, *, sqlite: str, postgresql: str) -> Hot:
        """A statement written out, for what the two databases say differently."""
        self = cls.__new__(cls)
        self._texts = {"sqlite": sqlite, "postgresql": postgresql}
        return self

    def __call__(
        self, connection: Connection, values: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> list[tuple[Any, ...]]:
        """Run it within the connection's transaction and give its rows; a sequence of mappings runs it once for each.

        Raises what SQLAlchemy would raise.
        """
        dialect = connection.dialect
        text = self._texts[dialect.name]
        driver = connection.connection.dbapi_connection
        assert driver is not None
        cursor = driver.cursor()
        try:
            if isinstance(values, Mapping):
                cursor.execute(text, values)
            else:
                cursor.executemany(text, values)
            return list(cursor.fetchall()) if cursor.description else []
        except dialect.loaded_dbapi.Error as error:
            raise DBAPIError.instance(text, None, error, dialect.loaded_dbapi.Error, dialect=dialect) from error
        finally:
            cursor.close()


def among(connection: Connection, values: Sequence[int]) -> Any:
    """Any number of integers as one value, for `IN (SELECT value FROM json_each(:x))` and `= ANY(%(x)s)`."""
    if connection.dialect.name == "postgresql":
        return list(values)
    return f"[{','.join(map(str, values))}]"
