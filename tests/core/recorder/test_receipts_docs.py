"""docs/receipts.md describes the format: its verifier imports nothing of ours, and finds what ours
finds.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from tests.core.recorder.printed_verifier import DOCS, PAGE, printed_verifier

from tallystick import Actor, ContextItem, Tally
from tallystick.errors import InvalidInput
from tallystick.recorder import Run, verify_bundle
from tallystick.recorder.verify import NOT_COVERED
from tallystick.records import EntryKind, Foil, Retention
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock

OWNER = Actor(user="local", role="operator")


THEIRS = printed_verifier()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A run with prompts that grow, a failed step, a secret, gaps, and payloads that were
    erased.
    """
    with Tally.open(tmp_path_factory.mktemp("docs") / "tally", background=False) as tally:
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
                    step.record("response", {"answer": {"text": f"done {turn}", "é": 0.5}})
                    history.append(
                        {"role": "assistant", "content": f"password={'hunter22' * 3} {turn}"}
                    )
            erased = run.step("tool_call", name="read")
            erased.record("tool_call", {"arguments": {"path": "notes"}})
            erased.fail(ValueError("no such file"))
            erased.end()
            with run.step("other", name="too much at once") as step:
                services_of(bound.tally).recorder.backlog.add(1 << 40)
                step.record("note", "left out")
                services_of(bound.tally).recorder.backlog.add(-(1 << 40))
            run.count_gap("test", ValueError("lost"))
        bound.operator.erase_recorded(run.id, step_id=erased.id, reason="asked to", mode="apply")
        return bound.recordings.export_receipt(run.id)


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _packed(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return out.getvalue()


def _found(content: bytes, foil: Foil | None = None) -> tuple[bool | None, bool]:
    """Whether ours and theirs find something; None of ours where what was changed is the form
    itself.
    """
    try:
        ours: bool | None = not verify_bundle(content, foil=foil).ok
    except InvalidInput:
        ours = None
    try:
        theirs = bool(
            THEIRS(io.BytesIO(content), None if foil is None else (foil.count, foil.head))
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        theirs = True
    return ours, theirs


def test_the_verifier_of_the_page_finds_a_whole_bundle_whole(bundle: bytes) -> None:
    foil = verify_bundle(bundle).foil
    assert len(verify_bundle(bundle).gaps) == 2
    assert THEIRS(io.BytesIO(bundle)) == THEIRS(io.BytesIO(bundle), (foil.count, foil.head)) == []
    assert _found(bundle, foil.replace(count=foil.count - 1)) == (True, True)


@pytest.mark.soak
def test_the_verifier_of_the_page_finds_every_changed_byte_that_ours_finds(bundle: bytes) -> None:
    members = _members(bundle)
    for name, body in members.items():
        for place in range(0, len(body), 41):
            changed = {**members, name: body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]}
            ours, theirs = _found(_packed(changed))
            assert ours is None or ours == theirs, (name, place, body[place - 30 : place + 30])


@pytest.mark.parametrize("name", ["chain.jsonl", "steps.jsonl", "entries.jsonl"])
def test_the_verifier_of_the_page_finds_a_line_that_is_missing(bundle: bytes, name: str) -> None:
    members = _members(bundle)
    lines = members[name].splitlines(keepends=True)
    for place in range(len(lines)):
        assert _found(_packed({**members, name: b"".join([*lines[:place], *lines[place + 1 :]])}))[
            1
        ]


def test_every_field_of_a_bundle_and_each_that_no_chain_covers_stands_on_the_page(
    bundle: bytes,
) -> None:
    members = _members(bundle)
    header = json.loads(members["run.json"])
    documented: set[str] = {*header, *header["run"]}
    for name in ("chain.jsonl", "steps.jsonl", "entries.jsonl"):
        documented |= set(json.loads(members[name].splitlines()[0]))
    body = json.loads(json.loads(members["chain.jsonl"].splitlines()[1])["body"])
    documented |= {
        *body,
        *body["details"],
        *body["details"]["entries"][0],
        *members,
        *NOT_COVERED,
        *get_args(EntryKind),
    }
    page = PAGE.read_text(encoding="utf-8") + (DOCS / "receipts.md").read_text(encoding="utf-8")
    assert [field for field in sorted(documented) if f"`{field}`" not in page] == []


def _talk(bound: BoundTally, run: Run) -> None:
    """Two calls of a model and a write to memory, with a secret."""
    for turn in range(2):
        with run.step("model_call", name="model") as step:
            bound.compile(
                [ContextItem(id="ask", kind="user_msg", content=f"Mend it, {turn}.")], budget=500
            )
            step.record(
                "request", {"messages": ["word " * 20] * turn, "key": f"password={'hunter22' * 3}"}
            )
            step.record("response", {"answer": {"text": f"done {turn}"}})
    bound.remember("The kiln is hot.")


def _kept(retention: Retention) -> Callable[[Tally, StepClock], str]:
    def made(tally: Tally, clock: StepClock) -> str:
        bound = tally.bind(OWNER)
        with bound.run("coder", retention=retention) as run:
            _talk(bound, run)
        return run.id

    return made


def _erased(tally: Tally, clock: StepClock) -> str:
    run_id = _kept("full_payloads")(tally, clock)
    for _ in range(2):
        tally.bind(OWNER).operator.erase_recorded(run_id, reason="asked to", mode="apply")
    return run_id


def _empty(tally: Tally, clock: StepClock) -> str:
    with tally.bind(OWNER).run("coder") as run:
        pass
    return run.id


def _going_on(tally: Tally, clock: StepClock) -> str:
    run = tally.bind(OWNER).run("coder")
    _talk(tally.bind(OWNER), run)
    run.step("tool_call", name="read").record("tool_call", {"arguments": {}})
    run.count_gap("test", ValueError("lost"))
    return run.id


def _purged(tally: Tally, clock: StepClock) -> str:
    run_id = _kept("redacted_payloads")(tally, clock)
    clock.advance(days=100)
    tally.bind(OWNER).operator.choose_windows(journal_days=90)
    tally.bind(OWNER).operator.purge(mode="apply", reason="r")
    return run_id


KINDS: dict[str, Callable[[Tally, StepClock], str]] = {
    "metadata only": _kept("metadata_only"),
    "redacted": _kept("redacted_payloads"),
    "full": _kept("full_payloads"),
    "erased": _erased,
    "empty": _empty,
    "going on": _going_on,
    "interrupted": _going_on,
    "purged": _purged,
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_verifier_of_the_page_knows_every_kind_of_run(tmp_path: Path, kind: str) -> None:
    clock = StepClock()
    with Tally.open(tmp_path / "tally", background=False, clock=clock) as tally:
        run_id = KINDS[kind](tally, clock)
        bundle, foil = tally.recordings.export_receipt(run_id), tally.recordings.foil(run_id)
    if kind == "interrupted":
        # The process is gone, and whoever opens the tally next says so.
        with Tally.open(tmp_path / "tally", background=False, clock=clock) as tally:
            assert tally.recordings.run(run_id).status == "interrupted"
            bundle = tally.recordings.export_receipt(run_id)
    ours = verify_bundle(bundle, foil=foil)
    assert (ours.ok, ours.problems, ours.foil_matches) == (True, (), True)
    assert THEIRS(io.BytesIO(bundle)) == THEIRS(io.BytesIO(bundle), (foil.count, foil.head)) == []
    assert _found(bundle, foil.replace(head=foil.head[::-1])) == (True, True)

    members = _members(bundle)
    for name, body in members.items():
        changed = [
            body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
            for place in range(0, len(body), 89)
        ]
        lines = body.splitlines(keepends=True) if name.endswith(".jsonl") else []
        changed += [
            b"".join([*lines[:place], *lines[place:][:1] * 2, *lines[place:][1:]])
            for place in range(len(lines))
        ]
        for content in changed:
            problems = _found(_packed({**members, name: content}))
            assert problems[0] is None or problems[0] == problems[1], (name, content)


def test_a_step_or_an_entry_that_was_put_into_a_bundle_is_found(bundle: bytes) -> None:
    members = _members(bundle)
    step = members["steps.jsonl"].splitlines(keepends=True)[0]
    entry = json.loads(members["entries.jsonl"].splitlines()[0])
    stray = {
        **entry,
        "step_id": entry["step_id"][::-1],
        "payload_state": "erased",
        "payload": None,
        "salt": None,
    }
    for changed in (
        {"steps.jsonl": step + members["steps.jsonl"]},
        {"entries.jsonl": members["entries.jsonl"] + json.dumps(stray).encode() + b"\n"},
    ):
        assert _found(_packed({**members, **changed})) == (True, True)


def test_what_a_purge_says_of_itself_is_read_with_care(tmp_path: Path) -> None:
    clock = StepClock()
    with Tally.open(tmp_path / "tally", background=False, clock=clock) as tally:
        run_id = _purged(tally, clock)
        changed = (
            "UPDATE journal SET body = replace(unpacked_text(body), '\"before\":', "
            "'\"bef0re\":') WHERE event = 'run.purge'"
        )
        services_of(tally).store.database.write(lambda tx: tx.exec_driver_sql(changed), name="harm")
        answer = tally.recordings.verify(run_id)
    assert (answer.ok, answer.purged) == (False, None)
