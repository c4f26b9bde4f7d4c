"""Answers: one shape for every result, problem+json for every error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from tallystick.errors import InvalidInput, TallystickError
from tallystick.errors.base import explain_validation
from tallystick.logs import get_logger
from tallystick.records import JsonObject, Record
from tallystick.tally import BoundTally, Recalled
from tallystick_server.guard import problem_of

T = TypeVar("T")
_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    413: "too_large",
    415: "unsupported_media_type",
}
CUT_OFF = "The request took too long to arrive, or was cut off."
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Answer(BaseModel, Generic[T]):
    """What every call answers: the result, and as whom and where it was done."""

    schema_version: int = 1
    """Raised when this shape changes."""
    actor: JsonObject
    """The identity that the token gave the caller."""
    scope: str
    """The scope in which the call worked."""
    result: T
    next: str | None = Field(default=None, description="The cursor of the next page of a list.")


class Problem(BaseModel):
    """An error, as RFC 9457 has it, with the code and the facts of ours."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    facts: JsonObject


def answer(
    bound: BoundTally,
    result: Any,
    *,
    status: int = 200,
    next_page: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a result as an answer."""
    head = {"schema_version": 1, "actor": bound.actor.identity(), "scope": str(bound.scope)}
    last = json.dumps(next_page)
    text = f'{json.dumps(head)[:-1]}, "result": {_json(result)}, "next": {last}}}'
    return Response(text.encode(), status, dict(headers or {}), "application/json")


def _json(value: Any) -> str:
    """Return a result as JSON text. A record writes its own, which is faster than by way of plain
    values.
    """
    if isinstance(value, Record):
        return value.dumps()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_json, value))}]"
    if isinstance(value, Recalled):
        others = json.dumps({**_facts_of(value), "warnings": list(value.warnings)})
        return f'{{"hits": {_json(value.hits)}, {others[1:]}'
    return json.dumps(value)


def _facts_of(recalled: Recalled) -> dict[str, Any]:
    return {
        "path": recalled.path,
        "candidates": recalled.candidates,
        "withheld": recalled.withheld,
        "confidence": recalled.confidence,
        "confident": recalled.confident,
    }


def plain(value: Any) -> Any:
    """Return a result as JSON values, from which the client makes the same result."""
    return json.loads(_json(value))


def add_handlers(app: FastAPI) -> None:
    """Let every error of an application be answered as a problem, and none with a traceback."""

    @app.exception_handler(TallystickError)
    async def _ours(request: Request, error: TallystickError) -> Response:
        status, headers, body = problem_of(error)
        return Response(body, status, headers)

    @app.exception_handler(RequestValidationError)
    async def _answer_malformed(request: Request, error: RequestValidationError) -> Response:
        place = next(iter(_Explained(error).errors()), {"loc": ()})["loc"]
        argument = str(place[0]) if place else None
        return await _ours(request, InvalidInput(f"{_explain(error)}.", argument=argument))

    @app.exception_handler(HTTPException)
    async def _of_http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400:
            # The framework's, for a body that no parser takes, such as one nested too deeply.
            return await _ours(request, InvalidInput("The body is no JSON that can be read."))
        if error.status_code == 404:
            return _problem(404, "There is no such path here: /v1/openapi.json lists them.")
        if error.status_code == 405:
            # The framework names the methods of one route alone.
            methods = ", ".join(_methods(request))
            return _problem(405, f"This path takes {methods}.", {"allow": methods})
        return _problem(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(TimeoutError)
    @app.exception_handler(ClientDisconnect)
    async def _cut_off(request: Request, error: Exception) -> Response:
        return _problem(408, CUT_OFF)

    @app.exception_handler(Exception)
    async def _unknown(request: Request, error: Exception) -> Response:
        get_logger("server").error(
            "server.failed", error=type(error).__name__, path=request.url.path
        )
        return _problem(500, "The server failed. Its log says more.")


def _problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    code = _CODES.get(status, "http_error" if status < 500 else "internal_error")
    problem = Problem(
        type="about:blank",
        title=code.replace("_", " "),
        status=status,
        detail=detail,
        code=code,
        facts={},
    )
    return JSONResponse(
        problem.model_dump(), status, dict(headers or {}), "application/problem+json"
    )


def _methods(request: Request) -> list[str]:
    """Return the methods that the path of a request takes."""
    routes = request.app.router.routes
    scopes = [{**request.scope, "method": method} for method in _METHODS]
    return [
        scope["method"]
        for scope in scopes
        if any(route.matches(dict(scope))[0] == Match.FULL for route in routes)
    ]


class _Explained:
    """The errors of a request in the shape that `explain_validation` reads, without their place in
    the request, which says body or query, unless they are of all of it.
    """

    def __init__(self, error: RequestValidationError) -> None:
        self._error = error

    def error_count(self) -> int:
        return len(self._error.errors())

    def errors(self, **_: bool) -> list[dict[str, Any]]:
        places = ((each, tuple(each["loc"])) for each in self._error.errors())
        return [{**each, "loc": place[1:] or place} for each, place in places]


def _explain(error: RequestValidationError) -> str:
    return explain_validation(_Explained(error))
