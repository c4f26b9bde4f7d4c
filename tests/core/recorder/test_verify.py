"""Whatever is changed behind the recorder's back is found, and where it is said; what no chain
covers is listed.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tallystick import Actor, ContextItem, Tally
from tallystick.errors import CorruptTally, NotFound
from tallystick.recorder.verify import NOT_COVERED
from tallystick.records import Foil, Verification
from tallystick.storage.engine import tables
from tallystick.storage.engine.packing import unpack_text
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of

pytestmark = pytest.mark.sqlite


ADA = Actor(user="ada", projects={"apollo"})
SECRET = "ghp_" + "a1B2" * 9

ROWS_OF_A_RUN = {
    "runs": "SELECT rowid, * FROM runs WHERE id = :run",
    "steps": "SELECT rowid, * FROM steps WHERE run_id = :run",
    "step_entries": "SELECT e.rowid, e.* FROM step_entries e JOIN steps s ON s.id = e.step_id "
    "WHERE s.run_id = :run",
    "journal": "SELECT rowid, * FROM journal WHERE stream = 'run:' || :run",
    "streams": "SELECT rowid, * FROM streams WHERE name = 'run:' || :run",
}
COLUMNS = [
    f"{table}.{column.name}"
    for table in ROWS_OF_A_RUN
    for column in tables.metadata.tables[table].columns
]


@dataclass(frozen=True)
class Recorded:
    """A folder with two recorded runs, and the foil of each."""

    folder: Path
    foil: Foil
    other: Foil
    step_ids: tuple[str, ...]


@dataclass(frozen=True)
class Scene:
    """A copy of the recorded folder: `rows` by hand, `verify` as its owner."""

    rows: sqlite3.Connection
    tally: Tally
    recorded: Recorded

    def verify(self, foil: Foil | None = None) -> Verification:
        return self.tally.recordings.verify(self.recorded.foil.run_id, foil=foil)

    def of_run(self, table: str) -> list[sqlite3.Row]:
        """The rows that belong to the run, in the order in which they were written."""
        rows = self.rows.execute(
            ROWS_OF_A_RUN[table], {"run": self.recorded.foil.run_id}
        ).fetchall()
        return sorted(rows, key=lambda row: int(row[0]))

    def run(self, statement: str, **values: Any) -> None:
        with self.rows:
            assert self.rows.execute(statement, values).rowcount > 0, (
                "the statement found nothing to change"
            )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded") / "tally"
    with Tally.open(folder, background=False) as tally:
        ada = tally.bind(ADA)
        with ada.run("coder", domain="coding", goal="mend the test", metadata={"try": 1}) as run:
            with run.step("model_call", name="patch") as first:
                ada.compile(
                    [ContextItem(id="ask", kind="user_msg", content="Mend it.")], budget=500
                )
                first.record("request", {"prompt": "Mend it."}, summary={"model": "m"})
                first.record("response", {"text": "Mended."})
            with run.step("tool_call", name="deploy", parent=first.id) as second:
                second.record("tool_call", {"token": SECRET})
            ada.remember("The test was mended.")
        with (
            tally.bind(ADA, scope="project:apollo").run("other") as other,
            other.step("other") as third,
        ):
            third.record("note", "elsewhere")
        steps = tuple(step.id for step in tally.recordings.steps(run.id))
        return Recorded(folder, run.end(), other.end(), (*steps, third.id))


@pytest.fixture
def scene(recorded: Recorded, tmp_path: Path, open_sqlite: Callable[..., Tally]) -> Iterator[Scene]:
    shutil.copytree(recorded.folder, tmp_path / "tally", dirs_exist_ok=True)
    with open_sqlite() as tally, closing(sqlite3.connect(tmp_path / "tally" / "tally.db")) as rows:
        rows.row_factory = sqlite3.Row
        yield Scene(rows, tally, recorded)


def _text(value: Any) -> Any:
    return unpack_text(value) if isinstance(value, bytes) else value


def _another(column: str, old: Any, scene: Scene) -> Any:
    """Another value for a column, one that reads as well as the old one."""
    table, name = column.split(".")
    other_run = scene.recorded.other.run_id
    readable: dict[str, list[Any]] = {
        "status": ["completed", "failed"],
        "retention": ["redacted_payloads", "full_payloads"],
        "step_kind": ["model_call", "policy_check"],
        "kind": ["request", "response"],
        "payload_state": ["kept", "redacted"],
        "event": ["run.end", "receipt"],
        "metadata": ['{"a":1}'],
        "summary": ['{"a":1}'],
        "redactions": ['{"a":1}'],
        "name": ["run:elsewhere"] if table == "streams" else [],
        "body": [str(_text(old)).replace('"surface":"python"', '"surface":"cli"')]
        if name == "body"
        else [],
    }
    if name == "scope_id":
        row = scene.rows.execute("SELECT scope_id FROM runs WHERE id = ?", (other_run,)).fetchone()
        return row["scope_id"]
    for value in readable.get(name, []):
        if value != old:
            return value
    if isinstance(old, int):
        return old + 1_000
    if isinstance(old, bytes):
        return bytes([old[0] ^ 1]) + old[1:]
    return "x" if old is None else f"{old}x"


def _place(column: str, row: sqlite3.Row, run_id: str) -> str:
    """What `where` begins with when this column of this row was changed."""
    table, name = column.split(".")
    if table == "runs":
        return f"run {run_id}"
    if table == "steps":
        return f"step {row['id']}"
    if table == "step_entries":
        # An entry that left its step or its place is missed in the step rather than at the place.
        # The summaries of a step have one commitment with its name and metadata.
        moved = name in {"step_id", "position", "summary"}
        return f"step {row['step_id']}" + ("" if moved else f" entry {row['position']}")
    if column == "journal.salt" and row["event"] in journal.WITH_ROW_TEXTS:
        return (
            f"step {unpack_text(row['subject_id'])}"
            if row["event"] == "receipt"
            else f"run {run_id}"
        )
    if table == "journal" and name not in {"stream", "position"}:
        return f"run:{run_id}#{row['position']}"
    return f"run:{run_id}"


@pytest.mark.parametrize("column", [column for column in COLUMNS if column != "runs.id"])
def test_one_changed_field_is_found_where_it_is_unless_it_is_listed(
    column: str, scene: Scene
) -> None:
    """Every column of every row of the run, one at a time."""
    table, name = column.split(".")
    run_id = scene.recorded.foil.run_id
    rows = scene.of_run(table)
    assert rows
    for row in rows:
        value = _another(column, row[name], scene)
        scene.run(
            f"UPDATE {table} SET {name} = :value WHERE rowid = :rowid", value=value, rowid=row[0]
        )

        answer = scene.verify(scene.recorded.foil)

        if column in NOT_COVERED:
            assert (answer.ok, answer.problems) == (True, ())
        else:
            assert not answer.ok
            assert any(
                problem.where.startswith(_place(column, row, run_id)) for problem in answer.problems
            ), answer.problems
        rowid = value if name == "sequence" else row[0]
        scene.run(
            f"UPDATE {table} SET {name} = :value WHERE rowid = :rowid", value=row[name], rowid=rowid
        )
    assert scene.verify(scene.recorded.foil).ok


def test_what_is_listed_as_not_covered_is_there() -> None:
    assert set(NOT_COVERED) <= set(COLUMNS)


def test_a_run_under_another_id_is_not_found(scene: Scene) -> None:
    scene.run("UPDATE runs SET id = 'another' WHERE id = :run", run=scene.recorded.foil.run_id)

    with pytest.raises(NotFound):
        scene.verify()
    renamed = scene.tally.recordings.verify("another")
    assert ("run another", "its start is not in the journal") in _told(renamed)


def test_a_run_that_nobody_touched_verifies_with_and_without_its_foil(scene: Scene) -> None:
    plain, held = scene.verify(), scene.verify(scene.recorded.foil)

    assert (plain.ok, plain.foil_matches, len(plain.cannot_prove)) == (True, None, 3)
    assert (held.ok, held.foil_matches, len(held.cannot_prove)) == (True, True, 1)
    assert (plain.receipts, plain.payloads_checked, plain.payloads_absent) == (3, 6, 0)
    assert plain.foil == scene.recorded.foil


@pytest.mark.parametrize("body", ["{", "{}", '{"event":"receipt"}', "without details"])
def test_an_entry_that_is_not_readable_is_named_and_does_not_stop_the_check(
    body: str, scene: Scene
) -> None:
    for row in scene.of_run("journal"):
        text = (
            json.dumps(json.loads(str(unpack_text(row["body"]))) | {"details": {}})
            if body == "without details"
            else body
        )
        scene.run("UPDATE journal SET body = :body WHERE rowid = :rowid", body=text, rowid=row[0])

        answer = scene.verify(scene.recorded.foil)

        where = f"run:{scene.recorded.foil.run_id}#{row['position']}"
        assert (where, "its bytes do not match its digest") in _told(answer)
        scene.run(
            "UPDATE journal SET body = :body WHERE rowid = :rowid", body=row["body"], rowid=row[0]
        )


@pytest.mark.parametrize(
    ("column", "value"),
    [("status", "unheard of"), ("step_kind", "unheard of"), ("metadata", "{"), ("step_index", "x")],
)
def test_a_step_that_is_not_readable_is_a_problem_and_not_a_crash(
    column: str, value: str, scene: Scene
) -> None:
    scene.run(
        f"UPDATE steps SET {column} = :value WHERE id = :step",
        value=value,
        step=scene.recorded.step_ids[0],
    )

    answer = scene.verify()

    assert not answer.ok
    assert any("not readable" in problem.problem for problem in answer.problems)


def test_each_changed_payload_is_found(scene: Scene) -> None:
    for row in scene.of_run("step_entries"):
        here = {"scope": row["scope_id"], "key": row["part_key"]}
        was = scene.rows.execute(
            "SELECT body FROM parts WHERE scope_id = :scope AND key = :key", here
        ).fetchone()[0]
        set_body = "UPDATE parts SET body = :body WHERE scope_id = :scope AND key = :key"
        scene.run(set_body, body=was[:-1] + bytes([was[-1] ^ 1]), **here)

        answer = scene.verify()

        place = f"step {row['step_id']} entry {row['position']}"
        assert _told(answer) == {(place, "its payload does not match its commitment")}
        scene.run(set_body, body=was, **here)


def test_a_payload_that_is_gone_but_not_marked_erased_is_missed(scene: Scene) -> None:
    row = scene.of_run("step_entries")[2]
    scene.run("DELETE FROM parts WHERE key = :key", key=row["part_key"])

    assert _told(scene.verify()) == {(f"step {row['step_id']} entry 2", "its payload is missing")}


def test_each_deleted_entry_of_the_chain_is_missed(scene: Scene) -> None:
    chain = scene.of_run("journal")
    for row in chain:
        scene.run("DELETE FROM journal WHERE rowid = :rowid", rowid=row[0])

        answer = scene.verify()

        last = row["position"] == chain[-1]["position"]
        stream = f"run:{scene.recorded.foil.run_id}"
        expected = stream if last else f"{stream}#{row['position'] + 1}"
        assert expected in {problem.where for problem in answer.problems}
        _put_back(scene, "journal", row)


def test_each_deleted_entry_of_a_step_is_missed(scene: Scene) -> None:
    for row in scene.of_run("step_entries"):
        scene.run("DELETE FROM step_entries WHERE rowid = :rowid", rowid=row[0])

        answer = scene.verify()

        assert any(
            problem.where == f"step {row['step_id']}"
            and "entries where its receipt names" in problem.problem
            for problem in answer.problems
        )
        _put_back(scene, "step_entries", row)


def test_each_deleted_step_is_missed(scene: Scene) -> None:
    for row in scene.of_run("steps"):
        scene.run("DELETE FROM steps WHERE rowid = :rowid", rowid=row[0])

        assert (f"step {row['id']}", "has a receipt but is gone") in _told(scene.verify())
        _put_back(scene, "steps", row)


def test_two_entries_that_change_places_are_found(scene: Scene) -> None:
    step = scene.recorded.step_ids[0]
    for before, after in ((0, 900), (1, 0), (900, 1)):
        scene.run(
            "UPDATE step_entries SET position = :a WHERE step_id = :s AND position = :b",
            a=after,
            b=before,
            s=step,
        )

    places = {problem.where for problem in scene.verify().problems}

    assert places == {f"step {step}", f"step {step} entry 0", f"step {step} entry 1"}


@pytest.mark.parametrize("ended", [True, False])
def test_a_step_that_was_added_has_no_receipt(ended: bool, scene: Scene) -> None:
    """Also one that looks as if it were still running, in a run that has ended."""
    row = _without_rowid(scene.of_run("steps")[0]) | {"id": "forged", "step_index": 3}
    if not ended:
        row |= {"status": "running", "ended_at": None}
    _insert(scene, "steps", row)

    answer = scene.verify(scene.recorded.foil)

    assert not answer.ok
    assert "step forged" in {problem.where for problem in answer.problems}


def test_an_entry_that_was_added_is_found(scene: Scene) -> None:
    row = _without_rowid(scene.of_run("step_entries")[-1])
    row |= {"id": "forged", "position": row["position"] + 1}
    _insert(scene, "step_entries", row)

    assert (f"step {row['step_id']}", "has 2 entries where its receipt names 1") in _told(
        scene.verify()
    )


def test_an_end_that_was_cut_off_with_its_head_is_caught_by_the_foil_alone(scene: Scene) -> None:
    """Last step, its receipt and the end of the run are gone, and everything else was made to
    agree.
    """
    run_id = scene.recorded.foil.run_id
    chain = scene.of_run("journal")
    rest, cut = chain[:-2], chain[-2:]
    for row in cut:
        scene.run("DELETE FROM journal WHERE rowid = :rowid", rowid=row[0])
    step_id = unpack_text(cut[0]["subject_id"])
    scene.run("DELETE FROM step_entries WHERE step_id = :step", step=step_id)
    scene.run("DELETE FROM steps WHERE id = :step", step=step_id)
    scene.run("UPDATE runs SET status = 'running', ended_at = NULL WHERE id = :run", run=run_id)
    scene.run(
        "UPDATE streams SET count = :count, head = :head WHERE name = :name",
        count=len(rest),
        head=unpack_text(rest[-1]["digest"]),
        name=f"run:{run_id}",
    )

    without, held = scene.verify(), scene.verify(scene.recorded.foil)

    assert (without.ok, without.receipts) == (True, 2)
    assert any("cut off together with its head" in limit for limit in without.cannot_prove)
    assert (held.ok, held.foil_matches) == (False, False)
    assert _told(held) == {(f"run:{run_id}", "the foil you gave does not match what is stored")}


def test_a_foil_that_was_changed_does_not_match(scene: Scene) -> None:
    foil = scene.recorded.foil
    wrong = [
        foil.replace(head=foil.head[:-1] + ("0" if foil.head[-1] != "0" else "1")),
        foil.replace(count=foil.count - 1),
        foil.replace(count=foil.count + 1),
        foil.replace(count=0),
        scene.recorded.other,
    ]

    assert [scene.verify(each).foil_matches for each in wrong] == [False] * len(wrong)


def test_a_payload_that_somebody_took_away_and_called_erased_is_found(scene: Scene) -> None:
    """What an operator erased stands in the chain; the rest of the same step is not let off with
    it.
    """
    entries = scene.of_run("step_entries")
    row = entries[1]
    operator = scene.tally.bind(Actor(user="root", role="operator")).operator
    other = next(one["step_id"] for one in entries if one["step_id"] != row["step_id"])
    operator.erase_recorded(
        scene.recorded.foil.run_id, step_id=other, reason="asked to", mode="apply"
    )
    absent = scene.verify(scene.recorded.foil)
    assert (absent.ok, absent.payloads_absent) == (
        True,
        sum(one["step_id"] == other for one in entries),
    )
    scene.run(
        "UPDATE step_entries SET payload_state = 'erased', part_key = NULL, salt = NULL WHERE "
        "rowid = :rowid",
        rowid=row[0],
    )
    scene.run("DELETE FROM parts WHERE key = :key", key=row["part_key"])

    answer = scene.verify(scene.recorded.foil)

    place = f"step {row['step_id']} entry {row['position']}"
    assert _told(answer) == {(place, "is called erased, but no entry of the chain tells of it")}


@pytest.mark.parametrize("kept", ["part_key", "salt"])
def test_a_payload_that_is_called_erased_and_is_still_there_is_found(
    kept: str, scene: Scene
) -> None:
    """Calling a payload erased would otherwise take it out of the check."""
    row = scene.of_run("step_entries")[1]
    gone = "salt" if kept == "part_key" else "part_key"
    scene.run(
        f"UPDATE step_entries SET payload_state = 'erased', {gone} = NULL WHERE rowid = :rowid",
        rowid=row[0],
    )

    answer = scene.verify()

    place = f"step {row['step_id']} entry 1"
    assert _told(answer) == {(place, "is called erased, but its payload or salt is still there")}


@pytest.mark.parametrize("column", ["salt", "part_key", "payload_state", "commitment"])
def test_an_entry_that_kept_no_payload_is_covered_too(
    column: str, open_sqlite: Callable[..., Tally]
) -> None:
    with open_sqlite() as tally:
        with (
            tally.bind(ADA).run("coder", retention="metadata_only") as run,
            run.step("other") as step,
        ):
            step.record("note", "said")
        assert tally.recordings.verify(run.id).payloads_absent == 1
        value: Any = {
            "salt": b"x" * 16,
            "part_key": "hmac-sha256:0",
            "payload_state": "kept",
            "commitment": "sha256:0",
        }[column]
        with closing(sqlite3.connect(Path(tally.location) / "tally.db")) as rows, rows:
            rows.execute(
                f"UPDATE step_entries SET {column} = ? WHERE step_id = ?", (value, step.id)
            )

        answer = tally.recordings.verify(run.id)

        assert f"step {step.id} entry 0" in {problem.where for problem in answer.problems}


def _told(answer: Verification) -> set[tuple[str, str]]:
    return {(problem.where, problem.problem) for problem in answer.problems}


def _without_rowid(row: sqlite3.Row) -> dict[str, Any]:
    return {name: value for name, value in dict(row).items() if name != "rowid"}


def _insert(scene: Scene, table: str, row: Mapping[str, Any]) -> None:
    names = ", ".join(row), ", ".join(f":{name}" for name in row)
    scene.run(f"INSERT INTO {table} ({names[0]}) VALUES ({names[1]})", **row)


def _put_back(scene: Scene, table: str, row: sqlite3.Row) -> None:
    _insert(scene, table, _without_rowid(row))
    assert scene.verify().ok


@pytest.mark.parametrize("damage", ["status = 'nonsense'", "metadata = '{'"])
def test_a_run_whose_row_is_not_readable_is_named(
    damage: str, open_sqlite: Callable[..., Tally]
) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("coder") as run:
            pass
        services_of(tally).store.database.write(
            lambda tx: tx.exec_driver_sql(f"UPDATE runs SET {damage}"), name="test"
        )

        with pytest.raises(CorruptTally, match=run.id):
            tally.recordings.verify(run.id)


def test_an_end_that_was_taken_from_the_row_of_a_run_is_found_after_the_next_opening(
    recorded: Recorded, tmp_path: Path, open_sqlite: Callable[..., Tally]
) -> None:
    """Whoever opens the tally takes the run for one of a dead process, and does not end it anew."""
    shutil.copytree(recorded.folder, tmp_path / "tally", dirs_exist_ok=True)
    with closing(sqlite3.connect(tmp_path / "tally" / "tally.db")) as rows, rows:
        rows.execute("UPDATE runs SET ended_at = NULL, status = 'running'")
    for _ in range(2):
        with open_sqlite() as tally:
            answer = tally.recordings.verify(recorded.foil.run_id, foil=recorded.foil)
            assert {problem.problem for problem in answer.problems} == {
                "ended_at differs from what the journal says",
                "status differs from what the journal says",
            }
