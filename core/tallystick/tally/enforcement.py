"""Enforcement of rules over calls: what every enforcing piece and every direct call goes through.

A check finds the rule that decides, stops the call or lets it through, and leaves an entry
`policy_check` in the step. Where no rule concerns a kind of call, a check costs a look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from tallystick import compiler
from tallystick.access import Answer, Approvals, GuardedCall
from tallystick.errors import ActionDenied, ApprovalRequired, InvalidInput
from tallystick.policy.arguments import UNREADABLE, json_value, replace_texts
from tallystick.policy.redaction import Redactor
from tallystick.records import (
    Approval,
    CompilationRequest,
    ContextItem,
    Json,
    PolicyEffect,
    PolicyRule,
    ToolSpec,
    json_bytes,
)
from tallystick.storage.rows import journal
from tallystick.storage.rows.journal import run_stream
from tallystick.tally.call_rules import CallFacts, CallRules, Judged
from tallystick.tally.memory_view import MemoryView
from tallystick.tally.observed_calls import ObservedCall

_NO_NAME = "model"
"""The name of a model that nobody stated, in errors and receipts."""


@dataclass(frozen=True, init=False)
class Allowed:
    """A call that may happen, and exactly what was checked: nobody can change it afterwards."""

    rule_id: str | None
    """The rule that decided; None if none concerned the call."""
    effect: PolicyEffect | None
    approval: Approval | None
    """The approval that was used up, where the rule wanted one."""
    redactor: Redactor | None = field(repr=False)
    """The redactor of a rule that redacts."""
    _checked: Any = field(repr=False)

    def __init__(
        self,
        rule_id: str | None = None,
        effect: PolicyEffect | None = None,
        approval: Approval | None = None,
        redactor: Redactor | None = None,
        *,
        checked: Any = None,
    ) -> None:
        """Keep a copy of `checked`: what was judged does not change with the caller's values."""
        values = (rule_id, effect, approval, redactor, copied_arguments(checked))
        for each, value in zip(fields(Allowed), values, strict=True):
            object.__setattr__(self, each.name, value)

    @property
    def redacts(self) -> bool:
        """True if the rule wants secrets and personal data taken out."""
        return self.redactor is not None

    def _clean(self, value: Any) -> Any:
        return value if self.redactor is None else _redact_value(self.redactor, value)


class AllowedToolCall(Allowed):
    """A tool call that may run: with which arguments, and what its result must pass through."""

    @property
    def arguments(self) -> Any:
        """The arguments to run the tool with, cleaned where the rule redacts; else as they were
        given. Each reader gets a copy of its own, so that nobody changes the check.
        """
        return copied_arguments(self._checked)

    def result(self, value: Any) -> Any:
        """Return the result of the tool as the model may read it. Where the rule redacts, a value
        that is no JSON comes back as its cleaned text; else every value as it is.
        """
        return self._clean(value)


class AllowedModelCall(Allowed):
    """A model call that may be made: with which request, and what other texts of it must pass
    through.
    """

    @property
    def request(self) -> Any:
        """The request to send, cleaned where the rule redacts; else as it was given. Each reader
        gets a copy of its own.
        """
        return copied_arguments(self._clean(self._checked))

    def clean(self, value: Any) -> Any:
        """Return a text, or JSON values with texts, as the model may read them. Where the rule
        redacts, equal secrets of one value get one placeholder; else every value as it is.
        """
        return self._clean(value)


A = TypeVar("A", AllowedToolCall, AllowedModelCall)


def copied_arguments(value: Any) -> Any:
    """Return arguments with copies of the objects and lists in them. Raises InvalidInput where
    they are nested without end.
    """
    try:
        return _copy_value(value)
    except RecursionError:
        raise InvalidInput(
            "The arguments of the call are nested too deeply to be checked."
        ) from None


def _copy_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copy_value(inner) for inner in value]
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(_copy_value, value))
    if isinstance(value, BaseModel | set) or (is_dataclass(value) and not isinstance(value, type)):
        return deepcopy(value)
    return value


def check_call(
    view: MemoryView, kind: type[A], facts: CallFacts, piece: str, token: str | None
) -> A:
    """Return a call that may happen, as it was checked by `piece`; record the check in the step.

    Raises ActionDenied, ApprovalRequired, TokenRefused, and InvalidInput for arguments that no
    approval can be bound to.
    """
    rules = view._services.call_rules
    rules.register(view.actor, facts.kind, piece)
    with view._observe_call("policy_check", facts.name or facts.kind) as call:
        return _check(kind, rules, view._approvals, facts, call, token)


def _check(
    kind: type[A],
    rules: CallRules,
    approvals: Approvals,
    facts: CallFacts,
    call: ObservedCall,
    token: str | None,
) -> A:
    judged = rules.rule_for(facts, approvals.actor, approvals.scope)
    rule = judged.rule
    if rule is None:
        _record(call, facts, judged, "allowed")
        return kind(checked=facts.arguments)
    if rule.effect == "allow":
        _record(call, facts, judged, "allowed")
        return kind(rule.id, rule.effect, checked=facts.arguments)
    if rule.effect == "deny":
        raise _deny(approvals, call, facts, judged, "denied_by_rule", rule.description or rule.name)
    if rule.effect == "require_receipt":
        if call.step is None:
            raise _deny(
                approvals,
                call,
                facts,
                judged,
                "receipt_required",
                "nothing records this call. Make it inside of a run of this tally",
            )
        _record(call, facts, judged, "allowed")
        return kind(rule.id, rule.effect, checked=facts.arguments)
    if rule.effect == "redact":
        redactor = rules.redactor
        _record(call, facts, judged, "redacted")
        arguments = facts.arguments
        if facts.kind == "tool_call":
            arguments = _cleaned_arguments(redactor, facts, judged)
        return kind(rule.id, rule.effect, None, redactor, checked=arguments)
    answers = ask(approvals, [(_guarded_call(facts, judged), rule)], call, token=token)
    settle(answers, call, _facts(facts, judged))
    return kind(rule.id, rule.effect, answers[0].approval, checked=facts.arguments)


def refuse_unenforced(view: MemoryView, facts: CallFacts) -> None:
    """Raise ActionDenied for a call that a rule would stop or change and that nothing enforces.

    A rule that wants a receipt is met where the call is recorded.
    """
    rules, approvals = view._services.call_rules, view._approvals
    if not rules.of(facts.kind):
        return
    with view._observe_call("policy_check", facts.name or facts.kind) as call:
        judged = rules.rule_for(facts, approvals.actor, approvals.scope)
        rule = judged.rule
        if rule is None or rule.effect == "allow":
            return
        if rule.effect == "require_receipt" and call.step is not None:
            _record(call, facts, judged, "allowed")
            return
        raise _deny(
            approvals,
            call,
            facts,
            judged,
            "not_enforced",
            "nothing that could enforce the rule has this call in hand. Add the piece of your "
            "runtime that enforces rules, or call bound.check_tool_call and "
            "bound.check_model_call yourself",
        )


def refuse_withheld(
    view: MemoryView,
    items: Iterable[ContextItem],
    tools: Iterable[ToolSpec],
    *,
    environment: str | None = None,
    **facts: str | None,
) -> None:
    """Raise ActionDenied for a request that is about to be sent as it is, although a rule over
    items keeps a part of it from the model, or wants a receipt and nothing records.
    """
    services, items, tools = view._services, tuple(items), tuple(tools)
    rules = services.call_rules.of("context_item")
    if not rules or not (items or tools):
        return
    request = CompilationRequest.load(
        {
            **facts,
            "request_id": "unsent",
            "context_items": items,
            "tool_specs": tools,
            "tool_classes": services.call_rules.classes_of_schemas(tools, rules),
            "policy_rules": rules,
            "token_budget": 1,
            "as_of": services.store.clock.now(),
            "agent": view.actor.agent,
            "environment": environment or services.settings.environment,
        }
    )

    with view._observe_call("policy_check", facts["model"] or "model_call") as call:
        _refuse_withheld(services.call_rules, view._approvals, request, call)


def _refuse_withheld(
    rules: CallRules, approvals: Approvals, request: CompilationRequest, call: ObservedCall
) -> None:
    items = {item.id: item for item in compiler.all_candidates(request)}
    effects = {rule.id: rule.effect for rule in request.policy_rules}
    missing = {} if call.step is not None else compiler.receipts_wanted(request)
    for item_id, rule_id in [*compiler.withholding_rules(request).items(), *missing.items()]:
        effect, item = effects[rule_id], items[item_id]
        if effect == "require_approval" and rules.take_granted(rule_id, item.content):
            continue
        reason = "receipt_required" if item_id in missing else "not_enforced"
        why = (
            "it leaves with a receipt, and nothing records this. Send it inside of a run of this "
            "tally"
            if item_id in missing
            else f"{effect} of a {item.kind}, and nothing compiles the request. Send what "
            "`bound.compile` leaves of it"
        )
        facts = {"applies_to": "context_item", "items": [item_id], "rule": rule_id}
        summary = {**facts, "effect": effect, "outcome": "denied", "reason": reason}
        call.record("policy_check", None, summary=summary)
        approvals.journal_denial(
            "send_to_model", item_id, rule_id, reason, step_id=call.correlation_id
        )
        raise ActionDenied("send_to_model", item_id, rule_id=rule_id, reason=reason, why=why)


def ask(
    approvals: Approvals,
    actions: Sequence[tuple[GuardedCall, PolicyRule]],
    call: ObservedCall,
    *,
    token: str | None = None,
) -> list[Answer]:
    """Use the grants of these actions, if all are granted; otherwise ask for what nobody was asked
    for. Raises TokenRefused, Denied.
    """
    step = call.step
    receipts: tuple[str, ...] = ()
    if step is not None:
        database = approvals.store.database
        database.flush()
        with database.read() as connection:
            end = journal.end_of(connection, run_stream(step.run.id))
        receipts = (end.head,) if end.length else ()
    return approvals.ask(
        actions,
        token=token,
        run_id=None if step is None else step.run.id,
        step_id=None if step is None else step.id,
        receipts=receipts,
    )


def settle(answers: Iterable[Answer], call: ObservedCall, facts: Mapping[str, Any]) -> None:
    """Record the answers in the step, and raise unless every action is granted.

    Raises ActionDenied for what a person denied, else ApprovalRequired.
    """
    waiting: list[Approval] = []
    new: set[str] = set()
    denied: Approval | None = None
    for state, approval in answers:
        outcome = {"granted": "allowed", "denied": "denied"}.get(state, "blocked")
        summary = {
            **facts,
            "rule": approval.rule_id,
            "effect": "require_approval",
            "approval": approval.id,
            "outcome": outcome,
        }
        call.record("policy_check", None, summary=summary)
        if state == "denied":
            denied = approval
        elif state != "granted":
            waiting.append(approval)
            if state == "asked":
                new.add(approval.id)
            _record_wait(call, approval, state)
    if denied is not None:
        raise ActionDenied(
            denied.action,
            denied.subject,
            rule_id=denied.rule_id,
            reason="denied_by_person",
            why=f"{(denied.decided_by or {}).get('user')} denied it: {denied.decided_reason}",
            approval_id=denied.id,
        )
    if waiting:
        raise ApprovalRequired(waiting, new=frozenset(new))


def _record_wait(call: ObservedCall, approval: Approval, state: str) -> None:
    arguments = approval.arguments
    if approval.action == "send_to_model" and isinstance(arguments, dict):
        # The items are out of this context: their text is with the approval alone.
        items = arguments.get("items")
        arguments = {
            **arguments,
            "items": [item["id"] for item in items if isinstance(item, dict)]
            if isinstance(items, list)
            else [],
        }
    payload = {
        "approval": approval.id,
        "action": approval.action,
        "subject": approval.subject,
        "arguments": arguments,
        "reason": approval.reason,
        "receipts": list(approval.receipts),
    }
    summary = {
        "state": state,
        "approval": approval.id,
        "action": approval.action,
        "subject": approval.subject,
        "rule": approval.rule_id,
    }
    call.record("approval", payload, summary=summary)


def _guarded_call(facts: CallFacts, judged: Judged) -> GuardedCall:
    if judged.arguments is UNREADABLE:
        if not isinstance(facts.arguments, str):
            raise InvalidInput(
                f"{facts.kind} {facts.name}: an approval is bound to the exact arguments, and "
                f"these have no JSON form. Give objects, lists, texts and numbers."
            )
        return GuardedCall(facts.kind, facts.name or _NO_NAME, facts.arguments)
    return GuardedCall(facts.kind, facts.name or _NO_NAME, judged.arguments)


def _deny(
    approvals: Approvals,
    call: ObservedCall,
    facts: CallFacts,
    judged: Judged,
    reason: str,
    why: str,
) -> ActionDenied:
    assert judged.rule is not None
    _record(call, facts, judged, "denied", reason=reason)
    approvals.journal_denial(
        facts.kind, facts.name or _NO_NAME, judged.rule.id, reason, step_id=call.correlation_id
    )
    return ActionDenied(
        facts.kind, facts.name or _NO_NAME, rule_id=judged.rule.id, reason=reason, why=why
    )


def _facts(facts: CallFacts, judged: Judged) -> dict[str, Any]:
    name = "tool" if facts.kind == "tool_call" else "model"
    shown = {
        "applies_to": facts.kind,
        name: facts.name,
        "tool_call_id" if facts.kind == "tool_call" else "call_id": facts.call_id,
        "tool_class": judged.tool_class,
    }
    return {key: value for key, value in shown.items() if value is not None}


def _record(
    call: ObservedCall, facts: CallFacts, judged: Judged, outcome: str, **more: Any
) -> None:
    rule = judged.rule
    summary = {
        **_facts(facts, judged),
        "rule": None if rule is None else rule.id,
        "effect": None if rule is None else rule.effect,
        "outcome": outcome,
        **more,
    }
    call.record("policy_check", None, summary=summary)


def _cleaned_arguments(redactor: Redactor, facts: CallFacts, judged: Judged) -> Any:
    """Return cleaned arguments in the form in which they were given: a text, or values in their
    types.
    """
    if judged.arguments is UNREADABLE:
        if isinstance(facts.arguments, str):
            return redactor.redact_text(facts.arguments).text
        raise InvalidInput(
            f"{facts.kind} {facts.name}: rule {judged.rule and judged.rule.id} redacts, and these "
            "arguments have no JSON form. Give objects, lists, texts and numbers."
        )
    cleaned = redactor.redact_json(judged.arguments).value
    if isinstance(facts.arguments, str):
        return json_bytes(cleaned).decode()
    try:
        return replace_texts(facts.arguments, cleaned)
    except TypeError as error:
        raise InvalidInput(
            f"{facts.kind} {facts.name}: rule {judged.rule and judged.rule.id} redacts, and "
            f"{error}. Let the tool take a text there, or deny the call."
        ) from None


def _redact_value(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, str):
        return redactor.redact_text(value).text
    try:
        plain: Json = json_value(value)
    except (TypeError, ValueError, RecursionError):
        return redactor.redact_text(str(value)).text
    return redactor.redact_json(plain).value
