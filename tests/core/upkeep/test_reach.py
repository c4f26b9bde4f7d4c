"""What was derived from a text goes with it: no planted word outlives an erasure or a purge, in any
row or file, whatever models, people and applications made of it.
"""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select, update

from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.errors import NotFound, TallystickError
from tallystick.records import (
    Actor,
    Erasure,
    ExtractedEntity,
    ExtractedFact,
    Extraction,
    JsonObject,
    Memory,
    NewMemory,
    ProviderDeclaration,
)
from tallystick.settings import Settings
from tallystick.storage.engine import tables
from tallystick.storage.rows import journal
from tallystick.storage.text import byte_search
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import ScriptedLearner, StepClock
from tallystick_learning import Learning

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
ROOT = Actor(user="root", role="operator")
LEARNING = Settings(learning="review", reflection="review", graph=True)
WORDS = tuple(f"pelican{number:02d}zq" for number in range(40))
PLACES = ("Anna Schmidt", "Seeadler", "Hamburg")


def planted_in(text: str) -> list[str]:
    return [word for word in WORDS if word in text]


def conclude(text: str) -> Extraction:
    """Return a fact and a name in words of the model's own, which hold a word of the text."""
    words = planted_in(text)
    return Extraction(
        facts=tuple(
            ExtractedFact(content=f"They trust {word} with the key.", kind="decision")
            for word in words
        ),
        entities=tuple(ExtractedEntity(name=word) for word in words),
    )


class Scribe:
    """A summarizer that repeats the words that it was given."""

    declaration = ProviderDeclaration(name="scribe", local=True)

    def summarize(self, text: str, *, max_tokens: int) -> str:
        return f"In short: {' and '.join(planted_in(text)) or 'nothing'}."


def learning_options() -> dict[str, Any]:
    return {
        "settings": LEARNING,
        "learning_model": ScriptedLearner(conclude),
        "summarizer": Scribe(),
        "clock": StepClock(),
    }


def erased(root: BoundTally, memory_id: str, fragments: Iterable[str] = ()) -> Erasure:
    pieces, reason = tuple(fragments), "asked for"
    token = root.operator.erase(memory_id, fragments=pieces, reason=reason).confirm_token
    return root.operator.erase(
        memory_id, fragments=pieces, reason=reason, mode="apply", confirm_token=token
    )


def rows_with(tally: Tally, words: Iterable[str]) -> dict[str, int]:
    services_of(tally).store.database.flush()
    with services_of(tally).store.database.read() as connection:
        return byte_search.rows_with(connection, [word.encode() for word in words])


def with_text(tally: Tally) -> set[str]:
    """Return the memories that have a version with its text."""
    with services_of(tally).store.database.read() as connection:
        query = select(tables.memories.c.id).join(tables.memory_versions)
        rows = connection.execute(query.where(tables.memory_versions.c.body.is_not(None)))
        return set(rows.scalars())


def acts_of(tally: Tally, event: str) -> list[set[str]]:
    """Return for each act with an entry of this event the events of all its entries."""
    with services_of(tally).store.database.read() as connection:
        entries = list(journal.all_entries(connection))
    acts = [entry.correlation_id for entry in entries if entry.event == event]
    return [{each.event for each in entries if each.correlation_id == act} for act in acts if act]


def files_with(tally: Tally, words: Iterable[str]) -> list[str]:
    folder = services_of(tally).store.location.folder
    forms = [word.encode() for word in words]
    return [] if folder is None else byte_search.files_with(folder, forms)


def accept_all(bound: BoundTally) -> list[str]:
    decided = [
        bound.reviews.decide(each.id, "accept", reason="so it is") for each in bound.reviews.list()
    ]
    return [each.made for each in decided if each.made is not None]


def test_a_conclusion_goes_with_its_source_and_proposals_are_withdrawn(
    open_tally: OpenTally,
) -> None:
    with open_tally(**learning_options()) as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        first = alice.remember(f"We gave {WORDS[0]} the key.").id
        tally.drain()
        [made] = accept_all(alice)
        alice.modify(made, content=f"They trust {WORDS[0]} and {WORDS[1]}.", reason="sharper")
        alice.corrections.make(made, "mark_stale", reason="r")
        tally.drain()
        waiting = [each.id for each in alice.reviews.list()]
        both = alice.remember(f"Both hold: {WORDS[2]}.", derived_from=[first, made]).id

        preview = root.operator.erase(first, reason="r")
        assert preview.memory_ids == (first,)
        assert set(preview.derived) == {made, both}
        done = erased(root, first)

        assert [proof.problems for proof in done.proofs if not proof.holds] == []
        assert rows_with(tally, WORDS) == {}
        assert files_with(tally, WORDS) == []
        states = {each.id: each for each in alice.reviews.list(states=())}
        assert {states[each].state for each in waiting} <= {"withdrawn"}
        assert {each.reason for each in states.values() if each.state == "withdrawn"} <= {
            "source_gone"
        }
        assert all(each.content is None for each in states.values())
        assert "accepted" in {each.state for each in states.values()}


def test_a_source_goes_with_its_memory_after_the_conclusion_went_first(
    open_tally: OpenTally,
) -> None:
    with open_tally(**learning_options()) as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        memory = alice.remember(f"We gave {WORDS[0]} the key.").id
        tally.drain()
        [made] = accept_all(alice)

        assert erased(root, made).derived == ()
        assert WORDS[0] in alice.get(memory).content
        assert erased(root, memory).proofs[0].problems == ()

        assert rows_with(tally, WORDS) == {}
        assert files_with(tally, WORDS) == []


def test_what_a_shared_copy_said_before_is_not_left_behind(open_tally: OpenTally) -> None:
    with open_tally(**learning_options()) as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        memory = alice.remember(f"We gave {WORDS[0]} the key.").id
        into, reason = "project:apollo", "r"
        token = alice.corrections.share(memory, into, reason=reason).confirm_token
        alice.corrections.share(memory, into, reason=reason, mode="apply", confirm_token=token)
        for word in WORDS[1:3]:
            alice.modify(memory, content=f"We gave {word} the key.", reason="r")
        checks = {each.check: each for each in root.operator.doctor()}
        assert checks["texts"].status == "ok", checks["texts"]

        assert erased(root, memory).proofs[0].problems == ()

        assert rows_with(tally, WORDS) == {}


def test_a_pending_proposal_ends_as_withdrawn_and_says_so(open_tally: OpenTally) -> None:
    with open_tally(**learning_options()) as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        memory = alice.remember(f"We gave {WORDS[0]} the key.").id
        tally.drain()
        [proposal] = alice.reviews.list()

        assert erased(root, memory).proposals == (proposal.id,)

        gone = alice.reviews.get(proposal.id)
        assert (gone.proposal.state, gone.proposal.reason) == ("withdrawn", "source_gone")
        assert gone.proposal.content is None
        assert [entry.event for entry in gone.history] == ["proposal.made", "proposal.withdrawn"]


def test_retention_takes_conclusions_along_and_leaves_promoted_copies(
    open_tally: OpenTally,
) -> None:
    options = learning_options()
    with open_tally(**options) as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        memory = alice.remember(f"We gave {WORDS[0]} the key.").id
        tally.drain()
        [made] = accept_all(alice)
        other = alice.remember(f"We gave {WORDS[1]} the map.").id
        preview = alice.corrections.promote(other, "project:apollo", reason="useful")
        copy = alice.corrections.promote(
            other,
            "project:apollo",
            reason="useful",
            mode="apply",
            confirm_token=preview.confirm_token,
        ).copy_id
        tally.drain()
        for each in (memory, other):
            alice.forget(each, reason="not needed")
        options["clock"].advance(days=31)

        due = root.operator.purge()
        # The third is the name that nothing active mentions.
        assert (due.tombstones, due.derived, due.proposals) == (3, 1, 2)
        root.operator.purge(mode="apply", reason="r")

        [act] = acts_of(tally, "tally.purge")
        assert act > {"tally.purge", "proposal.withdrawn"}
        assert rows_with(tally, WORDS[:1]) == {}
        assert made not in {each.id for each in alice.memories(states=())}
        apollo = tally.bind(ALICE, scope="project:apollo")
        assert [each.id for each in apollo.memories()] == [copy]
        with services_of(tally).store.database.read() as connection:
            assert journal.verify_stream(connection, "scope:private:alice") == []
        problems = [each for each in root.operator.doctor() if each.status == "problem"]
        assert problems == []


def test_what_somebody_said_besides_is_nobody_elses_conclusion(open_tally: OpenTally) -> None:
    with open_tally(**learning_options()) as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        said = f"They trust {WORDS[0]} with the key."
        before = alice.remember(said, kind="decision").id
        first = alice.remember(f"Somebody wrote of {WORDS[0]}.").id
        second = alice.remember(f"Somebody wrote of {WORDS[1]}.").id
        tally.drain()
        accept_all(alice)
        after = alice.remember(f"They trust {WORDS[1]} with the key.", kind="decision")
        assert after.status == "duplicate"

        assert erased(root, first).derived == ()
        assert erased(root, second).derived == ()

        assert alice.get(before).content == said
        assert WORDS[1] in alice.get(after.id).content
        for gone in ("Somebody wrote of",):
            assert rows_with(tally, [gone]) == {}


def test_words_of_proposals_without_a_source_are_found_and_removed(open_tally: OpenTally) -> None:
    """Tallies of earlier releases have such: their retention left the words of proposals."""
    with open_tally(**learning_options()) as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        alice.remember(f"We gave {WORDS[0]} the key.")
        tally.drain()
        [proposal] = alice.reviews.list()
        nothing = {"body": None, "salt": None}
        services_of(tally).store.database.write(
            lambda tx: tx.execute(update(tables.memory_versions).values(nothing)), name="test.gone"
        )
        checks = {each.check: each for each in root.operator.doctor()}
        assert checks["texts"].status == "problem"
        root.operator.doctor(repair=True, reason="r")
        assert acts_of(tally, "doctor.repair") == [{"doctor.repair", "proposal.withdrawn"}]

        gone = alice.reviews.get(proposal.id).proposal
        assert (gone.state, gone.reason, gone.content) == ("withdrawn", "source_gone", None)
        checks = {each.check: each for each in root.operator.doctor()}
        assert checks["texts"].text == "every text has an owner"


class ReachMachine(RuleBasedStateMachine):
    """One user's texts, whatever is made of them, and an operator who destroys them."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.schema = f"t{uuid.uuid4().hex}"
        self.options = learning_options()
        self.unused = list(WORDS)
        self.homes: dict[str, set[str]] = {}
        """The memories in which a word was written, and their copies in other scopes."""
        self.promoted: dict[str, set[str]] = {}
        """Promoted copies of what says a word, conclusions too: retention leaves them."""
        self.tally = self.opened()

    def opened(self) -> Tally:
        return Tally.open(self.folder.name, background=False, **self.options)

    def teardown(self) -> None:
        if not hasattr(self, "tally"):
            return
        for memory in self.memories():
            if memory.id in with_text(self.tally):
                self.destroy(memory)
        assert rows_with(self.tally, WORDS) == {}
        assert files_with(self.tally, WORDS) == []
        self.tally.close()
        self.folder.cleanup()

    @property
    def alice(self) -> BoundTally:
        return self.tally.bind(ALICE)

    def memories(self, *states: str) -> list[Memory]:
        apollo = self.tally.bind(ALICE, scope="project:apollo")
        every: Any = states or ("active", "superseded", "hidden", "duplicate", "deleted")
        return [
            memory
            for bound in (self.alice, apollo)
            for memory in bound.memories(states=every, limit=1_000)
        ]

    def pick(self, data: Any, *states: str) -> Memory | None:
        fit = sorted(self.memories(*states), key=lambda memory: memory.id)
        return data.draw(st.sampled_from(fit)) if fit else None

    def text(self, word: str) -> str:
        return f"{PLACES[0]} gave {word} to the {PLACES[1]} in {PLACES[2]}."

    @precondition(lambda self: self.unused)
    @rule()
    def remember(self) -> None:
        word = self.unused.pop()
        new = NewMemory(content=self.text(word), entities=PLACES)
        [kept] = self.alice.remember_many([new])
        self.homes[word] = {kept.id}

    @rule()
    def learn(self) -> None:
        self.tally.drain()

    @rule(data=st.data())
    def reflect(self, data: Any) -> None:
        mine = [each for each in self.alice.memories() if each.state == "active"]
        if mine:
            Learning(self.alice).reflect([data.draw(st.sampled_from(mine)).id])

    @rule(data=st.data(), decision=st.sampled_from(["accept", "edit", "defer", "reject"]))
    def review(self, data: Any, decision: Any) -> None:
        waiting = self.alice.reviews.list()
        if not waiting:
            return
        proposal = data.draw(st.sampled_from(waiting))
        # The words of one whose source was forgotten are not shown.
        words = proposal.kind if proposal.content is None else proposal.content.content
        text: JsonObject = {"content": f"{words} Indeed."}
        changes = text if decision == "edit" else None
        with contextlib.suppress(TallystickError):
            self.alice.reviews.decide(proposal.id, decision, reason="r", changes=changes)

    @precondition(lambda self: self.unused)
    @rule(data=st.data())
    def conclude(self, data: Any) -> None:
        if origin := self.pick(data, "active"):
            word = self.unused.pop()
            with contextlib.suppress(TallystickError):
                kept = self.alice.remember(self.text(word), derived_from=[origin.id])
                self.homes[word] = {kept.id}

    @precondition(lambda self: self.unused)
    @rule(data=st.data())
    def modify(self, data: Any) -> None:
        if memory := self.pick(data, "active"):
            word = self.unused.pop()
            bound = self.tally.bind(ALICE, scope=memory.scope)
            with contextlib.suppress(TallystickError):
                bound.modify(memory.id, content=self.text(word), reason="r")
                copies = [ids for ids in self.homes.values() if memory.id in ids]
                self.homes[word] = set().union({memory.id}, *copies)

    @rule(data=st.data(), way=st.sampled_from(["promote", "share"]))
    def cross(self, data: Any, way: str) -> None:
        memory = self.pick(data, "active")
        if memory is None or memory.scope.kind != "private":
            return
        verb = getattr(self.alice.corrections, way)

        with contextlib.suppress(TallystickError):
            into, reason = "project:apollo", "r"
            token = verb(memory.id, into, reason=reason).confirm_token
            copy = verb(memory.id, into, reason=reason, mode="apply", confirm_token=token).copy_id
            for ids in self.homes.values():
                if memory.id in ids:
                    ids.add(copy)
            for word in planted_in(memory.content) if way == "promote" else ():
                self.promoted.setdefault(word, set()).add(copy)

    @rule(data=st.data())
    def forget(self, data: Any) -> None:
        if memory := self.pick(data, "active"):
            bound = self.tally.bind(ALICE, scope=memory.scope)
            with contextlib.suppress(TallystickError):
                bound.forget(memory.id, reason="r")

    @rule(data=st.data())
    def erase(self, data: Any) -> None:
        if memory := self.pick(data):
            self.destroy(memory)

    @rule()
    def purge(self) -> None:
        self.options["clock"].advance(days=31)
        self.tally.bind(ROOT).operator.purge(mode="apply", reason="r")
        for word, copies in self.promoted.items():
            self.homes[word] |= copies & with_text(self.tally)
        self.look_for_what_nothing_says()

    @rule(shared=st.sampled_from(["destroy", "hand_over"]))
    def erase_user(self, shared: Any) -> None:
        operator, reason = self.tally.bind(ROOT).operator, "she left"
        with contextlib.suppress(NotFound):
            token = operator.erase_user("alice", shared=shared, reason=reason).confirm_token
            done = operator.erase_user(
                "alice", shared=shared, reason=reason, mode="apply", confirm_token=token
            )
            assert done.proof is not None
            assert done.proof.problems == ()
        assert self.alice.memories(states=()) == []
        self.look_for_what_nothing_says()

    def destroy(self, memory: Memory) -> None:
        """Erase a memory with the names that hold its words."""
        words = sorted(word for word, ids in self.homes.items() if memory.id in ids)
        if words:
            self.alice.working.of("r").set(f"about {words[0]}", 1)
            self.alice.threads.put(
                f"on {words[0]}",
                NewCheckpoint(
                    id="1",
                    namespace="",
                    parent_id=None,
                    metadata={},
                    body=Leaf("json", b"{}"),
                    values={},
                ),
            )
        done = erased(self.tally.bind(ROOT), memory.id, words)
        assert memory.id in done.memory_ids
        self.look_for_what_nothing_says()

    def look_for_what_nothing_says(self) -> None:
        """A word that is in no memory any more in which it was written is in no row and no file."""
        living = with_text(self.tally)
        gone = [word for word, ids in self.homes.items() if living.isdisjoint(ids)]
        assert rows_with(self.tally, gone) == {}
        assert files_with(self.tally, gone) == []

    @invariant()
    def nothing_is_left_over(self) -> None:
        if hasattr(self, "tally"):
            checks = {each.check: each for each in self.tally.bind(ROOT).operator.doctor()}
            for name in ("texts", "journal", "graph"):
                assert checks[name].status == "ok", checks[name]


TestReach = ReachMachine.TestCase
TestReach.settings = settings(max_examples=2, stateful_step_count=20)


class ReachOnPostgres(ReachMachine):
    """The same on a server."""

    url = ""

    def opened(self) -> Tally:
        return Tally.open(self.url, schema=self.schema, background=False, **self.options)


@pytest.mark.postgres
@pytest.mark.slow
def test_nothing_outlives_its_source_on_postgres(postgres_url: str) -> None:
    ReachOnPostgres.url = postgres_url
    run_state_machine_as_test(
        ReachOnPostgres, settings=settings(max_examples=2, stateful_step_count=15)
    )


@pytest.mark.soak
@pytest.mark.parametrize("machine", [ReachMachine, ReachOnPostgres])
def test_nothing_outlives_its_source_for_long(machine: Any, postgres_url: str) -> None:
    ReachOnPostgres.url = postgres_url
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=60))
