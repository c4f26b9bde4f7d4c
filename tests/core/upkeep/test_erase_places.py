"""A secret is put into every place that takes a text, and erased: no byte of it is left, in any row
of any table, in any file, and every chain goes on to verify.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.checkpoints import Leaf, NewCheckpoint, PendingWrite
from tallystick.errors import ApprovalRequired, InvalidInput
from tallystick.memory import Put
from tallystick.records import Actor, Erasure, PolicyRule, SourceRef
from tallystick.storage.engine import containment
from tallystick.storage.rows import journal
from tallystick.storage.rows.recordings import READS
from tallystick.storage.text import byte_search
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")
ROOT = Actor(user="root", role="operator")
SECRET = "the pelican opens vault 7341"
FRAGMENT = "pelican-7341"
PIECE = f"about {FRAGMENT} today"
ASK = PolicyRule(id="ask", name="Ask", effect="require_approval", applies_to="tool_call")

Place = Callable[[BoundTally, str], object]


def _memory(**fields: object) -> Place:
    def plant(bound: BoundTally, text: str) -> object:
        planted = {
            name: text if value is None else [text] if value == [] else value
            for name, value in fields.items()
        }
        return bound.remember(f"{text}: {sorted(fields)}", **planted)  # type: ignore[arg-type]

    return plant


def _run(bound: BoundTally, text: str, **fields: object) -> None:
    with bound.run(**{"agent_name": "coder", **fields}):  # type: ignore[arg-type]
        pass


def _step(bound: BoundTally, text: str, kind: str = "note", **fields: object) -> None:
    with bound.run("coder") as run, run.step("tool_call") as step:
        step.record(kind, **fields)  # type: ignore[arg-type]


def _named_step(bound: BoundTally, text: str, **fields: object) -> None:
    with bound.run("coder") as run, run.step("model_call", **fields):  # type: ignore[arg-type]
        pass


def _ended_step(bound: BoundTally, text: str) -> None:
    with bound.run("coder") as run:
        run.step("model_call").end(metadata={"note": text})


def _failed_step(bound: BoundTally, text: str) -> None:
    with bound.run("coder") as run:
        run.step("tool_call").fail(ValueError(text))


def _thread(
    bound: BoundTally,
    name: str = "chat",
    namespace: str = "",
    body: str = "",
    value: str = "",
    **metadata: str,
) -> None:
    checkpoint = NewCheckpoint(
        id=bound.tally.new_id(),
        namespace=namespace,
        parent_id=None,
        metadata=metadata,
        body=Leaf("json", body.encode()),
        values={"messages": Leaf("json", value.encode())},
    )
    bound.threads.put(name, checkpoint)
    bound.on("langgraph").threads.put(name, checkpoint)


def _write(bound: BoundTally, text: str, channel: str = "messages") -> None:
    write = PendingWrite(f"task {len(channel)}", "", 0, channel, Leaf("json", text.encode()))
    bound.threads.put_writes("writes", namespace="", checkpoint_id="1", writes=[write])


def _reasoned(change: Callable[[BoundTally, str, str], object]) -> Place:
    def plant(bound: BoundTally, text: str) -> None:
        other = bound.remember(f"The heron nests in March, note {bound.tally.new_id()}.").id
        change(bound, other, text)

    return plant


def _superseded(bound: BoundTally, memory_id: str, text: str) -> None:
    by = bound.remember(f"The heron nests in April, note {bound.tally.new_id()}.").id
    preview = bound.corrections.make(memory_id, "supersede", by=by, reason=text)
    token = preview.confirm_token
    bound.corrections.make(
        memory_id, "supersede", by=by, reason=text, mode="apply", confirm_token=token
    )


def _recovered(bound: BoundTally, memory_id: str, text: str) -> None:
    bound.forget(memory_id, reason="for now")
    bound.recover(memory_id, reason=text)


def _frozen(bound: BoundTally, text: str) -> None:
    root = bound.tally.bind(ROOT)
    root.operator.freeze(reason=text)
    root.operator.thaw(reason=text)


def _asked(bound: BoundTally, tool: str, argument: str, reason: str) -> None:
    with pytest.raises(ApprovalRequired) as blocked:
        bound.check_tool_call(tool, {"body": argument})
    bound.approvals.deny(blocked.value.approvals[0].id, reason=reason)


def _as_actor(**fields: str) -> Place:
    def plant(bound: BoundTally, text: str) -> None:
        traced = bound.tally.bind(ALICE, scope=bound.scope, **fields)
        traced.modify(traced.remember(f"Traced {fields}.").id, tags=["t"], reason="r")
        with traced.run("coder") as run, run.step("model_call"):
            traced.recall("heron")

    return plant


def _erased_before(bound: BoundTally, text: str) -> None:
    with bound.run("coder") as run, run.step("model_call") as step:
        step.record("request", {"prompt": "other"})
    bound.tally.bind(ROOT).operator.erase_recorded(run.id, reason=text, mode="apply")


def _replayed_later(bound: BoundTally, text: str) -> None:
    with bound.run("coder") as run, run.step("model_call") as step:
        pass
    bound.recordings.replay_later(step.id, notes=text)


PLACES: dict[str, Place] = {
    "content": _memory(),
    "subject": _memory(subject=None),
    "speaker": _memory(speaker=None),
    "category": _memory(category=None),
    "tags": _memory(tags=[]),
    "conversation": _memory(kind="turn", conversation=None),
    "attributes": lambda bound, text: bound.remember(f"{text}, noted", attributes={"a": text}),
    "source": lambda bound, text: bound.remember(
        f"{text}, from a source",
        source=SourceRef(uri=f"file:{text}", title=text, author=text, metadata={"a": text}),
    ),
    "an earlier version": lambda bound, text: bound.modify(
        bound.remember(f"{text}, at first").id, content=f"{text}, later", reason=text
    ),
    "an item of a store": lambda bound, text: bound.items.put([Put(("n",), "k", {"text": text})]),
    "reason of a change": _reasoned(
        lambda bound, other, text: bound.modify(other, tags=["t"], reason=text)
    ),
    "reason of forgetting": _reasoned(lambda bound, other, text: bound.forget(other, reason=text)),
    "reason of a recovery": _reasoned(_recovered),
    "reason of a correction": _reasoned(_superseded),
    "reason of an earlier erasure": _erased_before,
    "reason of a freeze": _frozen,
    "request id": lambda bound, text: _as_actor(request_id=text)(bound, text),
    "session id": lambda bound, text: _as_actor(session_id=text)(bound, text),
    "agent name": lambda bound, text: _run(bound, text, agent_name=text),
    "domain": lambda bound, text: _run(bound, text, domain=text),
    "goal": lambda bound, text: _run(bound, text, goal=text),
    "metadata of a run": lambda bound, text: _run(bound, text, metadata={"a": text}),
    "step name": lambda bound, text: _named_step(bound, text, name=text),
    "metadata of a step": lambda bound, text: _named_step(bound, text, metadata={"a": text}),
    "metadata at a step's end": _ended_step,
    "summary": lambda bound, text: _step(bound, text, summary={"a": text}),
    "request": lambda bound, text: _step(bound, text, "request", payload={"prompt": text}),
    "response": lambda bound, text: _step(bound, text, "response", payload={"answer": text}),
    "error": _failed_step,
    "thread id": lambda bound, text: _thread(bound, name=f"chat {text}"),
    "namespace of a checkpoint": lambda bound, text: _thread(bound, "n", namespace=text),
    "body of a checkpoint": lambda bound, text: _thread(bound, "b", body=text),
    "value of a checkpoint": lambda bound, text: _thread(bound, "v", value=text),
    "metadata of a checkpoint": lambda bound, text: _thread(bound, "m", note=text),
    "pending write": _write,
    "channel of a pending write": lambda bound, text: _write(bound, text, channel=text),
    "name in working memory": lambda bound, text: bound.working.of("r").set(text, 1),
    "value in working memory": lambda bound, text: bound.working.of("r").set("v", {"a": text}),
    "run of working memory": lambda bound, text: bound.working.of(text).set("v", 1),
    "value of a thread": lambda bound, text: bound.working.set("v", [text], thread="t"),
    "thread of working memory": lambda bound, text: bound.working.set("v", 1, thread=text),
    "idempotency key": lambda bound, text: bound.remember("Once.", idempotency_key=text),
    "argument of an approval": lambda bound, text: _asked(bound, "mail", text, "no"),
    "tool of an approval": lambda bound, text: _asked(bound, text, "none", "no"),
    "notes of a replay that waits": _replayed_later,
    "reason of a decision": lambda bound, text: _asked(bound, "mail", "none of it", text),
}


HOLDING = {
    "approvals.arguments",
    "approvals.decided_reason",
    "approvals.subject",
    "edges.reason",
    "jobs.payload",
    "journal.texts",
    "memory_versions.body",
    "runs.agent_name",
    "runs.domain",
    "runs.metadata",
    "runs.user_goal",
    "sources.title",
    "step_entries.summary",
    "steps.metadata",
    "steps.name",
    "thread_states.namespace",
    "thread_writes.channel",
    "threads.name",
    "working.body",
    "working.holder",
    "working.name",
}
"""Columns in which the text is before the erasure. The chain (`journal.body`) and what an
idempotency key is stored as (`idempotency.key`) are not among them.
"""


def _with_text(tally: Tally, text: str) -> dict[str, int]:
    with services_of(tally).store.database.read() as connection:
        return byte_search.rows_with(connection, containment.fragment_forms(text))


def _problems(tally: Tally, bound: BoundTally) -> list[object]:
    """What does not verify: journals, runs and threads."""
    problems: list[object] = []
    with services_of(tally).store.database.read() as connection:
        streams = {entry.stream for entry in journal.all_entries(connection)}
        for stream in streams:
            problems += journal.verify_stream(connection, stream)
    for run in bound.recordings.runs(limit=1_000):
        problems += bound.recordings.verify(run.id).problems
    return problems + list(bound.threads.verify())


def _is_in_files(tally: Tally, text: str) -> list[str]:
    folder = services_of(tally).store.location.folder
    if folder is None:
        return []
    return byte_search.files_with(folder, containment.fragment_forms(text))


def test_a_text_in_any_place_is_erased_with_the_memories_that_say_it(
    open_tally: OpenTally,
) -> None:
    assert len(PLACES) >= 36
    with open_tally(rules=[ASK]) as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        for plant in PLACES.values():
            plant(alice, SECRET)
        services_of(tally).gate.flush()
        services_of(tally).store.database.flush()
        assert _problems(tally, alice) == []
        assert set(_with_text(tally, SECRET)) >= HOLDING
        ids = [memory.id for memory in alice.memories() if SECRET in memory.content]

        preview = root.operator.erase(ids, reason="asked for")
        assert preview.in_chain == preview.elsewhere == ()
        done = root.operator.erase(
            ids, reason="asked for", mode="apply", confirm_token=preview.confirm_token
        )

        assert [proof.problems for proof in done.proofs if not proof.holds] == []
        assert _with_text(tally, SECRET) == {}
        assert _is_in_files(tally, SECRET) == []
        assert _problems(tally, alice) == []
        assert alice.recordings.verify(preview.runs[0]).texts_erased != ()


def test_a_fragment_is_erased_where_names_and_ids_hold_it(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        memory = alice.remember("The code of the pelican is 7341, kept by Ada.").id
        with alice.run(f"agent {PIECE}", goal=PIECE, metadata={"a": PIECE}) as run:
            with run.step("tool_call", name=PIECE, metadata={"a": PIECE}) as named:
                named.record("note", {"text": PIECE}, summary={"a": PIECE})
            with run.step("tool_call", name="look_up", metadata={"a": "b"}) as other:
                other.record("note", "nothing of it", summary={"a": 1})
        _thread(alice, name=f"chat {PIECE}")
        _thread(alice, name="another")
        alice.working.of("r").set(f"on {PIECE}", 1)
        alice.working.of("r").set("another", 2)
        kept = alice.remember("Once.", idempotency_key=PIECE)
        with pytest.raises(InvalidInput, match="4 characters"):
            root.operator.erase(memory, fragments=["Ada"], reason="r")
        assert root.operator.erase(memory, reason="r").threads == ()

        preview = root.operator.erase(memory, fragments=[FRAGMENT], reason="r")
        assert (preview.runs, preview.steps, preview.threads, preview.working) == (
            (run.id,),
            (named.id,),
            (f"private:alice chat {PIECE}",),
            1,
        )
        done = root.operator.erase(
            memory,
            fragments=[FRAGMENT],
            reason="r",
            mode="apply",
            confirm_token=preview.confirm_token,
            idempotency_key="the erasure",
        )

        assert done.proofs[0].problems == ()
        assert _with_text(tally, FRAGMENT) == {}
        assert _is_in_files(tally, FRAGMENT) == []
        assert _problems(tally, alice) == []
        # What stays is found as before, under the key of the first call too.
        assert alice.threads.names() == ["another"]
        assert alice.working.of("r").all() == {"another": 2}
        assert alice.remember("Once.", idempotency_key=PIECE) == kept
        answer = alice.recordings.verify(run.id)
        assert len(answer.texts_erased) == 2
        receipts = alice.recordings.receipts(run.id)
        assert [(receipt.name, receipt.texts_erased) for receipt in receipts] == [
            (None, True),
            ("look_up", False),
        ]
        assert receipts[1].entries[0].summary == {"a": 1}


def test_what_was_recorded_of_a_run_is_erased_with_its_names(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE, request_id=f"request {SECRET}")
        root = tally.bind(ROOT)
        with alice.run(SECRET, domain=SECRET, goal=SECRET, metadata={"a": SECRET}) as run:
            with run.step("tool_call", name=SECRET, metadata={"a": SECRET}) as first:
                first.record("tool_call", {"a": SECRET}, summary={"a": SECRET})
            with run.step("model_call", name=SECRET) as second:
                second.record("note", {"a": SECRET}, summary={"a": SECRET})
            run.count_gap("test", ValueError("lost"))
        foil = alice.recordings.foil(run.id)

        erase = root.operator.erase_recorded
        assert erase(run.id, step_id=second.id, reason="r") == [second.id]
        assert erase(run.id, step_id=second.id, reason="r", mode="apply") == [second.id]
        early = alice.recordings.verify(run.id, foil=foil)
        assert (early.ok, len(early.texts_erased)) == (True, 1)
        assert alice.recordings.receipt(first.id).entries[0].summary == {"a": SECRET}
        assert alice.recordings.step(second.id).name is None
        assert erase(run.id, reason="r", mode="apply") == [first.id]
        assert erase(run.id, reason="r") == []

        assert _with_text(tally, SECRET) == {}
        assert _is_in_files(tally, SECRET) == []
        answer = alice.recordings.verify(run.id, foil=foil)
        assert (answer.ok, answer.foil_matches, len(answer.texts_erased)) == (True, True, 3)
        assert answer.gaps == early.gaps != {}
        record = alice.recordings.run(run.id)
        assert (record.agent_name, record.domain, record.goal, record.metadata) == (
            "",
            None,
            None,
            {},
        )


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE runs SET agent_name = 'forged'",
        "UPDATE runs SET user_goal = 'forged'",
        "UPDATE runs SET metadata = '{\"a\":1}'",
        "UPDATE steps SET metadata = '{\"a\":1}'",
        "UPDATE steps SET name = 'forged'",
        "UPDATE step_entries SET summary = '{\"a\":1}'",
        "UPDATE journal SET salt = NULL",
    ],
)
@pytest.mark.parametrize("erased", [False, True])
def test_a_text_that_was_forged_or_taken_away_is_found(
    open_sqlite: OpenTally, harm: str, erased: bool
) -> None:
    with open_sqlite() as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        with (
            alice.run("coder", goal="mend it") as run,
            run.step("tool_call", name="look_up") as step,
        ):
            step.record("note", {"a": 1}, summary={"a": 2})
        if erased:
            root.operator.erase_recorded(run.id, reason="r", mode="apply")
        assert alice.recordings.verify(run.id).ok
        services_of(tally).store.database.write(lambda tx: tx.exec_driver_sql(harm), name="harm")
        assert not alice.recordings.verify(run.id).ok


def _erased(root: BoundTally, memory_id: str) -> Erasure:
    preview = root.operator.erase(memory_id, reason="asked for")
    token = preview.confirm_token
    return root.operator.erase(memory_id, reason="asked for", mode="apply", confirm_token=token)


def test_a_text_that_administration_holds_is_named_until_it_is_changed(
    open_tally: OpenTally,
) -> None:
    """What a space is called is for whoever manages it to change; the next erasure rewrites the
    file, which has the old name until then.
    """
    with open_tally() as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        memory = alice.remember(SECRET).id
        space = root.spaces.create("team:harbour", name="Harbour", description=SECRET, reason="r")

        done = _erased(root, memory)

        assert not done.proofs[0].holds
        assert [problem for problem in done.proofs[0].problems if "spaces.body" in problem]
        root.spaces.update(space.scope, description="Boats.", reason="r")
        _erased(root, alice.remember("Another.").id)
        assert root.operator.prove_erased(memory, text=SECRET).holds


@pytest.mark.parametrize("named", [5, None, "x", [{}, None, 5], {"a": 1}])
def test_no_metadata_of_a_run_stand_in_the_way_of_an_erasure(
    open_tally: OpenTally, named: object
) -> None:
    """Whatever somebody gives them under the name by which runs of learning say what they read."""
    with open_tally() as tally:
        memory = tally.bind(ALICE).remember(SECRET)
        _run(tally.bind(Actor(user="ben")), "", metadata={READS: named})
        erase = tally.bind(ROOT).operator.erase
        token = erase([memory.id], reason="r").confirm_token
        erase([memory.id], reason="r", mode="apply", confirm_token=token)
        assert _with_text(tally, SECRET) == {}
