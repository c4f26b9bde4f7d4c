"""The first schema: the tables as `storage/engine/tables.py` declares them.

Until 0.1.0 it is edited there, in place. The release writes its statements and its name out here,
and what changes later gets a migration of its own.
"""

from alembic import op

from tallystick.storage.engine import migrate

revision = migrate.FIRST
down_revision = None


def upgrade() -> None:
    migrate.create_tables(op.get_bind())
