"""Bring a database to this release's schema: on open, idempotent, refusing what is newer."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, Dialect, inspect, text
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from tallystick.errors import NewerTally, ReadOnlyTally, TallyNotFound, UnwritableReason
from tallystick.storage import segments as segments
from tallystick.storage.database import Database
from tallystick.storage.tables import metadata
from tallystick.storage.writes import FIRST_TURN

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0018"
"""The newest revision in `migrations/versions`."""

Noting = Callable[[Connection, str], None]
"""Called in the transaction of a migration, with the revision that the database had."""


class Revision(NamedTuple):
    """One migration, and what it changes."""

    number: str
    text: str


def migrate(
    database: Database,
    noting: Noting = lambda tx, before: None,
    *,
    create: bool = True,
) -> None:
    """Upgrade the schema to HEAD if it is older, and let `noting` note it. Raises NewerTally,
    leaving everything as it is; ReadOnlyTally or TallyNotFound where it would have to write and
    cannot; and TallyNotFound without `create` on PostgreSQL, where no folder tells.
    """
    if database.unwritable is not None:
        _require_head(database, database.unwritable)
        return
    if database.is_postgres:
        if not create:
            with database.read() as connection:
                if revision_of(connection) is None:
                    raise TallyNotFound(f"There is no tally in the schema {database.schema!a}.")
        with database.migrating() as connection:
            schema = database.schema.replace('"', '""')
            # The turn of a tally is that of its schema, which may not be there yet.
            connection.execute(text(FIRST_TURN), {"schema": database.schema})
            connection.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'))
    elif _current(database) == HEAD:
        return
    with database.migrating() as connection:
        revision = revision_of(connection)
        if revision is None:
            _create(connection)
        elif revision != HEAD:
            _refuse_newer(revision)
            upgrade(connection)
            noting(connection, revision)


def pending(connection: Connection) -> list[Revision]:
    """Return the migrations that a database lacks, in order. Raises TallyNotFound, NewerTally."""
    from alembic.script import ScriptDirectory

    revision = revision_of(connection)
    if revision is None:
        raise TallyNotFound("There is no tally here yet.")
    if revision == HEAD:
        return []
    _refuse_newer(revision)
    scripts = ScriptDirectory.from_config(_config()).iterate_revisions(HEAD, revision)
    found = [Revision(script.revision, " ".join(script.longdoc.split())) for script in scripts]
    return found[::-1]


def create(connection: Connection, revision: str) -> None:
    """Make the tables of a revision in an empty database."""
    if revision == HEAD:
        _create(connection)
    else:
        _refuse_newer(revision)
        upgrade(connection, revision)


def _require_head(database: Database, reason: UnwritableReason) -> None:
    with database.read() as connection:
        revision = revision_of(connection)
    if revision is None:
        raise TallyNotFound(
            f"There is no tally here yet, and none can be made: {ReadOnlyTally(reason).cause}"
        )
    if revision != HEAD:
        _refuse_newer(revision)
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


def _create(connection: Connection) -> None:
    """Create the tables of this release at once, as all migrations together would, without loading
    them or Alembic.
    """
    statements = _statements(connection.dialect.name, connection.dialect)
    if connection.dialect.name == "postgresql":
        statements = (";".join(statements),)  # one way to the server and back
    for statement in statements:
        connection.exec_driver_sql(statement)
    connection.execute(text(_REVISIONS))
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


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


def _refuse_newer(revision: str) -> None:
    from alembic.script import ScriptDirectory

    revisions = {
        script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()
    }
    if revision not in revisions:
        raise NewerTally(revision, supported=HEAD)


def upgrade(connection: Connection, revision: str = HEAD) -> None:
    """Run the migrations that a database lacks, up to a revision."""
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option(
        "script_location", str(resources.files("tallystick.storage") / "migrations")
    )
    return config
