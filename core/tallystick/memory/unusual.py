"""Whether the match of a request is unusual for a user: the gate before what a later turn adds. It
calibrates itself by the user's own requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tallystick.memory.candidates import allowed_rows
from tallystick.memory.context import MemoryContext
from tallystick.memory.recall import AnalysedQuery, analyse, with_sound_segments
from tallystick.memory.recall_request import RecallRequest
from tallystick.ranking.question import inverse_frequency
from tallystick.records import Scope
from tallystick.storage.index.segments import reading

_QUANTILE = 0.8
"""The part of a user's requests whose best match is a usual one."""
REQUESTS, _PRIOR, _PRIOR_MATCH = 40, 8, 2.5
"""The latest requests of a user whose best matches say what is usual; the number of those that
stand for them at first, and their match, in nats: that of a word which one text in twelve has.
"""


def usual_match(matches: Sequence[float], texts: int) -> float:
    """Return the best match that a request of the user usually has among so many texts, by those
    that are known; what is above is unusual.
    """
    # Where texts are few, no word is rare.
    prior = min(_PRIOR_MATCH, inverse_frequency(texts, 1) - 1.0)
    known = sorted([*matches[-REQUESTS:], *[prior] * _PRIOR])
    return known[int(_QUANTILE * (len(known) - 1))]


class BestMatch(NamedTuple):
    """How well words alone find a request, at best."""

    score: float
    """Their BM25, in nats; 0 for nothing."""
    texts: int
    """The number of texts of the scopes."""
    analysed: AnalysedQuery
    """The request as it was read, for the recall that follows where the match is unusual."""


def best_match(
    context: MemoryContext,
    scope_list: Sequence[Scope],
    query: str,
    request: RecallRequest,
    *,
    besides: str | None = None,
) -> BestMatch:
    """Return how well the words of `query` are found, `besides` the turns of a conversation: what a
    recall begins with.
    """

    def read() -> BestMatch:
        now, best = context.store.clock.now(), 0.0
        with context.store.database.read() as connection, reading(connection):
            analysed = analyse(connection, context, scope_list, query, request, now)
            corpora = analysed.searched.corpora
            for scope_id, corpus in corpora.items():
                allowed = allowed_rows(connection, corpus, scope_id, request, now)
                if besides is not None:
                    number = corpus.vocabulary.conversations.get(besides, -2)
                    allowed &= corpus.column("conversation") != number
                best = max(best, float(analysed.by_text[scope_id][allowed].max(initial=0.0)))
        return BestMatch(best, sum(map(len, corpora.values())), analysed)

    return with_sound_segments(context, scope_list, read)
