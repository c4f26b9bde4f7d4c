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
from dataclasses import replace
from functools import partial

from tallystick.compiler.measure import shown_tokens
from tallystick.compiler.shorten import cut, omit_code
from tallystick.compiler.state import Inclusion, Shortened, State
from tallystick.ranking import query_terms

_OF_MESSAGE, _OF_ANSWER, _LEAST = 16, 32, 128
"""The part of a budget, and the fewest tokens, to which a long message of the user and a long
answer are shortened: what a user said is said nowhere else, what a model answered came of it.
"""
_EXCHANGE, _OF_NEWEST = 2, 8
"""Turns of the newest exchange, and the part of a budget up to which they are whole."""
_WHOLE = frozenset({"approval", "evidence", "constraint", "decision", "open_question"})
"""Tags of turns that are shown whole or not at all."""
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
    the tokens of required items. It begins after the last unit that is too large for it, so that it
    has no gaps.
    """
    remaining = [head for head in state.remaining() if state.head(head) == head]
    if _everything_fits(state):
        return list(talk)
    inside = set(talk)
    required = {state.head(item_id) for item_id in state.required}
    available = (
        state.limit - state.turn_reserve - sum(state.cost(head) for head in required - inside)
    )
    has_others = any(head not in inside and head not in required for head in remaining)
    share = state.request.compile_config.history_share if ranked or has_others else 100
    most = state.limit * share // 100
    sizes = [(head, state.cost(head)) for head in talk]
    too_large = [place for place, (_, cost) in enumerate(sizes) if cost > most]
    sizes = sizes[too_large[-1] + 1 :] if too_large else sizes
    heads = _newest(sizes, most)
    if sum(state.cost(head) for head in heads) <= available:
        return heads
    # A smaller window has other boundaries, so it is taken only where the whole one has no room.
    piece = max(1, most // _PIECES)
    return _newest(sizes, available // piece * piece)


def _newest(sizes: Sequence[tuple[str, int]], window: int) -> list[str]:
    """Return the newest units that a window of so many tokens holds, after the last place at which
    it was compacted.
    """
    given_up = max(1, window * (_PIECES - _KEPT) // _PIECES)
    start = -(-(sum(cost for _, cost in sizes) - window) // given_up) * given_up
    before, heads = 0, []
    for head, cost in sizes:
        if before >= start:
            heads.append(head)
        before += cost
    return heads


def caps_of_long_turns(state: State, talk: Sequence[str]) -> dict[str, int]:
    """Return the tokens to which long turns of earlier talk are shortened; none where everything
    fits whole.

    A turn is long by the budget alone, so that it has one form from compile to compile. One that
    shows code takes no more than what it says beside it, or `_LEAST`.
    """
    if not state.request.compile_config.compression or _everything_fits(state):
        return {}
    caps = {}
    for head in talk:
        part = _OF_ANSWER if state.items[head].kind == "assistant_msg" else _OF_MESSAGE
        cap = max(state.limit // part, _LEAST) + state.overhead(head)
        if state.costs[head] > cap and _may_be_cut(state, head):
            item = state.items[head]
            prose = omit_code(item.content)
            if prose != item.content:
                said = max(shown_tokens(state, item, prose), _LEAST)
                cap = min(cap, said + state.overhead(head))
            caps[head] = cap
    return caps


def without_newest(state: State, talk: Sequence[str]) -> dict[str, int]:
    """Return the caps of long turns without those of the newest exchange in the window that take
    little of the budget whole: the next request is often about them.
    """
    newest = {
        head
        for head in talk[-_EXCHANGE:]
        if head in state.window and state.costs[head] <= state.limit // _OF_NEWEST
    }
    return {head: cap for head, cap in state.caps.items() if head not in newest}


def with_short_turns(state: State) -> State:
    """Return the state with a shorter form for each long turn that is in: in the window by its
    text alone, so that it stays as it is, elsewhere by the request.
    """
    window = set(state.window)
    shortened, included = dict(state.shortened), dict(state.included)
    query: list[str] | None = None
    for head, cap in state.caps.items():
        if head not in included or head in shortened:
            continue
        if head not in window and query is None:
            query = query_of(state)
        item = state.items[head]
        form = cut(
            item.content,
            target=cap - state.overhead(head),
            query=() if head in window else query or (),
            count=partial(shown_tokens, state, item),
        )
        tokens = shown_tokens(state, item, form.content)
        shortened[head] = Shortened(form.reason, form.content, tokens)
        included[head] = Inclusion(form.reason, "compression")
    return replace(state, shortened=shortened, included=included)


def _may_be_cut(state: State, head: str) -> bool:
    """Return True for a message of text alone that nothing protects."""
    item = state.items[head]
    return (
        item.kind in ("user_msg", "assistant_msg")
        and head not in state.groups
        and head not in state.required
        and head not in state.verdicts
        and _WHOLE.isdisjoint(item.tags)
        and not item.metadata.get("images")
        # An estimate above what the text counts is of something else, such as an image.
        and state.tokens[head] == state.count(item.content)
    )


def _everything_fits(state: State) -> bool:
    costs = (state.costs[item_id] for item_id in state.remaining())
    return sum(costs) <= state.limit - state.turn_reserve


def query_of(state: State) -> list[str]:
    """Return the words of the request by which texts are shortened."""
    request_text = state.request.query
    if request_text is None and state.latest is not None and state.latest not in state.excluded:
        request_text = state.items[state.latest].content
    return query_terms(f"{request_text or ''}\n{state.request.task_summary or ''}")
