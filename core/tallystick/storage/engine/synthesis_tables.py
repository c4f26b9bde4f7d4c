"""The tables of synthesis: documents in the making, and the memories that they quote."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Table, Text

from tallystick.storage.engine.schema import Key, metadata

synthesis_runs = Table(
    "synthesis_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("stage", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("job_id", Text),
    Column("created_by", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index(None, "scope_id", "created_at"),
)
"""One document in the making; `body` is its SynthesisRun as JSON."""

synthesis_quotes = Table(
    "synthesis_quotes",
    metadata,
    Column(
        "run_id",
        Text,
        ForeignKey("synthesis_runs.id"),
        primary_key=True,
    ),
    Column("doc", Key, ForeignKey("memories.doc"), primary_key=True, autoincrement=False),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Index(None, "doc"),
)
"""The memories that a document quotes: the text of the run goes with the first that is destroyed.
"""
