"""Tape mode: a runner whose model and tools answer what was recorded; and a model for replays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Unpack, cast

import openai
from agents import Agent, FunctionTool, Model, ModelResponse, RunResult, RunState, exceptions
from agents.result import RunResultStreaming
from agents.run import AgentRunner
from agents.run_config import RunOptions
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)

from tallystick.errors import RecordedFailure
from tallystick.kit import check_model, check_player
from tallystick.kit.tapes import (
    check_safe,
    check_safe_tools,
    errors_of,
    recorded_model,
    replay_call,
    sent_result,
)
from tallystick.recorder import Player, stream_pieces
from tallystick.records import Json, TapeCall
from tallystick_openai_agents.messages import (
    ModelRequest,
    answer_of,
    arguments_of,
    comparable,
    request_of,
    response_of,
)
from tallystick_openai_agents.rules import (
    Invoke,
    agent_tools,
    config_of,
    on_tape,
    read_arguments,
    take_in_hand,
)

_ERRORS = errors_of(exceptions, openai)


class TapeRunner(AgentRunner):
    """Plays a tape to an agent: `await TapeRunner(player).run(agent, "…")`.

    The agent's own model is never called. Tools answer what was recorded, except those whose names
    are in `safe`: they are compared and run for real. Requests are compared, the model is not. With
    `runner=TallyRunner(…)` the replay is recorded.
    """

    def __init__(
        self, player: Player, *, safe: Collection[str] = (), runner: AgentRunner | None = None
    ) -> None:
        """Raises InvalidInput."""
        check_player(player, "TapeRunner")
        check_safe(safe)
        self._player, self._safe = player, safe
        self._runner = AgentRunner() if runner is None else runner

    async def run(
        self,
        starting_agent: Agent[Any],
        input: str | list[Any] | RunState[Any],
        **kwargs: Unpack[RunOptions[Any]],
    ) -> RunResult:
        """Same as `Runner.run`. Raises TapeDiverged at the first difference."""
        with self._playing(starting_agent, input, kwargs) as options:
            return await self._runner.run(starting_agent, input, **options)

    def run_streamed(
        self,
        starting_agent: Agent[Any],
        input: str | list[Any] | RunState[Any],
        **kwargs: Unpack[RunOptions[Any]],
    ) -> RunResultStreaming:
        """Same as `Runner.run_streamed`, in as many pieces as were recorded."""
        with self._playing(starting_agent, input, kwargs) as options:
            return self._runner.run_streamed(starting_agent, input, **options)

    @contextmanager
    def _playing(self, agent: Agent[Any], input: Any, given: RunOptions[Any]) -> Iterator[Any]:
        current = input._current_agent if isinstance(input, RunState) else None
        tools = agent_tools(current or agent)
        check_safe_tools(self._safe, [getattr(tool, "name", None) for tool in tools])
        take_in_hand(tools)
        config = replace(config_of(given.get("run_config")), model=_TapeModel(self._player))
        token = on_tape.set(self._play_tool)
        try:
            yield {**given, "run_config": config}
        finally:
            on_tape.reset(token)

    async def _play_tool(self, tool: FunctionTool, context: Any, input: str, invoke: Invoke) -> Any:
        request = {"arguments": read_arguments(input)}
        is_safe = tool.name in self._safe
        recorded = self._player.call_tool(tool.name, request, real=is_safe)
        if is_safe:
            return await invoke(context, input)
        try:
            result = self._player.result(recorded, errors=_ERRORS)
        except RecordedFailure:
            if (sent := sent_result(self._player, recorded, _result_in)) is None:
                raise
            return sent
        # The form in which the result was sent to the model counts, if an agent sent it.
        sent = sent_result(self._player, recorded, _result_in)
        return result if sent is None else sent


class _TapeModel(Model):
    """Answers from a tape."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self.model = recorded_model(player)

    async def get_response(self, *arguments: Any, **rest: Any) -> ModelResponse:
        return self._answer(self._play(arguments, rest))

    async def stream_response(self, *arguments: Any, **rest: Any) -> AsyncIterator[Any]:
        call = self._play(arguments, rest)
        # A stream that broke breaks where it did.
        response = self._answer(call) if call.response is None else response_of(call.response)
        for event in _events(response, call):
            yield event
        self._answer(call)
        yield _completed(response)

    def _play(self, arguments: tuple[Any, ...], rest: dict[str, Any]) -> TapeCall:
        request = ModelRequest.of(*arguments, **rest)
        take_in_hand(request.tools)
        return self._player.call_model(request_of(self.model, request), normal=comparable)

    def _answer(self, call: TapeCall) -> ModelResponse:
        return response_of(self._player.answer(call, errors=_ERRORS))


def _events(response: ModelResponse, call: TapeCall) -> Iterator[Any]:
    """Yield an answer as the deltas that it came in."""
    parts: list[tuple[int, int, Any, str]] = []
    for place, item in enumerate(response.output):
        for at, part in enumerate(getattr(item, "content", None) or ()):
            parts.append((place, at, item, getattr(part, "text", "")))
        if item.type == "function_call":
            parts.append((place, 0, item, item.arguments))
    pieces = stream_pieces(call, [text for *_, text in parts])
    for (place, at, item, _), cut in zip(parts, pieces, strict=True):
        for piece in cut:
            facts: dict[str, Any] = {
                "item_id": item.id or "",
                "output_index": place,
                "delta": piece,
                "sequence_number": 0,
            }
            if item.type == "function_call":
                facts["type"] = "response.function_call_arguments.delta"
                yield ResponseFunctionCallArgumentsDeltaEvent(**facts)
            else:
                facts["type"] = "response.output_text.delta"
                yield ResponseTextDeltaEvent(content_index=at, logprobs=[], **facts)


def _completed(response: ModelResponse) -> ResponseCompletedEvent:
    usage = response.usage
    ended = Response(
        id=response.response_id or "recorded",
        created_at=0,
        model="recorded",
        object="response",
        output=cast(Any, response.output),
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=True,
        status="completed",
        usage=ResponseUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
            input_tokens_details=usage.input_tokens_details,
            output_tokens_details=usage.output_tokens_details,
        ),
    )
    return ResponseCompletedEvent(type="response.completed", response=ended, sequence_number=0)


def _result_in(item: Any, call_id: Json) -> Any:
    is_result = str(item.get("type")).endswith("_output") and item.get("call_id") == call_id
    return item.get("output") if is_result else None


def model_call(model: Model) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a `call` for `recordings.preview_replay(step_id, call=…)`: it sends the recorded
    request to `model` and returns the answer.
    """
    check_model(model, Model, "model_call(OpenAIProvider().get_model({}))")

    async def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        return answer_of(await arguments_of(request).send(model.get_response))

    return replay_call(ask)
