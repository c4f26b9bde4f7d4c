"""Forgetting by query: nothing without a preview, and exactly what it showed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.errors import Denied, StateConflict
from tallystick.records import Actor
from tallystick.tally import BoundTally, Tally

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
        preview = apollo.forget_matching("heron", reason="moved away", threshold=0.2)
        again = apollo.forget_matching("heron", reason="moved away", threshold=0.2)
        assert (preview.matches, preview.complete, preview.results) == (again.matches, True, ())
        assert sorted(match.action for match in preview.matches) == [
            "forget",
            "forget",
            "keep_pinned",
        ]

        done = apollo.forget_matching(
            "heron",
            reason="moved away",
            threshold=0.2,
            mode="execute",
            confirm_token=preview.confirm_token,
            idempotency_key="once",
        )
        replayed = apollo.forget_matching(
            "heron",
            reason="moved away",
            threshold=0.2,
            mode="execute",
            confirm_token=preview.confirm_token,
            idempotency_key="once",
        )

        assert replayed == done
        assert [result.memory_id for result in done.results] == [
            match.memory_id for match in preview.matches if match.action == "forget"
        ]
        assert {memory.content for memory in apollo.memories()} == {
            "Tabs are four wide.",
            "The heron is our emblem.",
        }
        assert [entry.reason for entry in apollo.history(done.results[0].memory_id)] == [
            None,
            "moved away",
        ]
        assert apollo.recover(done.results[0].memory_id, reason="it came back").status == "changed"


def test_an_agent_forgets_no_edit_that_a_person_locked(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        person = _filled(tally)
        agent = tally.bind(person.actor.replace(agent="tidy"), person.scope)
        [locked] = [memory.id for memory in person.memories() if "nests" in memory.content]
        person.modify(locked, tags=("kept",), reason="mine", manual_override=True)

        preview = agent.forget_matching("heron", reason="r", threshold=0.2)
        agent.forget_matching(
            "heron", reason="r", threshold=0.2, mode="execute", confirm_token=preview.confirm_token
        )

        assert {match.memory_id: match.action for match in preview.matches}[locked] == "keep_locked"
        assert {memory.content for memory in person.memories()} == {
            "The heron nests here.",
            "Tabs are four wide.",
            "The heron is our emblem.",
        }
        assert "keep_locked" not in {
            one.action for one in person.forget_matching("heron", reason="r").matches
        }


def test_a_lock_that_comes_after_the_preview_is_kept_too(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        person = _filled(tally)
        agent = tally.bind(person.actor.replace(agent="tidy"), person.scope)
        preview = agent.forget_matching("heron", reason="r", threshold=0.2)
        person.modify(
            preview.matches[0].memory_id, importance=90, reason="mine", manual_override=True
        )
        with pytest.raises(StateConflict):
            agent.forget_matching(
                "heron",
                reason="r",
                threshold=0.2,
                mode="execute",
                confirm_token=preview.confirm_token,
            )
        assert len(person.memories()) == 4


def test_without_a_token_nothing_is_forgotten_and_the_refusal_is_journaled(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        apollo = _filled(tally)
        with pytest.raises(Denied) as refused:
            apollo.forget_matching("heron", reason="r", mode="execute", threshold=0.2)
        assert refused.value.reason == "confirm_token_required"
        assert refused.value.decision.audit_id is not None
        assert len(apollo.memories()) == 4


@pytest.mark.parametrize(
    "change", ["added", "modified", "other actor", "forged", "expired", "other query"]
)
def test_a_token_fits_only_what_it_was_given_for(open_tally: OpenTally, change: str) -> None:
    with open_tally() as tally:
        apollo = _filled(tally)
        preview = apollo.forget_matching("heron", reason="r", threshold=0.2)
        token, query = preview.confirm_token, "heron"
        assert token is not None
        if change == "added":
            apollo.remember("Another heron.")
        elif change == "modified":
            target = next(match for match in preview.matches if match.action == "forget")
            apollo.modify(target.memory_id, tags=("seen",), reason="r")
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
            apollo.forget_matching(
                query, reason="r", threshold=0.2, mode="execute", confirm_token=token
            )

        assert {memory.id: memory.version for memory in apollo.memories()} == before
