"""The command of evidence: figures of gates beside their bars, two runs side by side, a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tallystick.recorder.ledger import Ledger, latest
from tallystick.records import JournalEntry
from tallystick_cli.actions import Action, action_command
from tallystick_cli.commands import Answer, Call
from tallystick_cli.evidence_files import (
    DECISION,
    GATE,
    LEDGER,
    Comparison,
    Evidence,
    EvidenceMeasure,
    compare,
    evidence_of,
    read_evidence,
    verify_evidence,
)
from tallystick_cli.inputs import read_foil
from tallystick_cli.views.common import facts, local_time, note, report, rows, table

_STYLES = {"pass": "green", "held": "green", "ship": "green", "figure": "dim", "drift": "yellow"}


def _verdict(verdict: str | None) -> Text:
    return Text(verdict or "–", style=_STYLES.get(verdict or "", "red"))


def _number(value: float | None, sign: str = "-") -> str:
    return "–" if value is None else f"{value:{sign},.3f}".rstrip("0").rstrip(".")


def _count(measures: Sequence[EvidenceMeasure], verdict: str) -> str:
    return str(sum(each.verdict == verdict for each in measures))


gate_table = rows(
    "gate",
    "Gates",
    verdict=lambda each: _verdict(each.verdict),
    held=lambda each: _count(each.measures, "held"),
    missed=lambda each: _count(each.measures, "missed"),
    commit=lambda each: f"{each.commit[:8]}{', changed' if each.dirty else ''}",
    missing=lambda each: "; ".join(each.missing[:3]),
)


def evidence_view(shown: Evidence) -> RenderableType:
    """Return one gate with all of its figures."""
    about = facts(
        shown,
        "gate commit source at embedder=environment.embedder tokens=environment.tokenizer",
        verdict=lambda each: _verdict(each.verdict),
        missing=lambda each: list(each.missing),
    )
    others = [_measure_table(each.measures, f"External: {each.name}") for each in shown.external]
    return Group(about, _measure_table(shown.measures, "Measures"), *others)


def _measure_table(measures: Sequence[EvidenceMeasure], title: str) -> Table:
    return table(
        measures,
        "name category value bar",
        title,
        value=lambda each: _number(each.value),
        verdict=lambda each: _verdict(each.verdict),
    )


def comparison_view(compared: Comparison) -> RenderableType:
    """Return what changed by figure, and bars missed by category of error."""
    changed = [each for each in compared.changes if each.difference != 0]
    figures = table(
        changed,
        "name category",
        f"{compared.gate}: {len(changed)} of {len(compared.changes)} figures changed",
        before=lambda each: _number(each.before),
        after=lambda each: _number(each.after),
        by=lambda each: _number(each.difference, "+"),
        verdict=lambda each: _verdict(each.verdict_after),
    )
    categories = table(
        compared.by_category.items(),
        "",
        "Bars missed by category of error",
        category=lambda each: each[0],
        before=lambda each: str(each[1][0]),
        after=lambda each: str(each[1][1]),
    )
    drift = [note(f"drift: {each}") for each in compared.drift]
    return Group(*drift, figures, categories)


def ledger_view(ledger: Ledger) -> RenderableType:
    """Return the gates that a ledger names last, its decision, and what does not match."""
    gates = table(
        latest(ledger.entries, GATE).values(),
        "",
        "Gates",
        gate=lambda each: str(each.subject_id),
        at=lambda each: local_time(each.at),
        verdict=lambda each: _verdict(each.details.get("verdict")),
        source=lambda each: str(each.details.get("source")),
        commit=lambda each: str(each.details.get("commit"))[:8],
    )
    problems = [report(f"{each.where}: {each.problem}", ok=False) for each in ledger.problems]
    torn = [note("the last append was cut off, and is no entry")] * (ledger.ending == "torn")
    foil = Text(f"  foil: {ledger.foil.count}:{ledger.foil.head}")
    whole = [report("the ledger is whole, with the files it names")] * ledger.ok
    return Group(gates, *_decision(ledger.entries), *torn, *problems, *whole, foil)


def _decision(entries: Sequence[JournalEntry]) -> list[Text]:
    if not entries or entries[-1].event != DECISION:
        return [note("no decision follows the last gate")]
    details = entries[-1].details
    missing = details.get("missing")
    reasons = [Text(f"  {each}") for each in missing] if isinstance(missing, list) else []
    return [Text.assemble("decision: ", _verdict(str(details.get("verdict")))), *reasons]


_FOLDER = "build/evidence"


def _show(call: Call, file: str = _FOLDER, /) -> Answer:
    place = Path(file)
    if place.is_dir() or not place.suffix:
        listed = evidence_of(place)
        return Answer(listed, gate_table(listed), all(e.verdict == "pass" for e in listed))
    shown = read_evidence(place)
    return Answer(shown, evidence_view(shown), shown.verdict == "pass")


def _compare(call: Call, before: str, after: str, /) -> Answer:
    compared = compare(read_evidence(Path(before)), read_evidence(Path(after)))
    return Answer(compared, ok=not compared.drift)


def _verify(
    call: Call,
    file: str = _FOLDER,
    /,
    *,
    foil: Annotated[str | None, "Of verify: COUNT:DIGEST that you kept, as of a release."] = None,
) -> Answer:
    place = Path(file)
    kept = None if foil is None else read_foil("ledger", foil)
    ledger = verify_evidence(place / LEDGER if place.is_dir() else place, foil=kept)
    return Answer(ledger, ok=ledger.ok)


evidence = action_command(
    "Show what gates measured, compare two runs by figure and by category of error, or verify a "
    "ledger with the files that it names. Exits with 1 when a bar is missed or something differs.",
    {
        "show": Action(run=_show),
        "compare": Action(view=comparison_view, run=_compare),
        "verify": Action(view=ledger_view, run=_verify),
    },
    helps={"file": f"A file of evidence, its folder, or a ledger; by default {_FOLDER}."},
    tally="none",
)
