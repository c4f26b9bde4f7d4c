"""The model of a run: it compiles, checks and records each request, and sends it to the model that
its agent asks for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from agents import Agent, Model, ModelResponse, ModelSettings, RunConfig
from agents.models import get_default_model_settings
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest

from tallystick.aio import in_thread
from tallystick.kit import AnswerFacts, OpenCall, memory_text
from tallystick.kit.agent_runs import AgentRequest
from tallystick.kit.laying_out import Count, ReadRequest
from tallystick.records import CompiledContext
from tallystick.tokens import usage_of
from tallystick_openai_agents.messages import (
    ModelRequest,
    answer_of,
    comparable,
    model_facts,
    partial_response,
    request_of,
    user_text,
)
from tallystick_openai_agents.render import read_request, render, with_memory
from tallystick_openai_agents.rules import (
    handoff_calls,
    take_handoffs_in_hand,
    take_in_hand,
)
from tallystick_openai_agents.under_way import RunUnderWay, agent_asking

_ENDS = ("response.completed", "response.incomplete", "response.failed")


class RunModel(Model):
    """Stands in for the models of all agents of a run."""

    def __init__(self, run: RunUnderWay, config: RunConfig) -> None:
        self.run, self.config = run, config
        """`config` is the application's own."""
        self._models: list[Model] = []

    def _asked(self) -> Model:
        """Return the model that the agent asks for, as the SDK would have found it."""
        agent = agent_asking.get()
        asked = self.config.model or (None if agent is None else agent.model)
        model = asked if isinstance(asked, Model) else self.config.model_provider.get_model(asked)
        if all(model is not each for each in self._models):
            self._models.append(model)
        return model

    def _settings(self, settings: ModelSettings) -> ModelSettings:
        """Return settings with the defaults that the SDK has for a model with this name."""
        agent = agent_asking.get()
        name = self.config.model or (None if agent is None else agent.model)
        if agent is None or isinstance(name, Model) or isinstance(agent.model, Model):
            return settings
        if agent.model_settings != get_default_model_settings(agent.model):
            return settings
        return get_default_model_settings(name).resolve(settings)

    def _supports_default_prompt_cache_key(self) -> bool:
        # The SDK asks a model of its own for it.
        supports = getattr(self._asked(), "_supports_default_prompt_cache_key", None)
        return bool(supports()) if callable(supports) else False

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the advice of the model that was asked."""
        return self._asked().get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        for model in self._models:
            await model._cleanup_on_run_end(owner)

    async def get_response(self, *arguments: Any, **rest: Any) -> ModelResponse:
        """Ask the model of the agent."""
        asking = await self._begin(arguments, rest)
        try:
            with self.run.active(asking.call):
                response = cast(ModelResponse, await asking.sent.send(asking.asked.get_response))
        except BaseException as error:
            asking.fail(error)
            raise
        asking.end(response)
        return response

    async def stream_response(self, *arguments: Any, **rest: Any) -> AsyncIterator[Any]:
        """Ask the model of the agent for a stream."""
        asking = await self._begin(arguments, rest)
        try:
            events: Any = asking.sent.send(asking.asked.stream_response)
            async with aclosing(events):
                while True:
                    with self.run.active(asking.call):
                        event = await anext(events, None)
                    if event is None:
                        break
                    asking.see(event)
                    yield event
        except BaseException as error:
            asking.fail(error)
            raise
        asking.end(None)

    async def _begin(self, arguments: tuple[Any, ...], rest: dict[str, Any]) -> _Asking:
        request = ModelRequest.of(*arguments, **rest)
        request = replace(request, model_settings=self._settings(request.model_settings))
        take_in_hand(request.tools, asks=self.run.asks)
        take_handoffs_in_hand(request.handoffs)
        asking = _Asking(self.run, agent_asking.get(), self._asked(), request)
        await in_thread(asking.prepare)
        return asking


class _Asking(AgentRequest):
    """One request to a model."""

    def __init__(
        self, run: RunUnderWay, agent: Agent[Any] | None, asked: Model, request: ModelRequest
    ) -> None:
        self.run, self.asked, self.sent = run, asked, request
        self.provider, self.model = model_facts(agent, asked)
        self.call: OpenCall | None = None
        self._said: list[str] = []
        self._is_over = False

    def read(self, count: Count = len) -> ReadRequest:
        return read_request(self.sent, count)

    def render(self, compiled: CompiledContext, read: ReadRequest) -> None:
        self.sent = render(compiled, read, self.sent)

    def add_memory(self, compiled: CompiledContext) -> None:
        self.sent = with_memory(self.sent, memory_text(compiled))

    def clean(self, clean: Callable[[Any], Any]) -> None:
        self.sent = self.sent.cleaned(clean)

    def recorded(self) -> dict[str, Any]:
        return request_of(self.model, self.sent)

    def compared(self) -> Any:
        return comparable(self.recorded())

    def prepare(self) -> None:
        """Compile, check and record the request. Raises as that of a run."""
        run, text = self.run, user_text(self.sent.input) or ""
        self.call = run.begin_model_call(self)
        turn = run.turns.setdefault(text, f"{run.id}-{len(run.turns)}")
        reserve = self.sent.model_settings.max_tokens or 0
        try:
            run.prepare(self, self.call, text=text, turn=turn, reserve=reserve)
        except BaseException as error:
            self.fail(error)
            raise

    def see(self, event: Any) -> None:
        """See an event of a stream."""
        kind = getattr(event, "type", "")
        if kind.endswith(".delta"):
            if self.call is not None:
                self.call.times.add_chunk()
            if kind == "response.output_text.delta":
                self._said.append(event.delta)
        elif kind in _ENDS:
            self.end(event.response)

    def end(self, response: Any) -> None:
        """Record the answer, once: a ModelResponse, or the Response that ends a stream."""
        self._finish(response, None)

    def fail(self, error: BaseException) -> None:
        """Record that the request failed, with the answer of its stream until then."""
        self._finish(partial_response("".join(self._said)) if self._said else None, error)

    def _finish(self, response: Any, error: BaseException | None) -> None:
        call = self.call
        if self._is_over or call is None or (response is None and error is None):
            return
        self._is_over = True
        try:
            with self.run.guard(call.step.run):
                if response is not None:
                    self._record_answer(call, response)
                call.end() if error is None else call.fail(error)
        finally:
            self.run.end_model_call()

    def _record_answer(self, call: OpenCall, response: Any) -> None:
        agents = {each.tool_name: each.agent_name for each in self.sent.handoffs}
        self.run.handoffs.update(handoff_calls(response.output, agents))
        usage = usage_of(response.usage)
        reason = getattr(getattr(response, "incomplete_details", None), "reason", None)
        facts = AnswerFacts(
            usage if any(usage.values()) else {},
            model=getattr(response, "model", None),
            stop=reason or getattr(response, "status", None),
        )
        call.step.record("response", answer_of(response), summary=call.answer_summary(facts))
