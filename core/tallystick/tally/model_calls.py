"""Calls of a model without a framework: check a compiled context, send it, record what came back.

A call is a step of the open run, or of a run of its own. It passes the rules over model calls, is
refused before it is sent where the provider would refuse it, and leaves request, answer, usage,
cost and the provider's limits in its receipt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import SkipValidation

from tallystick.errors import BudgetInfeasible, EgressDenied, InvalidInput
from tallystick.policy.rules import CALLS
from tallystick.ports import ModelEvent, ModelProvider, ModelResponse, ModelResponseStream
from tallystick.provider_errors import MODEL, sort_error
from tallystick.recorder import current_step
from tallystick.records import (
    CompilationRequest,
    CompiledContext,
    ContextItem,
    JsonObject,
    ModelAnswer,
    ModelCost,
    ModelToolCall,
    PolicyRule,
    StepStatus,
)
from tallystick.tally.call_checks import check_model_call
from tallystick.tally.daily_verbs import compile_again, join_run
from tallystick.tally.memory_view import MemoryView
from tallystick.tally.observed_calls import ObservedCall
from tallystick.tokens.prices import cost_of

if TYPE_CHECKING:
    from tallystick.recorder import Step
    from tallystick.recorder.replay import CheckedCall

Provider = Annotated[ModelProvider | str, SkipValidation]
"""A model of a provider, or the name of both."""
Preflight = Literal["off", "refuse", "recompile"]
"""What becomes of a request that the provider counts as larger than the budget it was compiled for.
"""

_GROUP = "tallystick.providers"
_PIECE = "call_model"
_ASKED_AGAIN = PolicyRule(
    id="replay-sends",
    name="A model is asked again",
    description="A recorded step is sent to a model once more.",
    effect="require_approval",
    applies_to="model_call",
)
"""What a replay that sends its request wants, where no person is there."""
_TRIES = 3
_MARGIN = 0.97
"""Part of the room that a smaller budget uses, because tokens are not worth the same everywhere."""


@dataclass(frozen=True)
class ModelCall:
    """A call that was made: its answer, its cost, and where it is recorded."""

    answer: ModelAnswer
    cost: ModelCost
    request: dict[str, Any] = field(repr=False)
    """The request as it was sent."""
    response: dict[str, Any] = field(repr=False)
    """The answer in the provider's own form."""
    run_id: str
    step_id: str

    @property
    def text(self) -> str:
        """The words of the answer."""
        return self.answer.text

    @property
    def tool_calls(self) -> tuple[ModelToolCall, ...]:
        """The calls of tools that the model asks for."""
        return self.answer.tool_calls

    @property
    def usage(self) -> dict[str, int]:
        """The tokens that the provider counted."""
        return self.answer.usage

    def item(self, item_id: str | None = None) -> ContextItem:
        """Return the answer as an item for the next compile; by default its id is the step's."""
        return self.answer.item(item_id or f"answer-{self.step_id}")


def model_provider(name: str | ModelProvider) -> ModelProvider:
    """Return the provider of a name such as `openai:gpt-5`; a provider itself as it is.

    Providers are found by the entry points `tallystick.providers`. Raises InvalidInput for a name
    without a provider or of an unknown one.
    """
    if not isinstance(name, str):
        if not isinstance(name, ModelProvider):
            raise InvalidInput(
                f"provider={name!r} is no provider of models: it needs the members of the port "
                "ModelProvider.",
                argument="provider",
            )
        return name
    provider, _, model = name.partition(":")
    points = _points()
    if provider not in points or not model:
        known = ", ".join(f"{each}:MODEL" for each in sorted(points))
        raise InvalidInput(
            f"provider={name!r} names no provider and model. Write one of {known}, or give the "
            "provider itself.",
            argument="provider",
        )
    return cast(ModelProvider, points[provider].load()(model))


def named_provider(view: MemoryView, name: str) -> ModelProvider:
    """Return the provider of a name such as `openai:gpt-5` for whoever calls from outside of this
    process, with a key of its: only one that `providers` in the settings lists, and within
    `providers_budget`. Raises EgressDenied, and InvalidInput as `model_provider`.
    """
    allowed = view._services.settings.providers
    if not any(fnmatchcase(name, pattern) for pattern in allowed):
        listed = ", ".join(allowed) or "none"
        raise EgressDenied(
            f"This tally sends nothing to {name} for its callers. Who runs it lists the models in "
            f"the setting `providers`, such as openai:*; now {listed}."
        )
    from tallystick.tally.metered_provider import MeteredProvider

    return MeteredProvider(model_provider(name), view)


@contextmanager
def sorted_errors(name: str) -> Iterator[None]:
    """Raise what an SDK raises as an error of ours, for callers that have no such SDK."""
    try:
        yield
    except Exception as error:
        raise sort_error(name, error, MODEL) from error


def replay_call(
    view: MemoryView,
    provider: ModelProvider,
    *,
    approval_token: str | None = None,
    piece: str = _PIECE,
) -> CheckedCall:
    """Return what asks a model again, for a replay: by the rules over model calls, refused before
    where the provider would refuse it, for a person only, or with the approval of one, and nothing
    of a memory that may not be seen any more.
    """

    from tallystick.recorder.replay import CheckedCall

    def call(request: Any) -> JsonObject:
        cleaned = _allowed_request(
            view, provider, provider.model, request, approval_token, piece=piece, by_person=True
        )
        with view._services.call_rules.enforcing("model_call", provider.model):
            body = provider.send(cleaned).body
        answer = provider.parse(body)
        cost = _cost(view, provider, provider.model or "", answer)
        facts: JsonObject = {"usage": {**answer.usage}, "cost": cost.dump(), "model": answer.model}
        return {"answer": answer.recorded(), "native": body, **facts}

    return CheckedCall(call, partial(_require_current, view))


def _allowed_request(
    view: MemoryView,
    provider: ModelProvider,
    model: str | None,
    request: dict[str, Any],
    token: str | None,
    *,
    piece: str = _PIECE,
    by_person: bool = False,
) -> dict[str, Any]:
    """Return a request as it may be sent: checked by the provider's form and by the rules, and with
    `by_person` also by a person, where none is there.
    """
    provider.check(request)
    provider.require_ready()
    check = check_model_call(
        view,
        provider=provider.name,
        model=model,
        request=request,
        approval_token=token,
        piece=piece,
    )
    cleaned: dict[str, Any] = check.request
    is_person = view.actor.is_attended and view.actor.agent is None
    if by_person and not is_person and check.approval is None:
        from tallystick.access import GuardedCall
        from tallystick.tally.enforcement import ask, settle

        action = GuardedCall("model_call", model or "model", request)
        with view._observe_call("policy_check", model or "model_call") as call:
            answers = ask(view._approvals, [(action, _ASKED_AGAIN)], call, token=token)
            settle(answers, call, {"applies_to": "model_call", "model": model})
    return cleaned


def _require_current(
    view: MemoryView, request: CompilationRequest | None, compiled: CompiledContext
) -> None:
    """Raise InvalidInput for a context that would not be compiled today: one that holds a memory
    which its caller may not see any more, or that rules over items of today did not decide over.
    """
    from tallystick.memory.packs import hits_of

    texts = {
        item.id: item.content
        for item in compiled.selected_items
        if item.source_ref.uri == f"memory:{item.id}"
    }
    hits = hits_of(view._services.memory, view.actor, list(texts)) if texts else []
    visible = {
        hit.memory.id
        for hit in hits
        if hit.memory.state != "redacted" or hit.memory.content == texts[hit.memory.id]
    }
    if gone := sorted(texts.keys() - visible):
        raise InvalidInput(
            f"This context holds what was remembered as {', '.join(gone)}, which may not be seen "
            "any more. Compile it again."
        )
    if request is None:
        return
    decided = [rule.dump() for rule in request.policy_rules]
    rules = [rule for rule in view._services.rules if rule.applies_to not in CALLS]
    if missing := [rule.id for rule in rules if rule.dump() not in decided]:
        raise InvalidInput(
            f"This context was compiled without the rules {', '.join(missing)}. Compile it again."
        )


def _cost(view: MemoryView, provider: ModelProvider, model: str, answer: ModelAnswer) -> ModelCost:
    # A table may know the model by the name that was asked for, not by its snapshot.
    names = [answer.model or model, model]
    return cost_of(provider.name, names, answer.usage, table=view._services.prices)


def is_provider(name: str) -> bool:
    """Return True for the name of an installed provider, such as `openai`."""
    return name in _points()


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=_GROUP)}


def call_model(
    view: MemoryView,
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
    chosen = model_provider(provider)
    with _record_call(view, compiled, chosen, agent_name) as call:
        request = call.prepare(compiled, parameters or {}, preflight, approval_token)
        with view._services.call_rules.enforcing("model_call", call.model):
            response = chosen.send(request)
        return call.finish(request, response)


@contextmanager
def stream_model(
    view: MemoryView,
    compiled: CompiledContext,
    *,
    provider: Provider,
    parameters: Mapping[str, Any] | None = None,
    agent_name: str = "agent",
    preflight: Preflight = "off",
    approval_token: str | None = None,
) -> Iterator[ModelStream]:
    """Same as `call_model`, for an answer that is read while it comes: a `with` block whose
    stream is iterated over. What came until a stream broke, or was left, is recorded.
    """
    chosen = model_provider(provider)
    with _record_call(view, compiled, chosen, agent_name) as call:
        request = call.prepare(compiled, parameters or {}, preflight, approval_token)
        with (
            view._services.call_rules.enforcing("model_call", call.model),
            _open_stream(chosen.stream(request), call, request) as stream,
        ):
            yield stream


class ModelStream:
    """An answer under way. Iterate over its events; `call` is the whole once they have ended."""

    def __init__(
        self, source: ModelResponseStream, recorded: _RecordedCall, request: dict[str, Any]
    ) -> None:
        self._source, self._recorded, self._request = source, recorded, request
        self._times: dict[str, int] = {}
        self._call: ModelCall | None = None
        self._has_ended = False

    def __iter__(self) -> Iterator[ModelEvent]:
        step, times = self._recorded.step, self._times
        for event in self._source:
            now = step.elapsed_us()
            times.setdefault("first_us", now)
            times.update(chunks=times.get("chunks", 0) + 1, last_us=now)
            yield event
        self._has_ended = True

    def texts(self) -> Iterator[str]:
        """Return the words of the answer as they come."""
        return (event.text for event in self if event.kind == "text" and event.text)

    @property
    def call(self) -> ModelCall:
        """The call as it was recorded; what of the stream has not been read is read now."""
        if self._call is None:
            for _ in self if not self._has_ended else ():
                pass
            self._finish(is_whole=True)
        assert self._call is not None
        return self._call

    def _finish(self, *, is_whole: bool) -> None:
        """Record the answer as far as it came, once."""
        if self._call is None and (is_whole or self._times):
            self._call = self._recorded.finish(
                self._request, self._source.response(), times=self._times, is_whole=is_whole
            )


@contextmanager
def _open_stream(
    source: AbstractContextManager[ModelResponseStream],
    recorded: _RecordedCall,
    request: dict[str, Any],
) -> Iterator[ModelStream]:
    """Yield the stream; at the end, at an early exit and at an error, record what came of it."""
    with source as opened:
        stream = ModelStream(opened, recorded, request)
        try:
            yield stream
        except BaseException:
            stream._finish(is_whole=False)
            raise
        if not stream._has_ended:
            recorded.status = "cancelled"
        stream._finish(is_whole=stream._has_ended)


class _RecordedCall:
    """A call under way, and the step that records it."""

    def __init__(self, view: MemoryView, provider: ModelProvider, model: str, step: Step) -> None:
        self.view, self.provider, self.model, self.step = view, provider, model, step
        self._observed = ObservedCall(view._services, view.actor, view.scope, step)
        self.status: StepStatus = "completed"

    def prepare(
        self,
        compiled: CompiledContext,
        parameters: Mapping[str, Any],
        preflight: Preflight,
        approval_token: str | None,
    ) -> dict[str, Any]:
        """Return the request that may be sent: rendered, checked by the provider's form and by the
        rules, and small enough.
        """
        request = self._allowed_request(compiled, parameters, approval_token)
        if preflight != "off":
            request = self._fitting(compiled, parameters, request, preflight)
        self._observed.record("request", request, summary={"provider": self.provider.name})
        return request

    def _allowed_request(
        self, compiled: CompiledContext, parameters: Mapping[str, Any], token: str | None
    ) -> dict[str, Any]:
        """Return the request for a context, as the rules let it pass."""
        provider = self.provider
        if "model" in parameters:
            raise InvalidInput(
                "The provider names the model, by which the rules decide: not `parameters`.",
                argument="parameters",
            )
        _require_current(self.view, self.view._services.compile_requests.of(compiled), compiled)
        request = provider.render(compiled, model=self.model, **parameters)
        return _allowed_request(self.view, provider, self.model, request, token)

    def _fitting(
        self,
        compiled: CompiledContext,
        parameters: Mapping[str, Any],
        request: dict[str, Any],
        preflight: Preflight,
    ) -> dict[str, Any]:
        """Return a request that the provider counts within the budget of the compile."""
        allocation = compiled.token_allocation
        reserve = allocation.get("response_reserve", 0)
        most = allocation["budget"] - reserve
        count = self.provider.count_tokens(request)
        for _ in range(_TRIES if preflight == "recompile" else 0):
            if count <= most:
                break
            # Our tokens are worth `count / used` of the provider's.
            used = compiled.token_allocation["used"]
            budget = reserve + int(used * most / count * _MARGIN)
            compiled = compile_again(self.view, compiled, budget, self._observed)
            request = self._allowed_request(compiled, parameters, None)
            count = self.provider.count_tokens(request)
        if count > most:
            raise BudgetInfeasible(budget=most, required={"the request": count})
        return request

    def finish(
        self,
        request: dict[str, Any],
        response: ModelResponse,
        *,
        times: Mapping[str, int] | None = None,
        is_whole: bool = True,
    ) -> ModelCall:
        """Record the answer, and return the call."""
        answer = self.provider.parse(response.body)
        if not is_whole:
            answer = answer.model_copy(update={"stop": "broken_off"})
        cost = _cost(self.view, self.provider, self.model, answer)
        summary: dict[str, Any] = {
            "usage": answer.usage,
            "cost": cost.dump(),
            "stop": answer.stop,
            "model": answer.model,
            **response.facts,
            **({"stream": dict(times)} if times else {}),
        }
        payload = {"answer": answer.recorded(), "native": response.body}
        self._observed.record("response", payload, summary=summary)
        return ModelCall(answer, cost, request, response.body, self.step.run.id, self.step.id)


@contextmanager
def _record_call(
    view: MemoryView, compiled: CompiledContext, provider: ModelProvider, agent_name: str
) -> Iterator[_RecordedCall]:
    """Open the step of a call: the open model step that has no request yet, a new one of the run
    under way, or one of a run of its own.
    """
    model = provider.model or compiled.model
    if model is None:
        raise InvalidInput("Name the model: the compile was for none.", argument="provider")
    open_step = current_step()
    if (
        open_step is not None
        and open_step.is_open
        and open_step.kind == "model_call"
        and open_step.run.context is view._services.recorder
        and not open_step.has("request")
    ):
        yield _RecordedCall(view, provider, model, open_step)
        return
    spoken = [item.content for item in compiled.selected_items if item.kind == "user_msg"]
    run, is_own = join_run(view, agent_name, goal=spoken[-1] if spoken else None)
    status: StepStatus = "completed"
    try:
        step = run.step("model_call", name=model)
        recorded = _RecordedCall(view, provider, model, step)
        try:
            with step.active():
                from tallystick.tally.compiling import record_again

                observed = ObservedCall(view._services, view.actor, view.scope, step)
                record_again(view._services, view.actor, compiled, observed)
                yield recorded
        except BaseException as error:
            step.fail(error)
            raise
        status = recorded.status
        step.end(status, wait=False)
    except BaseException:
        status = "failed"
        raise
    finally:
        if is_own:
            run.end(status)
