"""`tally evidence` shows gates, compares two runs, and verifies a ledger with its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.terminals import run_piped

from tallystick.recorder.ledger import appending
from tallystick.records.canonical import json_bytes
from tallystick_cli.evidence_files import (
    Environment,
    Evidence,
    EvidenceMeasure,
    Verdict,
    evidence_digest,
)


def _evidence(value: float, verdict: Verdict, **environment: object) -> Evidence:
    return Evidence(
        gate="everyday",
        commit="c0ffee" * 6,
        dirty=False,
        source="local",
        at=1_800_000_000_000_000,
        seconds=3,
        environment=Environment.load(
            {"embedder": "static", "dimension": 256, "weights": "w", "tokenizer": "t"} | environment
        ),
        measures=(
            EvidenceMeasure(
                name="outdated [red]alone[/red]",
                category="outdated",
                value=value,
                bar="≤ 29",
                verdict="held" if value <= 29 else "missed",
            ),
        ),
        verdict=verdict,
        missing=() if verdict == "pass" else ("outdated alone: 31 (≤ 29)",),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "evidence"
    content = json_bytes(_evidence(28, "pass").dump())
    with appending(place / "ledger.jsonl") as ledger:
        (place / "everyday.json").write_bytes(content)
        details = {"verdict": "pass", "commit": "c0ffee", "evidence": evidence_digest(content)}
        ledger.append("gate", by="local", subject_id="everyday", details=details)
        (place / "memory-trust.json").write_bytes(content)
        ledger.append("gate", by="local", subject_id="memory-trust", details=details)
        missing = ["recall: has not run"]
        ledger.append("decision", by="local", details={"verdict": "hold", "missing": missing})
    (tmp_path / "later.json").write_bytes(json_bytes(_evidence(31, "regression").dump()))
    (tmp_path / "elsewhere.json").write_bytes(
        json_bytes(_evidence(28, "drift", dimension=384).dump())
    )
    return place


def test_a_folder_is_shown_by_gate_and_a_file_by_figure(folder: Path) -> None:
    code, output, _ = run_piped("evidence", "show", str(folder))
    assert code == 0
    assert "everyday" in output
    assert "pass" in output

    code, output, _ = run_piped("evidence", "show", str(folder.parent / "later.json"), columns=120)
    assert code == 1
    assert "[red]alone[/red]" in output
    assert "missed" in output
    assert "regression" in output


def test_two_runs_are_compared_and_drift_exits_with_one(folder: Path) -> None:
    first = str(folder / "everyday.json")
    later, elsewhere = (str(folder.parent / f"{name}.json") for name in ("later", "elsewhere"))

    code, output, _ = run_piped("evidence", "compare", first, later, columns=120)
    assert code == 0
    assert "1 of 1 figures changed" in output
    assert "+3" in output

    code, output, _ = run_piped("evidence", "compare", first, elsewhere, "--json")
    assert code == 1
    assert json.loads(output)["drift"] == ["dimension: 256 → 384"]


def test_a_ledger_is_verified_with_the_files_it_names_and_the_head_that_was_kept(
    folder: Path,
) -> None:
    code, output, _ = run_piped("evidence", "verify", str(folder), columns=160)
    assert code == 0
    assert "decision: hold" in output
    assert "memory-trust" in output
    assert "recall: has not run" in output
    [line] = [each for each in output.splitlines() if "foil:" in each]
    kept = line.rpartition(" ")[2]
    assert run_piped("evidence", "verify", str(folder), "--foil", kept)[0] == 0

    ledger = folder / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().splitlines(keepends=True)[0])
    assert run_piped("evidence", "verify", str(folder))[0] == 0
    code, output, _ = run_piped("evidence", "verify", str(ledger), "--foil", kept, columns=160)
    assert code == 1
    assert "its end was cut off" in output

    ledger.write_bytes(ledger.read_bytes()[:-40])
    code, output, _ = run_piped("evidence", "verify", str(ledger))
    assert code == 0
    assert "was cut off, and is no entry" in output


def test_evidence_that_was_edited_does_not_verify(folder: Path) -> None:
    file = folder / "everyday.json"
    file.write_bytes(file.read_bytes().replace(b"28", b"20"))

    code, output, _ = run_piped("evidence", "verify", str(folder), "--json")

    assert code == 1
    [problem] = json.loads(output)["problems"]
    assert problem == {
        "where": "everyday",
        "problem": "its evidence is not what the ledger names",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "none.json"), "`make gates` writes it"),
        (("show", "nothing"), "`make gates` writes it"),
        (("verify", "none.jsonl"), "`make gates` writes it"),
        (("compare", "one.json"), "Write: tally evidence compare BEFORE AFTER"),
        (("show", "one.json", "two.json"), "Write: tally evidence show [FILE]"),
        (("show", "one.json", "--foil", "1:a"), "takes no --foil here"),
        (("verify", "none.jsonl", "--foil", "²:a"), "COUNT:DIGEST"),
        (("verify", "none.jsonl", "--foil", f"{'9' * 5_000}:a"), "COUNT:DIGEST"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, errors = run_piped("evidence", *arguments, columns=200)
    assert code == 2
    assert said in errors


def test_a_file_that_is_no_evidence_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    for text in ("", "{}", '{"gate": 1}', "[" * 5_000, '{"a": 1, "a": 2}'):
        file.write_text(text)
        code, _, errors = run_piped("evidence", "show", str(file), columns=200)
        assert code == 2
        assert "is no evidence of a gate" in errors
