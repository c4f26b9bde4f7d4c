"""What memory may cost a session: tokens of waking and of a pack, and how far a slow call is from
an ordinary one.

    python -m tests.benchmarks.budgets

A tally holds memories of every kind, long ones too. The slow end is that of 20 calls, p95, beside
their median, the fairest of three rounds. The bar is of processor time: by the clock a call of a
millisecond waits for its turn on a machine that others use, which is printed and holds nothing.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from tests.benchmarks.measures import TIME, Measure, figure, lines, missed, most
from tests.benchmarks.suites import PACK_TOKENS, WAKE_TOKENS

from tallystick import Actor, ContextItem, Tally

MEMORIES, SEED = 2_000, 11
RUNS, ROUNDS = 20, 3
MOST_TIMES = 3
"""The most that the slow end of the runs, p95, is of their median."""
_KINDS = ("decision", "constraint", "fact", "task", "preference", "procedure", "turn", "note")
_NOUNS = ("ledger", "ferry", "orchard", "printer", "canal", "granite", "kettle", "harbour")
_VERBS = ("moved", "counted", "mended", "measured", "borrowed", "painted", "sorted", "weighed")


def _sentence(source: random.Random) -> str:
    first, second = source.choice(_NOUNS), source.choice(_NOUNS)
    return f"The {first} {source.randrange(900)} was {source.choice(_VERBS)} beside the {second}."


def measures(memories: int = MEMORIES) -> Iterator[Measure]:
    """Yield every figure beside its bar."""
    source = random.Random(SEED)
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(Path(folder) / "tally", background=False) as tally,
    ):
        ada = tally.bind(Actor(user="ada"))
        for start in range(0, memories, 500):
            ada.remember_many(
                [
                    {
                        "content": " ".join(
                            _sentence(source) for _ in range(40 if number % 50 == 0 else 2)
                        ),
                        "kind": _KINDS[number % len(_KINDS)],
                        "pinned": number % 100 == 0,
                    }
                    for number in range(start, min(memories, start + 500))
                ]
            )
        tally.drain()
        queries = [f"Who {source.choice(_VERBS)} the {each}?" for each in _NOUNS]
        packs = [ada.pack(query) for query in queries]
        yield most("tokens of waking", ada.wake().tokens, WAKE_TOKENS, "tokens")
        yield most("tokens of a pack", max(each.tokens for each in packs), PACK_TOKENS, "tokens")
        bare = sum(
            not (item.source_ids and item.access_reason and item.chosen_as and item.fresh)
            for each in packs
            for item in each.items
        )
        yield most("items without source, reason or freshness", bare, 0, "coverage")
        number = iter(range(10_000_000))
        items = [
            ContextItem(id=f"doc-{place}", kind="retrieval_doc", content=_sentence(source))
            for place in range(100)
        ]
        items.append(ContextItem(id="ask", kind="user_msg", content=queries[0]))
        calls: dict[str, Callable[[], object]] = {
            "remember": lambda: ada.remember(f"{_sentence(source)} Note {next(number)}."),
            "recall": lambda: ada.recall(queries[next(number) % len(queries)]),
            "pack": lambda: ada.pack(queries[next(number) % len(queries)]),
            "wake": lambda: ada.wake(),
            "compile": lambda: ada.compile(items, budget=1_000),
        }
        for name, call in calls.items():
            yield from _tail(name, call)


def _tail(name: str, call: Callable[[], object]) -> Iterator[Measure]:
    for _ in range(len(_NOUNS)):  # what is analysed or loaded once
        call()
    rounds = [_round(call) for _ in range(ROUNDS)]
    for place, clock in enumerate(("by the clock", "of the processor")):
        middle, slow = min((each[place] for each in rounds), key=lambda each: each[1] / each[0])
        yield figure(f"{name}, median ms {clock}", middle, TIME)
        named, times = f"{name}, p95 of {RUNS} runs {clock}, times the median", slow / middle
        is_held = clock != "by the clock"
        yield most(named, times, MOST_TIMES, TIME) if is_held else figure(named, times, TIME)


def _round(call: Callable[[], object]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the median of some runs and their slow end, p95, in milliseconds: by the clock, and of
    the processor.
    """
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        began, spent = time.perf_counter(), time.process_time()
        call()
        took[0].append(1_000 * (time.perf_counter() - began))
        took[1].append(1_000 * (time.process_time() - spent))
    place = math.ceil(0.95 * RUNS) - 1
    by_clock, of_processor = ((median(each), sorted(each)[place]) for each in took)
    return by_clock, of_processor


def main() -> int:
    """Print every figure; return 1 where a bar is missed."""
    found = list(measures())
    print(*lines(found), sep="\n")
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
