"""The rules of an opened tally: which one decides over a call, and which pieces enforce them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from tallystick.access.approvals import note_enforcer, note_rules
from tallystick.policy.arguments import UNREADABLE, json_arguments
from tallystick.policy.redaction import Redactor
from tallystick.policy.rules import (
    RuleSubject,
    ToolClasses,
    ToolClassSource,
    applicable_rule,
    check_rules,
)
from tallystick.records import Actor, PolicyRule, RuledSubject, Scope, ToolSpec
from tallystick.storage import Store

CallKind = Literal["tool_call", "model_call"]
"""The calls that rules may concern."""
_KINDS: tuple[RuledSubject, ...] = get_args(RuledSubject)
_MOST_GRANTS = 1_024


@dataclass(frozen=True)
class CallFacts:
    """A call as rules see it. A fact that is None was not stated."""

    kind: CallKind
    name: str | None
    arguments: Any = None
    is_written: bool = False
    """True for arguments as a model wrote them, before the tool makes of them what it gets."""
    tool_class: str | None = None
    """A claim: rules may only restrict by it."""
    call_id: str | None = None
    provider: str | None = None
    model: str | None = None
    task_type: str | None = None
    environment: str | None = None
    sensitivity: str | None = None


class CallRules:
    """The rules of one opened tally, and the pieces that enforce them. Thread-safe."""

    def __init__(
        self,
        rules: Sequence[PolicyRule],
        tool_classes: Mapping[str, ToolClassSource],
        *,
        store: Store,
        environment: str | None,
        redactor: Redactor,
    ) -> None:
        """Raises SettingsError for a rule or class that could not do what it says."""
        check_rules(rules)
        self._by_kind: dict[RuledSubject, tuple[PolicyRule, ...]] = {
            kind: tuple(rule for rule in rules if rule.applies_to == kind) for kind in _KINDS
        }
        self._classes = ToolClasses(tool_classes)
        self._store = store
        self._environment = environment
        self.redactor = redactor
        """The redactor of ruled calls: secrets and personal data."""
        self._guard = threading.Lock()
        self._pieces: set[tuple[str, str]] = set()
        self._enforced: dict[tuple[str, str], int] = {}
        self._granted: dict[tuple[str, str], None] = {}

    def of(self, kind: RuledSubject) -> tuple[PolicyRule, ...]:
        """Return the rules over one kind of call, or over items or memories."""
        return self._by_kind[kind]

    def note(self, actor: Actor) -> None:
        """Note the rules in the tally, for the doctor of another process."""
        note_rules(self._store, actor, [rule for kind in _KINDS for rule in self.of(kind)])

    def register(self, actor: Actor, kind: RuledSubject, piece: str) -> None:
        """Note in the tally that `piece` enforces rules over `kind`; once in each process."""
        if not self.of(kind) or (kind, piece) in self._pieces:
            return
        with self._guard:
            if (kind, piece) in self._pieces:
                return
            self._pieces.add((kind, piece))
        try:
            note_enforcer(self._store, actor, kind, piece)
        except BaseException:
            self._pieces.discard((kind, piece))
            raise

    def rule_for(self, facts: CallFacts, actor: Actor, scope: Scope) -> Judged:
        """Return the rule that decides over a call, and what it was decided on."""
        arguments = json_arguments(facts.arguments)
        tool_class = None
        if facts.kind == "tool_call":
            tool_class = self._classes.class_of(
                facts.name or "",
                None if arguments is UNREADABLE else arguments,
            )
        stated: dict[str, Any] = {
            "task_type": facts.task_type,
            "provider": facts.provider,
            "model": facts.model,
            "sensitivity": facts.sensitivity,
            "environment": facts.environment or self._environment,
        }
        subject = RuleSubject(
            applies_to=facts.kind,
            agent=actor.agent,
            scope=scope,
            tool=facts.name if facts.kind == "tool_call" else None,
            tool_class=tool_class,
            claimed_class=facts.tool_class,
            arguments=arguments,
            is_written=facts.is_written,
            unstated=frozenset(name for name, value in stated.items() if value is None),
            **stated,
        )
        return Judged(applicable_rule(self.of(facts.kind), subject), tool_class, arguments)

    def classes_of_schemas(
        self, specs: Iterable[ToolSpec], rules: Iterable[PolicyRule]
    ) -> dict[str, str]:
        """Return the class of each tool by its name, where any of these rules goes by classes."""
        if not any(
            rule.conditions.tool_class for rule in rules if rule.applies_to == "context_item"
        ):
            return {}
        return {spec.name: self._classes.class_of_schema(spec.name) for spec in specs}

    def note_granted(self, rule_id: str, content: str) -> None:
        """Note that a person let an item go with the request that is compiled now."""
        with self._guard:
            self._granted[rule_id, content] = None
            if len(self._granted) > _MOST_GRANTS:
                del self._granted[next(iter(self._granted))]

    def take_granted(self, rule_id: str, content: str) -> bool:
        """Return True, once, for an item that a person let go."""
        with self._guard:
            return self._granted.pop((rule_id, content), self) is None

    def claim(self, kind: str, call_id: str) -> None:
        """Note that an enforcing piece has this call in hand."""
        with self._guard:
            self._enforced[kind, call_id] = self._enforced.get((kind, call_id), 0) + 1

    def release(self, kind: str, call_id: str) -> None:
        """Forget a call that has ended."""
        with self._guard:
            left = self._enforced.pop((kind, call_id), 0) - 1
            if left > 0:
                self._enforced[kind, call_id] = left

    def is_claimed(self, kind: str, call_id: str) -> bool:
        """Return True while an enforcing piece has this call in hand."""
        with self._guard:
            return (kind, call_id) in self._enforced

    @contextmanager
    def enforcing(self, kind: CallKind, name: str | None) -> Iterator[None]:
        """Mark the code inside as the call of one tool or model that an enforcing piece has in
        hand, where the observer inside does not know the same id. Calls of other names inside of it
        are not in hand.
        """
        token = _ENFORCING.set((*_ENFORCING.get(), (self, kind, name)))
        try:
            yield
        finally:
            _ENFORCING.reset(token)

    def is_enforcing(self, kind: CallKind, name: str | None) -> bool:
        """Return True inside `enforcing` of this call."""
        return (self, kind, name) in _ENFORCING.get()


class Judged(NamedTuple):
    """The rule that decides over a call, and what it was decided on."""

    rule: PolicyRule | None
    tool_class: str | None
    arguments: Any


_ENFORCING: ContextVar[tuple[tuple[CallRules, CallKind, str | None], ...]] = ContextVar(
    "tallystick_enforcing", default=()
)
