"""Secrets: how many formats are caught whole, what is taken for a secret and is none, and how fast.

    python -m tests.benchmarks.redaction [--lines 400000] [--show 3] [--turns FILE …]

The formats are those of `tests/core/policy/secret_formats.py`. Code and prose are the standard
library of Python, the packages of the environment and our own documentation; every placeholder in
them counts as wrong, although a few are secrets of examples. With `--turns` it counts, for each
file of conversations, the turns that `remember` would change.
"""

from __future__ import annotations

import argparse
import json
import re
import sysconfig
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.core.policy.secret_formats import FORMATS, PLACES, drawn, is_whole, shown_in

from tallystick.policy.redaction import Redactor

ROOT = Path(__file__).parents[2]
CODE = frozenset({".py", ".js", ".css", ".toml", ".ts", ".pyi", ".json", ".yaml", ".yml", ".cfg"})
PROSE = frozenset({".md", ".rst", ".txt", ".html"})
LARGEST_FILE = 1_000_000
LONGEST_LINE = 2_000
"""Characters of a line beyond which a file is packed or data, and its lines say nothing."""
SEEDS = range(1, 4)


@dataclass
class Corpus:
    """What was taken for a secret in files of one kind."""

    lines: int = 0
    characters: int = 0
    seconds: float = 0.0
    findings: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def read(self, text: str, redactor: Redactor, name: str) -> None:
        """Look for secrets in the text of a file."""
        began = time.perf_counter()
        findings = redactor.find(text)
        self.seconds += time.perf_counter() - began
        self.lines += text.count("\n") + 1
        self.characters += len(text)
        self.findings += len(findings)
        for finding in findings:
            self.by_kind[finding.kind] += 1
            around = text[max(0, finding.start - 40) : finding.end + 10]
            self.samples[finding.kind].append(f"{name}: {around!r:.160}")

    @property
    def per_thousand(self) -> float:
        """Findings per 1,000 lines."""
        return 1_000 * self.findings / max(1, self.lines)


def files(suffixes: frozenset[str]) -> Iterator[Path]:
    """Yield the files at hand with one of some endings, in the order of their paths."""
    paths = sysconfig.get_paths()
    for folder in (ROOT / "docs", Path(paths["stdlib"]), Path(paths["purelib"])):
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder).parts
            if "dist-packages" in inside or "site-packages" in inside:
                continue  # of the machine, and not of this environment
            if path.suffix in suffixes and path.is_file():
                yield path


def measured(suffixes: frozenset[str], lines: int, redactor: Redactor) -> Corpus:
    """Return what is found in the files, spread evenly over them, up to a number of lines."""
    corpus = Corpus()
    every = [path for path in files(suffixes) if path.stat().st_size <= LARGEST_FILE]
    total = sum(path.stat().st_size for path in every) / 40
    step = max(1, int(total / lines)) if lines else 1
    for path in every[::step]:
        text = path.read_text(encoding="utf-8", errors="replace")
        if max(map(len, text.splitlines()), default=0) <= LONGEST_LINE:
            corpus.read(text, redactor, path.name)
    return corpus


def caught(redactor: Redactor) -> dict[str, tuple[int, int, int, int]]:
    """Return formats caught whole and formats, variants caught whole and variants, by family."""
    result: dict[str, tuple[int, int, int, int]] = {}
    for entry in FORMATS:
        whole, formats, varied, variants = result.get(entry.family, (0, 0, 0, 0))
        sample = drawn(entry, 0)
        whole += is_whole(redactor.redact_text(sample.text).text, sample.secret)
        for seed in SEEDS:
            for place in PLACES:
                sample = shown_in(place, drawn(entry, seed))
                varied += is_whole(redactor.redact_text(sample.text).text, sample.secret)
                variants += 1
        result[entry.family] = (whole, formats + 1, varied, variants)
    return result


def turns_in(value: Any) -> Iterator[str]:
    """Yield the texts of the turns in a file of conversations, whatever its form."""
    if isinstance(value, dict):
        if isinstance(value.get("text"), str) and ("speaker" in value or "role" in value):
            yield value["text"]
            return
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from turns_in(inner)


def print_changed(console: Console, paths: Sequence[Path], show: int) -> None:
    """Print how many turns of each file a memory would store with a placeholder."""
    redactor = Redactor()
    table = Table("file", "turns", "changed")
    for path in paths:
        turns = list(turns_in(json.loads(path.read_text(encoding="utf-8"))))
        changed = [(turn, findings) for turn in turns if (findings := redactor.find(turn))]
        for turn, findings in changed[:show]:
            shown = [turn[max(0, each.start - 40) : each.end] for each in findings]
            console.print(f"{path.name}: {shown!r}", markup=False)
        table.add_row(path.name, f"{len(turns):,}", f"{len(changed):,}")
    console.print(table)


def main() -> None:
    """Print both tables, or that of the turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=400_000, help="lines of code and of prose")
    parser.add_argument("--show", type=int, default=0, help="findings to show of each kind")
    parser.add_argument("--turns", type=Path, nargs="+", help="files of conversations")
    options = parser.parse_args()
    redactor, console = Redactor(), Console(width=120)
    if options.turns:
        print_changed(console, options.turns, options.show)
        return

    table = Table("family", "formats", "caught whole", "variants", "caught whole")
    rows = caught(redactor)
    for family, (whole, formats, varied, variants) in rows.items():
        table.add_row(family, str(formats), str(whole), f"{variants:,}", f"{varied:,}")
    whole, formats, varied, variants = (sum(row[at] for row in rows.values()) for at in range(4))
    table.add_row("all", str(formats), str(whole), f"{variants:,}", f"{varied:,}", style="bold")
    console.print(table)

    table = Table("texts", "lines", "wrong", "wrong per 1,000 lines", "MB/s", "kinds")
    for name, suffixes in (("code", CODE), ("prose", PROSE)):
        corpus = measured(suffixes, options.lines, redactor)
        table.add_row(
            name,
            f"{corpus.lines:,}",
            f"{corpus.findings:,}",
            f"{corpus.per_thousand:.2f}",
            f"{corpus.characters / 1e6 / corpus.seconds:.1f}",
            ", ".join(f"{kind} {count}" for kind, count in corpus.by_kind.most_common(5)),
        )
        for kind, samples in corpus.samples.items():
            for sample in samples[:: max(1, len(samples) // max(1, options.show))][: options.show]:
                console.print(f"{kind}: {re.sub('[^ -~]', '?', sample)}", markup=False)
    console.print(table)


if __name__ == "__main__":
    main()
