"""Evidence recall on conversations in the LoCoMo format: how often recall finds the turns that
answer a question.

Run it with `make eval-recall DATA=path.json`. Each conversation becomes a scope of its own, each of
its sessions a conversation (`conv-26/session-3`), each turn a memory with its speaker and its time;
an image caption follows the text. Baselines and ours see the same turns. The data is read from
where it stands and never copied.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tests.benchmarks.languages import SAID, SPEAKERS, UNSPACED

from tallystick import Actor, Tally
from tallystick.embedding import StaticEmbedder
from tallystick.ports import TokenCounter
from tallystick.ranking import RecallWeights
from tallystick.ranking.words import query_words
from tallystick.records import NewMemory
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick.tokens import counter_for

_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "inference", 4: "single-hop", 5: "adversarial"}
_DEPTH = 200
_PACK = 4_000
_ABLATIONS: dict[str, dict[str, float]] = {
    name: dict.fromkeys(fields.split(), 0.0)
    for name, fields in {
        "text": "text",
        "vector": "vector",
        "words": "words",
        "neighbours": "near far",
        "answers": "answers",
        "neighbours, answers, session": "near far answers session",
        "session": "session",
        "question": "question",
        "time words": "time_words",
        "date": "date",
        "speaker": "speaker",
        "role": "role",
    }.items()
}
_BOOSTS = ("freshness", "access", "task", "project", "source")
"""Signals that weigh nothing by default; the table shows what they would do."""
_BOOST = 0.5


@dataclass(frozen=True)
class Turn:
    """One thing said."""

    id: str
    session: str
    position: int
    speaker: str
    text: str
    at: int | None
    caption: str | None = None

    @property
    def line(self) -> str:
        """What a system without fields sees."""
        return f"{self.speaker}: {self.text}" + (
            f" [shares {self.caption}]" if self.caption else ""
        )


@dataclass(frozen=True)
class Query:
    """One question with the turns that answer it."""

    text: str
    category: int
    gold: frozenset[str]


@dataclass(frozen=True)
class Conversation:
    """Turns in order, and what is asked about them."""

    id: str
    turns: tuple[Turn, ...]
    queries: tuple[Query, ...]
    skipped: int = 0


Search = Callable[[str], list[str]]
"""A question to turn ids, best first."""
Results = dict[str, list[dict[str, float]]]


# Data


def load(path: Path, *, captions: bool = True) -> list[Conversation]:
    """The conversations of a file; questions without a usable evidence id are counted as
    skipped.
    """
    return [
        _conversation(entry, captions) for entry in json.loads(path.read_text(encoding="utf-8"))
    ]


def _conversation(entry: Mapping[str, Any], captions: bool) -> Conversation:
    said = entry["conversation"]
    turns: list[Turn] = []
    numbers = sorted(
        int(match[1]) for key in said if (match := re.fullmatch(r"session_(\d+)", key))
    )
    for number in numbers:
        at = _time(said.get(f"session_{number}_date_time"))
        for position, turn in enumerate(said[f"session_{number}"]):
            caption = turn.get("blip_caption") if captions else None
            session = f"{entry['sample_id']}/session-{number}"
            turns.append(
                Turn(turn["dia_id"], session, position, turn["speaker"], turn["text"], at, caption)
            )
    known = {turn.id for turn in turns}
    queries = [
        Query(question["question"], question["category"], gold)
        for question in entry["qa"]
        if (gold := frozenset(id for id in _evidence(question.get("evidence", ())) if id in known))
    ]
    return Conversation(
        entry["sample_id"], tuple(turns), tuple(queries), len(entry["qa"]) - len(queries)
    )


def _evidence(raw: Sequence[str]) -> Iterator[str]:
    for text in raw:
        for session, turn in re.findall(r"D(\d+):(\d+)", text):
            yield f"D{int(session)}:{int(turn)}"


def _time(text: str | None) -> int | None:
    if not text:
        return None
    moment = datetime.strptime(text.replace(",", ""), "%I:%M %p on %d %B %Y").replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000


# Robustness


def shuffled(conversation: Conversation) -> Conversation:
    """Turns of each session in another order, so that neighbours mean nothing."""
    chance = random.Random(0)
    turns: list[Turn] = []
    for session in dict.fromkeys(turn.session for turn in conversation.turns):
        own = [turn for turn in conversation.turns if turn.session == session]
        chance.shuffle(own)
        turns += [replace(turn, position=place) for place, turn in enumerate(own)]
    return replace(conversation, turns=tuple(turns))


def generic(conversation: Conversation) -> Conversation:
    """Speakers renamed to user and assistant; the questions keep the names."""
    roles: dict[str, str] = {}
    for turn in conversation.turns:
        roles.setdefault(turn.speaker, ("user", "assistant")[len(roles) % 2])
    return replace(
        conversation,
        turns=tuple(replace(turn, speaker=roles[turn.speaker]) for turn in conversation.turns),
    )


def undated(conversation: Conversation) -> Conversation:
    """No turn has a time."""
    return replace(conversation, turns=tuple(replace(turn, at=None) for turn in conversation.turns))


def mistyped(conversation: Conversation) -> Conversation:
    """Two letters of one longer word of each question stand in the wrong order."""
    chance = random.Random(0)

    def slip(text: str) -> str:
        words = text.split(" ")
        long = [place for place, word in enumerate(words) if word.isalpha() and len(word) > 5]
        if not long:
            return text
        place = chance.choice(long)
        word = words[place]
        at = chance.randrange(1, len(word) - 2)
        words[place] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        return " ".join(words)

    return replace(
        conversation,
        queries=tuple(replace(query, text=slip(query.text)) for query in conversation.queries),
    )


def of_our_own(
    said: Mapping[str, tuple[list[str], list[tuple[str, int]]]],
    speakers: Mapping[str, tuple[str, str]],
) -> list[Conversation]:
    """A small set of our own: all languages in one scope, each a session."""
    turns = [
        Turn(
            f"{language}:{place}",
            f"own/{language}",
            place,
            speakers[language][place % 2],
            text,
            None,
        )
        for language, (texts, _) in said.items()
        for place, text in enumerate(texts)
    ]
    queries = [
        Query(text, 4, frozenset({f"{language}:{place}"}))
        for language, (_, asked) in said.items()
        for text, place in asked
    ]
    return [Conversation("own", tuple(turns), tuple(queries))]


# Systems


@contextmanager
def ours(conversation: Conversation) -> Iterator[tuple[Tally, dict[str, str]]]:
    """A tally that holds the conversation, its clock an hour after the last turn, and memory id to
    turn id.
    """
    last = max(
        (turn.at for turn in conversation.turns if turn.at is not None),
        default=1_700_000_000_000_000,
    )
    clock = StepClock(last + 3_600_000_000)
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(folder, owner=Actor(user="anna"), clock=clock, background=False) as tally,
    ):
        made = tally.bind().remember_many(
            NewMemory(
                content=turn.text,
                kind="turn",
                speaker=turn.speaker,
                conversation=turn.session,
                position=turn.position,
                occurred_at=turn.at,
                attributes={"caption": turn.caption} if turn.caption else {},
            )
            for turn in conversation.turns
        )
        yield (
            tally,
            {done.id: turn.id for done, turn in zip(made, conversation.turns, strict=True)},
        )


def searcher(tally: Tally, names: Mapping[str, str]) -> Search:
    """Recall of a tally as a search."""
    return lambda query: [names[hit.memory.id] for hit in tally.bind().recall(query, limit=_DEPTH)]


def weighted(tally: Tally, names: Mapping[str, str], changes: Mapping[str, float]) -> Search:
    """Same as `searcher`, with some weights changed."""
    weights = RecallWeights(**changes)
    return lambda query: [
        names[hit.memory.id] for hit in tally.bind().recall(query, limit=_DEPTH, weights=weights)
    ]


class _NoVectors:
    """An embedder that knows no word: what is left is what words and structure find."""

    fingerprint, dimension, local = "none:0:1", 1, True

    def embed(self, texts: Sequence[str]) -> Any:
        return np.zeros((len(texts), 1), dtype=np.float32)


def without_vectors(tally: Tally, names: Mapping[str, str]) -> Search:
    """Recall with an embedder that offers nothing, for queries and for single words."""
    tally_without = replace(services_of(tally).memory, embedder=_NoVectors())

    def search(query: str) -> list[str]:
        before = services_of(tally).memory
        services_of(tally).memory = tally_without
        try:
            return searcher(tally, names)(query)
        finally:
            services_of(tally).memory = before

    return search


def plain_fts5(conversation: Conversation) -> Search:
    """SQLite's own full-text search: porter stems, its bm25, stop words left out."""
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE turns USING fts5(id UNINDEXED, text, tokenize='porter unicode61')"
    )
    connection.executemany(
        "INSERT INTO turns VALUES (?, ?)", [(turn.id, turn.line) for turn in conversation.turns]
    )

    def search(query: str) -> list[str]:
        meant = query_words(query)
        words = re.findall(r"\w+", query.lower())
        kept = [word for word in words if word in meant and len(word) > 1] or words
        wanted = " OR ".join(f'"{word}"' for word in kept)
        rows = connection.execute(
            f"SELECT id FROM turns WHERE turns MATCH ? ORDER BY bm25(turns) LIMIT {_DEPTH}",
            (wanted,),
        )
        return [row[0] for row in rows]

    return search


@contextmanager
def chroma_alone(conversation: Conversation) -> Iterator[Search]:
    """A Chroma collection with the same vectors, asked with the question as it stands."""
    import chromadb
    from chromadb.config import Settings

    embedder = StaticEmbedder()
    client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
    collection = client.create_collection(
        f"eval-{conversation.id}",
        embedding_function=None,
        configuration={
            "hnsw": {
                "space": "cosine",
                "ef_construction": 400,
                "ef_search": 400,
                "max_neighbors": 32,
            }
        },
    )
    texts = [turn.line for turn in conversation.turns]
    collection.add(
        ids=[turn.id for turn in conversation.turns], embeddings=list(embedder.embed(texts))
    )
    most = min(_DEPTH, len(texts))
    yield lambda query: collection.query(
        query_embeddings=[embedder.embed([query])[0]], n_results=most
    )["ids"][0]
    client.delete_collection(f"eval-{conversation.id}")


def fused(systems: Sequence[Search], *, k: int = 60) -> Search:
    """Reciprocal rank fusion."""

    def search(query: str) -> list[str]:
        scores: dict[str, float] = {}
        for system in systems:
            for rank, name in enumerate(system(query), start=1):
                scores[name] = scores.get(name, 0.0) + 1.0 / (k + rank)
        return sorted(scores, key=lambda name: (-scores[name], name))

    return search


# Measures


def measure(conversation: Conversation, search: Search) -> list[dict[str, float]]:
    """The measures of each question, in percent."""
    session = {turn.id: turn.session for turn in conversation.turns}
    tokens = _tokens(conversation)
    return [_measures(query, search(query.text), session, tokens) for query in conversation.queries]


def _measures(
    query: Query, found: Sequence[str], session: Mapping[str, str], tokens: Mapping[str, int]
) -> dict[str, float]:
    gold = query.gold
    ranks = [rank for rank, name in enumerate(found, start=1) if name in gold]
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(gold), 10) + 1))
    sessions = list(dict.fromkeys(session[name] for name in found))[:10]
    wanted = {session[name] for name in gold}
    return {
        "category": float(query.category),
        **{f"R@{k}": 100 * sum(rank <= k for rank in ranks) / len(gold) for k in (5, 10, 20)},
        "nDCG@10": 100 * sum(1 / math.log2(rank + 1) for rank in ranks if rank <= 10) / ideal,
        "MRR": 100 / ranks[0] if ranks else 0.0,
        "session R@10": 100 * len(wanted.intersection(sessions)) / len(wanted),
        f"@{_PACK}": 100 * len(gold.intersection(_packed(found, tokens))) / len(gold),
    }


def _packed(found: Sequence[str], tokens: Mapping[str, int]) -> list[str]:
    """As many of the best as fit the pack, in order; one that does not fit is passed over."""
    left, packed = _PACK, []
    for name in found:
        if tokens[name] <= left:
            packed.append(name)
            left -= tokens[name]
    return packed


def _tokens(conversation: Conversation) -> dict[str, int]:
    counter = _counter()
    return {turn.id: counter.count(turn.line) + 4 for turn in conversation.turns}


@cache
def _counter() -> TokenCounter:
    return counter_for("gpt-4o", cache_dir=Path(tempfile.gettempdir()) / "tallystick-eval-tokens")


def interval(values: Sequence[float], *, draws: int = 1_000) -> tuple[float, float]:
    """The 95% bootstrap interval of the mean."""
    chance = np.random.default_rng(0)
    data = np.asarray(values)
    means = data[chance.integers(0, len(data), (draws, len(data)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


# Reports


def run(conversations: Sequence[Conversation], *, chroma: bool, ablate: bool) -> Results:
    """The measures of each question by system."""
    results: Results = {}

    def add(name: str, conversation: Conversation, search: Search) -> None:
        results.setdefault(name, []).extend(measure(conversation, search))

    for conversation in conversations:
        words = plain_fts5(conversation)
        add("FTS5 porter", conversation, words)
        if chroma:
            with chroma_alone(conversation) as vectors:
                add("Chroma alone", conversation, vectors)
                add("RRF of both", conversation, fused([words, vectors]))
        with ours(conversation) as (tally, names):
            add("ours, no vectors", conversation, without_vectors(tally, names))
            add("ours", conversation, searcher(tally, names))
            for name, changes in _ABLATIONS.items() if ablate else ():
                add(f"- {name}", conversation, weighted(tally, names, changes))
            for name in _BOOSTS if ablate else ():
                add(f"+ {name}", conversation, weighted(tally, names, {name: _BOOST}))
    return results


def report(results: Results) -> None:
    """Print systems side by side, recall by category, and what each signal is worth."""
    systems = [name for name in results if name[:2] not in ("- ", "+ ")]
    asked = {name: [row for row in results[name] if row["category"] != 5] for name in results}
    measures = [name for name in results[systems[0]][0] if name != "category"]
    print(
        f"\n{len(asked[systems[0]])} questions of categories 1 to 4; percent; tokens by "
        f"{_counter().method}"
    )
    print(f"{'':<20}" + "".join(f"{name:>14}" for name in measures) + f"{'R@10 interval':>18}")
    for name in systems:
        low, high = interval([row["R@10"] for row in asked[name]])
        cells = "".join(f"{_mean(asked[name], key):>14.1f}" for key in measures)
        print(f"{name:<20}{cells}{f'{low:.1f} to {high:.1f}':>18}")
    print("\nR@10 by category")
    present = sorted({int(row["category"]) for row in results[systems[0]]})
    print(f"{'':<20}" + "".join(f"{_CATEGORIES[category]:>14}" for category in present))
    for name in systems:
        by = [[row for row in results[name] if row["category"] == category] for category in present]
        print(f"{name:<20}" + "".join(f"{_mean(rows, 'R@10'):>14.1f}" for rows in by))
    if len(systems) < len(results):
        print(
            f"\nOurs with one signal left out, or one boost at {_BOOST}: R@10, and the "
            f"difference with its "
            "paired 95% interval"
        )
    for name in results:
        if name not in systems:
            pairs = zip(asked[name], asked["ours"], strict=True)
            differences = [left["R@10"] - full["R@10"] for left, full in pairs]
            low, high = interval(differences)
            print(
                f"{name:<34}{_mean(asked[name], 'R@10'):>8.1f}{np.mean(differences):>+8.1f}  "
                f"[{low:+.1f}, {high:+.1f}]"
            )


def _mean(rows: Sequence[Mapping[str, float]], key: str) -> float:
    return sum(row[key] for row in rows) / len(rows)


def main() -> None:
    """Evaluate and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="a file in the LoCoMo format")
    parser.add_argument("--no-chroma", action="store_true", help="leave Chroma and its fusion out")
    parser.add_argument("--no-ablation", action="store_true", help="leave the table of signals out")
    parser.add_argument(
        "--no-robust", action="store_true", help="leave shuffled turns, generic speakers, … out"
    )
    chosen = parser.parse_args()
    conversations = load(chosen.data)
    skipped = sum(conversation.skipped for conversation in conversations)
    print(
        f"{len(conversations)} conversations, {sum(len(c.turns) for c in conversations)} turns; "
        f"{skipped} questions skipped for unusable evidence"
    )
    report(run(conversations, chroma=not chosen.no_chroma, ablate=not chosen.no_ablation))
    if chosen.no_robust:
        return
    variants = {
        "shuffled turns": [shuffled(conversation) for conversation in conversations],
        "generic speakers": [generic(conversation) for conversation in conversations],
        "no captions": load(chosen.data, captions=False),
        "no dates": [undated(conversation) for conversation in conversations],
        "typos": [mistyped(conversation) for conversation in conversations],
        "Chinese, Japanese, Korean (our own)": of_our_own(
            UNSPACED, dict.fromkeys(UNSPACED, ("美咲", "하준"))
        ),
        f"{len(SAID)} other languages (our own)": of_our_own(SAID, SPEAKERS),
    }
    for name, variant in variants.items():
        print(f"\n== {name}")
        report(run(variant, chroma=not chosen.no_chroma, ablate=False))


if __name__ == "__main__":
    main()
