"""The table of measures: how long operations took, one row a minute and kind."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Table, Text

from tallystick.storage.engine.schema import metadata

operation_minutes = Table(
    "operation_minutes",
    metadata,
    Column("minute", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("micros", BigInteger, nullable=False),
    Column("buckets", Text, nullable=False),
)
"""Operations of a minute since the epoch. `kind` is operation, mode and outcome, apart by dots;
`buckets` counts them by their duration, as JSON, by the number of each bucket.
"""
