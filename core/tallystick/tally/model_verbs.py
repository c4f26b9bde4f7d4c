"""The verbs that call a model, for code without a framework."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Annotated, Any

from pydantic import SkipValidation

from tallystick.ports import ModelProvider
from tallystick.records import CompiledContext, checked_arguments
from tallystick.tally.model_calls import (
    ModelCall,
    ModelStream,
    Preflight,
    call_model,
    stream_model,
)
from tallystick.tally.policy_verbs import PolicyVerbs

Provider = Annotated[ModelProvider | str, SkipValidation]
"""A model of a provider, or the name of both."""


@checked_arguments
class ModelVerbs(PolicyVerbs):
    """What an actor asks a model, by the SDK of its provider."""

    def call_model(
        self,
        compiled: CompiledContext,
        *,
        provider: Provider,
        parameters: Mapping[str, Any] | None = None,
        agent_name: str = "agent",
        preflight: Preflight = "off",
        approval_token: str | None = None,
    ) -> ModelCall:
        """Send a compiled context to a model, and record request, answer, usage and cost.

        `provider` is one of an extra (`ResponsesProvider`, `MessagesProvider`), of your own, or a
        name such as `openai:gpt-5`; `parameters` go into its request as they are. The call is the
        open model step that has no request yet, else a step of the run under way, else one of a new
        run of `agent_name`. With `preflight` the provider counts the tokens first: a request that
        is larger than the budget it was compiled for is refused, or compiled anew with less.

        Raises InvalidContext for what the provider would refuse, before anything is sent;
        InvalidInput, SettingsError without a key, MissingExtra without the SDK, BudgetInfeasible,
        ActionDenied, ApprovalRequired, Denied; and what the SDK raises.
        """
        return call_model(
            self,
            compiled,
            provider,
            parameters or {},
            agent_name=agent_name,
            preflight=preflight,
            approval_token=approval_token,
        )

    def stream_model(
        self,
        compiled: CompiledContext,
        *,
        provider: Provider,
        parameters: Mapping[str, Any] | None = None,
        agent_name: str = "agent",
        preflight: Preflight = "off",
        approval_token: str | None = None,
    ) -> AbstractContextManager[ModelStream]:
        """Same as `call_model`, for an answer that is read while it comes: a `with` block whose
        stream is iterated over. What came until a stream broke, or was left, is recorded.
        """
        return stream_model(
            self,
            compiled,
            provider,
            parameters or {},
            agent_name=agent_name,
            preflight=preflight,
            approval_token=approval_token,
        )
