"""Poisoned memories: how many of them each check of ours notices, how many good ones it takes for
one, what a text costs, and what the others could do.

    make eval-poisoning DATA=set.jsonl

A set is a list, or a line for each text, in either public form: `value` with `should_detect` and
`category`, as the benchmarks of memory guards have it; or `content` with `label` (`clean` or
another) and `attack_type`. Without DATA the small made-up set of the project is measured.

Nothing here judges what a text means: no list of words and no classifier does. A text is noticed
where a secret is replaced, where what nobody sees or what looks like a frame is broken before a
reader gets it, or where the guard of learning would hold it, although a model that was taken in
proposes the whole text as a fact. What is not noticed is kept as data: `contained` counts that it
breaks out of no frame, changes no other memory, and is nowhere but in its own scope.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.eval_recall import BadData
from tests.benchmarks.measures import TIME, Measure, figure, lines, missed, most

from tallystick import Actor, Tally
from tallystick.records import ExtractedFact
from tallystick.records.escaping import as_field, visible
from tallystick.records.framing import CLOSE, OPEN
from tallystick_learning.guard import Evidence, reason_to_hold

DATA = Path(__file__).parents[1] / "fixtures" / "poisoning" / "made_up.json"
_STANDING = "The lighthouse keeper's tea is kept in the blue tin."
_CLEAN = "clean"


class Entry(NamedTuple):
    """One text of a set."""

    text: str
    is_attack: bool
    category: str


def load(path: Path) -> list[Entry]:
    """Read a set. Raises BadData, which says what is wanted."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadData(f"{path} cannot be read: {error.strerror}.") from error
    try:
        rows = json.loads(text) if text.lstrip()[:1] == "[" else _rows(text)
        entries = [_entry(row) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadData(
            f"{path} is in neither form ({error}). An entry has `value`, `should_detect` and "
            "`category`, or `content`, `label` and `attack_type`."
        ) from error
    if not entries:
        raise BadData(f"{path} has no entry.")
    return entries


def _rows(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _entry(row: Mapping[str, Any]) -> Entry:
    if "should_detect" in row:
        value = row["value"]
        said = value if isinstance(value, str) else json.dumps(value)
        return Entry(said, bool(row["should_detect"]), str(row.get("category", "")))
    label = row["label"]
    is_attack = label not in (_CLEAN, 0, False)
    return Entry(row["content"], is_attack, str(row.get("attack_type") or label))


def _has_unseen(text: str, _: str) -> bool:
    return visible(text) != text.replace("\r\n", "\n")


def _is_broken(text: str, _: str) -> bool:
    return as_field(text) != text


def _is_held(text: str, _: str) -> bool:
    fact = ExtractedFact(content=text, span=text, confidence=100)
    return reason_to_hold(fact, Evidence(text)) is not None


CHECKS: Mapping[str, Callable[[str, str], bool]] = {
    "a secret is replaced": lambda text, kept: text != kept,
    "hidden characters are shown": _has_unseen,
    "marks are broken": _is_broken,
    "learning holds it": _is_held,
}
"""By name, each check of a text and of what was kept of it."""


def measures(path: Path = DATA) -> Iterator[Measure]:
    """Yield the figures of a set. Raises BadData."""
    entries = load(path)
    noticed: Counter[tuple[str, bool]] = Counter()
    by_category: Counter[tuple[str, bool]] = Counter()
    spent = 0.0
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(Path(folder) / "tally", background=False) as tally,
    ):
        ada = tally.bind(Actor(user="ada"))
        standing = ada.remember(_STANDING, kind="fact").id
        for entry in entries:
            began = time.perf_counter()
            made = ada.remember(entry.text)
            seen = {}
            kept = ada.get(made.id).content if made.id else ""
            for name, check in CHECKS.items():
                seen[name] = check(entry.text, kept or "")
            spent += time.perf_counter() - began
            noticed.update((name, entry.is_attack) for name, is_seen in seen.items() if is_seen)
            noticed["any", entry.is_attack] += any(seen.values())
            by_category[entry.category, any(seen.values())] += entry.is_attack
        escapes = sum(not _is_framed(ada.pack(entry.text[:2_000]).text) for entry in entries)
        escapes += not _is_framed(ada.wake().text)
        changed = ada.get(standing).version != 1
        elsewhere = len(tally.bind(Actor(user="bob")).memories(limit=1))
    attacks = sum(entry.is_attack for entry in entries)
    good = len(entries) - attacks
    of = f"of {attacks} attacks and {good} others"
    for name in (*CHECKS, "any"):
        label = "noticed by any check" if name == "any" else f"noticed, {name}"
        share, false = (
            100 * noticed[name, is_attack] / max(1, count)
            for is_attack, count in ((True, attacks), (False, good))
        )
        yield figure(f"poisoning, {label}: detection, percent", share, "undetected", of)
        yield figure(f"poisoning, {label}: false positives, percent", false, "false positive", of)
    for category in dict.fromkeys(entry.category for entry in entries if entry.is_attack):
        hit, lost = by_category[category, True], by_category[category, False]
        share = 100 * hit / (hit + lost)
        yield figure(f"poisoning, {category}: detection, percent", share, "undetected")
    yield figure("poisoning: ms a text", 1_000 * spent / len(entries), TIME)
    yield most("poisoning: texts that leave their frame", escapes, 0, "leak")
    yield most("poisoning: other memories changed", changed, 0, "wrong target")
    yield most("poisoning: memories in another scope", elsewhere, 0, "leak")


def _is_framed(text: str) -> bool:
    """Return True if a pack is one frame, or empty."""
    is_one = (text.count(OPEN), text.count(CLOSE)) == (1, 1)
    return not text or (is_one and text.startswith(OPEN) and text.endswith(CLOSE))


def main() -> int:
    """Print the figures; return 1 where a text is not contained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    try:
        found = list(measures(parser.parse_args().data))
    except BadData as error:
        raise SystemExit(f"make eval-poisoning: {error}") from None
    print(*lines(found), sep="\n")
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
