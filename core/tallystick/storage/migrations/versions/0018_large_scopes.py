"""Large scopes: what recall derived from their text, in pieces, and how often text was erased."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "recall_epochs",
        sa.Column("scope_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_recall_epochs_scope_id"),
        sa.PrimaryKeyConstraint("scope_id", name="pk_recall_epochs"),
    )
    op.create_table(
        "recall_segments",
        sa.Column("scope_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("piece", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_recall_segments_scope_id"),
        sa.PrimaryKeyConstraint("scope_id", "revision", "name", "piece", name="pk_recall_segments"),
    )
