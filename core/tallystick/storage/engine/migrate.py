"""Bring a database to this release's schema: on open, idempotent, refusing what it does not know.

A schema is named by a number and a fingerprint of what is declared: two commits that declare other
tables never take one another's tallies for their own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Column, Connection, Dialect, inspect, text
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from tallystick.errors import (
    NewerTally,
    ReadOnlyTally,
    TallyNotFound,
    UnreleasedTally,
    UnwritableReason,
)
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.tables import metadata
from tallystick.storage.engine.writes import FIRST_TURN

if TYPE_CHECKING:
    from alembic.config import Config

_FORM = 1
"""Raised where the form of stored values changes and no column does, as the words by which a text
is found: a tally of the other form is refused.
"""
_UNWRITABLE = """
    SELECT CASE
        WHEN pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'
        THEN 'read_only'
        WHEN NOT has_table_privilege('memories', 'INSERT') THEN 'no_grant'
    END
"""
"""Why a tally in PostgreSQL cannot be written; NULL where it can."""
_HAS_SCHEMA = "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = :schema"


def fingerprint() -> str:
    """Return twelve digits that stand for the declared tables and for the form of their values."""
    lines = [str(_FORM)]
    for name, table in sorted(metadata.tables.items()):
        lines.append(f"{name} {table.dialect_options['sqlite']['with_rowid']}")
        lines += [_line_of(column) for column in table.columns]
        lines += sorted(_line_of_key(each) for each in (*table.indexes, *table.constraints))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _line_of(column: Column[Any]) -> str:
    default = getattr(column.server_default, "arg", None)
    return f"{column.name} {type(column.type).__name__} {column.nullable} {default}"


def _line_of_key(key: Any) -> str:
    return f"{key.name} {list(key.columns.keys())} {key.dialect_kwargs.get('sqlite_where')}"


FIRST = "0001.d1d7e8b7fb89"
"""The first schema, that of release 0.1.0."""
HEAD = FIRST
"""The schema of this release: that of the newest migration, by its number and the fingerprint of
the tables that are declared beside it.
"""
FOLDER = Path(str(resources.files("tallystick.storage.engine"))) / "migrations"
_STAMP = re.compile(r"([0-9]{4})\.[0-9a-f]{12}")

Noting = Callable[[Connection, str], None]
"""Called in the transaction of a migration, with the revision that the database had."""


class Revision(NamedTuple):
    """One migration, and what it changes."""

    number: str
    text: str


def is_current(database: Database) -> bool:
    """Return True if an embedded tally that can be written has the schema of this release, so that
    nothing is to be done.
    """
    if database.is_postgres or database.unwritable is not None:
        return False
    return _current(database) == HEAD


def migrate(
    database: Database,
    noting: Noting,
    *,
    create: bool = True,
    preparing: Callable[[str], None] | None = None,
) -> None:
    """Upgrade the schema to HEAD if it is older, after `preparing` was called with its revision,
    outside of any transaction, and let `noting` note it. Raises NewerTally or
    UnreleasedTally, leaving everything as it is; ReadOnlyTally or TallyNotFound where it would have
    to write and cannot; and TallyNotFound without `create` on PostgreSQL, where no folder tells.
    """
    if database.unwritable is not None:
        _require_head(database, database.unwritable)
        return
    if database.is_postgres:
        with database.read() as connection:
            revision = revision_of(connection)
            if revision is None and not create:
                raise TallyNotFound(f"There is no tally in the schema {database.schema!a}.")
            if revision == HEAD:
                # A role of an application needs no right to make anything.
                if (reason := connection.execute(text(_UNWRITABLE)).scalar()) is not None:
                    raise ReadOnlyTally(reason)
                return
        with database.migrating() as connection:
            schema = database.schema.replace('"', '""')
            # The turn of a tally is that of its schema, which may not be there yet.
            connection.execute(text(FIRST_TURN), {"schema": database.schema})
            if not connection.execute(text(_HAS_SCHEMA), {"schema": database.schema}).scalar():
                connection.execute(text(f'CREATE SCHEMA "{schema}"'))
    if preparing is not None or not database.is_postgres:
        current = _current(database)
        if current == HEAD:
            return
        if current is not None and preparing is not None:
            refuse_unknown(current)
            preparing(current)
    with database.migrating() as connection:
        revision = revision_of(connection)
        if revision is None:
            create_schema(connection, HEAD)
        elif revision != HEAD:
            refuse_unknown(revision)
            upgrade(connection)
            noting(connection, revision)


def grants(schema: str, role: str) -> str:
    """Return the statements by which the owner of the tables lets another role use the tally."""
    schema, role = ('"' + name.replace('"', '""') + '"' for name in (schema, role))
    rights = (("TABLES", "SELECT, INSERT, UPDATE, DELETE"), ("SEQUENCES", "USAGE, SELECT, UPDATE"))
    lines = [f"GRANT USAGE ON SCHEMA {schema} TO {role};"]
    for kind, which in rights:
        lines.append(f"GRANT {which} ON ALL {kind} IN SCHEMA {schema} TO {role};")
        lines.append(
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT {which} ON {kind} TO {role};"
        )
    return "\n".join(lines)


def pending(connection: Connection) -> list[Revision]:
    """Return the migrations that a database lacks, in order. Raises TallyNotFound, NewerTally,
    UnreleasedTally.
    """
    from alembic.script import ScriptDirectory

    revision = revision_of(connection)
    if revision is None:
        raise TallyNotFound("There is no tally here yet.")
    if revision == HEAD:
        return []
    refuse_unknown(revision)
    scripts = ScriptDirectory.from_config(_config()).iterate_revisions(HEAD, revision)
    lacking = [Revision(script.revision, " ".join(script.longdoc.split())) for script in scripts]
    return lacking[::-1]


def create_schema(connection: Connection, revision: str) -> None:
    """Make the tables of a revision in an empty database. Raises NewerTally, UnreleasedTally."""
    if revision != HEAD:
        refuse_unknown(revision)
        upgrade(connection, revision)
        return
    # As all migrations together would, without loading them or Alembic.
    create_tables(connection)
    connection.execute(text(_REVISIONS))
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


def _require_head(database: Database, reason: UnwritableReason) -> None:
    with database.read() as connection:
        revision = revision_of(connection)
    if revision is None:
        raise TallyNotFound(
            f"There is no tally here yet, and none can be made: {ReadOnlyTally(reason).cause}"
        )
    if revision != HEAD:
        refuse_unknown(revision)
        raise ReadOnlyTally(
            reason,
            f"This tally has schema {revision} and must be migrated to {HEAD} first: open it once "
            "where it can be written, or open a copy of its folder.",
        )


def _current(database: Database) -> str | None:
    with database.migrating() as connection:
        return revision_of(connection)


def revision_of(connection: Connection) -> str | None:
    """Return the schema revision of the database, or None where it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def create_tables(connection: Connection) -> None:
    """Create the declared tables and indexes."""
    statements = _statements(connection.dialect.name, connection.dialect)
    if connection.dialect.name == "postgresql":
        statements = (";".join(statements),)  # one way to the server and back
    for statement in statements:
        connection.exec_driver_sql(statement)


_STATEMENTS: dict[str, tuple[str, ...]] = {}


def _statements(name: str, dialect: Dialect) -> tuple[str, ...]:
    """Return the statements that make the tables and indexes, compiled once in a process: that
    takes longer than to run them.
    """
    if name not in _STATEMENTS:
        elements: list[ExecutableDDLElement] = []
        for table in metadata.sorted_tables:
            elements.append(CreateTable(table))
            indexes = sorted(table.indexes, key=lambda index: str(index.name))
            for index in indexes:
                # Declared for SQLite: an option of PostgreSQL would load the dialect everywhere.
                where = index.dialect_options["sqlite"]["where"]
                if name == "postgresql" and where is not None:
                    index.dialect_kwargs["postgresql_where"] = where
            elements += [CreateIndex(index) for index in indexes]
        _STATEMENTS[name] = tuple(str(element.compile(dialect=dialect)) for element in elements)
    return _STATEMENTS[name]


_REVISIONS = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL CONSTRAINT "
    "alembic_version_pkc PRIMARY KEY)"
)
"""The table in which Alembic stores the revision, as it creates it itself."""


def refuse_unknown(revision: str) -> None:
    """Raise NewerTally or UnreleasedTally for a schema from which no migration leads to HEAD."""
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision in known:
        return
    stamp = _STAMP.fullmatch(revision)
    if stamp is not None and stamp[1] > HEAD[:4]:
        raise NewerTally(revision, supported=HEAD)
    raise UnreleasedTally(revision, supported=HEAD)


def upgrade(connection: Connection, revision: str | None = None) -> None:
    """Run the migrations that a database lacks, up to a revision or to HEAD."""
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision or HEAD)


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    return config
