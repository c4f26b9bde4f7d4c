"""The schema: where tables are declared, and types of columns that they share."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, MetaData, Text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Key = BigInteger().with_variant(Integer, "sqlite")
"""An integer key: SQLite makes only INTEGER PRIMARY KEY the row id."""

Ordered = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is ordered as Python orders it, whatever the language of the database."""
