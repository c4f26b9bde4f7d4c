"""A person decides about one action with exact arguments: once, for a reason, in the journal."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick import Actor, PolicyRule, Tally
from tallystick.errors import (
    ActionDenied,
    ApprovalRequired,
    Denied,
    InvalidInput,
    NotFound,
    StateConflict,
    TallystickError,
    TokenRefused,
)
from tallystick.records import Approval, SpaceMember
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
ASK = PolicyRule(
    id="ask",
    name="Payments",
    description="Payments are approved",
    effect="require_approval",
    applies_to="tool_call",
)
ANNA = Actor(user="anna")
BOT = Actor(user="anna", agent="bot")
PAY = {"amount": 3.5, "to": "Zoë"}


def asked(bound: BoundTally, arguments: Any = PAY) -> Approval:
    """The approval that a payment waits for."""
    with pytest.raises(ApprovalRequired) as blocked:
        bound.check_tool_call("pay", arguments)
    [approval] = blocked.value.approvals
    assert isinstance(approval, Approval)
    return approval


def events(tally: Tally, approval: Approval) -> list[tuple[str, str, str | None]]:
    """The history of an approval: event, user and reason."""
    with services_of(tally).store.database.read() as connection:
        return [
            (entry.event, str(entry.actor["user"]), entry.reason)
            for entry in journal.about(connection, approval.id)
        ]


def test_a_grant_lets_exactly_the_same_action_happen_once(open_tally: OpenTally) -> None:
    with open_tally(rules=[ASK]) as tally:
        bot, anna = tally.bind(BOT), tally.bind(ANNA)
        waiting = asked(bot)
        assert (waiting.action, waiting.subject, waiting.arguments, waiting.reason) == (
            "tool_call",
            "pay",
            PAY,
            "Payments are approved",
        )
        assert asked(bot) == waiting, "asking again is the same approval"

        granted = anna.approvals.approve(waiting.id, reason="the invoice is right")
        assert (granted.state, granted.decided_by, granted.decided_reason) == (
            "granted",
            {"user": "anna", "role": "member"},
            "the invoice is right",
        )
        assert asked(bot, {**PAY, "amount": 4}).id != waiting.id, "other arguments ask anew"
        used = bot.check_tool_call("pay", dict(reversed(PAY.items()))).approval
        assert used is not None
        assert (used.id, used.state) == (waiting.id, "used")
        assert anna.approvals.get(waiting.id).state == "used"
        assert asked(bot).id != waiting.id, "a grant is good for one action"

        assert events(tally, waiting) == [
            ("approval.asked", "anna", None),
            ("approval.granted", "anna", "the invoice is right"),
            ("approval.used", "anna", None),
        ]


def test_the_journal_has_no_arguments_and_no_keyed_digest(open_tally: OpenTally) -> None:
    with open_tally(rules=[ASK]) as tally:
        waiting = asked(tally.bind(BOT), {"note": "the pelican"})
        with services_of(tally).store.database.read() as connection:
            entries = journal.all_entries(connection)
        written = "".join(entry.dumps() for entry in entries)
        assert waiting.id in written
        assert "pelican" not in written
        assert "hmac-sha256" not in written


def test_a_denial_gives_the_reason_of_the_person_until_it_is_taken_back(
    open_tally: OpenTally,
) -> None:
    with open_tally(rules=[ASK]) as tally:
        bot, anna = tally.bind(BOT), tally.bind(ANNA)
        waiting = asked(bot)
        anna.approvals.deny(waiting.id, reason="too dear")
        with pytest.raises(ActionDenied, match="anna denied it: too dear") as denied:
            bot.check_tool_call("pay", PAY)
        assert denied.value.facts() == {
            "action": "tool_call",
            "subject": "pay",
            "rule_id": "ask",
            "reason": "denied_by_person",
            "approval_id": waiting.id,
        }
        assert anna.approvals.revoke(waiting.id, reason="I was wrong").state == "revoked"
        assert asked(bot).id != waiting.id


def test_a_token_is_good_for_its_action_by_its_actor_in_its_scope(open_tally: OpenTally) -> None:
    with open_tally(rules=[ASK]) as tally:
        bot, anna = tally.bind(BOT), tally.bind(ANNA)
        token = anna.approvals.approve(asked(bot).id, reason="fine").token
        assert token is not None
        other = anna.approvals.approve(asked(bot, {"amount": 9}).id, reason="fine").token
        assert other is not None
        foreign: list[tuple[BoundTally, Any, str]] = [
            (bot, PAY, other),
            (bot, PAY, token[:-1] + ("0" if token[-1] != "0" else "1")),
            (bot, PAY, "nonsense"),
            (bot, PAY, "\x00.\ud800"),
            (tally.bind(Actor(user="anna", agent="other")), PAY, token),
            (tally.bind(Actor(user="bob", agent="bot")), PAY, token),
        ]
        for bound, arguments, wrong in foreign:
            with pytest.raises(TokenRefused) as refused:
                bound.check_tool_call("pay", arguments, approval_token=wrong)
            assert refused.value.facts() == {"reason": "token_foreign", "approval_id": None}

        assert bot.check_tool_call("pay", PAY, approval_token=token).effect == "require_approval"
        with pytest.raises(TokenRefused, match="token_used"):
            bot.check_tool_call("pay", PAY, approval_token=token)


def test_a_grant_ends_by_its_time_or_when_it_is_taken_back(open_tally: OpenTally) -> None:
    clock = StepClock()
    with open_tally(rules=[ASK], clock=clock) as tally:
        bot, anna = tally.bind(BOT), tally.bind(ANNA)
        first = asked(bot)
        token = anna.approvals.approve(first.id, reason="fine", expires_in=60).token
        clock.advance(seconds=61)
        with pytest.raises(TokenRefused, match="token_expired"):
            bot.check_tool_call("pay", PAY, approval_token=token)
        assert events(tally, first)[-1] == ("approval.expired", "anna", "its time is over")

        second = asked(bot)
        assert second.id != first.id
        token = anna.approvals.approve(second.id, reason="fine").token
        anna.approvals.revoke(second.id, reason="not today")
        with pytest.raises(TokenRefused, match="token_revoked"):
            bot.check_tool_call("pay", PAY, approval_token=token)

        third = asked(bot)
        clock.advance(days=8)
        assert anna.approvals.get(third.id).state == "expired"
        assert [waiting.id for waiting in anna.approvals.list()] == []
        with pytest.raises(StateConflict, match="is expired"):
            anna.approvals.approve(third.id, reason="late")


def test_only_a_person_in_charge_decides_and_others_learn_nothing(open_tally: OpenTally) -> None:
    with open_tally(rules=[ASK]) as tally:
        bot = tally.bind(BOT)
        waiting = asked(bot)
        for verb in ("approve", "deny", "revoke"):
            with pytest.raises(Denied) as refused:
                getattr(bot.approvals, verb)(waiting.id, reason="I think so")
            assert refused.value.reason == "missing_permission"
            assert refused.value.decision.audit_id is not None
        for stranger in (
            Actor(user="bob"),
            Actor(user="bob", agent="bot"),
            Actor(user="anna", organization="acme"),
        ):
            bound = tally.bind(stranger)
            with pytest.raises(NotFound) as absent:
                bound.approvals.approve(waiting.id, reason="mine")
            with pytest.raises(NotFound) as never:
                bound.approvals.approve("nothing", reason="mine")
            assert str(absent.value).replace(waiting.id, "nothing") == str(never.value)
            with pytest.raises(NotFound):
                bound.approvals.get(waiting.id)
            assert tally.bind(stranger, scope="private:anna").approvals.list(state=None) == []
        assert bot.approvals.list() == [waiting], "an agent sees what it waits for"
        assert tally.bind(Actor(user="anna", agent="other")).approvals.list() == []
        operator = Actor(user="root", role="operator")
        assert tally.bind(operator, scope="private:anna").approvals.list() == [waiting]
        assert (
            tally.bind(operator).approvals.approve(waiting.id, reason="on call").state == "granted"
        )


def test_in_a_space_its_stewards_decide(open_tally: OpenTally) -> None:
    with open_tally(rules=[ASK]) as tally:
        root = tally.bind(Actor(user="root", role="operator"))
        root.spaces.create(
            "team:red",
            name="Red",
            reason="r",
            members=[
                SpaceMember(principal_id="ada", role="steward"),
                SpaceMember(principal_id="bob", role="writer"),
            ],
        )
        waiting = asked(tally.bind(Actor(user="bob", agent="bot"), scope="team:red"))
        with pytest.raises(NotFound):
            tally.bind(Actor(user="carl")).approvals.approve(waiting.id, reason="r")
        with pytest.raises(NotFound):
            tally.bind(Actor(user="bob")).approvals.approve(waiting.id, reason="r")
        assert (
            tally.bind(Actor(user="ada")).approvals.approve(waiting.id, reason="r").state
            == "granted"
        )


def test_who_may_not_record_in_a_scope_may_not_ask_there(open_tally: OpenTally) -> None:
    with open_tally(rules=[ASK]) as tally:
        with pytest.raises(Denied, match="principal_mismatch"):
            tally.bind(Actor(user="bob"), scope="private:anna").check_tool_call("pay", PAY)
        assert tally.bind(ANNA).approvals.list(state=None) == []


def test_a_decision_is_made_once_and_under_a_key_answers_again(open_tally: OpenTally) -> None:
    with open_tally(rules=[ASK]) as tally:
        anna = tally.bind(ANNA)
        waiting = asked(tally.bind(BOT))
        first = anna.approvals.approve(waiting.id, reason="fine", idempotency_key="k")
        assert anna.approvals.approve(waiting.id, reason="fine", idempotency_key="k") == first
        with pytest.raises(StateConflict, match="cannot be granted any more"):
            anna.approvals.approve(waiting.id, reason="fine")
        with pytest.raises(StateConflict, match="cannot be denied any more"):
            anna.approvals.deny(waiting.id, reason="no")
        pending = asked(tally.bind(BOT), {"amount": 1})
        with pytest.raises(StateConflict, match="nothing was decided"):
            anna.approvals.revoke(pending.id, reason="no")


@pytest.mark.parametrize(
    "call",
    [
        lambda bound, name: bound.approvals.approve(name, reason=" "),
        lambda bound, name: bound.approvals.approve(name, reason="r", expires_in=0),
        lambda bound, name: bound.approvals.approve(name, reason="r", expires_in=10**9),
        lambda bound, name: bound.approvals.approve(name, reason="r", expires_in=True),
        lambda bound, name: bound.approvals.deny(name, reason=""),
        lambda bound, name: bound.approvals.list(limit=0),
        lambda bound, name: bound.approvals.list(state="open"),
        lambda bound, name: bound.check_tool_call("pay", {"a": object()}),
    ],
)
def test_bad_input_is_refused(
    open_sqlite: OpenTally, call: Callable[[BoundTally, str], object]
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        waiting = asked(tally.bind(BOT))
        with pytest.raises(InvalidInput):
            call(tally.bind(ANNA), waiting.id)
        assert tally.bind(ANNA).approvals.get(waiting.id).state == "pending"


def test_secrets_in_arguments_are_not_shown_and_bind_all_the_same(open_tally: OpenTally) -> None:
    key = "sk-" + "a1B2c3D4" * 5
    with open_tally(rules=[ASK]) as tally:
        bot, anna = tally.bind(BOT), tally.bind(ANNA)
        waiting = asked(bot, {"api_key": key})
        assert key not in waiting.dumps()
        anna.approvals.approve(waiting.id, reason="fine")
        assert asked(bot, {"api_key": key + "x"}).id != waiting.id
        assert bot.check_tool_call("pay", {"api_key": key}).arguments == {"api_key": key}


def test_of_many_threads_of_two_openings_one_uses_a_grant(open_tally: OpenTally) -> None:
    with open_tally(rules=[ASK]) as tally, open_tally(rules=[ASK]) as other:
        bot = tally.bind(BOT)
        tally.bind(ANNA).approvals.approve(asked(bot).id, reason="once")
        outcomes: list[str] = []
        barrier = threading.Barrier(8)

        def run(bound: BoundTally) -> None:
            barrier.wait()
            try:
                bound.check_tool_call("pay", PAY)
                outcomes.append("ran")
            except TallystickError as error:
                outcomes.append(error.code)

        threads = [
            threading.Thread(target=run, args=(opened.bind(BOT),)) for opened in (tally, other) * 4
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["approval_required"] * 7 + ["ran"]
        assert len(tally.bind(ANNA).approvals.list()) == 1, "the others wait for one new approval"


LIVES = {
    ("asked",),
    ("asked", "granted"),
    ("asked", "granted", "used"),
    ("asked", "granted", "revoked"),
    ("asked", "granted", "expired"),
    ("asked", "denied"),
    ("asked", "denied", "revoked"),
    ("asked", "expired"),
}
MOVES = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(["bot", "other"]), st.integers(0, 1)),
    st.tuples(
        st.sampled_from(["approve", "deny", "revoke"]),
        st.integers(0, 3),
        st.sampled_from([60, 600]),
    ),
    st.tuples(st.just("wait"), st.sampled_from([1, 100, 8 * 24 * 3600]), st.just(0)),
)


@settings(max_examples=10)
@given(moves=st.lists(MOVES, max_size=25))
def test_whatever_happens_an_action_runs_once_for_each_grant(
    moves: list[tuple[str, Any, Any]],
) -> None:
    clock, ran = StepClock(), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(f"{folder}/tally", rules=[ASK], clock=clock, background=False) as tally,
    ):
        anna = tally.bind(ANNA)
        ids: list[str] = []
        for move, first, second in moves:
            with contextlib.suppress(ActionDenied, StateConflict):
                if move == "call":
                    bot = tally.bind(Actor(user="anna", agent=first))
                    try:
                        bot.check_tool_call("pay", {"n": second})
                        ran += 1
                    except ApprovalRequired as blocked:
                        ids = [*ids, blocked.approvals[0].id]
                elif move == "wait":
                    clock.advance(seconds=first)
                elif ids:
                    life = {"expires_in": second} if move == "approve" else {}
                    getattr(anna.approvals, move)(ids[-1 - first % len(ids)], reason="r", **life)
        lives = []
        for approval in anna.approvals.list(state=None, limit=1_000):
            history = tuple(
                event.removeprefix("approval.") for event, _, _ in events(tally, approval)
            )
            assert history in LIVES
            assert approval.state == history[-1].replace("asked", "pending")
            lives.append(history)
        assert ran == sum("used" in life for life in lives)
