"""The tables of what is derived: words, vectors and segments of recall, marks, and the graph."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from tallystick.storage.engine.packing import PackedDigest, PackedName, PackedText, PackedVector
from tallystick.storage.engine.schema import Key, metadata

entity_names = Table(
    "entity_names",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("doc", Key, ForeignKey("memories.doc"), nullable=False),
    Column("type", Text, nullable=False),
    Column("fingerprint", PackedName),
    Column("vector", PackedVector),
    Index(None, "doc"),
)
"""The entities that the graph made, by their names without case; `vector` is that of the name."""

relations = Table(
    "relations",
    metadata,
    Column("id", Key, primary_key=True, autoincrement=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("from_doc", Key, ForeignKey("memories.doc"), nullable=False),
    Column("name", Text, nullable=False),
    Column("to_doc", Key, ForeignKey("memories.doc"), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("from_doc", "name", "to_doc"),
    Index(None, "to_doc"),
)
"""What texts say of two entities, each triple once; `relation_mentions` has the texts."""

relation_mentions = Table(
    "relation_mentions",
    metadata,
    Column("relation_id", Key, ForeignKey("relations.id"), primary_key=True, autoincrement=False),
    Column("doc", Key, ForeignKey("memories.doc"), primary_key=True, autoincrement=False),
    Column("confidence", Integer, nullable=False),
    Index(None, "doc"),
)

partitions = Table(
    "partitions",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True, autoincrement=False),
    Column("texts", Integer, nullable=False),
    Column("made_at", BigInteger, nullable=False),
)
"""The number of texts that the graph of a scope had when it was last divided into communities."""

communities = Table(
    "communities",
    metadata,
    Column("id", Text, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("level", Integer, nullable=False),
    Column("parent", Text),
    Column("fingerprint", PackedName),
    Column("vector", PackedVector),
    Index(None, "scope_id"),
)
"""Groups of entities that texts mention together; `vector` is that of what they are about."""

community_members = Table(
    "community_members",
    metadata,
    Column("community_id", Text, ForeignKey("communities.id"), primary_key=True),
    Column("doc", Key, ForeignKey("memories.doc"), primary_key=True, autoincrement=False),
    Index(None, "doc"),
)

search_text = Table(
    "search_text",
    metadata,
    Column("doc", Key, ForeignKey("memories.doc"), primary_key=True, autoincrement=False),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("words", PackedText),
    Column("marks", Integer, nullable=False),
    Column("speaker", Text),
    Column("tags", Text, nullable=False),
    Column("names", Text),
    Column("labels", Text, nullable=False, server_default="{}"),
    Column("subject", PackedDigest),
    Index(None, "scope_id", "revision", "doc"),
    Index(
        "ix_search_text_subject", "scope_id", "subject", sqlite_where=text("subject IS NOT NULL")
    ),
)
"""The words by which an active memory is found, analyzed by `ranking`; NULL once it may no longer
be found.

`names` is a JSON list where the memory gives several names of one person, `subject` the digest of
its subject: all values of one subject have the same. `revision` is that of its
scope when the row last changed, so that a process reads only rows that are new to it.
"""

vectors = Table(
    "vectors",
    metadata,
    Column("doc", Key, ForeignKey("memories.doc"), primary_key=True, autoincrement=False),
    Column("fingerprint", PackedName, primary_key=True),
    Column("scope_id", Key, ForeignKey("scopes.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("vector", PackedVector, nullable=False),
    Index(None, "scope_id", "fingerprint"),
)
"""float16 vectors of active memories by embedder, those of a text's slices one after the other.

Two fingerprints are never compared.
"""

item_summaries = Table(
    "item_summaries",
    metadata,
    Column("doc", Key, ForeignKey("memories.doc"), primary_key=True, autoincrement=False),
    Column("digest", PackedDigest, nullable=False),
    Column("summary", PackedText, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Index(None, "digest"),
)
"""A short form of a memory's text for compiles; `digest` is that of the text as models are shown
it. It goes with the text.
"""

recall_segments = Table(
    "recall_segments",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True, autoincrement=False),
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("piece", Integer, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)
"""The arrays of a large scope's text as of `revision`, each in pieces; `about` describes them."""

derived = Table(
    "derived",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("doc", BigInteger, nullable=False),
    Column("filling", Boolean, nullable=False),
)
"""How far what is derived outside of the database has followed the text of a scope."""
