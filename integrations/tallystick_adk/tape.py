"""Tape mode: a plugin by which models and tools answer what was recorded; a model for replays."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import errors, types

from tallystick.errors import RecordedFailure
from tallystick.kit import check_model, check_player, plain_arguments
from tallystick.kit.tapes import check_safe, messages_after, tool_call_id_of
from tallystick.recorder import Player
from tallystick.records import Json, TapeCall
from tallystick_adk.requests import answer_of, comparable, request_of

_ERRORS: tuple[type[Exception], ...] = tuple(
    kind
    for module in (builtins, errors)
    for kind in list(vars(module).values())
    if isinstance(kind, type) and issubclass(kind, Exception)
)


class TapePlugin(BasePlugin):
    """Plays a tape to the agents of a runner: `App(…, plugins=[TapePlugin(player)])`.

    No model is called, and an answer comes whole, also where it was streamed. Tools answer what was
    recorded, and their changes of state and transfers are made again; those whose names are in
    `safe` are compared and run for real. Requests are compared, the model is not. After a
    TallyPlugin the replay is recorded.
    """

    def __init__(
        self, player: Player, *, name: str = "tallystick_tape", safe: Collection[str] = ()
    ) -> None:
        """Raises InvalidInput."""
        super().__init__(name)
        check_player(player, "TapePlugin")
        check_safe(safe)
        self._player, self._safe = player, safe

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse:
        """Answer a request from the tape. Raises TapeDiverged, within an error of ADK."""
        call = self._player.call_model(request_of(llm_request), normal=comparable)
        return _response(self._player.answer(call, errors=_ERRORS))

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Answer a call from the tape, unless the tool is safe to run."""
        request = {"arguments": plain_arguments(dict(tool_args))}
        is_safe = tool.name in self._safe
        recorded = self._player.call_tool(tool.name, request, real=is_safe)
        if is_safe:
            return None
        played: Any = recorded.response
        for action, value in (played or {}).get("actions", {}).items():
            if action == "state_delta":
                tool_context.state.update(value)
            else:
                setattr(tool_context.actions, action, value)
        try:
            result = self._player.result(recorded, errors=_ERRORS)
        except RecordedFailure:
            # The application gave the model an answer in place of the error.
            sent = next(_sent_results(self._player, recorded), None)
            if sent is None:
                raise
            return sent
        return result if isinstance(result, dict) else {"result": result}


def _response(played: Any) -> LlmResponse:
    fields = {**(played.get("envelope") or {}), "content": played.get("answer")}
    return LlmResponse.model_validate(fields)


def _sent_results(player: Player, recorded: TapeCall) -> Iterator[dict[str, Any]]:
    """Yield the result of a recorded call as the requests after it have it, the next one first."""
    call_id = tool_call_id_of(recorded)
    for contents in messages_after(player, recorded):
        for part in reversed([part for each in contents for part in each.get("parts") or ()]):
            answer = part.get("function_response") or {}
            # ADK takes its own ids of calls out of the requests.
            if answer.get("name") == recorded.name and answer.get("id") in (None, call_id):
                yield answer.get("response") or {}


def model_call(model: BaseLlm) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a `call` for `recordings.preview_replay(step_id, call=…)`: it sends the recorded
    request to `model` and returns the answer.
    """
    check_model(model, BaseLlm, "model_call(LLMRegistry.new_llm({}))")

    async def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        responses = [each async for each in model.generate_content_async(_request(request))]
        return answer_of(responses[-1])

    def call(request: Mapping[str, Any]) -> dict[str, Any]:
        # On a loop of its own thread, so that it works whether or not the caller runs one.
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(lambda: asyncio.run(ask(request))).result()

    return call


def _request(recorded: Mapping[str, Any]) -> LlmRequest:
    functions = [
        types.FunctionDeclaration(
            name=each["name"],
            description=each.get("description"),
            parameters_json_schema=each.get("parameters"),
        )
        for each in recorded.get("tools") or ()
    ]
    config: dict[str, Any] = dict(recorded.get("settings") or {})
    config["system_instruction"] = recorded.get("instructions")
    config["tools"] = [types.Tool(function_declarations=functions)] if functions else None
    contents: list[Json] = list(recorded.get("messages") or ())
    return LlmRequest.model_validate(
        {"model": recorded.get("model"), "contents": contents, "config": config}
    )
