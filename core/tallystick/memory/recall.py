"""Recall: scope predicate first, then candidates by words and vectors, then one weighted order with its reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from sqlalchemy import Connection

from tallystick.errors import InvalidInput, StorageError
from tallystick.memory.room import MemoryRoom
from tallystick.ranking import bm25, cosines, from_float16_bytes, fuse, query_terms
from tallystick.records import AccessDecision, Actor, Hit, Scope, SourceRef
from tallystick.storage import memories, scopes, search

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

__all__ = ["Recalled", "recall"]

_OVERFETCH = 200
"""How many proposals are asked of Chroma before exact re-scoring."""


@dataclass(frozen=True)
class Recalled(Sequence[Hit]):
    """Hits, best first: a sequence of them, with what a person should know about how they were found."""

    hits: tuple[Hit, ...]
    path: str
    """How vectors were searched: `exact`, `chroma` or `none`."""
    candidates: int
    """How many memories were scored."""
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


def recall(
    room: MemoryRoom, actor: Actor, scope_list: Sequence[Scope], query: str, *, limit: int = 10,
    kinds: Sequence[str] = (), conversation: str | None = None, logged: bool = True,
) -> Recalled:  # fmt: skip
    """The memories of these scopes that answer `query`, best first; equal scores by age, oldest first.

    Raises Denied for the first scope that `actor` may not read, and InvalidInput.
    """
    if limit < 1:
        raise InvalidInput("`limit` must be at least 1.")
    decisions = {scope: room.gate.require(actor, "read", scope) for scope in scope_list}
    terms = query_terms(query)
    vector = room.query_vector(query)
    filters = search.Filters(now=room.store.clock.now(), kinds=tuple(kinds), conversation=conversation)
    with room.store.database.read() as connection:
        ids = sorted(row.id for row in scopes.find(connection, scope_list))
        found = _candidates(connection, room, ids, terms, vector, filters) if ids else _Candidates({}, "none", ())
        ranked = sorted(found.scores, key=lambda doc: (-found.scores[doc][0], doc))[:limit]
        stored = memories.get_docs(connection, ranked)
        refs = memories.source_refs(connection, ranked)
        # Once more by what this snapshot sees: a membership may have ended since.
        decisions = {scope: room.gate.decide(connection, actor, "read", scope) for scope in decisions}
    hits = tuple(
        _hit(
            stored[doc],
            *found.scores[doc],
            refs.get(doc, []),
            decisions[stored[doc].memory.scope],
            found.path,
        )
        for doc in ranked
        if decisions[stored[doc].memory.scope].allowed
    )
    if logged:
        room.gate.log_read(actor, "recall", scope_list, results=len(hits), accessed=ranked)
    return Recalled(hits, found.path, len(found.scores), found.warnings)


@dataclass(frozen=True)
class _Candidates:
    scores: dict[int, tuple[float, dict[str, float]]]
    """doc to (score, signals)."""
    path: str
    warnings: tuple[str, ...]


def _candidates(
    connection: Connection, room: MemoryRoom, ids: list[int], terms: list[str], vector: Vector | None,
    filters: search.Filters,
) -> _Candidates:  # fmt: skip
    words = _by_words(connection, ids, terms, filters)
    nearness, path, warnings = _by_vector(connection, room, ids, vector, filters, list(words))
    docs = sorted(set(words) | set(nearness))
    signals = {
        "text": [words.get(doc, 0.0) for doc in docs],
        "vector": [max(0.0, nearness.get(doc, 0.0)) for doc in docs],
    }
    fused = fuse(signals)
    scores = {
        doc: (score, {name: values[place] for name, values in signals.items()})
        for place, (doc, score) in enumerate(zip(docs, fused, strict=True))
        if score > 0
    }
    return _Candidates(scores, path, warnings)


def _by_words(connection: Connection, ids: list[int], terms: list[str], filters: search.Filters) -> dict[int, float]:
    matches = search.match_text(connection, ids, terms, filters)
    if not matches:
        return {}
    statistics = scopes.statistics(connection, ids)
    wanted = set(terms)
    counted = [Counter(word for word in match.words.split(" ") if word in wanted) for match in matches]
    frequency = Counter(word for counts in counted for word in counts)
    scored = bm25(
        terms,
        counted,
        [match.length for match in matches],
        n_documents=statistics.documents,
        average_length=statistics.average_length,
        document_frequency=frequency,
    )
    return {match.doc: score for match, score in zip(matches, scored, strict=True)}


def _by_vector(
    connection: Connection, room: MemoryRoom, ids: list[int], vector: Vector | None, filters: search.Filters,
    also: Sequence[int],
) -> tuple[dict[int, float], str, tuple[str, ...]]:  # fmt: skip
    """Exact cosines of the candidates, how they were found, and warnings."""
    if vector is None:
        return {}, "none", ("the query has no vector; found by words alone",)
    fingerprint = room.embedder.fingerprint
    stored = search.count_vectors(connection, ids, fingerprint)
    if stored == 0:
        return {}, "none", ()
    wants_chroma = room.vector_search == "chroma" or (room.vector_search == "auto" and stored > room.exact_scan_limit)
    warnings: tuple[str, ...] = ()
    rows = None
    if wants_chroma:
        try:
            rows = _proposed(connection, room, ids, vector, filters, also)
        except StorageError as error:
            warnings = (f"Chroma was not used ({error}); vectors were scanned exactly",)
    path = "exact" if rows is None else "chroma"
    if rows is None:
        rows = search.scan_vectors(connection, ids, fingerprint, filters)
    if not rows:
        return {}, path, warnings
    values = cosines(vector, from_float16_bytes([row.vector for row in rows]))
    return {row.doc: float(value) for row, value in zip(rows, values, strict=True)}, path, warnings


def _proposed(
    connection: Connection, room: MemoryRoom, ids: list[int], vector: Vector, filters: search.Filters,
    also: Sequence[int],
) -> list[search.VectorRow]:  # fmt: skip
    if room.index is None:
        raise StorageError("this tally has no Chroma index")
    docs = room.index.propose(vector, ids, most=_OVERFETCH)
    # Chroma only proposes: every id is checked against the database, and every score is exact.
    pool = list(dict.fromkeys([*docs, *also]))
    return search.vectors_of(connection, ids, room.embedder.fingerprint, pool, filters)


def _hit(
    stored: memories.Stored, score: float, signals: dict[str, float], refs: Sequence[tuple[str, SourceRef]],
    decision: AccessDecision, path: str,
) -> Hit:  # fmt: skip
    return Hit.model_construct(
        memory=stored.memory,
        score=score,
        signals=signals,
        sources=tuple(reference for _, reference in refs),
        source_ids=tuple(source_id for source_id, _ in refs),
        visible_to=stored.memory.scope,
        reason=decision.reason,
        path=path,
        fresh=stored.memory.state == "active",
    )
