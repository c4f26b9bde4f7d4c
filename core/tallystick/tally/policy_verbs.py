"""The verbs of policy: check a call against the rules, decide what waits for a person, open scopes
to others, operate the tally.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, SkipValidation

from tallystick.access import AccessTokens, Spaces
from tallystick.policy.tool_schemas import read_by_schema
from tallystick.records import (
    Approval,
    ApprovalId,
    ApprovalState,
    CompilationRequest,
    ContextItem,
    Duration,
    JsonObject,
    Limit,
    ToolSpec,
    checked_arguments,
    seconds,
)
from tallystick.records.arguments import PAGE_BEFORE, IdempotencyKey, Reason
from tallystick.tally.call_rules import CallFacts
from tallystick.tally.enforcement import (
    CheckedCall,
    ModelCheck,
    ToolCheck,
    check_call,
    copied_arguments,
    refuse_unenforced,
    refuse_withheld,
)
from tallystick.tally.operator import Operator
from tallystick.tally.run_verbs import RunVerbs

Fact = Annotated[str | None, SkipValidation]
"""A fact that a runtime states of a call, as it states it: what is no text never fits a rule that
allows.
"""

InputSchema = Annotated[JsonObject | None, SkipValidation]

_DIRECT = "direct call"
"""The piece that enforces where an application checks a call itself."""


@checked_arguments
class PolicyVerbs(RunVerbs):
    """What rules and people decide over the calls of an agent."""

    def check_tool_call(
        self,
        name: str,
        arguments: Any = None,
        *,
        input_schema: InputSchema = None,
        tool_class: Fact = None,
        tool_call_id: Fact = None,
        approval_token: str | None = None,
        provider: Fact = None,
        model: Fact = None,
        task_type: Fact = None,
        environment: Fact = None,
        sensitivity: Fact = None,
        piece: str = _DIRECT,
    ) -> ToolCheck:
        """Check a tool call against the rules of the tally, before the tool runs.

        Run the tool with the `arguments` of the answer, a copy that nobody changes, and give its
        result to `result`, which a rule may have cleaned. Inside a run the check is recorded.
        `input_schema` is the tool's JSON Schema, by which `arguments` as a model wrote them are
        read first: validated strictly, with its defaults. Raises ActionDenied, ApprovalRequired,
        TokenRefused, Denied, or InvalidInput for arguments that the schema refuses, or that have
        no JSON form where a rule needs one.
        """
        if input_schema is not None:
            arguments = read_by_schema(input_schema, arguments)
        if not self._services.call_rules.of("tool_call"):
            return ToolCheck(arguments=arguments)
        facts = CallFacts(
            "tool_call",
            name,
            copied_arguments(arguments),
            tool_class=tool_class,
            call_id=tool_call_id,
            provider=provider,
            model=model,
            task_type=task_type,
            environment=environment,
            sensitivity=sensitivity,
        )
        check, allowed = self._checked(facts, piece, approval_token)
        return ToolCheck(
            check.rule_id, check.effect, check.approval, check.redactor, arguments=allowed
        )

    def check_model_call(
        self,
        *,
        provider: Fact = None,
        model: Fact = None,
        request: Any = None,
        call_id: Fact = None,
        approval_token: str | None = None,
        task_type: Fact = None,
        environment: Fact = None,
        sensitivity: Fact = None,
        piece: str = _DIRECT,
        items: Annotated[Iterable[ContextItem], SkipValidation] = (),
        tools: Annotated[Iterable[ToolSpec], SkipValidation] = (),
    ) -> ModelCheck:
        """Check a model call against the rules of the tally, before the request is sent.

        `items` and `tools` are the parts of a request that nothing has compiled: it is refused
        (`not_enforced`) where a rule over context items would keep one of them from the model.

        An approval is bound to the exact `request`. Give each text of the request to `clean` of
        the answer, which a rule may want cleaned. Inside a run the check is recorded. Raises
        ActionDenied, ApprovalRequired, TokenRefused, Denied, InvalidInput.
        """
        self._refuse_withheld(
            items,
            tools,
            provider=provider,
            model=model,
            task_type=task_type,
            environment=environment,
        )
        if not self._services.call_rules.of("model_call"):
            return ModelCheck()
        facts = CallFacts(
            "model_call",
            model,
            request,
            call_id=call_id,
            provider=provider,
            model=model,
            task_type=task_type,
            environment=environment,
            sensitivity=sensitivity,
        )
        check, _ = self._checked(facts, piece, approval_token)
        return ModelCheck(check.rule_id, check.effect, check.approval, check.redactor)

    def approvals(
        self,
        *,
        state: Annotated[
            ApprovalState | None,
            Field(description="The state that they are in; none lists every state."),
        ] = "pending",
        limit: Annotated[Limit, Field(description="Approvals at most.")] = 50,
        before: Annotated[ApprovalId | None, PAGE_BEFORE] = None,
    ) -> list[Approval]:
        """List the approvals of the bound scope that this actor may decide, or that its own actions
        wait for, newest first; with `state=None` of every state.

        Give the last id of a page as `before` for the next one. Raises NotFound for an unknown one.
        """
        self._admit("inspect")
        return self._approvals.in_state(state, limit=limit, before=before)

    def approval(self, approval_id: ApprovalId) -> Approval:
        """Return one approval. Raises NotFound."""
        self._admit("inspect")
        return self._approvals.get(approval_id)

    def approve(
        self,
        approval_id: ApprovalId,
        *,
        reason: Reason,
        expires_in: Annotated[
            Duration | None,
            Field(
                description="Seconds, or an ISO 8601 duration, for which it is good; else a day."
            ),
        ] = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Approval:
        """Grant an action, once, for `expires_in` (a timedelta, or seconds; by default a day).

        The answer carries its token. The next identical action of the same actor uses the grant up,
        with the token or without. A person decides: the principal of a private scope, a steward of
        the space, an operator. Raises NotFound, Denied, InvalidInput, StateConflict,
        IdempotencyMismatch.
        """
        return self._approvals.decide(
            approval_id,
            "granted",
            reason=reason,
            expires_in=None if expires_in is None else seconds(expires_in, name="expires_in"),
            idempotency_key=idempotency_key,
        )

    def deny(
        self, approval_id: ApprovalId, *, reason: Reason, idempotency_key: IdempotencyKey = None
    ) -> Approval:
        """Deny an action: while it stands, the same action is refused with this reason.

        Raises NotFound, Denied, InvalidInput, StateConflict, IdempotencyMismatch.
        """
        return self._approvals.decide(
            approval_id, "denied", reason=reason, idempotency_key=idempotency_key
        )

    def revoke(
        self, approval_id: ApprovalId, *, reason: Reason, idempotency_key: IdempotencyKey = None
    ) -> Approval:
        """Take back a grant that was not used, or a denial: the same action is asked for anew.

        Raises NotFound, Denied, InvalidInput, StateConflict, IdempotencyMismatch.
        """
        return self._approvals.decide(
            approval_id, "revoked", reason=reason, idempotency_key=idempotency_key
        )

    def _checked(self, facts: CallFacts, piece: str, token: str | None) -> CheckedCall:
        rules = self._services.call_rules
        rules.register(self.actor, facts.kind, piece)
        with self._observed("policy_check", facts.name or facts.kind) as call:
            return check_call(
                rules,
                self._approvals,
                facts,
                call,
                is_recorded=call.step is not None,
                token=token,
            )

    def _refuse_unenforced(self, facts: CallFacts) -> None:
        """Raise ActionDenied for a ruled call that nothing enforces."""
        rules = self._services.call_rules
        if not rules.of(facts.kind):
            return
        with self._observed("policy_check", facts.name or facts.kind) as call:
            refuse_unenforced(rules, self._approvals, facts, call)

    def _refuse_withheld(
        self,
        items: Iterable[ContextItem],
        tools: Iterable[ToolSpec],
        *,
        provider: str | None,
        model: str | None,
        task_type: str | None = None,
        environment: str | None = None,
    ) -> None:
        """Raise ActionDenied for a request of which a rule over context items would keep a part
        from the model, and which nothing compiles.
        """
        services = self._services
        rules = services.call_rules.of("context_item")
        if not rules:
            return
        specs = tuple(tools)
        request = CompilationRequest(
            request_id="unsent",
            provider=provider,
            model=model,
            context_items=tuple(items),
            tool_specs=specs,
            tool_classes=services.call_rules.classes_of_schemas(specs, rules),
            policy_rules=rules,
            token_budget=1,
            as_of=services.store.clock.now(),
            agent=self.actor.agent,
            task_type=task_type,
            environment=environment or services.settings.environment,
        )
        if not request.context_items and not specs:
            return
        with self._observed("policy_check", model or "model_call") as call:
            refuse_withheld(services.call_rules, self._approvals, request, call)

    @property
    def spaces(self) -> Spaces:
        """The spaces that this actor may see or manage: create, get, list, update."""
        services = self._services
        return Spaces(services.store, services.gate, self.actor, zone=services.zone)

    @property
    def tokens(self) -> AccessTokens:
        """The access tokens of this actor: make, list, rotate, revoke."""
        return AccessTokens(self._services.store, self._services.gate, self.actor)

    @property
    def operator(self) -> Operator:
        """The operator's verbs: erase, prove, purge, freeze, doctor, export, import."""
        return Operator(self._services, self.actor, self.scope)
