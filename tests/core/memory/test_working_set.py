"""A session has a working set: a profile at its first turn, what its turns find, and both stay."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tallystick import Actor, BoundTally, Tally
from tallystick.compiler import FRAMED, outline
from tallystick.errors import Denied
from tallystick.memory import Put
from tallystick.records import ContextItem, Hit, NewMemory, SpaceMember, WorkingSet
from tallystick.storage.engine import tables
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder, StepClock
from tallystick_learning.material import EXTRACTED_KINDS

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")

SAID = (
    "My sister Ilse is allergic to peanuts and cashews.",
    "We moved from Graz to a small flat in Linz last autumn.",
    "I teach chemistry at the Kepler school on Mondays.",
    "ok thanks",
    "yes",
)
"""What anna said in an earlier conversation."""


def _said(bound: BoundTally, *texts: str, conversation: str = "earlier") -> list[str]:
    with bound.run("assistant", metadata={"thread_id": conversation}) as run:
        return [kept.id for text in texts for kept in bound.keep_turn(run, user=text)]


def _texts(shown: WorkingSet, *, new: bool = False) -> list[str]:
    return [piece.hit.content for piece in shown if piece.new or not new]


def test_the_first_turn_has_a_profile_and_what_tells_nothing_comes_last(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _said(anna, *SAID)
        anna.remember("Answer in German.", kind="constraint")
        anna.remember("I like short answers.", kind="preference")

        shown = anna.working_set("Hello there", conversation="today")

        assert [piece.chosen_as for piece in shown.pieces[:2]] == ["constraint", "preference"]
        statements = [each.hit.content for each in shown if each.chosen_as == "statement"]
        assert set(statements) == set(SAID[:3])
        assert all(piece.profile and piece.new for piece in shown)


def test_a_profile_begins_with_what_its_user_said_and_others_said_the_rest(
    open_tally: OpenTally,
) -> None:
    others = ["Rotavators smear heavy clay badly.", "Palings from an old fence keep deer out."]
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(
            NewMemory(content=text, kind="turn", speaker="Sprat", conversation="allotment")
            for text in others
        )
        alone = anna.working_set("Hello", conversation="yesterday")
        _said(anna, *SAID)
        shown = anna.working_set("Hello", conversation="today")

    assert set(_texts(alone)) == set(others)
    assert set(_texts(shown)[:3]) == set(SAID[:3])


def test_later_turns_add_what_their_request_finds_once_and_what_was_shown_stays(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _said(anna, *SAID)
        first = anna.working_set("Hello", conversation="today", turn="1", profile_budget=0)
        assert first.pieces == ()

        found = anna.working_set(
            "Is Ilse allergic to peanuts?", conversation="today", turn="2", profile_budget=0
        )
        assert (_texts(found, new=True), found.pieces[0].chosen_as) == ([SAID[0]], "match")
        again = anna.working_set("Is Ilse allergic to peanuts?", conversation="today", turn="2")
        assert (_texts(again), _texts(again, new=True)) == ([SAID[0]], [])
        other = anna.working_set("Write a haiku about rain.", conversation="today", turn="3")
        assert (_texts(other), _texts(other, new=True)) == ([SAID[0]], [])


def test_the_running_session_is_left_out_and_so_is_what_a_fact_says_already(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _said(anna, SAID[1], conversation="today")
        assert anna.working_set("Where do I live?", conversation="today").pieces == ()

        [turn] = _said(anna, SAID[0])
        anna.remember("Ilse cannot eat peanuts.", kind="fact", derived_from=[turn])
        shown = anna.working_set("Can Ilse eat peanuts?", conversation="tomorrow")
        assert "Ilse cannot eat peanuts." in _texts(shown)
        assert SAID[0] not in _texts(shown)


def test_what_somebody_says_again_word_for_word_is_shown_once(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        for day in ("monday", "tuesday"):
            _said(anna, "Where is Ilse's key?", conversation=day)
            with anna.run("assistant", metadata={"thread_id": day}) as run:
                anna.keep_turn(run, assistant="At Oskar's.")

        shown = anna.working_set("Is the key at Oskar's?", conversation="today")
        assert sorted(_texts(shown)) == ["At Oskar's.", "Where is Ilse's key?"]


def test_every_kind_that_a_learner_concludes_may_stand_for_its_turn(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        for kind in EXTRACTED_KINDS:
            anna.remember(f"The {kind} of the heron stands.", kind=kind)
        shown = anna.working_set("Hello", conversation="today")
        assert {piece.hit.memory.kind for piece in shown} == set(EXTRACTED_KINDS)


def test_a_later_statement_on_the_same_matter_comes_with_an_earlier_one(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _said(
            anna,
            "The Feldkirch workshop with Dr. Amsel is on the twelfth of March.",
            *SAID,
            "Dr. Amsel wrote, Feldkirch moves to April.",
        )
        shown = anna.working_set(
            "When is the Feldkirch workshop?", conversation="today", profile_budget=0
        )
        assert [(each.chosen_as, each.hit.content[:9]) for each in shown] == [
            ("match", "The Feldk"),
            ("later", "Dr. Amsel"),
        ]


def test_a_greeting_is_no_match_and_what_another_speaker_says_is_not_later_on_a_matter(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _said(anna, "Moin moin!", "The Feldkirch workshop with Dr. Amsel is in March.", *SAID)
        anna.remember("Dr. Amsel: Feldkirch moves to May.", kind="turn", speaker="Ben")

        greeted = anna.working_set("Moin moin, all well?", conversation="a", profile_budget=0)
        asked = anna.working_set("When is the workshop?", conversation="b", profile_budget=0)

        assert not greeted.pieces
        assert [each.hit.memory.speaker for each in asked if each.chosen_as == "later"] != ["Ben"]


def test_a_piece_that_changes_is_replaced_and_one_that_goes_is_withdrawn(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        kept = anna.remember("Dinner is at seven.", kind="preference").id
        gone = anna.remember("The cat is called Minka.", kind="fact").id
        before = anna.working_set("Hi", conversation="today", turn="1")
        assert {piece.hit.memory.id for piece in before} == {kept, gone}

        anna.modify(kept, content="Dinner is at eight.", reason="asked")
        anna.forget(gone, reason="asked")
        after = anna.working_set("And now?", conversation="today", turn="2")
        assert _texts(after) == ["Dinner is at eight."]
        assert (after.replaced, after.withdrawn) == ((kept,), (gone,))
        same = anna.working_set("And now?", conversation="today", turn="2")
        assert _texts(same) == ["Dinner is at eight."]


def test_a_session_goes_on_after_a_restart_and_begins_anew_after_a_pause(
    open_tally: OpenTally,
) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        anna = tally.bind(ANNA)
        _said(anna, *SAID)
        before = _texts(anna.working_set("Hello", conversation="today"))
        anna.remember("The new car is a red Skoda.", kind="fact")
        assert _texts(anna.working_set("Go on", conversation="today")) == before

        clock.advance(seconds=7 * 3_600)
        anew = anna.working_set("Good morning", conversation="today")
        assert "The new car is a red Skoda." in _texts(anew, new=True)


def test_other_users_other_sessions_and_other_scopes_have_their_own(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna, bert = tally.bind(ANNA), tally.bind(Actor(user="bert"))
        _said(anna, *SAID)
        assert anna.working_set("Hello", conversation="today").pieces != ()
        assert bert.working_set("Is Ilse allergic?", conversation="today").pieces == ()
        with pytest.raises(Denied):
            bert.working_set("Hello", conversation="today", scopes=["private:anna"])


def test_a_reader_has_a_session_too_and_is_told_where_it_is_kept(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        root = tally.bind(Actor(user="root", role="operator"))
        members = [
            SpaceMember(principal_id="anna", role="writer"),
            SpaceMember(principal_id="bert", role="reader"),
        ]
        root.spaces.create("team:kitchen", name="Kitchen", members=members, reason="a team")
        tally.bind(ANNA, scope="team:kitchen").remember("The stew needs two hours.", kind="fact")
        bert = tally.bind(Actor(user="bert"), scope="team:kitchen")
        shown = bert.working_set("Hello", conversation="today", turn="1")
        assert _texts(shown) == ["The stew needs two hours."]
        assert "this process alone" in shown.warnings[0]
        assert _texts(bert.working_set("Go on", conversation="today"), new=True) == []


def test_what_is_kept_of_a_session_has_no_text_and_dies_with_an_erasure(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna", role="operator"))
        memory_id = anna.remember("The key is under the flowerpot.", kind="fact").id
        assert _texts(anna.working_set("Hello", conversation="today"))
        with services_of(tally).store.database.read() as connection:
            rows = [row.body for row in connection.execute(tables.working.select())]
        assert rows
        assert not any("flowerpot" in body for body in rows)
        preview = anna.operator.erase(memory_id, reason="asked")
        anna.operator.erase(
            memory_id, reason="asked", mode="apply", confirm_token=preview.confirm_token
        )
        gc.collect()
        gc.unfreeze()
        kept = [str(one) for one in gc.get_objects() if isinstance(one, Hit)]
        assert "under the flowerpot" not in str(kept)
        assert _texts(anna.working_set("Hello again", conversation="today")) == []


def test_a_profile_stands_in_the_stable_prefix_with_its_reasons_and_what_turns_add_below(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _said(anna, *SAID)
        prefixes = set()
        for turn, text in enumerate(("Hello", "Is Ilse allergic to peanuts?", "Thanks")):
            shown = anna.working_set(text, conversation="today", turn=str(turn), profile_budget=20)
            request = ContextItem(id=f"m{turn}", kind="user_msg", content=text)
            compiled = anna.compile([*shown, request], budget=4_000, target=FRAMED)
            sections = outline(compiled)
            prefixes.add(sections.remembered)
            items: dict[str, Any] = {each.id: each for each in compiled.selected_items}
            for piece in shown:
                assert items[piece.hit.memory.id].metadata["chosen_as"] == piece.chosen_as
                place = sections.remembered if piece.profile else sections.context
                assert piece.hit.content in place
        assert len(prefixes) == 1, "byte for byte the same in each turn"


def test_nothing_is_shown_where_nothing_is_known_and_reading_is_recorded(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        assert anna.working_set("Hello", conversation="today").pieces == ()
        _said(anna, *SAID)
        with anna.run("cook") as run, run.step("model_call") as step:
            shown = anna.working_set("Hello", conversation="other")
        [read] = [each for each in anna.recordings.entries(step.id) if each.kind == "memory_read"]
        assert read.summary["memories"] == [
            [piece.hit.memory.id, piece.hit.memory.version] for piece in shown
        ]


def test_a_pack_for_a_session_is_its_working_set_to_which_the_question_adds(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna"))
        anna.remember("Always answer in Dutch.", kind="constraint")
        anna.remember("The ferry to Texel leaves at nine.", kind="note")
        first = anna.pack("When does the ferry leave?", conversation="today")
        again = anna.pack("And now?", conversation="today")
        shown = anna.working_set("", conversation="today").pieces

        assert "Always answer in Dutch." in first.text
        assert "leaves at nine" in first.text
        assert again.text == first.text
        assert [item.id for item in first.items] == [piece.hit.memory.id for piece in shown]
        assert {item.chosen_as for item in first.items} == {piece.chosen_as for piece in shown}


class _Interrupted(HashEmbedder):
    """Calls somebody else once, while a text is embedded."""

    meanwhile: Callable[[], object] | None = None

    def embed(self, texts: Sequence[str]) -> Any:
        if (call := self.meanwhile) is not None:
            self.meanwhile = None
            call()
        return super().embed(texts)


def test_what_two_turns_of_a_session_show_at_the_same_time_stays_in_it(
    open_tally: OpenTally,
) -> None:
    embedder = _Interrupted()
    with open_tally(embedder=embedder) as tally:
        anna = tally.bind(ANNA)
        _said(anna, *SAID)

        def turn(text: str) -> WorkingSet:
            return anna.working_set(text, conversation="today", turn=text, profile_budget=0)

        turn("Hello there")
        seen: list[WorkingSet] = []
        embedder.meanwhile = lambda: seen.append(turn("Where is the Kepler school on Mondays?"))
        seen.append(turn("Is my sister Ilse allergic to peanuts?"))

        both = [set(_texts(shown)) for shown in seen]
        assert all(both)
        assert both[0] != both[1]
        after = turn("Hello again")
        assert set(_texts(after)) == both[0] | both[1]
        assert after.withdrawn == ()
        assert _texts(after, new=True) == []


def test_an_item_of_a_store_is_shown_in_a_session_to_calls_for_its_namespace_alone(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _said(anna, *SAID)
        value = {"text": "The iguana Bruno eats papaya."}
        anna.items.put([Put(("pets",), "bruno", value)])

        def shows_it(namespace: list[str] | None) -> bool:
            shown = anna.working_set("What else?", conversation="today", namespace=namespace)
            assert shown.withdrawn == ()
            return any("Bruno" in text for text in _texts(shown))

        asked = "What does the iguana Bruno eat?"
        first = anna.working_set(asked, conversation="today", namespace=["pets"])
        assert any("Bruno" in text for text in _texts(first))
        assert not shows_it(None)
        assert not shows_it(["plants"])
        assert "Bruno" not in anna.pack("What else?", conversation="today").text
        assert "Bruno" not in anna.wake(conversation="today").text
        assert shows_it(["pets"])
        assert shows_it([])
        [shown] = anna.working.of(thread="today").shown().values()
        assert any("Bruno" in text for text in _texts(shown))
        anna.items.put([Put(("pets",), "bruno", None)])
        gone = anna.working_set("What else?", conversation="today")
        assert len(gone.withdrawn) == 1
