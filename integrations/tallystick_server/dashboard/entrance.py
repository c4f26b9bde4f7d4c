"""The entrance: one-time links and signing in, for a browser that has no token yet."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from tallystick.aio import in_thread
from tallystick.errors import InvalidInput, TallystickError
from tallystick.operations.error_status import wire_status
from tallystick.records import AccessToken
from tallystick.tally import Tally
from tallystick_server.answers import CUT_OFF
from tallystick_server.dashboard.rendering import STATIC, SafeHeaders, html
from tallystick_server.dashboard.visits import form_fields
from tallystick_server.dashboard.warming import make_ready
from tallystick_server.guard import COOKIE, REFUSAL

PREFIX = "/ui"
"""The path of the dashboard."""
_LINK_SECONDS = 300
"""How long a link can be used, once."""
_USED = "This link was used already, or is too old. Run `tally ui` again for a new one."
_MOST_LINKS = 100
_LONGEST_SECONDS = 24 * 3600


@dataclass(frozen=True)
class _Link:
    secret: str
    until: float


class Entrance:
    """The doorstep of the dashboard: pages for who has no token yet, or no good one any more.

    A link of `offer` lets a browser in once: it becomes a cookie that scripts cannot read and that
    pages of other sites do not send. Thread-safe.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._links: dict[str, _Link] = {}
        self._lock = threading.Lock()
        self._pages = SafeHeaders(
            Starlette(
                routes=[
                    Mount("/static", _Static(directory=STATIC)),
                    Route("/enter", self._enter, methods=["GET"]),
                    Route("/sign-in", self._sign_in, methods=["POST"]),
                ],
                exception_handlers={
                    TallystickError: _refused_page,
                    TimeoutError: _cut_off,
                    ClientDisconnect: _cut_off,
                    404: _absent,
                    405: _absent,
                },
            )
        )

    def offer(self, secret: str) -> str:
        """Return the path of a link that lets a browser in with the secret of a token: once, and
        for five minutes.
        """
        key = secrets.token_urlsafe(32)
        now = time.monotonic()
        with self._lock:
            self._links = {name: link for name, link in self._links.items() if link.until > now}
            while len(self._links) >= _MOST_LINKS:
                del self._links[next(iter(self._links))]
            self._links[_digest(key)] = _Link(secret, now + _LINK_SECONDS)
        return f"{PREFIX}/enter?key={key}"

    def has(self, path: str) -> bool:
        """Return True for a path of the dashboard."""
        return path == PREFIX or path.startswith(f"{PREFIX}/")

    def is_open(self, path: str) -> bool:
        """Return True for a path that needs no token."""
        return path in (f"{PREFIX}/enter", f"{PREFIX}/sign-in") or path.startswith(
            f"{PREFIX}/static/"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        root = f"{scope.get('root_path', '')}{PREFIX}"
        scope = {**scope, "root_path": root}
        refusal = scope.get(REFUSAL)
        if refusal is None:
            await self._pages(scope, receive, send)
        else:
            answer = _refused_page(Request(scope), refusal)
            await SafeHeaders(answer)(scope, receive, send)

    async def _enter(self, request: Request) -> Response:
        with self._lock:
            link = self._links.pop(_digest(request.query_params.get("key", "")), None)
        if link is None or link.until <= time.monotonic():
            return html("sign_in.html", 401, root=request.scope["root_path"], problem=_USED)
        # The page moves on by itself, so that the next request is made by a page of this origin,
        # whoever opened the link.
        token = await in_thread(self._tally.authenticate, link.secret)
        return self._let_in(request, link.secret, token)

    async def _sign_in(self, request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise InvalidInput("Sign in from the page of this server.")
        fields = form_fields(await request.body(), request.headers.get("content-type", ""))
        secret = fields.get("token", "").strip()
        token = await in_thread(self._tally.authenticate, secret)
        answer = self._let_in(request, secret, token)
        # After the answer: a server that nobody looks at keeps no indexes of people in memory.
        answer.background = BackgroundTask(make_ready, self._tally.bind(token.actor))
        return answer

    def _let_in(self, request: Request, secret: str, token: AccessToken) -> Response:
        answer = html("entered.html", root=request.scope["root_path"])
        answer.set_cookie(
            COOKIE,
            secret,
            max_age=_life(token, self._tally.now()),
            path=request.scope["root_path"],
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer


def leave_with(answer: Response, request: Request) -> Response:
    """Return an answer that takes the cookie back."""
    path = str(request.scope["root_path"])
    answer.delete_cookie(COOKIE, path=path, httponly=True, samesite="strict")
    return answer


class _Static(StaticFiles):
    """Files whose address changes with their content, so that a browser keeps them."""

    def file_response(self, *arguments: object, **options: object) -> Response:
        """Return one file."""
        answer = super().file_response(*arguments, **options)  # type: ignore[arg-type]
        answer.headers["cache-control"] = "public, max-age=31536000, immutable"
        return answer


def _refused_page(request: Request, error: Exception) -> Response:
    """Return the page of an error for who has not come in: signing in, or what is wrong."""
    assert isinstance(error, TallystickError)
    status = wire_status(error).http
    return html("sign_in.html", status, root=request.scope["root_path"], problem=str(error))


async def _cut_off(request: Request, error: Exception) -> Response:
    return html("sign_in.html", 408, root=request.scope["root_path"], problem=CUT_OFF)


async def _absent(request: Request, error: Exception) -> Response:
    problem = "There is no such page."
    return html("sign_in.html", 404, root=request.scope["root_path"], problem=problem)


def _life(token: AccessToken, now: int) -> int:
    """Return the seconds for which a browser keeps the cookie."""
    return max(1, min(_LONGEST_SECONDS, (token.expires_at - now) // 1_000_000))


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
