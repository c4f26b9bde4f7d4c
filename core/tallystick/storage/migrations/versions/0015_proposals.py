"""Proposals: what extraction and reflection suggest, and what became of it; and the calls of models
that were made for it, counted for budgets.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "proposals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("scope_id", _KEY, nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text()),
        sa.Column("confidence", sa.Integer(), nullable=False),
        sa.Column("sources", sa.Text(), nullable=False),
        sa.Column("derived_from", sa.Text(), nullable=False),
        sa.Column("target_id", sa.Text()),
        sa.Column("target_version", sa.Integer()),
        sa.Column("made_id", sa.Text()),
        sa.Column("suggested_scope", sa.Text()),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("prompt_version", sa.Text()),
        sa.Column("job_id", sa.Text()),
        sa.Column("run_id", sa.Text()),
        sa.Column("step_id", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.BigInteger()),
        sa.Column("decided_by", sa.Text()),
        sa.Column("decided_reason", sa.Text()),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_proposals_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_proposals"),
    )
    op.create_index(
        "ix_proposals_scope_id_state_created_at",
        "proposals",
        ["scope_id", "state", "created_at"],
        unique=False,
    )
    op.create_table(
        "outbound_calls",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("scope_id", _KEY, nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("local", sa.Boolean(), nullable=False),
        sa.Column("subject_id", sa.Text()),
        sa.Column("job_id", sa.Text()),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("characters", sa.BigInteger(), nullable=False),
        sa.Column("redacted", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("micros", sa.BigInteger(), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_outbound_calls_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_outbound_calls"),
    )
    op.create_index(
        "ix_outbound_calls_scope_id_at", "outbound_calls", ["scope_id", "at"], unique=False
    )
    op.create_index("ix_outbound_calls_at", "outbound_calls", ["at"], unique=False)
