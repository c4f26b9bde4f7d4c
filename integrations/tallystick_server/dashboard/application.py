"""The application of the dashboard: its pages, and an error page for whatever goes wrong."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from tallystick.errors import TallystickError
from tallystick.logs import get_logger
from tallystick.operations.error_status import wire_status
from tallystick.tally import Tally
from tallystick_server.answers import CUT_OFF
from tallystick_server.dashboard import (
    changes,
    communities,
    documents,
    governance,
    making,
    memory,
    overview,
    replays,
    reviews,
    runs,
    steps,
    stewardship,
    synthesis,
    work,
)
from tallystick_server.dashboard.entrance import leave_with
from tallystick_server.dashboard.figures import Figures
from tallystick_server.dashboard.rendering import SafeHeaders
from tallystick_server.dashboard.visits import StaleForm, Visit, form_page, page, visit_of


def dashboard_app(tally: Tally | None) -> ASGIApp:
    """Return the application of the pages, for who was let in."""
    app = Starlette(
        routes=ROUTES,
        exception_handlers={
            TallystickError: _answer_refusal,
            HTTPException: _of_http,
            StaleForm: _stale,
            TimeoutError: _cut_off,
            ClientDisconnect: _cut_off,
            Exception: _answer_failure,
        },
    )
    app.router.redirect_slashes = False
    app.state.tally = tally
    app.state.figures = Figures()
    return SafeHeaders(app)


def _home(visit: Visit) -> Response:
    return visit.go("/overview")


def _sign_out(visit: Visit) -> Response:
    """End the session, so that its cookie is of no use to anybody."""
    token = visit.caller.token
    if token is not None and token.token_class == "session":
        visit.call("revoke_token", token_id=token.id, reason="signed out")
    return leave_with(RedirectResponse(f"{visit.root}/", 303), visit.request)


async def _answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, TallystickError)
    return _problem(request, wire_status(error).http, str(error))


async def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = "There is no such page." if error.status_code == 404 else str(error.detail)
    return _problem(request, error.status_code, detail)


async def _stale(request: Request, error: Exception) -> Response:
    return _problem(
        request, 403, "This form was not made for your session. Open its page, and send it again."
    )


async def _cut_off(request: Request, error: Exception) -> Response:
    return _problem(request, 408, CUT_OFF)


async def _answer_failure(request: Request, error: Exception) -> Response:
    get_logger("dashboard").error(
        "dashboard.failed", error=type(error).__name__, path=request.url.path
    )
    return _problem(request, 500, "The server failed. Its log says more.")


def _problem(request: Request, status: int, problem: str) -> Response:
    return visit_of(request).page("problem.html", status, code=status, problem=problem)


ROUTES = [
    page("/", _home),
    form_page("/sign-out", _sign_out),
    *overview.ROUTES,
    *reviews.ROUTES,
    *runs.ROUTES,
    *governance.ROUTES,
    *replays.ROUTES,
    *steps.ROUTES,
    *memory.ROUTES,
    *communities.ROUTES,
    *documents.ROUTES,
    *work.ROUTES,
    *stewardship.ROUTES,
    *synthesis.ROUTES,
    *changes.ROUTES,
    *making.ROUTES,
]
