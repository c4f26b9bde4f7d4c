"""The guard before the application of a server of ours, and the socket that it listens on.

Every caller has an access token, loopback included. Only who may open a Unix socket of ours, which
nobody but the user who started the server may, can come without one, and acts as the actor whom the
server was started with. The guard speaks ASGI, and so guards an MCP server as well as HTTP routes.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import socket
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any, Protocol

from anyio import current_time, fail_after

from tallystick.aio import at_once
from tallystick.errors import InvalidInput, RateLimited, TallystickError, Unauthenticated
from tallystick.logs import request_id
from tallystick.operations.error_status import error_json, wire_status
from tallystick.records import AccessToken, Actor, Credential, json_bytes
from tallystick.tally import Tally

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

CALLER = "tallystick.caller"
"""The key of the ASGI scope under which the guard puts the Caller."""
ADMISSION = "tallystick.admission"
"""The key under which a connection puts what counts its request, and says no where it is busy."""
REFUSAL = "tallystick.refusal"
"""The key under which the guard tells a doorstep the error for which it let nobody in."""
COOKIE = "tallystick_session"
"""The cookie that may hold the secret of a session token, for pages of the same origin."""
BODY_LIMIT = 8 * 1024 * 1024
"""The bytes that a request may send, where its route does not say less."""
_BODY_SECONDS = 30
"""The time in which the whole body of a request must arrive."""
WAITING = 1_024
"""The connections that wait until the server takes them, from the moment at which it is bound."""
_LONGEST_PATH = 100
"""Bytes of the path of a Unix socket; Linux takes 107 and macOS 103."""
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/?#@\s]+)(?::[0-9]{1,5})?", re.ASCII)
"""A name, an address or an IPv6 address in brackets, and a port that may be absent."""
_REQUEST_ID = "x-request-id"
_ID = re.compile(r"[\x21-\x7e]{1,128}")
"""An id of a request, as a caller or a proxy may send it."""
_READS = ("GET", "HEAD")
_FORM_DOMAIN = b"tallystick/form/v1"


@dataclass(frozen=True)
class Caller:
    """The caller of a request, as its token says."""

    actor: Actor
    token: AccessToken | None
    """None for who opened a Unix socket of ours."""
    require_good: Callable[[], object] = field(default=lambda: None, compare=False, repr=False)
    """Raises Unauthenticated once the token is no longer good: for an answer that goes on."""
    form_key: str = field(default="", compare=False, repr=False)
    """The text that a form of a page for this caller carries, which no other page can know."""

    @property
    def home(self) -> str | None:
        """The scope in which a request works that names none: of a token that is good for one scope
        alone that one, else None for the private one.
        """
        scopes = None if self.token is None else self.token.scopes
        return str(scopes[0]) if scopes is not None and len(scopes) == 1 else None


class Doorstep(Protocol):
    """The pages that a server shows to who has no token yet: the entrance, and refusals to read."""

    def has(self, path: str) -> bool:
        """Return True for a path at which a person reads what is answered."""
        ...

    def is_open(self, path: str) -> bool:
        """Return True for a path that needs no token."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whose refusal stands under `REFUSAL` unless the path is open."""


class _Refused(Exception):
    """A request that the guard answers itself."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Guard:
    """An ASGI application that lets in whom the tally knows, and answers everybody else itself.

    It checks the token, and Host and Origin against requests that a web page makes a browser send;
    a request that is too large or too slow is cut off. It sends no header that lets pages of other
    origins read an answer. Each answer has the id of its request (`X-Request-ID`), the caller's own
    or a new one, which log lines name.
    """

    def __init__(
        self,
        application: Application,
        tally: Tally,
        *,
        surface: str,
        local: Actor | None = None,
        hosts: Iterable[str] = (),
        body_limit: Callable[[str], int] = lambda place: BODY_LIMIT,
        doorstep: Doorstep | None = None,
    ) -> None:
        """Guard `application` for calls through `surface`.

        With `local` a caller without a token is that actor: only for an application that listens
        on a socket of `bind_socket`. `hosts` are names by which the server is reached, beside those
        of the loopback. `body_limit` gives the bytes that a request may send to a place, such as
        `POST /v1/memories`. What a person reads is refused by the `doorstep`, as a page.
        """
        self.application = application
        """What it guards."""
        self._tally = tally
        self._surface = surface
        self._local = local
        self._hosts = frozenset({*_LOOPBACK, *(host.lower() for host in hosts)})
        self._body_limit = body_limit
        self._doorstep = doorstep
        self._socket_form_key = secrets.token_hex(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or let it through."""
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        # Space around a value is no part of it, and the HTTP library leaves that after it.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        headers = _headers(scope)
        doorstep = self._doorstep_of(scope)
        named = headers.get(_REQUEST_ID)
        is_named = named is not None and _ID.fullmatch(named) is not None
        request_id.set(served := named if named and is_named else self._tally.new_id())
        send = _with_header(send, _REQUEST_ID, served)
        try:
            if named is not None and not is_named:
                raise _Refused(
                    400, "malformed", "X-Request-ID takes 1 to 128 visible ASCII characters."
                )
            self._require_same_site(scope, headers)
            most = self._body_limit(f"{scope['method']} {_path(scope)}")
            _require_length(headers, most)
            if doorstep is not None and doorstep.is_open(_path(scope)):
                await _within_limit(doorstep, scope, receive, send, most)
                return
            secret = self._secret(scope["method"], headers)
            caller = self._on_socket() if secret is None else await at_once(self._let_in, secret)
            if not scope.get(ADMISSION, lambda: True)():
                raise _Refused(503, "busy", "The server answers too many requests. Try again soon.")
            scope[CALLER] = replace(caller, actor=caller.actor.traced(request_id=named))
        except TallystickError as error:
            if doorstep is not None:
                scope[REFUSAL] = error
                await doorstep(scope, receive, send)
            else:
                await _answer(send, problem_of(error))
            return
        except _Refused as refused:
            await _answer(send, _refusal(refused))
            return
        await _within_limit(self.application, scope, receive, send, most)

    def _doorstep_of(self, scope: Scope) -> Doorstep | None:
        doorstep = self._doorstep
        return doorstep if doorstep is not None and doorstep.has(_path(scope)) else None

    def _require_same_site(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Refuse what a page of another site made a browser send."""
        host = headers.get("host", "").lower()
        if _host_name(host) not in self._hosts:
            raise _Refused(
                421,
                "wrong_host",
                "This server is not reached by that name: `tally serve --name NAME` adds one.",
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"{scope.get('scheme', 'http')}://{host}":
            raise _Refused(403, "wrong_origin", "Pages of other origins get no answer here.")

    def _secret(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Return the secret that the caller sent, or None where none is needed. Raises
        Unauthenticated.
        """
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme:
            if scheme.lower() != "bearer":
                raise Unauthenticated
            return secret.strip()
        cookie = _cookie(headers)
        if cookie is not None and _is_own_page(method, headers):
            return cookie
        if self._local is None or cookie is not None:
            raise Unauthenticated
        return None

    def _on_socket(self) -> Caller:
        """Return the caller who could open a socket of ours."""
        assert self._local is not None
        actor = self._local.replace(surface=self._surface, credential=Credential())
        return Caller(actor, token=None, form_key=self._socket_form_key)

    def _let_in(self, secret: str) -> Caller:
        token = self._tally.authenticate(secret)
        key = hmac.new(secret.encode(), _FORM_DOMAIN, hashlib.sha256).hexdigest()
        good = partial(self._tally.authenticate, secret)
        return Caller(token.caller(self._surface), token, good, form_key=key)


def _require_length(headers: Mapping[str, str], most: int) -> None:
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise _Refused(400, "malformed", "Content-Length is no number.")
    if int(length) > most:
        raise _too_large(most)


def _too_large(most: int) -> _Refused:
    return _Refused(413, "too_large", f"A request is {most:,} bytes at most here.")


async def _within_limit(
    application: Application, scope: Scope, receive: Receive, send: Send, most: int
) -> None:
    """Let a request through until its body is longer than allowed, whatever its length says: then
    the guard answers, and not what the application made of half a body.
    """
    refused = is_answered = False

    def refuse() -> None:
        nonlocal refused
        refused = True
        raise InvalidInput(str(_too_large(most)))

    async def send_on(message: Message) -> None:
        nonlocal is_answered
        if not refused or is_answered:
            is_answered = True
            await send(message)

    try:
        await application(scope, limit_body(receive, most, refuse), send_on)
    except InvalidInput:
        if not refused or is_answered:
            raise
    if refused and not is_answered:
        await _answer(send, _refusal(_too_large(most)))


def limit_body(receive: Receive, most: int, refuse: Callable[[], None]) -> Receive:
    """Return `receive`, which calls `refuse` where a body is longer than allowed, and raises where
    it takes too long.
    """
    received, is_over, deadline = 0, False, current_time() + _BODY_SECONDS

    async def receive_within() -> Message:
        nonlocal received, is_over
        if is_over:  # then only the end of the connection is waited for
            return await receive()
        with fail_after(max(0, deadline - current_time())):
            message = await receive()
        received += len(message.get("body", b""))
        is_over = not message.get("more_body", False)
        if received > most:
            refuse()
        return message

    return receive_within


def problem_of(error: TallystickError) -> tuple[int, dict[str, str], bytes]:
    """Return an error as an answer of HTTP: status, headers and the body, as problem+json."""
    status = wire_status(error).http
    headers = {"content-type": "application/problem+json"}
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, RateLimited):
        headers["retry-after"] = str(error.retry_after)
    problem = error_json(error)
    problem = {
        "type": "about:blank",
        "title": problem["code"].replace("_", " "),
        "status": status,
        "detail": problem["message"],
        "code": problem["code"],
        "facts": problem["facts"],
    }
    return status, headers, json_bytes(problem)


def _refusal(refused: _Refused) -> tuple[int, dict[str, str], bytes]:
    problem = {
        "type": "about:blank",
        "title": refused.code.replace("_", " "),
        "status": refused.status,
        "detail": str(refused),
        "code": refused.code,
        "facts": {},
    }
    return refused.status, {"content-type": "application/problem+json"}, json_bytes(problem)


def _with_header(send: Send, name: str, value: str) -> Send:
    """Return `send`, which adds a header to the answer."""

    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            header = (name.encode(), value.encode())
            message = {**message, "headers": [*message.get("headers", ()), header]}
        await send(message)

    return send_on


async def _answer(send: Send, answer: tuple[int, dict[str, str], bytes]) -> None:
    status, headers, body = answer
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    encoded += [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers by lower-case name; of several of one name the first."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return headers


def _path(scope: Scope) -> str:
    """Return the path below the one at which the server is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def _host_name(host: str) -> str | None:
    """Return the name in a Host header, or None for a text that is no host with or without port."""
    parsed = _HOST.fullmatch(host)
    return None if parsed is None else parsed[1]


def _cookie(headers: Mapping[str, str]) -> str | None:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _is_own_page(method: str, headers: Mapping[str, str]) -> bool:
    """Return True for a request that a page of ours made, or a person who opened one."""
    site = headers.get("sec-fetch-site")
    return site == "same-origin" or (site == "none" and method in _READS)


@contextmanager
def bind_socket(path: str | os.PathLike[str]) -> Iterator[socket.socket]:
    """Bind a Unix socket that only this user may open (mode 0600), and remove it in the end.

    A socket that a server left behind is replaced. Raises InvalidInput where a server answers at
    that path already, for a path that is too long, and for what is no socket.
    """
    where = Path(os.path.abspath(path))
    if len(os.fsencode(where)) > _LONGEST_PATH:
        raise InvalidInput(
            f"The path of a socket has {_LONGEST_PATH} bytes at most, and {where} has more. Give a "
            "shorter one."
        )
    if not where.parent.is_dir():
        raise InvalidInput(f"{where.parent} is no folder. Make it first.")
    _remove_left_behind(where)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mask = os.umask(0o177)
        try:
            bound.bind(str(where))
            bound.listen(WAITING)
        except OSError as error:
            raise InvalidInput(f"No socket can be made at {where}: {error.strerror}.") from error
        finally:
            os.umask(mask)
        stat_made = where.stat()
        try:
            yield bound
        finally:
            _remove(where, stat_made)
    finally:
        bound.close()


@contextmanager
def bind_port(port: int, *, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    """Bind a port of TCP; 0 is any that is free. Raises InvalidInput where it is taken."""
    if not 0 <= port < 65_536:
        raise InvalidInput("A port is a number from 0 to 65,535.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: asyncio turns off the delay of small writes only where the protocol is named.
    # With the delay every answer of two writes waits 40 ms for an acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
            bound.listen(WAITING)
        except OSError as error:
            raise InvalidInput(f"Port {port} of {host} cannot be had: {error.strerror}.") from error
        yield bound
    finally:
        bound.close()


def _remove_left_behind(where: Path) -> None:
    """Remove a socket at which nobody listens any more. Raises InvalidInput for anything else."""
    try:
        stat_now = where.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(stat_now.st_mode):
        raise InvalidInput(f"{where} is there already, and is no socket. Give another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        try:
            trial.connect(str(where))
        except ConnectionRefusedError:
            where.unlink(missing_ok=True)
            return
        except OSError as error:
            raise InvalidInput(f"{where} cannot be opened: {error.strerror}.") from error
    raise InvalidInput(f"A server answers at {where} already. Stop it, or give another path.")


def _remove(where: Path, stat_made: os.stat_result) -> None:
    """Remove the socket unless somebody has put another in its place."""
    try:
        stat_now = where.lstat()
    except FileNotFoundError:
        return
    if (stat_now.st_dev, stat_now.st_ino) == (stat_made.st_dev, stat_made.st_ino):
        where.unlink(missing_ok=True)
