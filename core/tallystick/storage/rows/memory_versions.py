"""Versions of memories as rows: the text of a memory at each of its versions, with a commitment to
it that stays when the text is erased.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from pydantic_core import from_json
from sqlalchemy import Connection, and_, bindparam, select, update

from tallystick.records import Memory, commitment, json_bytes
from tallystick.records.canonical import is_plain
from tallystick.storage.engine import tables, texts
from tallystick.storage.engine.prepared import (
    Prepared,
    PreparedRow,
    in_list,
    insert_row,
    integer_list,
)

BODY_FIELDS = (
    "content",
    "kind",
    "subject",
    "speaker",
    "category",
    "confidence",
    "importance",
    "pinned",
    "state",
    "valid_from",
    "valid_until",
    "freshness_ts",
    "expires_at",
    "tags",
    "attributes",
    "transform_version",
    "embedding_model",
    "extraction_model",
    "prompt_version",
    "corrected",
    "redacted",
)
"""The fields of a version: everything about a memory that can change."""
_STORED_NAMES = {"speaker": "who"}
"""Names in stored bodies, where the first release chose another one; committed bytes keep them."""
_FIELD_NAMES = {stored: name for name, stored in _STORED_NAMES.items()}
_BODY = tuple((_STORED_NAMES.get(name, name), name) for name in BODY_FIELDS)
_ATTRIBUTES = {"attributes"}

_m, _v = tables.memories, tables.memory_versions
_INSERT_VERSION = PreparedRow(
    insert_row(_v, "doc", "version", "body", "salt", "commitment", "created_at")
)
_VERSION = Prepared(
    select(_v.c.body).where(_v.c.doc == bindparam("doc"), _v.c.version == bindparam("version"))
)
_CURRENT_BODIES = (
    select(_m.c.doc, _m.c.scope_id, _m.c.version, _v.c.body)
    .join(_v, and_(_v.c.doc == _m.c.doc, _v.c.version == _m.c.version))
    .order_by(_m.c.doc)
)
_CURRENT = Prepared(_CURRENT_BODIES.where(in_list(_m.c.doc, "docs")))
_VERSIONS = select(_v).where(_v.c.doc == bindparam("doc")).order_by(_v.c.version)


@dataclass(frozen=True)
class VersionBody:
    """One version as stored; `body` is None once it was erased."""

    version: int
    body: Mapping[str, Any] | None
    commitment: str
    created_at: int
    erased_at: int | None


class DocBody(NamedTuple):
    """The body of one version, with its memory and the scope of that, by number."""

    doc: int
    scope_id: int
    version: int
    body: dict[str, Any]


def body_of(memory: Memory) -> dict[str, Any]:
    """Return the fields of a version as they are stored, as JSON values."""
    body = {stored: getattr(memory, name) for stored, name in _BODY}
    if memory.redacted:
        body["redacted"] = tuple(_STORED_NAMES.get(path, path) for path in memory.redacted)
    if memory.attributes:  # the one field that may hold numbers which JSON does not know
        body |= memory.model_dump(mode="json", include=_ATTRIBUTES)
    return body


def add_version(tx: Connection, doc: int, memory: Memory, *, at: int) -> str:
    """Write the body of `memory` as its version `memory.version`; return the commitment for the
    journal.
    """
    body = _body_bytes(memory)
    salt = os.urandom(16)
    digest = commitment("memory-version", salt, body)
    _INSERT_VERSION(
        tx,
        {
            "doc": doc,
            "version": memory.version,
            "body": body.decode(),
            "salt": salt,
            "commitment": digest,
            "created_at": at,
        },
    )
    return digest


def _body_bytes(memory: Memory) -> bytes:
    """Return the stored body: `json_bytes` of `body_of`."""
    if not memory.redacted and is_plain(memory.attributes):
        # The other fields are text, integers and tuples of text: none needs to be converted.
        try:
            return orjson.dumps(
                {stored: getattr(memory, name) for stored, name in _BODY},
                option=orjson.OPT_SORT_KEYS,
            )
        except orjson.JSONEncodeError:
            pass  # a large integer or half a character
    return json_bytes(body_of(memory))


def versions_of(connection: Connection, doc: int) -> list[VersionBody]:
    """Return every version of a memory, oldest first."""
    return [
        VersionBody(
            row.version,
            None if row.body is None else parsed_body(row.body),
            row.commitment,
            row.created_at,
            row.erased_at,
        )
        for row in connection.execute(_VERSIONS, {"doc": doc})
    ]


def current_bodies(connection: Connection, docs: Sequence[int]) -> list[DocBody]:
    """Return the body of the current version of each of these memories that was not erased, in
    order.
    """
    rows = _CURRENT(connection, {"docs": integer_list(connection, docs)})
    return [
        DocBody(doc, scope_id, version, parsed_body(body))
        for doc, scope_id, version, body in rows
        if body is not None
    ]


def bodies(connection: Connection, docs: Sequence[int]) -> Iterator[DocBody]:
    """Yield the body of each version of these memories that was not erased, in order."""
    columns = (_v.c.doc, _m.c.scope_id, _v.c.version, _v.c.body)
    versions = select(*columns).join(_m, _m.c.doc == _v.c.doc).order_by(_v.c.doc, _v.c.version)
    for start in range(0, len(docs), 500):
        here = _v.c.doc.in_(docs[start : start + 500]) & _v.c.body.is_not(None)
        for row in connection.execute(versions.where(here)):
            yield DocBody(row.doc, row.scope_id, row.version, parsed_body(row.body))


def erase_versions(tx: Connection, doc: int, versions: Collection[int], *, at: int) -> None:
    """Destroy the text of some versions of a memory: their commitments stay."""
    here = (_v.c.doc == doc) & _v.c.version.in_(list(versions))
    tx.execute(update(_v).where(here).values({**texts.erased_values(_v), "erased_at": at}))


def earlier_body(
    connection: Connection, doc: int, version: int, fits: Callable[[Mapping[str, Any]], bool]
) -> Mapping[str, Any] | None:
    """Return the newest body before `version` that fits; None once one of those was erased."""
    for number in range(version - 1, 0, -1):
        rows = _VERSION(connection, {"doc": doc, "version": number})
        body = parsed_body(rows[0][0]) if rows and rows[0][0] is not None else None
        if body is None or fits(body):
            return body
    return None


def before_deletion(connection: Connection, doc: int, version: int) -> Mapping[str, Any] | None:
    """Return the body of the newest version before `version` in which a memory was not deleted;
    None once that was erased.
    """
    return earlier_body(connection, doc, version, lambda body: body["state"] != "deleted")


def parsed_body(text: str) -> dict[str, Any]:
    """Return a stored body by the names of a memory's fields."""
    body: dict[str, Any]
    try:
        body = from_json(text)
    except ValueError:  # half a character, which is stored as its escape
        body = json.loads(text)
    for stored, name in _FIELD_NAMES.items():
        if stored in body:
            body[name] = body.pop(stored)
    if body.get("redacted"):
        body["redacted"] = [_FIELD_NAMES.get(path, path) for path in body["redacted"]]
    return body
