"""Every text has an owner: no table and no column of text without a declaration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Table

from tallystick.records import Actor, SourceRef
from tallystick.storage.engine import containment, texts
from tallystick.storage.engine.tables import metadata
from tallystick.storage.rows import parts, scopes
from tallystick.storage.text import byte_search
from tallystick.tally import Tally
from tallystick.tally.services import services_of

_NO_TEXT = (None, "", "{}", "[]", SourceRef().dumps(), "deleted", "erased")
_HELD = ("texts", "names", "parts", "kept", "codes")


def _declared(table: Table) -> list[str]:
    rows = texts.OWNERS[table.name]
    return [column for held in _HELD for column in getattr(rows, held).split()]


def _is_text(column: Column[Any]) -> bool:
    return column.type.python_type in (str, bytes)


def test_every_table_has_an_owner() -> None:
    assert set(texts.OWNERS) == set(metadata.tables)


@pytest.mark.parametrize("name", sorted(metadata.tables))
def test_every_column_of_text_is_declared_once(name: str) -> None:
    table = metadata.tables[name]
    declared = _declared(table)
    assert sorted(declared) == sorted(column.name for column in table.columns if _is_text(column))


@pytest.mark.parametrize("name", sorted(metadata.tables))
def test_a_row_whose_text_was_destroyed_holds_none(name: str) -> None:
    table, rows = metadata.tables[name], texts.OWNERS[name]
    assert set(rows.emptied) <= set(table.c.keys())
    if rows.emptied:
        assert {column.name for column, _ in texts.text_columns(table)} <= set(rows.emptied)
    for column, value in rows.emptied.items():
        assert value is not None or table.c[column].nullable
        assert not _is_text(table.c[column]) or value in _NO_TEXT


def test_a_body_that_no_row_names_is_found_and_removed(open_tally: Callable[..., Tally]) -> None:
    with open_tally() as tally:
        root = tally.bind(Actor(user="root", role="operator"))
        root.remember("The heron nests in March.")
        database = services_of(tally).store.database
        secret = "the pelican opens vault 7341"

        def leave(tx: Connection) -> None:
            [scope] = scopes.find(tx, [root.scope])
            parts.put(tx, scope, secret.encode(), at=1)

        database.write(leave, name="test.leave")
        status = {finding.check: finding.status for finding in root.operator.doctor()}
        assert status["texts"] == "problem"
        repaired = {
            each.check: each.status for each in root.operator.doctor(repair=True, reason="r")
        }

        assert repaired["texts"] == "repaired"
        with database.read() as connection:
            assert byte_search.rows_with(connection, containment.forms(secret)) == {}
        folder = services_of(tally).store.location.folder
        assert folder is None or byte_search.files_with(folder, containment.forms(secret)) == []
        assert "heron" in root.memories()[0].content
        assert {each.check: each.status for each in root.operator.doctor()}["texts"] == "ok"
