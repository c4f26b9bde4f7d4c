"""Visits: one request of a page, with the tally as its caller sees it."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tallystick.aio import in_thread
from tallystick.errors import InvalidInput
from tallystick.operations import OPERATIONS
from tallystick.records import Scope
from tallystick.tally import BoundTally, Tally
from tallystick_server.dashboard.rendering import html, query
from tallystick_server.guard import CALLER, Caller
from tallystick_server.uploads import FORM, read_form

SURFACE = "dashboard"
"""The surface under which history names what was done here."""
_MOST_FIELDS = 200
ROOMS: tuple[tuple[str, str], ...] = (
    ("/overview", "Overview"),
    ("/runs", "Runs"),
    ("/memory", "Memory"),
    ("/reviews", "Reviews"),
    ("/diary", "Diary"),
    ("/approvals", "Approvals"),
    ("/policy", "Policy"),
    ("/health", "Health"),
)
"""The rooms in the navigation, in their order."""
_WITHIN: Mapping[str, tuple[str, ...]] = {
    "/overview": ("/overview", "/reads", "/imports", "/reflections"),
    "/runs": ("/runs", "/steps", "/diff", "/replays"),
    "/memory": (
        "/memory",
        "/memories",
        "/communities",
        "/documents",
        "/source-imports",
        "/sources",
        "/spaces",
        "/syntheses",
        "/export",
        "/make",
        "/work",
    ),
    "/health": ("/health", "/jobs", "/stewardship"),
}
"""The paths that belong to a room, where it has several."""


def is_within(room: str, path: str) -> bool:
    """Return True if a path belongs to a room, whose path is given."""
    prefixes = _WITHIN.get(room, (room,))
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in prefixes)


_NOTES: Mapping[str, str] = {
    "accepted": "The suggestion was accepted, and is a memory now.",
    "approved": "The action was approved, with exactly these arguments, once.",
    "autonomy_frozen": "The tally does nothing by itself until you let it go on.",
    "autonomy_thawed": "The tally goes on by itself.",
    "cancelled": "The job was cancelled.",
    "corrected": "The correction was applied.",
    "deferred": "It waits on.",
    "denied": "The action was denied.",
    "ended": "The import was ended. What it has stored stays.",
    "erased": "The text was erased.",
    "forgotten": "The memory was forgotten. It can be recovered for a while.",
    "frozen": "Changes of memory are suspended.",
    "modified": "The memory was changed. The old version stays in its history.",
    "opened": "The space is as you asked.",
    "paused": "The import rests after the batch under way.",
    "promoted": "The copy was made.",
    "recovered": "The memory was recovered.",
    "reflecting": "A model reads the conversation. What it suggests comes here.",
    "remembered": "It is remembered.",
    "importing": "It is read in the background.",
    "rejected": "The suggestion was rejected. It stays to be read.",
    "undone": "The change was taken back. What it changed holds again.",
    "retried": "The jobs will be tried again.",
    "resumed": "The import goes on from its last checkpoint.",
    "revoked": "It was taken back.",
    "thawed": "Memory can be changed again.",
}
"""What a page says after a change, by the code in its address."""


class StaleForm(Exception):
    """A form that no page of ours made for this caller."""


@dataclass(frozen=True)
class Visit:
    """One request, and the tally as its caller sees it."""

    request: Request
    caller: Caller
    tally: Tally
    form: Mapping[str, str] = field(default_factory=dict)
    file: Mapping[str, str] = field(default_factory=dict)
    """The arguments of `add_document` that a file is sent as."""

    @property
    def root(self) -> str:
        """The path at which the dashboard is mounted."""
        return str(self.request.scope.get("root_path", ""))

    @property
    def rooms(self) -> tuple[tuple[str, str], ...]:
        """The rooms of the dashboard: their paths and names."""
        return ROOMS

    def is_in(self, room: str) -> bool:
        """Return True if this page is in a room, whose path is given."""
        return is_within(room, self.request.url.path.removeprefix(self.root))

    @property
    def is_operator(self) -> bool:
        """True where the caller's role lets it look after the whole tally."""
        return self.caller.actor.role == "operator"

    @property
    def bound(self) -> BoundTally:
        """The tally in the scope that the address or the form names, else in the caller's home."""
        return self.within(self.form.get("scope") or self.text("scope") or None)

    def within(self, scope: str | Scope | None) -> BoundTally:
        """Return the tally as the caller sees it from a scope. Raises InvalidScope."""
        token = self.caller.token
        session = None if token is None else token.id
        bound = self.tally.bind(self.caller.actor, scope or self.caller.home, session_id=session)
        return bound.on(SURFACE)

    def call(self, operation: str, /, *, at: str | Scope | None = None, **arguments: Any) -> Any:
        """Call an operation of the table. Raises InvalidInput and what the operation raises."""
        bound = self.bound if at is None else self.within(at)
        return OPERATIONS[operation].call(bound, arguments)

    def text(self, name: str, default: str = "") -> str:
        """Return a text of the address, without space around it."""
        return self.request.query_params.get(name, default).strip()

    def texts(self, name: str) -> list[str]:
        """Return all texts of one name of the address."""
        return [text for text in self.request.query_params.getlist(name) if text.strip()]

    def number(self, name: str) -> int | None:
        """Return a number of the address, or None. Raises InvalidInput."""
        return whole_number(name, self.text(name))

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    def page(self, template: str, status: int = 200, **facts: Any) -> Response:
        """Return a page."""
        return html(template, status, visit=self, note=_NOTES.get(self.text("note")), **facts)

    def address(self, path: str, /, **values: Any) -> str:
        """Return the address of a page of ours."""
        encoded = query(values)
        return f"{self.root}{path}{'?' if encoded else ''}{encoded}"

    def go(self, path: str, /, **values: Any) -> Response:
        """Return the answer to a form that was done: the page to look at."""
        return RedirectResponse(self.address(path, **values), 303)

    def again(self, **values: Any) -> str:
        """Return the address of this page with other values in its query."""
        pairs = [
            (name, value)
            for name, value in self.request.query_params.multi_items()
            if name not in values and name != "note"
        ]
        encoded = query([*pairs, *values.items()])
        return f"{self.request.url.path}{'?' if encoded else ''}{encoded}"


Handler = Callable[[Visit], Response]


def visit_of(
    request: Request,
    form: Mapping[str, str] | None = None,
    file: Mapping[str, str] | None = None,
) -> Visit:
    """Return the visit of a request that the guard let in."""
    tally = request.app.state.tally
    return Visit(request, request.scope[CALLER], tally, form or {}, file or {})


def page(path: str, handler: Handler) -> Route:
    """Return the route of a page that is read. It is made in a worker thread."""

    async def endpoint(request: Request) -> Response:
        return await in_thread(partial(handler, visit_of(request)))

    return Route(path, endpoint, methods=["GET"], name=handler.__name__)


def form_page(path: str, handler: Handler, *, takes_file: bool = False) -> Route:
    """Return the route of a form, which only a page made for the same caller may send."""

    async def endpoint(request: Request) -> Response:
        content, kind = await request.body(), request.headers.get("content-type", "")
        file: dict[str, str] = {}
        if takes_file and kind.partition(";")[0].strip().lower() == FORM:
            fields, file = await in_thread(partial(read_form, content))
        else:
            fields = form_fields(content, kind)
        visit = visit_of(request, fields, file)
        expected = visit.caller.form_key
        if not expected or not hmac.compare_digest(
            fields.get("form_key", "").encode(), expected.encode()
        ):
            raise StaleForm
        return await in_thread(partial(handler, visit))

    return Route(path, endpoint, methods=["POST"], name=handler.__name__)


def form_fields(body: bytes, content_type: str) -> dict[str, str]:
    """Return the fields of a form. Raises InvalidInput for what no form of ours sends."""
    if content_type.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise InvalidInput("This page takes a form, as the browser sends it.")
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            encoding="utf-8",
            errors="strict",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError as error:
        raise InvalidInput("The form is malformed. Send it from its page.") from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidInput("The form has a field twice. Send it from its page.")
    # A browser sends line ends of a text area as CR LF.
    return {name: value.replace("\r\n", "\n") for name, value in fields.items()}


def reason_of(form: Mapping[str, str]) -> str:
    """Return why a person does something. Raises InvalidInput."""
    reason = form.get("reason", "").strip()
    if not reason:
        raise InvalidInput("Say why: it is kept with what you do.")
    return reason


def whole_number(name: str, text: str) -> int | None:
    """Return a number that a person typed, or None for nothing. Raises InvalidInput."""
    plain = text.strip().replace(" ", "").replace("\u202f", "")
    if not plain:
        return None
    if not (plain.isascii() and plain.isdigit() and len(plain) < 19):
        raise InvalidInput(f"{name}: a whole number is needed here, such as 2000.")
    return int(plain)
