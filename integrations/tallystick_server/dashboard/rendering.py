"""Rendering: templates that escape all text, and the headers under which pages are sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tallystick.records import escaping
from tallystick.records.escaping import visible
from tallystick.records.times import moment_text
from tallystick_html import words
from tallystick_html.causes import short_id

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
"""The folder of styles and scripts, which are ours or vendored whole."""

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Not `no-referrer`: under that one a browser sends `Origin: null` with a form.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class SafeHeaders:
    """An ASGI application whose answers load nothing from elsewhere and are kept by no cache."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._application(scope, receive, sending)


def html(template: str, status: int = 200, **facts: Any) -> HTMLResponse:
    """Return a page. Whatever a text has, it can be sent: what no form of UTF-8 has is escaped."""
    text = _environment().get_template(template).render(**facts)
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)


def load_templates() -> None:
    """Compile every template, so that no page waits for its own."""
    environment = _environment()
    for name in environment.list_templates():
        environment.get_template(name)


@cache
def static_version(name: str) -> str:
    """Return a few characters that change with a file of `STATIC`, for its address."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


@cache
def _environment() -> Environment:
    # Loaded with the first page: a server that shows none needs no templates.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        finalize=_as_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    environment.filters |= {
        "clock": clock,
        "cut": cut,
        "day": day,
        "duration": duration,
        "iso": iso,
        "kept": form_value,
        "named": lambda identity: cut(short_id(identity), 60),
        "number": number,
        "percent": percent,
        "pretty": pretty,
        "query": query,
        "short": short,
        "words": words_of_code,
    }
    environment.globals |= {"static_version": static_version, "say": words}
    return environment


def _as_shown(value: Any) -> Any:
    """Return what a template puts into a page as a person is shown it: every text passes here."""
    return visible(value) if type(value) is str else value


def form_value(value: Any) -> Any:
    """Return a value of a field as a form sends it back: with every character that a form can send,
    and marks for those that it cannot.
    """
    from markupsafe import escape

    return escape(sendable(str(value)))


def sendable(text: str) -> str:
    """Return a text without halves of characters and nulls, which no form sends."""
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
    )


def short(identity: str) -> str:
    """Return the end of an id: enough to name it."""
    return identity[-8:]


def cut(text: str | None, most: int = 160) -> str:
    """Return a text in one line of at most `most` characters."""
    return escaping.cut(text or "", most)


def number(value: int | float | None) -> str:
    """Return a whole number with a space between its thousands."""
    return "" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def percent(share: float) -> str:
    """Return a share of 1 in percent, which is 0 only for nothing."""
    return "<1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def duration(micros: int | None) -> str:
    """Return a span of microseconds in the unit that fits."""
    if micros is None:
        return ""
    if micros < 1_000_000:
        return f"{micros / 1000:.0f} ms" if micros >= 10_000 else f"{micros / 1000:.1f} ms"
    seconds = micros / 1_000_000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def iso(micros: int) -> str:
    """Return a moment for a machine."""
    return moment_text(micros, "%Y-%m-%dT%H:%M:%S.%f+00:00")


def day(micros: int) -> str:
    """Return a moment as date and time of the server's zone."""
    return moment_text(micros, "%Y-%m-%d %H:%M", None)


def clock(micros: int) -> str:
    """Return the time of day of a moment, with seconds, in the server's zone."""
    return moment_text(micros, "%H:%M:%S", None)


def pretty(value: Any) -> str:
    """Return a JSON value as a person reads it."""
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True, default=str)


def query(values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    """Return the query of an address, without what is empty."""
    pairs = values.items() if isinstance(values, Mapping) else values
    parameters = [
        (str(name), str(value)) for name, value in pairs if value not in (None, "", False)
    ]
    return urlencode(parameters, errors="replace")


def words_of_code(code: str) -> str:
    """Return a code as words."""
    return code.replace("_", " ")
