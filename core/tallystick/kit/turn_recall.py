"""Recall for a turn: the same answer in every runtime.

An agent calls its model several times for one request of the user. The request is recalled once:
the same hits are shown at each call, so that the prompt keeps its prefix, until one of them was
changed, forgotten or withdrawn.
"""

from __future__ import annotations

from tallystick.records import Hit
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.tally.turn_hits import Turn


def recall_for_turn(
    bound: BoundTally,
    text: str,
    *,
    limit: int,
    turn: str | None,
    outside_of: str | None = None,
    namespace: tuple[str, ...] | None = None,
) -> list[Hit]:
    """Return the hits for the latest request of a user, best first, at most `limit`.

    `turn` identifies the request: the run that answers it, or its conversation and its place there.
    The same words in another turn are recalled anew, so that what was learnt since is found, and
    always where `turn` is None. `outside_of` names a conversation whose own turns are left out,
    because its messages are in the prompt already. Items of stores are recalled beneath
    `namespace` alone. An empty text, a limit of 0, or a request that nothing is likely to answer
    recalls nothing.
    Raises as `recall`.
    """
    text = text.strip()
    if not text or limit < 1:
        return []
    if turn is None:
        return _recall(bound, text, limit, outside_of, namespace)
    key = Turn(str(bound.actor), str(bound.scope), turn, text, limit, outside_of, namespace)
    turn_hits = services_of(bound).turn_hits
    hits = turn_hits.get(key)
    if hits is None or not bound.still_stand(hits):
        hits = _recall(bound, text, limit, outside_of, namespace)
        turn_hits.put(key, hits)
    return list(hits)


def _recall(
    bound: BoundTally,
    text: str,
    limit: int,
    outside_of: str | None,
    namespace: tuple[str, ...] | None,
) -> list[Hit]:
    if outside_of is None:
        return list(bound.recall(text, limit=limit, namespace=namespace, only_confident=True))
    # Twice as many are asked for, because some may be left out.
    hits = bound.recall(text, limit=2 * limit, namespace=namespace, only_confident=True)
    return [hit for hit in hits if hit.memory.conversation != outside_of][:limit]
