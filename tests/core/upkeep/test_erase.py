"""Forgetting for good: proofs, erasure of every copy, retention with anchors, and what a run keeps
in mind.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.errors import (
    ApprovalRequired,
    Denied,
    InvalidInput,
    NotFound,
    StateConflict,
    StorageError,
    TallystickError,
    TokenRefused,
)
from tallystick.memory import Put
from tallystick.records import Actor, Erasure, PolicyRule
from tallystick.storage.engine import containment
from tallystick.storage.engine.packing import pack_id
from tallystick.storage.rows import journal
from tallystick.storage.text import byte_search, erasing
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
BOB = Actor(user="bob", projects={"apollo"})
ROOT = Actor(user="root", role="operator")
SECRET = 'The vault of the pelican opens at 7341, "says" the keeper.\nTwice.'


def _erased(bound: BoundTally, *ids: str) -> Erasure:
    preview = bound.operator.erase(ids, reason="asked for")
    return bound.operator.erase(
        ids, reason="asked for", mode="apply", confirm_token=preview.confirm_token
    )


def test_after_a_forget_no_path_reaches_the_text_and_copies_are_listed(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        kept = apollo.remember(SECRET, subject="pelican", tags=["vault"])
        with apollo.run("coder") as run, run.step("model_call") as step:
            step.record("request", {"prompt": SECRET})
        assert apollo.recall("vault pelican")
        with pytest.raises(StateConflict):
            apollo.operator.prove_unreachable(kept.id)
        apollo.forget(kept.id, reason="not ours")

        proof = apollo.operator.prove_unreachable(kept.id)

        assert (proof.holds, proof.problems) == (True, ())
        assert set(proof.copies) == {
            "2 versions, for recovery",
            f"source {kept.source_id}, for recovery",
            f"recorded step {step.id}",
        }
        ways = {"get", "recall", "list", "history", "inspect", "explore", "vectors", "words"}
        assert ways <= set(proof.checked)
        assert any("backups" in open_question for open_question in proof.cannot_prove)
        assert proof.audit_id is not None
        with pytest.raises(NotFound):
            tally.bind(Actor(user="eve")).operator.prove_unreachable(kept.id)

        again = apollo.remember(SECRET)
        told = apollo.operator.prove_unreachable(kept.id)
        assert (told.holds, told.problems) == (False, (f"memory {again.id} says the same",))


def test_erasing_leaves_no_byte_in_any_table_or_file(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine, apollo = tally.bind(ALICE), tally.bind(ALICE, scope="project:apollo")
        kept = apollo.remember(
            "Ordinary at first: " + SECRET, subject="pelican vault", speaker="Keeper Pelican"
        )
        apollo.modify(kept.id, content=SECRET, reason="sharper", attributes={"note": "pelican"})
        other = apollo.remember("The heron nests in March.")
        tally.drain()
        with apollo.run("coder") as run, run.step("model_call") as step:
            apollo.recall("vault of the pelican")
            step.record("request", {"prompt": f"Say: {SECRET}"})
        apollo.threads.put(
            "chat",
            NewCheckpoint(
                id="1",
                namespace="",
                parent_id=None,
                metadata={},
                body=Leaf("json", b"{}"),
                values={"messages": Leaf("json", SECRET.encode())},
            ),
        )
        apollo.working.of("r1").set("seen", {"text": SECRET})
        assert apollo.recall("vault pelican")
        mine.remember("Nothing to do with it.")

        root = tally.bind(ROOT)
        preview = root.operator.erase(kept.id, reason="asked for")
        assert (preview.versions, preview.payloads, preview.threads, preview.working) == (
            2,
            (step.id,),
            ("project:apollo chat",),
            1,
        )
        assert apollo.get(kept.id).content == SECRET

        done = root.operator.erase(
            kept.id, reason="asked for", mode="apply", confirm_token=preview.confirm_token
        )

        [proof] = done.proofs
        assert (proof.holds, proof.problems) == (True, ())
        assert root.operator.prove_erased(kept.id, text=SECRET).holds
        later = root.operator.prove_erased(kept.id)
        assert later.searched is not None
        assert (
            later.holds,
            later.searched.holds,
            "every column of every table" in later.searched.checked,
        ) == (
            True,
            True,
            True,
        )
        assert any("written again" in open_question for open_question in later.cannot_prove)
        assert any("backups" in open_question for open_question in proof.cannot_prove)
        with services_of(tally).store.database.read() as connection:
            assert byte_search.rows_with(connection, containment.forms("pelican")) == {}
            assert journal.verify_stream(connection, "scope:project:apollo") == []
        assert root.recordings.verify(run.id).ok
        assert [hit.memory.id for hit in apollo.recall("heron vault pelican")] == [other.id]
        events = [
            (entry.event, entry.new, entry.erased_at is not None)
            for entry in apollo.history(kept.id)
        ]
        assert events == [("ADD", {}, True), ("UPDATE", {}, True), ("ERASE", {}, True)]
        with pytest.raises(StateConflict):
            apollo.recover(kept.id, reason="too late")


def test_goals_of_runs_lose_an_erased_text_and_other_holders_are_named(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        kept = mine.remember(SECRET).id
        with mine.run("coder", goal=f"Find out: {SECRET}") as run:
            pass
        quoted = mine.remember(f"They told me: {SECRET}").id
        mine.items.put([Put(("notes",), "k", {"text": SECRET})])
        [item] = [one.memory.id for one in mine.items.find()]
        mine.forget(kept, reason="gone")
        assert f"texts of run {run.id}" in mine.operator.prove_unreachable(kept).copies

        preview = root.operator.erase(kept, reason="asked for")
        assert (preview.runs, set(preview.elsewhere)) == ((run.id,), {quoted, item})
        done = root.operator.erase(
            kept, reason="asked for", mode="apply", confirm_token=preview.confirm_token
        )
        assert not done.proofs[0].holds
        assert _erased(root, quoted, item).proofs[0].holds
        assert root.operator.prove_erased(kept, text=SECRET).holds
        assert (mine.recordings.run(run.id).goal, mine.recordings.verify(run.id).ok) == (
            None,
            True,
        )


def test_erasing_what_was_recorded_in_a_run_takes_its_goal_too(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        with tally.bind(ALICE).run("coder", goal=SECRET) as run:
            pass
        root = tally.bind(ROOT)
        root.operator.erase_recorded(run.id, reason="asked for")
        assert root.recordings.run(run.id).goal == SECRET
        root.operator.erase_recorded(run.id, reason="asked for", mode="apply")
        assert (root.recordings.run(run.id).goal, root.recordings.verify(run.id).ok) == (
            None,
            True,
        )


def _keeps(tally: Tally, actor: Actor) -> BoundTally:
    """Somebody who keeps the text in a memory, a run, a thread and a value."""
    bound = tally.bind(actor)
    bound.remember(SECRET)
    with bound.run("coder", goal=SECRET) as run, run.step("model_call") as step:
        step.record("request", {"prompt": SECRET})
    bound.threads.put(
        "chat",
        NewCheckpoint(
            id="1",
            namespace="",
            parent_id=None,
            metadata={},
            body=Leaf("json", b"{}"),
            values={"messages": Leaf("json", SECRET.encode())},
        ),
    )
    bound.working.of("r1").set("seen", {"text": SECRET})
    return bound


def test_a_proof_of_forgetting_tells_nothing_of_what_others_keep(open_tally: OpenTally) -> None:
    """Else anybody could guess a text, forget it and see who has it."""
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        guess = alice.remember(SECRET)
        alice.forget(guess.id, reason="only a guess")
        alone = alice.operator.prove_unreachable(guess.id)
        _keeps(tally, Actor(user="bob"))
        again = alice.operator.prove_unreachable(guess.id)
        assert (again.copies, again.problems) == (alone.copies, alone.problems)
        assert any("may not look" in open_question for open_question in again.cannot_prove)


def test_an_operator_of_one_organization_neither_sees_nor_erases_what_others_keep(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        worker = Actor(user="ann", organization="acme")
        acme = tally.bind(Actor(user="boss", organization="acme", role="operator"))
        ann, bob = _keeps(tally, worker), _keeps(tally, Actor(user="bob"))
        [own], [other] = ann.memories(), bob.memories()

        preview = acme.operator.erase(own.id, reason="asked for")
        told = [preview.payloads, preview.threads, preview.runs, preview.working, preview.elsewhere]
        assert [len(one) if isinstance(one, tuple) else one for one in told] == [1, 1, 1, 1, 0]
        done = acme.operator.erase(
            own.id, reason="asked for", mode="apply", confirm_token=preview.confirm_token
        )

        [proof] = done.proofs
        assert (proof.holds, proof.problems) == (True, ())
        assert any("what others keep" in open_question for open_question in proof.cannot_prove)
        assert acme.operator.prove_erased(own.id, text=SECRET).holds
        assert [memory.id for memory in bob.memories()] == [other.id]
        assert bob.threads.names() == ["chat"]
        assert bob.working.of("r1").all()["seen"] == {"text": SECRET}
        assert bob.recordings.run(bob.recordings.runs()[0].id).goal == SECRET
        assert not tally.bind(ROOT).operator.prove_erased(own.id, text=SECRET).holds


def _stored_forms(tally: Tally, memory_id: str) -> list[bytes]:
    """The bytes of a memory as they are in the database file: packed where that is shorter."""
    queries = (
        "SELECT v.body FROM memory_versions v JOIN memories m USING (doc) WHERE m.id = ?",
        "SELECT x.words FROM search_text x JOIN memories m USING (doc) WHERE m.id = ?",
        "SELECT v.vector FROM vectors v JOIN memories m USING (doc) WHERE m.id = ?",
        "SELECT p.body FROM parts p JOIN memories m ON m.content_key = p.key WHERE m.id = ?",
    )
    with services_of(tally).store.database.read() as connection:
        rows = [connection.exec_driver_sql(query, (pack_id(memory_id),)).one() for query in queries]
    return [value.encode() if isinstance(value, str) else value for (value,) in rows]


@pytest.mark.sqlite
def test_no_file_of_an_embedded_tally_holds_erased_bytes(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    from tallystick.settings import Settings

    settings = Settings.read(vector_search="chroma")
    with open_sqlite(settings=settings) as tally:
        mine = tally.bind(ALICE)
        kept, other = mine.remember(SECRET), mine.remember("The heron nests in March.")
        tally.drain()
        assert mine.recall("pelican vault").path == "chroma"
        stored = _stored_forms(tally, kept.id)
        assert all(byte_search.files_with(tmp_path / "tally", [form]) for form in stored)

        done = _erased(tally.bind(ROOT), kept.id)

        assert done.proofs[0].problems == ()
        assert not byte_search.files_with(tmp_path / "tally", stored)
        assert not byte_search.files_with(tmp_path / "tally", containment.forms(SECRET))
        for path in ("exact", "chroma"):
            found = mine.recall("heron")
            assert ([hit.memory.id for hit in found], found.path) == ([other.id], path)
            tally.drain()
        assert not byte_search.files_with(tmp_path / "tally", stored)


def test_only_an_operator_erases_and_never_without_the_preview_s_token(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        kept = mine.remember("Mine.")
        with pytest.raises(Denied):
            mine.operator.erase(kept.id, reason="r")
        with pytest.raises(NotFound):
            tally.bind(BOB).operator.erase(kept.id, reason="r")
        root = tally.bind(ROOT)
        with pytest.raises(Denied) as refused:
            root.operator.erase(kept.id, reason="r", mode="apply")
        assert refused.value.reason == "confirm_token_required"
        preview = root.operator.erase(kept.id, reason="r")
        mine.modify(kept.id, tags=("t",), reason="r")
        with pytest.raises(StateConflict):
            root.operator.erase(
                kept.id, reason="r", mode="apply", confirm_token=preview.confirm_token
            )
        assert mine.get(kept.id).content == "Mine."


@pytest.mark.parametrize("text", ["\x00", "\ud800", "a\x00b"])
def test_a_short_text_that_no_name_could_hold_is_erased(open_tally: OpenTally, text: str) -> None:
    with open_tally() as tally:
        kept = tally.bind(ALICE).remember(text).id
        operator = tally.bind(ROOT).operator
        token = operator.erase(kept, reason="r").confirm_token
        [proof] = operator.erase(kept, reason="r", mode="apply", confirm_token=token).proofs
        assert (proof.holds, proof.problems) == (True, ())
        assert operator.prove_erased(kept, text=text).holds


def test_a_source_that_another_memory_needs_stays(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        kept = mine.remember("Said in two places at once.")
        turn = mine.remember("Said in two places at once.", kind="turn", conversation="c")
        preview = tally.bind(ROOT).operator.erase(kept.id, reason="r")
        assert preview.elsewhere == (turn.id,)

        done = _erased(tally.bind(ROOT), kept.id)

        assert mine.get(turn.id).content == "Said in two places at once."
        assert not done.proofs[0].holds
        assert any("memory_versions.body" in problem for problem in done.proofs[0].problems)
        later = tally.bind(ROOT).operator.prove_erased(kept.id)
        assert (later.holds, later.searched is not None and later.searched.holds) == (False, False)
        _erased(tally.bind(ROOT), turn.id)
        assert (
            tally.bind(ROOT)
            .operator.prove_erased(kept.id, text="Said in two places at once.")
            .holds
        )
        assert tally.bind(ROOT).operator.prove_erased(kept.id).holds


def test_retention_removes_what_is_past_its_window_and_nothing_else(open_tally: OpenTally) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        old = mine.remember("Forgotten long ago.")
        short = mine.remember("Soon over.", expires_at=clock.now() + 1_000_000)
        mine.forget(old.id, reason="stale")
        clock.advance(days=31)
        young = mine.remember("Forgotten yesterday.")
        mine.forget(young.id, reason="stale")
        mine.working.of("r").set("k", 1, expires_in=60)
        clock.advance(days=1)

        preview = root.operator.purge()
        assert (preview.tombstones, preview.expired, preview.working, preview.journal) == (
            1,
            1,
            1,
            0,
        )
        assert preview.journal_window_days is None
        with pytest.raises(Denied):
            mine.operator.purge(mode="apply", reason="r")
        root.operator.purge(mode="apply", reason="r")

        with pytest.raises(NotFound):
            mine.history(old.id)
        assert mine.recover(young.id, reason="within its window").status == "changed"
        assert [entry.event for entry in mine.history(short.id)] == ["ADD", "FORGET"]
        assert [hit.memory.id for hit in mine.recall("forgotten yesterday long ago")] == [young.id]
        again = root.operator.purge()
        assert (again.tombstones, again.expired, again.working) == (0, 0, 0)


def test_a_purged_journal_verifies_from_its_anchor_and_names_what_went(
    open_tally: OpenTally,
) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        for number in range(5):
            mine.remember(f"Old {number}.")
        clock.advance(days=100)
        kept = mine.remember("Young.")
        assert root.operator.purge().journal == 0
        with pytest.raises(InvalidInput):
            root.operator.choose_windows(journal_days=0)
        root.operator.choose_windows(journal_days=90)

        assert root.operator.purge().journal == 5
        done = root.operator.purge(mode="apply", reason="r")
        mine.modify(kept.id, tags=("t",), reason="after")

        assert (done.journal, done.streams) == (5, ("scope:private:alice",))
        with services_of(tally).store.database.read() as connection:
            stream = "scope:private:alice"
            left = list(journal.entries(connection, stream))
            assert journal.verify_stream(connection, stream) == []
        assert [(entry.position, entry.event) for entry in left] == [
            (5, "memory.add"),
            (6, "journal.purge"),
            (7, "memory.update"),
        ]
        assert (left[1].details["removed"], left[1].details["count"], left[1].details["head"]) == (
            5,
            5,
            left[0].previous,
        )
        assert len(mine.memories()) == 6


@pytest.mark.parametrize("harm", ["DELETE FROM anchors", "DELETE FROM journal WHERE position = 5"])
def test_an_anchor_or_entry_that_is_gone_is_noticed(open_tally: OpenTally, harm: str) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        for number in range(5):
            mine.remember(f"Old {number}.")
        clock.advance(days=100)
        mine.remember("Young.")
        root.operator.choose_windows(journal_days=90)
        root.operator.purge(mode="apply", reason="r")
        services_of(tally).store.database.write(lambda tx: tx.exec_driver_sql(harm), name="harm")
        with services_of(tally).store.database.read() as connection:
            assert journal.verify_stream(connection, "scope:private:alice") != []


def test_a_run_keeps_in_mind_what_it_overwrites_until_it_expires(open_tally: OpenTally) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        mine = tally.bind(ALICE)
        with pytest.raises(InvalidInput):
            mine.working.all()
        with mine.run("coder") as run:
            working = mine.working
            working.set("plan", ["read"])
            working.set("plan", ["read", "write"])
            working.set("soon", 1, expires_in=10)
            assert (working.run_id, dict(working.all())) == (
                run.id,
                {"plan": ["read", "write"], "soon": 1},
            )
            assert list(mine.recall("read write plan")) == []
        clock.advance(seconds=11)
        assert dict(working.all()) == {"plan": ["read", "write"]}
        assert dict(mine.working.of("another").all()) == {}
        assert (working.drop("plan"), working.drop("plan"), dict(working.all())) == (
            True,
            False,
            {},
        )
        working.set("a", 1)
        with pytest.raises(Denied):
            tally.bind(BOB, scope="private:alice").working.of(run.id).all()
        assert working.clear() >= 1
        with pytest.raises(InvalidInput):
            working.set("x", {1, 2})  # type: ignore[arg-type]


def test_an_erasure_that_was_cut_off_is_finished_at_the_next_opening(
    open_sqlite: OpenTally, monkeypatch: Any, tmp_path: Path
) -> None:
    from tallystick.upkeep import unfinished

    def dies(database: Any) -> None:
        raise KeyboardInterrupt

    with open_sqlite() as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        kept = mine.remember(SECRET)
        preview = root.operator.erase(kept.id, reason="r")
        whole = erasing.rewrite
        monkeypatch.setattr(erasing, "rewrite", dies)
        with pytest.raises(KeyboardInterrupt):
            root.operator.erase(
                kept.id, reason="r", mode="apply", confirm_token=preview.confirm_token
            )
        assert not root.operator.prove_erased(kept.id).holds
        [finding] = [each for each in root.operator.doctor() if each.check == "erasure"]
        assert finding.status == "problem"
        monkeypatch.setattr(erasing, "rewrite", whole)
    with open_sqlite() as tally:
        root = tally.bind(ROOT)
        unsearched = root.operator.prove_erased(kept.id)
        assert (
            unsearched.searched,
            any("give `text=`" in one for one in unsearched.cannot_prove),
        ) == (None, True)
        assert root.operator.prove_erased(kept.id, text=SECRET).problems == ()
        assert not unfinished.finish_erasure(services_of(tally).memory)


def test_an_item_of_a_store_is_erased_with_its_address_and_the_copies_of_its_texts(
    open_tally: OpenTally,
) -> None:
    from tallystick.memory.items import Put, put_items

    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        put = Put(
            ("vaults", "pelican north"),
            "door of the pelican",
            {"code": "the pelican says 7341 twice"},
        )
        put_items(services_of(tally).memory, ALICE, apollo.scope, [put])
        [memory] = apollo.memories()
        with apollo.run("coder") as run, run.step("model_call") as step:
            step.record("request", {"prompt": "It is: the pelican says 7341 twice."})

        done = _erased(tally.bind(ROOT), memory.id)

        assert done.payloads == (step.id,)
        assert done.proofs[0].problems == ()
        with services_of(tally).store.database.read() as connection:
            assert byte_search.rows_with(connection, [b"pelican"]) == {}


def _recorded(bound: BoundTally, text: str) -> str:
    with bound.run("coder", goal=text) as run, run.step("model_call") as step:
        step.record("request", {"prompt": [text] * 200})
    return run.id


def test_a_run_past_the_window_goes_whole_and_its_journal_still_verifies(
    open_tally: OpenTally,
) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        old = _recorded(mine, "the heron of long ago")
        foil = mine.recordings.foil(old)
        clock.advance(days=100)
        # What rests on a payload that goes is stored whole first.
        young = _recorded(mine, "the heron of long ago")
        early = mine.recordings.foil(young)
        root.operator.choose_windows(journal_days=90)

        preview = root.operator.purge()
        assert (preview.runs, preview.journal) == ((old,), foil.count)
        assert mine.recordings.verify(old).receipts == 1
        assert root.operator.purge(mode="apply", reason="r").runs == (old,)

        told = mine.recordings.verify(old, foil=foil)
        assert (told.ok, told.problems, told.foil_matches, told.receipts) == (True, (), True, 0)
        assert told.purged is not None
        assert (told.purged.entries, told.purged.steps, told.purged.payloads) == (foil.count, 1, 1)
        assert "what the receipts said that were purged with their run" in told.cannot_prove
        before_its_end = mine.recordings.verify(old, foil=foil.model_copy(update={"count": 1}))
        assert (before_its_end.ok, before_its_end.foil_matches) == (True, None)
        assert not mine.recordings.verify(
            old, foil=foil.model_copy(update={"head": "sha256:other"})
        ).ok
        assert (mine.recordings.steps(old), mine.recordings.run(old).goal) == ([], None)
        kept = mine.recordings.verify(young, foil=early)
        assert (kept.ok, kept.payloads_checked, kept.purged) == (True, 1, None)
        with services_of(tally).store.database.read() as connection:
            assert [entry.event for entry in journal.entries(connection, f"run:{old}")] == [
                "run.purge"
            ]
        again = root.operator.purge(mode="apply", reason="r")
        assert (again.runs, again.journal) == ((), 0)
        assert all(finding.status != "problem" for finding in root.operator.doctor())


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE runs SET agent_name = 'other'",
        "DELETE FROM anchors",
        "UPDATE anchors SET count = count - 1",
    ],
)
def test_a_run_whose_purge_is_not_as_its_journal_says_is_noticed(
    open_tally: OpenTally, harm: str
) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        old = _recorded(mine, "the heron")
        clock.advance(days=100)
        root.operator.choose_windows(journal_days=90)
        root.operator.purge(mode="apply", reason="r")
        assert mine.recordings.verify(old).ok
        services_of(tally).store.database.write(lambda tx: tx.exec_driver_sql(harm), name="harm")
        assert not mine.recordings.verify(old).ok


def test_a_thread_that_lives_keeps_what_it_is_verified_by(open_tally: OpenTally) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        for name in ("lives", "ended"):
            for writer in (mine, mine.on("langgraph")):
                writer.threads.put(
                    name,
                    NewCheckpoint(
                        id=writer.actor.surface,
                        namespace="",
                        parent_id=None,
                        metadata={},
                        body=Leaf("json", b"{}"),
                        values={"messages": Leaf("json", name.encode())},
                    ),
                )
        mine.threads.delete("ended")
        clock.advance(days=100)
        root.operator.choose_windows(journal_days=90)

        done = root.operator.purge(mode="apply", reason="r")

        assert set(done.streams) == {"thread:1", "thread:2"}
        with services_of(tally).store.database.read() as connection:
            left = {
                name: [entry.event for entry in journal.entries(connection, f"thread:{number}")]
                for number, name in enumerate(("lives", "ended"), start=1)
            }
        assert left == {"lives": ["checkpoint.put", "journal.purge"], "ended": ["journal.purge"]}
        assert mine.threads.verify() == []
        clock.advance(days=100)
        again = root.operator.purge(mode="apply", reason="r")
        assert not {stream for stream in again.streams if stream.startswith("thread:")}


def test_first_answers_and_the_access_log_have_windows_of_their_own(open_tally: OpenTally) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        first = mine.remember("The heron.", kind="turn", conversation="c", idempotency_key="k")
        mine.recall("heron")
        services_of(tally).gate.flush()
        clock.advance(days=29)
        assert root.operator.purge(mode="apply", reason="r").answers == 0
        assert (
            mine.remember("The heron.", kind="turn", conversation="c", idempotency_key="k") == first
        )
        clock.advance(days=2)
        preview = root.operator.purge()
        assert (preview.answers, preview.reads) == (1, 0)
        root.operator.choose_windows(journal_days=30)
        assert root.operator.purge(mode="apply", reason="r").reads == 1
        again = mine.remember("The heron.", kind="turn", conversation="c", idempotency_key="k")
        assert again.id != first.id
        with services_of(tally).store.database.read() as connection:
            told = list(journal.entries(connection, "tally"))
            assert journal.verify_stream(connection, "tally") == []
        assert [(entry.event, entry.details.get("answers")) for entry in told] == [
            ("tally.purge", 0),
            ("retention.choose", None),
            ("tally.purge", 1),
        ]


ASK = PolicyRule(id="ask", name="Ask", effect="require_approval", applies_to="tool_call")


def _asked(bound: BoundTally, text: str) -> str:
    with pytest.raises(ApprovalRequired) as blocked:
        bound.check_tool_call("mail", {"body": text})
    return blocked.value.approvals[0].id


def test_an_erasure_takes_the_text_out_of_approvals_and_what_waited_expires(
    open_tally: OpenTally,
) -> None:
    with open_tally(rules=[ASK]) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        kept = mine.remember(SECRET).id
        waiting, other = _asked(mine, f"Note: {SECRET}"), _asked(mine, "nothing of it")
        granted = _asked(mine, f"Again: {SECRET}")
        token = mine.approvals.approve(granted, reason="fine", idempotency_key="k").token

        assert set(root.operator.erase(kept, reason="r").approvals) == {waiting, granted}
        assert _erased(root, kept).proofs[0].holds
        assert root.operator.prove_erased(kept, text=SECRET).holds
        for approval_id in (waiting, granted):
            erased = mine.approvals.get(approval_id)
            assert (erased.state, erased.arguments, erased.arguments_erased) == (
                "expired",
                None,
                True,
            )
        assert mine.approvals.get(other).state == "pending"
        with pytest.raises(TokenRefused, match="token_foreign"):
            mine.check_tool_call("mail", {"body": f"Again: {SECRET}"}, approval_token=token)


def test_erasing_what_a_run_recorded_takes_the_arguments_of_its_approvals(
    open_tally: OpenTally,
) -> None:
    with open_tally(rules=[ASK]) as tally:
        mine = tally.bind(ALICE)
        with mine.run("coder") as run:
            waiting = _asked(mine, SECRET)
        other = _asked(mine, "of no run")
        root = tally.bind(ROOT)
        root.operator.erase_recorded(run.id, reason="asked for", mode="apply")
        assert mine.approvals.get(waiting).arguments_erased
        assert not mine.approvals.get(other).arguments_erased
        with services_of(tally).store.database.read() as connection:
            assert byte_search.rows_with(connection, containment.forms(SECRET)) == {}


def test_approvals_that_are_over_go_with_the_window_of_the_journal(open_tally: OpenTally) -> None:
    clock = StepClock()
    with open_tally(rules=[ASK], clock=clock) as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        _asked(mine, "long ago")
        root.operator.choose_windows(journal_days=30)
        assert root.operator.purge().approvals == 0
        clock.advance(days=40)
        recent = _asked(mine, "today")
        assert root.operator.purge().approvals == 1
        root.operator.purge(mode="apply", reason="r")
        assert [approval.id for approval in mine.approvals.list(state=None)] == [recent]


def test_an_export_leaves_approvals_out(open_tally: OpenTally, tmp_path: Path) -> None:
    with open_tally(rules=[ASK]) as tally:
        mine = tally.bind(ALICE)
        _asked(mine, SECRET)
        mine.operator.export(tmp_path / "copy")
    assert not (tmp_path / "copy" / "approvals.jsonl").exists()
    with Tally.open(tmp_path / "new", background=False) as tally:
        root = tally.bind(ROOT)
        root.operator.import_from(tmp_path / "copy")
        assert tally.bind(ALICE).approvals.list(state=None) == []


# Others at work


_WRITES = """
import sys
from tallystick import Tally
with Tally.open(sys.argv[1], background=False) as tally:
    mine = tally.bind()
    print("writing", flush=True)
    while True:
        mine.remember(f"note {tally.new_id()}")
        mine.recall("note")
"""


@pytest.mark.slow
def test_an_erasure_waits_for_those_who_write_and_read_here_and_elsewhere(tmp_path: Path) -> None:
    place = tmp_path / "tally"
    with Tally.open(place, background=False) as tally:
        mine, stopped = tally.bind(), threading.Event()
        gone = [mine.remember(f"The heron {number} nests in March.").id for number in range(2)]
        failures: list[BaseException] = []

        def works() -> None:
            while not stopped.is_set():
                try:
                    mine.remember(f"note {tally.new_id()}")
                    mine.recall("note")
                except TallystickError as error:
                    failures.append(error)

        threads = [threading.Thread(target=works) for _ in range(4)]
        with subprocess.Popen(
            [sys.executable, "-c", _WRITES, str(place)], stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            other.stdout.readline()
            for thread in threads:
                thread.start()
            for memory in gone:
                token = mine.operator.erase(memory, reason="r").confirm_token
                done = mine.operator.erase(memory, reason="r", mode="apply", confirm_token=token)
                assert all(proof.holds for proof in done.proofs)
            stopped.set()
            for thread in threads:
                thread.join()
            other.kill()
        assert failures == []


_ASKS_FOR_THE_LOCK = """
import fcntl, sys
with open(sys.argv[1], "rb+") as index:
    fcntl.lockf(index, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)  # held by whoever has it open
"""


@pytest.mark.sqlite
@pytest.mark.skipif(os.name == "nt", reason="locks are those of a handle there")
def test_a_proof_leaves_this_process_the_locks_on_its_database(open_sqlite: OpenTally) -> None:
    """Without them another process takes the log for its own, and what is read here is torn."""
    with open_sqlite() as tally:
        memory = tally.bind(ALICE).remember(SECRET).id
        folder = services_of(tally).store.location.folder
        assert folder is not None
        ask = [sys.executable, "-c", _ASKS_FOR_THE_LOCK, str(folder / "tally.db-shm")]
        assert subprocess.run(ask, stderr=subprocess.DEVNULL, check=False).returncode != 0

        assert _erased(tally.bind(ROOT), memory).proofs[0].holds

        assert subprocess.run(ask, stderr=subprocess.DEVNULL, check=False).returncode != 0


@pytest.mark.sqlite
def test_files_that_nobody_could_search_prove_nothing(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_sqlite() as tally:
        memory = tally.bind(ALICE).remember(SECRET).id
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", "/nowhere/python")
            with pytest.raises(StorageError, match="nothing is proven"):
                _erased(tally.bind(ROOT), memory)
        assert tally.bind(ROOT).operator.prove_erased(memory).holds


# What people wrote beside the journal


def test_reasons_and_ids_of_requests_are_erased_and_the_chain_goes_on_to_verify(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        alice, root = tally.bind(ALICE, request_id="ask about Ada"), tally.bind(ROOT)
        memory = alice.remember(SECRET).id
        other = alice.remember("The tide turns at noon.").id
        alice.modify(memory, tags=["t"], reason="Ada said so in March.")
        alice.modify(other, tags=["t"], reason=f"it follows {SECRET}")
        alice.modify(other, tags=["u"], reason="the tide was late")
        alice.forget(memory, reason="Ada asked for it.")
        before = [entry.reason for entry in alice.history(other)]
        assert before[1:] == [f"it follows {SECRET}", "the tide was late"]

        preview = root.operator.erase(memory, reason="Ada asked for it.")
        assert preview.journal == 4
        done = root.operator.erase(
            memory, reason="Ada asked for it.", mode="apply", confirm_token=preview.confirm_token
        )
        assert all(proof.holds for proof in done.proofs)
        assert root.operator.prove_erased(memory, text=SECRET).holds
        with services_of(tally).store.database.read() as connection:
            about = journal.about(connection, memory)
            problems = journal.verify_stream(connection, "scope:private:alice")
        assert [(entry.reason, entry.request_id, entry.texts_erased) for entry in about[:3]] == [
            (None, None, True)
        ] * 3
        assert (about[3].event, about[3].reason) == ("memory.erase", "Ada asked for it.")
        assert problems == []
        assert [entry.reason for entry in alice.history(other)] == [
            None,
            None,
            "the tide was late",
        ]
        assert alice.history(other)[2].request_id == "ask about Ada"


def test_what_people_wrote_is_committed_to(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        memory = alice.remember("The tide turns at noon.").id
        alice.modify(memory, tags=["t"], reason="Ada said so.")
        services_of(tally).store.database.write(
            lambda tx: tx.exec_driver_sql(
                "UPDATE journal SET texts = replace(texts, 'Ada', 'Bob') WHERE texts IS NOT NULL"
            ),
            name="harm",
        )
        with services_of(tally).store.database.read() as connection:
            [problem] = journal.verify_stream(connection, "scope:private:alice")
        assert "does not match its commitment" in problem.problem
