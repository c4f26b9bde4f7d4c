"""Rerank: another order of the best hits, used only if it comes in time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import NamedTuple

from tallystick.logs import get_logger
from tallystick.policy.permissions import is_local_only
from tallystick.policy.redaction import Redactor
from tallystick.ports import Reranker
from tallystick.ranking import QUERY_READ, excerpt
from tallystick.records import Hit

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
