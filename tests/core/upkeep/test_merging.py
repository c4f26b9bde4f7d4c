"""From one database to the other, beside what is there: nothing is overwritten, an import is whole
or not there at all, and every chain verifies.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import true

from tallystick import Actor, Tally
from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.errors import CorruptTally, StateConflict
from tallystick.memory.items import Put
from tallystick.records import canonical_json, text_digest
from tallystick.settings import Settings
from tallystick.storage.engine import tables
from tallystick.storage.move import archives
from tallystick.storage.rows import journal, settings_rows
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
ROOT = Actor(user="root", role="operator")
ADA = Actor(user="ada", projects={"apollo"})
BOB = Actor(user="bob", projects={"zeus"})
GRAPH = Settings.read(graph=True)


def _open(opening: OpenTally) -> Tally:
    return opening(embedder=HashEmbedder(), settings=GRAPH)


@pytest.fixture
def open_other(request: pytest.FixtureRequest, tmp_path: Path) -> OpenTally:
    """A store on the database that `open_tally` is not on."""
    if request.node.callspec.params["open_tally"] == "postgres":
        return lambda **options: Tally.open(tmp_path / "other", background=False, **options)
    url, schema = request.getfixturevalue("postgres_url"), f"m{uuid.uuid4().hex}"
    return lambda **options: Tally.open(url, schema=schema, background=False, **options)


def _fill(tally: Tally, actor: Actor, project: str) -> dict[str, Any]:
    """Memories of two scopes with a change, links, a run, an item and the graph."""
    mine, ours = tally.bind(actor), tally.bind(actor, f"project:{project}")
    user = actor.user
    first = mine.remember(
        f"{user} keeps a heron called Otto von Reed in Hamburg.",
        kind="fact",
        entities=["Otto von Reed", "Hamburg"],
    )
    mine.modify(first.id, content=f"{user} keeps two herons in Hamburg.", reason="another one")
    second = mine.remember(f"{user} feeds them fish.", related_to=[first.id])
    shared = ours.remember(
        f"{user} of {project} meets Otto von Reed on Mondays.",
        kind="fact",
        entities=["Otto von Reed"],
    )
    mine.items.put([Put(("birds",), "otto", {"text": f"{user} knows Otto"})])
    with mine.run("keeper", goal="feed") as run, run.step("model_call") as step:
        step.record("request", {"prompt": f"What does the heron of {user} eat? " + "reed " * 2_000})
    tally.drain()
    return {"first": first.id, "second": second.id, "shared": shared.id, "run": run.id}


def _seen(tally: Tally, actor: Actor, project: str, made: dict[str, Any]) -> Any:
    mine, ours = tally.bind(actor), tally.bind(actor, f"project:{project}")
    hits = mine.recall("what do the herons eat?", limit=10)
    return {
        "recall": [(hit.memory.id, hit.memory.content, hit.score) for hit in hits],
        "ours": [hit.memory.content for hit in ours.recall("who meets on Mondays?")],
        "history": [(entry.event, entry.at) for entry in mine.history(made["first"])],
        "around": [node.id for node in mine.explore(made["second"]).memories],
        "item": mine.items.get([(("birds",), "otto")]),
        "verified": mine.recordings.verify(made["run"]).ok,
        "foil": mine.recordings.verify(made["run"]).foil,
    }


def _rows(tally: Tally) -> dict[str, int]:
    everything = [(table, true()) for table in tables.metadata.sorted_tables]
    with services_of(tally).store.database.read() as connection:
        counts = archives.count_rows(connection, everything)
    # What a call itself leaves: its own line, and work that is derived.
    return {name: count for name, count in counts.items() if name not in {"journal", "derived"}}


def _order(tally: Tally, user: str) -> list[str]:
    """The entries of all journals of what this user wrote, in their order."""
    with services_of(tally).store.database.read() as connection:
        entries = journal.all_entries(connection)
    return [entry.audit_id for entry in entries if entry.actor["user"] == user]


def _whole(tally: Tally) -> list[str]:
    findings = tally.bind(ROOT).operator.doctor()
    return [one.text for one in findings if one.status == "problem"]


def test_scopes_move_to_the_other_database_beside_those_that_are_there(
    open_tally: OpenTally, open_other: OpenTally, tmp_path: Path
) -> None:
    with _open(open_other) as target:
        theirs = _fill(target, BOB, "zeus")
        before = _seen(target, BOB, "zeus", theirs)
        theirs_order = _order(target, "bob")
    with _open(open_tally) as source:
        made = _fill(source, ADA, "apollo")
        moved = _seen(source, ADA, "apollo", made)
        source.bind(ADA).operator.export(tmp_path / "out", scopes=["private:ada", "project:apollo"])
        order = _order(source, "ada")

    told: list[tuple[int, int]] = []
    with _open(open_other) as target:
        done = target.bind(ROOT).operator.import_from(
            tmp_path / "out", progress=lambda count, total: told.append((count, total))
        )
        assert done.scopes == ("private:ada", "project:apollo")
        assert told == sorted(told)
        assert told[-1][0] == told[-1][1] > 0
        assert _order(target, "ada") == order
        assert _order(target, "bob")[: len(theirs_order)] == theirs_order
        target.drain()
        assert _seen(target, ADA, "apollo", made) == moved
        assert _seen(target, BOB, "zeus", theirs) == before
        assert _whole(target) == []

        rows = _rows(target)
        with pytest.raises(StateConflict, match=r"private:ada is here already.*Nothing was imp"):
            target.bind(ROOT).operator.import_from(tmp_path / "out")
        assert _rows(target) == rows
        later = target.bind(ADA).remember("The herons of ada sleep.", kind="fact")
        assert target.bind(ADA).get(later.id)
        assert _whole(target) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_an_import_that_is_cut_off_leaves_nothing_and_is_made_again(
    open_tally: OpenTally, tmp_path: Path, part: float
) -> None:
    with Tally.open(tmp_path / "source", background=False, settings=GRAPH) as source:
        made = _fill(source, ADA, "apollo")
        moved = _seen(source, ADA, "apollo", made)
        source.bind(ADA).operator.export(tmp_path / "out", scopes=["private:ada", "project:apollo"])

    def cut(done: int, total: int) -> None:
        if done >= part * total:
            raise KeyboardInterrupt

    with open_tally(settings=GRAPH) as target:
        _fill(target, BOB, "zeus")
        rows = _rows(target)
        with pytest.raises(KeyboardInterrupt):
            target.bind(ROOT).operator.import_from(tmp_path / "out", progress=cut)
        assert _rows(target) == rows
        target.bind(ROOT).operator.import_from(tmp_path / "out")
        assert _seen(target, ADA, "apollo", made) == moved
        assert _whole(target) == []


KILLED = """
import os, signal, sys
from tallystick import Actor, Tally
from tallystick.testing import HashEmbedder
from tallystick.settings import Settings

def kill(done, total):
    if done > 0.8 * total:
        os.kill(os.getpid(), signal.SIGKILL)

place, schema, folder = sys.argv[1:]
options = {"schema": schema} if schema else {}
root = Actor(user="root", role="operator")
tally = Tally.open(
    place, background=False, embedder=HashEmbedder(), settings=Settings.read(graph=True), **options
)
tally.bind(root).operator.import_from(folder, progress=kill)
"""


def _journal_days(tally: Tally) -> str | None:
    with services_of(tally).store.database.read() as connection:
        return settings_rows.get_setting(connection, "retention.journal_days")


@pytest.mark.slow
@pytest.mark.parametrize("filled", [False, True], ids=["into a new tally", "beside others"])
def test_an_import_that_is_killed_leaves_nothing_and_is_made_again(
    open_tally: OpenTally, open_other: OpenTally, tmp_path: Path, filled: bool
) -> None:
    scopes = ["private:ada", "project:apollo", "project:zoo"]
    # Facts of the other database are among the settings, and the minutes are those of a process.
    apart = {"settings": 0, "operation_minutes": 0}
    ada = Actor(user="ada", projects={"apollo", "zoo"})
    with _open(open_tally) as source:
        made = _fill(source, ada, "apollo")
        mine = source.bind(ada)
        share = partial(mine.corrections.share, made["first"], into="project:zoo", reason="for all")
        share(mode="apply", confirm_token=share().confirm_token)
        source.bind(ada, "project:zoo").remember("The zoo has herons.", kind="fact")
        for scope in ("private:ada", "project:zoo"):
            source.bind(ada, scope).recall("herons", scopes=[scope])
        mine.recall("herons")
        source.bind(ROOT).operator.choose_windows(journal_days=90)
        mine.operator.export(tmp_path / "out", scopes=scopes)
        moved = _seen(source, ada, "apollo", made)
    with _open(lambda **more: Tally.open(tmp_path / "whole", background=False, **more)) as whole:
        if filled:
            _fill(whole, BOB, "zeus")
        whole.bind(ROOT).operator.import_from(tmp_path / "out")
        rows = {**_rows(whole), **apart}

    with _open(open_other) as target:
        if filled:
            _fill(target, BOB, "zeus")
        database = services_of(target).store.database
        place = database.url.render_as_string(hide_password=False)
        arguments = [place, database.schema] if database.is_remote else [target.location, ""]
    command = [sys.executable, "-c", KILLED, *map(str, arguments), str(tmp_path / "out")]
    killed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    with _open(open_other) as target:
        assert [str(scope) for scope in target.scopes() if str(scope) in scopes] == []
        assert _journal_days(target) is None
        assert _whole(target) == []
        target.bind(ROOT).operator.import_from(tmp_path / "out")
        assert _journal_days(target) == "90"
        assert {**_rows(target), **apart} == rows
        target.drain()
        assert _seen(target, ada, "apollo", made) == moved
        assert _whole(target) == []
        # The copy in one scope follows what came with another.
        target.bind(ada).modify(made["first"], content="ada keeps three herons.", reason="another")
        copies = [memory.content for memory in target.bind(ada, "project:zoo").memories()]
        assert "ada keeps three herons." in copies


def test_what_does_not_verify_leaves_nothing(open_tally: OpenTally, tmp_path: Path) -> None:
    with Tally.open(tmp_path / "source", background=False) as source:
        made = _fill(source, ADA, "apollo")
        source.bind(ADA).operator.export(tmp_path / "out", scopes=["private:ada", "project:apollo"])
    good = (tmp_path / "out" / "memory_versions.jsonl").read_text()
    _change(
        tmp_path / "out",
        "memory_versions",
        lambda row: row.update(body=row["body"].replace("on Mondays", "on Fridays")),
    )
    with open_tally() as target:
        target.bind(BOB).remember("Bob was here first.")
        rows = _rows(target)
        with pytest.raises(CorruptTally, match=r"1 of \d texts .* Nothing was imported"):
            target.bind(ROOT).operator.import_from(tmp_path / "out")
        assert _rows(target) == rows
        assert _whole(target) == []

        (tmp_path / "out" / "memory_versions.jsonl").write_text(good)
        _change(tmp_path / "out", "memory_versions", lambda row: None)
        target.bind(ROOT).operator.import_from(tmp_path / "out")
        ours = target.bind(ADA, "project:apollo").get(made["shared"])
        assert ours.content.endswith("on Mondays.")
        assert target.bind(ADA).recordings.verify(made["run"]).ok
        assert _whole(target) == []


_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1)


@given(text=_TEXTS, body=st.binary(max_size=5_000))
@settings(max_examples=settings().max_examples // 10)
def test_whatever_was_stored_comes_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, text: str, body: bytes
) -> None:
    """10 texts and values as a rule, 200 under `make soak`."""
    folder = tmp_path_factory.mktemp("round-trip")
    state = NewCheckpoint("", "1", None, {}, Leaf("x", body), {"value": Leaf("x", body)})
    with Tally.open(folder / "source", background=False) as source:
        mine = source.bind(ADA)
        with mine.run(text) as run, run.step("model_call", name=text) as step:
            step.record("request", {"text": text, "twice": [text, text * 200]})
        mine.threads.put(text, state)
        before = _recorded(mine, run.id, text)
        mine.operator.export(folder / "out")
    with Tally.open(folder / "target", background=False) as target:
        target.bind(ROOT).operator.import_from(folder / "out")
        assert _recorded(target.bind(ADA), run.id, text) == before


def _recorded(mine: Any, run_id: str, thread: str) -> Any:
    [step] = mine.recordings.steps(run_id)
    entries = [entry.payload for entry in mine.recordings.entries(step.id)]
    assert mine.recordings.verify(run_id).ok
    assert mine.threads.verify(thread) == []
    stored = mine.threads.get(thread, namespace="")
    return mine.recordings.run(run_id), step, entries, stored.summary, stored.body, stored.values


@pytest.mark.postgres
def test_writers_of_other_scopes_go_on_during_an_import(postgres_url: str, tmp_path: Path) -> None:
    """On PostgreSQL, in other processes; what they number is not in the way of what comes."""
    body = Leaf("json", json.dumps({"said": "x" * 5_000}).encode())
    state = NewCheckpoint("", "1", None, {"source": "input"}, body, {"messages": body})
    with Tally.open(tmp_path / "source", background=False) as source:
        _fill(source, ADA, "apollo")
        source.bind(BOB).threads.put("first", state)
        source.bind(ADA).threads.put("chat", state)
        source.bind(ADA, "project:apollo").threads.put("chat", state)
        source.bind(ADA).operator.export(tmp_path / "out", scopes=["private:ada", "project:apollo"])
    place: dict[str, Any] = {"schema": f"w{uuid.uuid4().hex}", "background": False}
    patient = Settings.read(busy_timeout_ms=2_000)
    written: list[str] = []
    with (
        Tally.open(postgres_url, **place) as target,
        Tally.open(postgres_url, settings=patient, **place) as other,
    ):
        bob = other.bind(BOB)
        bob.threads.put("first", state)  # and a look for what is expired, which takes the tally

        def write() -> None:
            name = f"chat {len(written)}"
            bob.threads.put(name, state)
            written.append(bob.remember(f"Bob says {name}.", kind="fact").id)

        def meanwhile(done: int, total: int) -> None:
            if 2 * done > total:
                thread = threading.Thread(target=write)
                thread.start()
                thread.join()

        target.bind(ROOT).operator.import_from(tmp_path / "out", progress=meanwhile)
        assert len(written) > 10
        assert len(bob.memories(limit=1_000)) == len(written)
        assert all(bob.threads.verify(f"chat {number}") == [] for number in range(len(written)))
        assert target.bind(ADA).threads.verify("chat") == []
        assert target.bind(ADA, "project:apollo").threads.verify("chat") == []
        assert _whole(target) == []


def test_a_scope_that_nothing_was_written_to_comes_with_its_journal(
    open_tally: OpenTally, tmp_path: Path
) -> None:
    """The export itself is noted in it."""
    with Tally.open(tmp_path / "source", background=False) as source:
        source.bind(ADA).remember("One.")
        source.bind(ADA).operator.export(tmp_path / "out", scopes=["private:ada", "project:apollo"])
    with open_tally() as target:
        target.bind(BOB).remember("Bob was here first.")
        target.bind(ROOT).operator.import_from(tmp_path / "out")
        with services_of(target).store.database.read() as connection:
            noted = [each.event for each in journal.entries(connection, "scope:project:apollo")]
        assert noted == ["scope.export"]
        assert _whole(target) == []


def test_an_export_tells_how_far_it_is(open_tally: OpenTally, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with open_tally() as tally:
        tally.bind(ADA).remember_many([f"Number {number}." for number in range(600)])
        tally.bind(ADA).operator.export(
            tmp_path / "out", progress=lambda done, total: told.append((done, total))
        )
    assert told == sorted(told)
    assert len({total for _, total in told}) == 1
    assert told[-1][0] == told[-1][1] > 600


def test_a_scope_of_the_same_name_refuses_the_whole(open_tally: OpenTally, tmp_path: Path) -> None:
    with Tally.open(tmp_path / "source", background=False) as source:
        _fill(source, ADA, "apollo")
        source.bind(ADA).operator.export(tmp_path / "out", scopes=["private:ada", "project:apollo"])
    with open_tally() as target:
        kept = target.bind(ADA, "project:apollo").remember("Another Apollo.", kind="fact")
        rows = _rows(target)
        with pytest.raises(StateConflict, match="project:apollo is here already"):
            target.bind(ROOT).operator.import_from(tmp_path / "out")
        assert _rows(target) == rows
        assert target.bind(ADA, "project:apollo").get(kept.id).content == "Another Apollo."


def test_an_export_that_went_on_since_is_refused(open_tally: OpenTally, tmp_path: Path) -> None:
    with (
        Tally.open(tmp_path / "source", background=False) as source,
        open_tally() as target,
    ):
        target.bind(BOB).remember("Bob was here first.")
        source.bind(ADA).remember("One.")
        source.bind(ADA).operator.export(tmp_path / "one")
        source.bind(ADA).remember("Two.")
        source.bind(ADA).operator.export(tmp_path / "two")
        target.bind(ROOT).operator.import_from(tmp_path / "one")
        with pytest.raises(StateConflict, match="here already"):
            target.bind(ROOT).operator.import_from(tmp_path / "two")
        assert [memory.content for memory in target.bind(ADA).memories()] == ["One."]


def test_a_thread_moves_with_its_number_where_that_is_free(
    open_tally: OpenTally, tmp_path: Path
) -> None:
    body = Leaf("json", json.dumps({"said": "x" * 5_000}).encode())
    state = NewCheckpoint("", "1", None, {"source": "input"}, body, {"messages": body})
    with Tally.open(tmp_path / "source", background=False) as source:
        source.bind(ADA).threads.put("chat", state)
        source.bind(ADA).operator.export(tmp_path / "out")
    with Tally.open(tmp_path / "third", background=False) as third:
        third.bind(BOB).threads.put("chat", state)
        third.bind(BOB).operator.export(tmp_path / "other")
    with open_tally() as target:
        target.bind(BOB).remember("Bob was here first.", kind="fact")
        target.bind(ROOT).operator.import_from(tmp_path / "out")
        threads = target.bind(ADA).threads
        assert threads.verify("chat") == []
        threads.put("another", state)
        assert threads.verify("another") == []
        with pytest.raises(StateConflict, match="here already"):
            target.bind(ROOT).operator.import_from(tmp_path / "other")
    with Tally.open(tmp_path / "fourth", background=False) as target:
        target.bind(ADA).threads.put("chat", state)
        with pytest.raises(StateConflict, match="numbers of its checkpoints"):
            target.bind(ROOT).operator.import_from(tmp_path / "other")


def _change(folder: Path, table: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the rows of a table and sign the export anew."""
    import hashlib

    file = folder / f"{table}.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines
    for line in lines:
        change(line)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][file.name]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    manifest.pop("digest")
    manifest["digest"] = text_digest("export", canonical_json(manifest))
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("memory_sources", "source_id"),
        ("journal", "stream"),
        ("streams", "name"),
        ("edges", "to_doc"),
        ("steps", "run_id"),
        ("memories", "scope_id"),
        ("parts", "scope_id"),
    ],
)
def test_a_row_may_name_only_rows_of_the_export_itself(
    open_tally: OpenTally, tmp_path: Path, table: str, column: str
) -> None:
    """Else it would join a foreign source, a foreign journal or a foreign scope."""
    with Tally.open(tmp_path / "source", background=False) as source:
        _fill(source, ADA, "apollo")
        source.bind(ADA).operator.export(tmp_path / "out", scopes=["private:ada", "project:apollo"])
    with open_tally() as target:
        theirs = _fill(target, BOB, "zeus")
        foreign = {
            "source_id": target.bind(BOB).get(theirs["first"]).sources[0].source_id,
            "stream": "scope:private:bob",
            "name": "scope:private:bob",
            "run_id": theirs["run"],
        }
        value = foreign.get(column, 77)
        _change(tmp_path / "out", table, lambda row: row.update({column: value}))
        rows = _rows(target)
        with pytest.raises((CorruptTally, StateConflict)):
            target.bind(ROOT).operator.import_from(tmp_path / "out")
        assert _rows(target) == rows


def test_a_chain_that_was_changed_is_refused(open_tally: OpenTally, tmp_path: Path) -> None:
    with Tally.open(tmp_path / "source", background=False) as source:
        _fill(source, ADA, "apollo")
        source.bind(ADA).operator.export(tmp_path / "out")
    _change(tmp_path / "out", "journal", lambda row: row.update(event=row["event"] + "x"))
    with open_tally() as target:
        target.bind(BOB).remember("Bob was here first.")
        with pytest.raises(CorruptTally, match="does not verify"):
            target.bind(ROOT).operator.import_from(tmp_path / "out")
        with services_of(target).store.database.read() as connection:
            assert list(journal.entries(connection, "scope:private:ada")) == []
