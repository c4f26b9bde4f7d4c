"""Analyses and timelines: names and numbers, as far as the reader may see."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.errors import Denied, InvalidInput, InvalidRecord, NotFound, StateConflict
from tallystick.records import Actor
from tallystick.tally import Tally
from tallystick_steward import Steward

OpenTally = Callable[..., Tally]
OPERATOR = Actor(user="olga", role="operator")
ADA = Actor(user="ada")


def test_use_errors_and_safety_are_counted_by_who_and_what(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        stored = ada.remember("The heron nests at the weir.")
        ada.forget(stored.id, reason="moved away")
        with pytest.raises(StateConflict):
            ada.modify(stored.id, content="It sleeps.", reason="a test")
        steward = Steward(tally.bind(OPERATOR))
        usage = {each.labels["operation"]: each.count for each in steward.analytics("usage")}
        errors = [each.labels for each in steward.analytics("errors")]
        safety = [(each.labels["event"], each.count) for each in steward.analytics("memory-safety")]
        assert steward.analytics("logs") == []
    assert usage == {"remember": 1, "forget": 1, "modify": 1}
    assert errors == [{"operation": "modify", "mode": "", "outcome": "state_conflict"}]
    assert safety == [("memory.forget", 1)]


def test_an_unknown_analysis_names_the_right_ones(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with pytest.raises((InvalidInput, InvalidRecord)) as refused:
            Steward(tally.bind(OPERATOR)).analytics("costs")  # type: ignore[arg-type]
        with pytest.raises(Denied):
            Steward(tally.bind(ADA)).analytics("usage")
    assert "'usage', 'errors', 'logs'" in str(refused.value)


def test_a_timeline_has_a_memory_a_request_or_a_session_in_order(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA, request_id="req-1", session_id="chat-1")
        stored = ada.remember("The heron nests at the weir.")
        tally.bind(ADA, session_id="chat-1").forget(stored.id, reason="moved away")
        steward = Steward(tally.bind(ADA))
        events = ["memory.add", "memory.forget"]
        assert [each.event for each in steward.timeline(stored.id)] == events
        assert [each.event for each in steward.timeline("chat-1")] == events
        [first] = steward.timeline("req-1")
        assert (first.actor, first.surface, first.automatic) == ("ada", "python", False)
        assert "heron" not in first.dumps()


def test_whoever_inspects_a_scope_and_may_not_read_it_sees_no_reason(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        stored = tally.bind(ADA).remember("Private to Ada.")
        tally.bind(ADA).forget(stored.id, reason="her illness is nobody's business")
        told = Steward(tally.bind(OPERATOR)).timeline(stored.id)
    assert [(each.event, each.reason) for each in told] == [
        ("memory.add", None),
        ("memory.forget", None),
    ]


def test_a_timeline_tells_nothing_above_the_right_of_its_reader(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        stored = tally.bind(ADA, session_id="chat-1").remember("Private to Ada.")
        for subject in (stored.id, "chat-1", "none"):
            with pytest.raises(NotFound):
                Steward(tally.bind(Actor(user="bob"))).timeline(subject)
