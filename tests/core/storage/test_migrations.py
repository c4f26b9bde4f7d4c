"""A tally of an earlier schema keeps what it knew: of validity, and of calls under a key."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from tallystick.records import Actor
from tallystick.storage.migrations import texts_beside
from tallystick.tally import Tally
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
DAY = 24 * 3600 * 1_000_000


def day(number: int) -> int:
    """A day of the year 2024, microseconds UTC."""
    return (19_722 + number) * DAY


def test_validity_is_brought_over_from_the_bodies_of_versions(open_tally: OpenTally) -> None:
    migration = importlib.import_module("tallystick.storage.migrations.versions.0006_lifecycle")
    with open_tally() as tally:
        mine = tally.bind(Actor(user="ada"))
        mine.remember("Ada lived in Oslo.", valid_from=day(1), valid_until=day(10))
        mine.remember("Ada lives in Rome.", valid_from=day(10))
        mine.remember("Ada likes rain.")
        database = services_of(tally).store.database
        before = ["UPDATE memories SET valid_from = NULL, valid_until = NULL"]
        if not database.is_postgres:
            before.append("UPDATE memory_versions SET body = unpacked_text(body)")
        database.write(
            lambda tx: [tx.exec_driver_sql(statement) for statement in before], name="as before"
        )

        services_of(tally).store.database.write(migration._bring_validity_over, name="migrate")

    with open_tally() as tally:
        mine = tally.bind(Actor(user="ada"))
        then = [hit.memory.content for hit in mine.recall("where did Ada live?", as_of=day(5))]
        now = [hit.memory.content for hit in mine.recall("where does Ada live?", as_of=day(20))]

    assert "Ada lived in Oslo." in then
    assert "Ada lives in Rome." not in then
    assert "Ada lives in Rome." in now
    assert "Ada lived in Oslo." not in now


def test_a_call_under_a_key_of_before_is_answered_as_it_was(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine = tally.bind(Actor(user="ada"))
        first = mine.remember("Once.", kind="turn", conversation="c", idempotency_key="key of Ada")
        other = mine.remember("Two.", kind="turn", conversation="c", idempotency_key="another")
        database = services_of(tally).store.database
        keys = "SELECT key FROM idempotency ORDER BY created_at"
        with database.read() as connection:
            stored = list(connection.exec_driver_sql(keys).scalars())
        assert not any("Ada" in key for key in stored)
        before = (
            f"UPDATE idempotency SET key = CASE key WHEN '{stored[0]}' THEN 'key of Ada' "
            f"ELSE 'another' END"
        )
        database.write(lambda tx: tx.exec_driver_sql(before), name="as before")

        database.write(texts_beside.upgrade, name="migrate")

        with database.read() as connection:
            assert list(connection.exec_driver_sql(keys).scalars()) == stored
        again = [
            mine.remember(text, kind="turn", conversation="c", idempotency_key=key)
            for text, key in (("Once.", "key of Ada"), ("Two.", "another"))
        ]
        assert again == [first, other]
