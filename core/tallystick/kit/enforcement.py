"""Enforcement for adapters: check a call at the runtime's hook, and refuse what nothing enforces.

A piece that stands around a call (middleware, a wrapper of a tool, a capability) checks it with
`bound.check_tool_call` or `bound.check_model_call`, and says that it has the call in hand: by the
runtime's id of the call (`claim_enforcement`), or for the code inside of it (`enforcing`). A piece
that only observes (a callback handler) calls `refuse_unenforced`, which raises for a ruled call
that nobody has in hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, create_model

from tallystick.errors import ActionDenied, StateConflict, StoredApproval
from tallystick.kit.elsewhere import TallyElsewhere
from tallystick.kit.rendering import ToolCall
from tallystick.policy.arguments import UNREADABLE, json_arguments
from tallystick.recorder import Step
from tallystick.records import Actor, ContextItem, PolicyEffect, PolicyRule, RuledSubject, ToolSpec
from tallystick.tally import BoundTally, Tally, enforcement
from tallystick.tally.call_rules import CallFacts, CallKind
from tallystick.tally.services import services_of


def has_rules(
    tally: Tally | BoundTally | TallyElsewhere,
    kind: RuledSubject,
    effect: PolicyEffect | None = None,
) -> bool:
    """Return True if the tally has rules over this kind of call, or any with this effect. Those of
    a tally that is elsewhere are checked there.
    """
    if not isinstance(tally, Tally | BoundTally):
        return False
    rules = services_of(tally).call_rules.of(kind)
    return bool(rules) if effect is None else any(rule.effect == effect for rule in rules)


def plain_arguments(values: Any) -> Any:
    """Return arguments as rules see them, JSON values; as they are, where they have no such form,
    and where they are still the text of a model.
    """
    plain = values if isinstance(values, str) else json_arguments(values)
    return values if plain is UNREADABLE else plain


@lru_cache(maxsize=256)
def with_optional(schema: type[BaseModel], names: frozenset[str]) -> type[BaseModel]:
    """Return a schema of a tool with the same validators that takes anything, or nothing, for these
    fields: the runtime fills them in later.
    """
    optional: dict[str, Any] = {name: (Any, None) for name in names if name in schema.model_fields}
    made: type[BaseModel] = create_model(schema.__name__, __base__=schema, **optional)
    return made


def register_enforcer(tally: Tally | BoundTally, kind: CallKind, piece: str) -> None:
    """Note that `piece` enforces rules over this kind of call, for the doctor; once in each
    process, and nothing where the tally has no such rules. A check does it too.
    """
    actor = tally.actor if isinstance(tally, BoundTally) else tally.owner
    services = services_of(tally)
    services.call_rules.register(actor or Actor(user="tallystick", surface=piece), kind, piece)


def decide_as_person(
    bound: BoundTally, approvals: Sequence[StoredApproval], *, approved: bool, reason: str
) -> None:
    """Grant or deny what a call waits for, as the person whose answer the runtime has brought.

    That is the principal for whom the agent of the view acts: an agent never decides. What somebody
    has decided meanwhile stays as it is: the next check says what that was. Raises Denied where
    this person may not decide.
    """
    actor = bound.actor
    person = actor.replace(user=actor.acting_for or actor.user, agent=None, acting_for=None)
    view = replace(bound, actor=person)
    decide = view.approvals.approve if approved else view.approvals.deny
    for approval in approvals:
        with suppress(StateConflict):
            decide(approval.id, reason=reason)


def claim_enforcement(tally: Tally | BoundTally, kind: CallKind, call_id: str) -> None:
    """Say that an enforcing piece has the call with the runtime's own id in hand."""
    services_of(tally).call_rules.claim(kind, call_id)


def release_enforcement(tally: Tally | BoundTally, kind: CallKind, call_id: str) -> None:
    """Forget a call that has ended, once for each claim."""
    services_of(tally).call_rules.release(kind, call_id)


def enforcing(
    tally: Tally | BoundTally, kind: CallKind, name: str | None
) -> AbstractContextManager[None]:
    """Say that an enforcing piece has the code inside in hand, as the call of this tool or model,
    where the observer inside does not know the same id. Calls of other names inside of it, and
    observers of other tallies, are not meant.
    """
    return services_of(tally).call_rules.enforcing(kind, name)


def is_enforced(
    tally: Tally | BoundTally, kind: CallKind, name: str | None, call_id: str | None = None
) -> bool:
    """Return True if an enforcing piece has this call in hand, by its id or by its block."""
    if call_id is not None and services_of(tally).call_rules.is_claimed(kind, call_id):
        return True
    return services_of(tally).call_rules.is_enforcing(kind, name)


_DENIALS = ("denied_by_rule", "denied_by_person")


def is_denial(error: BaseException) -> bool:
    """Return True for a denial, which the model reads as the answer of its call: the application is
    to mend whatever else stops one.
    """
    return isinstance(error, ActionDenied) and error.reason in _DENIALS


def judge_tool_call(bound: BoundTally, name: str, arguments: object = None) -> PolicyRule | None:
    """Return the rule that would decide a tool call, or None. Nothing is recorded or asked for."""
    facts = CallFacts("tool_call", name, arguments)
    return services_of(bound).call_rules.rule_for(facts, bound.actor, bound.scope).rule


def refuse_unenforced(
    bound: BoundTally,
    call: ToolCall,
    *,
    tool_class: str | None = None,
    is_written: bool = False,
) -> None:
    """Raise ActionDenied (`not_enforced`) for a tool call that a rule would stop or change and that
    no enforcing piece has in hand. For observers, before the tool runs; `is_written` says that they
    see the arguments as the model wrote them, and not as the tool gets them.
    """
    if has_rules(bound, "tool_call") and not is_enforced(
        bound, "tool_call", call.name, call.tool_call_id
    ):
        enforcement.refuse_unenforced(
            bound,
            CallFacts(
                "tool_call",
                call.name,
                call.arguments,
                is_written=is_written,
                tool_class=tool_class,
                call_id=call.tool_call_id,
            ),
        )


def record_unenforced(bound: BoundTally, call: ToolCall, step: Step) -> PolicyRule | None:
    """Record that a tool runs although a rule concerns the call and no enforcing piece has it in
    hand; return the rule. For observers in runtimes that let nobody but the tool itself stop it.
    """
    if not has_rules(bound, "tool_call") or is_enforced(
        bound, "tool_call", call.name, call.tool_call_id
    ):
        return None
    facts = CallFacts("tool_call", call.name, call.arguments, call_id=call.tool_call_id)
    rule = services_of(bound).call_rules.rule_for(facts, bound.actor, bound.scope).rule
    if rule is None or rule.effect in ("allow", "require_receipt"):
        return None
    summary = {
        "applies_to": "tool_call",
        **call.summary(),
        "rule": rule.id,
        "effect": rule.effect,
        "outcome": "not_enforced",
    }
    step.record("policy_check", None, summary=summary)
    return rule


def refuse_unenforced_model_call(
    bound: BoundTally,
    *,
    provider: str | None = None,
    model: str | None = None,
    call_id: str | None = None,
    items: Iterable[ContextItem] = (),
    tools: Iterable[ToolSpec] = (),
) -> None:
    """Same as `refuse_unenforced`, for a model call, of which `items` and `tools` are the parts:
    a rule over context items that would keep one from the model refuses the call too.
    """
    if is_enforced(bound, "model_call", model, call_id):
        return
    if has_rules(bound, "model_call"):
        enforcement.refuse_unenforced(
            bound, CallFacts("model_call", model, call_id=call_id, provider=provider, model=model)
        )
    enforcement.refuse_withheld(bound, items, tools, provider=provider, model=model)


def rules_requests(tally: Tally | BoundTally) -> bool:
    """Return True if the tally has rules over model calls, or over the items of their requests."""
    return has_rules(tally, "model_call") or has_rules(tally, "context_item")
