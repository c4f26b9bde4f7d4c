"""A process that is killed while it changes memory leaves every acknowledged change, and no half of
another.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import StorageError
from tallystick.records import Actor
from tallystick.tally import Tally
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ROOT = Actor(user="root", role="operator")

_CHANGING = """
import json, sys
from tallystick import Actor, Tally

tally = Tally.open(sys.argv[1], background=False)
mine = tally.bind(Actor(user="alice"))
texts = [f"The heron number {n} nests." for n in range(20)]
ids = [memory.id for memory in mine.remember_many(texts)]
number, make = 0, mine.corrections.make
while True:
    memory_id = ids[number % len(ids)]
    turn = number // len(ids) % 4
    if turn == 0:
        done = mine.modify(memory_id, content=f"The heron moved, note {number}.", reason="r")
    elif turn == 1:
        preview = make(memory_id, "hide", reason="r")
        token = preview.confirm_token
        done = make(memory_id, "hide", reason="r", mode="apply", confirm_token=token).result
    elif turn == 2:
        preview = make(memory_id, "restore", reason="r")
        token = preview.confirm_token
        restored = make(memory_id, "restore", reason="r", mode="apply", confirm_token=token)
        done = restored.result
    else:
        done = mine.forget(memory_id, reason="r")
        print(json.dumps([memory_id, done.version, done.state]), flush=True)
        done = mine.recover(memory_id, reason="r")
    print(json.dumps([memory_id, done.version, done.state]), flush=True)
    number += 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("lines", [7, 45, 95])
def test_a_killed_process_leaves_every_change_whole(
    open_sqlite: OpenTally, tmp_path: Path, lines: int
) -> None:
    place = tmp_path / "tally"
    process = subprocess.Popen(
        [sys.executable, "-c", _CHANGING, str(place)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said: dict[str, tuple[int, str]] = {}
    for _ in range(lines):
        memory_id, version, state = json.loads(process.stdout.readline())
        said[memory_id] = (version, state)
    process.kill()
    rest = [line for line in process.stdout.read().splitlines() if line.endswith("]")]
    process.wait()
    process.stdout.close()
    for line in rest:
        memory_id, version, state = json.loads(line)
        said[memory_id] = (version, state)

    with open_sqlite() as tally:
        mine, root = tally.bind(Actor(user="alice")), tally.bind(ROOT)
        findings = {one.check: one.status for one in root.operator.doctor()}
        listed = {
            one.id: one for one in mine.memories(states=("active", "hidden", "deleted"), limit=100)
        }
        # What was acknowledged stands; at most one change after it was committed and not told.
        ahead = [
            memory_id
            for memory_id, (version, _) in said.items()
            if listed[memory_id].version != version
        ]
        assert all(listed[memory_id].version == said[memory_id][0] + 1 for memory_id in ahead)
        assert len(ahead) <= 1
        assert (findings["journal"], findings["versions"]) == ("ok", "ok")
        found = {hit.memory.id for hit in mine.recall("heron nests moved note number", limit=100)}
        assert found == {
            memory_id for memory_id, memory in listed.items() if memory.state == "active"
        }
        assert set(mine.spaces.preview_access().visible) == found


@pytest.mark.parametrize("name", ["memory_versions", "search_text", "journal", "edges", "memories"])
def test_a_write_that_fails_at_any_table_changes_nothing(open_tally: OpenTally, name: str) -> None:
    with open_tally() as tally:
        mine = tally.bind(Actor(user="alice"))
        old, new = (
            mine.remember(text).id for text in ("The heron is grey.", "The heron is white.")
        )
        token = mine.corrections.make(old, "supersede", by=new, reason="r").confirm_token
        before = (
            mine.memories(states=("active", "superseded")),
            mine.history(old),
            mine.history(new),
        )
        shown = [(hit.memory.id, hit.score) for hit in mine.recall("heron")]

        def fails(tx: Any) -> None:
            if tx.dialect.name == "sqlite":
                for verb in ("INSERT", "UPDATE"):
                    tx.exec_driver_sql(
                        f"CREATE TRIGGER fail_{verb} BEFORE {verb} ON {name} BEGIN SELECT "
                        f"RAISE(ABORT, 'no'); END"
                    )
            else:
                tx.exec_driver_sql(
                    "CREATE FUNCTION fail() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'no'; "
                    "END $$ LANGUAGE plpgsql"
                )
                tx.exec_driver_sql(
                    f"CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON {name} FOR EACH ROW EXECUTE "
                    f"FUNCTION fail()"
                )

        def mends(tx: Any) -> None:
            if tx.dialect.name == "sqlite":
                for verb in ("INSERT", "UPDATE"):
                    tx.exec_driver_sql(f"DROP TRIGGER fail_{verb}")
            else:
                tx.exec_driver_sql("DROP FUNCTION fail CASCADE")

        services_of(tally).store.database.write(fails, name="harm")
        with pytest.raises(StorageError):
            mine.corrections.make(
                old, "supersede", by=new, reason="r", mode="apply", confirm_token=token
            )
        services_of(tally).store.database.write(mends, name="mend")

        assert (
            mine.memories(states=("active", "superseded")),
            mine.history(old),
            mine.history(new),
        ) == before
        assert [(hit.memory.id, hit.score) for hit in mine.recall("heron")] == shown
        done = mine.corrections.make(
            old, "supersede", by=new, reason="r", mode="apply", confirm_token=token
        )
        assert done.result is not None
