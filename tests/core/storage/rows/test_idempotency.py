"""Every call that changes something takes an idempotency key: called again it gives the first
answer, and no more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from tests.scripted import concluder

from tallystick.access import AccessTokens
from tallystick.errors import ApprovalRequired, IdempotencyMismatch
from tallystick.memory import Items, Put
from tallystick.memory.working import WorkingMemory
from tallystick.records import AccessToken, Actor, JobState, PolicyRule, SpaceMember
from tallystick.settings import Settings
from tallystick.storage import Connection
from tallystick.storage.engine.writes import JOBS, Writes
from tallystick.storage.rows import jobs, journal
from tallystick.tally import (
    BoundApprovals,
    BoundSpaces,
    BoundTally,
    Corrections,
    Jobs,
    Operator,
    Reviews,
    Tally,
)
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick_comparing import Comparing
from tallystick_graph import Graph
from tallystick_ingest import Ingest
from tallystick_learning import Learning
from tallystick_steward import Steward
from tallystick_work import Work

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
ROOT = Actor(user="root", role="operator")

CHANGES: dict[type, set[str]] = {
    BoundTally: {
        "remember",
        "remember_many",
        "modify",
        "forget",
        "recover",
        "keep_turn",
        "keep_tool_output",
    },
    Operator: {
        "import_from",
        "erase",
        "erase_user",
        "erase_recorded",
        "purge",
        "freeze",
        "thaw",
        "choose_windows",
    },
    Corrections: {"make", "modify_many", "forget_matching", "promote", "share"},
    Reviews: {"decide"},
    Learning: set(),
    BoundApprovals: {"approve", "deny", "revoke"},
    Jobs: {"retry", "cancel"},
    BoundSpaces: {"create", "update"},
    AccessTokens: {"make", "rotate", "revoke"},
    WorkingMemory: {"set", "drop", "clear"},
    Items: {"put", "sweep"},
    Tally: set(),
}
"""Calls that change memory, or what the tally keeps of itself."""

OTHERS: dict[type, set[str]] = {
    BoundTally: {
        # Another view, or a part of this one.
        "on",
        "aio",
        "approvals",
        "corrections",
        "jobs",
        "reviews",
        "spaces",
        "tokens",
        "operator",
        "recordings",
        "items",
        "threads",
        "working",
        # Reads; an export is one, and a proof looks without changing what it looks at.
        "recall",
        "get",
        "memories",
        "inspect",
        "source",
        "explore",
        "pack",
        "wake",
        "history",
        "compile",
        "call_model",
        "stream_model",
        "working_set",
        # Recording: a run has its id, a step its place in the run.
        "run",
        "join_run",
        # A check is made for each call, and an action that waits is asked for once.
        "check_tool_call",
        "check_model_call",
    },
    Operator: {
        # An export reads, and a proof looks without changing what it looks at.
        "export",
        # Each backup is of its moment, in a new folder.
        "backup",
        "prove_unreachable",
        "prove_erased",
        "outbound_calls",
        # Mends what is derived; what is mended already is left alone.
        "doctor",
        "sizes",
        # Chroma is derived, and made anew as often as one likes.
        "rebuild_index",
        # What has its vector is not embedded again.
        "reembed",
    },
    Corrections: set(),
    Reviews: {"list", "get"},
    # What was proposed is not proposed again.
    Learning: {"aio", "reflect", "end_session"},
    # What is imported or added again is found to be there, and a state is entered once.
    Ingest: {name for name in vars(Ingest) if not name.startswith("_")},
    # What is linked already is not linked again.
    Work: {"aio", "list", "estimate", "prioritize", "cycles", "plan", "link_alike"},
    # What is kept apart already stays so.
    Graph: {"aio", "about", "communities", "aliases", "keep_apart"},
    # A repair rests before it is made again, a token confirms one state, a portion is left once.
    Steward: {name for name in vars(Steward) if not name.startswith("_")},
    # One comparison is open at a time, and is promoted or stopped once.
    Comparing: {"aio", "compare"},
    BoundApprovals: {"list", "get"},
    Jobs: {"list", "get"},
    BoundSpaces: {"get", "list", "preview_access", "preview_member"},
    AccessTokens: {"list"},
    WorkingMemory: {"get", "all", "list", "items", "pack_items", "run_id", "thread", "of", "shown"},
    Items: {"get", "find", "namespaces"},
    Tally: {
        "open",
        # Into a new place only; and a tally that was migrated has nothing more to migrate.
        "restore",
        "migrate",
        "close",
        "bind",
        "user",
        # Asks who sent a secret.
        "authenticate",
        # Listens.
        "on_alert",
        "location",
        "owner",
        "read_only",
        "settings",
        "recordings",
        "scopes",
        "now",
        "new_id",
        "count_tokens",
        "counter",
        "drop_caches",
        # Chroma is derived: these bring it to what the database says, as often as one likes.
        "drain",
        "worker",
        "reconcile_index",
        "keep_retention",
        "flush",
        "rules",
        "rule_over_tool_call",
    },
}
"""Everything else that is public. A new method belongs in one of the two tables."""


PARTS: dict[type, str] = {
    AccessTokens: "tokens.",
    BoundApprovals: "approvals.",
    BoundSpaces: "spaces.",
    Corrections: "corrections.",
    Jobs: "jobs.",
    Reviews: "reviews.",
}
CALLS = sorted(
    f"{PARTS.get(kind, '')}{name}" for kind, changes in CHANGES.items() for name in changes
)
"""The calls of `World`: every one that changes something."""


def test_every_public_call_is_known_to_change_something_or_not_to() -> None:
    for kind, changes in CHANGES.items():
        public = {
            name
            for name, value in inspect.getmembers(kind)
            if not name.startswith("_") and (callable(value) or isinstance(value, property))
        }
        fields = set(getattr(kind, "__dataclass_fields__", ()))
        assert public - fields == changes | OTHERS[kind], kind
        assert not changes & OTHERS[kind]


def test_every_call_that_changes_something_takes_a_key() -> None:
    lacking = [
        f"{kind.__name__}.{name}"
        for kind, changes in CHANGES.items()
        for name in sorted(changes)
        if "idempotency_key" not in inspect.signature(getattr(kind, name)).parameters
    ]
    assert lacking == []


class World:
    """A tally in which one call finds what it needs."""

    def __init__(self, tally: Tally, folder: Path, name: str) -> None:
        self.tally, self.folder, self.name = tally, folder, name
        self.mine, self.apollo, self.root = (
            tally.bind(ALICE),
            tally.bind(ALICE, scope="project:apollo"),
            tally.bind(ROOT),
        )
        self.kept = self.mine.remember(f"The heron of {name} nests in March.").id
        self.gone = self.mine.remember(f"The egret of {name} nests in June.").id
        self.mine.forget(self.gone, reason="r")
        self.run = self.mine.run("coder")
        with self.run.step("model_call") as step:
            step.record("request", {"prompt": "Mend it."})
        with self.run.step("tool_call") as self.tool_step:
            self.tool_step.record("tool_result", {"result": "It is mended."})
        self.run.end()

    @cached_property
    def leaver(self) -> str:
        """A user who has something here."""
        user = f"eve of {self.name}"
        self.tally.bind(Actor(user=user)).remember("The stork stays.")
        return user

    @cached_property
    def proposed(self) -> str:
        """The oldest proposal of the scope, which there is one of at least."""
        self.mine.remember("We decided to feed the heron at noon.", conversation="birds")
        Learning(self.mine).reflect(conversation="birds")
        return self.mine.reviews.list(states=())[0].id

    def confirmed(
        self, call: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Callable[[str, str], Any]:
        """The call with the token of a preview under that reason."""
        tokens: list[str | None] = []

        def run(key: str, reason: str) -> Any:
            if not tokens:
                tokens.append(call(*arguments, reason=reason, **options).confirm_token)
            done = {"mode": "apply"}
            return call(
                *arguments,
                reason=reason,
                confirm_token=tokens[0],
                idempotency_key=key,
                **done,
                **options,
            )

        return run

    def calls(self) -> dict[str, Callable[[str, str], Any]]:
        """Each call, given a key and something to tell two requests apart."""
        mine, root, kept = self.mine, self.root, self.kept
        team = [SpaceMember(principal_id="alice")]
        return {
            "remember": lambda k, v: mine.remember(f"note {v}", idempotency_key=k),
            "remember_many": lambda k, v: mine.remember_many(
                [f"note {v}", "and"], idempotency_key=k
            ),
            "modify": lambda k, v: mine.modify(kept, tags=(v,), reason="r", idempotency_key=k),
            "corrections.modify_many": lambda k, v: mine.corrections.modify_many(
                [
                    {"memory_id": kept, "reason": "r", "tags": (v,)},
                    {"memory_id": "nobody", "reason": v},
                ],
                idempotency_key=k,
            ),
            "forget": lambda k, v: mine.forget(kept, reason=v, idempotency_key=k),
            "corrections.forget_matching": self.confirmed(
                mine.corrections.forget_matching, f"heron {self.name}", threshold=0.9
            ),
            "recover": lambda k, v: mine.recover(
                self.gone, reason="r", if_version=2 if v == "a" else 3, idempotency_key=k
            ),
            "corrections.make": self.confirmed(mine.corrections.make, kept, "hide"),
            "corrections.promote": self.confirmed(mine.corrections.promote, kept, "project:apollo"),
            "corrections.share": self.confirmed(mine.corrections.share, kept, "project:apollo"),
            "erase": self.confirmed(root.operator.erase, kept),
            "erase_user": self.confirmed(root.operator.erase_user, self.leaver),
            "erase_recorded": lambda k, v: root.operator.erase_recorded(
                self.run.id, reason=v, mode="apply", idempotency_key=k
            ),
            "purge": lambda k, v: root.operator.purge(mode="apply", reason="r", idempotency_key=k),
            "freeze": lambda k, v: root.operator.freeze(reason=v, idempotency_key=k),
            "thaw": lambda k, v: root.operator.thaw(reason=v, idempotency_key=k),
            "choose_windows": lambda k, v: root.operator.choose_windows(
                journal_days=90 if v == "a" else 180, idempotency_key=k
            ),
            "jobs.retry": lambda k, v: root.jobs.retry(
                self.job(v, state="dead"), reason=v, idempotency_key=k
            ),
            "jobs.cancel": lambda k, v: root.jobs.cancel(
                self.job("c"), reason=v, idempotency_key=k
            ),
            "keep_tool_output": lambda k, v: mine.keep_tool_output(
                self.tool_step.id, reason=v, idempotency_key=k
            ),
            "keep_turn": lambda k, v: mine.keep_turn(
                self.run, user=v, assistant="yes", idempotency_key=k
            ),
            "reviews.decide": lambda k, v: mine.reviews.decide(
                self.proposed, "defer", reason=v, idempotency_key=k
            ),
            "approvals.approve": lambda k, v: mine.approvals.approve(
                self.first(), reason=v, idempotency_key=k
            ),
            "approvals.deny": lambda k, v: mine.approvals.deny(
                self.first(), reason=v, idempotency_key=k
            ),
            "approvals.revoke": lambda k, v: mine.approvals.revoke(
                self.granted(), reason=v, idempotency_key=k
            ),
            "import_from": self.imported,
            "spaces.create": lambda k, v: root.spaces.create(
                "team:birds", name=v, members=team, reason="r", idempotency_key=k
            ),
            "spaces.update": lambda k, v: self.space().update(
                "team:reeds", name=v, reason="r", idempotency_key=k
            ),
            "tokens.make": lambda k, v: mine.tokens.make(v, idempotency_key=k),
            "tokens.rotate": lambda k, v: mine.tokens.rotate(self.token(v), idempotency_key=k),
            "tokens.revoke": lambda k, v: mine.tokens.revoke(
                self.token("t"), reason=v, idempotency_key=k
            ),
            "set": lambda k, v: mine.working.of("r").set(
                "plan", {"a": v, "b": 1.5}, idempotency_key=k
            ),
            "drop": lambda k, v: self.working().drop(v, idempotency_key=k),
            "clear": lambda k, v: mine.working.of(f"r{v}").clear(idempotency_key=k),
            "put": lambda k, v: mine.items.put([Put(("n",), "k", {"v": v})], idempotency_key=k),
            "sweep": lambda k, v: mine.items.sweep(idempotency_key=k),
        }

    def job(self, name: str, *, state: JobState | None = None) -> str:
        """A job that is enqueued once, and ends in that state."""
        store = services_of(self.tally).store

        def unit(tx: Connection) -> str:
            job_id = jobs.enqueue(
                tx,
                kind="embed",
                subject_id=f"{name}-{state}",
                scope_id=None,
                actor=ALICE,
                job_id=store.ids.new(),
                at=store.clock.now(),
                restart=(),
            )
            if state is not None:
                leased = jobs.lease(tx, kind="embed", worker="w", most=1, seconds=60, job_id=job_id)
                jobs.end(tx, leased, state, code="test", text="")
            return job_id

        return store.database.write(unit, name="test", writes=Writes.of(JOBS))

    def token(self, name: str) -> str:
        made = {each: self.mine.tokens.make(each, idempotency_key=each).id for each in "abt"}
        return made[name]

    def waiting(self) -> str:
        with pytest.raises(ApprovalRequired) as blocked:
            self.mine.check_tool_call(self.name)
        return blocked.value.approvals[0].id

    def first(self) -> str:
        """The approval that was asked for first."""
        listed = [
            each for each in self.mine.approvals.list(state=None) if each.subject == self.name
        ]
        return listed[-1].id if listed else self.waiting()

    def granted(self) -> str:
        first = self.mine.approvals.get(self.first())
        if first.state == "pending":
            self.mine.approvals.approve(first.id, reason="r")
        return first.id

    def space(self) -> BoundSpaces:
        if not any(str(space.scope) == "team:reeds" for space in self.root.spaces.list()):
            self.root.spaces.create("team:reeds", name="Reeds", reason="r")
        return self.root.spaces

    def working(self) -> WorkingMemory:
        working: WorkingMemory = self.mine.working.of("r")
        working.set("a", 1, idempotency_key="made once")
        return working

    def imported(self, key: str, value: str) -> Any:
        with Tally.open(self.folder / "other", background=False) as other:
            if value == "a":
                if not (self.folder / "out-a").exists():
                    self.mine.operator.export(self.folder / "out-a")
                return other.bind(ROOT).operator.import_from(
                    self.folder / "out-a", idempotency_key=key
                )
            self.apollo.operator.export(self.folder / "out-b")
            return other.bind(ROOT).operator.import_from(self.folder / "out-b", idempotency_key=key)


_NO_ARGUMENTS = {"purge", "sweep"}


def test_a_call_made_twice_under_one_key_answers_alike_and_changes_nothing(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    asking = PolicyRule(id="ask", name="Ask", effect="require_approval", applies_to="tool_call")
    with open_sqlite(
        clock=StepClock(),
        rules=[asking],
        settings=Settings(reflection="review"),
        learning_model=concluder(),
    ) as tally:

        def entries() -> list[str]:
            database = services_of(tally).store.database
            database.flush()  # what reflection recorded waits for nobody
            with database.read() as connection:
                events = [one.event for one in journal.all_entries(connection)]
            return [event for event in events if event != "scope.export"]

        for name in CALLS:
            call = World(tally, tmp_path, name).calls()[name]
            first = call("key", "a")
            if isinstance(first, AccessToken):
                first = first.replace(secret=None)  # which is told once
            tally.drain()  # reflection writes by itself
            before = entries()
            assert call("key", "a") == first, name
            assert entries() == before, name
            if name not in _NO_ARGUMENTS:
                with pytest.raises(IdempotencyMismatch):
                    call("key", "b")
                assert entries() == before, name
            if name == "freeze":
                tally.bind(ROOT).operator.thaw(reason="for the others")


def test_a_batch_that_was_cut_off_goes_on_where_it_was(
    open_tally: OpenTally, monkeypatch: Any
) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        ids = [mine.remember(f"note {number}").id for number in range(3)]
        wanted = [{"memory_id": one, "reason": "r", "tags": ("t",)} for one in ids]
        whole = BoundTally.modify

        def dies(self: BoundTally, memory_id: str, **options: Any) -> Any:
            if memory_id == ids[1]:
                raise KeyboardInterrupt
            return whole(self, memory_id, **options)

        monkeypatch.setattr(BoundTally, "modify", dies)
        with pytest.raises(KeyboardInterrupt):
            mine.corrections.modify_many(wanted, idempotency_key="k")
        monkeypatch.setattr(BoundTally, "modify", whole)

        done = mine.corrections.modify_many(wanted, idempotency_key="k")

        assert [one.change.version for one in done if one.change] == [2, 2, 2]
        assert mine.corrections.modify_many(wanted, idempotency_key="k") == done
        assert [memory.version for memory in mine.memories()] == [2, 2, 2]


def test_a_second_try_in_another_step_is_the_same_request(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        answers = []
        for _ in range(2):
            with mine.run("coder") as run, run.step("tool_call"):
                answers.append(mine.remember("Once.", idempotency_key="call-1"))
        assert answers[0] == answers[1]


def test_a_call_that_is_sent_again_while_the_first_is_under_way_gets_its_answer(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine, operator = tally.bind(ALICE), tally.bind(ROOT).operator
        corrections = mine.corrections
        first, second, third, _ = (
            mine.remember(f"The heron nests at pier {n}.", tags=["pier"] * (n == 3)).id
            for n in range(4)
        )
        hidden = corrections.make(first, "hide", reason="r").confirm_token
        shared = corrections.share(second, "project:apollo", reason="r").confirm_token
        gone = corrections.forget_matching(tags=["pier"], reason="r").confirm_token
        key: dict[str, Any] = {"mode": "apply", "reason": "r", "idempotency_key": "k"}
        items = [{"memory_id": third, "reason": "r", "tags": ["kept"]}]
        calls: list[Callable[[], Any]] = [
            lambda: corrections.make(first, "hide", confirm_token=hidden, **key),
            lambda: corrections.share(second, "project:apollo", confirm_token=shared, **key),
            lambda: corrections.forget_matching(tags=["pier"], confirm_token=gone, **key),
            lambda: corrections.modify_many(items, idempotency_key="k" * 1_000),
            lambda: operator.purge(**key),
        ]
        with ThreadPoolExecutor(6) as threads:
            for call in calls:
                answers = [each.result() for each in [threads.submit(call) for _ in range(6)]]
                assert all(answer == answers[0] for answer in answers)
