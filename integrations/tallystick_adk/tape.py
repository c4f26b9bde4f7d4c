"""Tape mode: a plugin by which models and tools answer what was recorded; a model for replays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
from tallystick.kit.tapes import check_safe, errors_of, replay_call, sent_result
from tallystick.recorder import Player
from tallystick.records import Json
from tallystick_adk.requests import answer_of, comparable, request_of

_ERRORS = errors_of(errors)


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
            result = sent_result(self._player, recorded, _result_in(tool.name), parts="parts")
            if result is None:
                raise
        return result if isinstance(result, dict) else {"result": result}


def _response(played: Any) -> LlmResponse:
    fields = {**(played.get("envelope") or {}), "content": played.get("answer")}
    return LlmResponse.model_validate(fields)


def _result_in(name: str) -> Callable[[Any, Json], Any]:
    def result_in(part: Any, call_id: Json) -> Any:
        answer = part.get("function_response") or {}
        # ADK takes its own ids of calls out of the requests.
        is_result = answer.get("name") == name and answer.get("id") in (None, call_id)
        return (answer.get("response") or {}) if is_result else None

    return result_in


def model_call(model: BaseLlm) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a `call` for `recordings.preview_replay(step_id, call=…)`: it sends the recorded
    request to `model` and returns the answer.
    """
    check_model(model, BaseLlm, "model_call(LLMRegistry.new_llm({}))")

    async def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        responses = [each async for each in model.generate_content_async(_request(request))]
        return answer_of(responses[-1])

    return replay_call(ask)


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
