"""Searchable text by revision: recall keeps a scope's words in memory and reads only what changed.

The words are derived: they are analyzed anew when the tally is opened.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for trigger in ("search_text_added", "search_text_removed", "search_text_changed"):
            op.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        op.execute("DROP TABLE IF EXISTS search_index")
    op.drop_table("search_text")
    op.create_table(
        "search_text",
        sa.Column("doc", _KEY, autoincrement=False, nullable=False),
        sa.Column("scope_id", _KEY, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("words", sa.Text()),
        sa.Column("marks", sa.Integer(), nullable=False),
        sa.Column("speaker", sa.Text()),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("names", sa.Text()),
        sa.ForeignKeyConstraint(["doc"], ["memories.doc"], name="fk_search_text_doc"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_search_text_scope_id"),
        sa.PrimaryKeyConstraint("doc", name="pk_search_text"),
    )
    op.create_index(
        "ix_search_text_scope_id_revision", "search_text", ["scope_id", "revision"], unique=False
    )
    op.add_column(
        "scopes", sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.drop_column("scopes", "documents")
    op.drop_column("scopes", "words")
