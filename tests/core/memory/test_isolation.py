"""Isolation: whatever many actors do, in scopes with hostile names, no path shows anybody what is
not theirs.

The model knows who may read what by its own few lines, not by asking policy. Each text carries a
mark of its scope, so that a leak is seen wherever it comes out: results, counts, histories,
previews or error texts.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.whole import whole

from tallystick.errors import ApprovalRequired, Denied, NotFound, TallystickError
from tallystick.kit import Binder
from tallystick.memory import Put
from tallystick.operations import MEMORY_TOOLS
from tallystick.records import Actor, PolicyConditions, PolicyRule, Scope, SpaceMember
from tallystick.storage.rows import memories
from tallystick.tally import Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

KEYS = ["a", "%", "_", "a%", "a'b", 'a"', "a:b", "a/b", "*", "A"]
keys = st.sampled_from(KEYS)
people = st.builds(
    Actor,
    user=keys,
    agent=st.none() | st.sampled_from(["x", "%"]),
    projects=st.frozensets(keys, max_size=2),
)
places = st.one_of(
    st.builds(Scope, kind=st.sampled_from(["private", "project", "team"]), key=keys),
    st.builds(Scope.diary, keys, st.sampled_from(["x", "%"]), keys),
)
ROOT = Actor(user="root", role="operator")
ASK = PolicyRule(
    id="ask",
    name="Ask before a shell",
    effect="require_approval",
    applies_to="tool_call",
    conditions=PolicyConditions(tool=("shell",)),
)


class Isolation(RuleBasedStateMachine):
    """One tally, ten names, every path."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.tally = self.opened()
        self.marks: dict[Scope, str] = {}
        self.ids: dict[str, Scope] = {}
        self.teams: dict[str, frozenset[str]] = {}
        self.items: dict[tuple[str, str], str] = {}
        self.steps: dict[str, Scope] = {}
        self.approvals: dict[str, Scope] = {}

    def opened(self) -> Tally:
        return Tally.open(self.folder.name, rules=[ASK], background=False, clock=StepClock())

    def teardown(self) -> None:
        if hasattr(self, "tally"):
            self.tally.close()
            self.folder.cleanup()

    def may(self, actor: Actor, scope: Scope) -> bool:
        if scope.kind == "private":
            return scope.key == actor.user
        if scope.kind == "project":
            return scope.key in actor.projects
        if scope.kind == "team":
            return actor.user in self.teams.get(scope.key, frozenset())
        return any(
            scope == Scope.diary(actor.user, actor.agent or "", key)
            for key in actor.projects
            if actor.agent
        )

    def tried(self, actor: Actor, call: Callable[[], Any]) -> str:
        """What a call told, whether by its result or by its error."""
        try:
            return whole(call())
        except TallystickError as error:
            return f"{error!r} {error}"

    def check(self, actor: Actor, told: str) -> None:
        for scope, mark in self.marks.items():
            assert self.may(actor, scope) or mark not in told, f"{actor} was told of {scope}"

    def probe(self, writer: Actor, scope: Scope, memory_id: str) -> None:
        """Those who are nearly the writer look at once: they differ in one thing each."""
        near = (
            writer.replace(user=f"{writer.user} "),
            writer.replace(user="%"),
            writer.replace(agent="_"),
            writer.replace(agent=None),
            writer.replace(projects=frozenset({"%", "_", "*"})),
            writer.replace(projects=frozenset()),
            writer.replace(organization="acme"),
        )
        for actor in near:
            if actor.organization is None and self.may(actor, scope):
                continue
            bound = self.tally.bind(actor)
            inside = replace(self.tally.bind(actor), scope=scope)
            for call in (
                lambda bound=bound: bound.get(memory_id),
                lambda bound=bound: bound.history(memory_id),
                lambda inside=inside: inside.recall("heron"),
                lambda inside=inside: inside.memories(),
                lambda bound=bound: bound.explore(memory_id, depth=2),
                lambda inside=inside: inside.explore(scope),
                lambda bound=bound: bound.inspect(memory_id),
                lambda bound=bound: bound.operator.prove_unreachable(memory_id),
                lambda bound=bound: bound.corrections.make(memory_id, "hide", reason="r"),
                lambda bound=bound: bound.corrections.promote(memory_id, "project:zz", reason="r"),
                lambda bound=bound: bound.operator.erase(memory_id, reason="r"),
                lambda inside=inside: inside.pack("heron"),
                lambda inside=inside: inside.wake(),
                lambda inside=inside: inside.working.of("r").all(),
                lambda inside=inside: inside.operator.export(f"{self.folder.name}/never"),
            ):
                told = self.tried(actor, call)
                assert told.startswith(("NotFound", "Denied")), f"{actor} in {scope}: {told}"
                assert self.marks[scope] not in told

    @rule(actor=people, scope=places, number=st.integers(0, 3))
    def remember(self, actor: Actor, scope: Scope, number: int) -> None:
        mark = self.marks.setdefault(scope, f"mark{len(self.marks)}x")
        bound = self.tally.bind(actor, scope=scope)
        try:
            kept = bound.remember(f"heron {number} {mark}")
        except Denied as error:
            assert not self.may(actor, scope)
            self.check(actor, str(error))
        else:
            assert self.may(actor, scope)
            self.ids[kept.id] = scope
            self.probe(actor, scope, kept.id)

    @rule(key=keys, members=st.frozensets(keys, max_size=3))
    def staff(self, key: str, members: frozenset[str]) -> None:
        spaces = self.tally.bind(ROOT).spaces
        named = [SpaceMember(principal_id=one, role="maintainer") for one in sorted(members)]
        scope = Scope(kind="team", key=key)
        if key in self.teams:
            spaces.update(scope, members=named, reason="restaffed")
        else:
            spaces.create(scope, name=key, members=named, reason="staffed")
        self.teams[key] = members

    @rule(actor=people, data=st.data())
    def change(self, actor: Actor, data: Any) -> None:
        if not self.ids:
            return
        memory_id = data.draw(st.sampled_from(sorted(self.ids)))
        scope, bound = self.ids[memory_id], self.tally.bind(actor)
        tell = {
            "modify": lambda: bound.modify(memory_id, tags=("t",), reason="r"),
            "forget": lambda: bound.forget(memory_id, reason="r"),
            "history": lambda: bound.history(memory_id),
            "get": lambda: bound.get(memory_id),
            "inspect": lambda: bound.inspect(memory_id),
            "explore": lambda: bound.explore(memory_id),
            "correct": lambda: bound.corrections.make(memory_id, "redact", reason="r"),
            "share": lambda: bound.corrections.share(memory_id, "project:a", reason="r"),
            "proof": lambda: bound.operator.prove_unreachable(memory_id),
            "erase": lambda: bound.operator.erase(memory_id, reason="r"),
        }[
            data.draw(
                st.sampled_from(
                    [
                        "modify",
                        "forget",
                        "history",
                        "get",
                        "inspect",
                        "explore",
                        "correct",
                        "share",
                        "proof",
                        "erase",
                    ]
                )
            )
        ]
        if self.may(actor, scope):
            return
        told = self.tried(actor, tell)
        assert told.startswith("NotFound"), told
        self.check(actor, told)

    @rule(actor=people, scope=places)
    def read(self, actor: Actor, scope: Scope) -> None:
        bound = self.tally.bind(actor, scope=scope)
        for call in (
            lambda: bound.recall("heron mark0x", limit=100),
            lambda: bound.memories(states=("active", "deleted")),
            lambda: bound.pack("heron mark0x"),
            lambda: bound.wake(),
            lambda: bound.corrections.forget_matching("heron", reason="r", threshold=0.0),
            lambda: bound.recordings.runs(),
            lambda: bound.explore(scope),
        ):
            told = self.tried(actor, call)
            self.check(actor, told)
            assert self.may(actor, scope) or "Denied" in told or told == "[]"

    @rule(actor=people)
    def look_around(self, actor: Actor) -> None:
        """Who looks around comes upon the scopes that are open to him, and upon no other, not even
        by its name.
        """
        found = self.tally.bind(actor).explore()
        self.check(actor, whole(found))
        opened = {
            *(scope for scope in self.marks if self.may(actor, scope)),
            Scope(kind="private", key=actor.user),
        }
        teams = {
            Scope(kind="team", key=key)
            for key, members in self.teams.items()
            if actor.user in members
        }
        items = [Scope(kind="private", key=user) for user, _ in self.items]
        written = {*self.ids.values(), *items}
        assert {one.scope for one in found.scopes} == (opened & written) | teams
        for one in found.scopes:
            assert sum(one.states.values()) == sum(
                scope == one.scope for scope in (*self.ids.values(), *items)
            )

    @rule(actor=people, data=st.data())
    def link(self, actor: Actor, data: Any) -> None:
        """What is concluded from a memory is come upon by who may read both, and named to nobody
        else.
        """
        if not self.ids:
            return
        origin = data.draw(st.sampled_from(sorted(self.ids)))
        if not self.may(actor, self.ids[origin]):
            return
        scope = actor.private_scope
        mark = self.marks.setdefault(scope, f"mark{len(self.marks)}x")
        try:
            made = self.tally.bind(actor).remember(
                f"concluded {len(self.ids)} {mark}", derived_from=[origin]
            )
        except (Denied, NotFound):
            return
        self.ids[made.id] = scope
        for other in (*(Actor(user=key) for key in KEYS[:4]), actor):
            explore = self.tally.bind(other).explore
            told = self.tried(other, partial(explore, origin, depth=2))
            self.check(other, told)
            assert (made.id in told) == (
                self.may(other, scope) and self.may(other, self.ids[origin])
            )

    @rule(user=keys, label=keys, other=keys)
    def keep_an_item(self, user: str, label: str, other: str) -> None:
        """An item of a store reaches a call for its namespace, of its own user."""
        bound = self.tally.bind(Actor(user=user))
        text = self.items.setdefault((user, label), f"item{len(self.items)}x")
        bound.items.put([Put(("notes", label), "key", {"text": f"egret {text}"})])
        for named in (None, label, other):
            namespace = None if named is None else ("notes", named)
            shown = whole(bound.recall("egret", limit=100, namespace=namespace))
            for (owner, beneath), mark in self.items.items():
                assert (mark in shown) == (owner == user and beneath == named), (named, shown)
        for tool, arguments in (("memory_search", {"query": "egret"}), ("memory_list", {})):
            assert "egret" not in whole(MEMORY_TOOLS[tool].function(bound, **arguments))

    @rule(configurable=st.none() | keys, context=st.none() | keys, metadata=st.none() | keys)
    def call_through_a_runtime(
        self, configurable: str | None, context: str | None, metadata: str | None
    ) -> None:
        """Who acts in a call of a runtime is whom it names, and where it names two, nobody."""
        binder = Binder(self.tally, runtime="langgraph", piece="TallySaver")
        call = binder.call(
            configurable={} if configurable is None else {"actor": Actor(user=configurable)},
            context=None if context is None else {"user_id": context},
            metadata={} if metadata is None else {"user_id": metadata},
        )
        names = {configurable, context, metadata} - {None}
        shown = self.tried(ROOT, lambda: binder.bound(call).recall("heron", limit=100))
        if len(names) > 1:
            assert "names another actor" in shown
        elif not names:
            assert "missing_actor" in shown or shown.startswith("Recalled([]")
        else:
            [user] = names
            assert user is not None
            self.check(Actor(user=user), shown)
            actor = binder.bound(call).actor
            assert (actor.user, actor.role, actor.agent) == (user, "member", None)

    @rule(actor=people, scope=places)
    def record(self, actor: Actor, scope: Scope) -> None:
        bound = self.tally.bind(actor, scope=scope)
        try:
            with bound.run("agent") as run, run.step("model_call") as step:
                bound.compile(list(bound.recall("heron", limit=3)), budget=2_000, query="heron")
        except Denied:
            return
        self.steps[step.id] = scope

    @rule(actor=people, place=places, data=st.data())
    def replay(self, actor: Actor, place: Scope, data: Any) -> None:
        """A replay is shown to nobody who may not see the step, and stays in its scope."""
        if not self.steps:
            return
        step = data.draw(st.sampled_from(sorted(self.steps)))
        bound = self.tally.bind(actor, scope=place)
        shown = self.tried(actor, lambda: bound.recordings.replay(step))
        self.check(actor, shown)
        if self.may(actor, self.steps[step]):
            return
        assert shown.startswith(("NotFound", "Denied")), shown
        for call in (
            lambda: bound.recordings.entries(step),
            lambda: bound.recordings.trace(step, "heron"),
            lambda: bound.recordings.tape(step),
        ):
            assert self.tried(actor, call).startswith("NotFound")

    @rule(actor=people, scope=places)
    def ask_for_approval(self, actor: Actor, scope: Scope) -> None:
        mark = self.marks.setdefault(scope, f"mark{len(self.marks)}x")
        bound = self.tally.bind(actor, scope=scope)
        try:
            bound.check_tool_call("shell", {"command": f"rm {mark}"})
        except ApprovalRequired as error:
            self.approvals[error.approvals[0].id] = scope
        except TallystickError:
            return

    @rule(actor=people, place=places, data=st.data())
    def decide(self, actor: Actor, place: Scope, data: Any) -> None:
        """Nobody sees or decides what waits in the scope of others, and no agent decides at all."""
        if not self.approvals:
            return
        approval = data.draw(st.sampled_from(sorted(self.approvals)))
        scope = self.approvals[approval]
        bound = self.tally.bind(actor, scope=place)
        for call in (
            lambda: bound.approvals.list(state=None),
            lambda: bound.approvals.get(approval),
            lambda: bound.approvals.approve(approval, reason="r"),
            lambda: bound.approvals.deny(approval, reason="r"),
            lambda: bound.approvals.revoke(approval, reason="r"),
        ):
            self.check(actor, self.tried(actor, call))
        if self.may(actor, scope) and actor.agent is None:
            return
        decide = replace(bound, scope=scope).approvals.approve
        told = self.tried(actor, lambda: decide(approval, reason="r"))
        assert told.startswith(("NotFound", "Denied", "StateConflict")), told

    @rule(actor=people, data=st.data())
    def look_at_a_source(self, actor: Actor, data: Any) -> None:
        """A source of a scope of others is as absent as one that never was."""
        if not self.ids:
            return
        memory_id = data.draw(st.sampled_from(sorted(self.ids)))
        with services_of(self.tally).store.database.read() as connection:
            stored = memories.get(connection, memory_id)
        if stored is None or not stored.memory.sources or self.may(actor, self.ids[memory_id]):
            return
        source_id, absent = stored.memory.sources[0].source_id, str(uuid.uuid4())
        bound = self.tally.bind(actor)
        for look in (bound.source, bound.inspect):
            hidden = self.tried(actor, partial(look, source_id))
            assert hidden.replace(source_id, "") == self.tried(
                actor, partial(look, absent)
            ).replace(absent, "")

    @rule(key=keys, agent=st.sampled_from(["x", "%"]), project=keys)
    def keep_a_diary(self, key: str, agent: str, project: str) -> None:
        writer = Actor(user=key, agent=agent, projects=frozenset({project}))
        self.remember(writer, Scope.diary(key, agent, project), 0)

    @rule(key=keys)
    def keep_to_oneself(self, key: str) -> None:
        self.remember(
            Actor(user=key, agent="x", projects=frozenset({key})), Scope(kind="private", key=key), 1
        )
        self.remember(
            Actor(user=key, agent="x", projects=frozenset({key})), Scope(kind="project", key=key), 1
        )

    @rule(actor=people, other=people, scope=places)
    def preview(self, actor: Actor, other: Actor, scope: Scope) -> None:
        told = self.tally.bind(actor).spaces.preview_access(actor=other, scopes=[scope])
        self.check(actor, whole(told))
        if not self.may(actor, scope):
            assert [(one.visible, one.denied, one.hidden) for one in told.scopes] == [((), (), {})]

    @invariant()
    def spaces_are_listed_to_their_members_only(self) -> None:
        if not hasattr(self, "tally"):
            return
        for key in KEYS[:3]:
            actor = Actor(user=key)
            listed = {space.scope for space in self.tally.bind(actor).spaces.list()}
            assert listed == {
                Scope(kind="team", key=team)
                for team, members in self.teams.items()
                if key in members
            }


TestIsolation = Isolation.TestCase
TestIsolation.settings = settings(max_examples=4, stateful_step_count=25)


class IsolationOnPostgres(Isolation):
    """The same, where no file system and no pattern of SQLite stands between the scopes."""

    url = ""

    def opened(self) -> Tally:
        return Tally.open(
            self.url,
            schema=f"t{uuid.uuid4().hex}",
            owner=ROOT,
            rules=[ASK],
            background=False,
            clock=StepClock(),
        )


@pytest.mark.soak
@pytest.mark.postgres
def test_isolation_holds_on_postgres(postgres_url: str) -> None:
    IsolationOnPostgres.url = postgres_url
    run_state_machine_as_test(
        IsolationOnPostgres, settings=settings(max_examples=2, stateful_step_count=20)
    )
