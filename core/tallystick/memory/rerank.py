"""Rerank: another opinion on the best hits, taken only if it comes in time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

from tallystick.logs import get_logger
from tallystick.memory.context import is_local_only
from tallystick.policy.redaction import Redactor
from tallystick.ports import Reranker
from tallystick.records import Hit

__all__ = ["reranked"]

_MOST = 50
"""How many of the best a reranker is shown."""


def reranked(
    reranker: Reranker, query: str, hits: Sequence[Hit], *, deadline_ms: int, redactor: Redactor
) -> tuple[list[Hit], str | None]:
    """The hits in the reranker's order, its score added as the signal `rerank`; or as they stood,
    and why.

    A reranker that is late, fails, or answers with another number of scores changes nothing.
    """
    # What stays here keeps its place behind what was ordered, unless the reranker says that it runs
    # here.
    local = getattr(reranker, "local", False)
    shown = [hit for hit in hits if local or not is_local_only(hit.memory.attributes)]
    first = shown[:_MOST]
    answers: queue.SimpleQueue[list[float] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            texts = [hit.memory.content for hit in first]
            said = query
            if not local:
                said, *texts = [redactor.redact_text(text)[0] for text in (query, *texts)]
            answers.put(
                [float(score) for score in reranker.rerank(said, texts, deadline_ms=deadline_ms)]
            )
        except Exception as error:  # noqa: BLE001 a stranger's code: whatever it raises must not cost the recall
            answers.put(error)

    threading.Thread(target=ask, name="tallystick-rerank", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline_ms / 1_000)
    except queue.Empty:
        return list(hits), _unused(f"no answer within {deadline_ms} ms")
    if isinstance(answer, Exception):
        return list(hits), _unused(type(answer).__name__)
    if len(answer) != len(first):
        return list(hits), _unused(f"{len(answer)} scores for {len(first)} texts")
    scored = [
        hit.model_copy(update={"signals": {**hit.signals, "rerank": score}})
        for hit, score in zip(first, answer, strict=True)
    ]
    order = sorted(range(len(scored)), key=lambda place: (-answer[place], place))
    kept = {hit.memory.id for hit in first}
    return [
        *(scored[place] for place in order),
        *(hit for hit in hits if hit.memory.id not in kept),
    ], None


def _unused(why: str) -> str:
    get_logger("memory").warning("rerank.unused", reason=why)
    return f"the reranker was not used ({why})"
