"""Tasks have five states and an end without success; those of earlier releases read as theirs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from sqlalchemy import select, update

from tallystick.errors import InvalidRecord
from tallystick.records import Actor
from tallystick.storage import tables
from tallystick.tally import Tally
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")


@pytest.mark.parametrize("kind", ["task", "milestone"])
def test_a_task_is_in_one_of_its_states(open_sqlite: OpenTally, kind: str) -> None:
    with open_sqlite() as tally:
        mine = tally.bind(ALICE)
        for status in ("todo", "doing", "blocked", "review", "done", "cancelled"):
            mine.remember(f"Mend it, {status}.", kind=kind, attributes={"status": status})
        for status in ("open", "active", "finished"):
            with pytest.raises(InvalidRecord, match="status"):
                mine.remember("x", kind=kind, attributes={"status": status})
        woken = {item.text for item in mine.wake().items if item.chosen_as == "task"}
        states = ("todo", "doing", "blocked", "review")
        assert woken == {f"Mend it, {status}." for status in states}


@pytest.mark.parametrize(("before", "now"), [("open", "todo"), ("active", "doing")])
def test_a_task_of_an_earlier_release_reads_in_the_words_of_now(
    open_tally: OpenTally, before: str, now: str
) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        task = mine.remember("Mend it.", kind="task", attributes={"status": now, "due_at": 5})
        note = mine.remember("A note.", attributes={"status": before})
        versions = tables.memory_versions

        def older(tx: object) -> None:
            for doc, body in tx.execute(select(versions.c.doc, versions.c.body)).all():  # type: ignore[attr-defined]
                fields = json.loads(body)
                fields["attributes"]["status"] = before
                tx.execute(  # type: ignore[attr-defined]
                    update(versions).where(versions.c.doc == doc).values(body=json.dumps(fields))
                )

        services_of(tally).store.database.write(older, name="older")
        assert mine.get(task.id).attributes == {"status": now, "due_at": 5}
        assert mine.get(note.id).attributes == {"status": before}
        mine.modify(task.id, content="Mend it now.", reason="r")
        assert mine.get(task.id).attributes == {"status": now, "due_at": 5}
