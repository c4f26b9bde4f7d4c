"""The application: every route under `/v1`, behind the guard."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any, cast

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from tallystick import __version__
from tallystick.aio import in_thread
from tallystick.records import Actor
from tallystick.tally import Tally
from tallystick_server.answers import Answer, add_handlers
from tallystick_server.bodies import UnreadRequest, body_limit, read_in_thread
from tallystick_server.dashboard import Entrance, dashboard_app
from tallystick_server.dashboard.entrance import PREFIX as DASHBOARD
from tallystick_server.endpoints import RESULT, add_operations
from tallystick_server.guard import Guard
from tallystick_server.items import add_items
from tallystick_server.model_calls import add_model_calls
from tallystick_server.open_runs import OpenRuns
from tallystick_server.recording import add_recording
from tallystick_server.routes import PREFIX
from tallystick_server.streams import add_streams
from tallystick_server.system import add_health, add_system
from tallystick_server.uploads import FORM, body_of_form

_DESCRIPTION = (
    "Memory, context and receipts over HTTP. Every answer says as whom and in which scope it was "
    "done; every error is a problem with a stable code."
)


class Server(Guard):
    """The application behind its guard, with the lifespan that a host enters."""

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Return the block in which it is in use, for the application that mounts it."""
        routes = cast(FastAPI, self.application)
        return cast(AbstractAsyncContextManager[None], routes.router.lifespan_context(routes))


def create_app(
    tally: Tally,
    *,
    local: Actor | None = None,
    hosts: Iterable[str] = (),
    entrance: Entrance | None = None,
) -> Server:
    """Return the application that offers a tally over HTTP, behind its guard.

    Serve it, or mount it in an application of your own and enter its `lifespan` in that one's. The
    tally stays yours to close. A caller without a token is refused, or with `local` acts as that
    actor: give it only where the application listens on a socket of `bind_socket`. `hosts` are
    names by which it is reached, beside those of the loopback. The links of an `entrance` let a
    browser into its dashboard, at `/ui`.
    """
    return Server(
        _routes(tally),
        tally,
        surface="http",
        local=local,
        hosts=hosts,
        body_limit=body_limit,
        doorstep=entrance or Entrance(tally),
    )


def openapi() -> dict[str, Any]:
    """Return the description of the routes, as OpenAPI 3.1."""
    return _describe_api()


@cache
def _describe_api() -> dict[str, Any]:
    described = _routes(None).openapi()
    described["components"]["securitySchemes"] = {"token": _TOKEN}
    described["security"] = [{"token": []}]
    for methods in described["paths"].values():
        for entry in methods.values():
            # FastAPI has the model under the type of an answer that is no error.
            problem = entry["responses"]["default"]["content"]
            problem["application/problem+json"] = problem.pop("application/json")
            for parameter in entry.get("parameters", ()):
                _leave_out_defaults(parameter["schema"])
                if parameter["in"] == "query":
                    _say_texts(parameter)
    for schema in described["components"]["schemas"].values():
        _leave_out_defaults(schema)
    return described


_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of `tally token make`. On the socket of `tally serve` none is needed.",
}


def _say_texts(parameter: dict[str, Any]) -> None:
    """Say what a text in a URL may be: an empty one is none, and a number of microseconds is no
    time.
    """
    schema = parameter["schema"]
    if parameter["required"] and schema.get("type") == "string":
        schema.setdefault("minLength", 1)
    for part in (schema, *schema.get("anyOf", ())):
        choices = part.get("anyOf", ())
        if any(each.get("format") == "date-time" for each in choices):
            part["anyOf"] = [each for each in choices if each.get("type") != "integer"]


def _leave_out_defaults(schema: dict[str, Any]) -> None:
    """Name the defaults of a schema in its descriptions alone: generators of clients take a field
    with a default for one that is always there.
    """
    default = schema.pop("default", None)
    if default not in (None, [], {}, ""):
        described = str(schema.get("description", "")).rstrip(".")
        schema["description"] = f"{described}. Default: {json.dumps(default)}.".lstrip(". ")
    for several in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for each in schema.get(several, ()):
            _leave_out_defaults(each)
    for each in schema.get("properties", {}).values():
        _leave_out_defaults(each)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            _leave_out_defaults(schema[inner])


_FILES = "/documents/file"
"""The route that takes a form with a file too."""


class _Route(APIRoute):
    """A route that takes a body of JSON's type alone, but for a file. Releases of FastAPI differ in
    what they take, and a page of another origin may send text, or a body without a type, unasked.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def of_json(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            is_json = kind == "application/json" or kind.endswith("+json")
            content = await request.body()
            if content and kind == FORM and request.url.path.endswith(_FILES):
                return await handle(UnreadRequest(request, await in_thread(body_of_form, content)))
            if content and not is_json:
                raise HTTPException(
                    415,
                    "A body is JSON here: send it with the header content-type: application/json.",
                )
            return await handle(UnreadRequest(request, content))

        return of_json


class _Routes(APIRouter):
    """Routes that describe their answers only where the description is asked for: of each answer
    that is described a validator is built, which takes some megabytes and no request uses.
    """

    is_described = False

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=_Route, **options)

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Add a route."""
        responses = options.pop("responses", {})
        if self.is_described:
            options["responses"] = {code: _with_model(each) for code, each in responses.items()}
        super().add_api_route(path, read_in_thread(endpoint), **options)


def _with_model(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a response, with the model of the answer that has its result."""
    described = dict(response)
    if RESULT in described:
        described["model"] = Answer[described.pop(RESULT)]  # type: ignore[misc]
    return described


class _Application(FastAPI):
    """The application, whose routes but those of health are built when one of them is asked for: a
    server that nobody calls is spared them, which is most servers for most of their time.

    Whoever looks at `routes` has them all. Thread-safe.
    """

    def __init__(self, tally: Tally | None, **options: Any) -> None:
        super().__init__(**options)
        self.state.tally = tally
        self.state.open_runs = OpenRuns()
        self._building = threading.Lock()
        self._is_complete = False
        # First: a page is found without the other routes.
        self.mount(DASHBOARD, dashboard_app(tally))
        self.include_router(_router(tally is None, add_health))
        self._first = tuple(self.router.routes)
        add_handlers(self)

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes, all of them."""
        self.complete()
        return super().routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. What no route has yet waits until all are there, on a thread, so that
        pages and probes are answered meanwhile.
        """
        if not self._is_complete and scope["type"] == "http":
            # A copy: what matches leaves its notes in the scope.
            matches = (route.matches(dict(scope))[0] for route in self._first)
            if all(match == Match.NONE for match in matches):
                await in_thread(self.complete)
        await super().__call__(scope, receive, send)

    def complete(self) -> None:
        """Build the routes that are not there yet."""
        if self._is_complete:
            return
        with self._building:
            if self._is_complete:
                return
            self.include_router(
                _router(
                    self.state.tally is None,
                    *(add_recording, add_model_calls, add_system),
                    *(add_items, add_streams, add_operations),
                )
            )
            # FastAPI builds a part when a path is matched first, which would hold up the loop.
            for route in self.router.routes:
                route.matches({"type": "http", "path": PREFIX, "method": "GET", "headers": []})
            # Last, so that no request meets half of the routes: it waits for all or knows of none.
            self._is_complete = True


@cache
def _router(is_described: bool, *parts: Callable[[APIRouter], None]) -> _Routes:
    """Return the routes that some parts add. No tally is part of them: a request has its own."""
    router = _Routes(prefix=PREFIX)
    router.is_described = is_described
    for add in parts:
        add(router)
    return router


def _routes(tally: Tally | None) -> _Application:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.open_runs.end_all()

    app = _Application(
        tally,
        title="Tallystick",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    if tally is not None:
        app.openapi = openapi  # type: ignore[method-assign]
    return app
