"""A gate's evidence says where it was measured and what each bar says; its ledger ends in `ship`
only where every gate has a receipt on the commit, from files that nobody edited.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.measures import TIME, Measure, figure, least, most
from tests.gates import ledger, names, running
from tests.gates.catalogue import GATES, Gate
from tests.gates.environment import environment_of
from tests.gates.running import SCHEMA, run_gate

from tallystick.errors import InvalidInput
from tallystick.recorder.ledger import read_ledger
from tallystick.records.canonical import json_bytes
from tallystick_cli.evidence_files import Evidence, Verdict, compare, drift_of, verify_evidence

COMMIT = "0f" * 20


@pytest.fixture(autouse=True)
def _committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "commit", lambda: (COMMIT, False))
    monkeypatch.delenv("CI", raising=False)


def _gate(*measures: Measure, **given: Any) -> Gate:
    return Gate(lambda _: measures, {"size": 9}, {"size": 2}, has_times=False, **given)


HELD = (most("leaks", 0, 0, "leak"), least("found", 0.9, 0.8, "not found"), figure("n", 3, ""))


def _run(tmp_path: Path, gate: Gate, **given: Any) -> Evidence:
    return run_gate("one", gate, baselines=tmp_path / "baselines", **given)


def _store(tmp_path: Path, evidence: Evidence) -> None:
    (tmp_path / "baselines").mkdir(exist_ok=True)
    (tmp_path / "baselines" / "one.json").write_bytes(json_bytes(evidence.dump()))


def test_a_gate_writes_every_measure_with_its_bar_and_its_verdict(tmp_path: Path) -> None:
    evidence = _run(tmp_path, _gate(*HELD))

    assert [(each.name, each.bar, each.verdict) for each in evidence.measures] == [
        ("leaks", "≤ 0", "held"),
        ("found", "≥ 0.8", "held"),
        ("n", None, "figure"),
    ]
    assert (evidence.commit, evidence.dirty, evidence.source) == (COMMIT, False, "local")
    assert evidence.environment.dimension == 256
    assert evidence.environment.sizes == {"size": 9}
    assert evidence.environment.machine is None
    assert Evidence.load(json.loads(json_bytes(evidence.dump()))) == evidence


def test_the_environment_has_the_class_of_the_machine_and_no_name_or_path_of_it() -> None:
    gate = Gate(lambda _: (), {"size": 1}, {"size": 1})
    machine = environment_of(gate, gate.whole).machine
    assert machine is not None
    assert machine.cores > 0
    told = json.dumps(machine.dump())
    assert "/" not in told
    assert import_module("platform").node() not in told


def test_a_release_asks_for_each_gate() -> None:
    assert tuple(GATES) == names.GATES


@pytest.mark.parametrize("name", GATES)
def test_each_gate_of_a_release_has_an_environment_and_its_data(name: str) -> None:
    environment = environment_of(GATES[name], GATES[name].whole)

    assert environment.embedder
    assert len(environment.corpora) == len(GATES[name].corpora)
    assert not any(Path(each).is_absolute() for each in environment.corpora)
    assert drift_of(environment_of(GATES[name], GATES[name].quick), environment)


def test_a_run_beside_its_baseline_passes_and_one_without_any_is_held(tmp_path: Path) -> None:
    first = _run(tmp_path, _gate(*HELD))
    assert first.verdict == "hold"
    assert "there is no baseline" in first.missing[0]

    _store(tmp_path, first)
    assert _run(tmp_path, _gate(*HELD)).verdict == "pass"


MISSED = (most("leaks", 2, 0, "leak"), *HELD[1:])


@pytest.mark.parametrize(
    ("measures", "given", "verdict", "said"),
    [
        (MISSED, {}, "regression", "leaks: 2 (≤ 0)"),
        (MISSED, {"quick": True}, "drift", "sizes.size: 9 → 2"),
        (HELD, {"quick": True}, "drift", "sizes.size: 9 → 2"),
        (HELD[:1], {}, "hold", "no receipt for the bar of: found"),
    ],
    ids=["a missed bar", "missed elsewhere", "held elsewhere", "a bar without a receipt"],
)
def test_what_was_measured_otherwise_is_drift_and_never_a_regression(
    tmp_path: Path,
    measures: Iterable[Measure],
    given: Mapping[str, Any],
    verdict: Verdict,
    said: str,
) -> None:
    _store(tmp_path, _run(tmp_path, _gate(*HELD)))

    evidence = _run(tmp_path, _gate(*measures), **given)

    assert (evidence.verdict, evidence.missing) == (verdict, (said,))


def test_a_gate_that_fails_keeps_what_it_measured_and_tells_no_text(tmp_path: Path) -> None:
    def failing(_: Any) -> Iterable[Measure]:
        yield HELD[0]
        raise RuntimeError("a path: /home/somebody")

    evidence = _run(tmp_path, Gate(failing, {"size": 1}, {"size": 1}))

    assert (evidence.verdict, evidence.missing) == (
        "error",
        ("failed with RuntimeError after 1 figures",),
    )
    assert [each.name for each in evidence.measures] == ["leaks"]


def test_a_gate_without_its_data_says_what_is_missing_and_is_held(tmp_path: Path) -> None:
    evidence = _run(tmp_path, _gate(*HELD, corpora=(tmp_path / "set.json",)))

    assert evidence.verdict == "hold"
    assert evidence.missing[0].startswith("data: set.json is not here")
    assert evidence.measures == ()


def test_a_set_of_others_is_reported_with_its_digest_and_decides_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "foreign.json"
    foreign.write_text("[]")
    gate = _gate(*HELD, foreign=lambda path: [most("leaks", 7, 0, "leak")])
    _store(tmp_path, _run(tmp_path, gate))

    evidence = _run(tmp_path, gate, external=[foreign, tmp_path / "none.json"])

    assert evidence.verdict == "pass"
    [external] = evidence.external
    assert external.digest.startswith("sha256:4f53cda1")
    assert external.measures[0].verdict == "missed"
    assert "none.json cannot be measured" in capsys.readouterr().out


def test_a_figure_that_is_no_number_misses_its_bar(tmp_path: Path) -> None:
    evidence = _run(tmp_path, _gate(most("peak", float("inf"), 5, "memory")))

    assert (evidence.measures[0].value, evidence.measures[0].verdict) == (None, "missed")
    assert most("share", float("nan"), 1, "x").verdict == "missed"


def test_the_schema_beside_the_gates_is_that_of_the_record() -> None:
    stored = json.loads(SCHEMA.read_text("utf-8"))
    assert {"$schema": stored["$schema"], **Evidence.model_json_schema()} == stored


def _receipts(tmp_path: Path, **given: Any) -> tuple[Path, list[str]]:
    _store(tmp_path, _run(tmp_path, _gate(*HELD)))
    passed = _run(tmp_path, _gate(*HELD)).replace(**given)
    for name in ("one", "two"):
        ledger.record(passed.replace(gate=name), tmp_path / "evidence")
    return tmp_path / "evidence", ["one", "two"]


def test_what_has_every_receipt_ships_and_the_head_is_that_of_the_decision(tmp_path: Path) -> None:
    folder, gates = _receipts(tmp_path)

    decided = ledger.decide(COMMIT, gates, source="ci", folder=folder)

    assert decided == (True, ())
    entries = read_ledger(folder / "ledger.jsonl").entries
    assert [each.event for each in entries] == ["gate", "gate", "decision"]
    assert entries[-1].details["verdict"] == "ship"
    assert ledger.head(folder).head == entries[-1].digest


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"verdict": "drift"}, "drift"),
        ({"verdict": "error"}, "error"),
        ({"dirty": True}, "ran with files that are not committed"),
        ({"commit": "ab" * 20}, "ran on another commit"),
    ],
)
def test_what_lacks_a_receipt_is_held_and_says_what_is_missing(
    tmp_path: Path, given: Mapping[str, Any], said: str
) -> None:
    folder, gates = _receipts(tmp_path, **given)

    decided = ledger.decide(COMMIT, [*gates, "three"], source="local", folder=folder)

    assert not decided.ships
    assert decided.missing == (f"one: {said}", f"two: {said}", "three: has not run")
    last = read_ledger(folder / "ledger.jsonl").entries[-1]
    assert last.details["missing"] == list(decided.missing)


def test_evidence_that_was_edited_or_removed_is_held(tmp_path: Path) -> None:
    folder, gates = _receipts(tmp_path)
    edited = (folder / "one.json").read_bytes().replace(b'"value":0.9', b'"value":1.9')
    (folder / "one.json").write_bytes(edited)
    (folder / "two.json").unlink()

    decided = ledger.decide(COMMIT, gates, source="local", folder=folder)

    assert decided.missing == (
        "one: its evidence is not what the ledger names",
        "two: the ledger names evidence that is not here",
    )
    with pytest.raises(InvalidInput, match="does not verify"):
        ledger.head(folder)


def test_a_ledger_that_was_edited_or_has_lost_its_end_is_held(tmp_path: Path) -> None:
    folder, gates = _receipts(tmp_path, verdict="regression")
    path = folder / "ledger.jsonl"
    kept = ledger.head(folder)
    whole = path.read_bytes()

    path.write_bytes(whole.replace(b'"verdict":"regression"', b'"verdict":"pass"'))
    assert not ledger.decision(COMMIT, gates, folder).ships
    with pytest.raises(InvalidInput, match="was changed"):
        ledger.decide(COMMIT, gates, source="local", folder=folder)

    path.write_bytes(whole[: whole.index(b"\n") + 1])
    assert "two: has not run" in ledger.decision(COMMIT, gates, folder).missing
    assert not verify_evidence(path, foil=kept).ok


def test_two_runs_at_once_leave_one_chain_and_the_files_that_it_names(tmp_path: Path) -> None:
    evidence = _run(tmp_path, _gate(*HELD))
    folder = tmp_path / "evidence"

    with ThreadPoolExecutor(4) as pool:
        runs = [evidence.replace(seconds=number) for number in range(12)]
        list(pool.map(lambda each: ledger.record(each, folder), runs))

    verified = verify_evidence(folder / "ledger.jsonl")
    assert (verified.ok, len(verified.entries)) == (True, 12)


def test_two_runs_are_compared_by_figure_and_by_category_of_error(tmp_path: Path) -> None:
    before = _run(tmp_path, _gate(*HELD))
    after = _run(tmp_path, _gate(*MISSED[:2], figure("ms", 3, TIME)), quick=True)

    compared = compare(before, after)

    assert compared.drift == ("sizes.size: 9 → 2",)
    assert [(each.name, each.difference) for each in compared.changes] == [
        ("leaks", 2.0),
        ("found", 0.0),
        ("n", None),
        ("ms", None),
    ]
    assert compared.by_category["leak"] == (0, 1)
    assert compared.by_category["not found"] == (0, 0)
    with pytest.raises(InvalidInput, match="two gates"):
        compare(before, after.replace(gate="two"))
