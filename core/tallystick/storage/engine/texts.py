"""The owner of every text: which columns hold it or stem from it, whose rows they are, how the text
is destroyed, and which archives have the rows.

Erasure, proof, retention, export, sizes and `doctor` read this declaration and keep no lists of
tables of their own. A column of text or bytes that it does not name fails a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import Column, MetaData, Table

from tallystick.records import SourceRef

Owner = Literal[
    "tally", "scope", "memory", "source", "proposal", "approval", "run", "thread", "job", "user"
]
"""Whose a row is: its text is destroyed with that."""
Leaves = Literal["export", "backup", "never"]
"""The archives that have the rows: exports and backups, backups only, or none, because the rows are
made anew from the others.
"""


@dataclass(frozen=True)
class Rows:
    """The declaration of one table; columns are named in one string, apart by spaces."""

    size: str
    """The kind under which `tally sizes` counts the table."""
    owner: Owner
    texts: str = ""
    """Columns that hold or stem from what somebody wrote."""
    names: str = ""
    """The same, where a short text may be all of a value: searched for whole, too."""
    parts: str = ""
    """Columns that name a body in `parts`: it goes with the last row that names it."""
    kept: str = ""
    """Text of administration and of chains: a proof names it, an erasure leaves it."""
    codes: str = ""
    """Ids, codes, digests, salts and keys, also ids that somebody chose."""
    emptied: Mapping[str, Any] = field(default_factory=dict)
    """Values of a row whose text was destroyed; without any the row goes."""
    leaves: Leaves = "export"


OWNERS: dict[str, Rows] = {
    "settings": Rows("settings", "tally", kept="value", codes="name"),
    "scopes": Rows("settings", "scope", kept="name", codes="secret"),
    "spaces": Rows("settings", "scope", kept="body", codes="id scope"),
    "access_tokens": Rows("settings", "user", kept="body", codes="id digest", leaves="backup"),
    "approvals": Rows(
        "settings",
        "approval",
        texts="arguments decided_reason",
        names="subject",
        kept="reason",
        codes="id state action digest rule_id asked_by surface run_id step_id receipts decided_by",
        emptied={"arguments": None, "digest": "", "decided_reason": None, "subject": ""},
        leaves="backup",
    ),
    "anchors": Rows("journal", "scope", codes="stream head"),
    "streams": Rows("journal", "scope", codes="name head"),
    "journal": Rows(
        "journal",
        "scope",
        texts="texts",
        kept="body stream",
        codes="audit_id event subject_id previous digest salt",
        emptied={"texts": None, "salt": None},
    ),
    "operation_minutes": Rows("measures", "tally", codes="kind buckets", leaves="backup"),
    "access_log": Rows("access log", "user", codes="actor surface operation scopes"),
    "parts": Rows(
        "what arrived, payloads and checkpoint values", "source", texts="body", codes="key"
    ),
    "sources": Rows(
        "sources",
        "source",
        texts="uri title source_version reference",
        parts="content_hash",
        codes="id source_type privacy_class created_by lifecycle_state",
        emptied={
            "uri": None,
            "title": None,
            "source_version": None,
            "reference": SourceRef().dumps(),
            "lifecycle_state": "erased",
        },
    ),
    "memories": Rows(
        "memories",
        "memory",
        names="conversation",
        parts="content_key",
        codes="id kind state extraction_status source_run_id source_step_ids created_by updated_by",
        emptied={
            "conversation": None,
            "position": None,
            "source_step_ids": "[]",
            "state": "deleted",
            "locked_until": None,
        },
    ),
    "memory_versions": Rows(
        "versions of memories",
        "memory",
        texts="body",
        codes="salt commitment",
        emptied={"body": None, "salt": None},
    ),
    "memory_sources": Rows("memories", "memory", codes="source_id"),
    "edges": Rows(
        "memories", "memory", texts="reason", codes="id kind evidence", emptied={"reason": None}
    ),
    "store_items": Rows("memories", "memory", names="namespace key"),
    "search_text": Rows(
        "words for recall",
        "memory",
        texts="words tags names labels",
        names="speaker",
        codes="subject",
        emptied={
            "words": None,
            "marks": 0,
            "speaker": None,
            "tags": "[]",
            "names": None,
            "labels": "{}",
            "subject": None,
        },
    ),
    "vectors": Rows("vectors for recall", "memory", texts="vector", codes="fingerprint"),
    "item_summaries": Rows(
        "summaries of memories", "memory", texts="summary", codes="digest made_by", leaves="never"
    ),
    "recall_segments": Rows(
        "segments of recall", "scope", texts="data", codes="name", leaves="never"
    ),
    "derived": Rows("settings", "scope", codes="name", leaves="never"),
    "entity_names": Rows("graph", "memory", texts="vector", names="name", codes="type fingerprint"),
    "relations": Rows("graph", "memory", names="name"),
    "relation_mentions": Rows("graph", "memory"),
    "partitions": Rows("graph", "scope"),
    "communities": Rows(
        "graph",
        "scope",
        texts="vector",
        codes="id parent fingerprint",
        emptied={"fingerprint": None, "vector": None},
    ),
    "community_members": Rows("graph", "memory", codes="community_id"),
    "working": Rows(
        "memories",
        "scope",
        texts="body",
        names="holder name",
        codes="lifetime created_by",
    ),
    "proposals": Rows(
        "proposals",
        "proposal",
        texts="payload decided_reason",
        codes="id origin action kind state reason sources derived_from target_id made_id "
        "suggested_scope provider model prompt_version job_id run_id step_id created_by decided_by",
        emptied={"payload": None, "decided_reason": None},
    ),
    "outbound_calls": Rows(
        "log of outbound calls",
        "job",
        codes="id purpose provider model subject_id job_id outcome",
    ),
    "jobs": Rows(
        "jobs",
        "job",
        texts="payload actor result error_text",
        codes="id kind subject_id state leased_by cost error_code trail",
    ),
    "idempotency": Rows(
        "answers under idempotency keys",
        "scope",
        texts="result",
        codes="operation key request_digest",
    ),
    "runs": Rows(
        "recordings",
        "run",
        texts="user_goal metadata",
        names="agent_name domain",
        codes="id retention status process",
        emptied={"agent_name": "", "domain": None, "user_goal": None, "metadata": "{}"},
    ),
    "steps": Rows(
        "recordings",
        "run",
        texts="metadata",
        names="name",
        codes="id run_id step_kind parent_step_id status",
        emptied={"name": None, "metadata": "{}"},
    ),
    "step_entries": Rows(
        "recordings",
        "run",
        texts="summary",
        parts="part_key",
        codes="step_id id kind payload_state salt commitment redactions base_id copied",
        emptied={"summary": "{}"},
    ),
    "threads": Rows("checkpoints", "thread", names="name", codes="seal writer"),
    "thread_states": Rows(
        "checkpoints",
        "thread",
        texts="id namespace parent_id metadata state",
        codes="marks code",
    ),
    "thread_writes": Rows(
        "checkpoints",
        "thread",
        texts="namespace task_id task_path channel value",
        codes="checkpoint_id code",
    ),
    "tree_parts": Rows("checkpoints", "thread", texts="body", codes="digest"),
    "tree_holds": Rows("checkpoints", "thread"),
    "tree_keys": Rows("checkpoints", "scope", codes="cipher sealed"),
    "source_imports": Rows(
        "documents",
        "scope",
        texts="target corpus corpus_version options schedule cursor error_text",
        names="title",
        codes="id source adapter adapter_version privacy_class state counters error_code job_id "
        "created_by",
    ),
    "source_records": Rows(
        "documents",
        "scope",
        texts="detail",
        names="record_id version",
        codes="source dedupe state reason document_id import_id",
    ),
    "documents": Rows(
        "documents",
        "scope",
        texts="body",
        parts="content_key",
        codes="id source state created_by",
        emptied={"body": "{}", "content_key": None},
    ),
    "attachments": Rows(
        "documents",
        "scope",
        names="name media_type",
        parts="content_key",
        codes="document_id sha256",
    ),
    "chunks": Rows("documents", "memory", codes="document_id"),
    "synthesis_runs": Rows(
        "synthesis",
        "scope",
        texts="body",
        codes="id stage job_id created_by",
        emptied={"stage": "erased", "body": "{}"},
    ),
    "synthesis_quotes": Rows("synthesis", "memory", codes="run_id"),
}
"""The declaration of every table of the core, by its name."""


_UNDECLARED = Rows("settings", "tally")
"""What the database keeps for itself, and tables of an earlier schema."""


def rows_of(table: str) -> Rows:
    """Return the declaration of a table."""
    return OWNERS.get(table, _UNDECLARED)


def erased_values(table: Table) -> Mapping[str, Any]:
    """Return the values of a row whose text was destroyed."""
    return OWNERS[table.name].emptied


def text_columns(table: Table) -> Iterator[tuple[Column[Any], bool]]:
    """Yield the columns that hold text, each with True where it is a name."""
    rows = OWNERS[table.name]
    for is_name, columns in ((False, rows.texts), (True, rows.names)):
        yield from ((table.c[column], is_name) for column in columns.split())


def part_columns(metadata: MetaData) -> list[Column[Any]]:
    """Return the columns that name a body in `parts`, of all tables."""
    return [
        metadata.tables[table].c[column]
        for table, rows in OWNERS.items()
        for column in rows.parts.split()
    ]


def tables_with_text(metadata: MetaData) -> list[Table]:
    """Return the tables that hold text, or name bodies that do."""
    return [
        table
        for table in metadata.sorted_tables
        if any((rows := rows_of(table.name), rows.texts, rows.names, rows.parts, rows.kept)[1:])
    ]


def owned_by(metadata: MetaData, owner: Owner) -> list[Table]:
    """Return the tables of an owner, each before those that it refers to."""
    tables = reversed(metadata.sorted_tables)
    return [table for table in tables if rows_of(table.name).owner == owner]


def tables_that_leave(metadata: MetaData, *ways: Leaves) -> list[Table]:
    """Return the tables that leave one of these ways, each behind those that it refers to."""
    return [table for table in metadata.sorted_tables if rows_of(table.name).leaves in ways]
