"""What providers of models have in common: readiness, headers, native parts, tools, tapes; and what
learning models of the runtimes declare.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cached_property
from typing import Any, get_args
from urllib.parse import urlsplit

from pydantic import ValidationError

from tallystick.errors import InvalidContext, InvalidInput
from tallystick.kit.arguments import check_player
from tallystick.kit.rendering import changed_items
from tallystick.ports import ModelEvent, ModelResponse, ModelResponseStream
from tallystick.recorder import Player
from tallystick.records import CompiledContext, ContextItem, Json, ModelAnswer, ProviderDeclaration

_LIMIT = re.compile(r"(?:^x-|-)ratelimit-|^retry-after")


def check_model_name(model: str | None, known: Collection[str], *, provider: str) -> None:
    """Raise InvalidInput for a model that this release of the SDK does not know, with the likeliest
    ones that it does. A snapshot of a known model, such as `gpt-5-2026-01-01`, is known.
    """
    if model is None or model in known or any(model.startswith(f"{name}-2") for name in known):
        return
    likely = get_close_matches(model, sorted(known), n=3, cutoff=0.5)
    hint = f" Did you mean {', '.join(likely)}?" if likely else ""
    raise InvalidInput(
        f"{model!r} is no model that the installed SDK of {provider} knows.{hint} Upgrade the SDK, "
        "or say any_model=True where you know better.",
        argument="model",
    )


def response_facts(headers: Mapping[str, str], *, request_id: str) -> dict[str, Any]:
    """Return what the headers of an answer say of limits, and the id of the request: nothing else
    of them is recorded.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    limits: dict[str, Any] = {
        name: value for name, value in sorted(lowered.items()) if _LIMIT.search(name)
    }
    facts: dict[str, Any] = {"rate_limits": limits} if limits else {}
    if request_id in lowered:
        facts["request_id"] = lowered[request_id]
    return facts


def native_part(compiled: CompiledContext, provider: str) -> Callable[[ContextItem], Any]:
    """Return a function from an item to what the provider sent of it, which may go back as it was;
    None for an item that is not the provider's, or that the compiler changed.
    """
    changed = changed_items(compiled)

    def part(item: ContextItem) -> Any:
        native = item.metadata.get("native")
        if not isinstance(native, dict) or item.id in changed:
            return None
        return native.get(provider)

    return part


def images_of(item: ContextItem) -> list[Mapping[str, str]]:
    """Return the images of a message, from its `metadata["images"]`: each a `url`, or a
    `media_type` with `data` in base64.

    Raises InvalidContext for anything else.
    """
    images: Any = item.metadata.get("images") or []
    checked: list[Mapping[str, str]] = []
    for image in images if isinstance(images, list) else [images]:
        is_image = isinstance(image, dict) and (
            set(image) in ({"url"}, {"media_type", "data"})
            and all(isinstance(value, str) for value in image.values())
        )
        if not is_image:
            raise InvalidContext(
                f'An image of {item.id!r} is {{"url": …}}, or {{"media_type": …, "data": …}} with '
                "base64.",
                item_ids=(item.id,),
            )
        checked.append(image)
    return checked


def with_builtin_tools(
    tools: Sequence[dict[str, Any]], builtin: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return compiled tools, and behind them those of the provider in the order given. Raises
    InvalidInput for two of one name.
    """
    offered = [*tools, *(dict(tool) for tool in builtin)]
    names = [tool["name"] for tool in offered if "name" in tool]
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput(f"Two tools are named {', '.join(twice)}.", argument="tools")
    return offered


def check_pairs(calls: Mapping[str, str], results: Mapping[str, str]) -> None:
    """Raise InvalidContext unless calls and results pair; both map an id to its place in the
    request.
    """
    for call_id, place in calls.items():
        if call_id not in results:
            raise InvalidContext(
                f"{place}: the call {call_id!r} has no result.", item_ids=(call_id,)
            )
    for call_id, place in results.items():
        if call_id not in calls:
            raise InvalidContext(
                f"{place}: the result answers no call {call_id!r} before it.", item_ids=(call_id,)
            )


def split_request(
    request: Mapping[str, Any], names: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of a request that every release of the SDK has an argument for, and the
    rest: an older one sends fields too that it does not know. Raises InvalidInput.
    """
    if "stream" in request:
        raise InvalidInput("Use `stream` of the provider for a streamed answer.", argument="stream")
    rest = {name: value for name, value in request.items() if name not in names}
    return {name: request[name] for name in names}, rest


def names_in(union: Any) -> frozenset[str]:
    """Return the names of models that a union of literals in an SDK holds."""
    members = (name for member in get_args(union) for name in get_args(member))
    return frozenset(name for name in members if isinstance(name, str))


class SdkProvider(ABC):
    """The verbs that providers on an SDK have alike, for `ModelProvider`."""

    name: str
    model: str | None
    compared: tuple[str, ...]
    """Fields of a request by which a tape knows its call."""

    @cached_property
    @abstractmethod
    def client(self) -> Any:
        """The client of the SDK. Raises MissingExtra, SettingsError without a key."""

    def require_ready(self) -> None:
        """Raise MissingExtra without the SDK, and SettingsError without a key."""
        _ = self.client

    @abstractmethod
    def render(self, compiled: CompiledContext, **parameters: Any) -> dict[str, Any]:
        """Same as the port."""

    @abstractmethod
    def check(self, request: Mapping[str, Any]) -> None:
        """Same as the port."""

    @abstractmethod
    def send(self, request: Mapping[str, Any]) -> ModelResponse:
        """Same as the port."""

    @abstractmethod
    def parse(self, response: Mapping[str, Any]) -> ModelAnswer:
        """Same as the port."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return its answer as it is recorded: for `recordings.replay`."""
        self.check(request)
        body = self.send(request).body
        return {"answer": self.parse(body).recorded(), "native": body}

    def on_tape(self, player: Player) -> TapedProvider:
        """Return this provider as it answers from a tape: `bound.recordings.player(run)`."""
        return TapedProvider(self, player)


class TapedProvider:
    """A provider that answers from the tape of a recorded run: nothing is sent, and no key is
    needed.
    """

    def __init__(self, provider: SdkProvider, player: Player) -> None:
        check_player(player, "on_tape")
        self._provider, self._player = provider, player
        self.name, self.model = provider.name, provider.model

    def render(self, compiled: CompiledContext, **parameters: Any) -> dict[str, Any]:
        """Same as the provider."""
        return self._provider.render(compiled, **parameters)

    def check(self, request: Mapping[str, Any]) -> None:
        """Same as the provider."""
        self._provider.check(request)

    def parse(self, response: Mapping[str, Any]) -> ModelAnswer:
        """Same as the provider."""
        return self._provider.parse(response)

    def _comparable(self, request: Json) -> Json:
        """Return the parts of a request by which two calls are the same."""
        if not isinstance(request, dict):
            return request
        return {name: request.get(name) for name in self._provider.compared}

    def require_ready(self) -> None:
        """Return: a tape needs neither SDK nor key."""

    def count_tokens(self, request: Mapping[str, Any]) -> int:
        """Raise InvalidInput: a tape has no counts."""
        raise InvalidInput(
            "A tape counts no tokens. Call without `preflight`.", argument="preflight"
        )

    def send(self, request: Mapping[str, Any]) -> ModelResponse:
        """Return the recorded answer. Raises TapeDiverged, RecordedFailure, NotReplayable."""
        recorded: Any = self._player.model(dict(request), normal=self._comparable)
        return ModelResponse(recorded["native"])

    @contextmanager
    def stream(self, request: Mapping[str, Any]) -> Iterator[ModelResponseStream]:
        """Yield the recorded answer as a stream of one piece of text. Raises as `send`."""
        yield _Whole(self.send(request), self._provider)


class _Whole:
    """A recorded answer as a stream."""

    def __init__(self, response: ModelResponse, provider: SdkProvider) -> None:
        self._response, self._provider = response, provider

    def __iter__(self) -> Iterator[ModelEvent]:
        yield ModelEvent("text", self._provider.parse(self._response.body).text)

    def response(self) -> ModelResponse:
        """Return the recorded answer."""
        return self._response


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(address: object) -> bool:
    """Return True for the address of a server on this machine."""
    return urlsplit(str(address or "")).hostname in _LOOPBACK


def declare(
    name: str,
    model: str | None,
    *,
    address: object,
    local: bool | None,
    timeout_ms: int,
    longest_text: int,
    longest_answer: int,
    structured_output: bool,
) -> ProviderDeclaration:
    """Return what a model says of itself; it is local where its address is, unless `local` says.
    Raises InvalidInput for a limit that is none.
    """
    try:
        return ProviderDeclaration(
            name=name,
            model=model,
            local=is_loopback(address) if local is None else local,
            timeout_ms=timeout_ms,
            longest_text=longest_text,
            longest_answer=longest_answer,
            structured_output=structured_output,
        )
    except ValidationError as error:
        [first, *_] = error.errors()
        raise InvalidInput(
            f"`{'.'.join(map(str, first['loc']))}` of the model {name}: {first['msg']}."
        ) from error


class NamedLearning(ABC):
    """A model that learns for a tally behind the SDK of a provider, by its name. Thread-safe."""

    _provider: str

    def __init__(
        self,
        model: str,
        *,
        local: bool | None = None,
        timeout_ms: int = 60_000,
        longest_text: int = 100_000,
        longest_answer: int = 16_000,
        structured_output: bool = True,
    ) -> None:
        """Take the name; nothing is sent yet. Raises MissingExtra, SettingsError without a key, and
        InvalidInput for a limit that is none.
        """
        self._client = self._connect(timeout_ms)
        self.declaration: ProviderDeclaration = declare(
            self._provider,
            model,
            address=self._client.base_url,
            local=local,
            timeout_ms=timeout_ms,
            longest_text=longest_text,
            longest_answer=longest_answer,
            structured_output=structured_output,
        )

    @staticmethod
    @abstractmethod
    def _connect(timeout_ms: int) -> Any:
        """Return the client of the SDK."""
