"""Ada has left: everything of one user goes, by one preview, one token and one proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.errors import ApprovalRequired, Denied, NotFound, StateConflict
from tallystick.records import Actor, ErasedUser, ExtractedFact, Extraction, PolicyRule, SourceRef
from tallystick.settings import Settings
from tallystick.storage.engine import containment
from tallystick.storage.rows import journal
from tallystick.storage.text import byte_search
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick.testing import ScriptedLearner

OpenTally = Callable[..., Tally]
ADA = Actor(user="ada", projects={"apollo"})
BOB = Actor(user="bob", projects={"apollo"})
ROOT = Actor(user="root", role="operator")
SECRET = "the pelican opens vault 7341 at noon every day"
SHARED = "the heron of the project nests on the northern pier"
ASK = PolicyRule(id="ask", name="Ask", effect="require_approval", applies_to="tool_call")


def read_fact(text: str) -> Extraction:
    if "pelican" not in text:
        return Extraction()
    return Extraction(facts=(ExtractedFact(content=f"Known: {text}", kind="decision"),))


def options() -> dict[str, Any]:
    return {
        "settings": Settings(learning="review"),
        "learning_model": ScriptedLearner(read_fact),
        "rules": [ASK],
    }


def put_thread(bound: BoundTally, name: str) -> None:
    checkpoint = NewCheckpoint(
        id="1",
        namespace="",
        parent_id=None,
        metadata={},
        body=Leaf("json", b"{}"),
        values={"messages": Leaf("json", SECRET.encode())},
    )
    bound.threads.put(name, checkpoint)


def settle_in(tally: Tally) -> str:
    """Let Ada leave her text in every place; return the id of what she said in the project."""
    ada, apollo = tally.bind(ADA), tally.bind(ADA, scope="project:apollo")
    kept = ada.remember(SECRET, tags=["pelican"], source=SourceRef(title=SECRET, author="ada"))
    ada.remember(f"{SECRET}, again", conversation=f"on the {SECRET}")
    tally.drain()
    first, *_ = ada.reviews.list()
    ada.reviews.decide(first.id, "accept", reason=SECRET)
    ada.modify(kept.id, tags=["bird"], reason=SECRET)
    with ada.run(SECRET, goal=SECRET, metadata={"a": SECRET}) as run, run.step("tool_call") as step:
        step.record("note", {"text": SECRET})
    with apollo.run(SECRET, goal=SECRET) as run, run.step("tool_call") as step:
        step.record("note", {"text": SECRET})
    put_thread(ada, f"chat {SECRET}")
    put_thread(apollo, f"chat {SECRET}")
    ada.working.of("r").set(SECRET, SECRET)
    apollo.working.of("r").set(SECRET, SECRET)
    with pytest.raises(ApprovalRequired):
        apollo.check_tool_call("mail", {"body": SECRET})
    ada.tokens.make("laptop")
    said = apollo.remember(SHARED, idempotency_key="once").id
    bob = tally.bind(BOB, scope="project:apollo")
    bob.remember("The stork of Bob stays on the southern pier.")
    with bob.run("coder") as run, run.step("model_call") as step:
        step.record("request", {"memory": said, "text": SHARED})
    with bob.run("coder") as run, run.step("model_call") as step:
        step.record("request", {"messages": [f"What is known: {SHARED}."]})
    services_of(tally).gate.flush()
    services_of(tally).store.database.flush()
    return said


def erased(root: BoundTally, shared: Literal["destroy", "hand_over"]) -> ErasedUser:
    token = root.operator.erase_user("ada", shared=shared, reason="she left").confirm_token

    def apply() -> ErasedUser:
        return root.operator.erase_user(
            "ada",
            shared=shared,
            reason="she left",
            mode="apply",
            confirm_token=token,
            idempotency_key="ada",
        )

    done = apply()
    assert apply() == done
    return done


def rows_with(tally: Tally, text: str) -> dict[str, int]:
    with services_of(tally).store.database.read() as connection:
        return byte_search.rows_with(connection, containment.fragment_forms(text))


def files_with(tally: Tally, text: str) -> list[str]:
    folder = services_of(tally).store.location.folder
    return [] if folder is None else byte_search.files_with(folder, [text.encode()])


def test_everything_of_a_user_goes_and_others_keep_theirs(open_tally: OpenTally) -> None:
    with open_tally(**options()) as tally:
        settle_in(tally)
        root = tally.bind(ROOT)
        preview = root.operator.erase_user("ada", reason="she left")
        assert preview.counts["memories"] == 3
        assert preview.counts["shared memories"] == 1
        assert preview.counts["access tokens"] == 1
        assert preview.counts["threads"] == 2
        assert "journal" in preview.stays[0]
        done = erased(root, "destroy")

        assert done.proof is not None
        assert (done.proof.holds, done.proof.problems) == (True, ())
        for text in (SECRET, SHARED):
            assert rows_with(tally, text) == {}
            assert files_with(tally, text) == []
        apollo = tally.bind(BOB, scope="project:apollo")
        assert [memory.content for memory in apollo.memories()] == [
            "The stork of Bob stays on the southern pier."
        ]
        with services_of(tally).store.database.read() as connection:
            for stream in {entry.stream for entry in journal.all_entries(connection)}:
                assert journal.verify_stream(connection, stream) == []
        for run in apollo.recordings.runs(limit=99):
            assert root.recordings.verify(run.id).ok
        checks = {each.check: each for each in root.operator.doctor()}
        assert checks["texts"].status == "ok", checks["texts"]
        for user in ("ada", "nobody"):
            with pytest.raises(NotFound):
                root.operator.erase_user(user, reason="she left")
        assert not tally.bind(ADA).memories()
        assert not tally.bind(ADA).tokens.list()


def test_what_was_said_in_shared_scopes_can_be_handed_over(open_tally: OpenTally) -> None:
    with open_tally(**options()) as tally:
        said = settle_in(tally)
        root = tally.bind(ROOT)

        done = erased(root, "hand_over")

        assert done.proof is not None
        assert (done.proof.holds, done.proof.problems) == (True, ())
        assert rows_with(tally, SECRET) == {}
        kept = tally.bind(BOB, scope="project:apollo").get(said)
        assert (kept.content, kept.created_by) == (SHARED, "project:apollo")


def test_a_text_that_was_handed_over_stands_in_the_way_of_no_proof(open_tally: OpenTally) -> None:
    """It is also that of a private memory, of which the scope got a copy."""
    with open_tally(**options()) as tally:
        ada, root, reason = tally.bind(ADA), tally.bind(ROOT), "all of us need it"
        own, said = ada.remember(SHARED).id, "The heron of the private pond is called Otto."
        ada.remember(said)
        into = "project:apollo"
        token = ada.corrections.promote(own, into, reason=reason).confirm_token
        copy = ada.corrections.promote(
            own, into, reason=reason, mode="apply", confirm_token=token
        ).copy_id

        done = erased(root, "hand_over")

        assert done.proof is not None
        assert (done.proof.holds, done.proof.problems) == (True, ())
        assert "the 1 longest texts: every column of every table" in done.proof.checked
        assert rows_with(tally, said) == {}
        assert tally.bind(BOB, scope=into).get(str(copy)).content == SHARED


def test_a_user_is_erased_as_previewed_and_by_an_operator(open_sqlite: OpenTally) -> None:
    with open_sqlite(**options()) as tally:
        settle_in(tally)
        ada, root = tally.bind(ADA), tally.bind(ROOT)
        with pytest.raises(Denied):
            ada.operator.erase_user("ada", reason="I leave")
        preview = root.operator.erase_user("ada", reason="she left")
        with pytest.raises(Denied):
            root.operator.erase_user("ada", reason="she left", mode="apply")
        ada.remember("One more.")
        with pytest.raises(StateConflict):
            root.operator.erase_user(
                "ada", reason="she left", mode="apply", confirm_token=preview.confirm_token
            )


def test_a_user_who_left_nothing_but_a_token_is_erased(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        tally.bind(ADA).tokens.make("laptop")
        done = erased(tally.bind(ROOT), "destroy")
        assert (done.counts["access tokens"], tally.bind(ADA).tokens.list()) == (1, ())


def test_a_read_that_waited_to_be_noted_does_not_name_the_user_again(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        ada.remember(SECRET)
        ada.recall("pelican")
        erased(tally.bind(ROOT), "destroy")
        services_of(tally).gate.flush()
        assert "ada" not in {each.user for each in tally.bind(ROOT).recordings.reads(limit=100)}
