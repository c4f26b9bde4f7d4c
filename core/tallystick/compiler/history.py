"""History: the newest part of the conversation that stays in the prompt as it is, from step to
step.

A provider's cache reuses the literal beginning of the last prompt. So the window's beginning moves
rarely and by a large piece at once (a compaction), at boundaries that depend on nothing but what
was said before them: the same conversation with a turn more gives the same window with a turn more.
What left the window can still be chosen on merit; it is then quoted after the window, where it
disturbs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.compiler.state import State

__all__ = ["earlier_talk", "turn_reserve_of", "turn_start", "history_window"]

_PIECES, _KEPT = 5, 1
"""Pieces of the window, and those that stay when it is compacted: each compaction is paid for with
a prefix that is written anew, so it gives up much at once, and what left competes for the room that
this made.
"""


def turn_start(state: State) -> int:
    """Return the place at which the current turn begins: the latest request, else the last unit of
    the conversation.
    """
    places = state.position
    if state.latest is not None:
        return places[state.latest]
    return max(
        (places[head] for head in state.remaining() if head in places and state.head(head) == head),
        default=0,
    )


def earlier_talk(state: State) -> list[str]:
    """Return the firsts of the units of conversation before the current turn, oldest first."""
    places = state.position
    return sorted(
        (
            head
            for head in state.remaining()
            if head in places and state.head(head) == head and places[head] < state.turn
        ),
        key=lambda head: places[head],
    )


def turn_reserve_of(state: State) -> int:
    """Return the tokens that `turn_share` still keeps free for the current turn, after what it has
    used so far; never tokens of required items.
    """
    share = state.limit * state.request.compile_config.turn_share // 100
    used = sum(
        state.costs[item_id]
        for item_id in state.required
        if state.position.get(item_id, -1) > state.turn
    )
    spare = state.limit - sum(state.costs[item_id] for item_id in state.required)
    return max(0, min(share - used, spare))


def history_window(state: State, talk: Sequence[str], *, ranked: bool) -> list[str]:
    """Return the units of earlier talk that are in the window, oldest first: all of them when
    everything fits.

    The window takes at most `history_share` of the budget, or all of it when there is nothing else
    to choose from and nothing says which of the older turns matter (`ranked` is False), and never
    the tokens of required items. A unit too large for it is passed over.
    """
    remaining = [head for head in state.remaining() if state.head(head) == head]
    if sum(state.cost(head) for head in remaining) <= state.limit - state.turn_reserve:
        return list(talk)
    inside = set(talk)
    required = {state.head(item_id) for item_id in state.required}
    available = (
        state.limit - state.turn_reserve - sum(state.cost(head) for head in required - inside)
    )
    has_others = any(head not in inside and head not in required for head in remaining)
    share = state.request.compile_config.history_share if ranked or has_others else 100
    most = state.limit * share // 100
    piece = max(1, most // _PIECES)
    window = most if available >= most else available // piece * piece
    sizes = [(head, cost) for head in talk if (cost := state.cost(head)) <= most]
    given_up = max(1, window * (_PIECES - _KEPT) // _PIECES)
    start = -(-(sum(cost for _, cost in sizes) - window) // given_up) * given_up
    before, window_heads = 0, []
    for head, cost in sizes:
        if before >= start:
            window_heads.append(head)
        before += cost
    return window_heads
