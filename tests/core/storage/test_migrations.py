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
EPOCH = 20_000 * DAY


def test_validity_is_brought_over_from_the_bodies_of_versions(open_tally: OpenTally) -> None:
    migration = importlib.import_module("tallystick.storage.migrations.versions.0006_lifecycle")
    with open_tally() as tally:
        mine = tally.bind(Actor(user="ada"))
        mine.remember(
            "Ada lived in Oslo.", valid_from=EPOCH + 1 * DAY, valid_until=EPOCH + 10 * DAY
        )
        mine.remember("Ada lives in Rome.", valid_from=EPOCH + 10 * DAY)
        mine.remember("Ada likes rain.")
        forget = "UPDATE memories SET valid_from = NULL, valid_until = NULL"
        services_of(tally).store.database.write(
            lambda tx: tx.exec_driver_sql(forget), name="as before"
        )

        services_of(tally).store.database.write(migration._bring_validity_over, name="migrate")

    with open_tally() as tally:
        mine = tally.bind(Actor(user="ada"))
        then = [
            hit.memory.content for hit in mine.recall("where did Ada live?", as_of=EPOCH + 5 * DAY)
        ]
        now = [
            hit.memory.content
            for hit in mine.recall("where does Ada live?", as_of=EPOCH + 20 * DAY)
        ]

    assert "Ada lived in Oslo." in then
    assert "Ada lives in Rome." not in then
    assert "Ada lives in Rome." in now
    assert "Ada lived in Oslo." not in now
