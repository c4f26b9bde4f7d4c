"""The database: what survives the loss of power, and what a reader sees while others write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tallystick import Actor, Tally
from tallystick.settings import Settings
from tallystick.storage import Connection, memories, scopes
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")
NORMAL, FULL = 1, 2


def _in_a_write(tally: Tally, statement: str) -> Any:
    database = services_of(tally).store.database
    return database.write(lambda tx: tx.exec_driver_sql(statement).scalar(), name="test")


@pytest.mark.parametrize(("durability", "synchronous"), [("normal", NORMAL), ("full", FULL)])
def test_sqlite_syncs_each_commit_only_where_full_durability_is_asked_for(
    open_sqlite: OpenTally, durability: str, synchronous: int
) -> None:
    """NORMAL keeps every commit over a killed process, FULL over the loss of power too."""
    with open_sqlite(settings=Settings.read(durability=durability)) as tally:
        assert _in_a_write(tally, "PRAGMA synchronous") == synchronous
        assert _in_a_write(tally, "PRAGMA journal_mode") == "wal"


@pytest.mark.postgres
def test_postgres_syncs_each_commit_where_full_durability_is_asked_for(
    postgres_url: str,
) -> None:
    """Whatever the server does by itself."""
    settings = Settings.read(durability="full")
    separator = "&" if "?" in postgres_url else "?"
    with Tally.open(
        f"{postgres_url}{separator}options=-csynchronous_commit%3Doff",
        schema="durability",
        background=False,
        settings=settings,
    ) as tally:
        assert _in_a_write(tally, "SHOW synchronous_commit") == "on"


def _remembered(connection: Connection) -> int:
    [scope] = scopes.find(connection, [ALICE.private_scope])
    return len(memories.statuses(connection, [scope.id]))


def test_a_reader_sees_one_state_from_its_first_statement_to_its_last(
    open_tally: OpenTally,
) -> None:
    """Who decides over a scope and then reads it reads what was decided over."""
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        alice.remember("The heron nests in March.")
        with services_of(tally).store.database.read() as connection:
            first = _remembered(connection)
            writer = threading.Thread(target=alice.remember, args=("The owl nests in April.",))
            writer.start()
            writer.join()
            second = _remembered(connection)
        with services_of(tally).store.database.read() as connection:
            third = _remembered(connection)

    assert (first, second, third) == (1, 1, 2)
