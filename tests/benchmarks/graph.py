"""What the graph adds to recall: an ablation of the weights of its two signals.

Run it with `make eval-graph DATA=one.json,another.json`. Each conversation is remembered with the
graph on; each question that names an entity is asked with each weight alone. The table has R@10 and
the difference to neither signal with its 95 % interval, for all of them and for lists apart: the
questions that three turns or more answer. A question that names no entity is answered the same
whatever the weights are.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks.eval_recall import Conversation, Query, interval, load, ours

from tallystick.memory.entity_signals import entity_signals
from tallystick.ranking import RecallWeights
from tallystick.settings import Settings
from tallystick.tally.services import services_of

_WEIGHTS = (
    {"mentions": 0.0},
    {"mentions": 0.25},
    {"mentions": 0.5},
    {"mentions": 1.0},
    {"mentions": 2.0},
    {"related": 0.5},
    {"related": 1.0},
    {"related": 2.0},
    {"related": 4.0},
)
_LIST = 3
"""Turns that answer a question from which on it is a list."""
Row = tuple[Query, Sequence[float]]


def measured(conversation: Conversation, every: int) -> list[Row]:
    """Return for each question that names an entity R@10 in percent, by weight."""
    rows: list[Row] = []
    with ours(conversation, settings=Settings(graph=True)) as (tally, turns):
        tally.drain()
        bound = tally.bind()
        for query in conversation.queries[::every]:
            with services_of(tally).store.database.read() as connection:
                texts = len(conversation.turns)
                if not entity_signals(connection, range(1, 9), query.text, [], texts=texts):
                    continue
            values = []
            for weights in _WEIGHTS:
                chosen = RecallWeights(**{"mentions": 0.0, "related": 0.0} | weights)
                hits = bound.recall(query.text, limit=10, weights=chosen)
                found = {turns[hit.memory.id] for hit in hits}
                values.append(100 * len(found & query.gold) / len(query.gold))
            rows.append((query, values))
    return rows


def report(title: str, rows: Sequence[Row]) -> None:
    """Print one line for each weight."""
    print(f"\n{title}: {len(rows)} questions that name an entity")
    for place, weights in enumerate(_WEIGHTS if rows else ()):
        mean = sum(values[place] for _, values in rows) / len(rows)
        low, high = interval([values[place] - values[0] for _, values in rows])
        print(f"  {_said(weights):16}{mean:6.1f}   {low:+.1f} … {high:+.1f}")


def _said(weights: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:g}" for name, value in weights.items())


def main() -> None:
    """Measure each file by itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="files in the LoCoMo format, separated by commas")
    parser.add_argument("--every", type=int, default=1, help="ask each so many-th question")
    given = parser.parse_args()
    for path in given.data.split(","):
        rows = [row for each in load(Path(path)) for row in measured(each, given.every)]
        report(Path(path).stem, rows)
        report(f"{Path(path).stem}, lists", [row for row in rows if len(row[0].gold) >= _LIST])


if __name__ == "__main__":
    main()
