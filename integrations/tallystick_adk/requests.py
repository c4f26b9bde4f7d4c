"""Requests of ADK as context items, and a compiled context as a request again.

What a model said at once (its thoughts, its words, its calls) is one item, because the parts belong
together; every result and every message of somebody else is one of its own. ADK takes the ids out
of calls that it has named itself: such a call and its result are paired by their order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple, cast

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from tallystick.kit import (
    ToolCall,
    dump_model,
    json_value,
    memory_text,
    message_item,
    recordable_parameters,
)
from tallystick.kit.agent_runs import AgentRequest
from tallystick.kit.laying_out import INSTRUCTIONS, Count, Piece, ReadRequest, lay_out
from tallystick.kit.rendering import json_text
from tallystick.kit.tapes import comparable_request
from tallystick.records import CompiledContext, ContextItem, Json, ToolSpec
from tallystick.tokens import usage_of

_APART = {"system_instruction", "tools", "http_options"}


class _Part(NamedTuple):
    """A part of a content, which knows where it stood."""

    place: int
    part: types.Part


class ModelCall(AgentRequest):
    """A request to a model, which changes in its place."""

    def __init__(self, request: LlmRequest, model: BaseLlm | None) -> None:
        self.request = request
        self.provider, self.model = _model_facts(request, model)

    def read(self, count: Count = len) -> ReadRequest:
        config, pieces = self.request.config, list(_pieces(self.request.contents, count))
        system, schema = config.system_instruction, config.response_json_schema
        is_text = isinstance(system, str | None)
        first = [ContextItem(id=INSTRUCTIONS, kind="system", content=str(system))]
        return ReadRequest(
            first if system and is_text else [],
            pieces,
            _specs(self.request),
            [_json(each) for each in (None if is_text else system, schema) if each is not None],
        )

    def render(self, compiled: CompiledContext, read: ReadRequest) -> None:
        config, contents = self.request.config, self.request.contents
        is_text = isinstance(config.system_instruction, str | None)
        layout = lay_out(compiled, read, message=_said, change=_changed, is_profile_apart=is_text)
        if is_text:
            config.system_instruction = layout.instructions
        self.request.contents = list(_contents(layout.parts, contents))
        if config.tools:
            config.tools = [_offered(each, layout.tools) for each in config.tools]

    def add_memory(self, compiled: CompiledContext) -> None:
        text = memory_text(compiled)
        if text:
            self.request._insert_transient_user_content([_said(text)])

    def clean(self, clean: Callable[[Any], Any]) -> None:
        request = self.request
        request.config.system_instruction = clean(request.config.system_instruction)
        request.contents = [
            content.model_copy(
                update={"parts": [_cleaned(each, clean) for each in content.parts or []]}
            )
            for content in request.contents
        ]

    def recorded(self) -> dict[str, Any]:
        return request_of(self.request)


def _functions(request: LlmRequest) -> Iterator[types.FunctionDeclaration]:
    for tool in request.config.tools or []:
        if isinstance(tool, types.Tool):
            yield from tool.function_declarations or []


def _specs(request: LlmRequest) -> list[ToolSpec]:
    """Return the functions that are offered, each name once."""
    specs = {each.name: _spec(each) for each in _functions(request) if each.name}
    return [*specs.values()]


def _spec(function: types.FunctionDeclaration) -> ToolSpec:
    parameters = function.parameters_json_schema
    if parameters is None and function.parameters is not None:
        parameters = function.parameters.model_dump(mode="json", exclude_none=True)
    return ToolSpec(
        name=function.name or "",
        description=function.description or "",
        parameters=cast(Any, json_value(parameters or {})),
    )


def _pieces(contents: list[types.Content], count: Count) -> Iterator[Piece]:
    ids = _call_ids(contents)
    for place, content in enumerate(contents):
        parts = [_Part(place, part) for part in content.parts or []]
        if content.role == "model":
            yield Piece(tuple(parts), _answer(f"content-{place}", parts, ids, count))
            continue
        said: list[_Part] = []
        for number, each in enumerate(parts):
            result_of = ids.get(id(each.part))
            if each.part.function_response is None:
                said.append(each)
            elif result_of is None:
                yield Piece((each,), None, _json([each.part]))
            else:
                item_id = f"content-{place}-{number}"
                text = _result_text(each.part.function_response.response)
                media = len(each.part.function_response.parts or [])
                result = message_item(
                    item_id, "tool_result", text, count, result_of=result_of, media=media
                )
                yield Piece((each,), result)
        if said:
            texts, others = _texts(said), [each for each in said if not each.part.text]
            item = message_item(f"content-{place}", "user_msg", texts, count, media=len(others))
            yield Piece(tuple(said), item)


def _result_text(response: dict[str, Any] | None) -> str:
    """Return what a tool gave back: ADK puts a result that is no object into one, as `result`."""
    is_wrapped = response is not None and set(response) == {"result"}
    return _json(response["result"] if response is not None and is_wrapped else response)


def _call_ids(contents: list[types.Content]) -> dict[int, str]:
    """Return an id for each part that is a call with a result or a result of a call, by the
    identity of the part.
    """
    open_calls: dict[tuple[str | None, str | None], deque[tuple[types.Part, str]]] = defaultdict(
        deque
    )
    ids: dict[int, str] = {}
    for place, content in enumerate(contents):
        for number, part in enumerate(content.parts or []):
            call, answer = part.function_call, part.function_response
            if call is not None:
                made = call.id or f"call-{place}-{number}"
                open_calls[call.id, call.name].append((part, made))
            if answer is not None and open_calls[answer.id, answer.name]:
                asked, made = open_calls[answer.id, answer.name].popleft()
                ids[id(asked)] = ids[id(part)] = made
    return ids


def _answer(item_id: str, parts: list[_Part], ids: dict[int, str], count: Count) -> ContextItem:
    # A call that nothing answers yet has no result to go with.
    calls = [
        ToolCall(each.part.function_call.name or "", each.part.function_call.args or {}, made)
        for each in parts
        if each.part.function_call is not None and (made := ids.get(id(each.part))) is not None
    ]
    others = [each.part for each in parts if id(each.part) not in ids and not _is_said(each.part)]
    thoughts = "".join(map(_json, others))
    text = _texts(parts)
    return message_item(item_id, "assistant_msg", text, count, calls=calls, thoughts=thoughts)


def _is_said(part: types.Part) -> bool:
    return bool(part.text) and not part.thought


def _texts(parts: Iterable[_Part]) -> str:
    return "\n".join(each.part.text or "" for each in parts if _is_said(each.part))


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value, exclude_none=True)


def _said(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


def _offered(tool: Any, names: frozenset[str | None]) -> Any:
    if not isinstance(tool, types.Tool) or not tool.function_declarations:
        return tool
    functions = [each for each in tool.function_declarations if each.name in names]
    return tool.model_copy(update={"function_declarations": functions})


def _contents(
    laid: list[types.Content | _Part], before: list[types.Content]
) -> Iterator[types.Content]:
    """Yield parts as contents again, those of one content together."""
    for place, group in groupby(laid, lambda each: each.place if isinstance(each, _Part) else None):
        if place is None:
            yield from cast(Iterator[types.Content], group)
            continue
        parts = [each.part for each in cast(Iterator[_Part], group)]
        content = before[place]
        known = content.parts or []
        if len(parts) == len(known) and all(map(lambda a, b: a is b, parts, known)):
            yield content
        elif parts:
            yield types.Content(role=content.role, parts=parts)


def _changed(item: ContextItem, piece: Piece) -> Iterator[_Part]:
    place = piece.raw[0].place
    if item.kind == "tool_result":
        answer = piece.raw[0].part.function_response
        kept = answer.model_copy(update={"response": {"result": item.content}, "parts": None})
        yield _Part(place, types.Part(function_response=kept))
        return
    if item.content:
        yield _Part(place, types.Part(text=item.content))
    for each in piece.raw if item.kind == "assistant_msg" else ():
        call = each.part.function_call
        # What was left out of an answer may stand in the arguments of its calls too.
        if call is not None:
            bare = call.model_copy(update={"args": {}})
            yield _Part(place, each.part.model_copy(update={"function_call": bare}))


def _cleaned(part: types.Part, clean: Callable[[Any], Any]) -> types.Part:
    changes: dict[str, Any] = {}
    if part.text:
        changes["text"] = clean(part.text)
    if (call := part.function_call) is not None:
        changes["function_call"] = call.model_copy(update={"args": clean(call.args)})
    if (answer := part.function_response) is not None:
        cleaned = answer.model_copy(update={"response": clean(answer.response)})
        changes["function_response"] = cleaned
    return part.model_copy(update=changes) if changes else part


def request_of(request: LlmRequest) -> dict[str, Any]:
    """Return a request as it is recorded: without headers, keys and connections."""
    config, system = request.config, request.config.system_instruction
    settings = dump_model(config, exclude_none=True, exclude=_APART)
    return {
        "model": request.model,
        "instructions": None if system is None else _json(system),
        "messages": [dump_model(each, exclude_none=True) for each in request.contents],
        "tools": [spec.dump() for spec in _specs(request)],
        "settings": recordable_parameters(settings),
    }


def answer_of(response: LlmResponse) -> dict[str, Any]:
    """Return an answer as it is recorded."""
    envelope = dump_model(response, exclude_none=True)
    answer = envelope.pop("content", {"role": "model", "parts": []})
    return {"answer": answer, "envelope": envelope}


def usage_in(response: LlmResponse) -> dict[str, int]:
    """Return the tokens of an answer; a model's thoughts are part of its output."""
    reported = response.usage_metadata
    usage = usage_of(reported)
    thoughts = getattr(reported, "thoughts_token_count", None) or 0
    if thoughts and "output_tokens" in usage:
        usage["output_tokens"] += thoughts
    return usage


def _model_facts(request: LlmRequest, model: BaseLlm | None) -> tuple[str | None, str | None]:
    """Return the provider and the name of the model of a request."""
    name = request.model or (None if model is None else model.model)
    kind = "" if model is None else type(model).__module__
    if kind == "google.adk.models.google_llm":
        return "google", name
    if kind == "google.adk.models.anthropic_llm":
        return "anthropic", name
    provider, _, rest = (name or "").partition("/")
    return (provider, rest) if rest else (None, name)


def refusal(error: Exception, reason: str) -> LlmResponse:
    """Return the answer in place of a request that was refused, by which the run ends."""
    return LlmResponse(error_code=reason, error_message=str(error), turn_complete=True)


_ACTIONS = {"skip_summarization", "state_delta", "transfer_to_agent", "transfer_reason", "escalate"}


def actions_in(context: ToolContext) -> dict[str, Any]:
    """Return what a tool did besides its result, as it is recorded: a change of state, a transfer,
    an end.
    """
    return dump_model(context.actions, exclude_none=True, exclude_defaults=True, include=_ACTIONS)


def comparable(request: Json) -> Json:
    """Return a request without its model, as a tape compares it."""
    return comparable_request(request, lambda message: message, "instructions", "settings")
