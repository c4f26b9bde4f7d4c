"""The Messages API behind the port of `bound.call_model`, on Anthropic's own SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from tallystick.errors import SettingsError, require
from tallystick.kit import (
    SdkProvider,
    check_count,
    check_flag,
    check_model_name,
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
from tallystick_anthropic.check import check_request
from tallystick_anthropic.render import render_messages

if TYPE_CHECKING:
    from anthropic import Anthropic

_MOST = 4_096
"""Tokens of an answer, where neither the provider nor the compile says another number."""
_COUNTED = ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config")
"""Fields that the endpoint for counting knows."""
_STOPS: dict[str | None, StopReason] = {
    None: "broken_off",
    "end_turn": "completed",
    "stop_sequence": "completed",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "paused",
    "refusal": "refusal",
}
_DELTAS: dict[str, tuple[Literal["text", "reasoning", "tool_call"], str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("reasoning", "thinking"),
    "input_json_delta": ("tool_call", "partial_json"),
}


class MessagesProvider(SdkProvider):
    """A model behind Anthropic's Messages API: `bound.call_model(compiled, provider=…)`.

    Timeouts and retries are those of the `client`.
    """

    name = "anthropic"
    compared = ("system", "messages", "tools")

    def __init__(
        self,
        model: str | None = None,
        *,
        client: Anthropic | None = None,
        max_tokens: int | None = None,
        thinking: bool | Mapping[str, Any] = False,
        breakpoints: bool = True,
        ttl: Literal["5m", "1h"] | None = None,
        any_model: bool = False,
        wire: bool = False,
    ) -> None:
        """`model` None takes that of each compile, `max_tokens` None its `response_reserve`, or
        4,096. By default the client is made of the environment (`ANTHROPIC_API_KEY`). `any_model`
        sends names that the SDK does not know; `wire` records the bytes that the client sends.

        Raises InvalidInput; nothing is sent and no key is needed yet.
        """
        if max_tokens is not None:
            check_count("max_tokens", max_tokens, least=1)
        check_flag("any_model", any_model)
        check_flag("wire", wire)
        self.model = model
        self._client, self._wire, self._any_model = client, wire, any_model
        self._max_tokens = max_tokens
        self._options: dict[str, Any] = {
            "breakpoints": breakpoints,
            "ttl": ttl,
            "thinking": thinking,
        }

    @cached_property
    def client(self) -> Anthropic:
        """The client of the SDK. Raises MissingExtra, SettingsError without a key."""
        require("anthropic", extra="anthropic")
        import anthropic

        own = "give the provider a client of your own: MessagesProvider(…, client=Anthropic(…))"
        client = self._client or signed_in(anthropic.Anthropic(), own)
        if self._wire:
            tap(client._client)
        return client

    def render(self, compiled: CompiledContext, **parameters: Any) -> dict[str, Any]:
        """Return the body for a compiled context; see `render_messages`."""
        reserve = compiled.token_allocation.get("response_reserve", 0)
        most = self._max_tokens or reserve or _MOST
        return render_messages(
            compiled, **{"model": self.model, "max_tokens": most, **self._options, **parameters}
        )

    def check(self, request: Mapping[str, Any]) -> None:
        """Raise InvalidContext for what Anthropic would refuse, and InvalidInput for a model that
        the SDK does not know.
        """
        check_request(request)
        is_own = self._client is None or self._client.base_url.host.endswith("anthropic.com")
        if not self._any_model and is_own:
            check_model_name(request["model"], _known_models(), provider="Anthropic")

    def count_tokens(self, request: Mapping[str, Any]) -> int:
        """Return the input tokens of a request, as Anthropic counts them. The request is sent
        there.
        """
        counted = {name: request[name] for name in _COUNTED if name in request}
        model, messages = counted.pop("model"), counted.pop("messages")
        result = self.client.messages.count_tokens(
            model=model, messages=messages, extra_body=counted
        )
        return result.input_tokens

    def send(self, request: Mapping[str, Any]) -> ModelResponse:
        """Send a request and return its answer. Raises what the SDK raises."""
        fixed, rest = split_request(request, ("model", "max_tokens", "messages"))
        raw = self.client.messages.with_raw_response.create(**fixed, extra_body=rest)
        message = raw.parse()
        return ModelResponse(
            message.to_dict(mode="json"), response_facts(raw.headers, request_id="request-id")
        )

    @contextmanager
    def stream(self, request: Mapping[str, Any]) -> Iterator[ModelResponseStream]:
        """Send a request and yield its answer as it comes. Raises what the SDK raises."""
        fixed, rest = split_request(request, ("model", "max_tokens", "messages"))
        with self.client.messages.stream(**fixed, extra_body=rest) as events:
            yield _MessageEvents(
                events, response_facts(events.response.headers, request_id="request-id")
            )

    def parse(self, response: Mapping[str, Any]) -> ModelAnswer:
        """Return an answer in no provider's form."""
        return parse_message(response)


def signed_in(client: Anthropic, otherwise: str) -> Anthropic:
    """Return a client that has a key, a token, or a signed-in profile, as the SDK finds them: it
    complains only when it sends. Raises SettingsError, which says what to do `otherwise`.
    """
    if client.api_key or client.auth_token or getattr(client, "credentials", None):
        return client
    raise SettingsError(f"ANTHROPIC_API_KEY is not set. Set it, or {otherwise}.")


def parse_message(response: Mapping[str, Any]) -> ModelAnswer:
    """Return a Message, as JSON, as an answer in no provider's form."""
    blocks: Sequence[Mapping[str, Any]] = response.get("content") or ()
    stop = _STOPS.get(response.get("stop_reason"), "completed")
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    calls = tuple(
        ModelToolCall(id=block["id"], name=block["name"], arguments=block.get("input") or {})
        for block in blocks
        if block["type"] == "tool_use"
    )
    content: list[Json] = [dict(block) for block in blocks]
    return ModelAnswer(
        text="".join(texts),
        tool_calls=calls,
        stop=stop,
        refusal="".join(texts) if stop == "refusal" else None,
        reasoning="\n\n".join(
            block.get("thinking", "") for block in blocks if block["type"] == "thinking"
        ),
        model=response.get("model"),
        response_id=response.get("id"),
        usage=usage_of(response.get("usage")),
        native={"anthropic": {"content": content}} if content and stop != "broken_off" else {},
    )


class _MessageEvents:
    """The events of a streamed Message, and what they have made of it so far."""

    def __init__(self, events: Any, facts: dict[str, Any]) -> None:
        self._events, self._facts = events, facts
        self._message: Any = None
        self._ended: set[int] = set()

    def __iter__(self) -> Iterator[ModelEvent]:
        for event in self._events:
            if event.type == "message_start":
                self._message = event.message
            elif event.type == "content_block_stop":
                self._ended.add(event.index)
            if event.type == "content_block_delta" and event.delta.type in _DELTAS:
                kind, field = _DELTAS[event.delta.type]
                yield ModelEvent(kind, getattr(event.delta, field), event)
            elif event.type not in ("text", "thinking", "input_json", "signature", "citation"):
                yield ModelEvent("other", "", event)

    def response(self) -> ModelResponse:
        """Return the Message as far as it came, without calls whose arguments have not ended."""
        if self._message is None:
            return ModelResponse({"content": []}, self._facts)
        body: dict[str, Any] = self._events.current_message_snapshot.to_dict(mode="json")
        body["content"] = [
            block
            for index, block in enumerate(body["content"])
            if index in self._ended or block["type"] == "text"
        ]
        return ModelResponse(body, self._facts)


def _known_models() -> frozenset[str]:
    require("anthropic", extra="anthropic")
    from anthropic.types import Model

    return names_in(Model)
