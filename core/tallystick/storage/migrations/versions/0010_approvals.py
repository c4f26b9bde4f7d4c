"""Approvals: actions that wait for a person, and what was decided."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_OPEN = "state IN ('pending', 'granted')"


def upgrade() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("scope_id", _KEY, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text()),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("rule_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("surface", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text()),
        sa.Column("step_id", sa.Text()),
        sa.Column("receipts", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("decided_by", sa.Text()),
        sa.Column("decided_reason", sa.Text()),
        sa.Column("decided_at", sa.BigInteger()),
        sa.Column("used_at", sa.BigInteger()),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_approvals_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_approvals"),
    )
    op.create_index(
        "uq_approvals_open",
        "approvals",
        ["scope_id", "digest"],
        unique=True,
        sqlite_where=sa.text(_OPEN),
        postgresql_where=sa.text(_OPEN),
    )
    op.create_index(
        "ix_approvals_scope_id_state_created_at",
        "approvals",
        ["scope_id", "state", "created_at"],
        unique=False,
    )
    op.create_index("ix_approvals_run_id", "approvals", ["run_id"], unique=False)
