"""Lifecycle: what was concluded from memories leaves recall with the last of them, and is back with
the first; what a person accepted, edited or pinned stays, and says that it rests on nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.core.memory.test_correct import corrected

from tallystick.errors import StateConflict
from tallystick.records import Actor, SpaceMember
from tallystick.tally import BoundTally, Tally

OpenTally = Callable[..., Tally]
ADA = Actor(user="ada", projects={"apollo"})
CODER = Actor(user="ada", agent="coder", projects={"apollo"})
BEN = Actor(user="ben")
ROOT = Actor(user="root", role="operator")

LOSSES = ("forget", "hide", "mark_wrong", "delete", "redact", "supersede")


def lose(bound: BoundTally, memory_id: str, how: str) -> Any:
    """Take a memory out of recall in one of the ways that there are."""
    if how == "forget":
        return bound.forget(memory_id, reason="it was a stork")
    other = bound.remember("Storks nest in April.").id if how == "supersede" else None
    options = {} if other is None else {"by": other}
    return corrected(bound, memory_id, how, **options)


def give_back(bound: BoundTally, memory_id: str, how: str) -> None:
    if how == "forget":
        bound.recover(memory_id, reason="it was a heron after all")
    else:
        corrected(bound, memory_id, "restore")


def recalled(bound: BoundTally, query: str = "when may the meadow be mown?") -> set[str]:
    return {hit.memory.id for hit in bound.recall(query, limit=20)}


@pytest.mark.parametrize("how", LOSSES)
def test_a_conclusion_leaves_recall_with_its_last_origin_and_is_back_with_the_first(
    open_tally: OpenTally, how: str
) -> None:
    with open_tally() as tally:
        apollo = tally.bind(CODER, scope="project:apollo")
        heron = apollo.remember("The heron nests in March.")
        ringed = apollo.remember("Herons were ringed in the meadow in March.")
        conclusion = apollo.remember(
            "The meadow may not be mown in March.", derived_from=[heron.id, ringed.id]
        )
        further = apollo.remember("The mower of the meadow is free.", derived_from=[conclusion.id])

        first = lose(apollo, heron.id, how)
        assert {conclusion.id, further.id} <= recalled(apollo), "one origin still says so"
        last = lose(apollo, ringed.id, "forget")
        assert not {conclusion.id, further.id} & recalled(apollo)
        assert apollo.inspect(conclusion.id).state == "hidden"
        assert last.derived == (conclusion.id,)
        told = first.derived if how == "forget" else first.affected.derived
        assert told == (conclusion.id,)
        [*_, left] = apollo.history(conclusion.id)
        assert (left.event, left.correction, left.reason) == (
            "CORRECT",
            "origin_gone",
            "origin_gone",
        )

        give_back(apollo, heron.id, how)
        assert {conclusion.id, further.id} <= recalled(apollo)
        again = apollo.get(conclusion.id)
        assert (again.state, again.corrected) == ("active", None)
        tally.drain()
        assert conclusion.id in recalled(apollo, "cutting grass"), "it has its vector again"


def _edit(bound: BoundTally, memory_id: str) -> None:
    bound.modify(memory_id, content="The meadow is not mown in March.", reason="said better")


def _pin(bound: BoundTally, memory_id: str) -> None:
    bound.modify(memory_id, pinned=True, reason="it matters")


@pytest.mark.parametrize("keep", [_edit, _pin])
def test_what_a_person_edited_or_pinned_stays_and_says_that_its_origin_is_gone(
    open_tally: OpenTally, keep: Callable[[BoundTally, str], None]
) -> None:
    with open_tally() as tally:
        agent, person = (tally.bind(each, scope="project:apollo") for each in (CODER, ADA))
        heron = agent.remember("The heron nests in March.")
        conclusion = agent.remember("The meadow is mown in April.", derived_from=[heron.id])
        keep(person, conclusion.id)
        assert person.inspect(conclusion.id).freshness.current
        person.forget(heron.id, reason="it was a stork")

        [hit] = list(person.recall("when is the meadow mown?"))
        assert (hit.memory.id, hit.fresh, hit.history) == (conclusion.id, False, False)
        assert "what it was concluded from is gone" in hit.why
        pack = person.pack("when is the meadow mown?", budget_tokens=400)
        assert [item.fresh for item in pack.items] == ["origin_gone"]
        assert "what it was concluded from is gone" in pack.text
        inspection = person.inspect(conclusion.id)
        assert not inspection.freshness.current
        assert "restore" not in {each.name for each in inspection.actions if each.allowed}
        with pytest.raises(StateConflict, match="what it was concluded from is gone"):
            corrected(person, conclusion.id, "restore")

        person.recover(heron.id, reason="it was a heron after all")
        [hit] = [
            hit for hit in person.recall("when is the meadow mown?") if hit.memory.id != heron.id
        ]
        assert (hit.fresh, hit.memory.corrected) == (True, None)


def test_a_person_may_show_again_what_left_with_its_origin(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        agent, person = (tally.bind(each, scope="project:apollo") for each in (CODER, ADA))
        heron = agent.remember("The heron nests in March.")
        conclusion = agent.remember("The meadow is mown in April.", derived_from=[heron.id])
        person.forget(heron.id, reason="it was a stork")
        corrected(person, conclusion.id, "restore")
        [hit] = person.recall("when is the meadow mown?")
        assert (hit.memory.id, hit.fresh) == (conclusion.id, False)


def test_a_conclusion_that_was_said_anew_meanwhile_stays_where_it_is(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        apollo = tally.bind(CODER, scope="project:apollo")
        heron = apollo.remember("The heron nests in March.")
        conclusion = apollo.remember("The meadow is mown in April.", derived_from=[heron.id])
        apollo.forget(heron.id, reason="it was a stork")
        anew = apollo.remember("The meadow is mown in April.")
        apollo.recover(heron.id, reason="it was a heron after all")
        assert apollo.inspect(conclusion.id).state == "hidden"
        assert recalled(apollo) & {anew.id, conclusion.id} == {anew.id}


def test_a_conclusion_in_another_scope_follows_and_is_named_only_to_who_may_see_it(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        members = [SpaceMember(principal_id=user, role="maintainer") for user in ("ada", "ben")]
        tally.bind(ROOT).spaces.create("team:red", name="Red", reason="asked", members=members)
        red, ben = tally.bind(ADA, scope="team:red"), tally.bind(BEN)
        heron = red.remember("The heron nests in March.")
        conclusion = ben.remember("The meadow is mown in April.", derived_from=[heron.id])
        assert red.forget(heron.id, reason="it was a stork").derived == ()
        assert conclusion.id not in recalled(ben)
        assert ben.inspect(conclusion.id).state == "hidden"


def test_a_promoted_copy_says_by_itself_what_it_says(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine = tally.bind(ADA)
        heron = mine.remember("The heron nests in March.")
        preview = mine.corrections.promote(heron.id, "project:apollo", reason="all of us need it")
        copied = mine.corrections.promote(
            heron.id,
            "project:apollo",
            reason="all of us need it",
            mode="apply",
            confirm_token=preview.confirm_token,
        )
        assert mine.forget(heron.id, reason="it was a stork").derived == ()
        apollo = tally.bind(ADA, scope="project:apollo")
        assert copied.copy_id in recalled(apollo, "when does the heron nest?")


def test_what_comes_back_by_itself_is_judged_by_its_origins_then(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo = tally.bind(CODER, scope="project:apollo")
        heron = apollo.remember("The heron nests in March.")
        conclusion = apollo.remember("The meadow is mown in April.", derived_from=[heron.id])
        apollo.forget(conclusion.id, reason="not needed")
        apollo.forget(heron.id, reason="it was a stork")
        apollo.recover(conclusion.id, reason="needed")
        [hit] = apollo.recall("when is the meadow mown?")
        assert (hit.memory.corrected, hit.fresh) == ("origin_gone", False)
        corrected(apollo, conclusion.id, "hide")
        apollo.recover(heron.id, reason="it was a heron after all")
        corrected(apollo, conclusion.id, "restore")
        back = apollo.get(conclusion.id)
        assert (back.state, back.corrected) == ("active", None)
