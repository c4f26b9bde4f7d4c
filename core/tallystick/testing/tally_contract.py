"""TallyContract: the behaviour of a tally, written once and given each database; and the effects of
some work, so that two ways to do it can be compared.

Subclass it in a test module whose name pytest collects, with a fixture `open_tally`, a function
that opens a fresh store at first and the same store afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.errors import (
    Denied,
    IdempotencyMismatch,
    InsideTransaction,
    InvalidInput,
    NotFound,
    PositionTaken,
    StateConflict,
    VersionConflict,
)
from tallystick.records import Actor, ContextItem, Foil
from tallystick.storage.engine.writes import RUNS
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing.fakes import ScriptedCall

_UNSTABLE = {
    "commitment",
    "source",
    "step_id",
    "run_id",
    "started_at",
    "ended_at",
    "audit_id",
    "previous",
    "digest",
}


def effects(tally: Tally) -> list[dict[str, Any]]:
    """Return the whole journal in order, without surfaces and times, ids replaced by their order of
    appearance.

    Two adapters that have the same effects give equal lists: same events, same reasons, same
    receipts.
    """
    seen: dict[str, str] = {}
    with services_of(tally).store.database.read() as connection:
        entries = journal.all_entries(connection)
    return [
        {
            "stream": entry.stream.split(":", 1)[0],
            "event": entry.event,
            "actor": entry.actor,
            "reason": entry.reason,
            "subject": _number_identity(entry.subject_id, seen),
            "details": _stable(entry.details, seen),
        }
        for entry in entries
    ]


def _number_identity(identity: str | None, seen: dict[str, str]) -> str | None:
    return None if identity is None else seen.setdefault(identity, f"#{len(seen) + 1}")


def _stable(value: Any, seen: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _stable(inner, seen) for name, inner in value.items() if name not in _UNSTABLE
        }
    if isinstance(value, list):
        return [_stable(inner, seen) for inner in value]
    if isinstance(value, str) and value in seen:
        return seen[value]
    return value


OpenTally = Callable[..., Tally]

ALICE = Actor(user="alice", agent="coder", projects={"apollo"})
BOB = Actor(user="bob", projects={"apollo"})
EVE = Actor(user="eve")


def _apollo(tally: Tally, actor: Actor = ALICE) -> BoundTally:
    return tally.bind(actor, scope="project:apollo")


class TallyContract:
    """The behaviour of every tally, on every database."""

    def test_what_was_remembered_is_recalled_with_its_source_and_reason(
        self, open_tally: OpenTally
    ) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            stored = alice.remember(
                "We indent with tabs.", kind="preference", speaker="Alice", tags=["style"]
            )

            [hit] = alice.recall("how do we indent?")

            assert (hit.memory.id, hit.memory.content, hit.memory.speaker) == (
                stored.id,
                "We indent with tabs.",
                "Alice",
            )
            assert (hit.source_ids, hit.access_reason, str(hit.visible_to)) == (
                (stored.source_id,),
                "allowed_project",
                "project:apollo",
            )

    def test_memory_outlives_the_process_that_made_it(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            _apollo(tally).remember("The build runs on Tuesdays.")
        with open_tally() as tally:
            assert [hit.memory.content for hit in _apollo(tally).recall("build")] == [
                "The build runs on Tuesdays."
            ]

    def test_another_scope_reads_nothing_and_learns_nothing(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            stored = tally.bind(ALICE).remember("The password hint is heron.")

            assert list(tally.bind(BOB).recall("password hint heron")) == []
            with pytest.raises(Denied) as refused:
                _apollo(tally, EVE).recall("password")
            assert refused.value.reason == "unverified_membership"
            with pytest.raises(NotFound) as hidden:
                tally.bind(BOB).get(stored.id)
            with pytest.raises(NotFound) as absent:
                tally.bind(BOB).get("no-such-memory")
            assert str(hidden.value).replace(stored.id, "?") == str(absent.value).replace(
                "no-such-memory", "?"
            )

    def test_scopes_without_a_space_stay_closed(self, open_tally: OpenTally) -> None:
        closed = {
            "team:a": "scope_disabled",
            "organization:a": "scope_disabled",
            "shared:a": "scope_disabled",
            "public": "scope_disabled",
            "delegated:a": "delegation_required",
            "private:bob": "principal_mismatch",
            "project:zeus": "unverified_membership",
        }
        with open_tally() as tally:
            for scope, reason in closed.items():
                with pytest.raises(Denied) as refused:
                    tally.bind(ALICE, scope=scope).remember("x")
                assert refused.value.reason == reason
                assert refused.value.decision.audit_id is not None

    def test_other_scopes_never_change_a_score(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            alice.remember_many(
                ["tabs are how we indent", "the heron stands in the reeds", "indent the reeds"]
            )
            before = [
                (hit.memory.content, hit.score, hit.signals) for hit in alice.recall("indent tabs")
            ]
            tally.bind(BOB).remember_many(
                [f"indent tabs reeds number {number}" for number in range(40)]
            )

            assert [
                (hit.memory.content, hit.score, hit.signals) for hit in alice.recall("indent tabs")
            ] == before

    def test_the_same_statement_twice_is_one_memory_with_two_sources(
        self, open_tally: OpenTally
    ) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            first = alice.remember("We ship on Fridays.")
            second = alice.remember("We ship on Fridays.")

            assert (second.id, second.status) == (first.id, "duplicate")
            [hit] = alice.recall("ship")
            assert hit.source_ids == (first.source_id, second.source_id)

    def test_two_equal_turns_are_two_turns(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            turns = [alice.remember("yes", kind="turn", conversation="c1") for _ in range(2)]

            assert len({turn.id for turn in turns}) == 2
            assert [memory.position for memory in alice.memories(conversation="c1")] == [1, 0]
            again = alice.remember("yes", kind="turn", conversation="c1", position=1)
            assert (again.id, again.status) == (turns[1].id, "duplicate")
            with pytest.raises(PositionTaken):
                alice.remember("no", kind="turn", conversation="c1", position=1)

    def test_a_batch_is_all_or_none(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            alice.remember("taken", kind="turn", conversation="c1", position=0)
            with pytest.raises(PositionTaken):
                alice.remember_many(
                    [
                        "stays out",
                        {"content": "other", "kind": "turn", "conversation": "c1", "position": 0},
                    ]
                )
            assert [memory.content for memory in alice.memories()] == ["taken"]

    def test_an_idempotency_key_gives_the_first_answer_again(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            first = alice.remember("Once.", idempotency_key="k")
            written = len(effects(tally))

            assert alice.remember("Once.", idempotency_key="k") == first
            assert len(effects(tally)) == written
            with pytest.raises(IdempotencyMismatch):
                alice.remember("Twice.", idempotency_key="k")

    def test_modify_keeps_the_old_version_and_refuses_a_stale_one(
        self, open_tally: OpenTally
    ) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            stored = alice.remember("We indent with tabs.")

            changed = alice.modify(
                stored.id, content="We indent with spaces.", reason="voted", if_version=1
            )

            assert (changed.status, changed.version) == ("changed", 2)
            with pytest.raises(VersionConflict) as stale:
                alice.modify(stored.id, content="x", reason="late", if_version=1)
            assert (stale.value.expected, stale.value.actual) == (1, 2)
            assert [hit.memory.content for hit in alice.recall("indent")] == [
                "We indent with spaces."
            ]
            assert [hit.memory.content for hit in alice.recall("tabs")] in (
                [],
                ["We indent with spaces."],
            )
            add, update = alice.history(stored.id)
            assert (add.event, add.new["content"]) == ("ADD", "We indent with tabs.")
            assert (update.event, update.reason, update.old, update.new) == (
                "UPDATE",
                "voted",
                {"content": "We indent with tabs."},
                {"content": "We indent with spaces."},
            )

    def test_forget_leaves_every_recall_and_recover_brings_it_back(
        self, open_tally: OpenTally
    ) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            stored = alice.remember("The heron nests in March.")

            forgotten = alice.forget(stored.id, reason="not ours")

            assert forgotten.recoverable_until is not None
            assert list(alice.recall("heron March")) == []
            assert alice.memories() == []
            with pytest.raises(NotFound):
                alice.get(stored.id)
            assert alice.forget(stored.id, reason="again").status == "unchanged"
            assert alice.recover(stored.id, reason="it was ours").status == "changed"
            assert [hit.memory.id for hit in alice.recall("heron")] == [stored.id]
            assert [entry.event for entry in alice.history(stored.id)] == [
                "ADD",
                "FORGET",
                "RECOVER",
            ]

    def test_remembering_again_never_resurrects_what_was_forgotten(
        self, open_tally: OpenTally
    ) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            first = alice.remember("Say it again.")
            alice.forget(first.id, reason="stale")
            second = alice.remember("Say it again.")

            assert (second.status, second.id != first.id) == ("created", True)
            with pytest.raises(StateConflict):
                alice.recover(first.id, reason="both?")

    def test_a_pinned_memory_is_forgotten_by_an_operator_with_force_and_a_preview_only(
        self, open_tally: OpenTally
    ) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            stored = alice.remember("Never push on Friday.", pinned=True)
            with pytest.raises(StateConflict) as refused:
                alice.forget(stored.id, reason="tidy", force=True)
            assert refused.value.reason == "pinned_memory"
            operator = _apollo(tally, Actor(user="ops", projects={"apollo"}, role="operator"))
            with pytest.raises(Denied) as unseen:
                operator.forget(stored.id, reason="asked", force=True)
            assert unseen.value.reason == "confirm_token_required"
            preview = operator.corrections.make(stored.id, "delete", reason="asked", force=True)
            forgotten = operator.forget(
                stored.id, reason="asked", force=True, confirm_token=preview.confirm_token
            )
            assert forgotten.state == "deleted"
            assert forgotten.recoverable_until is not None

    def test_bad_input_is_refused_and_stores_nothing(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            for bad in (
                {"content": "  "},
                {"content": "x", "kind": "nonsense"},
                {"content": "x", "position": 1},
                {"content": "x", "importance": 101},
                {"content": "x", "unknown": 1},
            ):
                with pytest.raises(InvalidInput):
                    alice.remember_many([bad])
            with pytest.raises(InvalidInput):
                alice.modify(alice.remember("fine").id, content="y", reason=" ")
            assert [memory.content for memory in alice.memories()] == ["fine"]

    def test_any_text_comes_back_as_it_was(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            for text in (
                "a\x00b",
                "half \ud800 pair",
                "日本語のテキスト",
                "tab\tand\r\nline",
                "' OR 1=1 --",
                "%_*\"'",
            ):
                stored = alice.remember(text)
                assert alice.get(stored.id).content == text

    def test_no_embedder_runs_inside_a_write(self, open_tally: OpenTally) -> None:
        with open_tally() as tally, pytest.raises(InsideTransaction):
            services_of(tally).store.database.write(
                lambda tx: services_of(tally).embedder.embed(["x"]), name="test", writes=RUNS
            )

    def test_many_threads_lose_nothing(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(lambda number: alice.remember(f"fact number {number}"), range(80)))
            assert {memory.content for memory in alice.memories(limit=100)} == {
                f"fact number {n}" for n in range(80)
            }

    def test_a_failing_write_leaves_its_neighbours_alone(self, open_tally: OpenTally) -> None:
        """Units that share a commit fail one by one."""
        with open_tally() as tally:
            alice = _apollo(tally)

            def attempt(number: int) -> str:
                try:
                    alice.remember(
                        f"turn {number}", kind="turn", conversation="c", position=number // 2
                    )
                except PositionTaken:
                    return "refused"
                return "stored"

            with ThreadPoolExecutor(8) as threads:
                outcomes = list(threads.map(attempt, range(40)))
            assert (outcomes.count("stored"), outcomes.count("refused")) == (20, 20)
            assert len(alice.memories(conversation="c", limit=100)) == 20

    def test_a_run_answers_for_every_step(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            with alice.run("coder", domain="coding", goal="fix it") as run:
                with run.step("model_call", name="plan") as step:
                    alice.recall("plan")
                    compiled = alice.compile(
                        [ContextItem(id="ask", kind="user_msg", content="fix the bug")],
                        budget=1_000,
                    )
                    step.record("request", {"model": "m", "prompt": "fix the bug"})
                    step.record("response", {"text": "done"})
                with pytest.raises(ZeroDivisionError), run.step("tool_call", name="divide"):
                    _ = 1 // 0
            foil = run.end()

            recordings = alice.recordings
            receipts = recordings.receipts(run.id)
            assert [(receipt.step_kind, receipt.status) for receipt in receipts] == [
                ("model_call", "completed"),
                ("tool_call", "failed"),
            ]
            assert [entry.kind for entry in receipts[0].entries] == [
                "memory_read",
                "compile_request",
                "compiled",
                "request",
                "response",
            ]
            assert receipts[0].token_method == compiled.token_method
            answer = recordings.verify(run.id, foil=foil)
            assert (answer.ok, answer.foil_matches, answer.problems) == (True, True, ())

    def test_a_foil_of_another_run_does_not_match(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            with alice.run("coder") as run, run.step("other"):
                pass
            answer = alice.recordings.verify(
                run.id, foil=Foil(run_id=run.id, count=2, head="sha256:" + "0" * 64)
            )
            assert (answer.ok, answer.foil_matches) == (False, False)

    def test_an_exact_replay_asks_the_model_what_it_was_asked(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            with alice.run("coder") as run, run.step("model_call") as step:
                alice.compile(
                    [ContextItem(id="ask", kind="user_msg", content="fix the bug")], budget=1_000
                )
                step.record("request", {"messages": ["fix the bug"], "temperature": 0.5})
                step.record("response", {"text": "done"})
            model = ScriptedCall([{"text": "done"}, {"text": "different"}])

            same, other = (alice.recordings.preview_replay(step.id, call=model) for _ in range(2))

            assert model.requests == [{"messages": ["fix the bug"], "temperature": 0.5}] * 2
            assert (same.fidelity, same.request_matches, same.response_matches, same.warnings) == (
                "exact",
                True,
                True,
                (),
            )
            assert other.response_matches is False

    def test_a_mutated_replay_shows_what_leaves_the_context(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            items = [
                ContextItem(id="ask", kind="user_msg", content="where does the heron nest?"),
                ContextItem(
                    id="doc", kind="retrieval_doc", content="The heron nests in the reeds. " * 20
                ),
            ]
            with alice.run("coder") as run, run.step("model_call") as step:
                alice.compile(items, budget=1_000)
                step.record("request", {"messages": []})

            result = alice.recordings.preview_replay(step.id, context_mutations={"doc": None})

            assert result.diff is not None
            assert [change.item_id for change in result.diff.removed] == ["doc"]
            assert result.request_matches is None

    def test_secrets_are_gone_before_anything_is_stored(self, open_tally: OpenTally) -> None:
        secret = "ghp_" + "a1B2" * 9
        with open_tally() as tally:
            alice = _apollo(tally)
            with alice.run("coder") as run, run.step("tool_call") as step:
                step.record("tool_call", {"arguments": {"token": secret}})
            [entry] = alice.recordings.entries(step.id)
            assert secret not in str(entry.payload)
            assert sum(entry.redactions.values()) == 1
            assert alice.recordings.verify(run.id).ok

    def test_metadata_only_keeps_no_payload_and_still_verifies(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            alice = _apollo(tally)
            with (
                alice.run("coder", retention="metadata_only") as run,
                run.step("model_call") as step,
            ):
                step.record("request", {"messages": ["private"]}, summary={"messages": 1})
            [entry] = alice.recordings.entries(step.id)
            assert (entry.payload, entry.payload_state) == (None, "not_kept")
            answer = alice.recordings.verify(run.id)
            assert (answer.ok, answer.payloads_absent) == (True, 1)

    def test_checkpoints_belong_to_their_scope(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            mine, theirs = tally.bind(ALICE).threads, tally.bind(BOB).threads
            mine.put(
                "t",
                NewCheckpoint(
                    namespace="",
                    id="1",
                    parent_id=None,
                    metadata={"step": 1},
                    body=Leaf("json", b"{}"),
                    values={"messages": Leaf("json", b"[1]")},
                ),
            )

            assert theirs.get("t", namespace="") is None
            theirs.delete("t")
            checkpoint = mine.get("t", namespace="")
            assert checkpoint is not None
            assert (checkpoint.summary.id, checkpoint.values) == (
                "1",
                {"messages": Leaf("json", b"[1]")},
            )
            mine.delete("t")
            assert mine.get("t", namespace="") is None

    def test_a_tally_that_is_closed_says_so(self, open_tally: OpenTally) -> None:
        tally = open_tally()
        alice = _apollo(tally)
        tally.close()
        tally.close()
        with pytest.raises(Exception, match="closed") as failure:
            alice.remember("too late")
        assert type(failure.value).__name__ == "ClosedTally"
