"""Run the gates: `make gates`. Each writes its evidence and its receipt; the ledger ends in `ship`
or `hold`, and says what is missing.

    make gates
    make gates ARGS="--only everyday recall"
    make gates ARGS="--quick"                                 # smaller sizes: drift, never a pass
    make gates ARGS="--only recall --external recall=long.json"
    make gates ARGS="--only bench --baseline"                 # becomes the baseline
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.gates import ledger
from tests.gates.catalogue import GATES
from tests.gates.environment import commit
from tests.gates.running import BASELINES, run_gate, source

from tallystick.errors import InvalidInput
from tallystick.records.canonical import json_bytes
from tallystick_cli.evidence_files import Evidence


def main() -> int:
    """Run gates, print a line for each and the decision; return 1 where one of them fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=GATES, default=list(GATES))
    parser.add_argument("--quick", action="store_true", help="smaller sizes, which count as drift")
    parser.add_argument("--external", nargs="*", default=(), metavar="GATE=FILE")
    parser.add_argument("--baseline", action="store_true", help="store the evidence as baseline")
    parser.add_argument("--folder", type=Path, default=ledger.FOLDER)
    chosen = parser.parse_args()
    named = [each.partition("=")[::2] for each in chosen.external]
    if strangers := [gate for gate, _ in named if gate not in chosen.only]:
        parser.error(f"--external names {', '.join(strangers)}, which does not run here")
    failed = False
    try:
        for name in chosen.only:
            others = [Path(file) for gate, file in named if gate == name]
            evidence = run_gate(name, GATES[name], quick=chosen.quick, external=others)
            if chosen.baseline:
                store_baseline(evidence)
            ledger.record(evidence, chosen.folder)
            failed |= evidence.verdict != "pass"
            _tell(evidence)
        decided = ledger.decide(commit()[0], GATES, source=source(), folder=chosen.folder)
        print("ship" if decided.ships else "hold", *decided.missing, sep="\n  ")
        foil = ledger.head(chosen.folder)
    except InvalidInput as error:
        print(f"✗ {error}")
        return 1
    print(f"head of the ledger: {foil.count}:{foil.head}")
    return int(failed)


def _tell(evidence: Evidence) -> None:
    held = sum(each.verdict == "held" for each in evidence.measures)
    sign = "✓" if evidence.verdict == "pass" else "✗"
    print(f"{sign} {evidence.gate}: {evidence.verdict}, {held} bars held, {evidence.seconds} s")
    for each in evidence.missing:
        print(f"    {each}")
    sys.stdout.flush()


def store_baseline(evidence: Evidence) -> None:
    """Keep evidence as the baseline: only what says something, so not that of a failed gate."""
    if evidence.verdict == "error" or not evidence.measures:
        raise InvalidInput(f"{evidence.gate} did not measure everything: no baseline is stored.")
    BASELINES.mkdir(exist_ok=True)
    (BASELINES / f"{evidence.gate}.json").write_bytes(json_bytes(evidence.dump()) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
