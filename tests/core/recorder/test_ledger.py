"""A ledger shows each change that somebody made to it, and tells it from an append that was cut
off.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.errors import InvalidInput
from tallystick.recorder.ledger import appending, latest, read_ledger
from tallystick.records import Foil
from tallystick.testing import CountingIds


def _written(path: Path, count: int = 4) -> bytes:
    ids = CountingIds()
    with appending(path) as ledger:
        for number in range(count):
            ledger.append(
                "gate", by="local", subject_id=f"g{number}", details={"n": number}, at=7, ids=ids
            )
    return path.read_bytes()


def test_a_ledger_is_read_back_with_its_entries_and_its_head(tmp_path: Path) -> None:
    _written(tmp_path / "ledger.jsonl")

    ledger = read_ledger(tmp_path / "ledger.jsonl")

    assert (ledger.ok, ledger.ending, ledger.problems) == (True, "whole", ())
    assert [(each.subject_id, each.details) for each in ledger.entries] == [
        (f"g{number}", {"n": number}) for number in range(4)
    ]
    assert (ledger.foil.count, ledger.foil.head) == (4, ledger.entries[-1].digest)
    assert latest(ledger.entries, "gate")["g2"].position == 2


def test_the_chain_goes_on_where_another_process_left_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    context = multiprocessing.get_context("spawn")
    runs = [context.Process(target=_written, args=(path, 5)) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()

    ledger = read_ledger(path)

    assert (ledger.ok, len(ledger.entries)) == (True, 15)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "a value": lambda text: text.replace(b'"n":1', b'"n":9'),
    "a space": lambda text: text.replace(b'"n":1', b'"n": 1'),
    "a field more": lambda text: text.replace(b'{"body"', b'{"a":1,"body"', 1),
    "a line emptied": lambda text: b"".join([*text.splitlines(keepends=True)[:1], text[-1:]]),
    "a line in the middle less": lambda text: b"".join(
        line for number, line in enumerate(text.splitlines(keepends=True)) if number != 1
    ),
    "two lines exchanged": lambda text: b"".join(
        text.splitlines(keepends=True)[place] for place in (0, 2, 1, 3)
    ),
    "a line twice": lambda text: text + text.splitlines(keepends=True)[-1],
    "a comment at the end": lambda text: text + b"shipped by hand",
    "a digest": lambda text: text.replace(b"sha256:", b"sha256:0", 1),
    "a key that stands twice": lambda text: text.replace(b'"n":1', b'"n":1,"n":1'),
    "no bytes of text": lambda text: text.replace(b'"n":1', b'"n":\xff'),
    "a line in the middle torn": lambda text: text.replace(b"\n", b"", 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found_and_nothing_is_appended_to_it(tmp_path: Path, change: str) -> None:
    path = tmp_path / "ledger.jsonl"
    changed = CHANGES[change](_written(path))
    path.write_bytes(changed)

    ledger = read_ledger(path)

    assert not ledger.ok
    assert ledger.problems
    with pytest.raises(InvalidInput, match="was changed"), appending(path):
        pass
    assert path.read_bytes() == changed


def test_an_append_that_was_cut_off_is_no_tampering_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    text = _written(path)
    start = text[:-1].rindex(b"\n") + 1

    for end in range(start + 1, len(text)):
        path.write_bytes(text[:end])
        ledger = read_ledger(path)
        assert (ledger.ok, ledger.ending) == (True, "torn"), text[start:end]
        assert len(ledger.entries) == (4 if end == len(text) - 1 else 3)


@pytest.mark.parametrize("missing", [1, 40])
def test_the_next_append_mends_what_was_cut_off(tmp_path: Path, missing: int) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(_written(path)[:-missing])

    with appending(path) as ledger:
        ledger.append("decision", by="ci")

    ledger_now = read_ledger(path)
    assert (ledger_now.ok, ledger_now.ending) == (True, "whole")
    assert [each.event for each in ledger_now.entries][-2:] == ["gate", "decision"]
    assert len(ledger_now.entries) == (5 if missing == 1 else 4)


def test_only_a_head_that_was_kept_shows_an_end_that_was_cut_or_a_ledger_written_anew(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.jsonl"
    lines = _written(path).splitlines(keepends=True)
    kept = read_ledger(path).foil
    with appending(path) as ledger:
        ledger.append("decision", by="ci")
    assert read_ledger(path, foil=kept).ok

    path.write_bytes(b"".join(lines[:3]))
    assert read_ledger(path).ok
    [cut] = read_ledger(path, foil=kept).problems
    assert "its end was cut off" in cut.problem

    path.unlink()
    _written(path, 3)
    with appending(path) as ledger:
        ledger.append("gate", by="local", subject_id="g3", details={"n": 9})
    [anew] = read_ledger(path, foil=kept).problems
    assert "was written anew" in anew.problem
    assert not read_ledger(path, foil=Foil(run_id="ledger", count=0, head="sha256:0")).ok


def test_an_empty_ledger_has_a_head_too(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.touch()

    ledger = read_ledger(path)

    assert (ledger.ok, ledger.ending, ledger.foil.count) == (True, "empty", 0)
    assert read_ledger(path, foil=ledger.foil).ok


def test_a_line_can_be_read_by_any_program(tmp_path: Path) -> None:
    line = json.loads(_written(tmp_path / "ledger.jsonl", 1))

    assert line["body"]["details"] == {"n": 0}
    assert line["position"] == 0
