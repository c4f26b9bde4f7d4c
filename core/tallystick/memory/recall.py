"""Recall: first the predicate of scopes, then candidates by words and vectors, then one weighted
order with its reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tallystick.access import is_expired
from tallystick.costs import measured
from tallystick.errors import ReadOnlyTally, StorageError
from tallystick.memory.candidates import (
    BY_SIGNS,
    allowed_rows,
    chroma_proposals,
    pool_of,
    rerank,
)
from tallystick.memory.context import MemoryContext, SignalRequest, searchable
from tallystick.memory.contradictions import ContradictedBy, contradictions
from tallystick.memory.held_changes import Held, held_changes
from tallystick.memory.recall_request import RecallRequest, require_answerable
from tallystick.memory.recalled import Recalled
from tallystick.memory.searched import SearchedScopes, corpora_of, searched_scopes
from tallystick.memory.supersession import (
    RankedMemory,
    freshness_of,
    is_current,
    resolve_replacements,
)
from tallystick.ranking import (
    CONFIDENT,
    QUERY_READ,
    BestSlice,
    Corpus,
    Pool,
    Question,
    Ranked,
    RecallWeights,
    ask,
    best_slices,
    names_source,
    passage_of,
    rank,
)
from tallystick.ranking.confidence import confidence
from tallystick.ranking.segment import NEVER
from tallystick.records import AccessDecision, Actor, HeldChange, Hit, Memory, Scope, SourceRef
from tallystick.storage import Connection
from tallystick.storage.index.segments import SegmentDamaged, SegmentGone, reading
from tallystick.storage.rows import memories

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_T = TypeVar("_T")
_DEPTH = 50
"""The memories that each of words and vectors proposes, at least."""
_RERANKED = 50
"""The best hits that are loaded for a reranker."""
_SPARE = 5
"""The hits that are loaded beyond the limit."""


def recall(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    query: str,
    request: RecallRequest | None = None,
    *,
    logged: bool = True,
    analysed: AnalysedQuery | None = None,
    as_is: bool = False,
) -> Recalled:
    """Return the memories of these scopes that answer `query`, best first; equal scores by age,
    oldest first.

    `analysed` is what `analyse` returned of the same query and scopes a moment ago. With `as_is` no
    extension exchanges the context. Raises Denied for the first scope that `actor` may not read,
    and InvalidInput.
    """
    if not as_is:
        context = serving(context)
    request = request or RecallRequest()
    require_answerable(request)
    given = [analysed] if analysed is not None else []

    def read() -> Recalled:
        # Only once: a segment that turns out to be damaged is in it.
        known = given.pop() if given else None
        return _recall(context, actor, scope_list, query, request, known, logged=logged)

    with measured("recall") as meter:
        found = with_sound_segments(context, scope_list, read)
    return replace(found, cost=meter.cost)


def serving(context: MemoryContext) -> MemoryContext:
    """Return the context by which recall answers."""
    for extension in context.extensions:
        context = extension.serving(context)
    return context


def recall_each(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    questions: Sequence[tuple[str, RecallRequest]],
) -> list[Recalled]:
    """Return what `recall` returns of each question; what is looked for in, is looked up once.
    Raises Denied, InvalidInput.
    """
    context = serving(context)
    for scope in scope_list:
        context.gate.require(actor, "read", scope)
    now = context.store.clock.now()

    def read() -> list[AnalysedQuery]:
        with context.store.database.read() as connection, reading(connection):
            searched = searched_scopes(connection, context, scope_list)
            return [
                analyse(connection, context, scope_list, query, request, now, searched)
                for query, request in questions
            ]

    analysed = with_sound_segments(context, scope_list, read)
    return [
        recall(context, actor, scope_list, query, request, analysed=each, as_is=True)
        for (query, request), each in zip(questions, analysed, strict=True)
    ]


def with_sound_segments(
    context: MemoryContext, scope_list: Sequence[Scope], read: Callable[[], _T]
) -> _T:
    """Return what `read` does of the corpora of these scopes; again without a segment that turns
    out to be damaged, or gone.
    """
    for _ in scope_list:
        try:
            return read()
        except SegmentDamaged as error:
            context.corpora.distrust(error.scope_id, error.revision)
        except SegmentGone as error:
            # The segment was made anew since this process began to read of it.
            context.corpora.drop(error.scope_id)
    return read()


def _recall(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    query: str,
    request: RecallRequest,
    analysed: AnalysedQuery | None,
    *,
    logged: bool,
) -> Recalled:
    for scope in dict.fromkeys(scope_list):
        context.gate.require(actor, "read", scope)
    now = context.store.clock.now()
    if analysed is None:
        with context.store.database.read() as connection, reading(connection):
            analysed = analyse(connection, context, scope_list, query, request, now)
    # Two snapshots with the embedder between them: one that is slow or far away must not hold a
    # reader.
    vector = context.query_vector(analysed.meaning) if analysed.searched.corpora else None
    with context.store.database.read() as connection, reading(connection):
        ranking = _search(connection, context, analysed, vector, request, now)
        decisions, candidates, rivals, held = _readable(
            connection, context, actor, scope_list, analysed.searched.scopes, ranking, request, now
        )
        # A reranker and a budget choose among more than the limit.
        chosen = (
            candidates
            if context.reranker is not None or request.budget is not None
            else candidates[: request.limit]
        )
        refs = _sources_of(connection, chosen) if request.sources else {}
    best = max((candidate.ranked.score for candidate in candidates), default=0.0)
    hits = [
        _hit(
            candidate,
            best,
            refs.get(candidate.stored.doc, []),
            decisions,
            ranking,
            rivals.get(candidate.stored.memory.id, ()),
            held.get(candidate.stored.memory.id, ()),
        )
        for candidate in chosen
    ]
    if request.min_score > 0:
        hits = [hit for hit in hits if hit.score >= request.min_score]
    withheld = len(hits) if request.only_confident and ranking.confidence < CONFIDENT else 0
    hits = [] if withheld else hits
    warnings = list(ranking.warnings)
    if (unwritable := context.store.database.unwritable) is not None:
        warnings.append(
            f"the access log does not name this read. {ReadOnlyTally(unwritable).cause}"
        )
    if len(query) > QUERY_READ:
        half = QUERY_READ // 2
        warnings.append(
            f"of a query of {len(query):,} characters, the first {half:,} and the last {half:,} "
            "were read"
        )
    if context.reranker is not None and len(hits) > 1:
        hits, problem = rerank(
            context.reranker,
            query,
            hits,
            deadline_ms=context.rerank_deadline_ms,
            redactor=context.remote_redactor,
        )
        warnings += [problem] if problem else []
    if request.budget is not None:
        hits = request.budget(hits)
    hits = hits[: request.limit]
    if logged:
        docs = {candidate.stored.memory.id: candidate.stored.doc for candidate in candidates}
        accessed = [docs[hit.memory.id] for hit in hits]
        context.gate.log_read(actor, "recall", scope_list, results=len(hits), accessed=accessed)
    return Recalled(
        tuple(hits),
        ranking.path,
        ranking.candidates,
        tuple(warnings),
        ranking.confidence if candidates else 0.0,
        withheld,
    )


def _sources_of(
    connection: Connection, chosen: Sequence[RankedMemory]
) -> dict[int, Sequence[memories.SourceLink]]:
    """Return the sources of memories, most of which were read with theirs."""
    stored = [candidate.stored for candidate in chosen]
    links = {each.doc: each.links for each in stored if each.links is not None}
    if others := [each.doc for each in stored if each.links is None]:
        links |= memories.source_refs(connection, others)
    return links


class _Readable(NamedTuple):
    decisions: dict[Scope, AccessDecision]
    candidates: list[RankedMemory]
    contradicted_by: ContradictedBy
    held: Held


def _readable(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    within: Collection[int],
    ranking: _Ranking,
    request: RecallRequest,
    now: int,
) -> _Readable:
    """Return what of the ranking the actor may read, by this snapshot alone, with its decisions.

    Everything before is older: the first decisions, the query's words, the cached corpora. Since
    then a space may have been closed, a membership ended, a memory forgotten. So policy is asked a
    second time, and state and end are read again, by the snapshot that the texts come from. Asked
    only before it, recall would return what nobody may read any more; asked after it, by a third
    snapshot, text and right could differ again.
    """
    # A reranker and a budget choose among more than the limit.
    all_of = context.reranker is not None or request.budget is not None
    stored = _load(connection, ranking, within, request, now, all_of=all_of)
    decisions = {
        scope: context.gate.decide(connection, actor, "read", scope) for scope in scope_list
    }
    candidates = resolve_replacements(
        connection,
        [
            (stored[ranked.doc], ranked)
            for ranked in ranking.ranked
            if ranked.doc in stored
            and decisions[stored[ranked.doc].memory.scope].allowed
            # No answer: neither a score above zero nor a word of the query.
            and (ranked.score > 0 or ranked.signals["text"] > 0)
        ],
        may_read=lambda scope: context.gate.decide(connection, actor, "read", scope).allowed,
        within=tuple(scope_list),
        now=now,
        as_of=request.as_of,
        collapse=not request.states,
        bring=request.brings_replacements,
    )
    if not request.states and request.as_of is None:
        # What ended is found where it is asked for.
        candidates = [candidate for candidate in candidates if not candidate.history]
    stored_candidates = [candidate.stored for candidate in candidates]
    rivals = contradictions(connection, context, actor, stored_candidates, now)
    held = held_changes(connection, context, actor, stored_candidates)
    return _Readable(decisions, candidates, rivals, held)


@dataclass(frozen=True)
class _Ranking:
    """The candidates in their order, with how they were found."""

    ranked: list[Ranked]
    candidates: int = 0
    path: str = "none"
    warnings: tuple[str, ...] = ()
    best_slices: Mapping[int, BestSlice] = field(default_factory=dict)
    """By memory, the slice of a long text that answers."""
    confidence: float = 0.0


def _load(
    connection: Connection,
    ranking: _Ranking,
    within: Collection[int],
    request: RecallRequest,
    now: int,
    *,
    all_of: bool,
) -> dict[int, memories.Stored]:
    """Return the best of the scopes `within` as they are in the database, without those that left
    since they were ranked; beyond the limit with `all_of`, or where one within it left, was
    replaced or repeats another.

    A number of the ranking is no proof of its scope: it comes from what was derived earlier. State
    and end are checked here once more: a corpus is cached by the revision of its scope, and may be
    older than this snapshot.
    """
    docs = [ranked.doc for ranked in ranking.ranked]
    first = docs if all_of else docs[: request.limit]
    loaded = memories.get_docs(
        connection, first, within=within, links=request.sources and not all_of
    )
    if len(first) < len(docs) and not (
        len(loaded) == len(first)
        and all(
            stored.memory.state == "active"
            and is_current(stored.memory, now)
            and not is_expired(stored.memory.expires_at, now)
            for stored in loaded.values()
        )
    ):
        loaded |= memories.get_docs(connection, docs[len(first) :], within=within)
    return {
        doc: stored
        for doc, stored in loaded.items()
        if stored.memory.state in request.findable_states
        and not is_expired(stored.memory.expires_at, now)
    }


@dataclass(frozen=True)
class AnalysedQuery:
    """A query, read with the words of the scopes that are searched."""

    question: Question
    meaning: str
    """The words to embed, of the query as the embedder may see it."""
    searched: SearchedScopes
    is_stored: bool = False
    """True if part of the scopes' text is read from the database."""

    @cached_property
    def by_text(self) -> dict[int, Floats]:
        """What words say of each row of the scopes, by scope; read within `reading`."""
        question = self.question
        return {
            scope_id: corpus.text_scores(
                question.weights, average=question.average_length, names=question.names
            )
            for scope_id, corpus in self.searched.corpora.items()
        }


def analyse(
    connection: Connection,
    context: MemoryContext,
    scope_list: Sequence[Scope],
    query: str,
    request: RecallRequest,
    now: int,
    searched: SearchedScopes | None = None,
) -> AnalysedQuery:
    """Return a query as it is read against the words of these scopes, for whoever may read them;
    `searched` if that was looked up by this snapshot.
    """
    searched = searched or searched_scopes(connection, context, scope_list)
    corpora = searched.corpora
    is_stored = any(corpus.is_sketched for corpus in corpora.values())
    asked_at = now if request.asked_at is None else request.asked_at
    question = ask(query, list(corpora.values()), asked_at)
    # Redacted before it is analysed: no rule knows a secret that is split and case-folded. The
    # words that are looked up here are those of the whole query; they stay here.
    outgoing = context.for_embedder(query)
    meaning = (
        question if outgoing == query else ask(outgoing, list(corpora.values()), asked_at)
    ).meaning
    return AnalysedQuery(question, meaning, searched, is_stored)


def _search(
    connection: Connection,
    context: MemoryContext,
    query: AnalysedQuery,
    vector: Vector | None,
    request: RecallRequest,
    now: int,
) -> _Ranking:
    corpora, revisions, question = query.searched.corpora, query.searched.revisions, query.question
    if not corpora:
        return _Ranking([])
    weights = request.weights or context.weights
    warnings = [] if vector is not None else ["the query has no vector; found by words alone"]
    by_chroma = query.searched.by_chroma if vector is not None else frozenset()
    fallback = query.searched.fallback
    proposed: list[int] = []
    if by_chroma and vector is not None:
        try:
            proposed = chroma_proposals(connection, context, sorted(by_chroma), vector)
        except StorageError as error:
            fallback = str(error).removesuffix(".")
            by_chroma = frozenset()
            corpora = corpora_of(connection, context, revisions, by_chroma)
            query = replace(query, searched=query.searched._replace(corpora=corpora))
    if fallback is not None and vector is not None:
        by_signs_now = any(
            corpus.is_sketched for scope_id, corpus in corpora.items() if scope_id not in by_chroma
        )
        way = "compared by their signs first" if by_signs_now else "scanned exactly"
        warnings.append(f"Chroma was not used ({fallback}); vectors were {way}")
    depth = max(_DEPTH, request.limit // 2)
    pools, narrow = [], False
    for scope_id, corpus in corpora.items():
        allowed = allowed_rows(connection, corpus, scope_id, request, now)
        narrow |= request.filters and 10 * int(allowed.sum()) < len(corpus)
        of_scope = proposed if scope_id in by_chroma else None
        pools.append(
            pool_of(
                connection,
                context,
                corpus,
                scope_id,
                question,
                query.by_text[scope_id],
                vector,
                of_scope,
                allowed,
                depth,
            )
        )
    path = _path(corpora, vector, by_chroma, is_stored=query.is_stored)
    compared = not path.endswith("none")
    other_signals = _other_signals(
        connection, context, query, pools, weights, request, now, narrow=narrow
    )
    words = context.word_vectors if vector is not None else None
    most = max(request.limit, _RERANKED) if context.reranker is not None else request.limit
    # More than the limit: some may have left since, or be no answer.
    ranked = rank(question, pools, weights, words, other_signals, most=most + _SPARE)
    return _Ranking(
        ranked,
        sum(len(pool.rows) for pool in pools),
        path,
        tuple(warnings),
        _best_slices(question, pools, ranked, vector if path == "exact" else None),
        confidence(question, ranked, list(corpora.values()), vectors=compared),
    )


def _path(
    corpora: Mapping[int, Corpus],
    vector: Vector | None,
    by_chroma: Collection[int],
    *,
    is_stored: bool,
) -> str:
    """Return the way that candidates come by, with what is cut of it; see `Recalled.path`."""
    others = [corpus for scope_id, corpus in corpora.items() if scope_id not in by_chroma]
    ways = ["chroma"] if by_chroma else []
    if vector is not None and any(corpus.vectors for corpus in others):
        ways += [f"{BY_SIGNS} by signs"] if any(corpus.is_sketched for corpus in others) else []
        ways += ["exact"] if not all(corpus.is_sketched for corpus in others) else []
    vectors = ", ".join(ways) or "none"
    return f"database, {vectors}" if is_stored else vectors


def _best_slices(
    question: Question, pools: Sequence[Pool], ranked: Sequence[Ranked], vector: Vector | None
) -> dict[int, BestSlice]:
    best: dict[int, BestSlice] = {}
    for pool in pools:
        docs = pool.corpus.column("doc")
        rows = pool.corpus.rows_of(candidate.doc for candidate in ranked)
        slices = best_slices(pool.corpus, rows, question, vector)
        best |= {int(docs[row]): piece for row, piece in slices.items()}
    return best


def _other_signals(
    connection: Connection,
    context: MemoryContext,
    query: AnalysedQuery,
    pools: Sequence[Pool],
    weights: RecallWeights,
    request: RecallRequest,
    now: int,
    *,
    narrow: bool,
) -> dict[str, Floats]:
    """Return the signals beside text and vectors; each is read only where it has a weight, as it
    costs a query.
    """
    import numpy as np

    join = np.concatenate
    values: dict[str, Floats] = {}
    if narrow and weights.vector_only:
        values["vector_only"] = join([(pool.text <= 0).astype(np.float64) for pool in pools])
    if weights.freshness:
        times = join([pool.corpus.column("occurred_at")[pool.rows] for pool in pools])
        days = np.maximum(now - times, 0) / (24 * 3600 * 1e6)
        values["freshness"] = np.where(times == NEVER, 0.0, 0.5 ** np.minimum(days / 30.0, 60.0))
    docs = join([pool.corpus.column("doc")[pool.rows] for pool in pools]).tolist()
    if weights.access:
        counts = memories.access_counts(connection, docs)
        values["access"] = np.log10(
            1.0 + np.array([counts.get(doc, 0) for doc in docs], dtype=np.float64)
        )
    if weights.task and request.run_id is not None:
        written = memories.written_in(connection, docs, request.run_id)
        values["task"] = np.array([float(doc in written) for doc in docs])
    if weights.project and request.project is not None:
        matches = [
            _is_project(query.searched.scopes[scope_id], request.project)
            for scope_id in query.searched.corpora
        ]
        values["project"] = join(
            [np.full(len(pool.rows), match) for pool, match in zip(pools, matches, strict=True)]
        )
    if weights.source:
        refs = memories.source_refs(connection, docs)
        values["source"] = np.array(
            [
                float(
                    any(
                        names_source(query.question.text, ref.uri, ref.title)
                        for _, ref in refs.get(doc, [])
                    )
                )
                for doc in docs
            ]
        )
    corpora = query.searched.corpora
    texts = sum(len(corpus) for corpus in corpora.values())
    signals = SignalRequest(query.question.text, docs, [*corpora], texts, weights)
    for extension in context.extensions:
        more = extension.signals(connection, context, signals)
        values |= {name: signal for name, signal in more.items() if weights.of(name)}
    return values


def _is_project(scope: Scope, project: str) -> float:
    return float(scope.kind == "project" and scope.key == project)


def _hit(
    candidate: RankedMemory,
    best: float,
    refs: Sequence[tuple[str, SourceRef]],
    decisions: Mapping[Scope, AccessDecision],
    ranking: _Ranking,
    contradicted_by: tuple[str, ...],
    held: tuple[HeldChange, ...],
) -> Hit:
    memory, ranked = candidate.stored.memory, candidate.ranked
    piece = ranking.best_slices.get(candidate.stored.doc)
    return Hit.of_valid(
        memory=memory,
        score=_calibrate_score(ranked.score, best, ranking.confidence),
        signals=ranked.signals,
        sources=tuple(reference for _, reference in refs),
        source_ids=tuple(source_id for source_id, _ in refs),
        visible_to=memory.scope,
        access_reason=decisions[memory.scope].reason,
        path=ranking.path,
        fresh=freshness_of(memory, is_history=candidate.history) == "current",
        history=candidate.history,
        replaced_by=candidate.replaced_by,
        duplicates=candidate.duplicates,
        contradicted_by=contradicted_by,
        held=held,
        learned=None,
        passage=None if piece is None else _passage(memory, piece),
    )


def _calibrate_score(score: float, best: float, confidence: float) -> float:
    """Return a score that compares across questions: of the best hit the confidence that it
    answers, of the others their part of it.
    """
    return round(confidence * score / best, 6) if best > 0 else 0.0


def _passage(memory: Memory, piece: BestSlice) -> tuple[int, int] | None:
    """Return the slice as characters of the content; None where a caption or the fields of a
    store's item were searched beside it.
    """
    text = searchable(memory.content, memory.attributes)
    passage = passage_of(text, piece) if text.startswith(memory.content) else None
    return passage if passage is not None and passage[1] <= len(memory.content) else None
