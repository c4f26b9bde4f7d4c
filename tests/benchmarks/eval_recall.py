"""Evidence recall on conversations in the LoCoMo format: how often recall finds the turns that
answer a question, and how many of them the product's own pack carries.

Run it with `make eval-recall DATA=one.json,another.json`; without DATA it measures the small sets
of our own. One table has every set, each of its
harder variants, and rows that are generated from sentences of our own. Each conversation becomes a
scope of its own, each of its sessions a conversation (`conv-26/session-3`), each turn a memory with
its speaker and its time; an image caption follows the text. Baselines and ours see the
same turns. A file in LongMemEval's format is measured by session: R@5, R@10 and nDCG of the
sessions that answer, by type of question; `hit@5` is what most mean by R@5 there, any of them among
five. The data is read from where it is and never copied.
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
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import compress, product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from tests.benchmarks.agreement import agreement_measures
from tests.benchmarks.conversations import ADVERSARIAL, Conversation, Query, Turn
from tests.benchmarks.embedders import add_embedders, chosen_embedders
from tests.benchmarks.facts import (
    LANGUAGES,
    PLAIN,
    Facts,
    chat,
    documents,
    facts,
    in_passing,
    told,
)
from tests.benchmarks.languages import SAID, SPEAKERS, UNSPACED
from tests.benchmarks.long_mem_eval import WANTED, conversation_of, is_long_mem_eval
from tests.benchmarks.measures import lines
from tests.benchmarks.plots import Bar, Scored, plot_ablation, plot_calibration

from tallystick import Actor, Tally
from tallystick.embedding import StaticEmbedder
from tallystick.ports import Embedder, TokenCounter
from tallystick.ranking import RecallWeights, analyze, query_terms
from tallystick.records import NewMemory
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick.tokens import counter_for

OWN_SETS = tuple(sorted((Path(__file__).parents[1] / "fixtures" / "recall").glob("*.json")))
"""Small labelled sets of further kinds: a group chat in which nicknames are named, meetings of many
speakers, traces of tools, preferences that a request asks for, Chinese chats of several users. They
were labelled before the order was changed, the traces anew by a rule that was written later
(docs/evidence.md); `SHA256SUMS` beside them names their bytes.
"""
_KINDS = {1: "multi-hop", 2: "temporal", 3: "inference", 4: "single-hop", 5: ADVERSARIAL}
_TEMPLATED = frozenset({"instruction_following", "preference_following"})
"""Kinds of BEAM whose texts a generator wrote by one template ("when I ask about …"): what finds
the template finds them.
"""
_DEPTH = 200
_PACK = 4_000
_SHOWN = 400
"""Characters of a turn that a pack must show where the words of the answer are not in it."""
_FTS5, _CHROMA, _FUSED = "FTS5, porter", "Chroma", "RRF of both"
_TEXT_ALONE, _RECALL = "recall, no vectors", "recall"
_LIST = 3
"""Turns that answer a question from which on it is a list."""
_MEASURES = ("R@5", "R@10", "R@20", "nDCG", "session", "hit@5", "pack")
_ABLATIONS: dict[str, dict[str, float]] = {
    name: dict.fromkeys(fields.split(), 0.0)
    for name, fields in {
        "text": "text",
        "vector": "vector",
        "words": "words",
        "neighbours": "neighbours",
        "neighbours, session": "neighbours session",
        "session": "session",
        "date": "date",
        "speaker": "speaker",
        "long answers": "long_answers",
    }.items()
}
_BOOSTS = ("freshness", "access", "task", "project", "source")
"""Signals that weigh nothing by default; the table shows what they would do."""
_BOOST = 0.5
_SEEDS = range(5)
"""Of one generated row: 64 questions of one seed say nothing closer than some ten percent."""


Search = Callable[[str], list[str]]
"""A question to turn ids, best first."""
Pack = Callable[[str], dict[str, str]]
"""A question to what the product's pack shows of each turn, by turn id."""
Results = dict[str, list[dict[str, Any]]]


class BadData(Exception):
    """A file that is missing, empty, or in another form; says which and why."""


# Data


def load(path: Path) -> list[Conversation]:
    """The conversations of a file; questions without a usable evidence id are counted as
    skipped. Raises BadData.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadData(f"There is no file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadData(f"{path} cannot be read: {error}.") from error
    if not text.strip():
        raise BadData(f"{path} is empty.")
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise BadData(f"{path} is not JSON: {error}.") from error
    if not isinstance(entries, list) or not entries:
        raise BadData(f"{path} is not in the LoCoMo format: it is not a list of conversations.")
    is_long = is_long_mem_eval(entries)
    try:
        conversations = [(conversation_of if is_long else _conversation)(each) for each in entries]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        if is_long:
            raise BadData(f"{path} is not in LongMemEval's format ({reason}). {WANTED}.") from error
        raise BadData(
            f"{path} is not in the LoCoMo format ({reason}). A conversation has `sample_id`, "
            "`conversation` with `session_1`, `session_1_date_time`, … of turns with `speaker`, "
            "`dia_id` and `text`, and `qa` with `question`, `answer`, `evidence` and `category`."
        ) from error
    if not any(one.turns and one.queries for one in conversations):
        raise BadData(f"{path} has no question whose `evidence` names one of its turns.")
    return [one for one in conversations if one.turns and one.queries]


def _conversation(entry: Mapping[str, Any]) -> Conversation:
    said = entry["conversation"]
    turns: list[Turn] = []
    numbers = sorted(
        int(match[1]) for key in said if (match := re.fullmatch(r"session_(\d+)", key))
    )
    for number in numbers:
        at = _time(said.get(f"session_{number}_date_time"))
        for position, turn in enumerate(said[f"session_{number}"]):
            caption = turn.get("blip_caption")
            session = f"{entry['sample_id']}/session-{number}"
            turns.append(
                Turn(turn["dia_id"], session, position, turn["speaker"], turn["text"], at, caption)
            )
    known = {turn.id for turn in turns}
    queries = [
        Query(question["question"], _kind(question), gold, str(question.get("answer", "")))
        for question in entry["qa"]
        if (gold := frozenset(id for id in _evidence(question.get("evidence", ())) if id in known))
    ]
    return Conversation(
        entry["sample_id"], tuple(turns), tuple(queries), len(entry["qa"]) - len(queries)
    )


def _kind(question: Mapping[str, Any]) -> str:
    """Return the kind of a question: as it names it itself, else LoCoMo's of its number."""
    category = question["category"]
    return str(question.get("ability") or _KINDS.get(category, category))


def thinned(conversation: Conversation, every: int) -> Conversation:
    """Every nth question alone."""
    return replace(conversation, queries=conversation.queries[::every])


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


def renamed(conversation: Conversation) -> Conversation:
    """Speakers renamed to user and assistant; the questions keep the names."""
    roles: dict[str, str] = {}
    for turn in conversation.turns:
        roles.setdefault(turn.speaker, ("user", "assistant")[len(roles) % 2])
    return replace(
        conversation,
        turns=tuple(replace(turn, speaker=roles[turn.speaker]) for turn in conversation.turns),
    )


def captionless(conversation: Conversation) -> Conversation:
    """No picture has a caption."""
    return replace(
        conversation, turns=tuple(replace(turn, caption=None) for turn in conversation.turns)
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
        Query(text, "single-hop", frozenset({f"{language}:{place}"}))
        for language, (_, asked) in said.items()
        for text, place in asked
    ]
    return [Conversation("own", tuple(turns), tuple(queries))]


def of_facts(made: Facts, speakers: tuple[str, str] | None) -> Conversation:
    """A generated conversation of two speakers; for None loose notes, or documents."""
    turns = [
        Turn(f"D1:{place}", "own", place, speakers[place % 2] if speakers else "", text, None)
        for place, text in enumerate(made.turns)
    ]
    queries = [
        Query(question, "single-hop", frozenset({f"D1:{place}"}))
        for question, place in made.questions
    ]
    return Conversation("own", tuple(turns), tuple(queries))


# Systems


@contextmanager
def ours(
    conversation: Conversation,
    *,
    settings: Settings | None = None,
    embedder: Embedder | None = None,
) -> Iterator[tuple[Tally, dict[str, str]]]:
    """A tally that holds the conversation, its clock an hour after the last turn, and memory id to
    turn id.
    """
    last = max(
        (turn.at for turn in conversation.turns if turn.at is not None),
        default=1_700_000_000_000_000,
    )
    asked_at = conversation.asked_at
    clock = StepClock(last + 3_600_000_000 if asked_at is None else max(asked_at, last))
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(
            folder,
            owner=Actor(user="anna"),
            clock=clock,
            background=False,
            settings=settings,
            embedder=embedder,
        ) as tally,
    ):
        made = tally.bind().remember_many(
            NewMemory(
                content=turn.text,
                kind="turn" if turn.speaker else "document" if len(turn.text) > 1_000 else "note",
                speaker=turn.speaker or None,
                conversation=turn.session if turn.speaker else None,
                position=turn.position if turn.speaker else None,
                occurred_at=turn.at,
                attributes={"caption": turn.caption} if turn.caption else {},
            )
            for turn in conversation.turns
        )
        tally.drain()  # an embedder that is far away makes its vectors by jobs
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


def packer(tally: Tally, names: Mapping[str, str]) -> Pack:
    """The product's own pack, as what it shows of each turn."""

    def pack(query: str) -> dict[str, str]:
        items = tally.bind().pack(query, budget_tokens=_PACK, model="gpt-4o").items
        return {names[item.id]: item.text for item in items}

    return pack


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
    """SQLite's own full-text search: porter stems, its bm25, stop words left out. Scripts without
    spaces are given to it in pairs of characters: it would take a sentence for one word.
    """
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE turns USING fts5(id UNINDEXED, text, tokenize='porter unicode61')"
    )
    connection.executemany(
        "INSERT INTO turns VALUES (?, ?)",
        [(turn.id, _in_pairs(turn.line)) for turn in conversation.turns],
    )

    def search(query: str) -> list[str]:
        meant = set(query_terms(query))
        words = re.findall(r"\w+", _in_pairs(query.lower()))
        kept = [word for word in words if meant & {*analyze(word)} and len(word) > 1] or words
        wanted = " OR ".join(f'"{word}"' for word in kept)
        rows = connection.execute(
            f"SELECT id FROM turns WHERE turns MATCH ? ORDER BY bm25(turns) LIMIT {_DEPTH}",
            (wanted,),
        )
        return [row[0] for row in rows]

    return search


_UNSPACED_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]{2,}")


def _in_pairs(text: str) -> str:
    def pairs(match: re.Match[str]) -> str:
        run = match[0]
        return " " + " ".join(run[place : place + 2] for place in range(len(run) - 1)) + " "

    return _UNSPACED_RUN.sub(pairs, text)


@contextmanager
def chroma_alone(conversation: Conversation) -> Iterator[Search]:
    """A Chroma collection with the same vectors, asked with the question as it stands."""
    import chromadb
    from chromadb.config import Settings

    embedder = StaticEmbedder()
    client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
    collection = client.create_collection(
        _collection(conversation),
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
    client.delete_collection(_collection(conversation))


def _collection(conversation: Conversation) -> str:
    """Return a name that Chroma takes: letters of one script only."""
    return f"eval-{conversation.id.encode().hex()}"


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


def measure(
    conversation: Conversation, search: Search, pack: Pack | None = None
) -> list[dict[str, Any]]:
    """The measures of each question, in percent, and its kind."""
    session = {turn.id: turn.session for turn in conversation.turns}
    text = {turn.id: turn.content for turn in conversation.turns}
    rows = []
    for query in conversation.queries:
        row = _measures(query, search(query.text), session, by_session=conversation.by_session)
        if pack is not None:
            shown = pack(query.text)
            carried = sum(is_carried(query, text[name], shown.get(name, "")) for name in query.gold)
            row["pack"] = 100 * carried / len(query.gold)
        rows.append(row)
    return rows


def _measures(
    query: Query, ranking: Sequence[str], session: Mapping[str, str], *, by_session: bool
) -> dict[str, Any]:
    gold = query.gold
    if by_session:
        # Of a session the best of its turns counts.
        ranking = list(dict.fromkeys(session[name] for name in ranking))
        gold, session = frozenset(session[name] for name in gold), {}
    ranks = [rank for rank, name in enumerate(ranking, start=1) if name in gold]
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(gold), 10) + 1))
    sessions = list(dict.fromkeys(session.get(name, name) for name in ranking))[:10]
    wanted = {session.get(name, name) for name in gold}
    return {
        "kind": query.kind,
        "evidence": len(gold),
        **{f"R@{k}": 100 * sum(rank <= k for rank in ranks) / len(gold) for k in (5, 10, 20)},
        "nDCG": 100 * sum(1 / math.log2(rank + 1) for rank in ranks if rank <= 10) / ideal,
        "session": 100 * len(wanted.intersection(sessions)) / len(wanted),
        "hit@5": 100.0 * any(rank <= 5 for rank in ranks),
    }


def is_carried(query: Query, text: str, shown: str) -> bool:
    """Return True if what is shown of a turn has the words of the answer that the turn has, or
    else 400 characters of it.
    """
    words = set(_words(query.answer)) & set(_words(text))
    if words:
        return words <= set(_words(shown))
    return bool(shown) and len(shown) >= min(_SHOWN, len(text))


def _words(text: str) -> list[str]:
    return query_terms(text)


def interval(values: Sequence[float], *, draws: int = 1_000) -> tuple[float, float]:
    """The 95% bootstrap interval of the mean."""
    chance = np.random.default_rng(0)
    data = np.asarray(values)
    means = data[chance.integers(0, len(data), (draws, len(data)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


# Reports


def run(
    conversations: Sequence[Conversation],
    *,
    chroma: bool = True,
    packs: bool = True,
    embedders: Mapping[str, Embedder] = MappingProxyType({}),
) -> Results:
    """The measures of each question by system."""
    results: Results = {}

    def add(
        name: str, conversation: Conversation, search: Search, pack: Pack | None = None
    ) -> None:
        results.setdefault(name, []).extend(measure(conversation, search, pack))

    for conversation in conversations:
        words = plain_fts5(conversation)
        add(_FTS5, conversation, words)
        if chroma:
            with chroma_alone(conversation) as vectors:
                add(_CHROMA, conversation, vectors)
                add(_FUSED, conversation, fused([words, vectors]))
        with ours(conversation) as (tally, names):
            add(_TEXT_ALONE, conversation, without_vectors(tally, names))
            pack = packer(tally, names) if packs else None
            add(_RECALL, conversation, searcher(tally, names), pack)
        for label, embedder in embedders.items():
            with ours(conversation, embedder=embedder) as (tally, names):
                pack = packer(tally, names) if packs else None
                add(f"{_RECALL}, {label[:40]}", conversation, searcher(tally, names), pack)
    return results


def ablation(conversations: Sequence[Conversation]) -> Results:
    """The measures of each question without each signal, and with each boost."""
    results: Results = {}
    changes = {f"- {name}": values for name, values in _ABLATIONS.items()}
    changes |= {f"+ {name}": {name: _BOOST} for name in _BOOSTS}
    for conversation in conversations:
        with ours(conversation) as (tally, names):
            results.setdefault(_RECALL, []).extend(measure(conversation, searcher(tally, names)))
            for name, values in changes.items():
                rows = measure(conversation, weighted(tally, names, values))
                results.setdefault(name, []).extend(rows)
    return results


def calibration(conversations: Sequence[Conversation]) -> list[Scored]:
    """The score of the best hit of each question, and whether it answers; no hit scores 0."""
    scored = []
    for conversation in conversations:
        with ours(conversation) as (tally, names):
            for query in conversation.queries:
                best = next(iter(tally.bind().recall(query.text, limit=1)), None)
                answers = (
                    best is not None
                    and query.kind != ADVERSARIAL
                    and names[best.memory.id] in query.gold
                )
                scored.append(Scored(0.0 if best is None else best.score, answers))
    return scored


def bars_of(results: Results) -> list[Bar]:
    """What each change of an ablation does to R@10."""
    asked = {
        name: [one["R@10"] for one in rows if one["kind"] != ADVERSARIAL]
        for name, rows in results.items()
    }
    bars = []
    for name, values in asked.items():
        if name != _RECALL:
            differences = [
                value - other for value, other in zip(values, asked[_RECALL], strict=True)
            ]
            bars.append(Bar(name, float(np.mean(differences)), *interval(differences)))
    return bars


def report(row: str, results: Results, *, of_kinds: Sequence[str] = ("R@10",)) -> None:
    """Print a row of the table: each system with its measures, recall beside the plain fusion with
    the interval of their difference, and some measures by the kind of question.
    """
    asked = {
        name: [one for one in rows if one["kind"] != ADVERSARIAL] for name, rows in results.items()
    }
    print(f"\n{row}: {len(asked[_RECALL])} questions")
    for name, rows in asked.items():
        measures = [key for key in _MEASURES if key in rows[0]]
        cells = "".join(f"{mean(rows, key):>9.1f}" for key in measures)
        low, high = interval([one["R@10"] for one in rows])
        absent = " " * 9 * (len(_MEASURES) - len(measures))
        print(f"  {name:<20}{cells}{absent}   R@10 {low:.1f} to {high:.1f}")
    for baseline in (_FTS5, _FUSED, _TEXT_ALONE):
        if baseline in asked:
            differences = ", ".join(
                f"{key} {_difference(asked[_RECALL], asked[baseline], key)}"
                for key in ("R@5", "R@10")
            )
            print(f"  {_RECALL} against {baseline}: {differences}")
    for name in asked:
        if name.startswith(f"{_RECALL}, ") and name != _TEXT_ALONE:
            print(f"  {name} against {_RECALL}: {_difference(asked[name], asked[_RECALL])}")
    plain = [one for one in asked[_RECALL] if one["kind"] not in _TEMPLATED]
    if len(plain) < len(asked[_RECALL]):
        cells = ", ".join(f"{key} {mean(plain, key):.1f}" for key in ("R@5", "R@10", "nDCG"))
        print(f"  {_RECALL} without the {len(asked[_RECALL]) - len(plain)} of a template: {cells}")
    lists = [one["evidence"] >= _LIST for one in asked[_RECALL]]
    if any(lists):
        shares = ", ".join(
            f"{name} {mean(list(compress(rows, lists)), 'R@10'):.1f}"
            for name, rows in asked.items()
        )
        print(f"  lists, R@10 of {sum(lists)} questions: {shares}")
    kinds = list(dict.fromkeys(one["kind"] for one in results[_RECALL]))
    if len(kinds) > 1:
        for name, key in product((_FUSED, _RECALL), of_kinds):
            rows = results.get(name, [])
            shares = ", ".join(
                f"{kind} {mean([one for one in rows if one['kind'] == kind], key):.1f}"
                for kind in kinds
                if rows
            )
            if shares:
                print(f"  {name}, {key} by kind: {shares}")


def report_ablation(row: str, results: Results) -> None:
    """Print what each signal is worth, and what each boost would do."""
    asked = {
        name: [one for one in rows if one["kind"] != ADVERSARIAL] for name, rows in results.items()
    }
    print(f"\n{row}: without one signal, or with one boost at {_BOOST}")
    for name, rows in asked.items():
        if name != _RECALL:
            print(f"  {name:<34}{mean(rows, 'R@10'):>8.1f}  {_difference(rows, asked[_RECALL])}")


def _difference(
    rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], key: str = "R@10"
) -> str:
    differences = [one[key] - other[key] for one, other in zip(rows, others, strict=True)]
    low, high = interval(differences)
    return f"{np.mean(differences):+.1f} [{low:+.1f}, {high:+.1f}]"


def mean(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    """The mean of a measure."""
    return float(sum(row[key] for row in rows) / len(rows))


@cache
def _counter() -> TokenCounter:
    return counter_for("gpt-4o", cache_dir=Path(tempfile.gettempdir()) / "tallystick-eval-tokens")


# Rows


def generated() -> Iterator[tuple[str, list[Conversation]]]:
    """The rows that are made from sentences of our own."""
    yield (
        "generated: chat with an assistant",
        [of_facts(chat(seed=seed), ("user", "assistant")) for seed in _SEEDS],
    )
    yield (
        "generated: chat about code",
        [of_facts(chat(seed=seed, code=True), ("user", "assistant")) for seed in _SEEDS],
    )
    kinds: dict[str, dict[str, Any]] = {"": {}, ", asked for as such": {"asked": True}}
    kinds |= {
        f", {language}": {"language": language} for language in LANGUAGES if language != "English"
    }
    for name, options in kinds.items():
        yield (
            f"generated: what an assistant told{name}",
            [of_facts(told(seed=seed, **options), ("user", "assistant")) for seed in _SEEDS],
        )
    yield (
        "generated: what a user says of himself in passing",
        [of_facts(in_passing(seed=seed), ("user", "assistant")) for seed in range(4 * len(_SEEDS))],
    )
    yield (
        "generated: loose notes",
        [of_facts(facts(LANGUAGES["English"], seed=seed), None) for seed in _SEEDS],
    )
    yield "generated: documents", [of_facts(documents(seed=seed), None) for seed in _SEEDS]
    for name, language in LANGUAGES.items():
        made = [facts(language, seed=seed, threads=True, plain=PLAIN) for seed in _SEEDS]
        yield f"generated: {name}", [of_facts(each, ("A", "B")) for each in made]
    yield (
        "small: Chinese, Japanese, Korean",
        of_our_own(UNSPACED, dict.fromkeys(UNSPACED, ("美咲", "하준"))),
    )
    yield f"small: {len(SAID)} European languages", of_our_own(SAID, SPEAKERS)
    for path in OWN_SETS:
        yield f"small: {path.stem.replace('_', ' ')}", load(path)


_VARIANTS: dict[str, Callable[[Conversation], Conversation]] = {
    "shuffled": shuffled,
    "renamed": renamed,
    "captionless": captionless,
    "dateless": undated,
    "typos": mistyped,
}


def main() -> None:
    """Evaluate and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "data",
        nargs="?",
        default=",".join(map(str, OWN_SETS)),
        help="files in the LoCoMo format, with commas between them; else the small sets of our own",
    )
    parser.add_argument("--no-chroma", action="store_true", help="leave Chroma and its fusion out")
    parser.add_argument("--no-packs", action="store_true", help="leave the product's packs out")
    parser.add_argument("--ablation", action="store_true", help="what each signal is worth")
    parser.add_argument("--plots", type=Path, help="a folder for plots of both, as SVG")
    parser.add_argument("--no-robust", action="store_true", help="leave harder variants out")
    parser.add_argument("--no-generated", action="store_true", help="leave generated rows out")
    add_embedders(parser)
    parser.add_argument("--every", type=int, default=1, help="ask every nth question alone")
    chosen = parser.parse_args()
    try:
        sets = {path.stem: load(path) for path in map(Path, chosen.data.split(","))}
    except BadData as error:
        raise SystemExit(f"make eval-recall: {error}") from None
    is_own = chosen.data == parser.get_default("data")
    sets = {name: [thinned(one, chosen.every) for one in said] for name, said in sets.items()}
    others = chosen_embedders(chosen.embedders)
    how: dict[str, Any] = {
        "chroma": not chosen.no_chroma,
        "packs": not chosen.no_packs,
        "embedders": others,
    }
    print(f"percent; packs of {_PACK:,} tokens by {_counter().method}")
    print(f"{'':<22}" + "".join(f"{name:>9}" for name in _MEASURES))
    for name, said in sets.items():
        skipped = sum(one.skipped for one in said)
        turns = sum(len(one.turns) for one in said)
        print(f"\n== {name}: {len(said)} conversations, {turns} turns; {skipped} questions skipped")
        of_kinds = ("R@5", "R@10", "nDCG") if said[0].by_session else ("R@10",)
        report(name, run(said, **how), of_kinds=of_kinds)
        if chosen.ablation or chosen.plots:
            ablated = ablation(said)
            report_ablation(name, ablated)
            if chosen.plots:
                slug = re.sub(r"\W+", "-", name)
                plot_ablation(name, bars_of(ablated), chosen.plots / f"{slug}-ablation.svg")
                scored = calibration(said)
                plot_calibration(name, scored, chosen.plots / f"{slug}-calibration.svg")
        is_plain = chosen.no_robust or is_own or said[0].by_session
        for variant, change in () if is_plain else _VARIANTS.items():
            report(
                f"{name}, {variant}",
                run([change(one) for one in said], **{**how, "packs": False}),
            )
    if is_own:
        print("", *lines([*agreement_measures("recall")]), sep="\n")
    is_by_session = all(one.by_session for said in sets.values() for one in said)
    if not (chosen.no_generated or is_own or is_by_session):
        for name, said in generated():
            report(name, run(said, **how))


if __name__ == "__main__":
    main()
