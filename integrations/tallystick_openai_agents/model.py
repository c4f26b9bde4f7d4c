"""The model of a run: it compiles, checks and records each request, and sends it to the model that
its agent asks for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, cast

from agents import Agent, Model, ModelResponse, ModelSettings, RunConfig
from agents.models import get_default_model_settings
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest

from tallystick.aio import in_thread
from tallystick.kit import (
    AnswerFacts,
    OpenCall,
    RequestParts,
    ToolCall,
    attribute_requests,
    refuse_unenforced_model_call,
    rules_requests,
)
from tallystick.kit.rendering import without_frames
from tallystick.tokens import usage_of
from tallystick_openai_agents.messages import (
    ModelRequest,
    answer_of,
    as_json,
    comparable,
    model_facts,
    request_of,
    user_text,
)
from tallystick_openai_agents.render import added_texts, read_request, render, with_memory
from tallystick_openai_agents.rules import read_arguments, take_in_hand
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
                response = cast(ModelResponse, await asking.request.send(asking.model.get_response))
        except BaseException as error:
            asking.fail(error)
            raise
        asking.end(response)
        return response

    async def stream_response(self, *arguments: Any, **rest: Any) -> AsyncIterator[Any]:
        """Ask the model of the agent for a stream."""
        asking = await self._begin(arguments, rest)
        try:
            events: Any = asking.request.send(asking.model.stream_response)
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
        request = replace(request, settings=self._settings(request.settings))
        take_in_hand(request.tools, asks=self.run.asks)
        asking = _Asking(self.run, agent_asking.get(), self._asked(), request)
        await in_thread(asking.prepare)
        return asking


class _Asking:
    """One request to a model."""

    def __init__(
        self, run: RunUnderWay, agent: Agent[Any] | None, model: Model, request: ModelRequest
    ) -> None:
        self.run, self.model, self.request = run, model, request
        self.provider, self.name = model_facts(agent, model)
        self.call: OpenCall | None = None
        self._said: list[str] = []
        self._is_over = False

    def prepare(self) -> None:
        """Compile, check and record the request. Raises ActionDenied, ApprovalRequired,
        CompileError.
        """
        run = self.run
        self.call = call = run.begin_model_call(self.name)
        if call is not None:
            call.provider, call.model = self.provider, self.name
        try:
            with run.active(call):
                if run.runner.compiler is not None:
                    self._compile()
                if call is None:
                    self._check()
                elif rules_requests(run.bound):
                    # A request that is refused is kept as it was asked for.
                    try:
                        self._check()
                    finally:
                        self._record(call)
                else:
                    self._record(call)
        except BaseException as error:
            self.fail(error)
            raise

    def _compile(self) -> None:
        run, bound, compiler = self.run, self.run.bound, self.run.runner.compiler
        assert compiler is not None
        read = read_request(self.request, bound.tally.counter(self.name).count)
        text = user_text(self.request.input) or ""
        parts = RequestParts(
            items=read.items,
            tools=read.tools,
            text=text,
            turn=run.turns.setdefault(text, f"{run.id}-{len(run.turns)}"),
            conversation=run.session,
            model=self.name,
            provider=self.provider,
            reserve=self.request.settings.max_tokens or 0,
            untouched=read.untouched,
            task_type=run.runner.task_type,
        )
        compiled = compiler.compile(bound, parts)
        added = added_texts(compiled, whole=compiler.is_whole)
        if compiler.is_whole:
            self.request = render(compiled, read, added)
        else:
            self.request = with_memory(self.request, added)

    def _check(self) -> None:
        run, bound = self.run, self.run.bound
        if not rules_requests(bound):
            return
        parts = read_request(self.request).for_rules(partial(without_frames, bound))
        if not run.runner.rules:
            refuse_unenforced_model_call(
                bound, provider=self.provider, model=self.name, call_id=run.id, **parts
            )
            return
        check = bound.check_model_call(
            piece="TallyRunner",
            provider=self.provider,
            model=self.name,
            request=comparable(request_of(self.name, self.request)),
            task_type=run.runner.task_type,
            **parts,
        )
        if check.redacts:
            self.request = self.request.cleaned(check.clean)

    def _record(self, call: OpenCall) -> None:
        attribute_requests(call.step)
        with self.run.guard(call.step.run):
            request = request_of(self.name, self.request)
            asked = {} if self.provider is None else {"provider": self.provider}
            summary = {"model": self.name, **asked, "messages": len(self.request.input)}
            call.step.record("request", request, summary=summary)

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
        call = self.call
        if self._is_over or call is None or response is None:
            return
        self._is_over = True
        try:
            with self.run.guard(call.step.run):
                self._note_handoffs(response.output)
                self._record_answer(call, response)
                call.end()
        finally:
            self.run.end_model_call()

    def _record_answer(self, call: OpenCall, response: Any) -> None:
        usage = usage_of(response.usage)
        reason = getattr(getattr(response, "incomplete_details", None), "reason", None)
        facts = AnswerFacts(
            usage if any(usage.values()) else {},
            model=getattr(response, "model", None),
            stop=reason or getattr(response, "status", None),
        )
        call.step.record("response", answer_of(response), summary=call.answer_summary(facts))

    def _note_handoffs(self, output: list[Any]) -> None:
        agents = {each.tool_name: each.agent_name for each in self.request.handoffs}
        for item in map(as_json, output if agents else ()):
            name = item.get("name")
            if item.get("type") == "function_call" and name in agents:
                arguments = read_arguments(item.get("arguments"))
                self.run.handoffs[agents[name]] = ToolCall(name, arguments, item.get("call_id"))

    def fail(self, error: BaseException) -> None:
        """Record that the request failed, with the answer of its stream until then."""
        call = self.call
        if self._is_over or call is None:
            return
        self._is_over = True
        try:
            with self.run.guard(call.step.run):
                if self._said:
                    self._record_answer(call, partial_response("".join(self._said)))
                call.fail(error)
        finally:
            self.run.end_model_call()


def partial_response(text: str) -> ModelResponse:
    """Return an answer that broke off."""
    from agents import Usage
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    said = ResponseOutputText(text=text, type="output_text", annotations=[])
    message = ResponseOutputMessage(
        id="partial", content=[said], role="assistant", status="incomplete", type="message"
    )
    return ModelResponse(output=[message], usage=Usage(), response_id=None)
