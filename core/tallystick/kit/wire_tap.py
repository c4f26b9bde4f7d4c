"""The wire tap: record what an HTTP client sends for the model step under way.

It is recorded beside the request that the runtime reports. Only the method, the address without its
query and the body are recorded, and of the answer its status: never a header, which has
credentials; no query, in which some providers take a key; and of a form, which asks for tokens,
only the names of its fields. Receipts, from which nothing is ever removed, name the server and no
path.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from tallystick.kit.rendering import recordable_parameters
from tallystick.recorder import Step, current_step
from tallystick.records import Json

_attributed: ContextVar[Step | None] = ContextVar("tallystick_asking", default=None)


class _Client(Protocol):
    """The part of `httpx.Client`, `httpx.AsyncClient` and compatible clients that is used here."""

    event_hooks: Any


C = TypeVar("C", bound=_Client)

_FORM = "application/x-www-form-urlencoded"


def attribute_requests(step: Step) -> None:
    """Attribute to `step` the requests that this context sends from now on, until the step ends."""
    _attributed.set(step)


def tap(client: C) -> C:
    """Record the requests and responses of an httpx client:
    `ChatOpenAI(http_client=tap(httpx.Client()))`.

    Its requests become `wire_request` entries of the model step under way, and their status and
    time `wire_response` entries. Requests outside of a step are not recorded. Tapping a client
    twice changes nothing.
    """
    hooks: dict[str, list[Any]] = client.event_hooks
    if any(hook in (_on_request, _on_request_async) for hook in hooks.get("request", ())):
        return client
    is_async = hasattr(client, "aclose")
    client.event_hooks = {
        **hooks,
        "request": [*hooks.get("request", ()), _on_request_async if is_async else _on_request],
        "response": [*hooks.get("response", ()), _on_response_async if is_async else _on_response],
    }
    return client


def _on_request(request: Any) -> None:
    step = _step()
    if step is not None:
        try:
            _record_request(step, request, request.read())
        except Exception as error:  # noqa: BLE001 - the request goes first; counted
            step.run.count_gap("wire", error)


async def _on_request_async(request: Any) -> None:
    step = _step()
    if step is not None:
        try:
            _record_request(step, request, await request.aread())
        except Exception as error:  # noqa: BLE001 - the request goes first; counted
            step.run.count_gap("wire", error)


def _on_response(response: Any) -> None:
    step = _step()
    if step is not None:
        try:
            _record_response(step, response)
        except Exception as error:  # noqa: BLE001 - the response goes first; counted
            step.run.count_gap("wire", error)


async def _on_response_async(response: Any) -> None:
    _on_response(response)


def _step() -> Step | None:
    """Return the open model step that this context sends for, or None."""
    for step in (_attributed.get(), current_step()):
        if step is not None and step.is_open and step.kind == "model_call":
            return step
    return None


def _record_request(step: Step, request: Any, body: bytes) -> None:
    facts = {"method": str(request.method), "bytes": len(body)}
    url, form = str(request.url), str(request.headers.get("content-type", "")).startswith(_FORM)
    step.record(
        "wire_request",
        lambda: {
            "level": "wire",
            **facts,
            "url": _address(url),
            "body": _readable(body, form=form),
        },
        summary={**facts, "server": _server(url)},
    )


def _record_response(step: Step, response: Any) -> None:
    facts = {"status": int(response.status_code), "after_us": step.elapsed_us()}
    url = str(response.request.url)
    step.record(
        "wire_response",
        {"level": "wire", **facts, "url": _address(url)},
        summary={**facts, "server": _server(url)},
    )


def _address(url: str) -> str:
    """Return scheme, host and path: neither a user nor a query."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return urlunsplit(
        (parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path, "", "")
    )


def _server(url: str) -> str:
    parts = urlsplit(_address(url))
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))


def _readable(body: bytes, *, form: bool) -> Json:
    """Return JSON without credentials, of a form the names of its fields, other text as text, and
    other bytes as base64.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}
    if form:
        return _names(dict(parse_qsl(text, keep_blank_values=True)))
    try:
        value: Json = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, dict):
        return _names(value) if "grant_type" in value else recordable_parameters(value)
    return value


def _names(fields: Mapping[str, Any]) -> Json:
    return {"fields": [*sorted(fields)]}
