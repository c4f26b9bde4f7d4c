"""Agreement of the two ways of recall: each conversation of an evaluation set inside of foreign
turns of the same scope, asked once from arrays in memory and once from the database.

    python -m tests.benchmarks.scale_agreement FILE [FILE …] [--foreign 100000] [--most 3]

`agreement` is the share of the first ten of the one that are among the first ten of the other;
`arrays` and `database` are recall@10, the share of the evidence among the first ten, in percent.
Exits 1 where agreement is below 0.98 or recall@10 falls by more than 0.3.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.benchmarks.conversations import Conversation
from tests.benchmarks.eval_recall import load
from tests.benchmarks.scale_recall import fill

from tallystick import Actor, Tally
from tallystick.records import NewMemory
from tallystick.settings import Settings

AGREEMENT, FALL = 0.98, 0.3
_DEPTH = 10
_USER = Actor(user="u0")
_WAYS = {"arrays": 10**9, "database": 1}


def _settings(large_scope: int) -> Settings:
    return Settings.read(large_scope=large_scope, vector_search="exact", recall_cache_mb=4_096)


def agreement(folder: Path, conversation: Conversation) -> Mapping[str, float]:
    """Put a conversation into the scope of a tally in `folder`, ask its questions in both ways, and
    return the figures.
    """
    found: dict[str, list[list[str]]] = {}
    names: dict[str, str] = {}
    for way, large_scope in _WAYS.items():
        with Tally.open(folder, background=False, settings=_settings(large_scope)) as tally:
            bound = tally.bind(_USER)
            if not names:
                made = bound.remember_many(
                    NewMemory(
                        content=turn.text,
                        kind="turn" if turn.speaker else "fact",
                        speaker=turn.speaker or None,
                        conversation=turn.session if turn.speaker else None,
                        position=turn.position if turn.speaker else None,
                        occurred_at=turn.at,
                        attributes={"caption": turn.caption} if turn.caption else {},
                    )
                    for turn in conversation.turns
                )
                turns = conversation.turns
                names = {done.id: turn.id for done, turn in zip(made, turns, strict=True)}
            answers = [bound.recall(query.text, limit=_DEPTH) for query in conversation.queries]
            assert all(
                answer.path.startswith("database") == (way == "database") for answer in answers
            )
            found[way] = [[hit.memory.id for hit in answer] for answer in answers]
    pairs = list(zip(found["arrays"], found["database"], strict=True))
    same = sum(len(set(one).intersection(other)) for one, other in pairs)
    figures = {"agreement": same / max(1, sum(len(one) for one, _ in pairs))}
    for way, ids in found.items():
        shares = [
            len(query.gold.intersection(names.get(id, "") for id in hits)) / len(query.gold)
            for query, hits in zip(conversation.queries, ids, strict=True)
        ]
        figures[way] = 100 * sum(shares) / len(shares)
    return figures


def main(argv: Sequence[str]) -> int:
    """Measure, print a table, and return 1 where a bar was missed, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--foreign", type=int, default=100_000)
    parser.add_argument("--most", type=int, default=None, help="conversations of each file")
    given = parser.parse_args(argv)
    table = Table("conversation", "questions", "agreement", "arrays", "database")
    missed = []
    with tempfile.TemporaryDirectory() as place:
        foreign = Path(place) / "foreign"
        with Tally.open(foreign, background=False, settings=_settings(10**9)) as tally:
            fill(tally, _USER, given.foreign, seed=2)
        for file in given.files:
            for conversation in load(file)[: given.most]:
                folder = Path(place) / "both"
                shutil.copytree(foreign, folder)
                figures = agreement(folder, conversation)
                shutil.rmtree(folder)
                name = f"{file.stem} {conversation.id}"
                row = [f"{figures[column]:.3f}" for column in ("agreement", "arrays", "database")]
                table.add_row(name, str(len(conversation.queries)), *row)
                print(name, row, file=sys.stderr, flush=True)
                if figures["agreement"] < AGREEMENT:
                    missed.append(f"{name}: agreement {figures['agreement']:.3f}")
                if figures["database"] < figures["arrays"] - FALL:
                    missed.append(
                        f"{name}: recall@10 {figures['database'] - figures['arrays']:.2f}"
                    )
    console = Console()
    console.print(table)
    for problem in missed:
        console.print(f"missed: {problem}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
