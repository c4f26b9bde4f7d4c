"""Nothing that a narrow scope holds reaches the readers of a wider one, unless it is promoted or
shared with a preview.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.access import widens
from tallystick.errors import Denied
from tallystick.records import Actor, Scope, SpaceMember
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
BOB = Actor(user="bob", projects={"apollo"})
CODER = Actor(user="alice", agent="coder", projects={"apollo"}, delegations={"alice/review"})
ROOT = Actor(user="root", role="operator")
SALARY = "The salary of Ada is seven thousand."


def _recorded_text(tally: Tally, actor: Actor, run_id: str) -> str:
    """Everything that an actor reads in the steps of a run."""
    bound = tally.bind(actor)
    entries = [
        entry.dumps()
        for step in bound.recordings.steps(run_id)
        for entry in bound.recordings.entries(step.step_id)
    ]
    return "\n".join([bound.recordings.run(run_id).dumps(), *entries])


def _refusals(tally: Tally) -> list[str | None]:
    with services_of(tally).store.database.read() as connection:
        return [
            entry.reason
            for entry in journal.all_entries(connection)
            if entry.event == "access.denied"
        ]


def _private_step(mine: BoundTally) -> str:
    with mine.run("coder", goal=SALARY) as run:
        with run.step("model_call") as step:
            step.record("request", {"prompt": SALARY})
            step.record("response", {"answer": "Noted."})
        return step.id


def test_a_replay_stays_in_the_scope_of_its_step(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        step_id = _private_step(tally.bind(ALICE))

        result = tally.bind(ALICE, scope="project:apollo").recordings.replay(step_id)

        assert result.run_id is not None
        assert tally.bind(ALICE).recordings.run(result.run_id).scope == Scope.parse("private:alice")
        assert tally.bind(BOB, scope="project:apollo").recordings.runs() == []


def test_a_compile_that_a_wider_run_would_record_is_refused(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine, apollo = tally.bind(ALICE), tally.bind(ALICE, scope="project:apollo")
        mine.remember(SALARY)
        apollo.remember("The salary talks are in May.")
        hits = apollo.recall("salary", scopes=["private:alice", "project:apollo"])
        assert {str(hit.memory.scope) for hit in hits} == {"private:alice", "project:apollo"}

        assert len(apollo.compile(hits, budget=500).selected_items) == 2
        with apollo.run("coder") as run, run.step("model_call"):
            with pytest.raises(Denied) as refused:
                apollo.compile(hits, budget=500)
            apollo.compile([hit for hit in hits if hit.memory.scope == apollo.scope], budget=500)
        with mine.run("coder") as own, own.step("model_call"):
            mine.compile(hits, budget=500)

        assert refused.value.reason == "scope_crossing_requires_promotion"
        assert "promote or share" in str(refused.value)
        assert "narrower scope" in str(refused.value)
        assert refused.value.decision.audit_id is not None
        assert _refusals(tally) == ["scope_crossing_requires_promotion"]
        assert SALARY not in _recorded_text(tally, BOB, run.id)
        assert SALARY in _recorded_text(tally, ALICE, own.id)


def test_a_conclusion_has_no_more_readers_than_what_it_was_drawn_from(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine, apollo = tally.bind(ALICE), tally.bind(ALICE, scope="project:apollo")
        private = mine.remember(SALARY)
        shared = apollo.remember("The salary talks are in May.")

        with pytest.raises(Denied) as refused:
            apollo.remember("Ada earns most.", derived_from=[shared.id, private.id])
        narrower = mine.remember("May is when I ask.", derived_from=[shared.id, private.id])

        assert refused.value.reason == "scope_crossing_requires_promotion"
        assert "promote or share it from there" in str(refused.value)
        assert narrower.status == "created"
        assert [memory.content for memory in apollo.memories()] == ["The salary talks are in May."]


def test_a_call_of_a_narrower_view_leaves_ids_and_no_text_in_a_wider_run(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine, apollo = tally.bind(ALICE), tally.bind(ALICE, scope="project:apollo")
        with apollo.run("coder") as run, run.step("tool_call"):
            kept = mine.remember(SALARY)
            mine.modify(kept.id, content=f"{SALARY} More soon.", reason="news")
            apollo.explore("private:alice")
        seen = _recorded_text(tally, BOB, run.id)

        assert "seven thousand" not in seen
        assert kept.id in seen


@pytest.mark.parametrize(
    ("origin", "into", "wider"),
    [
        ("private:alice", "project:apollo", True),
        ("project:apollo", "private:alice", False),
        ("project:apollo", "project:hermes", True),
        ("private:alice", "diary:alice/coder/apollo", False),
        ("diary:alice/coder/apollo", "private:alice", True),
        ("diary:alice/coder/apollo", "project:apollo", True),
        ("private:alice", "delegated:alice/review", True),
        ("delegated:alice/review", "private:alice", False),
        ("team:red", "project:apollo", True),
        ("project:apollo", "team:red", True),
        ("team:red", "team:blue", False),
        ("team:blue", "team:red", True),
        ("public", "team:red", False),
        ("team:red", "public", True),
    ],
)
def test_text_moves_only_where_each_reader_could_read_it_before(
    open_sqlite: OpenTally, origin: str, into: str, wider: bool
) -> None:
    with open_sqlite() as tally:
        spaces = tally.bind(ROOT).spaces
        members = [SpaceMember(principal_id=name) for name in ("alice", "bob")]
        spaces.create("team:red", name="Red", reason="r", members=members)
        spaces.create("team:blue", name="Blue", reason="r", members=members[:1])
        everybody = SpaceMember(principal_type="everyone")
        spaces.create("public", name="All", reason="r", members=[everybody])
        tally.bind(ALICE).spaces.create(
            "delegated:alice/review",
            name="Review",
            reason="r",
            members=[SpaceMember(principal_type="agent", principal_id="coder", role="writer")],
        )
        services = services_of(tally)
        with services.store.database.read() as connection:
            found = widens(connection, services.gate, CODER, Scope.parse(origin), Scope.parse(into))
        assert found is wider


def test_who_was_a_reader_of_the_origin_is_none_after_the_membership_has_ended(
    open_sqlite: OpenTally,
) -> None:
    clock = StepClock()
    with open_sqlite(clock=clock) as tally:
        alice, bob = (
            SpaceMember(principal_id="alice", role="writer"),
            SpaceMember(principal_id="bob"),
        )
        until = bob.replace(expires_at=clock.now() + 3_600 * 1_000_000)
        spaces = tally.bind(ROOT).spaces
        spaces.create("team:red", name="Red", reason="r", members=[alice, until])
        spaces.create("team:blue", name="Blue", reason="r", members=[alice, bob])
        source = tally.bind(ALICE, scope="team:red").remember("The harbour opens in May.")
        blue = tally.bind(ALICE, scope="team:blue")
        blue.remember("Boats may sail from May.", derived_from=[source.id])

        clock.advance(seconds=3_700)
        with pytest.raises(Denied) as refused:
            blue.remember("The harbour is shut in April.", derived_from=[source.id])

        assert refused.value.reason == "scope_crossing_requires_promotion"


def test_a_crossing_is_previewed_with_what_its_readers_will_see(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine, apollo = tally.bind(ALICE), tally.bind(ALICE, scope="project:apollo")
        kept = mine.remember("Two spaces suit Haskell.")
        alone = mine.corrections.promote(kept.id, "project:apollo", reason="r").reach
        basis = apollo.remember("The linter wants two spaces.")
        conclusion = mine.remember("Two spaces it is.", derived_from=[kept.id, basis.id])
        hidden = mine.remember("Tabs once.", derived_from=[conclusion.id])
        redacted = mine.remember("Said by Ada.", derived_from=[conclusion.id])
        for memory_id, correction in ((hidden, "hide"), (redacted, "redact")):
            token = mine.corrections.make(memory_id.id, correction, reason="r").confirm_token  # type: ignore[arg-type]
            mine.corrections.make(
                memory_id.id,
                correction,  # type: ignore[arg-type]
                reason="r",
                mode="apply",
                confirm_token=token,
            )
        for verb in (mine.corrections.promote, mine.corrections.share):
            reach = verb(conclusion.id, "project:apollo", reason="r").reach
            # Its copy and the basis; hidden; its source and what it was drawn from; redacted.
            assert reach.dump() == {"visible": 2, "hidden": 1, "denied": 2, "redacted": 1}

        assert alone.dump() == {"visible": 1, "hidden": 0, "denied": 1, "redacted": 0}
