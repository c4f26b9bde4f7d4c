"""Contradictions: two memories that an open edge joins, or two values of one subject, are told to
whoever may read both.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.memory.test_conclusions import LOSSES, give_back, lose

from tallystick.errors import InvalidInput, NotFound
from tallystick.records import Actor, NewMemory
from tallystick.tally import BoundTally, Tally

OpenTally = Callable[..., Tally]
ADA = Actor(user="ada", projects={"apollo"})
CODER = Actor(user="ada", agent="coder", projects={"apollo"})
BEN = Actor(user="ben", projects={"apollo"})

NEVER, ALWAYS = "Deploys never happen on Fridays.", "The team deploys each Friday at noon."


def rivals(bound: BoundTally, query: str = "when do deploys happen?") -> dict[str, tuple[str, ...]]:
    """Return what contradicts the hits of a recall, of the newest, and of inspecting each: the same
    everywhere.
    """
    recalled = {hit.memory.id: hit.contradicted_by for hit in bound.recall(query, limit=20)}
    newest = {
        hit.memory.id: hit.contradicted_by for hit in bound.recall("", states=("active",), limit=20)
    }
    assert all(recalled[each] == newest[each] for each in recalled.keys() & newest.keys())
    assert all(bound.inspect(each).contradicted_by == newest[each] for each in newest)
    return {memory_id: others for memory_id, others in newest.items() if others}


@pytest.mark.parametrize("who", [ADA, CODER])
def test_a_memory_that_is_said_to_contradict_another_changes_neither(
    open_tally: OpenTally, who: Actor
) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ADA, scope="project:apollo")
        never = apollo.remember(NEVER, pinned=True).id
        before = apollo.get(never)
        always = tally.bind(who, scope="project:apollo").remember(ALWAYS, contradicts=[never]).id

        assert apollo.get(never) == before
        assert rivals(apollo) == {never: (always,), always: (never,)}
        links = {(link.kind, link.direction) for link in apollo.inspect(always).affected.links}
        assert links == {("CONTRADICTS", "to")}
        with pytest.raises(NotFound):
            apollo.remember("Deploys are on Monday.", contradicts=["no such memory"])
        with pytest.raises(InvalidInput, match="`contradicts` names the memory itself"):
            apollo.remember(NEVER, contradicts=[never])


def test_two_values_of_one_subject_contradict_one_another(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        berlin = ada.remember("Ada lives in Berlin.", kind="fact", subject="home").id
        ada.remember("Ada lives in a house.", kind="note", subject="home")
        ada.remember("Ada's cat lives in Bonn.", kind="fact", subject="cat")
        tally.bind(ADA, scope="project:apollo").remember(
            "Home is Kiel.", kind="fact", subject="home"
        )
        assert rivals(ada) == {}
        hamburg = ada.remember("Ada moved to Hamburg.", kind="fact", subject="home").id
        bremen = ada.remember("Bremen it is.", kind="fact", subject="home", confidence=40).id
        assert rivals(ada) == {
            berlin: (hamburg, bremen),
            hamburg: (berlin, bremen),
            bremen: (hamburg, berlin),
        }, "the one to believe first: trust in quarters, then freshness"

        ada.modify(bremen, subject="work", reason="it is where she works")
        assert rivals(ada) == {berlin: (hamburg,), hamburg: (berlin,)}


@pytest.mark.parametrize("how", [*LOSSES, "mark_duplicate"])
@pytest.mark.parametrize("subject", [None, "deploys"])
def test_what_left_recall_contradicts_nothing_until_it_is_back(
    open_tally: OpenTally, how: str, subject: str | None
) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ADA, scope="project:apollo")
        never = apollo.remember(NEVER, kind="fact", subject=subject).id
        contradicts = [never] if subject is None else []
        always = apollo.remember(ALWAYS, kind="fact", subject=subject, contradicts=contradicts).id
        both = {never: (always,), always: (never,)}
        assert rivals(apollo) == both
        if how == "mark_duplicate":
            other = apollo.remember("No deploy is on a Friday.").id
            preview = apollo.corrections.make(never, how, by=other, reason="said twice")
            apollo.corrections.make(
                never,
                how,
                by=other,
                reason="said twice",
                mode="apply",
                confirm_token=preview.confirm_token,
            )
        else:
            lose(apollo, never, how)
        assert rivals(apollo) == {}
        if how != "redact":
            give_back(apollo, never, how)
            assert rivals(apollo) == both


def test_what_expired_or_holds_no_longer_contradicts_nothing(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        now = tally.now()
        later = now + 3_600_000_000
        home = NewMemory(content="Ada lives in Kiel.", kind="fact", subject="home")
        *_, expiring, kiel = ada.remember_many(
            [
                home.replace(content="Ada lives in Berlin.", valid_until=now + 1),
                home.replace(content="Ada lives in Bonn.", valid_from=later),
                home.replace(content="Ada lives in a tent.", expires_at=later),
                home,
            ]
        )
        assert ada.inspect(kiel.id).contradicted_by == (expiring.id,)


def test_what_others_may_not_read_is_told_to_nobody_but_its_readers(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo, mine = tally.bind(ADA, scope="project:apollo"), tally.bind(ADA)
        never = apollo.remember(NEVER).id
        always = mine.remember(ALWAYS, contradicts=[never]).id
        assert apollo.inspect(never).contradicted_by == (always,)
        [hit] = [hit for hit in apollo.recall("deploys") if hit.memory.id == never]
        assert hit.contradicted_by == (always,)

        theirs = tally.bind(BEN, scope="project:apollo")
        assert rivals(theirs) == {}
        assert theirs.inspect(never).affected.links == ()
        with pytest.raises(NotFound):
            theirs.remember("Deploys are banned on Fridays.", contradicts=[always])


def test_an_erased_memory_leaves_no_contradiction_and_no_trace_of_its_subject(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        berlin = ada.remember("Ada lives in Berlin.", kind="fact", subject="home").id
        kiel = ada.remember("Ada lives in Kiel.", kind="fact", subject="home").id
        bonn = ada.remember("It is Bonn.", contradicts=[berlin, kiel]).id
        ada.forget(berlin, reason="it was a guess")
        assert rivals(ada) == {kiel: (bonn,), bonn: (kiel,)}
        operator = tally.bind(Actor(user="root", role="operator"), scope=ada.scope).operator
        preview = operator.erase(berlin, reason="asked to")
        operator.erase(berlin, reason="asked to", mode="apply", confirm_token=preview.confirm_token)
        assert rivals(ada) == {kiel: (bonn,), bonn: (kiel,)}
        assert len(ada.inspect(bonn).affected.links) == 1


def test_a_compile_leaves_out_what_is_contradicted_by_something_better(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ADA, scope="project:apollo")
        never = apollo.remember(NEVER)
        always = apollo.remember(ALWAYS, contradicts=[never.id], confidence=40)
        recalled = apollo.recall("when do deploys happen on Fridays?")
        assert len(recalled) == 2
        ask = {"id": "ask", "kind": "user_msg", "content": "When do deploys happen on Fridays?"}
        stored = [apollo.get(never.id), apollo.get(always.id)]
        for candidates in (list(recalled), stored):
            with apollo.run("deploy") as run, run.step("model_call", name="plan") as step:
                compiled = apollo.compile([*candidates, ask], budget=1_000)
            loser = compiled.decision(always.id)
            assert (loser.reason_code, loser.related_id) == ("conflict_loser", never.id)
            diff = apollo.recordings.preview_replay(step.id, token_budget=1_001).diff
            assert diff is not None
            assert not diff.added + diff.removed + diff.changed, "the request has what was known"

        apollo.forget(never.id, reason="we do")
        compiled = apollo.compile([apollo.get(always.id), ask], budget=1_000)
        assert compiled.decision(always.id).decision == "include"


def test_a_made_up_memory_is_told_by_its_subject_in_a_compile(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        kiel = ada.get(ada.remember("Ada lives in Kiel.", kind="fact", subject="home").id)
        made_up = [
            kiel.replace(id=f"other-{place}", content=f"Ada lives in {place}.", sources=())
            for place in ("Bonn", "Bern")
        ]
        compiled = ada.compile([*made_up], budget=1_000)
        assert {each.reason_code for each in compiled.decisions} >= {"conflict_loser"}
