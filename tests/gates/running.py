"""One gate, run: its measures become evidence, judged beside the stored baseline."""

from __future__ import annotations

import json
import math
import os
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from tests.benchmarks.eval_recall import BadData
from tests.benchmarks.measures import Measure
from tests.gates.catalogue import Gate
from tests.gates.environment import commit, environment_of, file_digest

from tallystick.records.canonical import json_bytes
from tallystick_cli.evidence_files import (
    Environment,
    Evidence,
    EvidenceMeasure,
    External,
    Verdict,
    drift_of,
    read_evidence,
)

_jsonschema: Any = import_module("jsonschema")
BASELINES = Path(__file__).parent / "baselines"
SCHEMA = Path(__file__).parent / "evidence.schema.json"
_RUN = "make gates ARGS="


def source() -> Literal["local", "ci"]:
    """Return where this runs, as CI says of itself."""
    return "ci" if os.environ.get("CI") else "local"


def run_gate(
    name: str,
    gate: Gate,
    *,
    quick: bool = False,
    external: Sequence[Path] = (),
    baselines: Path = BASELINES,
) -> Evidence:
    """Run a gate and return its evidence. What it raises is in the evidence by its type, and on
    standard error; what it measured before that stays.
    """
    sizes = gate.quick if quick else gate.whole
    named, dirty = commit()
    began, at = time.monotonic(), time.time_ns() // 1_000
    found: list[Measure] = []
    missing: list[str] = []
    error = ""
    environment = _EMPTY
    foreign: list[External] = []
    absent = [path for path in gate.corpora if not path.is_file()]
    missing += [f"data: {path.name} is not here; it comes with the source" for path in absent]
    missing += gate.needs()
    if not missing:
        try:
            environment = environment_of(gate, sizes)
            for each in gate.run(sizes):
                found.append(each)
        except Exception as raised:  # noqa: BLE001 - a gate that fails is a receipt too
            traceback.print_exception(raised)
            error = f"failed with {type(raised).__name__} after {len(found)} figures"
    for path in external:
        foreign += _foreign(gate, path)
    baseline = _baseline(baselines / f"{name}.json")
    verdict, reasons = judge(found, environment, baseline, missing=missing, error=error)
    if baseline is None and not missing and not error:
        reasons = (*reasons, f'there is no baseline: {_RUN}"--only {name} --baseline" writes it')
    evidence = Evidence(
        gate=name,
        commit=named,
        dirty=dirty,
        source=source(),
        at=at,
        seconds=round(time.monotonic() - began),
        environment=environment,
        measures=tuple(map(measure_of, found)),
        external=tuple(foreign),
        verdict=verdict,
        missing=reasons,
    )
    _jsonschema.validate(json.loads(json_bytes(evidence.dump())), schema())
    return evidence


_EMPTY = Environment(embedder="", dimension=0, weights="", tokenizer="")


def _foreign(gate: Gate, path: Path) -> list[External]:
    """Return the figures of a set of somebody else's: they decide nothing."""
    if gate.foreign is None:
        print(f"! {path.name}: this gate reads no set of others")
        return []
    try:
        measures = tuple(map(measure_of, gate.foreign(path)))
        return [External(name=path.name, digest=file_digest(path), measures=measures)]
    except (BadData, OSError, KeyError, ValueError, TypeError) as error:
        print(f"! {path.name} cannot be measured: {error}")
        return []


def _baseline(path: Path) -> Evidence | None:
    return read_evidence(path) if path.is_file() else None


def judge(
    found: Sequence[Measure],
    environment: Environment,
    baseline: Evidence | None,
    *,
    missing: Sequence[str] = (),
    error: str = "",
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict of a gate and what stands in its way. Drift comes before a missed bar:
    what was measured otherwise says nothing of the product.
    """
    if error:
        return "error", (error,)
    if missing:
        return "hold", tuple(missing)
    missed = [f"{each.name}: {each.value:g} ({each.bar})" for each in found if _is_missed(each)]
    if baseline is None:
        return ("regression", tuple(missed)) if missed else ("hold", ())
    drifted = drift_of(environment, baseline.environment)
    if drifted:
        return "drift", drifted
    if missed:
        return "regression", tuple(missed)
    names = {each.name for each in found if each.bar is not None}
    bars = [each.name for each in baseline.measures if each.bar is not None]
    unproven = [f"no receipt for the bar of: {name}" for name in bars if name not in names]
    return ("hold", tuple(unproven)) if unproven else ("pass", ())


def _is_missed(measure: Measure) -> bool:
    return measure.verdict == "missed"


def measure_of(measure: Measure) -> EvidenceMeasure:
    """Return a measure as evidence has it."""
    return EvidenceMeasure(
        name=measure.name,
        category=measure.category,
        value=round(measure.value, 6) if math.isfinite(measure.value) else None,
        bar=None if measure.bar is None else str(measure.bar),
        verdict=measure.verdict,
        note=measure.note,
    )


def schema() -> Mapping[str, Any]:
    """Return the JSON Schema of evidence, as it stands beside the gates."""
    read: Mapping[str, Any] = json.loads(SCHEMA.read_text("utf-8"))
    return read
