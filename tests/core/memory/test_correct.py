"""Lifecycle: nine corrections, each previewed and taken back; what they do to recall; what holds,
and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from tests.whole import whole

from tallystick.errors import Denied, InvalidInput, NotFound, StateConflict, VersionConflict
from tallystick.records import Actor, CorrectionKind, Scope, SpaceMember
from tallystick.storage.index import search
from tallystick.storage.rows import memories
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects={"apollo"})
CODER = Actor(user="alice", agent="coder", projects={"apollo"})
BOB = Actor(user="bob", projects={"apollo"})
ROOT = Actor(user="root", role="operator")
DAY = 24 * 3600 * 1_000_000
EPOCH = 20_000 * DAY


def corrected(bound: BoundTally, memory_id: str, correction: Any, **options: Any) -> Any:
    preview = bound.corrections.make(memory_id, correction, reason="because", **options)
    return bound.corrections.make(
        memory_id,
        correction,
        reason="because",
        mode="apply",
        confirm_token=preview.confirm_token,
        **options,
    )


def _found(bound: BoundTally, query: str, **options: Any) -> list[tuple[str, bool]]:
    return [(hit.memory.content, hit.history) for hit in bound.recall(query, **options)]


@pytest.mark.parametrize(
    "correction", [one for one in get_args(CorrectionKind) if one != "restore"]
)
def test_each_correction_is_previewed_applied_and_taken_back(
    open_tally: OpenTally, correction: Any
) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        kept = apollo.remember(
            "The heron nests in March.", subject="heron", attributes={"phone": "42"}
        )
        other = apollo.remember("The heron breeds in April.")
        options: dict[str, Any] = (
            {"by": other.id} if correction in ("supersede", "mark_duplicate") else {}
        )
        before, found = apollo.get(kept.id), _found(apollo, "heron nests March")

        preview = apollo.corrections.make(kept.id, correction, reason="because", **options)
        assert (preview.mode, preview.before, preview.reversible) == ("preview", "active", True)
        assert preview.affected.sources == (kept.source_id,)
        assert apollo.get(kept.id) == before

        done = apollo.corrections.make(
            kept.id,
            correction,
            reason="because",
            mode="apply",
            confirm_token=preview.confirm_token,
            idempotency_key="k",
            **options,
        )
        assert done.result is not None
        assert (done.result.status, done.result.state, done.after) == (
            "changed",
            preview.after,
            preview.after,
        )
        again = apollo.corrections.make(
            kept.id,
            correction,
            reason="because",
            mode="apply",
            confirm_token=preview.confirm_token,
            idempotency_key="k",
            **options,
        )
        assert again == done

        corrected(apollo, kept.id, "restore")

        restored = apollo.get(kept.id)
        same = ("content", "subject", "attributes", "state", "valid_until", "corrected", "redacted")
        assert [getattr(restored, name) for name in same] == [
            getattr(before, name) for name in same
        ]
        assert _found(apollo, "heron nests March") == found
        events = [
            (entry.event, entry.correction, entry.reason) for entry in apollo.history(kept.id)
        ]
        assert events == [
            ("ADD", None, None),
            ("FORGET" if correction == "delete" else "CORRECT", correction, "because"),
            ("CORRECT", "restore", "because"),
        ]


@pytest.mark.parametrize("correction", ["hide", "mark_wrong", "delete"])
def test_what_is_hidden_or_deleted_is_found_by_no_path(
    open_tally: OpenTally, correction: str
) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        kept = apollo.remember("The vault word is pelican.", tags=["pelican"])
        corrected(apollo, kept.id, correction)

        assert _found(apollo, "vault word pelican") == []
        assert (
            _found(
                apollo,
                "vault word pelican",
                states=("active", "superseded", "duplicate", "redacted"),
            )
            == []
        )
        with pytest.raises(NotFound):
            apollo.get(kept.id)
        listed = apollo.memories(states=("hidden", "deleted"))
        history = apollo.history(kept.id)
        assert "pelican" not in whole([listed, history])
        assert "content" in history[0].withheld
        with pytest.raises(InvalidInput):
            apollo.recall("vault", states=("deleted",))


def test_a_superseded_memory_stands_below_its_replacement_and_says_so(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        old = apollo.remember("Deploys go out on Friday evening by hand.", kind="decision")
        new = apollo.remember("Releases are cut each Monday.", kind="decision")
        apollo.remember("The kitchen closes on Friday.")

        done = corrected(apollo, old.id, "supersede", by=new.id, evidence=(new.source_id,))

        assert (done.other_id, done.recall) == (new.id, "below_replacement")
        question = "when do deploys go out by hand?"
        assert apollo.recall(question)[0].memory.id == new.id
        assert old.id not in [hit.memory.id for hit in apollo.recall(question)]
        hits = list(apollo.recall(question, states=("active", "superseded")))
        order = [hit.memory.id for hit in hits]
        assert order.index(new.id) < order.index(old.id)
        by_id = {hit.memory.id: hit for hit in hits}
        assert (by_id[old.id].history, by_id[old.id].replaced_by) == (
            True,
            new.id,
        )
        assert (by_id[new.id].history, by_id[new.id].fresh) == (False, True)

        apollo.forget(new.id, reason="nor that")
        assert old.id not in [
            hit.memory.id for hit in apollo.recall(question, states=("active", "superseded"))
        ]


def test_recall_answers_as_of_a_day(open_tally: OpenTally) -> None:
    clock = StepClock(start=EPOCH + 100 * DAY)
    with open_tally(clock=clock) as tally:
        mine = tally.bind(ALICE)
        old = mine.remember("Ada lives in Berlin.", kind="fact", valid_from=EPOCH + 10 * DAY)
        new = mine.remember("Ada lives in Rome.", kind="fact", valid_from=EPOCH + 50 * DAY)
        corrected(mine, old.id, "supersede", by=new.id)
        mine.remember(
            "Ada lived in Oslo.",
            kind="fact",
            valid_from=EPOCH + 1 * DAY,
            valid_until=EPOCH + 10 * DAY,
        )

        assert _found(mine, "where does Ada live?", as_of=EPOCH + 20 * DAY) == [
            ("Ada lives in Berlin.", True)
        ]
        assert _found(mine, "where does Ada live?", as_of=EPOCH + 60 * DAY) == [
            ("Ada lives in Rome.", False)
        ]
        assert _found(mine, "where does Ada live?", as_of=EPOCH + 2 * DAY) == [
            ("Ada lived in Oslo.", True)
        ]
        assert _found(mine, "where does Ada live?") == [("Ada lives in Rome.", False)]
        everything = _found(mine, "where does Ada live?", states=("active", "superseded"))
        assert dict(everything) == {
            "Ada lives in Rome.": False,
            "Ada lives in Berlin.": True,
            "Ada lived in Oslo.": True,
        }


def test_duplicates_collapse_under_the_canonical_memory(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        first = apollo.remember("We indent with four spaces.")
        second = apollo.remember("Indentation is four spaces wide.")
        corrected(apollo, second.id, "mark_duplicate", by=first.id)

        [hit] = apollo.recall("how wide is indentation?")
        assert (hit.memory.id, hit.duplicates) == (first.id, (second.id,))
        [shown] = apollo.recall("indentation", states=("duplicate",))
        assert shown.memory.id == second.id


def test_what_is_redacted_gives_its_replacement_and_never_its_text(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        kept = apollo.remember(
            "The gate code is qx7341 heron.",
            subject="gate",
            attributes={"who": {"phone": "555 0100"}},
            tags=["door"],
        )
        corrected(apollo, kept.id, "redact", field="attributes.who.phone", replacement="a number")
        assert apollo.get(kept.id).attributes == {"who": {"phone": "a number"}}
        assert apollo.get(kept.id).state == "active"

        corrected(apollo, kept.id, "redact", replacement="how to open the gate")

        [hit] = apollo.recall("how does one open the gate?")
        assert (hit.memory.content, hit.memory.state, hit.memory.subject) == (
            "how to open the gate",
            "redacted",
            "gate",
        )
        assert "qx7341" not in whole(
            [
                apollo.recall("gate code qx7341 heron"),
                apollo.history(kept.id),
                apollo.get(kept.id),
            ]
        )
        assert "555 0100" not in whole(apollo.history(kept.id))
        with pytest.raises(InvalidInput):
            apollo.corrections.make(kept.id, "redact", reason="r", field="attributes.nothing")


def test_a_token_fits_only_the_world_that_was_previewed(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        kept = apollo.remember("The heron nests in March.")
        preview = apollo.corrections.make(kept.id, "hide", reason="r")
        with pytest.raises(Denied) as refused:
            apollo.corrections.make(kept.id, "hide", reason="r", mode="apply")
        assert refused.value.reason == "confirm_token_required"
        bob = tally.bind(BOB, scope="project:apollo")
        for other, reason in ((apollo, "another"), (bob, "r")):
            with pytest.raises(StateConflict):
                other.corrections.make(
                    kept.id,
                    "hide",
                    mode="apply",
                    reason=reason,
                    confirm_token=preview.confirm_token,
                )
        apollo.remember("Herons like March.", derived_from=[kept.id])
        with pytest.raises(StateConflict):
            apollo.corrections.make(
                kept.id,
                "hide",
                reason="r",
                mode="apply",
                confirm_token=preview.confirm_token,
            )
        assert apollo.get(kept.id).state == "active"
        with pytest.raises(VersionConflict):
            apollo.corrections.make(kept.id, "hide", reason="r", if_version=7)


def test_a_preview_names_what_was_concluded_from_a_memory(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        source = apollo.remember("The heron nests in March.")
        derived = apollo.remember("Do not mow in March.", derived_from=[source.id])

        preview = apollo.corrections.make(source.id, "mark_wrong", reason="it was a stork")
        assert (preview.affected.derived, preview.affected.elsewhere) == ((derived.id,), 0)

        for correction, reason in (
            ("hide", "hidden_source"),
            ("redact", "redacted_source"),
            ("delete", "source_deleted"),
        ):
            corrected(apollo, source.id, correction)
            with pytest.raises(Denied) as refused:
                apollo.remember("Mow in May.", derived_from=[source.id])
            assert refused.value.reason == reason
            corrected(apollo, source.id, "restore")
        with pytest.raises(NotFound):
            apollo.remember("x", derived_from=[tally.bind(BOB).remember("Bob's own.").id])


def test_a_person_s_edit_is_locked_against_agents_for_a_while(open_tally: OpenTally) -> None:
    clock = StepClock(start=100 * DAY)
    with open_tally(clock=clock) as tally:
        person, agent = (tally.bind(one, scope="project:apollo") for one in (ALICE, CODER))
        kept = person.remember("The build runs on Tuesdays.")
        person.modify(
            kept.id,
            content="The build runs daily.",
            reason="I know",
            manual_override=200 * DAY,
        )
        for change in (
            lambda: agent.modify(kept.id, content="Never.", reason="inferred"),
            lambda: agent.forget(kept.id, reason="inferred"),
            lambda: agent.corrections.make(kept.id, "hide", reason="inferred"),
        ):
            with pytest.raises(StateConflict) as refused:
                change()
            assert refused.value.reason == "manual_override"
        assert person.modify(kept.id, tags=("ci",), reason="mine").status == "changed"
        with pytest.raises(InvalidInput):
            agent.modify(kept.id, content="x", reason="r", manual_override=True)
        clock.advance(days=101)
        assert agent.modify(kept.id, content="Weekly.", reason="inferred").status == "changed"


def test_history_names_the_request_and_the_session(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        traced = tally.bind(ALICE).on(request_id="req-1", session_id="s-1")
        kept = traced.remember("Traced.")
        tally.bind(ALICE).modify(kept.id, tags=("t",), reason="r")
        assert [(entry.request_id, entry.session_id) for entry in traced.history(kept.id)] == [
            ("req-1", "s-1"),
            (None, None),
        ]


def test_history_names_the_run_and_its_thread_by_itself(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        with (
            mine.run("coder", metadata={"thread_id": "chat-7"}) as run,
            run.step("tool_call") as step,
        ):
            kept = mine.remember("Traced.").id
            tally.bind(ALICE, request_id="r-1", session_id="s-1").modify(
                kept, tags=("t",), reason="r"
            )
        with mine.run("other") as other:
            mine.forget(kept, reason="r")
        assert [
            (entry.event, entry.request_id, entry.session_id) for entry in mine.history(kept)
        ] == [
            ("ADD", run.id, "chat-7"),
            ("UPDATE", "r-1", "s-1"),
            ("FORGET", other.id, None),
        ]
        assert mine.history(kept)[0].correlation_id == step.id


def test_promotion_copies_and_a_share_follows_its_origin(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        mine, apollo = tally.bind(ALICE), tally.bind(BOB, scope="project:apollo")
        kept, shared = (
            mine.remember("The heron nests in March."),
            mine.remember("The stork nests in May."),
        )

        def crossed(operation: str, memory_id: str, into: str) -> Any:
            cross: Any = getattr(mine.corrections, operation)
            preview = cross(memory_id, into, reason="useful")
            return cross(
                memory_id, into, reason="useful", mode="apply", confirm_token=preview.confirm_token
            )

        preview = mine.corrections.promote(kept.id, "project:apollo", reason="useful")
        assert preview.readers == ("project:apollo",)
        assert list(apollo.recall("heron stork nests")) == []
        crossed("promote", kept.id, "project:apollo")
        crossed("share", shared.id, "project:apollo")
        assert {hit.memory.content for hit in apollo.recall("heron stork nests")} == {
            "The heron nests in March.",
            "The stork nests in May.",
        }

        mine.modify(kept.id, content="The heron nests in April.", reason="seen")
        mine.modify(shared.id, content="The stork nests in June.", reason="seen")
        assert {hit.memory.content for hit in apollo.recall("heron stork nests")} == {
            "The heron nests in March.",
            "The stork nests in June.",
        }
        mine.forget(shared.id, reason="private after all")
        assert {hit.memory.content for hit in apollo.recall("heron stork nests")} == {
            "The heron nests in March."
        }
        assert [entry.event for entry in mine.history(shared.id)] == [
            "ADD",
            "SHARE",
            "UPDATE",
            "FORGET",
        ]


def _shared(mine: BoundTally, memory_id: str) -> str:
    preview = mine.corrections.share(memory_id, "project:apollo", reason="useful")
    done = mine.corrections.share(
        memory_id,
        "project:apollo",
        reason="useful",
        mode="apply",
        confirm_token=preview.confirm_token,
    )
    assert done.copy_id is not None
    return done.copy_id


def test_a_shared_copy_is_changed_by_its_origin_alone_and_never_outlives_it(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine, bob = tally.bind(ALICE), tally.bind(BOB, scope="project:apollo")
        kept = mine.remember("The stork nests in May.").id
        copy = _shared(mine, kept)

        with pytest.raises(StateConflict, match="says what its origin says"):
            bob.modify(copy, content="The stork nests in July.", reason="seen")
        assert bob.modify(copy, pinned=True, reason="dear").status == "changed"
        bob.modify(copy, pinned=False, reason="not so dear")
        bob.forget(copy, reason="tidy")
        assert bob.recover(copy, reason="it is shared still").status == "changed"

        mine.forget(kept, reason="private after all")
        with pytest.raises(StateConflict, match="withdrawn"):
            bob.recover(copy, reason="I want it back")
        with pytest.raises(StateConflict, match="withdrawn"):
            corrected(bob, copy, "restore")
        mine.recover(kept, reason="well")
        assert list(bob.recall("stork nests")) == []
        _shared(mine, kept)
        assert [hit.memory.content for hit in bob.recall("stork nests")] == [
            "The stork nests in May."
        ]


def test_what_was_corrected_in_a_shared_copy_stays_when_its_origin_changes(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine, bob = tally.bind(ALICE), tally.bind(BOB, scope="project:apollo")

        def shared(text: str) -> tuple[str, str]:
            kept = mine.remember(text, subject="pelican", attributes={"phone": "42"}).id
            return kept, _shared(mine, kept)

        (first, named), (second, numbered), (third, secret) = (
            shared(text)
            for text in ("The pelican dives.", "The pelican swims.", "The pelican flies.")
        )
        corrected(bob, named, "redact", replacement="a bird")
        corrected(bob, numbered, "redact", field="attributes.phone")
        corrected(bob, secret, "mark_sensitive")
        for memory_id in (first, second, third):
            mine.modify(
                memory_id,
                content=f"{mine.get(memory_id).content} Often.",
                reason="seen",
                importance=80,
            )

        assert [
            (bob.get(one).content, bob.get(one).importance) for one in (named, numbered, secret)
        ] == [
            ("a bird", 80),
            ("The pelican swims. Often.", 80),
            ("The pelican flies. Often.", 80),
        ]
        assert bob.get(numbered).attributes == {"phone": "[redacted]"}
        assert bob.get(secret).attributes["local_only"] is True
        corrected(mine, first, "redact", replacement="an animal")
        corrected(bob, named, "restore")
        assert (bob.get(named).content, bob.get(named).state) == ("an animal", "redacted")
        for one in (numbered, secret):
            corrected(bob, one, "restore")
            assert bob.get(one).attributes == {"phone": "42"}


def test_a_copy_that_was_redacted_is_not_found_by_what_its_origin_says(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine, bob = tally.bind(ALICE), tally.bind(BOB, scope="project:apollo")
        kept = mine.remember("The pelican dives.").id
        copy = _shared(mine, kept)
        corrected(bob, copy, "redact", replacement="a bird")

        mine.modify(
            kept,
            content="The pelican dives for herring.",
            attributes={"caption": "sea"},
            reason="seen",
        )
        tally.drain()

        with services_of(tally).store.database.read() as connection:
            stored = memories.get(connection, copy)
            assert stored is not None
            fingerprint = services_of(tally).embedder.fingerprint
            vectors = search.vectors_of(connection, [stored.scope_id], fingerprint, [stored.doc])
        assert vectors[stored.doc] == services_of(tally).memory.vectors_for(["a bird\nsea"])[0][0]
        assert (bob.get(copy).content, bob.get(copy).attributes) == ("a bird", {"caption": "sea"})


@pytest.mark.parametrize(
    ("into", "reason"),
    [
        ("team:red", "missing_memory_space"),
        ("private:bob", "unsupported_scope"),
        ("project:zeus", "unverified_membership"),
    ],
)
def test_a_way_into_a_scope_that_is_not_open_is_refused(
    open_tally: OpenTally, into: str, reason: str
) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        kept = mine.remember("Mine.")
        for cross in (mine.corrections.promote, mine.corrections.share):
            with pytest.raises(Denied) as refused:
                cross(kept.id, into, reason="r")
            assert (refused.value.reason, refused.value.decision.audit_id is not None) == (
                reason,
                True,
            )
        theirs = tally.bind(ALICE, scope="project:apollo").remember("Ours.")
        with pytest.raises(Denied) as crossing:
            mine.corrections.promote(theirs.id, "project:zeus", reason="r")
        assert crossing.value.reason == "scope_crossing_requires_promotion"


def test_a_promotion_whose_readers_changed_is_refused(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        spaces = tally.bind(ROOT).spaces
        writer = SpaceMember(principal_id="alice", role="writer")
        spaces.create("team:red", name="Red", members=[writer], reason="asked")
        mine = tally.bind(ALICE)
        kept = mine.remember("For red.")
        preview = mine.corrections.promote(kept.id, "team:red", reason="r")
        spaces.update(
            "team:red", members=[writer, SpaceMember(principal_id="eve")], reason="joined"
        )

        with pytest.raises(StateConflict):
            mine.corrections.promote(
                kept.id,
                "team:red",
                reason="r",
                mode="apply",
                confirm_token=preview.confirm_token,
            )


def test_a_space_made_twice_with_one_key_is_made_once(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        spaces = tally.bind(ROOT).spaces
        made = [
            spaces.create("team:red", name="Red", reason="asked", idempotency_key="k")
            for _ in range(2)
        ]
        changed = [
            spaces.update("team:red", name="R", reason="short", idempotency_key="u")
            for _ in range(2)
        ]
        assert made[0] == made[1]
        assert (changed[0], changed[0].version) == (changed[1], 2)


class _Far:
    """An embedder that is far away and remembers what it was given."""

    fingerprint, dimension, local = "far", 4, False

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(self, texts: Any) -> Any:
        import numpy as np

        self.seen += list(texts)
        return np.ones((len(texts), 4), dtype=np.float32)


def test_what_is_sensitive_stays_here_and_secrets_never_leave(open_sqlite: OpenTally) -> None:
    far = _Far()
    with open_sqlite(embedder=far) as tally:
        mine = tally.bind(ALICE)
        mine.remember("Stays here: pelican.", attributes={"local_only": True})
        mine.remember("The key is sk-ant-api03-" + "a1B2" * 20)
        marked = mine.remember("Was ordinary: heron.")
        corrected(mine, marked.id, "mark_sensitive")
        tally.drain()
        mine.recall("sk-ant-api03-" + "a1B2" * 20)

    told = " ".join(far.seen)
    assert "pelican" not in told
    assert "heron" not in told
    assert "a1b2a1b2" not in "".join(told.casefold().split())
    assert "[redacted:" in told


def test_a_scope_in_a_message_never_names_hidden_text(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        kept = apollo.remember("pelican", attributes={"a": ["pelican"]})
        corrected(apollo, kept.id, "hide")
        for call in (
            lambda: apollo.modify(kept.id, content="x", reason="r"),
            lambda: apollo.corrections.make(kept.id, "mark_stale", reason="r"),
            lambda: apollo.corrections.make(kept.id, "redact", reason="r", field="attributes.a.7"),
            lambda: apollo.recover(kept.id, reason="r"),
        ):
            with pytest.raises((StateConflict, InvalidInput)) as refused:
                call()
            assert "pelican" not in str(refused.value)
        assert Scope.parse("project:apollo") == apollo.scope


def test_what_an_operator_froze_is_read_and_not_changed_until_it_is_thawed(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine, root = tally.bind(ALICE), tally.bind(ROOT)
        kept = mine.remember("Before the freeze.")
        with pytest.raises(Denied):
            mine.operator.freeze(reason="no")
        root.operator.freeze(reason="we look into it")
        for call in (
            lambda: mine.remember("x"),
            lambda: mine.modify(kept.id, tags=("t",), reason="r"),
            lambda: mine.forget(kept.id, reason="r"),
            lambda: mine.corrections.make(kept.id, "hide", reason="r"),
            lambda: mine.corrections.promote(kept.id, "project:apollo", reason="r"),
        ):
            with pytest.raises(Denied) as refused:
                call()
            assert (refused.value.reason, refused.value.decision.audit_id is not None) == (
                "mutations_frozen",
                True,
            )
        assert [hit.memory.id for hit in mine.recall("freeze")] == [kept.id]
        with pytest.raises(NotFound):
            tally.bind(BOB).modify(kept.id, tags=("t",), reason="r")
        root.operator.thaw(reason="all is well")
        assert mine.modify(kept.id, tags=("t",), reason="r").status == "changed"


@pytest.mark.parametrize("harm", ["stale", "missing"])
def test_a_job_runs_under_the_authority_of_who_caused_it_or_not_at_all(
    open_tally: OpenTally, harm: str
) -> None:
    far = _Far()
    with open_tally(embedder=far) as tally:
        spaces = tally.bind(ROOT).spaces
        spaces.create(
            "team:red",
            name="Red",
            members=[SpaceMember(principal_id="alice", role="writer")],
            reason="r",
        )
        tally.bind(ALICE, scope="team:red").remember("pelican")
        if harm == "stale":
            spaces.update("team:red", members=[], reason="left")
        else:
            services_of(tally).store.database.write(
                lambda tx: tx.exec_driver_sql("UPDATE jobs SET actor = '{}'"), name="harm"
            )
        tally.drain()
        with services_of(tally).store.database.read() as connection:
            told = connection.exec_driver_sql("SELECT state, error_code FROM jobs").all()
    assert [tuple(row) for row in told] == [("dead", f"job_policy_context_{harm}")]
    assert far.seen == []


def test_what_is_redacted_is_redacted_in_its_shared_copies_and_their_histories(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine, bob = tally.bind(ALICE), tally.bind(BOB, scope="project:apollo")
        kept = mine.remember(
            "The pelican's number is 7341.", subject="pelican", attributes={"a.b": ["pelican", 1]}
        )
        preview = mine.corrections.share(kept.id, "project:apollo", reason="r")
        copy_id = mine.corrections.share(
            kept.id,
            "project:apollo",
            reason="r",
            mode="apply",
            confirm_token=preview.confirm_token,
        ).copy_id
        assert copy_id is not None
        for field in ("attributes.a.b.0", "subject", "content"):
            corrected(mine, kept.id, "redact", field=field, replacement="a bird")

        told = [
            bob.get(copy_id),
            bob.history(copy_id),
            bob.inspect(copy_id),
            bob.recall("pelican number"),
            bob.explore("project:apollo", states=("redacted",)),
            mine.history(kept.id),
        ]
        assert "pelican" not in whole(told)
        assert (bob.get(copy_id).content, bob.get(copy_id).state) == ("a bird", "redacted")

        corrected(mine, kept.id, "restore")
        again = bob.get(copy_id)
        assert (again.content, again.state, again.subject, again.attributes) == (
            "The pelican's number is 7341.",
            "active",
            "pelican",
            {"a.b": ["pelican", 1]},
        )
        assert [hit.memory.id for hit in bob.recall("pelican number")] == [copy_id]


@pytest.mark.parametrize(
    "correction", [one for one in get_args(CorrectionKind) if one not in ("restore", "delete")]
)
def test_what_is_forgotten_and_recovered_stands_under_its_correction_again(
    open_tally: OpenTally, correction: Any
) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        kept = apollo.remember("The heron nests in March.").id
        other = apollo.remember("The heron breeds in April.").id
        options: dict[str, Any] = (
            {"by": other} if correction in ("supersede", "mark_duplicate") else {}
        )
        before, found = apollo.get(kept), _found(apollo, "heron nests March")
        corrected(apollo, kept, correction, **options)
        inspected, shown = apollo.inspect(kept), _found(apollo, "heron nests March")

        apollo.forget(kept, reason="gone")
        done = apollo.recover(kept, reason="back")

        again = apollo.inspect(kept)
        assert (done.state, again.state, again.preview) == (
            inspected.state,
            inspected.state,
            inspected.preview,
        )
        assert _found(apollo, "heron nests March") == shown
        corrected(apollo, kept, "restore")
        assert (apollo.get(kept).state, apollo.get(kept).content) == (before.state, before.content)
        assert _found(apollo, "heron nests March") == found


def test_what_ran_out_and_is_recovered_stays(open_tally: OpenTally) -> None:
    clock = StepClock(start=1_000 * DAY)
    with open_tally(clock=clock) as tally:
        mine = tally.bind(ALICE)
        ids = [
            mine.remember(text, expires_at=clock.now() + DAY).id
            for text in ("Ferry at nine.", "Tea at ten.")
        ]
        clock.advance(days=2)
        tally.bind(ROOT).operator.purge(mode="apply", reason="r")

        mine.recover(ids[0], reason="needed")
        corrected(mine, ids[1], "restore")
        tally.bind(ROOT).operator.purge(mode="apply", reason="r")

        assert {hit.memory.id for hit in mine.recall("ferry tea")} == set(ids)
        assert [mine.get(memory_id).expires_at for memory_id in ids] == [None, None]


def test_a_replacement_is_shown_by_sources_that_are_there_and_may_be_read(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        apollo = tally.bind(ALICE, scope="project:apollo")
        old, new = (
            apollo.remember(text) for text in ("We deploy by hand.", "We deploy by pipeline.")
        )
        secret = tally.bind(BOB).remember("Bob saw the pipeline.")
        messages = []
        for evidence in (secret.source_id, "no-such-source"):
            with pytest.raises(NotFound) as refused:
                apollo.corrections.make(
                    old.id, "supersede", by=new.id, reason="r", evidence=[evidence]
                )
            messages.append(str(refused.value).replace(evidence, "?"))
        assert messages[0] == messages[1]
        corrected(apollo, old.id, "supersede", by=new.id, evidence=[new.source_id])


@pytest.mark.parametrize("correction", ["hide", "redact", "delete"])
def test_tracing_words_gives_no_source_that_is_no_longer_shown(
    open_tally: OpenTally, correction: str
) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        kept = mine.remember("The pelican's number is 7341, said the keeper.")
        with mine.run("coder") as run, run.step("model_call") as step:
            mine.compile(list(mine.recall("pelican number")), budget=500)
        [before] = mine.recordings.trace(step.id, "number is")
        assert before.raw == "The pelican's number is 7341, said the keeper."
        corrected(mine, kept.id, correction)
        [after] = mine.recordings.trace(step.id, "number is")
        assert (after.source_id, after.raw) == (kept.source_id, None)


def test_tracing_words_gives_the_source_of_a_replaced_memory_where_its_replacement_is_visible(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        alice, bob = (tally.bind(actor, scope="project:apollo") for actor in (ALICE, BOB))
        old = alice.remember("The pelican's number is 7341, said the keeper.").id
        new = tally.bind(ALICE).remember("The pelican has no number any more.").id
        with alice.run("coder") as run, run.step("model_call") as step:
            alice.compile(list(alice.recall("pelican number")), budget=500)
        [before] = bob.recordings.trace(step.id, "number is")
        assert before.raw == "The pelican's number is 7341, said the keeper."

        corrected(alice, old, "supersede", by=new)

        [mine], [his] = (one.recordings.trace(step.id, "number is") for one in (alice, bob))
        assert (mine.raw, his.raw) == ("The pelican's number is 7341, said the keeper.", None)
        tally.bind(ALICE).forget(new, reason="nor that")
        [after] = alice.recordings.trace(step.id, "number is")
        assert after.raw is None


def test_a_change_that_leaves_the_words_alone_keeps_the_vector_and_one_of_the_words_replaces_it(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        mine = tally.bind(Actor(user="alice"))
        stored = mine.remember("The heron nests in March.")
        fingerprint = services_of(tally).embedder.fingerprint

        def vectors() -> list[tuple[int, bytes]]:
            with services_of(tally).store.database.read() as connection:
                return [
                    (one.version, one.vector)
                    for one in search.page_of_points(connection, fingerprint, after=0, most=9)
                ]

        made = vectors()
        mine.modify(stored.id, tags=("birds",), importance=90, reason="sorted")
        assert vectors() == made
        assert [hit.memory.tags for hit in mine.recall("birds")] == [("birds",)]
        mine.modify(stored.id, content="The ferry leaves at nine.", reason="another")
        ((version, vector),) = vectors()
        assert (version, vector) == (
            3,
            services_of(tally).memory.vectors_for(["The ferry leaves at nine."])[0][0],
        )
        mine.forget(stored.id, reason="gone")
        assert vectors() == []
        mine.recover(stored.id, reason="back")
        assert vectors() == [(5, vector)]
