"""Store: memories that are addressed by a namespace and a key."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "store_items",
        sa.Column("scope_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("doc", _KEY, nullable=False),
        sa.Column("ttl", sa.BigInteger()),
        sa.ForeignKeyConstraint(["doc"], ["memories.doc"], name="fk_store_items_doc"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_store_items_scope_id"),
        sa.PrimaryKeyConstraint("scope_id", "namespace", "key", name="pk_store_items"),
    )
    op.create_index("ix_store_items_doc", "store_items", ["doc"], unique=False)
