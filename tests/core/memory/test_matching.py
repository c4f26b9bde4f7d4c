"""Forgetting by query: nothing without a preview, and exactly what it showed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tallystick.errors import Denied, InvalidInput, StateConflict
from tallystick.memory import Put
from tallystick.records import Actor, SourceRef
from tallystick.settings import Settings
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
BOB = Actor(user="bob", projects={"apollo"})


def _filled(tally: Tally) -> BoundTally:
    apollo = tally.bind(ALICE, scope="project:apollo")
    for text in ("The heron nests here.", "A heron was seen.", "Tabs are four wide."):
        apollo.remember(text)
    apollo.remember("The heron is our emblem.", pinned=True)
    return apollo


def test_a_preview_changes_nothing_and_its_token_forgets_exactly_that(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        apollo = _filled(tally)
        preview = apollo.corrections.forget_matching("heron", reason="moved away", threshold=0.2)
        again = apollo.corrections.forget_matching("heron", reason="moved away", threshold=0.2)
        assert (preview.matches, preview.complete, preview.results) == (again.matches, True, ())
        assert sorted(match.action for match in preview.matches) == [
            "forget",
            "forget",
            "keep_pinned",
        ]

        done = apollo.corrections.forget_matching(
            "heron",
            reason="moved away",
            threshold=0.2,
            mode="apply",
            confirm_token=preview.confirm_token,
            idempotency_key="once",
        )
        replayed = apollo.corrections.forget_matching(
            "heron",
            reason="moved away",
            threshold=0.2,
            mode="apply",
            confirm_token=preview.confirm_token,
            idempotency_key="once",
        )

        assert replayed == done
        assert [result.id for result in done.results] == [
            match.id for match in preview.matches if match.action == "forget"
        ]
        assert {memory.content for memory in apollo.memories()} == {
            "Tabs are four wide.",
            "The heron is our emblem.",
        }
        assert [entry.reason for entry in apollo.history(done.results[0].id)] == [
            None,
            "moved away",
        ]
        assert apollo.recover(done.results[0].id, reason="it came back").status == "changed"


def test_an_agent_forgets_no_edit_that_a_person_locked(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        person = _filled(tally)
        agent = tally.bind(person.actor.replace(agent="tidy"), person.scope)
        [locked] = [memory.id for memory in person.memories() if "nests" in memory.content]
        person.modify(locked, tags=("kept",), reason="mine", manual_override=True)

        preview = agent.corrections.forget_matching("heron", reason="r", threshold=0.2)
        agent.corrections.forget_matching(
            "heron", reason="r", threshold=0.2, mode="apply", confirm_token=preview.confirm_token
        )

        assert {match.id: match.action for match in preview.matches}[locked] == "keep_locked"
        assert {memory.content for memory in person.memories()} == {
            "The heron nests here.",
            "Tabs are four wide.",
            "The heron is our emblem.",
        }
        assert "keep_locked" not in {
            one.action for one in person.corrections.forget_matching("heron", reason="r").matches
        }


def test_a_lock_that_comes_after_the_preview_is_kept_too(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        person = _filled(tally)
        agent = tally.bind(person.actor.replace(agent="tidy"), person.scope)
        preview = agent.corrections.forget_matching("heron", reason="r", threshold=0.2)
        person.modify(preview.matches[0].id, importance=90, reason="mine", manual_override=True)
        with pytest.raises(StateConflict):
            agent.corrections.forget_matching(
                "heron",
                reason="r",
                threshold=0.2,
                mode="apply",
                confirm_token=preview.confirm_token,
            )
        assert len(person.memories()) == 4


def test_without_a_token_nothing_is_forgotten_and_the_refusal_is_journaled(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        apollo = _filled(tally)
        with pytest.raises(Denied) as refused:
            apollo.corrections.forget_matching("heron", reason="r", mode="apply", threshold=0.2)
        assert refused.value.reason == "confirm_token_required"
        assert refused.value.decision.audit_id is not None
        assert len(apollo.memories()) == 4


@pytest.mark.parametrize(
    "change", ["added", "modified", "other actor", "forged", "expired", "other query"]
)
def test_a_token_fits_only_what_it_was_given_for(open_tally: OpenTally, change: str) -> None:
    with open_tally() as tally:
        apollo = _filled(tally)
        preview = apollo.corrections.forget_matching("heron", reason="r", threshold=0.2)
        token, query = preview.confirm_token, "heron"
        assert token is not None
        if change == "added":
            apollo.remember("Another heron.")
        elif change == "modified":
            target = next(match for match in preview.matches if match.action == "forget")
            apollo.modify(target.id, tags=("seen",), reason="r")
        elif change == "other actor":
            apollo = tally.bind(BOB, scope="project:apollo")
        elif change == "forged":
            token = token[:-1] + ("0" if token[-1] != "0" else "1")
        elif change == "expired":
            token = "1." + token.partition(".")[2]
        else:
            query = "tabs"
        before = {memory.id: memory.version for memory in apollo.memories()}

        with pytest.raises(StateConflict):
            apollo.corrections.forget_matching(
                query, reason="r", threshold=0.2, mode="apply", confirm_token=token
            )

        assert {memory.id: memory.version for memory in apollo.memories()} == before


FILTERS: dict[str, dict[str, Any]] = {
    "kinds": {"kinds": ["fact"]},
    "tags": {"tags": ["old", "bird"]},
    "speaker": {"speaker": "Ada"},
    "source_type": {"source_type": "tool"},
    "since": {"since": 2_000},
    "until": {"until": 1_001},
    "all": {"kinds": ["fact"], "tags": ["old"], "speaker": "Ada", "since": 1_000, "until": 1_001},
    "with a query": {"query": "heron", "threshold": 0.2, "speaker": "Ada"},
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_choose_what_is_forgotten(open_tally: OpenTally, name: str) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        fitting = apollo.remember(
            "The heron nests.",
            kind="fact",
            tags=["old", "bird"],
            speaker="Ada",
            source=SourceRef(source_type="tool"),
            occurred_at=2_000 if name == "since" else 1_000,
        ).id
        other = apollo.remember(
            "The egret feeds.",
            tags=["old"],
            speaker="Ada Lovelace" if name != "with a query" else "Ada",
            occurred_at=1_001 if name in ("since", "until") else None,
        ).id
        tally.bind(ALICE).remember("The heron nests.", kind="fact", speaker="Ada")

        preview = apollo.corrections.forget_matching(reason="r", **FILTERS[name])
        done = apollo.corrections.forget_matching(
            reason="r", mode="apply", confirm_token=preview.confirm_token, **FILTERS[name]
        )

        assert [match.id for match in preview.matches] == [fitting]
        assert (preview.matches[0].score is None) == (name != "with a query")
        assert [(one.id, one.state) for one in done.results] == [(fitting, "deleted")]
        assert [memory.id for memory in apollo.memories()] == [other]


def test_forgetting_needs_a_query_or_a_filter_that_can_match(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        apollo = _filled(tally)
        cases: tuple[tuple[dict[str, Any], str], ...] = (
            ({}, "query, or one or more of kinds"),
            ({"query": " "}, "empty"),
            ({"source_type": "gossip"}, "`source_type` Input should be"),
            ({"since": 5, "until": 5}, "`since` must come before"),
            ({"since": "yesterday"}, "no ISO 8601 text"),
        )
        for wrong, said in cases:
            with pytest.raises(InvalidInput, match=said):
                apollo.corrections.forget_matching(reason="r", **wrong)


@pytest.mark.parametrize("filters", [{}, {"kinds": ["store_item"]}], ids=["query", "and a kind"])
def test_items_of_stores_are_forgotten_by_a_query_too(
    open_sqlite: OpenTally, filters: dict[str, Any]
) -> None:
    with open_sqlite() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        apollo.items.put([Put(("birds",), "seen", {"text": "A heron was seen."})])
        [item] = apollo.memories()
        preview = apollo.corrections.forget_matching(
            "heron", reason="moved away", threshold=0.1, **filters
        )
        assert [match.id for match in preview.matches] == [item.id]


def test_one_call_forgets_no_more_than_the_largest_batch(open_sqlite: OpenTally) -> None:
    with open_sqlite(settings=Settings.read(forget_batch=2)) as tally:
        apollo = _filled(tally)
        with pytest.raises(InvalidInput, match=r"more than one call may forget here, 2\. Narrow"):
            apollo.corrections.forget_matching(kinds=["note"], reason="r", limit=3)
        preview = apollo.corrections.forget_matching(kinds=["note"], reason="r")
        assert (len(preview.matches), preview.complete) == (2, False)


def test_a_tally_may_let_nobody_forget_by_a_query(open_sqlite: OpenTally) -> None:
    with open_sqlite(settings=Settings.read(forget_preview_only=True)) as tally:
        apollo = _filled(tally)
        preview = apollo.corrections.forget_matching("heron", reason="r", threshold=0.2)
        with pytest.raises(Denied) as refused:
            apollo.corrections.forget_matching(
                "heron",
                reason="r",
                threshold=0.2,
                mode="apply",
                confirm_token=preview.confirm_token,
            )
        assert refused.value.reason == "preview_only"
        assert refused.value.decision.audit_id is not None
        assert len(apollo.memories()) == 4
        with services_of(tally).store.database.read() as connection:
            reasons = [entry.reason for entry in journal.all_entries(connection)]
        assert reasons.count("preview_only") == 1


def test_a_token_that_ran_out_and_one_of_somebody_else_have_reasons_of_their_own(
    open_sqlite: OpenTally,
) -> None:
    clock = StepClock()
    with open_sqlite(clock=clock) as tally:
        apollo = _filled(tally)
        bob = tally.bind(BOB, scope="project:apollo")
        [memory] = [one.id for one in apollo.memories() if one.content.startswith("Tabs")]
        token = apollo.corrections.make(memory, "hide", reason="r").confirm_token

        def refusal(bound: BoundTally, given: Any, reason: str = "r") -> str:
            with pytest.raises(StateConflict) as refused:
                bound.corrections.make(
                    memory, "hide", reason=reason, mode="apply", confirm_token=given
                )
            return str(refused.value.reason)

        for wrong in ("nonsense", "1", "", f"{token}x", "9" * 40):
            assert refusal(apollo, wrong) == "confirm_token_mismatch"
        assert refusal(bob, token) == "confirm_token_mismatch"
        assert refusal(apollo, token, "another reason") == "confirm_token_mismatch"
        clock.advance(seconds=15 * 60 + 1)
        assert refusal(apollo, token) == "confirm_token_expired"
        assert apollo.get(memory).state == "active"
