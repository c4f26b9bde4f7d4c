"""Candidates of a recall: which memories of a scope may be found, and which of these are worth a
score.

The searchable text of a scope is a `Corpus`, wherever it is kept: in memory, in a mapped file, or
in the database, of which a question reads its part. What is proposed by words is the same of each.
Vectors are compared exactly, in memory, or, where the scope is large, first by the signs of their
numbers; or Chroma proposes. The likest of signs and of Chroma are scored again by the vectors
themselves, read from the database.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tallystick.errors import StorageError
from tallystick.logs import get_logger
from tallystick.memory.context import MemoryContext
from tallystick.memory.fields import STORE_ITEM
from tallystick.memory.recall_request import RecallRequest
from tallystick.policy.permissions import is_local_only
from tallystick.policy.redaction import Redactor
from tallystick.ports import Reranker
from tallystick.ranking import (
    QUERY_READ,
    Corpus,
    Pool,
    Question,
    cosines,
    excerpt,
    proposals,
    rows_within,
    slices_of,
)
from tallystick.ranking.segment import NEVER
from tallystick.records import Hit
from tallystick.storage import Connection
from tallystick.storage.index import search
from tallystick.storage.index.chroma import NAME, state_of
from tallystick.storage.index.marks import Mark, marks_of, rows_behind
from tallystick.storage.rows import items

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

BY_SIGNS = 2_000
"""The memories of a large scope that the signs of their vectors propose, before these are scored
exactly.
"""
_SPARE = 10
"""How many times as many are taken by an estimate before a finer one chooses."""
_OF_DAYS = 50
"""The memories that the days which a question names propose, at most."""
_OVERFETCH = 200
"""The proposals that Chroma is asked for, before exact re-scoring."""
_LAG = 1_000
"""The memories that may wait for Chroma: they are candidates of every search until it has them."""


def chroma_proposals(
    connection: Connection, context: MemoryContext, ids: list[int], vector: Vector
) -> list[int]:
    """Return the numbers that Chroma proposes, and those of the memories that still wait for it.

    Raises StorageError where it cannot answer, or answers with less than it has.
    """
    index, fingerprint = context.index, context.embedder.fingerprint
    assert index is not None
    marks, waiting = marks_of(connection, NAME, ids), list[int]()
    for scope_id in ids:
        most = _LAG + 1 - len(waiting)
        rows = rows_behind(connection, scope_id, marks.get(scope_id, Mark()), most=most)
        waiting += [row.doc for row in rows]
        if len(waiting) > _LAG:
            raise StorageError(f"more than {_LAG} memories wait for it")
    state = state_of(connection, fingerprint)
    docs = index.propose(vector, ids, most=_OVERFETCH, state=state)
    if len(docs) < _OVERFETCH // 2:
        stored = search.count_some(connection, fingerprint, ids, most=_OVERFETCH + len(waiting))
        if len(docs) < (stored - len(waiting)) // 2:
            raise index.note_doubt("Chroma finds less than it was given")
    return list({*docs, *waiting})


class CandidateSource(Protocol):
    """The port through which recall gets the searchable text of a scope, as a corpus, wherever it
    is kept: arrays in memory, a file that is mapped, or the database, of which a question then
    reads its part. What scores candidates sees no difference, and what one scope has never changes
    a score of another.
    """

    def is_large(self, connection: Connection, scope_id: int, *, dimension: int) -> bool:
        """Return True if a scope's text, with vectors of `dimension` numbers or without any (0), is
        read from the database rather than kept in memory.
        """
        ...

    def corpus(
        self,
        connection: Connection,
        scope_id: int,
        revision: int,
        *,
        fingerprint: str = "",
        dimension: int = 0,
    ) -> Corpus:
        """Return the text of a scope as of `revision` or later, with what tells of the vectors of
        `fingerprint`, if one is named.
        """
        ...


def pool_of(
    connection: Connection,
    context: MemoryContext,
    corpus: Corpus,
    scope_id: int,
    question: Question,
    text: Floats,
    vector: Vector | None,
    proposed: Sequence[int] | None,
    allowed: Flags,
    depth: int,
) -> Pool:
    """Return the candidates of one scope: the best by words, whose scores are `text`, the best by
    vectors (of `proposed`, where Chroma was asked), and the turns beside them.
    """
    import numpy as np

    text = np.where(allowed, text, 0.0)
    by_text = proposals(text, depth)

    def exact(rows: Ints) -> Floats:
        assert vector is not None
        return _exact_cosines(connection, context, corpus, scope_id, vector, rows)

    near: Floats | None = None
    # Where nearness is an estimate, more are taken and scored again.
    spare = _SPARE if corpus.is_sketched and vector is not None and proposed is None else 1
    if vector is None:
        by_vector = by_text[:0]
    elif proposed is not None:
        rows = corpus.rows_of(proposed)
        by_vector = _best_of(rows[allowed[rows]], exact, depth)
    else:
        near = corpus.nearness(vector)
        by_vector = (
            _best_of(_by_signs(corpus, vector, near, allowed), exact, depth)
            if corpus.is_sketched
            else proposals(np.where(allowed, near, 0.0), depth)
        )
    rows = np.union1d(by_text, by_vector)
    if question.dates:
        worth = text if near is None else near + text / max(float(text.max(initial=0.0)), 1.0)
        by_days = rows_within(corpus, question.dates, allowed, worth, _OF_DAYS * spare)
        if len(by_days) > _OF_DAYS and vector is not None:
            own = worth[by_days] + exact(by_days)
            if near is not None:
                own -= near[by_days]
            by_days = by_days[np.argsort(-own, kind="stable")[:_OF_DAYS]]
        rows = np.union1d(rows, by_days)
    beside = corpus.beside(rows, (-2, -1, 1, 2))
    rows = np.unique(np.concatenate([rows, beside.ravel()]))
    rows = rows[rows >= 0]
    rows = rows[allowed[rows]]
    if vector is None:
        nearness = np.zeros(len(rows))
    elif near is not None and corpus.is_near_exactly:
        nearness = near[rows]
        nearness[nearness > -2] = nearness[nearness > -2].clip(-1.0, 1.0)
    elif proposed is None and not corpus.is_sketched:
        nearness = corpus.exact_nearness(vector, rows)
    else:
        nearness = exact(rows)
    return Pool(corpus, rows, text[rows], nearness)


def _by_signs(corpus: Corpus, vector: Vector, near: Floats, allowed: Flags) -> Ints:
    """Return the rows whose vectors are the nearest by their signs: the most by equal signs, of
    which those are taken that lie most along the query.
    """
    # Shifted above zero: a vector that seems to point away may not.
    rows = proposals(allowed * (near + 2.0), _SPARE * BY_SIGNS)
    return rows[proposals(corpus.exact_nearness(vector, rows) + 2.0, BY_SIGNS)]


def _best_of(rows: Ints, exact: Callable[[Ints], Floats], depth: int) -> Ints:
    """Return the rows of the best exact cosines above zero, at most `depth`."""
    return rows[proposals(exact(rows), depth)]


def _exact_cosines(
    connection: Connection,
    context: MemoryContext,
    corpus: Corpus,
    scope_id: int,
    vector: Vector,
    rows: Ints,
) -> Floats:
    """Return exact cosines of rows by vectors from the database, each of its best slice; 0 without
    a vector.
    """
    import numpy as np

    docs = corpus.column("doc")[rows].tolist()
    blobs = search.vectors_of(connection, [scope_id], context.embedder.fingerprint, docs)
    return np.array(_best_cosines([blobs.get(doc, b"") for doc in docs], vector))


def _best_cosines(blobs: Sequence[bytes], vector: Vector) -> Floats:
    """Return the cosine of the best slice of each blob of vectors; 0 for an empty one."""
    import numpy as np

    dimension = vector.shape[0]
    best = np.zeros(len(blobs), dtype=np.float64)
    having = [place for place, blob in enumerate(blobs) if blob]
    if having:
        matrix = slices_of(b"".join(blobs[place] for place in having), dimension)
        counts = np.array([len(blobs[place]) // (2 * dimension) for place in having])
        starts = np.cumsum(counts) - counts
        best[having] = np.maximum.reduceat(cosines(vector, matrix), starts)
    return best


def allowed_rows(
    connection: Connection, corpus: Corpus, scope_id: int, request: RecallRequest, now: int
) -> Flags:
    """Return for each row True if it is alive, has not expired, and passes the filters."""
    import numpy as np

    allowed = corpus.alive & (corpus.column("expires_at") > now)
    vocabulary = corpus.vocabulary
    is_asked = np.array([state in request.findable_states for state in vocabulary.states])
    if len(is_asked):
        allowed &= is_asked[corpus.column("state")]
    if request.as_of is not None:
        allowed &= (corpus.column("valid_from") <= request.as_of) & (
            corpus.column("valid_until") > request.as_of
        )
    if request.kinds:
        allowed &= np.isin(
            corpus.column("kind"),
            [vocabulary.kinds[kind] for kind in request.kinds if kind in vocabulary.kinds],
        )
    if request.conversation is not None:
        allowed &= corpus.column("conversation") == vocabulary.conversations.get(
            request.conversation, -2
        )
    if request.since is not None:
        allowed &= corpus.column("said_at") >= request.since
    if request.until is not None:
        times = corpus.column("said_at")
        allowed &= (times < request.until) & (times != NEVER)
    for docs in _document_filters(connection, scope_id, request):
        allowed &= np.isin(corpus.column("doc"), np.fromiter(docs, dtype=np.int64))
    if request.docs is None and request.namespace != () and STORE_ITEM in vocabulary.kinds:
        # An item of a store reaches a call for its namespace alone: runtimes keep the users of one
        # scope apart by it.
        is_item = corpus.column("kind") == vocabulary.kinds[STORE_ITEM]
        rows = items.beneath(connection, scope_id, request.namespace) if request.namespace else ()
        beneath = np.fromiter((row.doc for row in rows), dtype=np.int64)
        allowed &= ~is_item | np.isin(corpus.column("doc"), beneath)
    return allowed


def _document_filters(
    connection: Connection, scope_id: int, request: RecallRequest
) -> Iterator[set[int]]:
    if request.tags:
        yield search.find_tagged(connection, [scope_id], request.tags)
    if request.labels:
        yield search.find_labelled(connection, [scope_id], request.labels)
    if request.source is not None:
        yield search.from_source(connection, [scope_id], request.source)
    if request.docs is not None:
        yield set(request.docs)


_MOST = 50
"""The most hits that a reranker is shown."""


class Reranked(NamedTuple):
    """The hits after reranking."""

    hits: list[Hit]
    problem: str | None = None
    """Why the reranker was not used, in a sentence."""


def rerank(
    reranker: Reranker, query: str, hits: Sequence[Hit], *, deadline_ms: int, redactor: Redactor
) -> Reranked:
    """Return the hits in the reranker's order, its score added as the signal `rerank`; or in their
    own order, with the reason.

    A reranker that is late, fails, or answers with another number of scores changes nothing.
    """
    # A local-only text is shown to a reranker that runs here alone; otherwise its hit comes behind
    # those that were ordered.
    local = getattr(reranker, "local", False)
    sendable = [hit for hit in hits if local or not is_local_only(hit.memory.attributes)]
    first = sendable[:_MOST]
    answers: queue.SimpleQueue[list[float] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            texts = [hit.memory.content for hit in first]
            outgoing = query
            if not local:
                outgoing, *texts = [redactor.redact_text(text)[0] for text in (query, *texts)]
            # Cut last: no rule knows a secret of which a half is left.
            outgoing = excerpt(outgoing, QUERY_READ)
            scores = reranker.rerank(outgoing, texts, deadline_ms=deadline_ms)
            answers.put([float(score) for score in scores])
        except Exception as error:  # noqa: BLE001 a stranger's code: whatever it raises must not cost the recall
            answers.put(error)

    threading.Thread(target=ask, name="tallystick-rerank", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline_ms / 1_000)
    except queue.Empty:
        return Reranked(list(hits), _report_unused(f"no answer within {deadline_ms} ms"))
    if isinstance(answer, Exception):
        return Reranked(list(hits), _report_unused(type(answer).__name__))
    if len(answer) != len(first):
        return Reranked(list(hits), _report_unused(f"{len(answer)} scores for {len(first)} texts"))
    scored = [
        hit.model_copy(update={"signals": {**hit.signals, "rerank": score}})
        for hit, score in zip(first, answer, strict=True)
    ]
    order = sorted(range(len(scored)), key=lambda place: (-answer[place], place))
    scored_ids = {hit.memory.id for hit in first}
    return Reranked(
        [
            *(scored[place] for place in order),
            *(hit for hit in hits if hit.memory.id not in scored_ids),
        ]
    )


def _report_unused(why: str) -> str:
    get_logger("memory").warning("rerank.unused", reason=why)
    return f"the reranker was not used ({why})"
