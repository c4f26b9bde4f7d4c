"""The first schema: the tables and indexes of release 0.1.0, as they were written out then.

Never edited: what changes later has a migration of its own.
"""

from pathlib import Path

from alembic import op

from tallystick.storage.engine import migrate

revision = migrate.FIRST
down_revision = None


def upgrade() -> None:
    connection = op.get_bind()
    file = Path(__file__).with_suffix(f".{connection.dialect.name}.sql")
    for statement in file.read_text(encoding="utf-8").split(";")[:-1]:
        connection.exec_driver_sql(statement)
