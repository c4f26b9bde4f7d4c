"""Budgeting: required items first, then the best that fits, class by class.

Units (an item, or a call with its results) are taken whole, with everything they need. After what
is required comes the history window, then each class in order of worth per token, turns of which
nothing says how they matter by recency. Ties are settled by id, in a conversation by recency.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tallystick.compiler.dependencies import closure, needed_units
from tallystick.compiler.history import (
    caps_of_long_turns,
    earlier_talk,
    history_window,
    turn_reserve_of,
    turn_start,
    with_short_turns,
    without_newest,
)
from tallystick.compiler.measure import escaping_tokens
from tallystick.compiler.required import may_shorten
from tallystick.compiler.state import Inclusion, State
from tallystick.errors import BudgetInfeasible, SettingsError
from tallystick.records import CompileReason

CLASSES: tuple[str, ...] = (
    "constraints_and_request",
    "task_and_tools",
    "policy",
    "working_memory",
    "retrieval",
    "summaries",
)
"""In the order in which they are served."""

FIRST_SHARES = {"task_and_tools": 60, "working_memory": 25, "retrieval": 85}
"""Percent of what is left that a class may take when it is first served, so that one class leaves
room for the next. Of working memory only what a run set is served first: a long conversation has
its window already. What nobody took is then given out again, without these limits.
"""

_BY_KIND = {
    "constraint": "constraints_and_request",
    "task": "task_and_tools",
    "plan": "task_and_tools",
    "handoff": "task_and_tools",
    "tool_result": "task_and_tools",
    "system": "policy",
    "policy": "policy",
    "tool_schema": "policy",
    "user_msg": "working_memory",
    "assistant_msg": "working_memory",
    "working": "working_memory",
    "summary": "summaries",
}


_KEPT = frozenset({"constraint", "decision", "open_question"})
"""Tags of turns, and kinds of memories, that outlast a compaction where anything does."""


def budget_class(state: State, head: str, *, ranked: bool) -> str:
    """The class of a unit. A tool group is active while it is required or of the current turn, else
    history.

    Where something says which older turns matter (`ranked`), those outside of the window compete
    with what was retrieved, as what they are: text found again.
    """
    if head == state.latest:
        return "constraints_and_request"
    if head in state.groups and (head in state.required or head in state.answered):
        return "task_and_tools"
    item = state.items[head]
    if head in state.position and state.position[head] < state.turn and head not in state.window:
        if not _KEPT.isdisjoint(item.tags):
            return "task_and_tools"
        return "retrieval" if ranked else "working_memory"
    if head in state.groups:
        return "working_memory"
    if "profile" in item.tags:
        return "policy"
    if not _KEPT.isdisjoint(item.tags) or item.metadata.get("memory_kind") in _KEPT:
        return "task_and_tools"
    return _BY_KIND.get(item.kind, "retrieval")


_FLAT = 256
"""Tokens added to each unit before its worth is divided by its size. Plain density lets tiny items
win by being tiny: over 375 questions of LoCoMo it kept 44 % of the evidence in 4,000 tokens, with
this addend 73 %.
"""
_CLEARLY_RELEVANT = 500_000
_BEST_TURNS = 3
"""Turns of the conversation that are served first by their worth alone: what answers best is not
left out for its length, which is capped anyway.
"""


def budget(state: State) -> State:
    """Return the state with the items that go in whole, and with room reserved for those worth
    shortening.

    Raises BudgetInfeasible with the tokens of each required item when those alone exceed the
    budget, and SettingsError for a ceiling on a class that does not exist.
    """
    for name in state.request.compile_config.class_ceilings:
        if name not in CLASSES:
            raise SettingsError(
                f"class_ceilings: unknown class {name!r}. Use one of {', '.join(CLASSES)}."
            )
    state = _take_required(state)
    state = replace(state, turn=turn_start(state))
    state = replace(state, turn_reserve=turn_reserve_of(state))
    talk = earlier_talk(state)
    state = replace(state, caps=caps_of_long_turns(state, talk))
    ranked = _is_ranked(state, talk)
    state = replace(state, window=tuple(history_window(state, talk, ranked=ranked)))
    state = replace(state, caps=without_newest(state, talk))
    state = _with_queues(state, ranked=ranked)
    state = _with_quoted_turns(state, talk)
    ledger = Ledger(state)
    for head in reversed(state.window):
        ledger.take(head)
    state = replace(state, window=tuple(head for head in state.window if head in ledger.included))
    for name in CLASSES:
        _serve(state, ledger, name, _served_first(state, name))
    # Room that later classes left may take whole what was about to be shortened.
    for head, tokens in list(ledger.reserved.items()):
        ledger.release(head)
        if ledger.take(head) is None:
            ledger.reserve(head, tokens)
    state = fill(replace(state, included=dict(ledger.included), reserved=dict(ledger.reserved)))
    return with_short_turns(state)


def _with_quoted_turns(state: State, talk: Sequence[str]) -> State:
    """Return the state in which turns that left the window cost what they take in a frame. Raises
    BudgetInfeasible where required ones are too long for it then.
    """
    window = set(state.window)
    escapes = {
        member: more
        for head in talk
        if head not in window
        for member in state.members(head)
        if (more := escaping_tokens(state, state.items[member]))
    }
    if not escapes:
        return state
    costs = {item_id: cost + escapes.get(item_id, 0) for item_id, cost in state.costs.items()}
    state = replace(state, costs=costs)
    _refuse_beyond_limit(state)
    return state


def fill(state: State) -> State:
    """Return the state with every other unit that still fits, in the order of classes."""
    ledger = Ledger(state)
    for name in CLASSES:
        for head in state.queues[name]:
            ledger.take(head)
    return replace(state, included=dict(ledger.included))


class Ledger:
    """The free tokens, and those used by each class, while units are taken. It lives within one
    pass.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._used = dict.fromkeys(CLASSES, 0)
        self.free = state.limit - state.turn_reserve
        most_memories = state.request.compile_config.memory_budget
        self._memories = state.limit if most_memories is None else most_memories
        self.included = dict(state.included)
        self.reserved: dict[str, int] = {}
        """First of each unit that is to go in shortened to the tokens kept free for it."""
        for item_id in self.included:
            if state.head(item_id) == item_id:
                self.spend(item_id, self._cost(item_id))
        for head, tokens in state.reserved.items():
            self.reserve(head, tokens)

    def available(self, name: str) -> int:
        """Return the tokens that a class may still take."""
        percent = self._state.request.compile_config.class_ceilings.get(name)
        if percent is None:
            return self.free
        return min(self.free, self._state.limit * percent // 100 - self._used[name])

    def room(self, head: str) -> int:
        """Return the tokens that a unit may take: those of its class, of a memory at most what is
        left for memories.
        """
        room = self.available(self._state.classes[head])
        return min(room, self._memories) if self._is_memory(head) else room

    def over_ceiling(self, head: str) -> bool:
        """Return True if a unit would fit, were it not for the ceiling of its class."""
        ceilings = self._state.request.compile_config.class_ceilings
        return (bool(ceilings) or self._is_memory(head)) and self.room(head) < self._state.cost(
            head
        ) <= self.free

    def reserve(self, head: str, tokens: int) -> None:
        """Keep `tokens` free for the shortened form of a unit."""
        self.reserved[head] = tokens
        self.spend(head, tokens)

    def release(self, head: str) -> None:
        """Give back the tokens kept free for a unit, if any."""
        self.spend(head, -self.reserved.pop(head, 0))

    def spend(self, head: str, tokens: int) -> None:
        """Count `tokens` as used by a unit and its class."""
        self.free -= tokens
        self._used[self._state.classes[head]] += tokens
        if self._is_memory(head):
            self._memories -= tokens

    def take(self, head: str, *, most: int | None = None) -> int | None:
        """Take a unit with the units that it needs; return the tokens used, or None if it does not
        fit (in `most`).
        """
        state = self._state
        limit = self.free if most is None else min(self.free, most)
        if head in self.included or head in self.reserved or state.cost(head) > limit:
            return None
        units: dict[str, str | None] = {}
        spent = dict.fromkeys(CLASSES, 0)
        total = memories = 0
        for unit, caller in needed_units(state, (head,), beyond=self.included):
            units[unit] = caller
            spent[state.classes[unit]] += state.cost(unit)
            total += state.cost(unit)
            memories += state.cost(unit) if self._is_memory(unit) else 0
            if total > limit or memories > max(self._memories, 0) or unit in self.reserved:
                return None
        if any(tokens > self.available(name) for name, tokens in spent.items() if tokens):
            return None
        for unit, caller in units.items():
            self.included |= unit_inclusions(state, unit, caller, "selected_by_score")
            self.spend(unit, state.cost(unit))
        return total

    def _is_memory(self, head: str) -> bool:
        return self._state.items[head].kind == "memory"

    def _cost(self, head: str) -> int:
        short = self._state.shortened.get(head)
        return (
            self._state.cost(head) if short is None else short.tokens + self._state.overhead(head)
        )


def unit_inclusions(
    state: State, head: str, caller: str | None, reason: CompileReason
) -> dict[str, Inclusion]:
    """Return the inclusion of each member of a unit: the unit's own reason for the first, its pair
    for the others.
    """
    first = (
        Inclusion(reason, "budgeting")
        if caller is None
        else Inclusion("dependency_of_included", "dependencies", caller)
    )
    rest = Inclusion("tool_pair_of_included", "budgeting", head)
    return {member: first if member == head else rest for member in state.members(head)}


def by_worth(state: State, heads: Iterable[str]) -> list[str]:
    """Return units by worth per token, best first; before them the few turns of the conversation
    that are worth most.
    """
    worth = {
        head: max(state.scores[member]["total"] for member in state.members(head)) for head in heads
    }

    def key(head: str) -> tuple[int, int, int, str]:
        density = worth[head] * 1000 // (state.cost(head) + _FLAT)
        return -density, -worth[head], -state.position.get(head, 0), head

    ordered = sorted(worth, key=key)
    turns = [
        head
        for head in ordered
        if head in state.position
        and head not in state.groups
        and state.items[head].kind in ("user_msg", "assistant_msg")
    ]
    best = sorted(turns, key=lambda head: -worth[head])[:_BEST_TURNS]
    return [*best, *(head for head in ordered if head not in best)]


def _take_required(state: State) -> State:
    """Return the state with required units in; results that were taken up already are given up
    first, all of them or none.
    """
    if state.answered and _required_tokens(state) > state.limit:
        heads = closure(state, (head for head in _roots(state) if head not in state.answered))
        retained = {member for head in heads for member in state.members(head)}
        state = state.not_requiring(
            item_id for item_id in state.required if item_id not in retained
        )
    _refuse_beyond_limit(state)
    callers = closure(state, _roots(state))
    included: dict[str, Inclusion] = {}
    for item_id, reason in state.required.items():
        if reason == "dependency_of_included":
            included[item_id] = Inclusion(reason, "dependencies", callers.get(state.head(item_id)))
        elif reason == "tool_pair_of_included":
            included[item_id] = Inclusion(
                reason, "budgeting", _required_member(state, state.head(item_id))
            )
        else:
            included[item_id] = Inclusion(reason, "budgeting")
    return replace(state, included=included)


def _refuse_beyond_limit(state: State) -> None:
    if _required_tokens(state) > state.limit:
        raise BudgetInfeasible(
            budget=state.limit,
            required={item_id: state.costs[item_id] for item_id in state.required},
        )


def _roots(state: State) -> Iterable[str]:
    roots = (
        item_id for item_id, reason in state.required.items() if reason != "dependency_of_included"
    )
    return dict.fromkeys(state.head(item_id) for item_id in roots)


def _required_member(state: State, head: str) -> str:
    """Return the member for whose sake a group is required."""
    causes = (
        member
        for member in state.members(head)
        if state.required[member] != "tool_pair_of_included"
    )
    return next(causes, head)


def _required_tokens(state: State) -> int:
    return sum(state.costs[item_id] for item_id in state.required)


def _with_queues(state: State, *, ranked: bool) -> State:
    """Return the state with its units in classes, and those not yet in, in the order in which each
    class is served.
    """
    groups: dict[str, list[str]] = {name: [] for name in CLASSES}
    classes: dict[str, str] = {}
    for item_id in state.remaining():
        if state.head(item_id) == item_id:
            name = classes[item_id] = budget_class(state, item_id, ranked=ranked)
            if item_id not in state.included and item_id not in state.irrelevant:
                groups[name].append(item_id)
    queues: dict[str, tuple[str, ...]] = {}
    for name, heads in groups.items():
        if ranked:
            queues[name] = tuple(by_worth(state, heads))
        else:
            talk = sorted(
                (head for head in heads if head in state.position),
                key=lambda head: -state.position[head],
            )
            queues[name] = (
                *by_worth(state, (head for head in heads if head not in state.position)),
                *talk,
            )
    return replace(state, classes=classes, queues=queues)


def _is_ranked(state: State, heads: Iterable[str]) -> bool:
    """Return True if any of these messages has relevance; otherwise recency alone orders them."""
    return any(
        state.scores[member]["relevance"] for head in heads for member in state.members(head)
    )


def _served_first(state: State, name: str) -> Sequence[str]:
    """Return the units of a class that have a first share: of working memory those that the run
    set, and no turns of the conversation.
    """
    heads = state.queues[name]
    if name != "working_memory":
        return heads
    return [head for head in heads if state.items[head].kind == "working"]


def _serve(state: State, ledger: Ledger, name: str, heads: Sequence[str]) -> None:
    """Give a class its first share."""
    share = ledger.available(name) * FIRST_SHARES.get(name, 100) // 100
    for head in heads:
        if share <= 0:
            return
        spent = ledger.take(head, most=share)
        if spent is not None:
            share -= spent
        elif head not in ledger.included and _worth_reserving(state, head):
            share -= _reserve(state, ledger, head, share)


def _worth_reserving(state: State, head: str) -> bool:
    relevance = state.request.relevance.get(head, 0)
    return relevance >= _CLEARLY_RELEVANT and may_shorten(state, head)


def _reserve(state: State, ledger: Ledger, head: str, share: int) -> int:
    """Keep up to a third of a relevant unit's size, and half of the share, free for its shortened
    form.
    """
    overhead = state.overhead(head)
    tokens = min(state.cost(head) // 3, share // 2, ledger.room(head) // 2)
    if tokens < overhead + state.request.compile_config.min_compressed_tokens:
        return 0
    ledger.reserve(head, tokens)
    return tokens
