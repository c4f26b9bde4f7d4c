"""Confidence, fitted again: how likely a recall answers, from what its first hits say.

Run it with `make fit-confidence DATA=friendsqa.json,another.json`. Learned from are conversations
of `tests/benchmarks/facts.py`, made from the seeds 0 to 4, and the first file, which has to have a
licence for it (FriendsQA: Apache 2.0); the other files only check. An example is a question whose
answer is among the first twenty hits, or a request that nothing there answers: every second one of
`facts.UNRELATED`, `UNRELATED_OF_MINE` and `UNANSWERED`. The figures below the fit are of the rest.
Both classes weigh the same.

The logistic regression is Newton's method with a small ridge, so that the same data give the same
weights everywhere. What ships is in `tallystick.ranking.confidence`, rounded.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from tests.benchmarks.conversations import ADVERSARIAL, Conversation
from tests.benchmarks.eval_recall import (
    BadData,
    load,
    of_facts,
    ours,
    thinned,
)
from tests.benchmarks.facts import (
    LANGUAGES,
    PLAIN,
    UNANSWERED,
    UNRELATED,
    UNRELATED_OF_MINE,
    chat,
    facts,
)

from tallystick.ranking import CONFIDENT
from tallystick.ranking.confidence import Evidence, confidence, evidence_of

_SEEDS = range(5)
_ANSWERED = 20
"""Hits among which an answer has to be for the question to count as answered."""
_RIDGE = 1e-3
_LEARNED = (*UNRELATED[::2], *UNRELATED_OF_MINE[::2], *UNANSWERED[::2])


@dataclass(frozen=True)
class Example:
    """One request."""

    evidence: Evidence
    confidence: float
    """As it ships."""
    is_answered: bool


class _Recorder:
    """Stands in the place of `confidence` and keeps what it was computed from."""

    def __init__(self) -> None:
        self.last: tuple[Evidence | None, float] = (None, 0.0)

    def __call__(self, *said: Any, **options: Any) -> float:
        self.last = evidence_of(*said, **options), confidence(*said, **options)
        return self.last[1]


def examples(conversations: Sequence[Conversation], unrelated: Sequence[str]) -> Iterator[Example]:
    """The questions of conversations that are answered, and requests that are not."""
    recall = importlib.import_module("tallystick.memory.recall")
    for conversation in conversations:
        recorder = _Recorder()
        with ours(conversation) as (tally, names), patch.object(recall, "confidence", recorder):
            for query in conversation.queries:
                if query.kind == ADVERSARIAL:
                    continue
                hits = tally.bind().recall(query.text, limit=_ANSWERED)
                evidence, value = recorder.last
                if evidence is not None and query.gold & {names[hit.memory.id] for hit in hits}:
                    yield Example(evidence, value, True)
            for request in unrelated:
                tally.bind().recall(request, limit=_ANSWERED)
                evidence, value = recorder.last
                if evidence is not None:
                    yield Example(evidence, value, False)


def fit(learned: Sequence[Example]) -> NDArray[np.float64]:
    """The weights of words, vector and about, and the constant."""
    rows = np.array([[*one.evidence, 1.0] for one in learned], dtype=np.float64)
    is_answered = np.array([one.is_answered for one in learned], dtype=np.float64)
    share = np.where(is_answered == 1, is_answered.mean(), 1 - is_answered.mean())
    weight = 0.5 / share / len(rows)
    weights = np.zeros(rows.shape[1])
    ridge = _RIDGE * np.diag([1.0, 1.0, 1.0, 0.0])
    for _ in range(50):
        likely = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (weight * (likely - is_answered)) + ridge @ weights
        bend = (rows * (weight * likely * (1 - likely))[:, None]).T @ rows + ridge
        step = np.linalg.solve(bend, slope)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    return weights


def generated() -> list[Conversation]:
    """The conversations of our own that are learned from: of friends, and with an assistant."""
    return [
        conversation
        for seed in _SEEDS
        for conversation in (
            of_facts(facts(LANGUAGES["English"], seed=seed, threads=True, plain=PLAIN), ("A", "B")),
            of_facts(chat(seed=seed), ("user", "assistant")),
        )
    ]


def checked(conversations: Sequence[Conversation]) -> dict[str, list[Example]]:
    """The answered questions of conversations, and the requests that were not learned from."""
    kinds = {"unrelated": UNRELATED, "of mine": UNRELATED_OF_MINE, "unanswered": UNANSWERED}
    requests = [request for texts in kinds.values() for request in texts[1::2]]
    every = list(examples(conversations, requests))
    groups = {"answered": [one for one in every if one.is_answered]}
    others = iter([one for one in every if not one.is_answered])
    for _ in conversations:
        for kind, texts in kinds.items():
            groups.setdefault(kind, []).extend(islice(others, len(texts[1::2])))
    return groups


def report(name: str, groups: dict[str, list[Example]], weights: NDArray[np.float64]) -> None:
    """Print how many requests reach the floor, by the fit and as it ships."""
    for label, some in groups.items():
        by_fit = [float(1 / (1 + np.exp(-np.dot([*one.evidence, 1.0], weights)))) for one in some]
        print(
            f"  {name:<24}{label:<11}{len(some):>6}"
            f"{100 * statistics.mean(value >= CONFIDENT for value in by_fit):>10.1f}"
            f"{100 * statistics.mean(one.confidence >= CONFIDENT for one in some):>10.1f}"
        )


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", help="the file to learn from, then files that check; with commas")
    parser.add_argument("--every", type=int, default=4, help="ask every nth question alone")
    chosen = parser.parse_args()
    paths = [Path(name) for name in chosen.data.split(",")]
    try:
        sets = {path.stem: [thinned(one, chosen.every) for one in load(path)] for path in paths}
    except BadData as error:
        raise SystemExit(f"make fit-confidence: {error}") from None
    learned = [
        *examples(generated(), _LEARNED),
        *examples(sets[paths[0].stem], _LEARNED),
    ]
    weights = fit(learned)
    digest = hashlib.sha256(paths[0].read_bytes()).hexdigest()
    print(f"learned from {len(learned)} requests, seeds {_SEEDS.start} to {_SEEDS.stop - 1}")
    print(f"and {paths[0].name}, sha256 {digest}")
    for name, value in zip((*Evidence._fields, "constant"), weights, strict=True):
        print(f"  {name:<10}{value:>8.2f}")
    print(f"\npercent that reach the floor of {CONFIDENT}{'':<9}count   by fit  as it ships")
    for name, conversations in {"generated": generated(), **sets}.items():
        report(name, checked(conversations), weights)


if __name__ == "__main__":
    main()
