"""What counting costs: CPU of a remember and of a recall with and without it, in one run.

    make bench-steward

Calls with and without alternate, so that both meet the same machine; the medians are compared.
`--logs` has each operation formatted by a handler as well; what
a device takes to write it is left out. It exits with 1 above 5 %.
"""

from __future__ import annotations

import argparse
import io
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.measures import TIME, Measure, figure, lines, missed, most

from tallystick.records import Actor
from tallystick.tally import Tally
from tallystick.tally.services import services_of

MOST_PERCENT = 5.0
CALLS = 1_000
observed_calls: Any = import_module("tallystick.tally.observed_calls")


def _nothing(*_: Any, **__: Any) -> None: ...


def measures(calls: int = CALLS) -> Iterator[Measure]:
    """Yield the CPU of each operation without counting and with it, and the bar of what it adds."""
    with tempfile.TemporaryDirectory() as folder:
        actor = Actor(user="ada")
        with Tally.open(Path(folder) / "tally", background=False) as tally:
            ada, services = tally.bind(actor), services_of(tally)
            ada.remember_many([f"Heron {number} nests at weir {number}." for number in range(500)])
            note, log = services.meter.note, observed_calls.log_operation

            def count(is_on: bool) -> None:
                services.meter.note = note if is_on else _nothing  # type: ignore[method-assign]
                observed_calls.log_operation = log if is_on else _nothing

            number = iter(range(10_000_000))
            operations: dict[str, Callable[[], object]] = {
                "remember": lambda: ada.remember(f"Stork {next(number)} sleeps on a chimney."),
                "recall": lambda: ada.recall("Where does heron 77 nest?"),
            }
            for name, call in operations.items():
                for _ in range(50):
                    call()
                took: dict[bool, list[float]] = {True: [], False: []}
                for turn in range(calls):
                    # With, without, without, with: what comes every second time meets both.
                    is_on = turn % 4 in (0, 3)
                    count(is_on)
                    before = time.process_time()
                    call()
                    took[is_on].append(time.process_time() - before)
                with_it, without = (1_000 * median(took[each]) for each in (True, False))
                yield figure(f"{name} without counting, CPU ms", without, TIME)
                yield figure(f"{name} with counting, CPU ms", with_it, TIME)
                more = 100 * (with_it / without - 1)
                yield most(f"{name}: more by counting, percent", more, MOST_PERCENT, TIME)
            count(True)


def main() -> int:
    """Print a line for each figure; return 1 above the bar."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--logs", action="store_true")
    options = parser.parse_args()
    if options.logs:
        logging.getLogger("tallystick.operations").setLevel(logging.INFO)
        logging.getLogger("tallystick.operations").addHandler(logging.StreamHandler(io.StringIO()))
    found = list(measures(options.calls))
    print(*lines(found), sep="\n")
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
