"""The application: every route under `/v1`, behind the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any, cast

from fastapi import APIRouter, FastAPI

from tallystick import __version__
from tallystick.adapters.serving import BODY_LIMIT, Guard
from tallystick.records import Actor
from tallystick.tally import Tally
from tallystick_server.answers import Answer, add_handlers
from tallystick_server.dashboard import Entrance, dashboard_app
from tallystick_server.dashboard.entrance import PREFIX as DASHBOARD
from tallystick_server.endpoints import RESULT, add_operations
from tallystick_server.items import add_items
from tallystick_server.open_runs import OpenRuns
from tallystick_server.recording import add_recording
from tallystick_server.routes import PREFIX
from tallystick_server.streams import add_streams
from tallystick_server.system import add_system

__all__ = ["Server", "create_app", "openapi"]

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
    body_limit: int = BODY_LIMIT,
    entrance: Entrance | None = None,
) -> Server:
    """Return the application that offers a tally over HTTP, behind its guard.

    Serve it, or mount it in an application of your own and enter its `lifespan` in that one's. The
    tally stays yours to close. A caller without a token is refused, or with `local` acts as that
    actor: give it only where the application listens on a socket of `bind_socket`. `hosts` are
    names by which it is reached, beside those of the loopback. A request is `body_limit` bytes at
    most. The links of an `entrance` let a browser into its dashboard, at `/ui`.
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
    return _described()


@cache
def _described() -> dict[str, Any]:
    return _routes(None).openapi()


class _Routes(APIRouter):
    """Routes that describe their answers only where the description is asked for: of each answer
    that is described a validator is built, which takes some megabytes and no request uses.
    """

    is_described = False

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Add a route."""
        responses = options.pop("responses", {})
        if self.is_described:
            options["responses"] = {code: _with_model(each) for code, each in responses.items()}
        super().add_api_route(path, endpoint, **options)


def _with_model(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a response, with the model of the answer that has its result."""
    described = dict(response)
    if RESULT in described:
        described["model"] = Answer[described.pop(RESULT)]  # type: ignore[misc]
    return described


def _routes(tally: Tally | None) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.open_runs.end_all()

    app = FastAPI(
        title="Tallystick",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.tally = tally
    app.state.open_runs = OpenRuns()
    router = _Routes(prefix=PREFIX)
    if tally is None:
        router.is_described = True
    else:
        app.openapi = openapi  # type: ignore[method-assign]
    add_recording(router)
    add_system(router)
    add_items(router)
    add_streams(router)
    add_operations(router)
    # First: a page is found without the routes, which are built when one of them is asked for.
    app.mount(DASHBOARD, dashboard_app(tally))
    app.include_router(router)
    add_handlers(app)
    return app
