"""A bundle proves a run without the tally: what is changed in it is found, and a signature names
its key.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick import Actor, CompileConfig, ContextItem, Tally
from tallystick.errors import Denied, InvalidInput, TallystickError
from tallystick.recorder import verify_bundle
from tallystick.recorder.signing import new_key

OpenTally = Callable[..., Tally]
OWNER = Actor(user="local", role="operator")


def _recorded(tally: Tally) -> str:
    bound = tally.bind(OWNER)
    with bound.run("coder", goal="mend it") as run:
        history = [
            {"role": "user", "content": f"line {place} " + "word " * 80} for place in range(6)
        ]
        for turn in range(3):
            with run.step("model_call", name="model") as step:
                bound.compile(
                    [ContextItem(id="ask", kind="user_msg", content=f"Mend it, {turn}.")],
                    budget=500,
                )
                step.record(
                    "request", {"messages": list(history), "model": "m", "tools": ["t" * 400]}
                )
                step.record("response", {"answer": {"text": f"done {turn}"}})
                history.append({"role": "assistant", "content": f"done {turn}"})
    return run.id


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tally, str, bytes]]:
    with Tally.open(tmp_path_factory.mktemp("bundle") / "tally", background=False) as tally:
        run_id = _recorded(tally)
        yield tally, run_id, tally.bind(OWNER).recordings.export_receipt(run_id)


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _packed(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return out.getvalue()


def test_a_bundle_says_what_the_tally_says(run: tuple[Tally, str, bytes]) -> None:
    tally, run_id, content = run
    recorder = tally.bind(OWNER).recordings
    inside, outside = recorder.verify(run_id), verify_bundle(content)
    assert outside == inside
    assert outside.ok
    assert outside.payloads_checked == 12
    assert recorder.export_receipt(run_id) == content
    assert verify_bundle(content, foil=inside.foil).foil_matches
    # Prompts that grow are not repeated.
    assert _members(content)["payloads.bin"].count(b"line 3 ") == 1


def test_every_changed_byte_of_a_bundle_is_found(run: tuple[Tally, str, bytes]) -> None:
    members = _members(run[2])
    for name, body in members.items():
        for place in range(0, len(body), 37):
            changed = dict(members)
            changed[name] = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
            try:
                answer = verify_bundle(_packed(changed))
            except InvalidInput:
                continue
            assert not answer.ok or _uncovered(name, body, changed[name]), (
                name,
                place,
                body[place - 30 : place + 30],
            )


def _uncovered(name: str, before: bytes, after: bytes) -> bool:
    """Whether all that differs is a field that no chain covers, as the answer lists them, or white
    space.
    """
    if name == "run.json":
        old, new = json.loads(before), json.loads(after)
        for recording in (old, new):
            for field in ("user_goal", "metadata", "schema_version"):
                recording["run"].pop(field, None)
        return bool(old == new)
    free = {
        "steps.jsonl": ("metadata", "parent_step_id", "schema_version"),
        "entries.jsonl": ("at",),
    }[name]
    rows = zip(before.splitlines(), after.splitlines(), strict=True)
    return all(
        {key: value for key, value in json.loads(old).items() if key not in free}
        == {key: value for key, value in json.loads(new).items() if key not in free}
        for old, new in rows
    )


@pytest.mark.parametrize("name", ["chain.jsonl", "steps.jsonl", "entries.jsonl"])
def test_a_line_that_is_missing_from_a_bundle_is_found(
    run: tuple[Tally, str, bytes], name: str
) -> None:
    members = _members(run[2])
    lines = members[name].splitlines(keepends=True)
    for place in range(len(lines)):
        changed = {**members, name: b"".join([*lines[:place], *lines[place + 1 :]])}
        try:
            assert not verify_bundle(_packed(changed)).ok
        except InvalidInput:
            continue


def test_a_bundle_that_was_cut_and_told_a_new_end_is_caught_by_the_foil(
    run: tuple[Tally, str, bytes],
) -> None:
    tally, run_id, content = run
    foil = tally.bind(OWNER).recordings.foil(run_id)
    members = _members(content)
    links = [json.loads(line) for line in members["chain.jsonl"].splitlines()][:2]
    header = json.loads(members["run.json"])
    header["foil"] |= {"count": 2, "head": links[-1]["digest"]}
    header["run"] |= {"status": "running", "ended_at": None}
    first = json.loads(links[-1]["body"])["subject_id"]
    only = {
        "run.json": json.dumps(header).encode(),
        "chain.jsonl": b"".join(json.dumps(link).encode() + b"\n" for link in links),
    }
    for name in ("steps.jsonl", "entries.jsonl"):
        only[name] = b"".join(
            line
            for line in members[name].splitlines(keepends=True)
            if json.loads(line)["step_id"] == first
        )
    places = [json.loads(line)["payload"] for line in only["entries.jsonl"].splitlines()]
    kept = sum(place["size"] for place in places if place is not None)
    only["payloads.bin"] = members["payloads.bin"][:kept]
    assert verify_bundle(_packed(only)).ok
    answer = verify_bundle(_packed(only), foil=foil)
    assert (answer.ok, answer.foil_matches) == (False, False)


@pytest.mark.parametrize(
    "content",
    [b"", b"no zip", _packed({"run.json": b"{}"}), _packed({"a": b""})],
    ids=["empty", "no zip", "members missing", "other members"],
)
def test_what_is_no_bundle_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InvalidInput, match="no bundle"):
        verify_bundle(tmp_path / "file")
    with pytest.raises(InvalidInput, match="cannot be read"):
        verify_bundle(tmp_path / "absent")


def test_a_signed_bundle_names_its_key_and_another_key_is_refused(
    run: tuple[Tally, str, bytes],
) -> None:
    tally, run_id, unsigned = run
    private, public = new_key()
    _, stranger = new_key()
    content = tally.bind(OWNER).recordings.export_receipt(run_id, key=private)
    assert verify_bundle(content).signature_ok
    assert verify_bundle(content, public_key=public).ok
    assert not verify_bundle(content, public_key=stranger).ok
    assert verify_bundle(unsigned).signature_ok is None
    assert not verify_bundle(unsigned, public_key=public).ok
    members = _members(content)
    header = json.loads(members["run.json"])
    header["foil"]["signature"] = "00" * 64
    assert not verify_bundle(_packed({**members, "run.json": json.dumps(header).encode()})).ok
    for wrong in (b"no key", public):
        with pytest.raises(InvalidInput, match="private key"):
            tally.bind(OWNER).recordings.foil(run_id, key=wrong)


def test_payloads_can_be_erased_and_the_chain_still_verifies(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        run_id = _recorded(tally)
        bound = tally.bind(OWNER)
        recorder = bound.recordings
        foil = recorder.foil(run_id)
        steps = [step.id for step in recorder.steps(run_id)]
        last = [entry.payload for entry in recorder.entries(steps[-1])]
        assert bound.operator.erase_recorded(run_id, step_id=steps[0], reason="asked to") == [
            steps[0]
        ]
        assert recorder.verify(run_id).payloads_absent == 0
        assert bound.operator.erase_recorded(
            run_id, step_id=steps[0], reason="asked to", mode="apply"
        ) == [steps[0]]
        assert {entry.payload_state for entry in recorder.entries(steps[0])} == {"erased"}
        assert [entry.payload for entry in recorder.entries(steps[-1])] == last
        verified = recorder.verify(run_id, foil=foil)
        assert (verified.ok, verified.foil_matches, verified.payloads_absent) == (True, True, 4), (
            verified
        )
        assert verify_bundle(recorder.export_receipt(run_id), foil=foil).ok
        with pytest.raises(TallystickError, match="cannot be replayed"):
            recorder.preview_replay(steps[0])
        with pytest.raises(Denied):
            tally.bind(Actor(user="local")).operator.erase_recorded(
                run_id, reason="mine", mode="apply"
            )
        assert len(bound.operator.erase_recorded(run_id, reason="asked to", mode="apply")) == 2
        assert recorder.verify(run_id).payloads_checked == 0


def test_the_questions_that_a_recording_answers(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        memory = bound.remember("The kiln runs at 1,240 degrees on Mondays.", speaker="ada")
        long = bound.remember(
            "Glaze recipes are kept in the blue binder " + "and the red one " * 120
        )
        steps = []
        with bound.run("potter") as run:
            for budget, ask in (
                (400, "How hot is the kiln?"),
                (5_000, "How hot is the kiln on Mondays?"),
            ):
                with run.step("model_call", name="model") as step:
                    hits: list[Any] = [*bound.recall(ask), tally.bind(OWNER).get(long.id)]
                    items = {getattr(one, "memory", one).id: one for one in hits}
                    bound.compile(
                        [ContextItem(id="ask", kind="user_msg", content=ask), *items.values()],
                        budget=budget,
                        config=CompileConfig(relevance_floor=0),
                    )
                    step.record("request", {"prompt": ask})
                    step.record("response", {"answer": "1,240"})
                    noted = bound.remember(f"Asked about the kiln, {budget}.")
                steps.append(step.id)
        recorder = bound.recordings
        assert {item.item_id for item in recorder.knew(steps[0])} == {"ask", memory.id}
        assert [item.item_id for item in recorder.unseen(steps[0])] == [long.id]
        assert recorder.unseen(steps[0])[0].decision.reason_code
        (provenance,) = recorder.trace(steps[0], "kiln  RUNS at")
        assert (provenance.memory_id, provenance.raw) == (
            memory.id,
            "The kiln runs at 1,240 degrees on Mondays.",
        )
        with pytest.raises(InvalidInput, match="holds these words"):
            recorder.trace(steps[0], "blue binder")
        changed = recorder.changed(steps[1])
        assert changed.compile is not None
        assert long.id in {change.item_id for change in changed.compile.added}
        assert (changed.compile.budget_before, changed.compile.budget_after) == (400, 5_000)
        assert any("on Mondays" in line for line in changed.request)
        assert changed.response == ()
        assert [(written.memory_id, written.event) for written in recorder.written(run.id)][-1] == (
            noted.id,
            "ADD",
        )
        uses = {use.step.id: use.how for use in recorder.uses(long.id)}
        assert [uses[step][-1] for step in steps] == ["left_out", "in_context"]
        assert recorder.diff(steps[0], steps[0]).is_empty
        # Another actor sees none of it, nor that it is there.
        stranger = tally.bind(Actor(user="eve")).recordings
        assert stranger.uses(long.id) == []
        with pytest.raises(TallystickError, match="There is no step"):
            stranger.trace(steps[0], "kiln")


def test_a_page_of_steps_begins_after_the_last_one(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        with bound.run("long") as run:
            ids = []
            for _ in range(7):
                step = run.step("other")
                step.end(wait=False)
                ids.append(step.id)
        recorder = bound.recordings
        first = recorder.steps(run.id, limit=3)
        assert [step.id for step in first] == ids[:3]
        assert [step.id for step in recorder.steps(run.id, after=first[-1].step_index)] == ids[3:]
        assert recorder.step_counts(bound.recordings.runs()) == {run.id: 7}


def test_words_are_traced_whatever_letters_they_have(open_tally: OpenTally) -> None:
    """A letter that folds to two stands for itself in the quote, and shifts nothing behind it."""
    text = "İn der Straße " + "wohnt " * 20 + "der Reiher."
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        with bound.run("coder") as run, run.step("model_call") as step:
            bound.compile([ContextItem(id="ask", kind="user_msg", content=text)], budget=500)
        trace = bound.recordings.trace
        assert text.startswith(trace(step.id, "Straße")[0].quote.removesuffix("…"))
        assert trace(step.id, "STRASSE") == trace(step.id, "straße")
        [found] = trace(step.id, "Der Reiher.")
        assert found.quote == f"…{text[-71:]}"


def test_metadata_are_those_of_the_moment_and_have_a_form_that_a_bundle_can_hold(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        metadata: dict[str, Any] = {"loss": float("nan"), "pair": (1, 2)}
        with bound.run("coder", metadata={"loss": float("inf")}) as run:
            step = run.step("model_call", metadata=metadata)
            metadata["loss"] = "later"
            assert step.step_record.metadata == {"loss": "NaN", "pair": [1, 2]}
            step.end()
        assert bound.recordings.run(run.id).metadata == {"loss": "Infinity"}
        assert bound.recordings.step(step.id).metadata == {"loss": "NaN", "pair": [1, 2]}
        assert verify_bundle(bound.recordings.export_receipt(run.id)).ok


def test_no_receipt_has_a_digest_by_which_a_guess_of_a_text_could_be_tested(
    open_tally: OpenTally,
) -> None:
    """The digest of a section is made of what is said alone, as of a request that is not kept."""
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        with bound.run("coder", retention="metadata_only") as run, run.step("model_call"):
            asked = ContextItem(id="ask", kind="user_msg", content="My number is 1234.")
            compiled = bound.compile([asked], budget=500)
        members = _members(bound.recordings.export_receipt(run.id))
        assert not [
            section.name
            for section in compiled.sections
            if any(section.digest.encode() in body for body in members.values())
        ]


def test_what_a_caller_says_never_stands_in_the_chain_itself(open_tally: OpenTally) -> None:
    """The summary of a gap does, because it is ours: nobody else records one."""
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        run = bound.run("coder")
        with pytest.raises(InvalidInput, match="`kind` takes one of"):
            run.step("other").record("gap", summary={"said": "my words"})
        run.end()
        assert b"my words" not in b"".join(
            _members(bound.recordings.export_receipt(run.id)).values()
        )


def test_what_has_ended_never_says_that_it_runs(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        run = tally.bind(OWNER).run("coder")
        for handle in (run.step("other"), run):
            with pytest.raises(InvalidInput, match="`status` takes one of"):
                handle.end("running")
            handle.end()


@pytest.mark.parametrize("text", ["half \ud800", "\x00"])
def test_names_that_no_database_stores_cost_no_step(open_tally: OpenTally, text: str) -> None:
    with open_tally() as tally:
        bound = tally.bind(OWNER)
        with pytest.raises(InvalidInput, match="`run_id`"):
            bound.run("coder", run_id=text)
        with bound.run("coder") as run, run.step("other", name=text, parent=text):
            pass
        assert len(bound.recordings.receipts(run.id)) == 1


@pytest.mark.parametrize("decisions", [5, "x", {"a": 1}, [5, [], ["only"], {}]])
def test_no_summary_of_somebody_s_step_stands_in_the_way_of_who_asks_for_uses_of_a_memory(
    open_tally: OpenTally, decisions: Any
) -> None:
    with open_tally() as tally:
        ada, ben = tally.bind(Actor(user="ada")), tally.bind(Actor(user="ben"))
        memory = ada.remember("The heron nests in March.")
        with ben.run("coder") as run, run.step("other") as step:
            step.record("compiled", summary={"decisions": decisions, "about": memory.id})
        assert ada.recordings.uses(memory.id) == []
        assert ada.inspect(memory.id).id == memory.id
