"""Visible: a stored row with its scope, for an actor who may read that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.errors import NotFound
from tallystick.memory import MemoryContext
from tallystick.records import Actor
from tallystick.storage import Connection, ScopeRow
from tallystick.storage.rows import documents, scopes, source_rows


def visible_document(
    connection: Connection, context: MemoryContext, actor: Actor, document_id: str
) -> tuple[Mapping[str, Any], ScopeRow]:
    """Return a document and its scope. Raises NotFound alike for hidden and for absent ones."""
    row = documents.find_document(connection, document_id)
    return _visible(connection, context, actor, row, f"document {document_id!a}")


def visible_import(
    connection: Connection, context: MemoryContext, actor: Actor, import_id: str
) -> tuple[Mapping[str, Any], ScopeRow]:
    """Return an import and its scope. Raises NotFound alike for hidden and for absent ones."""
    row = source_rows.find_import(connection, import_id)
    return _visible(connection, context, actor, row, f"import {import_id!a}")


def _visible(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    row: Mapping[str, Any] | None,
    name: str,
) -> tuple[Mapping[str, Any], ScopeRow]:
    scope = None if row is None else scopes.get_by_id(connection, row["scope_id"])
    if (
        row is None
        or scope is None
        or not context.gate.decide(connection, actor, "read", scope.scope).allowed
    ):
        raise NotFound(f"There is no {name} that {actor.user} may see.")
    return row, scope
