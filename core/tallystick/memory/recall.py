"""Recall: scope predicate first, then candidates by words and vectors, then one weighted order with
its reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

from tallystick.errors import EmbeddingError, InvalidInput, StorageError
from tallystick.memory.context import MemoryContext
from tallystick.memory.rerank import reranked
from tallystick.memory.supersession import Standing, arranged
from tallystick.ranking import (
    Corpus,
    Pool,
    Question,
    Ranked,
    RecallWeights,
    Span,
    ask,
    cosines,
    event_named,
    names_source,
    proposals,
    query_terms,
    rank,
    slices_of,
)
from tallystick.ranking.corpus import NEVER
from tallystick.ranking.dates import ALWAYS
from tallystick.records import AccessDecision, Actor, Hit, MemoryState, Scope, SourceRef
from tallystick.storage import Connection, memories, scopes, search
from tallystick.storage.chroma_layout import layout_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

__all__ = ["Recalled", "Wanted", "recall"]

_DEPTH = 100
"""How many memories each of words and vectors proposes, at least."""
_RERANKED = 50
"""How many of the best are loaded, for a reranker to order anew."""
_SPARE = 5
"""How many more than asked are loaded."""
_OVERFETCH = 200
"""How many proposals are asked of Chroma before exact re-scoring."""


@dataclass(frozen=True)
class Recalled(Sequence[Hit]):
    """Hits, best first: a sequence of them, with what a person should know about how they were
    found.
    """

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


@dataclass(frozen=True)
class Wanted:
    """What recall is asked for, beside the query."""

    limit: int = 10
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """All of them."""
    conversation: str | None = None
    source: str | None = None
    """The id or the address of a source."""
    docs: frozenset[int] | None = None
    """Only these memories, by number."""
    since: int | None = None
    until: int | None = None
    """When it was said or happened, microseconds UTC: from `since` up to `until`, exclusive."""
    states: tuple[MemoryState, ...] = ()
    """By default what is active, superseded or redacted; never what is hidden or deleted."""
    as_of: int | None = None
    """What held at this moment, microseconds UTC; None is what holds now, and then what held
    before.
    """
    asked_at: int | None = None
    """The moment from which "last week" is seen; None is now."""
    run_id: str | None = None
    """The run under way."""
    project: str | None = None
    """The project that the caller is bound to."""
    weights: RecallWeights | None = None
    sources: bool = True
    """Whether hits name their sources."""
    budget: Callable[[Sequence[Hit]], list[Hit]] | None = None
    """Keeps those that fit a budget of tokens."""

    @property
    def filters(self) -> bool:
        """Whether anything is filtered by."""
        return bool(
            self.kinds
            or self.tags
            or self.conversation
            or self.source
            or self.docs is not None
            or self.states
        ) or not (self.since is None and self.until is None and self.as_of is None)


def recall(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    query: str,
    wanted: Wanted | None = None,
    *,
    logged: bool = True,
) -> Recalled:
    """The memories of these scopes that answer `query`, best first; equal scores by age, oldest
    first.

    Raises Denied for the first scope that `actor` may not read, and InvalidInput.
    """
    wanted = wanted or Wanted()
    if wanted.limit < 1:
        raise InvalidInput("`limit` must be at least 1.")
    closed = sorted(set(wanted.states) - set(memories.FINDABLE))
    if closed:
        raise InvalidInput(
            f"Recall never shows what is {' or '.join(closed)}. Use states of "
            f"{', '.join(memories.FINDABLE)}, or list "
            "it by `memories(states=…)`."
        )
    decisions = {scope: context.gate.require(actor, "read", scope) for scope in scope_list}
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        asked = _asked(connection, context, scope_list, query, wanted, now)
    # Between two snapshots: an embedder that is far away must not hold a reader.
    vector = context.query_vector(asked.question.meaning) if asked.corpora else None
    with context.store.database.read() as connection:
        found = _search(connection, context, asked, vector, wanted, now)
        stored = _loaded(connection, found, wanted, now)
        # Once more by what this snapshot sees: a membership may have ended since.
        decisions = {
            scope: context.gate.decide(connection, actor, "read", scope) for scope in decisions
        }
        standing = arranged(
            connection,
            [
                (stored[ranked.doc], ranked)
                for ranked in found.ranked
                if ranked.doc in stored
                and decisions[stored[ranked.doc].memory.scope].allowed
                # What neither scores above nothing nor holds a word of the query is no answer.
                and (ranked.score > 0 or ranked.signals["text"] > 0)
            ],
            may_read=lambda scope: context.gate.decide(connection, actor, "read", scope).allowed,
            within=tuple(scope_list),
            now=now,
            as_of=wanted.as_of,
            collapse=not wanted.states,
            bring=not wanted.filters,
        )
        # A reranker and a budget choose among more than are asked for.
        chosen = (
            standing
            if context.reranker is not None or wanted.budget is not None
            else standing[: wanted.limit]
        )
        refs = (
            memories.source_refs(connection, [one.stored.doc for one in chosen])
            if wanted.sources
            else {}
        )
    best = max((one.ranked.score for one in standing), default=0.0)
    hits = [_hit(one, best, refs.get(one.stored.doc, []), decisions, found.path) for one in chosen]
    warnings = list(found.warnings)
    if context.reranker is not None and len(hits) > 1:
        hits, problem = reranked(
            context.reranker,
            query,
            hits,
            deadline_ms=context.rerank_deadline_ms,
            redactor=context.redactor,
        )
        warnings += [problem] if problem else []
    if wanted.budget is not None:
        hits = wanted.budget(hits)
    hits = hits[: wanted.limit]
    if logged:
        docs = {one.stored.memory.id: one.stored.doc for one in standing}
        accessed = [docs[hit.memory.id] for hit in hits]
        context.gate.log_read(actor, "recall", scope_list, results=len(hits), accessed=accessed)
    return Recalled(tuple(hits), found.path, found.candidates, tuple(warnings))


@dataclass(frozen=True)
class _Found:
    ranked: list[Ranked]
    candidates: int = 0
    path: str = "none"
    warnings: tuple[str, ...] = ()


def _loaded(
    connection: Connection, found: _Found, wanted: Wanted, now: int
) -> dict[int, memories.Stored]:
    """The best as they stand in the database: each is checked again, and what left meanwhile is
    passed over.
    """
    docs = [ranked.doc for ranked in found.ranked]
    return {
        doc: memory
        for doc, memory in memories.get_docs(connection, docs).items()
        if memory.memory.state in _states(wanted)
        and (memory.memory.expires_at is None or memory.memory.expires_at > now)
    }


def _states(wanted: Wanted) -> tuple[MemoryState, ...]:
    return wanted.states or memories.FINDABLE


@dataclass(frozen=True)
class _Asked:
    """A question, read with the words of the scopes that it is put to."""

    question: Question
    corpora: dict[int, Corpus]
    revisions: dict[int, int]
    scopes: dict[int, Scope]
    by_chroma: bool = False


def _asked(
    connection: Connection,
    context: MemoryContext,
    scope_list: Sequence[Scope],
    query: str,
    wanted: Wanted,
    now: int,
) -> _Asked:
    named = {row.id: row.scope for row in scopes.find(connection, scope_list)}
    revisions = scopes.revisions(connection, scope_list)
    by_chroma = bool(revisions) and _wants_chroma(connection, context, list(revisions))
    corpora = _corpora(connection, context, revisions, exact=not by_chroma)
    question = ask(
        query, list(corpora.values()), now if wanted.asked_at is None else wanted.asked_at
    )
    return _Asked(
        _placed_by_event(question, list(corpora.values())), corpora, revisions, named, by_chroma
    )


def _search(
    connection: Connection,
    context: MemoryContext,
    asked: _Asked,
    vector: Vector | None,
    wanted: Wanted,
    now: int,
) -> _Found:
    corpora, revisions, question = asked.corpora, asked.revisions, asked.question
    if not corpora:
        return _Found([])
    weights = wanted.weights or context.weights
    warnings = [] if vector is not None else ["the query has no vector; found by words alone"]
    proposed: list[int] | None = None
    if asked.by_chroma and vector is not None:
        try:
            proposed = _proposed(connection, context, list(revisions), vector)
        except StorageError as error:
            warnings.append(f"Chroma was not used ({error}); vectors were scanned exactly")
            corpora = _corpora(connection, context, revisions, exact=True)
    if vector is None or (
        proposed is None and not any(corpus.vectors for corpus in corpora.values())
    ):
        path = "none"
    else:
        path = "exact" if proposed is None else "chroma"
    depth = max(_DEPTH, wanted.limit // 2)
    pools, narrow = [], False
    for scope_id, corpus in corpora.items():
        allowed = _allowed(connection, corpus, scope_id, wanted, now)
        narrow |= wanted.filters and 10 * int(allowed.sum()) < len(corpus)
        pools.append(
            _pool(connection, context, corpus, scope_id, question, vector, proposed, allowed, depth)
        )
    known = _known(connection, asked, pools, weights, wanted, now, narrow=narrow)
    words = context.word_vectors if vector is not None else None
    most = max(wanted.limit, _RERANKED) if context.reranker is not None else wanted.limit
    # Some more than asked, because what left meanwhile or is no answer is passed over.
    ranked = rank(question, pools, weights, words, known, most=most + _SPARE)
    return _Found(ranked, sum(len(pool.rows) for pool in pools), path, tuple(warnings))


def _corpora(
    connection: Connection, context: MemoryContext, revisions: Mapping[int, int], *, exact: bool
) -> dict[int, Corpus]:
    fingerprint, dimension = "", 0
    if exact:
        try:
            fingerprint, dimension = context.embedder.fingerprint, context.embedder.dimension
        except EmbeddingError:
            exact = False
    return {
        scope_id: context.corpora.corpus(
            connection, scope_id, revision, fingerprint=fingerprint, dimension=dimension
        )
        for scope_id, revision in sorted(revisions.items())
    }


def _wants_chroma(connection: Connection, context: MemoryContext, ids: Sequence[int]) -> bool:
    if context.vector_search != "auto":
        return context.vector_search == "chroma"
    sizes = (
        context.corpora.size(scope_id) or search.count_rows(connection, scope_id)
        for scope_id in ids
    )
    return sum(sizes) > context.exact_scan_limit


def _proposed(
    connection: Connection, context: MemoryContext, ids: list[int], vector: Vector
) -> list[int]:
    """What Chroma proposes. Raises StorageError."""
    if context.index is None:
        raise StorageError("this tally has no Chroma index")
    context.index.arrange(layout_of(connection, context.embedder.fingerprint))
    return context.index.propose(vector, ids, most=_OVERFETCH)


def _pool(
    connection: Connection,
    context: MemoryContext,
    corpus: Corpus,
    scope_id: int,
    question: Question,
    vector: Vector | None,
    proposed: Sequence[int] | None,
    allowed: Flags,
    depth: int,
) -> Pool:
    """The candidates of one scope: the best by words, the best by vectors, and the turns beside
    them.
    """
    import numpy as np

    text = corpus.text_scores(
        {**question.weights, **question.names},
        average=question.average_length,
        loose=question.names,
    )
    text = np.where(allowed, text, 0.0)
    by_text = proposals(text, depth)
    if vector is None:
        by_vector = by_text[:0]
    elif proposed is None:
        by_vector = proposals(np.where(allowed, corpus.nearness(vector), 0.0), depth)
    else:
        rows = corpus.rows_of(proposed)
        rows = rows[allowed[rows]]
        scores = np.zeros(len(text))
        scores[rows] = _exactly(connection, context, corpus, scope_id, vector, rows)
        by_vector = proposals(scores, depth)
    rows = np.union1d(by_text, by_vector)
    beside = [corpus.beside(rows, step) for step in (-2, -1, 1, 2)]
    rows = np.unique(np.concatenate([rows, *beside]))
    rows = rows[rows >= 0]
    rows = rows[allowed[rows]]
    if vector is None:
        nearness = np.zeros(len(rows))
    elif proposed is None:
        nearness = corpus.exact_nearness(vector, rows)
    else:
        nearness = _exactly(connection, context, corpus, scope_id, vector, rows)
    return Pool(corpus, rows, text[rows], nearness)


def _exactly(
    connection: Connection,
    context: MemoryContext,
    corpus: Corpus,
    scope_id: int,
    vector: Vector,
    rows: Ints,
) -> Floats:
    """Exact cosines of rows whose vectors are not at hand, each of its best slice, from the
    database.
    """
    import numpy as np

    docs = corpus.column("doc")[rows].tolist()
    blobs = search.vectors_of(connection, [scope_id], context.embedder.fingerprint, docs)
    dimension = vector.shape[0]
    values = [
        float(cosines(vector, slices_of(blobs[doc], dimension)).max()) if doc in blobs else 0.0
        for doc in docs
    ]
    return np.array(values, dtype=np.float64)


def _allowed(
    connection: Connection, corpus: Corpus, scope_id: int, wanted: Wanted, now: int
) -> Flags:
    """For each row whether it stands, has not expired, and passes the filters."""
    import numpy as np

    allowed = corpus.alive & (corpus.column("expires_at") > now)
    known = corpus.vocabulary
    states = [known.states[state] for state in _states(wanted) if state in known.states]
    allowed &= np.isin(corpus.column("state"), states)
    if wanted.as_of is not None:
        allowed &= (corpus.column("valid_from") <= wanted.as_of) & (
            corpus.column("valid_until") > wanted.as_of
        )
    if wanted.kinds:
        allowed &= np.isin(
            corpus.column("kind"),
            [known.kinds[kind] for kind in wanted.kinds if kind in known.kinds],
        )
    if wanted.conversation is not None:
        allowed &= corpus.column("conversation") == known.conversations.get(wanted.conversation, -2)
    if wanted.since is not None:
        allowed &= corpus.column("occurred_at") >= wanted.since
    if wanted.until is not None:
        times = corpus.column("occurred_at")
        allowed &= (times < wanted.until) & (times != NEVER)
    for docs in _listed(connection, scope_id, wanted):
        allowed &= np.isin(corpus.column("doc"), np.fromiter(docs, dtype=np.int64))
    return allowed


def _listed(connection: Connection, scope_id: int, wanted: Wanted) -> Iterator[set[int]]:
    if wanted.tags:
        yield search.tagged(connection, [scope_id], wanted.tags)
    if wanted.source is not None:
        yield search.from_source(connection, [scope_id], wanted.source)
    if wanted.docs is not None:
        yield set(wanted.docs)


def _placed_by_event(question: Question, corpora: Sequence[Corpus]) -> Question:
    """ "before the trip": the moment of the memory that says most of "trip" bounds the time that is
    asked for.
    """
    event = event_named(question.text)
    if event is None or question.dates:
        return question
    relation, phrase = event
    weights = {
        term: weight for term in query_terms(phrase) if (weight := question.weights.get(term))
    }
    best: tuple[float, int] | None = None
    for corpus in corpora:
        scores = corpus.text_scores(weights, average=question.average_length)
        dated = corpus.alive & (corpus.column("occurred_at") != NEVER)
        for row in proposals(scores * dated, 1).tolist():
            found = (float(scores[row]), int(corpus.column("occurred_at")[row]))
            best = max(best, found) if best is not None else found
    if best is None:
        return question
    span = Span(-ALWAYS, best[1]) if relation == "before" else Span(best[1], ALWAYS)
    return replace(question, dates=(span,))


def _known(
    connection: Connection,
    asked: _Asked,
    pools: Sequence[Pool],
    weights: RecallWeights,
    wanted: Wanted,
    now: int,
    *,
    narrow: bool,
) -> dict[str, Floats]:
    """Signals that stand outside of the text: they cost something, so they are read where they
    weigh something.
    """
    import numpy as np

    join = np.concatenate
    found: dict[str, Floats] = {}
    if narrow and weights.vector_only:
        found["vector_only"] = join([(pool.text <= 0).astype(np.float64) for pool in pools])
    if weights.freshness:
        times = join([pool.corpus.column("occurred_at")[pool.rows] for pool in pools])
        days = np.maximum(now - times, 0) / (24 * 3600 * 1e6)
        found["freshness"] = np.where(times == NEVER, 0.0, 0.5 ** np.minimum(days / 30.0, 60.0))
    docs = join([pool.corpus.column("doc")[pool.rows] for pool in pools]).tolist()
    if weights.access:
        counts = memories.access_counts(connection, docs)
        found["access"] = np.log10(
            1.0 + np.array([counts.get(doc, 0) for doc in docs], dtype=np.float64)
        )
    if weights.task and wanted.run_id is not None:
        written = memories.written_in(connection, docs, wanted.run_id)
        found["task"] = np.array([float(doc in written) for doc in docs])
    if weights.project and wanted.project is not None:
        matches = [
            _is_project(asked.scopes[scope_id], wanted.project) for scope_id in asked.corpora
        ]
        found["project"] = join(
            [np.full(len(pool.rows), match) for pool, match in zip(pools, matches, strict=True)]
        )
    if weights.source:
        refs = memories.source_refs(connection, docs)
        found["source"] = np.array(
            [
                float(
                    any(
                        names_source(asked.question.text, ref.uri, ref.title)
                        for _, ref in refs.get(doc, [])
                    )
                )
                for doc in docs
            ]
        )
    return found


def _is_project(scope: Scope, project: str) -> float:
    return float(scope.kind == "project" and scope.key == project)


def _hit(
    standing: Standing,
    best: float,
    refs: Sequence[tuple[str, SourceRef]],
    decisions: Mapping[Scope, AccessDecision],
    path: str,
) -> Hit:
    memory, ranked = standing.stored.memory, standing.ranked
    return Hit.model_construct(
        memory=memory,
        score=round(ranked.score / best, 6) if best > 0 else 0.0,
        signals=ranked.signals,
        sources=tuple(reference for _, reference in refs),
        source_ids=tuple(source_id for source_id, _ in refs),
        visible_to=memory.scope,
        reason=decisions[memory.scope].reason,
        path=path,
        fresh=not standing.history,
        history=standing.history,
        replaced_by=standing.replaced_by,
        duplicates=standing.duplicates,
    )
