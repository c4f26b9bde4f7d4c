"""A tally of the schema before keeps what it knew of validity: it stood in the bodies of versions
alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from tallystick.records import Actor
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
        forget = "UPDATE memories SET valid_from = NULL, valid_until = NULL"
        services_of(tally).store.database.write(
            lambda tx: tx.exec_driver_sql(forget), name="as before"
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
