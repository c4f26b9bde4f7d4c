"""The floor of relevance: of notes that answer a request, and of unrelated ones beside them, how
many a compile keeps.

Run it with `make eval-floor DATA=friendsqa.json`. Requests and what answers them come from four
kinds of text: functions of this project by the first line of their docstring, which is taken out of
them; sections of its documentation by their first sentence, which is taken out too; scenes of the
data by its questions; and the single lines that answer these. Beside each stand twenty texts of the
other kinds, in a budget that has room for all.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.eval_recall import BadData, load

from tallystick import ContextItem, Tally
from tallystick.tally import BoundTally

_ROOT = Path(__file__).parents[2]
_ASKED, _BESIDE = 100, 20
_ROOM = 1_000_000
"""Tokens: more than any of these texts together have."""


@dataclass(frozen=True)
class Note:
    """A text, and a request that it answers."""

    request: str
    text: str


def functions() -> Iterator[Note]:
    """The functions of the core that say what they do."""
    for path in sorted((_ROOT / "core").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and (says := ast.get_docstring(node)):
                node.body = node.body[1:] or [ast.Pass()]
                yield Note(says.splitlines()[0], ast.unparse(node))


def sections() -> Iterator[Note]:
    """The sections of the documentation."""
    for path in sorted((_ROOT / "docs").glob("*.md")) + sorted(
        (_ROOT / "docs/reference").glob("*.md")
    ):
        for part in re.split(r"^#{2,3} ", path.read_text(), flags=re.MULTILINE)[1:]:
            heading, _, text = part.partition("\n\n")
            first, _, rest = text.partition("\n")
            if len(rest.split()) > 20 and first[:1].isalpha():
                yield Note(first, f"{heading}\n{rest.strip()}")


def scenes(path: Path) -> Iterator[tuple[Note, Note]]:
    """The scenes of conversations, and the lines, that answer their questions."""
    for conversation in load(path):
        turns = {turn.id: turn for turn in conversation.turns}
        lines: dict[str, list[str]] = {}
        for turn in conversation.turns:
            lines.setdefault(turn.session, []).append(turn.line)
        for query in conversation.queries:
            gold = turns[min(query.gold)]
            yield Note(query.text, "\n".join(lines[gold.session])), Note(query.text, gold.line)


def kept(bound: BoundTally, note: Note, beside: list[Note]) -> tuple[bool, int]:
    """Return whether a compile keeps what answers, and how many of the others."""
    items = [
        ContextItem(id=f"note-{place}", kind="retrieval_doc", content=one.text)
        for place, one in enumerate([note, *beside])
    ]
    compiled = bound.compile(items, budget=_ROOM, query=note.request)
    chosen = {item.id for item in compiled.selected_items}
    return "note-0" in chosen, len(chosen - {"note-0"})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="a file in the LoCoMo format")
    parser.add_argument("--asked", type=int, default=_ASKED, help="requests of each kind")
    chosen = parser.parse_args()
    try:
        said = list(scenes(chosen.data))
    except BadData as error:
        raise SystemExit(f"make eval-floor: {error}") from None
    kinds = {
        "functions": list(functions()),
        "sections": list(sections()),
        "scenes": [scene for scene, _ in said],
        "lines": [line for _, line in said],
    }
    chance = random.Random(0)
    print(f"{'percent kept':<14}{'requests':>9}{'answers':>9}{'others':>9}")
    with tempfile.TemporaryDirectory() as folder, Tally.open(folder, background=False) as tally:
        bound = tally.bind()
        for name, notes in kinds.items():
            # A line comes from a scene: neither is unrelated to the other.
            same = {"scenes", "lines"} if name in {"scenes", "lines"} else {name}
            others = [note for kind, some in kinds.items() if kind not in same for note in some]
            asked = chance.sample(notes, min(chosen.asked, len(notes)))
            results = [kept(bound, note, chance.sample(others, _BESIDE)) for note in asked]
            answers = 100 * sum(is_kept for is_kept, _ in results) / len(results)
            rest = 100 * sum(count for _, count in results) / (len(results) * _BESIDE)
            print(f"{name:<14}{len(asked):>9}{answers:>9.1f}{rest:>9.1f}")


if __name__ == "__main__":
    main()
