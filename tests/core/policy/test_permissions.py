"""Policy: one table, one decision shape, spaces that open scopes, and previews that equal
recall.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.errors import Denied, InvalidRecord, NotFound, StateConflict, VersionConflict
from tallystick.policy import OPERATIONS, ROLES, PolicyState, decide
from tallystick.records import Actor, MemorySpace, ReasonCode, Scope, SpaceMember
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]

ROOT = Actor(user="root", role="operator")
ALICE = Actor(user="alice", projects={"apollo"})
CODER = Actor(user="alice", agent="coder", projects={"apollo"})
BOB = Actor(user="bob")
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "policy.md"


def _space(scope: str, *members: SpaceMember, state: str = "open") -> PolicyState:
    where = Scope.parse(scope)
    space = MemorySpace.load(
        {
            "id": "s",
            "scope": where,
            "name": "s",
            "members": members,
            "state": state,
            "created_at": 0,
            "created_by": "root",
            "updated_at": 0,
            "updated_by": "root",
        }
    )
    return PolicyState({where: space}, now=100)


@pytest.mark.parametrize("scope", ["team:red", "organization:acme", "shared:kb", "public"])
def test_scopes_that_need_a_space_are_closed_without_one(scope: str) -> None:
    for operation in OPERATIONS:
        assert decide(BOB, operation, Scope.parse(scope)).reason == "scope_disabled"


@pytest.mark.parametrize("role", ["reader", "writer", "maintainer", "steward"])
def test_a_member_may_do_what_the_table_gives_his_role(role: Any) -> None:
    state = _space("team:red", SpaceMember(principal_id="bob", role=role))

    allowed = {
        operation
        for operation in OPERATIONS
        if decide(BOB, operation, Scope.parse("team:red"), state).allowed
    }

    assert allowed == ROLES[role]


def test_a_membership_ends_when_it_says() -> None:
    red = Scope.parse("team:red")
    assert decide(
        BOB, "read", red, _space("team:red", SpaceMember(principal_id="bob", expires_at=101))
    ).allowed
    ended = decide(
        BOB, "read", red, _space("team:red", SpaceMember(principal_id="bob", expires_at=100))
    )
    assert (ended.allowed, ended.reason) == (False, "unverified_membership")


def test_members_are_compared_whole_and_never_as_patterns() -> None:
    for hostile in ("%", "_ob", "b*", "bob'--", 'b"ob', "BOB", "bob "):
        state = _space("team:red", SpaceMember(principal_id=hostile))
        assert not decide(BOB, "read", Scope.parse("team:red"), state).allowed
        assert decide(Actor(user=hostile), "read", Scope.parse("team:red"), state).allowed


def test_a_closed_space_refuses_its_members_and_tells_strangers_nothing_new() -> None:
    state = _space(
        "project:apollo", SpaceMember(principal_id="bob", role="steward"), state="closed"
    )
    apollo = Scope.parse("project:apollo")
    assert decide(BOB, "read", apollo, state).reason == "scope_disabled"
    assert decide(ALICE, "write", apollo, state).reason == "scope_disabled"
    assert decide(BOB, "manage", apollo, state).allowed
    assert decide(Actor(user="eve"), "read", apollo, state).reason == "unverified_membership"


def test_an_agent_never_manages_a_space() -> None:
    state = _space("team:red", SpaceMember(principal_id="alice", role="steward"))
    assert decide(ALICE, "manage", Scope.parse("team:red"), state).allowed
    assert decide(CODER, "manage", Scope.parse("team:red"), state).reason == "missing_permission"


def test_a_delegated_scope_needs_a_live_delegation_and_a_named_agent() -> None:
    scope = Scope.parse("delegated:alice/review")
    steward = SpaceMember(principal_id="alice", role="steward")
    helper = SpaceMember(
        principal_type="agent", principal_id="helper", role="writer", expires_at=200
    )
    held = Actor(user="bob", agent="helper", acting_for="alice", delegations={"alice/review"})

    def reason(actor: Actor, *members: SpaceMember) -> str:
        return decide(
            actor, "write", scope, _space("delegated:alice/review", steward, *members)
        ).reason

    assert decide(held, "write", scope).reason == "delegation_required"
    assert reason(held, helper) == "allowed_member"
    assert reason(ALICE, helper) == "allowed_member"
    assert reason(CODER, helper) == "delegation_required"
    assert reason(held) == "delegation_required"
    # What the delegator, or another person, may do himself opens the scope to none of his agents.
    reviewer = CODER.replace(delegations=frozenset({"alice/review"}))
    assert reason(reviewer, helper) == "delegation_required"
    writer = SpaceMember(principal_id="bob", role="writer")
    assert reason(held.replace(agent="other"), helper, writer) == "delegation_required"
    assert reason(held.replace(agent=None), helper) == "agent_identity_required"
    assert reason(held.replace(delegations=frozenset()), helper) == "delegation_required"
    assert reason(held, helper.replace(expires_at=100)) == "delegation_expired"


def test_a_diary_belongs_to_one_agent_of_one_principal_in_one_project() -> None:
    diary = Scope.diary("alice", "coder", "apollo")
    assert decide(CODER, "write", diary).reason == "allowed_diary"
    assert decide(ALICE, "read", diary).reason == "agent_identity_required"
    assert decide(CODER.replace(agent="writer"), "read", diary).reason == "principal_mismatch"
    assert decide(CODER.replace(user="bob"), "read", diary).reason == "principal_mismatch"
    assert (
        decide(CODER.replace(projects=frozenset()), "read", diary).reason == "unverified_membership"
    )
    assert decide(CODER, "read", Scope.diary("alice", "coder", "")).reason == "missing_project_id"
    assert decide(CODER, "read", Scope.parse("diary:alice")).reason == "missing_scope_key"


@given(
    st.text(min_size=1, max_size=5),
    st.text(min_size=1, max_size=5),
    st.text(min_size=1, max_size=5),
)
def test_the_key_of_a_diary_never_runs_together(user: str, agent: str, project: str) -> None:
    assert Scope.diary(user, agent, project).diary_of == (user, agent, project)


def test_crossing_scopes_is_refused_by_default() -> None:
    for operation in ("share", "promote"):
        decision = decide(ALICE, operation, Scope.parse("project:apollo"))
        assert (decision.allowed, decision.reason) == (False, "scope_crossing_requires_promotion")


def test_a_space_opens_a_team_and_a_revoked_member_is_out_at_once(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        root = tally.bind(ROOT)
        space = root.spaces.create(
            "team:red",
            name="Red",
            members=[SpaceMember(principal_id="bob", role="writer")],
            reason="asked for",
        )
        red = tally.bind(BOB, scope="team:red")
        stored = red.remember("The team meets on Mondays.")

        assert [hit.access_reason for hit in red.recall("team meets")] == ["allowed_member"]
        assert [listed.id for listed in tally.bind(BOB).spaces.list()] == [space.id]
        assert tally.bind(ALICE).spaces.list() == ()

        root.spaces.update("team:red", members=[], reason="left", if_version=1)

        with pytest.raises(Denied) as refused:
            red.recall("team meets")
        assert refused.value.reason == "unverified_membership"
        assert refused.value.decision.audit_id is not None
        with pytest.raises(NotFound):
            red.get(stored.id)
        with pytest.raises(VersionConflict):
            root.spaces.update("team:red", name="R", reason="late", if_version=1)


def test_spaces_are_journaled_with_reason_and_members(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        tally.bind(ALICE).spaces.create("project:apollo", name="Apollo", reason="start")
        tally.bind(ALICE).spaces.update("project:apollo", state="closed", reason="done")
        with services_of(tally).store.database.read() as connection:
            events = list(journal.entries(connection, "scope:project:apollo"))
            problems = journal.verify_stream(connection, "scope:project:apollo")

    assert problems == []
    assert [(event.event, event.reason, event.details["state"]) for event in events] == [
        ("space.create", "start", "open"),
        ("space.update", "done", "closed"),
    ]


def test_who_may_not_open_a_space_is_refused_with_the_reason(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        refusals = {
            ("team:red", ALICE): "missing_permission",
            ("project:zeus", ALICE): "unverified_membership",
            ("delegated:bob/x", ALICE): "principal_mismatch",
            ("private:alice", ALICE): "unsupported_scope",
            ("project:apollo", CODER): "missing_permission",
        }
        for (scope, actor), reason in refusals.items():
            with pytest.raises(Denied) as refused:
                tally.bind(actor).spaces.create(scope, name="x", reason="try")
            assert refused.value.reason == reason
        tally.bind(ALICE).spaces.create("delegated:alice/x", name="x", reason="mine")
        with pytest.raises(StateConflict):
            tally.bind(ROOT).spaces.create("delegated:alice/x", name="x", reason="again")
        with pytest.raises(NotFound):
            tally.bind(BOB).spaces.get("delegated:alice/x")
        with pytest.raises(NotFound):
            tally.bind(BOB).spaces.update("delegated:alice/x", name="y", reason="try")


def test_everyone_reads_the_public_space_and_nobody_else_is_everyone(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        everyone = SpaceMember(principal_type="everyone")
        root = tally.bind(ROOT)
        root.spaces.create(
            "public",
            name="Public",
            reason="open",
            members=[everyone, SpaceMember(principal_id="root", role="writer")],
        )
        tally.bind(ROOT, scope="public").remember("Water boils at 100 degrees.")

        assert len(tally.bind(BOB, scope="public").recall("water")) == 1
        with pytest.raises(Denied):
            tally.bind(BOB, scope="public").remember("Mine.")
        with pytest.raises(InvalidRecord):
            root.spaces.create("team:red", name="Red", members=[everyone], reason="try")


def test_who_may_read_a_memory_is_told_what_he_may_not_do_with_it(open_tally: OpenTally) -> None:
    """Who may not read it learns nothing, not even that it is there."""
    with open_tally() as tally:
        root, team = tally.bind(ROOT), "team:red"
        members = [
            SpaceMember(principal_id="root", role="maintainer"),
            SpaceMember(principal_id="bob", role="reader"),
        ]
        root.spaces.create(team, name="Red", reason="open", members=members)
        kept = tally.bind(ROOT, scope=team).remember("Water boils at 100 degrees.").id

        def calls(bound: BoundTally) -> list[Callable[[], object]]:
            return [
                lambda: bound.forget(kept, reason="try"),
                lambda: bound.modify(kept, content="No.", reason="try"),
                lambda: bound.recover(kept, reason="try"),
                lambda: bound.corrections.make(kept, "mark_wrong", reason="try"),
            ]

        for call, operation in zip(
            calls(tally.bind(BOB)), ("delete", "correct", "delete", "correct"), strict=True
        ):
            with pytest.raises(Denied, match=f"{operation} in {team} was refused") as refused:
                call()
            assert (refused.value.reason, refused.value.decision.operation) == (
                "missing_permission",
                operation,
            )
            assert refused.value.decision.audit_id is not None
        for call in calls(tally.bind(ALICE)):
            with pytest.raises(NotFound):
                call()


def test_a_diary_is_read_by_its_agent_alone(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        stored = tally.bind(CODER, CODER.diary("apollo")).remember("Today the build broke.")
        assert len(tally.bind(CODER, CODER.diary("apollo")).recall("build")) == 1
        assert list(tally.bind(CODER).recall("build")) == []
        assert list(tally.bind(CODER, scope="project:apollo").recall("build")) == []
        for other in (ALICE, CODER.replace(agent="writer"), CODER.replace(user="bob")):
            with pytest.raises(NotFound):
                tally.bind(other).get(stored.id)


def test_a_preview_of_another_tells_ids_only_to_who_may_inspect(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        stored = tally.bind(ALICE).remember("Heron.")
        gone = tally.bind(ALICE).remember("Egret.")
        tally.bind(ALICE).forget(gone.id, reason="wrong")

        [own] = tally.bind(ALICE).spaces.preview_access().scopes
        [stranger] = (
            tally.bind(BOB).spaces.preview_access(actor=ALICE, scopes=["private:alice"]).scopes
        )
        [refused] = tally.bind(ALICE).spaces.preview_access(actor=BOB).scopes
        with services_of(tally).store.database.read() as connection:
            denied = [
                entry.event
                for entry in journal.all_entries(connection)
                if entry.event == "access.denied"
            ]

    assert (own.visible, own.hidden, own.denied) == ((stored.id,), {"deleted": 1}, ())
    assert (stranger.visible, stranger.hidden, stranger.denied) == ((), {}, ())
    assert (refused.decision.reason, refused.visible, refused.denied) == (
        "principal_mismatch",
        (),
        (stored.id,),
    )
    assert denied == []


_NAMES = ["a", "b", "%", "_", "a%", "a'b", 'a"', "a:b", "a/b", "*", "\\"]
_ACTORS = st.builds(
    Actor,
    user=st.sampled_from(_NAMES),
    agent=st.none() | st.sampled_from(["x", "%"]),
    projects=st.frozensets(st.sampled_from(_NAMES), max_size=2),
)
_SCOPES = st.one_of(
    st.builds(
        Scope, kind=st.sampled_from(["private", "project", "team"]), key=st.sampled_from(_NAMES)
    ),
    st.builds(
        Scope.diary, st.sampled_from(_NAMES), st.sampled_from(["x", "%"]), st.sampled_from(_NAMES)
    ),
)
_MEMBERS = st.builds(
    SpaceMember,
    principal_id=st.sampled_from(_NAMES),
    role=st.sampled_from(["reader", "writer", "steward"]),
    expires_at=st.none() | st.sampled_from([1, 10**17]),
)


@settings(max_examples=25)
@given(
    teams=st.dictionaries(st.sampled_from(_NAMES), _MEMBERS, max_size=4),
    writes=st.lists(st.tuples(_ACTORS, _SCOPES), max_size=8),
    readers=st.lists(_ACTORS, min_size=1, max_size=4),
)
def test_a_preview_equals_what_recall_then_gives(
    teams: dict[str, SpaceMember],
    writes: list[tuple[Actor, Scope]],
    readers: list[Actor],
    tmp_path_factory: Any,
) -> None:
    with Tally.open(tmp_path_factory.mktemp("t"), background=False, clock=StepClock()) as tally:
        for key, member in teams.items():
            tally.bind(ROOT).spaces.create(
                Scope(kind="team", key=key), name="t", members=[member], reason="test"
            )
        for number, (actor, scope) in enumerate(writes):
            try:
                tally.bind(actor, scope=scope).remember(f"heron number {number} in {scope}")
            except Denied:
                continue
        for reader in readers:
            for scope in tally.scopes():
                [preview] = tally.bind(reader).spaces.preview_access(scopes=[scope]).scopes
                bound = tally.bind(reader, scope=scope)
                if preview.decision.allowed:
                    assert set(preview.visible) == {
                        hit.memory.id for hit in bound.recall("heron", limit=1_000)
                    }
                    continue
                with pytest.raises(Denied) as refused:
                    bound.recall("heron")
                assert (refused.value.reason, preview.visible) == (preview.decision.reason, ())


def test_the_table_in_the_documentation_is_the_one_in_the_code() -> None:
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    head = next(row for row in rows if row[0] == "operation")
    table = {
        (row[0], role)
        for row in rows
        if row[0] in OPERATIONS
        for role, cell in zip(head[1:], row[1:], strict=True)
        if cell == "yes"
    }

    assert head[1:] == list(ROLES)
    assert table == {
        (operation, role) for role, operations in ROLES.items() for operation in operations
    }


def test_every_reason_code_is_documented_with_how_to_meet_it() -> None:
    documented = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", PAGE.read_text(encoding="utf-8"), re.M)
    codes = [code for code in documented if code in get_args(ReasonCode)]
    assert sorted(codes) == sorted(get_args(ReasonCode))
