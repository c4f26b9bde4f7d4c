"""Jobs: states that say how they ended, retries without end while a provider is away, priority,
progress and a trail. The journal: what people wrote stands beside the chain, which commits to it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("journal", sa.Column("texts", sa.Text()))
    op.add_column("journal", sa.Column("salt", sa.LargeBinary()))
    op.rename_table("jobs", "jobs_before")
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        # The names of keys and indexes are those of the schema, not of the table.
        for name in ("pk_jobs", "uq_jobs_kind_subject_id"):
            op.execute(f"ALTER TABLE jobs_before DROP CONSTRAINT {name}")
        op.execute("ALTER TABLE jobs_before DROP CONSTRAINT fk_jobs_scope_id")
    op.drop_index("ix_jobs_status_run_after", table_name="jobs_before")
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("scope_id", _KEY),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("waits", sa.Integer(), nullable=False),
        sa.Column("leases", sa.Integer(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger()),
        sa.Column("leased_by", sa.Text()),
        sa.Column("progress", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer()),
        sa.Column("cost", sa.Text(), nullable=False),
        sa.Column("result", sa.Text()),
        sa.Column("error_code", sa.Text()),
        sa.Column("error_text", sa.Text()),
        sa.Column("trail", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_jobs_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint(
            "kind", "subject_id", "version", name="uq_jobs_kind_subject_id_version"
        ),
    )
    op.execute(
        "INSERT INTO jobs (id, scope_id, kind, subject_id, version, payload, actor, state, "
        "priority, attempts, max_attempts, waits, leases, turn, due_at, progress, cost, "
        "error_code, trail, created_at, updated_at) "
        "SELECT id, scope_id, kind, subject_id, 0, '{}', actor, "
        "CASE WHEN status IN ('ready', 'leased') THEN 'pending' ELSE status END, "
        "100, 0, max_attempts, 0, attempts, 0, "
        "CASE WHEN status IN ('ready', 'leased') THEN 0 END, 0, '{}', last_error, '', "
        "created_at, updated_at FROM jobs_before"
    )
    op.drop_table("jobs_before")
    op.create_index(
        "ix_jobs_open",
        "jobs",
        ["kind", "scope_id", "priority", "created_at", "id", "due_at"],
        unique=False,
        sqlite_where=sa.text("due_at IS NOT NULL"),
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index("ix_jobs_scope_id_turn", "jobs", ["scope_id", "turn"], unique=False)
    op.create_index("ix_jobs_turn", "jobs", ["turn"], unique=False)
    op.create_index("ix_jobs_subject_id", "jobs", ["subject_id"], unique=False)
