"""The route that calls a model for a caller: with a provider of the settings, and a key of this
process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

from tallystick.aio import begin_in_thread, end_in_thread, in_thread
from tallystick.errors import InvalidInput, RunClosed, TallystickError
from tallystick.operations import error_json
from tallystick.records import CompiledContext, JsonObject, ModelAnswer, ModelCost
from tallystick.tally import BoundTally, ModelCall, named_provider, sorted_errors
from tallystick.tally.model_calls import Preflight
from tallystick_server.answers import answer, plain
from tallystick_server.endpoints import RequestBody, ScopeHeader, add_endpoint, bound_for
from tallystick_server.open_runs import RunHeader, StepHeader, open_runs_of, within
from tallystick_server.recording import Compile
from tallystick_server.streams import EVENTS, event_text

_END: Any = object()


class CallModel(RequestBody):
    """A context, and the model that it goes to."""

    provider: str = Field(description="Such as openai; with its model one of the setting.")
    model: str
    compile_id: str | None = Field(default=None, description="A compile that a step recorded.")
    step_id: str | None = Field(default=None, description="The step that compiled the context.")
    request: Compile | None = Field(default=None, description="Candidates to compile first.")
    parameters: JsonObject = Field(default={}, description="The provider's own.")
    preflight: Preflight = "off"
    stream: bool = Field(default=False, description="True for the answer as server-sent events.")
    agent_name: str = Field(default="agent", description="Of a run of its own.")
    approval_token: str | None = None

    @property
    def name(self) -> str:
        """The name of provider and model."""
        return f"{self.provider}:{self.model}"


class CalledModel(BaseModel):
    """A call of a model that was made, and where it is recorded."""

    answer: ModelAnswer
    cost: ModelCost
    response: JsonObject
    """The answer in the provider's own form."""
    run_id: str
    step_id: str


def add_model_calls(router: APIRouter) -> None:
    """Add the route."""
    add_endpoint(router, "/model/call", call_model, CalledModel, "Context")


async def call_model(
    request: Request,
    body: CallModel,
    scope_header: ScopeHeader = None,
    run_header: RunHeader = None,
    step_header: StepHeader = None,
) -> Response:
    """Send a compiled context to a model, and record request, answer, usage and cost: in the open
    step that is named, which has no request yet, else in a step of its own.

    With `stream` the answer comes as server-sent events: `start`, pieces of text, reasoning and
    tool calls, and at the end `call`, or `error`. A reader who leaves ends the call.
    """
    bound = await in_thread(bound_for, request, scope_header)

    @contextmanager
    def compiled() -> Iterator[CompiledContext]:
        place = _place_of(request, bound, body, run_header, step_header)
        with within(request, bound, *place):
            yield _context(bound, body)

    def options() -> dict[str, Any]:
        return {
            "provider": named_provider(bound, body.name),
            "parameters": body.parameters,
            "agent_name": body.agent_name,
            "preflight": body.preflight,
            "approval_token": body.approval_token,
        }

    def call() -> Response:
        with compiled() as context, sorted_errors(body.name):
            return answer(bound, _fields(bound.call_model(context, **options())))

    def events() -> Iterator[JsonObject]:
        with (
            compiled() as context,
            sorted_errors(body.name),
            bound.stream_model(context, **options()) as stream,
        ):
            yield {"type": "start"}
            for event in stream:
                if event.text:
                    yield {"type": event.kind, "text": event.text}
            yield {"type": "call", "call": _fields(stream.call)}

    if not body.stream:
        return await in_thread(call)
    steps = _InOneContext(events())
    # What refuses the call is answered as a problem.
    first = await begin_in_thread(steps.next, lambda _: steps.close())
    return StreamingResponse(_send(first, steps), 200, EVENTS, "text/event-stream")


def _place_of(
    request: Request, bound: BoundTally, body: CallModel, run_id: str | None, step_id: str | None
) -> tuple[str | None, str | None]:
    """Return the run and the step in which the call is recorded: those of the headers, else the
    open step that compiled the context. Raises InvalidInput, NotFound, and Denied where the caller
    may not record in the run of the compile.
    """
    named = [each for each in (body.compile_id, body.step_id) if each is not None]
    if len(named) + (body.request is not None) != 1:
        raise InvalidInput("Give one of compile_id, step_id and request: what goes to the model.")
    if named:
        step = bound.recordings.step(named[0])
        bound.recordings.require_record(bound.recordings.run(step.run_id))
        if run_id is None and step_id is None:
            with suppress(RunClosed):
                step_id = open_runs_of(request).step_of(step.id, bound).id
    return run_id, step_id


def _context(bound: BoundTally, body: CallModel) -> CompiledContext:
    if body.request is not None:
        return body.request.compile_with(bound)
    return bound.recordings.compiled(body.compile_id or body.step_id or "").compiled


def _fields(call: ModelCall) -> JsonObject:
    return {
        "answer": plain(call.answer),
        "cost": plain(call.cost),
        "response": call.response,
        "run_id": call.run_id,
        "step_id": call.step_id,
    }


class _InOneContext:
    """The items of a generator, each made by whichever thread asks, with the variables of one
    context: what a block sets, its end finds.
    """

    def __init__(self, generator: Any) -> None:
        self._generator, self._context = generator, copy_context()

    def next(self) -> JsonObject:
        """Return the next item, or `_END`."""
        item: JsonObject = self._context.run(next, self._generator, _END)
        return item

    def close(self) -> None:
        """End the generator where it is."""
        close: Callable[[], None] = self._generator.close
        self._context.run(close)


async def _send(first: JsonObject, steps: _InOneContext) -> AsyncIterator[str]:
    """Yield the events of a call; a reader who leaves ends it."""
    event = first
    try:
        while event is not _END:
            yield event_text(None, event)
            event = await in_thread(steps.next)
    except TallystickError as error:
        yield event_text(None, {"type": "error", "error": error_json(error)})
    finally:
        await end_in_thread(steps.close)
