"""Connections: requests to one server, sent again where that does nothing twice."""

from __future__ import annotations

import os
import random
import ssl
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import httpx2

from tallystick.errors import InvalidInput, TallystickError, Unreachable
from tallystick_server.client.calls import Call, error_of, result_of

_AGAIN = frozenset({"busy_tally", "rate_limited", "closed_tally", "unreachable"})
"""Errors after which a call may succeed in a moment."""
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 5.0

RUN: ContextVar[str | None] = ContextVar("tallystick_remote_run", default=None)
"""The run in whose block the caller is."""


class RecordedStep(Protocol):
    """A step in whose block calls are recorded."""

    def open_at(self, server: Server) -> str | None:
        """Return its id where it is open at this server, which opens it."""
        ...


STEP: ContextVar[RecordedStep | None] = ContextVar("tallystick_remote_step", default=None)
"""The step in whose block the caller is."""


class Server:
    """One server, with the connections to it. Thread-safe."""

    def __init__(
        self,
        address: str,
        http: httpx2.Client,
        *,
        attempts: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Use `at`."""
        self.address = address
        self._http = http
        self._attempts = attempts
        self._socket = address.removeprefix("unix:") if address.startswith("unix:") else None
        self._sleep = sleep

    @classmethod
    def at(cls, address: str, *, token: str | None, timeout: float, attempts: int) -> Server:
        """Return the server at `unix:PATH` or `http://…`. Raises InvalidInput."""
        if attempts < 1 or timeout <= 0:
            raise InvalidInput("`attempts` is at least 1, and `timeout` more than 0 seconds.")
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        scheme, _, rest = address.partition(":")
        # Without TLS nobody has to be trusted, and reading the certificates is most of the cost.
        trusted = True if scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        transport: httpx2.HTTPTransport | None = None
        if scheme == "unix" and rest:
            base, transport = "http://localhost", httpx2.HTTPTransport(uds=rest, verify=trusted)
        elif scheme in ("http", "https") and rest.startswith("//"):
            base = address.rstrip("/")
        else:
            raise InvalidInput(
                f"{address!r} is no address of a server. Write it like unix:/path/of/socket or "
                "http://127.0.0.1:8765."
            )
        # Nothing is read from the environment: no proxy, no netrc, and so no token of another.
        http = httpx2.Client(
            base_url=base,
            headers=headers,
            transport=transport,
            timeout=timeout,
            trust_env=False,
            verify=trusted,
        )
        return cls(address, http, attempts=attempts)

    def send(self, call: Call, scope: str | None) -> bytes:
        """Send a call, and again where that is allowed and may help; return the body of the answer.

        Raises the error that the server answers, and Unreachable where none does.
        """
        for attempt in range(1, self._attempts + 1):
            try:
                return self._send(call, scope)
            except TallystickError as error:
                is_last = attempt == self._attempts or not call.is_repeatable
                if is_last or error.code not in _AGAIN:
                    raise
                self._sleep(_wait(error, attempt))
        raise AssertionError("the last attempt returns or raises")

    def _send(self, call: Call, scope: str | None) -> bytes:
        if self._socket is not None and not os.path.exists(self._socket):
            raise self._unreachable("there is no such socket")
        headers = {**call.headers}
        if call.body is not None:
            headers["content-type"] = "application/json"
        if scope is not None:
            headers["tallystick-scope"] = scope
        run = RUN.get()
        if run is not None:
            headers["tallystick-run"] = run
        step = STEP.get()
        step_id = None if step is None else step.open_at(self)
        if step_id is not None:
            headers["tallystick-step"] = step_id
        try:
            response = self._http.request(
                call.method,
                call.path,
                params=tuple(call.query),
                content=call.body,
                headers={name.encode(): _in_header(name, text) for name, text in headers.items()},
            )
        except httpx2.HTTPError as error:
            raise self._unreachable(type(error).__name__) from error
        if response.status_code >= 300:
            raise error_of(response.status_code, response.content)
        return response.content

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(
            f"No answer came from {self.address} ({why}). Is the server running? `tally serve` "
            "starts one."
        )

    def close(self) -> None:
        """Close the connections. Closing twice is allowed."""
        self._http.close()


@dataclass(frozen=True)
class Connection:
    """A server, for calls that work in one scope."""

    server: Server
    scope: str | None = None

    def send(self, call: Call, *, raw: bool = False) -> Any:
        """Return the result of a call, or with `raw` the bytes of its answer. Raises the error that
        the server answers, and Unreachable.
        """
        content = self.server.send(call, self.scope)
        return content if raw else result_of(call, content)

    def new_key(self) -> str:
        """Return an idempotency key for a call that has none."""
        return uuid.uuid4().hex


def _in_header(name: str, text: str) -> bytes:
    """Return a text as a header carries it. Raises InvalidInput for what would be cut."""
    if not text.isprintable() or text != text.strip():
        raise InvalidInput(
            f"{text!r} cannot be sent as {name}: that is printable text without spaces around it."
        )
    return text.encode()


def _wait(error: TallystickError, attempt: int) -> float:
    """Return the seconds to wait before the next attempt."""
    least: float = getattr(error, "retry_after", 0) or 0
    grown = _FIRST_WAIT_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
    return float(min(_LONGEST_WAIT_S, max(grown, least)))
