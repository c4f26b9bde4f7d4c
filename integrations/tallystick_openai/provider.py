"""The Responses API behind the port of `bound.call_model`, on OpenAI's own SDK."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from tallystick.errors import SettingsError, require
from tallystick.kit import (
    SdkProvider,
    arguments_of,
    check_flag,
    check_model_name,
    check_word,
    names_in,
    response_facts,
    split_request,
    tap,
)
from tallystick.ports import ModelEvent, ModelResponse, ModelResponseStream
from tallystick.records import (
    CompiledContext,
    Json,
    ModelAnswer,
    ModelToolCall,
    StopReason,
)
from tallystick.tokens import usage_of
from tallystick_openai.check import check_request
from tallystick_openai.render import render_responses

if TYPE_CHECKING:
    from openai import OpenAI

Continuation = Literal["stateless", "previous_response_id"]
"""Who keeps the state of a conversation: the tally, or OpenAI."""

_KEY = "OPENAI_API_KEY"
_ENCRYPTED = "reasoning.encrypted_content"
_REASONS = re.compile(r"o\d|gpt-[5-9](?!.*chat)")
"""Models whose reasoning goes back encrypted where nobody stores it."""
_COUNTED = (
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "reasoning",
    "text",
    "previous_response_id",
    "conversation",
    "truncation",
    "parallel_tool_calls",
)
"""Fields that the endpoint for counting knows."""
_DELTAS: dict[str, Literal["text", "reasoning", "tool_call"]] = {
    "response.output_text.delta": "text",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool_call",
}
_ENDS = ("response.completed", "response.failed", "response.incomplete")


class ResponsesProvider(SdkProvider):
    """A model behind OpenAI's Responses API: `bound.call_model(compiled, provider=…)`.

    Timeouts and retries are those of the `client`.
    """

    name = "openai"
    compared = ("instructions", "input", "tools")

    def __init__(
        self,
        model: str | None = None,
        *,
        client: OpenAI | None = None,
        continuation: Continuation = "stateless",
        breakpoints: bool = True,
        cache_key: str | None = None,
        any_model: bool = False,
        wire: bool = False,
    ) -> None:
        """`model` None takes that of each compile. By default the client is made of the environment
        (`OPENAI_API_KEY`). With `continuation="previous_response_id"` OpenAI stores the answers and
        gets only what is new. `any_model` sends names that the SDK does not know, as servers of
        your own have; `wire` records the bytes that the client sends.

        Raises InvalidInput; nothing is sent and no key is needed yet.
        """
        check_word("continuation", continuation, Continuation)
        check_flag("any_model", any_model)
        check_flag("wire", wire)
        self.model = model
        self._client, self._wire, self._any_model = client, wire, any_model
        self._options: dict[str, Any] = {
            "breakpoints": breakpoints,
            "cache_key": cache_key,
            "continue_stored": continuation == "previous_response_id",
        }

    @cached_property
    def client(self) -> OpenAI:
        """The client of the SDK. Raises MissingExtra, SettingsError without a key."""
        require("openai", extra="openai")
        if self._client is not None:
            if self._wire:
                tap(self._client._client)
            return self._client
        if not os.environ.get(_KEY):
            raise SettingsError(
                f"{_KEY} is not set. Set it, or give the provider a client of your own: "
                "ResponsesProvider(…, client=OpenAI(api_key=…))."
            )
        import openai

        if not self._wire:
            return openai.OpenAI()
        return openai.OpenAI(http_client=tap(openai.DefaultHttpxClient()))

    def render(self, compiled: CompiledContext, **parameters: Any) -> dict[str, Any]:
        """Return the body for a compiled context; see `render_responses`.

        A model that reasons is asked for its reasoning in a form that can go back.
        """
        options = {"model": self.model, **self._options, **parameters}
        request = render_responses(compiled, **options)
        if not request["store"] and _REASONS.match(request["model"]):
            request["include"] = [*dict.fromkeys([*request.get("include", ()), _ENCRYPTED])]
        return request

    def check(self, request: Mapping[str, Any]) -> None:
        """Raise InvalidContext for what OpenAI would refuse, and InvalidInput for a model that the
        SDK does not know.
        """
        check_request(request)
        if not self._any_model and self._is_openai:
            check_model_name(request["model"], _known_models(), provider="OpenAI")

    @property
    def _is_openai(self) -> bool:
        """True unless the client, or the environment, names a server of its own."""
        if self._client is None:
            return not os.environ.get("OPENAI_BASE_URL")
        return self._client.base_url.host.endswith("openai.com")

    def count_tokens(self, request: Mapping[str, Any]) -> int:
        """Return the input tokens of a request, as OpenAI counts them; it is sent there."""
        counted = {name: request[name] for name in _COUNTED if name in request}
        model = counted.pop("model")
        result = self.client.responses.input_tokens.count(model=model, extra_body=counted)
        return result.input_tokens

    def send(self, request: Mapping[str, Any]) -> ModelResponse:
        """Send a request and return its answer. Raises what the SDK raises."""
        fixed, rest = split_request(request, ("model", "input"))
        raw = self.client.responses.with_raw_response.create(**fixed, extra_body=rest)
        return ModelResponse(
            raw.parse().to_dict(mode="json"), response_facts(raw.headers, request_id="x-request-id")
        )

    @contextmanager
    def stream(self, request: Mapping[str, Any]) -> Iterator[ModelResponseStream]:
        """Send a request and yield its answer as it comes. Raises what the SDK raises."""
        fixed, rest = split_request(request, ("model", "input"))
        with self.client.responses.create(**fixed, stream=True, extra_body=rest) as events:
            facts = response_facts(events.response.headers, request_id="x-request-id")
            yield _ResponseEvents(events, facts)

    def parse(self, response: Mapping[str, Any]) -> ModelAnswer:
        """Return an answer in no provider's form."""
        return parse_response(response)

    def compact(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request whose input OpenAI has compacted: the messages of the user, and one item
        for everything else. The request is sent there. Raises what the SDK raises.
        """
        self.check(request)
        fields = {
            name: request[name]
            for name in ("instructions", "previous_response_id")
            if name in request
        }
        compacted = self.client.responses.compact(
            model=request["model"], input=request["input"], extra_body=fields
        )
        output = [item.to_dict(mode="json") for item in compacted.output]
        rest = {name: value for name, value in request.items() if name != "previous_response_id"}
        return {**rest, "input": output}


def parse_response(response: Mapping[str, Any]) -> ModelAnswer:
    """Return a Response, as JSON, as an answer in no provider's form."""
    texts: list[str] = []
    refusals: list[str] = []
    reasoning: list[str] = []
    calls: list[ModelToolCall] = []
    output: Sequence[Mapping[str, Any]] = response.get("output") or ()
    for item in output:
        if item["type"] == "message":
            for part in item.get("content") or ():
                if part["type"] == "output_text":
                    texts.append(part["text"])
                elif part["type"] == "refusal":
                    refusals.append(part["refusal"])
        elif item["type"] == "reasoning":
            reasoning += [part["text"] for part in item.get("summary") or ()]
        elif item["type"] == "function_call" and item.get("status") in (None, "completed"):
            calls.append(
                ModelToolCall(
                    id=item["call_id"],
                    name=item["name"],
                    arguments=arguments_of(item["arguments"]),
                )
            )
    native: dict[str, Any] = {
        "output": [dict(item) for item in output if item.get("status") in (None, "completed")],
        "response_id": response.get("id"),
        "stored": bool(response.get("store")),
    }
    return ModelAnswer(
        text="".join(texts),
        tool_calls=tuple(calls),
        stop=_stop(response, calls, refusals),
        refusal="".join(refusals) or None,
        reasoning="\n\n".join(reasoning),
        model=response.get("model"),
        response_id=response.get("id"),
        usage=usage_of(response.get("usage")),
        native={"openai": native} if native["output"] else {},
    )


def _stop(
    response: Mapping[str, Any], calls: Sequence[ModelToolCall], refusals: Sequence[str]
) -> StopReason:
    status = response.get("status")
    if status == "incomplete":
        reason = (response.get("incomplete_details") or {}).get("reason")
        return "filtered" if reason == "content_filter" else "length"
    if status in ("failed", "cancelled"):
        return "failed"
    if status in ("in_progress", "queued"):
        return "broken_off"
    if refusals:
        return "refusal"
    return "tool_calls" if calls else "completed"


class _ResponseEvents:
    """The events of a streamed Response, and what they have made of it so far."""

    def __init__(self, events: Any, facts: dict[str, Any]) -> None:
        self._events, self._facts = events, facts
        self._response: dict[str, Any] = {"output": [], "status": "in_progress"}
        self._items: dict[int, dict[str, Any]] = {}
        self._is_whole = False

    def __iter__(self) -> Iterator[ModelEvent]:
        for event in self._events:
            self._take(event)
            kind = _DELTAS.get(event.type)
            yield ModelEvent(kind or "other", "" if kind is None else event.delta, event)

    def _take(self, event: Any) -> None:
        if event.type in (*_ENDS, "response.created", "response.in_progress"):
            self._response = event.response.to_dict(mode="json")
            self._is_whole = event.type in _ENDS
        elif event.type in ("response.output_item.added", "response.output_item.done"):
            self._items[event.output_index] = event.item.to_dict(mode="json")
        elif event.type == "response.output_text.delta":
            item = self._items.get(event.output_index)
            if item is not None:
                text = {"type": "output_text", "text": "", "annotations": []}
                parts = item.setdefault("content", [])
                while len(parts) <= event.content_index:
                    parts.append(dict(text))
                parts[event.content_index]["text"] += event.delta

    def response(self) -> ModelResponse:
        """Return the Response as far as it came."""
        if self._is_whole:
            return ModelResponse(self._response, self._facts)
        items: list[Json] = [item for _, item in sorted(self._items.items())]
        return ModelResponse({**self._response, "output": items}, self._facts)


def _known_models() -> frozenset[str]:
    require("openai", extra="openai")
    from openai.types.shared import ResponsesModel

    return names_in(ResponsesModel)
