"""Growing payloads: what a recorded payload shares with one recorded before it is stored once. Gaps
are counted.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("step_entries", sa.Column("base_id", sa.Text()))
    op.add_column("step_entries", sa.Column("head", sa.BigInteger()))
    op.add_column("step_entries", sa.Column("tail", sa.BigInteger()))
    op.add_column("runs", sa.Column("gaps", sa.Integer(), server_default="0", nullable=False))
    op.create_index(
        "ix_step_entries_base_id",
        "step_entries",
        ["base_id"],
        sqlite_where=sa.text("base_id IS NOT NULL"),
        postgresql_where=sa.text("base_id IS NOT NULL"),
    )
