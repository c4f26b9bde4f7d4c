"""A tally of the schema before keeps what it knew of validity: it stood in the bodies of versions alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tallystick.records import Actor
from tallystick.tally import Tally

DAY = 24 * 3600 * 1_000_000


def test_validity_is_brought_over_from_the_bodies_of_versions(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "tally", background=False) as tally:
        mine = tally.bind(Actor(user="ada"))
        mine.remember("Ada lived in Oslo.", valid_from=1 * DAY, valid_until=10 * DAY)
        mine.remember("Ada lives in Rome.", valid_from=10 * DAY)
        mine.remember("Ada likes rain.")
    with closing(sqlite3.connect(tmp_path / "tally" / "tally.db")) as connection:
        for column in ("valid_from", "valid_until", "locked_until"):
            connection.execute(f"ALTER TABLE memories DROP COLUMN {column}")
        for table in ("anchors", "working", "store_items"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("UPDATE alembic_version SET version_num = '0004'")
        connection.commit()

    with Tally.open(tmp_path / "tally", background=False) as tally:
        mine = tally.bind(Actor(user="ada"))
        then = [hit.memory.content for hit in mine.recall("where did Ada live?", as_of=5 * DAY)]
        now = [hit.memory.content for hit in mine.recall("where does Ada live?", as_of=20 * DAY)]

    assert "Ada lived in Oslo." in then
    assert "Ada lives in Rome." not in then
    assert "Ada lives in Rome." in now
    assert "Ada lived in Oslo." not in now
