"""Lifecycle: when a memory holds and whether it is locked, what a run keeps in mind, how far a
stream was purged.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0004"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_PAGE = 1_000


def upgrade() -> None:
    for name in ("valid_from", "valid_until", "locked_until"):
        op.add_column("memories", sa.Column(name, sa.BigInteger()))
    op.create_table(
        "anchors",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("stream", name="pk_anchors"),
    )
    op.create_table(
        "working",
        sa.Column("scope_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_working_scope_id"),
        sa.PrimaryKeyConstraint("scope_id", "run_id", "name", name="pk_working"),
    )
    op.create_index("ix_working_expires_at", "working", ["expires_at"], unique=False)
    _bring_validity_over(op.get_bind())


def _bring_validity_over(connection: sa.Connection) -> None:
    """Validity stood in the bodies of versions alone."""
    page = sa.text(
        "SELECT m.doc, v.body FROM memories m JOIN memory_versions v ON v.doc = m.doc AND "
        "v.version = m.version "
        "WHERE m.doc > :after AND v.body IS NOT NULL ORDER BY m.doc LIMIT :most"
    )
    change = sa.text(
        "UPDATE memories SET valid_from = :since, valid_until = :until WHERE doc = :doc"
    )
    after = 0
    while rows := connection.execute(page, {"after": after, "most": _PAGE}).all():
        documents = [(row.doc, json.loads(row.body)) for row in rows]
        values = [
            {"doc": doc, "since": body.get("valid_from"), "until": body.get("valid_until")}
            for doc, body in documents
            if body.get("valid_from") is not None or body.get("valid_until") is not None
        ]
        if values:
            connection.execute(change, values)
        after = rows[-1].doc
