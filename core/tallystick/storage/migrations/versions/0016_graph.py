"""Graph: the names of entities, what is said of two of them, and the texts that were read; and the
labels by which memories are filtered.
"""

import sqlalchemy as sa
from alembic import op

from tallystick.storage.packing import PackedName, PackedVector

revision = "0016"
down_revision = "0015"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column(
        "search_text", sa.Column("labels", sa.Text(), nullable=False, server_default="{}")
    )
    op.create_table(
        "entity_names",
        sa.Column("scope_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("doc", _KEY, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("fingerprint", PackedName(), nullable=True),
        sa.Column("vector", PackedVector(), nullable=True),
        sa.ForeignKeyConstraint(["doc"], ["memories.doc"], name="fk_entity_names_doc"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_entity_names_scope_id"),
        sa.PrimaryKeyConstraint("scope_id", "name", name="pk_entity_names"),
    )
    op.create_index("ix_entity_names_doc", "entity_names", ["doc"])
    op.create_table(
        "relations",
        sa.Column("id", _KEY, autoincrement=True, nullable=False),
        sa.Column("scope_id", _KEY, nullable=False),
        sa.Column("from_doc", _KEY, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("to_doc", _KEY, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["from_doc"], ["memories.doc"], name="fk_relations_from_doc"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_relations_scope_id"),
        sa.ForeignKeyConstraint(["to_doc"], ["memories.doc"], name="fk_relations_to_doc"),
        sa.PrimaryKeyConstraint("id", name="pk_relations"),
        sa.UniqueConstraint("from_doc", "name", "to_doc", name="uq_relations_from_doc_name_to_doc"),
    )
    op.create_index("ix_relations_to_doc", "relations", ["to_doc"])
    op.create_table(
        "relation_mentions",
        sa.Column("relation_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("doc", _KEY, autoincrement=False, nullable=False),
        sa.Column("confidence", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["doc"], ["memories.doc"], name="fk_relation_mentions_doc"),
        sa.ForeignKeyConstraint(
            ["relation_id"], ["relations.id"], name="fk_relation_mentions_relation_id"
        ),
        sa.PrimaryKeyConstraint("relation_id", "doc", name="pk_relation_mentions"),
    )
    op.create_index("ix_relation_mentions_doc", "relation_mentions", ["doc"])
    op.create_table(
        "graph_texts",
        sa.Column("doc", _KEY, autoincrement=False, nullable=False),
        sa.Column("scope_id", _KEY, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["doc"], ["memories.doc"], name="fk_graph_texts_doc"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_graph_texts_scope_id"),
        sa.PrimaryKeyConstraint("doc", name="pk_graph_texts"),
    )
