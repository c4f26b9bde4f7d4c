"""Presence: which process records a run, so that what it left when it died can be told from what
goes on.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("runs", sa.Column("process", sa.Text()))
