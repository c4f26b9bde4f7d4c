"""A prepared statement is one text for both databases: names, casts, percent signs, many rows."""

from __future__ import annotations

import gc
import importlib
import pkgutil
from typing import Any

from sqlalchemy import bindparam, select

from tallystick import storage
from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import (
    Prepared,
    PreparedInsert,
    PreparedUpdate,
    insert_row,
    integer_list,
    upsert,
)
from tallystick.tally.services import services_of
from tallystick.testing.tally_contract import OpenTally

_ROWS = Prepared("SELECT name, value FROM settings WHERE name >= :first AND name < :after")


def test_every_statement_can_be_translated_for_both_databases() -> None:
    """They are translated when they are first run: what cannot be is found here."""
    for name in (
        module.name for module in pkgutil.walk_packages(storage.__path__, "tallystick.storage.")
    ):
        if ".migrations" not in name:
            importlib.import_module(name)
    gc.unfreeze()  # a command that another test ran in this process may have frozen them
    found = [each for each in gc.get_objects() if isinstance(each, Prepared)]

    assert len(found) > 80
    for each in found:
        assert each.translate("sqlite").text
        assert each.translate("postgresql").text


def _run(open_tally: OpenTally, unit: Any) -> Any:
    with open_tally() as tally:
        return services_of(tally).store.database.write(unit, name="test")


def test_one_text_names_values_repeats_them_casts_and_divides(open_tally: OpenTally) -> None:
    remainder = Prepared(
        "SELECT CAST(:b AS BIGINT) % CAST(:a AS BIGINT), CAST(:a AS BIGINT) + CAST(:a AS BIGINT)"
    )

    rows = _run(open_tally, lambda tx: remainder(tx, {"a": 4, "b": 7}))

    assert [tuple(row) for row in rows] == [(3, 8)]


def test_a_construct_of_sqlalchemy_gives_the_same_rows_as_its_text(open_tally: OpenTally) -> None:
    query = select(tables.settings.c.value).where(tables.settings.c.name == bindparam("name"))
    text = "SELECT value FROM settings WHERE name = :name"

    def unit(tx: Any) -> tuple[Any, Any]:
        Prepared(insert_row(tables.settings, "name", "value"))(tx, {"name": "x", "value": "1"})
        return Prepared(query)(tx, {"name": "x"}), Prepared(text)(tx, {"name": "x"})

    by_construct, by_text = _run(open_tally, unit)

    assert list(map(tuple, by_construct)) == list(map(tuple, by_text)) == [("1",)]


def test_an_upsert_replaces_or_leaves_the_row_that_exists(open_tally: OpenTally) -> None:
    columns = ("name", "value")
    replacing = Prepared(upsert(tables.settings, columns, key=("name",), replacing=("value",)))
    leaving = Prepared(upsert(tables.settings, columns))

    def unit(tx: Any) -> Any:
        replacing(tx, {"name": "x1", "value": "first"})
        replacing(tx, {"name": "x1", "value": "second"})
        leaving(tx, {"name": "x1", "value": "third"})
        # More rows than one statement may contain, and not a power of two.
        leaving(tx, [{"name": f"x{number:04}", "value": "many"} for number in range(301)])
        return _ROWS(tx, {"first": "x", "after": "y"})

    rows = dict(map(tuple, _run(open_tally, unit)))

    assert rows.pop("x1") == "second"
    assert len(rows) == 301
    assert set(rows.values()) == {"many"}


def test_an_insert_returns_its_key_and_an_update_the_number_of_rows(
    open_tally: OpenTally,
) -> None:
    insert = PreparedInsert(insert_row(tables.scopes, "name", "secret"), key="id")
    update = PreparedUpdate("UPDATE scopes SET revision = revision + 1 WHERE name LIKE :pattern")
    chosen = Prepared(
        "SELECT name FROM scopes WHERE id IN (SELECT value FROM json_each(:ids))",
        postgresql="SELECT name FROM scopes WHERE id = ANY(:ids)",
    )

    def unit(tx: Any) -> tuple[Any, ...]:
        keys = [insert(tx, {"name": f"private:{n}", "secret": b"s"}) for n in ("a", "b")]
        rows = chosen(tx, {"ids": integer_list(tx, keys[1:])})
        return keys, update(tx, {"pattern": "private:%"}), rows

    keys, changed, rows = _run(open_tally, unit)

    assert keys[1] == keys[0] + 1
    assert changed == 2
    assert list(map(tuple, rows)) == [("private:b",)]
