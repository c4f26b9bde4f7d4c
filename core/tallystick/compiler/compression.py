"""Compression: what did not fit whole goes in shortened, if it may be and says enough.

A summary that was made and recorded outside is taken before anything is cut here. What was left out
although it is relevant becomes a wish for one.
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.compiler.budgeting import Ledger, by_worth, fill
from tallystick.compiler.history import query_of, with_short_turns
from tallystick.compiler.measure import shown_tokens
from tallystick.compiler.required import may_shorten
from tallystick.compiler.shorten import GAP, shorten, unwrap
from tallystick.compiler.state import Exclusion, Inclusion, Shortened, State
from tallystick.records import SummaryWish, text_digest

_MOST_FAILURES = 32
"""Items that are tried in vain before the pass stops looking."""
_MOST_WISHES = 8
_WISH_RELEVANCE = 500_000
_WORTH_A_SUMMARY = 4
"""A summary is wished for items of at least this many times `min_compressed_tokens`."""


def compress(state: State) -> State:
    """Return the state with shortened items in where they fit, the rest filled up, and everything
    else out.
    """
    if state.request.compile_config.compression:
        state = _take_best(replace(_take_shortened(state), reserved={}))
        state = with_short_turns(fill(state))
        # Forms are seldom as long as they may be.
        state = with_short_turns(fill(state))
    return _close(replace(state, reserved={}))


def summary_digest(content: str) -> str:
    """The key of `content` in a request's `summaries`."""
    return text_digest("summary-input", content)


def wishes(state: State) -> tuple[SummaryWish, ...]:
    """Return the summaries that would have helped: of relevant items that were left out or cut,
    most relevant first.
    """
    config = state.request.compile_config
    if not config.compression:
        return ()
    relevance = state.request.relevance
    ranked: list[tuple[int, SummaryWish]] = []
    for item_id in state.tokens:
        short = state.shortened.get(item_id)
        outcome = state.excluded.get(item_id)
        left_out = outcome is not None and outcome.reason in {"over_budget", "class_budget"}
        cut = short is not None and short.reason == "compressed_extractive"
        long_enough = state.tokens[item_id] >= _WORTH_A_SUMMARY * config.min_compressed_tokens
        if not (left_out or cut) or not long_enough or relevance.get(item_id, 0) < _WISH_RELEVANCE:
            continue
        key = summary_digest(state.items[item_id].content)
        if may_shorten(state, item_id) and key not in state.request.summaries:
            most_tokens = max(
                config.min_compressed_tokens, state.tokens[item_id] // _WORTH_A_SUMMARY
            )
            ranked.append(
                (
                    -relevance[item_id],
                    SummaryWish(item_id=item_id, input_digest=key, max_tokens=most_tokens),
                )
            )
    ranked.sort(key=lambda pair: (pair[0], pair[1].item_id))
    return tuple(wish for _, wish in ranked[:_MOST_WISHES])


def _take_shortened(state: State) -> State:
    least = state.request.compile_config.min_compressed_tokens
    waiting = [
        head
        for queue in state.queues.values()
        for head in queue
        if head not in state.included and head not in state.reserved and may_shorten(state, head)
    ]
    query: list[str] | None = None
    failures = 0
    ledger = Ledger(state)
    included = dict(state.included)
    shortened = dict(state.shortened)
    for head in (*state.reserved, *by_worth(state, waiting)):
        ledger.release(head)
        overhead = state.overhead(head)
        available = ledger.room(head) - overhead
        if any(other not in included for other in state.needs.get(head, ())):
            continue
        short = _summary(state, head, available)
        if short is None and available >= least:
            query = query_of(state) if query is None else query
            short = _shorten_item(state, head, available, query)
        if short is None:
            failures += 1
            if failures >= _MOST_FAILURES:
                break
            continue
        ledger.spend(head, short.tokens + overhead)
        included[head] = Inclusion(short.reason, "compression")
        shortened[head] = short
    return replace(state, included=included, shortened=shortened)


def _take_best(state: State) -> State:
    """Return the state with the best of what was found in, at the cost of what is worth less: the
    least gives way first, as far as the shortest form of the best has room.
    """
    found = [head for head in state.queues["retrieval"] if head not in state.groups]
    best = max(found, key=lambda head: (state.scores[head]["total"], head), default=None)
    if best is None or best in state.included or not may_shorten(state, best):
        return state
    if any(other not in state.included for other in state.needs.get(best, ())):
        return state
    needed = {other for head in state.included for other in state.needs.get(head, ())}
    lesser = [head for head in found if head in state.included and head not in needed]
    included, shortened = dict(state.included), dict(state.shortened)
    least, query = state.request.compile_config.min_compressed_tokens, query_of(state)
    for head in sorted(lesser, key=lambda head: (state.scores[head]["total"], head)):
        del included[head]
        shortened.pop(head, None)
        freed = replace(state, included=included, shortened=shortened)
        available = Ledger(freed).room(best) - state.overhead(best)
        short = _summary(state, best, available)
        if short is None and available >= least:
            short = _shorten_item(state, best, available, query)
        if short is not None:
            included[best] = Inclusion(short.reason, "compression")
            shortened[best] = short
            return freed
    return state


def _summary(state: State, head: str, available: int) -> Shortened | None:
    if not state.request.summaries:
        return None
    text = state.request.summaries.get(summary_digest(state.items[head].content), "")
    if not text.strip():
        return None
    tokens = shown_tokens(state, state.items[head], text)
    if tokens > available or tokens >= state.tokens[head]:
        return None
    content = unwrap(state.items[head].content)
    if all(piece.strip() in content for piece in text.split(GAP.strip())):
        # Its own sentences, chosen before anybody asked: the request chooses better ones.
        chosen = _shorten_item(state, head, tokens, query_of(state))
        if chosen is not None:
            return chosen
    return Shortened("compressed_summary", text, tokens)


def _shorten_item(state: State, head: str, available: int, query: list[str]) -> Shortened | None:
    form = shorten(
        state.items[head].content,
        target=min(available, state.tokens[head] - 1),
        query=query,
        count=lambda text: shown_tokens(state, state.items[head], text),
    )
    if form is None:
        return None
    tokens = shown_tokens(state, state.items[head], form.content)
    return (
        Shortened(form.reason, form.content, tokens)
        if tokens >= state.request.compile_config.min_compressed_tokens
        else None
    )


def _close(state: State) -> State:
    """Return the state with a reason for every item that is neither in nor out yet."""
    ledger = Ledger(state)
    excluded: dict[str, Exclusion] = {}
    begins = state.position[state.window[0]] if state.window else -1
    compacted = Exclusion("compacted", "budgeting", state.window[0] if state.window else None)
    for head in state.remaining():
        if head in state.included or state.head(head) != head:
            continue
        absent = [other for other in state.needs.get(head, ()) if other not in state.included]
        if head in state.irrelevant:
            outcome = _BELOW_RELEVANCE
        elif ledger.over_ceiling(head):
            outcome = _CLASS_BUDGET
        elif absent and state.cost(head) <= ledger.free:
            outcome = Exclusion("dependency_excluded", "budgeting", absent[0])
        elif state.position.get(head, begins) < begins:
            outcome = compacted
        else:
            outcome = _OVER_BUDGET
        excluded[head] = outcome
        for member in state.members(head)[1:]:
            excluded[member] = Exclusion("tool_pair_excluded", "budgeting", head)
    return state.excluding(excluded)


_CLASS_BUDGET = Exclusion("class_budget", "budgeting")
_OVER_BUDGET = Exclusion("over_budget", "budgeting")
_BELOW_RELEVANCE = Exclusion("below_relevance", "scoring")
