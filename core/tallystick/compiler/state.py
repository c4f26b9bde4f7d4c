"""The state that passes hand on: frozen, with one column per fact about the candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tallystick.records import CompilationRequest, CompileReason, ContextItem, Memory, ScoreWeights

CONVERSATION = frozenset({"user_msg", "assistant_msg", "tool_result"})
"""Kinds whose order has a meaning; the order of all other candidates has none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision of policy about one item."""

    effect: Literal["deny", "redact", "require_approval"]
    note: str
    placeholder: str = ""
    """The text in place of redacted content."""
    rule_id: str | None = None
    """The rule that decided; None where the item's own state did."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """The reason why an item is out."""

    reason: CompileReason
    pass_name: str
    related: str | None = None


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The reason why an item is in."""

    reason: CompileReason
    pass_name: str
    related: str | None = None


@dataclass(frozen=True, slots=True)
class Shortened:
    """The shorter content that an item goes in with."""

    reason: CompileReason
    content: str
    tokens: int
    """Tokens of `content`, without overhead."""


@dataclass(frozen=True, slots=True)
class State:
    """A compile under way. Passes never change one; they return another."""

    request: CompilationRequest
    count: Callable[[str], int]
    """Tokens of a text, counted once per distinct text."""
    candidates: tuple[ContextItem, ...] = ()
    """Every candidate as an item: first, by id, those whose order has no meaning, then the
    conversation in its order.
    """
    memories: Mapping[str, Memory] = field(default_factory=dict)
    expiry: Mapping[str, int] = field(default_factory=dict)
    """Id to the time, microseconds UTC, at which the item expires."""
    tool_classes: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """Id of a tool schema to its class and to the class that the tool claims."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    items: Mapping[str, ContextItem] = field(default_factory=dict)
    """Id to the item as it may be seen: denied ones without content, redacted ones with a
    placeholder.
    """
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Id to tokens of the content, without overhead; denied items are not in it."""
    costs: Mapping[str, int] = field(default_factory=dict)
    """Id to the tokens that the whole item takes of the budget, overhead included."""
    digests: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Id of a message that calls tools to itself and its results, in order: all in or all out."""
    heads: Mapping[str, str] = field(default_factory=dict)
    """Id of a member of a group to the group's first."""
    position: Mapping[str, int] = field(default_factory=dict)
    """Id of a message to its place in the conversation, counted from 0."""
    latest: str | None = None
    """Id of the latest user request."""
    required: Mapping[str, CompileReason] = field(default_factory=dict)
    """Never dropped, never compressed."""
    answered: frozenset[str] = frozenset()
    """Required results of the current turn that a later message took up; given up before a compile
    fails.
    """
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """First of a unit to the firsts of the units that it cannot go without."""
    excluded: Mapping[str, Exclusion] = field(default_factory=dict)
    scores: Mapping[str, dict[str, int]] = field(default_factory=dict)
    irrelevant: frozenset[str] = frozenset()
    """Found items below the floor of relevance: they go in only where another needs them."""
    classes: Mapping[str, str] = field(default_factory=dict)
    """First of each unit that is not out to its budget class."""
    queues: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Budget class to the firsts of its units that are not required, in the order in which they are
    served.
    """
    labels: Mapping[str, int] = field(default_factory=dict)
    """Tokens of the label before an item where it is quoted: its speaker and its time."""
    turn: int = 0
    """Place in the conversation at which the current turn begins."""
    turn_reserve: int = 0
    """Tokens kept free for the rest of the current turn."""
    caps: Mapping[str, int] = field(default_factory=dict)
    """Id of each long earlier turn to the tokens, overhead included, to which it is shortened."""
    window: tuple[str, ...] = ()
    """Firsts of the units of conversation in the history window, oldest first."""
    included: Mapping[str, Inclusion] = field(default_factory=dict)
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Id to tokens, overhead included, kept free for its compressed form."""
    shortened: Mapping[str, Shortened] = field(default_factory=dict)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def weights(self) -> ScoreWeights:
        """Return the weights of the score."""
        return self.request.compile_config.weights

    @property
    def limit(self) -> int:
        """Return the tokens that items may take, their overheads included."""
        request = self.request
        return request.token_budget - request.response_reserve - request.target.per_request

    def head(self, item_id: str) -> str:
        """Return the first of the unit that an item belongs to; the item itself if it is alone."""
        return self.heads.get(item_id, item_id)

    def members(self, head: str) -> tuple[str, ...]:
        """Return the items of a unit, in order."""
        return self.groups.get(head) or (head,)

    def overhead(self, item_id: str) -> int:
        """Return the tokens that the target spends around an item, its label included."""
        target = self.request.target
        if self.items[item_id].kind == "tool_schema":
            return target.per_tool
        return target.per_item + self.labels.get(item_id, 0)

    def cost(self, head: str) -> int:
        """Return the tokens that a unit takes of the budget, overhead included."""
        cap = self.caps.get(head)
        if cap is not None:
            return cap
        group = self.groups.get(head)
        return self.costs[head] if group is None else sum(self.costs[member] for member in group)

    def remaining(self) -> list[str]:
        """Return the ids of items that are not out, in the order of the candidates."""
        excluded = self.excluded
        return [item_id for item_id in self.items if item_id not in excluded]

    def not_requiring(self, item_ids: Iterable[str]) -> State:
        """Return this state in which `item_ids` are no longer required."""
        names = set(item_ids)
        return replace(
            self, required={name: why for name, why in self.required.items() if name not in names}
        )

    def excluding(self, excluded: Mapping[str, Exclusion]) -> State:
        """Return this state with more items out; an item that is out already keeps its reason."""
        return replace(self, excluded={**excluded, **self.excluded}) if excluded else self

    def with_notes(self, notes: Mapping[str, Iterable[str]]) -> State:
        """Return this state with more notes on items."""
        if not notes:
            return self
        notes_by_item = {
            item_id: (*self.notes.get(item_id, ()), *more) for item_id, more in notes.items()
        }
        return replace(self, notes={**self.notes, **notes_by_item})


def is_empty(item: ContextItem) -> bool:
    """Return whether an item says nothing: a call without text is a message, a tool may answer with
    nothing, and tokens without text are an image.
    """
    is_more = item.tool_call_ids or item.tool_call_id is not None or item.token_estimate
    return not item.content.strip() and not is_more
