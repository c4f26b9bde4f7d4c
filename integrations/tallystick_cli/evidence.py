"""The command of evidence: figures of gates beside their bars, two runs side by side, a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tallystick.errors import InvalidInput
from tallystick.records import Foil
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.evidence_files import (
    LEDGER,
    compare,
    evidence_of,
    read_evidence,
    verify_evidence,
)
from tallystick_cli.views import evidence as views

_FOLDER = "build/evidence"


@command(tally="none")
def evidence(
    call: Call,
    action: Literal["show", "compare", "verify"] = "show",
    file: Annotated[str, "A file of evidence, its folder, or a ledger."] = _FOLDER,
    other: Annotated[str | None, "Of compare: the file of the later run."] = None,
    /,
    foil: Annotated[str | None, "Of verify: COUNT:DIGEST that you kept, as of a release."] = None,
) -> Answer:
    """Show what gates measured, compare two runs by figure and by category of error, or verify a
    ledger with the files that it names. Exits with 1 when a bar is missed or something differs.
    """
    place = Path(file)
    if (other is not None) != (action == "compare"):
        raise InvalidInput("`tally evidence compare` takes two files, all else one.")
    if foil is not None and action != "verify":
        raise InvalidInput("--foil is of `tally evidence verify`.")
    if action == "compare" and other is not None:
        compared = compare(read_evidence(place), read_evidence(Path(other)))
        return Answer(compared, views.comparison_view(compared), not compared.drift)
    if action == "verify":
        ledger = verify_evidence(place / LEDGER if place.is_dir() else place, foil=_kept(foil))
        return Answer(ledger, views.ledger_view(ledger), ledger.ok)
    if place.is_dir() or not place.suffix:
        listed = evidence_of(place)
        return Answer(listed, views.gate_table(listed), all(e.verdict == "pass" for e in listed))
    shown = read_evidence(place)
    return Answer(shown, views.evidence_view(shown), shown.verdict == "pass")


def _kept(text: str | None) -> Foil | None:
    if text is None:
        return None
    count, _, head = text.partition(":")
    if not count.isdigit() or not head:
        raise typer.BadParameter("Write the foil as COUNT:DIGEST, as `tally evidence verify` does.")
    return Foil(run_id="ledger", count=int(count), head=head)
