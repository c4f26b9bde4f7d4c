"""The command of evidence: figures of gates beside their bars, two runs side by side, a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tallystick_cli.actions import Action, action_command
from tallystick_cli.commands import Answer, Call
from tallystick_cli.evidence_files import (
    LEDGER,
    compare,
    evidence_of,
    read_evidence,
    verify_evidence,
)
from tallystick_cli.inputs import read_foil
from tallystick_cli.views import evidence as views

_FOLDER = "build/evidence"


def _show(call: Call, file: str = _FOLDER, /) -> Answer:
    place = Path(file)
    if place.is_dir() or not place.suffix:
        listed = evidence_of(place)
        return Answer(listed, views.gate_table(listed), all(e.verdict == "pass" for e in listed))
    shown = read_evidence(place)
    return Answer(shown, views.evidence_view(shown), shown.verdict == "pass")


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
        "compare": Action(view=views.comparison_view, run=_compare),
        "verify": Action(view=views.ledger_view, run=_verify),
    },
    helps={"file": f"A file of evidence, its folder, or a ledger; by default {_FOLDER}."},
    tally="none",
)
