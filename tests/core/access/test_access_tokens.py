"""Access tokens: who comes in over a network, as whom, for what, and until when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import Denied, InvalidInput, NotFound, StateConflict, Unauthenticated
from tallystick.policy import decide
from tallystick.records import AccessKind, AccessToken, Actor, Credential, PolicyRule, Scope
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]

ROOT = Actor(user="root", role="operator")
ALICE = Actor(user="alice", projects={"apollo"})
KINDS: tuple[AccessKind, ...] = get_args(AccessKind)
SCOPES = tuple(
    map(Scope.parse, ("private:alice", "project:apollo", "private:bob", "project:zeus", "public"))
)


def let_in(tally: Tally, token: AccessToken) -> BoundTally:
    assert token.secret is not None
    return tally.bind(tally.authenticate(token.secret).caller("http"))


def test_a_token_lets_its_actor_in_and_nobody_else(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        made = tally.bind(ALICE).tokens.make("laptop")
        caller = let_in(tally, made)

        assert (caller.actor.user, caller.actor.projects) == ("alice", {"apollo"})
        assert caller.actor.role == "member"
        for secret in ("", "tally_", str(made.secret)[:-1], str(made.secret).lower(), "é", made.id):
            with pytest.raises(Unauthenticated):
                tally.authenticate(secret)


def test_the_tally_keeps_the_digest_of_a_secret_alone(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    with open_sqlite() as tally:
        made = tally.bind(ALICE).tokens.make("laptop")
        folder = Path(tally.location)
        assert tally.bind(ALICE).tokens.list()[0].secret is None
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())

    assert str(made.secret).encode() not in kept
    assert str(made.secret).removeprefix("tally_").encode() not in kept


@pytest.mark.parametrize("lost_rotation", [False, True])
def test_a_token_whose_secret_was_lost_is_found_by_the_list_and_replaced_or_revoked(
    open_tally: OpenTally, lost_rotation: bool
) -> None:
    """The answer to the call that made it never came."""
    with open_tally() as tally:
        mine = tally.bind(ALICE).tokens
        key = "once"
        if lost_rotation:
            first = mine.make("laptop")
            lost = mine.rotate(first.id, idempotency_key=key)
            again = mine.rotate(first.id, idempotency_key=key)
        else:
            lost = mine.make("laptop", idempotency_key=key)
            again = mine.make("laptop", idempotency_key=key)
        assert again == lost.replace(secret=None)

        [listed] = [token for token in mine.list() if token.revoked_at is None]
        assert (listed.id, listed.name, listed.secret) == (lost.id, "laptop", None)
        replacement = mine.rotate(listed.id)
        assert let_in(tally, replacement).actor.user == "alice"
        with pytest.raises(Unauthenticated):
            tally.authenticate(str(lost.secret))
        mine.revoke(replacement.id, reason="not needed")
        with pytest.raises(Unauthenticated):
            tally.authenticate(str(replacement.secret))


def test_a_token_that_ended_is_refused_like_one_that_never_was(open_tally: OpenTally) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        mine = tally.bind(ALICE).tokens
        revoked = mine.make("revoked")
        mine.revoke(revoked.id, reason="The laptop was lost.")
        rotated = mine.make("rotated")
        replacement = mine.rotate(rotated.id)
        expired = mine.make("expired", expires_in=timedelta(seconds=1))
        clock.advance(seconds=2)

        messages = set()
        for token in (revoked, rotated, expired):
            with pytest.raises(Unauthenticated) as refused:
                let_in(tally, token)
            messages.add(str(refused.value))
        with pytest.raises(Unauthenticated) as unknown:
            tally.authenticate("tally_" + "x" * 43)

        assert messages == {str(unknown.value)}
        assert let_in(tally, replacement).actor.user == "alice"
        assert {token.id: token.replaced_by for token in mine.list()}[rotated.id] == replacement.id
        with pytest.raises(StateConflict):
            mine.rotate(revoked.id)


@given(
    operation=st.sampled_from(KINDS),
    scope=st.sampled_from(SCOPES),
    operations=st.none() | st.lists(st.sampled_from(KINDS), min_size=1).map(tuple),
    scopes=st.none() | st.lists(st.sampled_from(SCOPES), min_size=1).map(tuple),
    role=st.sampled_from(["member", "operator"]),
)
def test_a_credential_never_allows_more_than_its_actor_and_never_more_than_it_says(
    operation: AccessKind,
    scope: Scope,
    operations: tuple[AccessKind, ...] | None,
    scopes: tuple[Scope, ...] | None,
    role: Any,
) -> None:
    actor = ALICE.replace(role=role)
    bounds = Credential(scopes=scopes, operations=operations)
    narrowed = actor.replace(credential=bounds)
    is_covered = (operations is None or operation in operations) and (
        scopes is None or scope in scopes
    )

    whole, bounded = decide(actor, operation, scope), decide(narrowed, operation, scope)

    assert bounded.allowed == (whole.allowed and is_covered)
    assert is_covered or bounded.reason == "outside_credential"
    assert narrowed.is_operator <= actor.is_operator
    assert narrowed.is_operator == (
        actor.is_operator and scopes is None and (operations is None or "manage" in operations)
    )


def test_a_token_for_one_scope_recalls_lists_and_explores_nothing_of_another(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        secret = mine.remember("The heron sleeps at noon.")
        tally.bind(ALICE, scope="project:apollo").remember("The heron is project work.")
        token = mine.tokens.make("ci", token_class="scoped", scopes=["project:apollo"])
        caller = let_in(tally, token)

        hits = caller.recall("heron", scopes=["project:apollo"])

        assert [hit.memory.content for hit in hits] == ["The heron is project work."]
        with pytest.raises(Denied):
            caller.recall("heron", scopes=["private:alice", "project:apollo"])
        with pytest.raises(NotFound):
            caller.get(secret.id)
        with pytest.raises(Denied) as refused:
            caller.remember("Not here.")
        assert refused.value.reason == "outside_credential"
        assert [str(each.scope) for each in caller.explore().scopes if each.readable] == [
            "project:apollo"
        ]


def test_only_a_person_grants_forces_erases_and_makes_tokens(open_tally: OpenTally) -> None:
    rule = PolicyRule(id="ask", name="Ask", effect="require_approval", applies_to="tool_call")
    with open_tally(rules=[rule]) as tally:
        root = tally.bind(ROOT)
        pinned = root.remember("Pinned.", pinned=True)
        with pytest.raises(Exception, match="approval"):
            root.check_tool_call("deploy")
        [waiting] = root.approvals.list()
        attempts: list[Callable[[BoundTally], Any]] = [
            lambda caller: caller.approvals.approve(waiting.id, reason="r"),
            lambda caller: caller.corrections.make(pinned.id, "delete", reason="r", force=True),
            lambda caller: caller.operator.erase(pinned.id, reason="r", mode="apply"),
            lambda caller: caller.operator.erase_recorded("r", reason="r", mode="apply"),
            lambda caller: caller.operator.purge(mode="apply", reason="r"),
            lambda caller: caller.operator.choose_windows(done_jobs_days=1),
            lambda caller: caller.tokens.make("more"),
            lambda caller: caller.tokens.rotate(personal.id),
        ]
        personal = root.tokens.make("laptop")
        session = root.tokens.make("sitting", token_class="session")

        for attempt in attempts:
            with pytest.raises(Denied) as refused:
                attempt(let_in(tally, personal))
            assert refused.value.reason == "person_required"
        granted = let_in(tally, session).approvals.approve(waiting.id, reason="Fine.")

        assert granted.state == "granted"
        assert root.approvals.get(waiting.id).decided_by == ROOT.identity()


def test_nobody_makes_a_token_with_more_than_he_has(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE).tokens
        for actor, reason in (
            (Actor(user="bob"), "principal_mismatch"),
            (ALICE.replace(role="operator"), "missing_permission"),
            (ALICE.replace(projects={"apollo", "zeus"}), "unverified_membership"),
            (ALICE.replace(organization="acme"), "principal_mismatch"),
        ):
            with pytest.raises(Denied) as refused:
                mine.make("more", actor=actor)
            assert refused.value.reason == reason
        with pytest.raises(Denied):
            tally.bind(ALICE.replace(agent="coder")).tokens.make("of an agent")

        agent = mine.make("agent", actor=ALICE.replace(agent="coder"))
        bobs = tally.bind(ROOT).tokens.make("bob", actor=Actor(user="bob"))

        assert let_in(tally, agent).actor.agent == "coder"
        assert [token.id for token in mine.list()] == [agent.id]
        assert {token.id for token in tally.bind(ROOT).tokens.list()} == {agent.id, bobs.id}
        with pytest.raises(NotFound):
            mine.revoke(bobs.id, reason="not mine")


def test_a_session_makes_no_token_beyond_its_bounds(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        root = tally.bind(ROOT)
        narrow = root.tokens.make("s", token_class="session", operations=["read", "manage"])
        caller = let_in(tally, narrow)

        with pytest.raises(Denied) as refused:
            caller.tokens.make("whole")
        made = caller.tokens.make("reads", token_class="scoped", operations=["read"])

        assert refused.value.reason == "outside_credential"
        assert made.operations == ("read",)


@pytest.mark.parametrize(
    "options",
    [
        {"token_class": "scoped"},
        {"scopes": ["project:apollo"]},
        {"token_class": "scoped", "scopes": []},
        {"token_class": "session", "actor": ALICE.replace(agent="coder")},
        {"token_class": "session", "expires_in": timedelta(days=2)},
        {"expires_in": timedelta(days=400)},
        {"expires_in": 0},
        {"token_class": "eternal"},
        {"token_class": "scoped", "operations": ["fly"]},
    ],
)
def test_bounds_that_do_not_fit_are_refused_when_given(
    open_sqlite: OpenTally, options: dict[str, Any]
) -> None:
    with open_sqlite() as tally:
        with pytest.raises(InvalidInput):
            tally.bind(ALICE).tokens.make("t", **options)
        assert tally.bind(ALICE).tokens.list() == ()


def test_the_journal_says_who_made_and_ended_a_token_and_never_its_name(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE).tokens
        made = mine.make("the red laptop")
        mine.revoke(mine.rotate(made.id).id, reason="It is old.")
        with services_of(tally).store.database.read() as connection:
            entries = [
                entry
                for entry in journal.all_entries(connection)
                if entry.event.startswith("token.")
            ]

    assert [entry.event for entry in entries] == [
        "token.make",
        "token.rotate",
        "token.make",
        "token.revoke",
    ]
    assert all(entry.actor["user"] == "alice" for entry in entries)
    assert "red" not in "".join(str(entry) for entry in entries)
