"""What grows when one machine is outgrown: the parts of `make bench-scale`, one after the other.

Exits 1 where a bar of one of them is missed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

PARTS = ("scale_writers", "scale_recall")


def main(argv: list[str]) -> int:
    """Run each part that is there with the same arguments; return the worst exit status."""
    names = [f"tests.benchmarks.{part}" for part in PARTS]
    there = [name for name in names if importlib.util.find_spec(name) is not None]
    return max(int(importlib.import_module(name).main(argv)) for name in there)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
