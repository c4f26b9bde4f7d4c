"""Bodies: how long one may be on each route, and its reading in a thread.

A body is refused by its length before a byte of it is parsed. A long one is parsed and validated in
a worker thread, so that other callers are answered meanwhile.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Annotated, Any

from fastapi import Body, Request
from fastapi.responses import Response
from pydantic import TypeAdapter, ValidationError, WrapValidator

from tallystick.aio import in_thread
from tallystick.errors import InvalidInput
from tallystick.errors.base import explain_validation
from tallystick_server.guard import BODY_LIMIT
from tallystick_server.routes import BULK, PREFIX

BODY = "body"
"""The parameter of an endpoint that takes the body of a request."""
_MOST = 1024 * 1024
_SIGN_IN = 64 * 1024
_SHORT = 2 * 1024
"""Bytes that are parsed and validated faster than a thread takes them over."""
_MOST_NESTED = 500_000
"""Lists and objects of a body: each takes memory, and half a microsecond."""
_BULK = re.compile(
    "|".join(re.sub(r"\{[^}]*\}", "[^/]+", place.replace(" ", f" {PREFIX}")) for place in BULK)
)


def body_limit(place: str) -> int:
    """Return the bytes that a request may send to a place, such as `POST /v1/memories`."""
    if place == "POST /ui/sign-in":
        return _SIGN_IN
    if place == "POST /ui/documents/file":
        return BODY_LIMIT
    return BODY_LIMIT if _BULK.fullmatch(place) else _MOST


class UnreadRequest(Request):
    """A request whose body goes to its endpoint as it came."""

    def __init__(self, request: Request, content: bytes) -> None:
        super().__init__(request.scope, request.receive)
        self._content = content

    async def body(self) -> bytes:
        """Return the body."""
        return self._content

    async def json(self) -> Any:
        """Return the body: the endpoint parses it."""
        return self._content


def read_in_thread(
    endpoint: Callable[..., Awaitable[Response]],
) -> Callable[..., Awaitable[Response]]:
    """Return an endpoint whose body is parsed and validated, in a thread where it is long. Its
    description stays that of the body.
    """
    signature = inspect.signature(endpoint, eval_str=True)
    parameter = signature.parameters.get(BODY)
    if parameter is None:
        return endpoint
    checker: TypeAdapter[Any] = TypeAdapter(parameter.annotation)

    @wraps(endpoint)
    async def read(**values: Any) -> Response:
        content: bytes = values[BODY]
        if len(content) > _SHORT:
            values[BODY] = await in_thread(_read, checker, content)
        else:
            values[BODY] = _read(checker, content)
        return await endpoint(**values)

    hint: Any = parameter.annotation
    unread: Any = Annotated[hint, WrapValidator(lambda content, _: content), Body()]
    parameters = {**signature.parameters, BODY: parameter.replace(annotation=unread)}
    read.__signature__ = signature.replace(parameters=[*parameters.values()])  # type: ignore[attr-defined]
    return read


def _read(checker: TypeAdapter[Any], content: bytes) -> Any:
    """Return a body as its endpoint takes it. Raises InvalidInput."""
    if content.count(b"[") + content.count(b"{") > _MOST_NESTED:
        raise InvalidInput(f"body: more than {_MOST_NESTED:,} lists and objects. Send it in parts.")
    try:
        return checker.validate_python(json.loads(content))
    except ValidationError as error:
        place = error.errors(include_url=False, include_context=False, include_input=False)[0][
            "loc"
        ]
        argument = str(place[0]) if place else None
        told = f"{explain_validation(error, whole=BODY)}."
        raise InvalidInput(told, argument=argument) from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidInput(f"The body is no JSON: {error.msg}, at {where}.") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput("The body is no JSON that can be read.") from error
