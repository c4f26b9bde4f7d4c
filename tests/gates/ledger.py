"""The ledger of a release: a receipt for each gate that ran, and at its end `ship` or `hold`.

    head(folder)         what a release keeps in its notes
    decide(...)          what is missing before anything ships

Entries are chained by `tallystick.recorder.ledger`, as receipts are; `tally evidence verify` checks
them, and the files that they name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tallystick.errors import InvalidInput
from tallystick.recorder.ledger import Appender, appending, read_ledger
from tallystick.records import Foil, JournalEntry
from tallystick.records.canonical import json_bytes
from tallystick_cli.evidence_files import (
    DECISION,
    GATE,
    LEDGER,
    Decision,
    Evidence,
    decide_on,
    evidence_digest,
    verify_evidence,
)

FOLDER = Path(__file__).parents[2] / "build" / "evidence"


def head(folder: Path = FOLDER) -> Foil:
    """Return count and head of the ledger, to be kept with a release (`recorder.signing.sign` signs
    it). Raises InvalidInput where there is no ledger, or where it does not verify.
    """
    ledger = verify_evidence(folder / LEDGER)
    if not ledger.ok:
        [first, *_] = ledger.problems
        raise InvalidInput(f"The ledger does not verify: {first.where}: {first.problem}.")
    return ledger.foil


def decision(commit: str, gates: Iterable[str], folder: Path = FOLDER) -> Decision:
    """Return the decision about a commit, from the ledger as it stands. Nothing is written."""
    if not (folder / LEDGER).is_file():
        return Decision(False, ("no gate has run: `make gates` runs them",))
    ledger = verify_evidence(folder / LEDGER)
    wrong = [f"{each.where}: {each.problem}" for each in ledger.problems]
    return decide_on(ledger.entries, commit, gates, wrong)


def record(evidence: Evidence, folder: Path = FOLDER) -> JournalEntry:
    """Write the evidence of a gate and its entry, while nobody else does. Raises InvalidInput where
    the ledger was changed, OSError.
    """
    content = json_bytes(evidence.dump()) + b"\n"
    with appending(folder / LEDGER) as ledger:
        partial = folder / f".{evidence.gate}.partial"
        partial.write_bytes(content)
        os.replace(partial, folder / f"{evidence.gate}.json")
        return ledger.append(
            GATE,
            by=evidence.source,
            subject_id=evidence.gate,
            details={
                "verdict": evidence.verdict,
                "commit": evidence.commit,
                "dirty": evidence.dirty,
                "source": evidence.source,
                "evidence": evidence_digest(content),
                "held": sum(each.verdict == "held" for each in evidence.measures),
                "missed": sum(each.verdict == "missed" for each in evidence.measures),
                "external": [each.digest for each in evidence.external],
            },
        )


def decide(commit: str, gates: Iterable[str], *, source: str, folder: Path = FOLDER) -> Decision:
    """Append `ship` or `hold` with what is missing, and return it. Raises InvalidInput where the
    ledger was changed, OSError.
    """
    with appending(folder / LEDGER) as ledger:
        seen = verify_evidence(folder / LEDGER)
        wrong = [f"{each.where}: {each.problem}" for each in seen.problems]
        decided = decide_on(ledger.entries, commit, gates, wrong)
        _append(ledger, decided, commit, source)
    return decided


def _append(ledger: Appender, decided: Decision, commit: str, source: str) -> None:
    details = {
        "verdict": "ship" if decided.ships else "hold",
        "commit": commit,
        "missing": list(decided.missing),
        "source": source,
    }
    ledger.append(DECISION, by=source, details=details)


__all__ = ["FOLDER", "Decision", "decide", "decision", "head", "read_ledger", "record"]
