"""Checkpoints as trees of shared pieces."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("threads", sa.Column("epoch", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("threads", sa.Column("puts", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column(
        "threads", sa.Column("states", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.add_column("threads", sa.Column("seal", sa.Text(), nullable=False, server_default=""))
    op.add_column("threads", sa.Column("writer", sa.Text(), nullable=False, server_default=""))
    op.add_column("threads", sa.Column("lifetime", sa.BigInteger()))
    op.add_column("threads", sa.Column("expires_at", sa.BigInteger()))
    op.create_index(
        "ix_threads_scope_id_expires_at", "threads", ["scope_id", "expires_at"], unique=False
    )
    op.create_table(
        "thread_states",
        sa.Column("thread_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("id", _ORDERED, nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text()),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("marks", sa.Text(), nullable=False),
        sa.Column("metadata", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("code", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name="fk_thread_states_thread_id"),
        sa.PrimaryKeyConstraint("thread_id", "id", "namespace", name="pk_thread_states"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "thread_writes",
        sa.Column("thread_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("checkpoint_id", _ORDERED, nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("task_path", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("code", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name="fk_thread_writes_thread_id"),
        sa.PrimaryKeyConstraint(
            "thread_id",
            "checkpoint_id",
            "namespace",
            "task_id",
            "position",
            name="pk_thread_writes",
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tree_parts",
        sa.Column("id", _KEY, autoincrement=True, nullable=False),
        sa.Column("scope_id", _KEY, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_tree_parts_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_tree_parts"),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_tree_parts_digest", "tree_parts", ["scope_id", "digest"], unique=True)
    op.create_table(
        "tree_holds",
        sa.Column("thread_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("part_id", _KEY, autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name="fk_tree_holds_thread_id"),
        sa.PrimaryKeyConstraint("thread_id", "part_id", name="pk_tree_holds"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_tree_holds_part_id", "tree_holds", ["part_id"], unique=False)
    op.create_table(
        "tree_keys",
        sa.Column("scope_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("cipher", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_tree_keys_scope_id"),
        sa.PrimaryKeyConstraint("scope_id", "cipher", name="pk_tree_keys"),
    )
