"""Communities: groups of entities that texts mention together, in levels."""

import sqlalchemy as sa
from alembic import op

from tallystick.storage.packing import PackedName, PackedVector

revision = "0017"
down_revision = "0016"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "partitions",
        sa.Column("scope_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("texts", sa.Integer(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_partitions_scope_id"),
        sa.PrimaryKeyConstraint("scope_id", name="pk_partitions"),
    )
    op.create_table(
        "communities",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("scope_id", _KEY, nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("parent", sa.Text(), nullable=True),
        sa.Column("fingerprint", PackedName(), nullable=True),
        sa.Column("vector", PackedVector(), nullable=True),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_communities_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_communities"),
    )
    op.create_index("ix_communities_scope_id", "communities", ["scope_id"])
    op.create_table(
        "community_members",
        sa.Column("community_id", sa.Text(), nullable=False),
        sa.Column("doc", _KEY, autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(
            ["community_id"], ["communities.id"], name="fk_community_members_community_id"
        ),
        sa.ForeignKeyConstraint(["doc"], ["memories.doc"], name="fk_community_members_doc"),
        sa.PrimaryKeyConstraint("community_id", "doc", name="pk_community_members"),
    )
    op.create_index("ix_community_members_doc", "community_members", ["doc"])
