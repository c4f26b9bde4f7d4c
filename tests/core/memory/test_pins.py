"""No agent gets round a pin, whatever it calls and in which order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tallystick.errors import Denied, StateConflict, TallystickError
from tallystick.memory import Put
from tallystick.records import Actor
from tallystick.tally import BoundTally, Tally
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
CODER = Actor(user="alice", agent="coder", projects={"apollo"})
CORRECTIONS = (
    "mark_wrong",
    "mark_stale",
    "mark_sensitive",
    "mark_duplicate",
    "supersede",
    "hide",
    "redact",
    "delete",
    "restore",
)
RULE = "Never push on Friday, says the heron."


def _corrected(bound: BoundTally, memory_id: str, correction: Any, **options: Any) -> None:
    preview = bound.corrections.make(memory_id, correction, reason="r", **options)
    bound.corrections.make(
        memory_id,
        correction,
        reason="r",
        mode="apply",
        confirm_token=preview.confirm_token,
        **options,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"pinned": False},
        {"content": "Push on Friday."},
        {"expires_at": 10**15},
        {"valid_until": 10**15},
        {"tags": ("t",)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_agent_neither_unpins_nor_overwrites_what_is_pinned(
    open_tally: OpenTally, changes: Any
) -> None:
    with open_tally() as tally:
        stored = tally.bind(ALICE).remember(RULE, pinned=True)
        agent = tally.bind(CODER)

        with pytest.raises(StateConflict) as refused:
            agent.modify(stored.id, reason="r", **changes)
        listed = agent.corrections.modify_many([{"memory_id": stored.id, "reason": "r", **changes}])

        assert refused.value.reason == "pinned_memory"
        assert "ask a person" in str(refused.value)
        assert listed[0].error == "StateConflict"
        assert agent.get(stored.id).version == 1
        assert tally.bind(ALICE).modify(stored.id, reason="r", **changes).version == 2


@pytest.mark.parametrize("correction", CORRECTIONS[:-1])
def test_an_agent_corrects_nothing_that_is_pinned(open_tally: OpenTally, correction: Any) -> None:
    with open_tally() as tally:
        stored = tally.bind(ALICE).remember(RULE, pinned=True)
        agent = tally.bind(CODER)
        other = agent.remember("Something else, says the egret.").id
        options: dict[str, Any] = {}
        if correction in ("mark_duplicate", "supersede"):
            options["by"] = other

        with pytest.raises(StateConflict) as refused:
            agent.corrections.make(stored.id, correction, reason="r", **options)

        assert refused.value.reason == "pinned_memory"
        actions = {action.name: action for action in agent.inspect(stored.id).actions}
        assert (actions[correction].allowed, actions[correction].reason) == (False, "pinned_memory")


def test_an_agent_does_not_take_a_pinned_copy_away_through_its_origin(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine, agent = tally.bind(ALICE), tally.bind(CODER)
        apollo = tally.bind(ALICE, scope="project:apollo")
        origin = mine.remember(RULE).id
        preview = mine.corrections.share(origin, "project:apollo", reason="r")
        copy = mine.corrections.share(
            origin,
            "project:apollo",
            reason="r",
            mode="apply",
            confirm_token=preview.confirm_token,
        ).copy_id
        assert copy is not None
        apollo.modify(copy, pinned=True, reason="all of us")
        matches = agent.corrections.forget_matching(kinds=["note"], reason="r").matches

        assert [match.action for match in matches] == ["keep_pinned"]
        for call in (
            lambda: agent.forget(origin, reason="r"),
            lambda: agent.modify(origin, content="x", reason="r"),
            lambda: agent.corrections.make(origin, "hide", reason="r"),
        ):
            with pytest.raises(StateConflict) as refused:
                call()
            assert refused.value.reason == "pinned_memory"
        assert apollo.get(copy).content == RULE
        assert mine.forget(origin, reason="withdrawn by its owner").state == "deleted"


def test_an_agent_does_not_end_a_pinned_item_through_the_store(open_tally: OpenTally) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        agent, person = tally.bind(CODER), tally.bind(ALICE)
        address = (("rules",), "friday")
        agent.items.put([Put(("rules",), "friday", {"rule": RULE}, ttl=60_000_000)])
        [found] = agent.items.get([address])
        assert found is not None
        person.modify(found.memory.id, pinned=True, expires_at=None, reason="keep it")
        for put in (
            Put(("rules",), "friday", {"rule": RULE}, ttl=1),
            Put(("rules",), "friday", {"rule": "other"}),
            Put(("rules",), "friday", None),
        ):
            with pytest.raises(StateConflict) as refused:
                agent.items.put([put])
            assert refused.value.reason == "pinned_memory"
        agent.items.get([address], refresh=[True])
        clock.advance(seconds=3_600)
        agent.items.sweep()
        [again] = agent.items.get([address])
        assert again is not None
        assert again.memory.expires_at is None


def test_a_forced_forget_needs_the_token_of_a_preview(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        stored = tally.bind(ALICE, scope="project:apollo").remember(RULE, pinned=True)
        operator = tally.bind(
            Actor(user="ops", projects={"apollo"}, role="operator"), scope="project:apollo"
        )
        attempts: tuple[dict[str, Any], ...] = (
            {},
            {"force": True},
            {"force": True, "confirm_token": "1.no"},
        )
        reasons = []
        for attempt in attempts:
            with pytest.raises((StateConflict, Denied)) as refused:
                operator.forget(stored.id, reason="asked", **attempt)
            reasons.append(getattr(refused.value, "reason", None))
        assert reasons == ["pinned_memory", "confirm_token_required", "confirm_token_mismatch"]
        assert operator.get(stored.id).content == RULE

        preview = operator.corrections.make(stored.id, "delete", reason="asked", force=True)
        forgotten = operator.forget(
            stored.id, reason="asked", force=True, confirm_token=preview.confirm_token
        )

        assert (forgotten.state, forgotten.event) == ("deleted", "FORGET")
        with pytest.raises(StateConflict):
            tally.bind(CODER).recover(stored.id, reason="the agent wants it back")


class PinMachine(RuleBasedStateMachine):
    """Two memories that a person pinned, one of them an item of a store, one a shared copy; and an
    agent that tries whatever it may call.
    """

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = StepClock()
        self.tally = Tally.open(self.folder.name, background=False, clock=self.clock)
        person = self.tally.bind(ALICE)
        self.agent = self.tally.bind(CODER)
        self.project = self.tally.bind(CODER, scope="project:apollo")
        pinned = person.remember(RULE, pinned=True).id
        self.agent.items.put([Put(("rules",), "friday", {"rule": RULE}, ttl=60_000_000)])
        [item] = self.agent.items.get([(("rules",), "friday")])
        assert item is not None
        person.modify(item.memory.id, pinned=True, expires_at=None, reason="keep it")
        origin = person.remember("The heron is shared.").id
        preview = person.corrections.share(origin, "project:apollo", reason="r")
        copy = person.corrections.share(
            origin,
            "project:apollo",
            reason="r",
            mode="apply",
            confirm_token=preview.confirm_token,
        ).copy_id
        assert copy is not None
        self.tally.bind(ALICE, scope="project:apollo").modify(copy, pinned=True, reason="keep it")
        self.pinned = (pinned, item.memory.id, copy)
        self.ids = [pinned, item.memory.id, copy, origin]
        self.before = self.state()

    def teardown(self) -> None:
        if hasattr(self, "tally"):
            self.tally.close()
            self.folder.cleanup()

    def state(self) -> list[tuple[Any, ...]]:
        person = self.tally.bind(ALICE)
        memories = [person.get(memory_id) for memory_id in self.pinned]
        recalled = {
            hit.memory.id
            for hit in person.recall(
                "heron Friday rule", limit=100, scopes=["private:alice", "project:apollo"]
            )
            if not hit.history
        }
        return [
            (memory.id in recalled, memory.content, memory.version, memory.pinned, memory.state)
            for memory in memories
        ]

    def attempt(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except TallystickError:
            return None

    @rule(word=st.sampled_from(["heron", "egret"]), pinned=st.booleans())
    def remember(self, word: str, pinned: bool) -> None:
        text = f"The {word} {len(self.ids)} nests."
        self.ids.append(self.agent.remember(text, pinned=pinned).id)

    @rule(
        data=st.data(),
        changes=st.sampled_from(
            [
                {"pinned": False},
                {"content": "Overwritten."},
                {"expires_at": 1},
                {"valid_until": 1},
                {"importance": 0},
                {"kind": "turn"},
                {"attributes": {"a": 1}},
            ]
        ),
    )
    def modify(self, data: Any, changes: Any) -> None:
        memory_id = data.draw(st.sampled_from(self.ids))
        self.attempt(lambda: self.agent.modify(memory_id, reason="r", **changes))

    @rule(data=st.data(), correction=st.sampled_from(CORRECTIONS))
    def correct(self, data: Any, correction: Any) -> None:
        memory_id, other = (data.draw(st.sampled_from(self.ids)) for _ in range(2))
        options: dict[str, Any] = {}
        if correction in ("supersede", "mark_duplicate"):
            options["by"] = other
        if correction == "supersede":
            options["valid_from"] = data.draw(st.sampled_from([None, 4 * 10**15]))
        self.attempt(lambda: _corrected(self.agent, memory_id, correction, **options))

    @rule(data=st.data(), recovers=st.booleans())
    def forget(self, data: Any, recovers: bool) -> None:
        memory_id = data.draw(st.sampled_from(self.ids))
        self.attempt(lambda: self.agent.forget(memory_id, reason="r"))
        if recovers:
            self.attempt(lambda: self.agent.recover(memory_id, reason="r"))

    @rule(in_project=st.booleans(), query=st.sampled_from([None, "heron"]))
    def forget_matching(self, in_project: bool, query: str | None) -> None:
        bound = self.project if in_project else self.agent
        matching: dict[str, Any] = {"since": 0, "threshold": 0.0, "reason": "r"}
        token = bound.corrections.forget_matching(query, **matching).confirm_token
        self.attempt(
            lambda: bound.corrections.forget_matching(
                query, mode="apply", confirm_token=token, **matching
            )
        )

    @rule(data=st.data(), ttl=st.sampled_from([None, 1]), deletes=st.booleans())
    def put(self, data: Any, ttl: int | None, deletes: bool) -> None:
        value = None if deletes else data.draw(st.sampled_from([{"rule": RULE}, {"rule": "x"}]))
        key = data.draw(st.sampled_from(["friday", "monday"]))
        self.attempt(lambda: self.agent.items.put([Put(("rules",), key, value, ttl=ttl)]))

    @rule()
    def read_and_sweep(self) -> None:
        self.agent.items.get([(("rules",), "friday")], refresh=[True])
        self.clock.advance(seconds=120)
        self.agent.items.sweep()

    @rule(data=st.data(), operation=st.sampled_from(["promote", "share"]))
    def cross(self, data: Any, operation: str) -> None:
        memory_id, verb = (
            data.draw(st.sampled_from(self.ids)),
            getattr(self.agent.corrections, operation),
        )
        preview = self.attempt(lambda: verb(memory_id, "project:apollo", reason="r"))
        if preview is not None:
            self.attempt(
                lambda: verb(
                    memory_id,
                    "project:apollo",
                    reason="r",
                    mode="apply",
                    confirm_token=preview.confirm_token,
                )
            )

    @rule()
    def purge(self) -> None:
        self.attempt(lambda: self.agent.operator.purge(mode="apply", reason="r"))

    @invariant()
    def what_a_person_pinned_is_as_it_was(self) -> None:
        if hasattr(self, "before"):
            assert self.state() == self.before


TestPinMachine = PinMachine.TestCase
TestPinMachine.settings = settings(max_examples=5, stateful_step_count=25)
