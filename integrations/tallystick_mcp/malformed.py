"""Lines that are no message: answered with an error of JSON-RPC, where the SDK answers nothing."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError


class AnsweredReads:
    """The messages of a stream; what comes between them and is none is answered on `write`.

    A client that asked so waits for no answer that never comes. The answer has the id of the
    request where one can be read, else null, and repeats nothing of the line.
    """

    def __init__(self, read: Any, write: Any) -> None:
        self._read, self._write = read, write

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, which the SDK asks for."""
        return getattr(self._read, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises anyio.EndOfStream."""
        while True:
            item: SessionMessage | Exception = await self._read.receive()
            if not isinstance(item, ValidationError):
                return item
            answer = _answer(item)
            if answer is not None:
                await self._write.send(SessionMessage(answer))

    async def aclose(self) -> None:
        """Close the stream."""
        await self._read.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


def _answer(problem: ValidationError) -> JSONRPCError | None:
    """Return the answer to a line that is no message; None for an empty line."""
    errors = problem.errors(include_url=False, include_context=False)
    [first, *_] = errors
    if first["type"] != "json_invalid":
        # What lacks a field is told whole.
        request = next((each["input"] for each in errors if each["type"] == "missing"), None)
        text = "This is no message of JSON-RPC 2.0."
        return _error(request, INVALID_REQUEST, text)
    line = first["input"]
    if isinstance(line, str) and not line.strip():
        return None
    try:
        # This parser takes halves of characters too.
        request = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return _error(None, PARSE_ERROR, "This line is no JSON.")
    text = "This line is JSON, but not of whole characters: it has half of one (a lone surrogate)."
    return _error(request, PARSE_ERROR, text)


def _error(request: Any, code: int, message: str) -> JSONRPCError:
    """Return an error, with the id of the `request`, if it has one."""
    identity = request.get("id") if isinstance(request, dict) and "method" in request else None
    if not isinstance(identity, str | int) or isinstance(identity, bool):
        identity = None
    if isinstance(identity, str) and not identity.isprintable():
        identity = None
    return JSONRPCError(jsonrpc="2.0", id=identity, error=ErrorData(code=code, message=message))
