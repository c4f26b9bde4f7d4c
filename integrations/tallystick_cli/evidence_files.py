"""Evidence of a gate: one file of figures beside their bars, and where they were measured.

`make gates` writes it; here it is read, compared, and held against the ledger that has its digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tallystick.errors import InvalidInput, InvalidRecord
from tallystick.recorder.ledger import Ledger, latest, read_ledger
from tallystick.records import Foil, JournalEntry, JsonObject, Record, VerificationProblem
from tallystick.records.canonical import strict_json, text_digest

LEDGER = "ledger.jsonl"
"""The ledger in a folder of evidence."""
GATE, DECISION = "gate", "decision"
"""The events of a ledger of gates."""

Result = Literal["held", "missed", "figure"]
Verdict = Literal["pass", "regression", "drift", "hold", "error"]
"""`regression`: a bar is missed. `drift`: it was measured elsewhere or otherwise than the baseline,
so that neither a held nor a missed bar says anything. `hold`: data is missing, or a bar has no
receipt. `error`: the gate failed before its end.
"""


class Machine(Record):
    """The class of a machine, without any name."""

    cores: int
    processor: str
    system: str
    python: str


class Environment(Record):
    """Everything that moves a figure besides the product."""

    machine: Machine | None = None
    """None for a gate without times: its figures are those of every machine."""
    embedder: str
    dimension: int
    weights: str
    """Digest of the embedder's weights and tokenizer, as its fingerprint has it."""
    tokenizer: str
    """The method by which tokens are counted."""
    model: str = ""
    """The model that was measured, as LangChain names it; empty for a gate without one."""
    index: JsonObject = {}
    """Settings of indexes and of ranking."""
    corpora: dict[str, str] = {}
    """Digest of each set of data."""
    seeds: dict[str, int] = {}
    sizes: dict[str, int] = {}
    """How much was measured: a quick run differs from a whole one."""


class EvidenceMeasure(Record):
    """One figure; `value` is None where it is no number."""

    name: str
    category: str
    value: float | None
    bar: str | None = None
    verdict: Result
    note: str = ""


class External(Record):
    """A set that may not stand in the project: reported, and never needed to ship."""

    name: str
    digest: str
    measures: tuple[EvidenceMeasure, ...]


class Evidence(Record):
    """What a gate measured."""

    schema_version: Literal[1] = 1
    gate: str
    commit: str
    dirty: bool
    """True if files differed from the commit."""
    source: Literal["local", "ci"]
    at: int
    """Microseconds UTC."""
    seconds: int
    environment: Environment
    measures: tuple[EvidenceMeasure, ...]
    external: tuple[External, ...] = ()
    verdict: Verdict
    missing: tuple[str, ...] = ()
    """What stands in the way: bars that are missed, facts that drifted, data to fetch."""


class Change(Record):
    """One figure in two files of evidence."""

    name: str
    category: str
    before: float | None
    after: float | None
    verdict_before: Result | None
    """None where only the other file has it."""
    verdict_after: Result | None

    @property
    def difference(self) -> float | None:
        """What it grew by."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before


class Comparison(Record):
    """Two files of evidence of one gate, side by side."""

    gate: str
    commits: tuple[str, str]
    drift: tuple[str, ...]
    """Facts of the environment that differ: then the figures are not comparable."""
    changes: tuple[Change, ...]
    by_category: dict[str, tuple[int, int]]
    """Bars missed in each category of error, before and after."""


def read_evidence(path: Path) -> Evidence:
    """Read a file of evidence. Raises InvalidInput."""
    try:
        return Evidence.load(strict_json(_content(path)))
    except (ValueError, InvalidRecord) as error:
        raise InvalidInput(f"{path} is no evidence of a gate: {error}") from error


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"There is no {path}. `make gates` writes it.") from None


def evidence_digest(content: bytes) -> str:
    """Return the digest by which a ledger names a file of evidence."""
    return text_digest("evidence", content)


def drift_of(now: Environment, before: Environment) -> tuple[str, ...]:
    """Return the facts in which two environments differ, each with both values."""
    return tuple(_differences("", before.dump(), now.dump()))


def _differences(place: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            inner = f"{place}.{name}" if place else name
            yield from _differences(inner, before.get(name), after.get(name))
    elif before != after:
        yield f"{place}: {before} → {after}"


def compare(before: Evidence, after: Evidence) -> Comparison:
    """Return two files side by side, by figure and by category of error. Raises InvalidInput for
    evidence of two gates.
    """
    if before.gate != after.gate:
        raise InvalidInput(f"These are of two gates, {before.gate} and {after.gate}.")
    sides = [{each.name: each for each in one.measures} for one in (before, after)]
    changes = [_change(name, *(side.get(name) for side in sides)) for name in sides[0] | sides[1]]
    categories = dict.fromkeys(each.category for each in changes)
    return Comparison(
        gate=after.gate,
        commits=(before.commit, after.commit),
        drift=drift_of(after.environment, before.environment),
        changes=tuple(changes),
        by_category={
            name: (_missed(before.measures, name), _missed(after.measures, name))
            for name in categories
        },
    )


def _change(name: str, before: EvidenceMeasure | None, after: EvidenceMeasure | None) -> Change:
    there = after or before
    assert there is not None
    return Change(
        name=name,
        category=there.category,
        before=None if before is None else before.value,
        after=None if after is None else after.value,
        verdict_before=None if before is None else before.verdict,
        verdict_after=None if after is None else after.verdict,
    )


def _missed(measures: Iterable[EvidenceMeasure], category: str) -> int:
    return sum(each.category == category and each.verdict == "missed" for each in measures)


def verify_evidence(path: Path, *, foil: Foil | None = None) -> Ledger:
    """Verify a ledger, and that the files of evidence beside it are those that it names last.
    Raises InvalidInput where there is none.
    """
    _content(path)
    ledger = read_ledger(path, foil=foil)
    problems = (*ledger.problems, *_files_that_differ(ledger, path.parent))
    return ledger.replace(ok=not problems, problems=problems)


def _files_that_differ(ledger: Ledger, folder: Path) -> Iterator[VerificationProblem]:
    """Yield what is wrong with the file that the last entry of a gate names."""
    for gate, entry in latest(ledger.entries, GATE).items():
        file = folder / f"{gate}.json"
        if not gate.replace("-", "").isalnum() or not file.is_file():
            problem = "the ledger names evidence that is not here"
        elif evidence_digest(file.read_bytes()) != entry.details.get("evidence"):
            problem = "its evidence is not what the ledger names"
        else:
            continue
        yield VerificationProblem(where=gate, problem=problem)


def evidence_of(folder: Path) -> Sequence[Evidence]:
    """Return the evidence in a folder, by name of the gate. Raises InvalidInput where there is
    none.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InvalidInput(f"There is no evidence in {folder}. `make gates` writes it.")
    return [read_evidence(each) for each in files]


class Decision(NamedTuple):
    """Whether a commit may ship."""

    ships: bool
    missing: tuple[str, ...]
    """What has to be there first; empty where it ships."""


def decide_on(
    entries: Iterable[JournalEntry], commit: str, gates: Iterable[str], wrong: Iterable[str] = ()
) -> Decision:
    """Return the decision about a commit by the receipts of its gates, whatever an entry says was
    decided before; `wrong` is what is missing besides.
    """
    receipts = latest(entries, GATE)
    missing = list(wrong)
    for gate in gates:
        entry = receipts.get(gate)
        if entry is None:
            missing.append(f"{gate}: has not run")
        elif entry.details.get("commit") != commit:
            missing.append(f"{gate}: ran on another commit")
        elif entry.details.get("dirty") is not False:
            missing.append(f"{gate}: ran with files that are not committed")
        elif entry.details.get("verdict") != "pass":
            missing.append(f"{gate}: {entry.details.get('verdict')}")
    return Decision(not missing, tuple(missing))
