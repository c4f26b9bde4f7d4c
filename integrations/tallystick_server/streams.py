"""Server-sent events: a run or a job as it goes on, from wherever the reader stopped.

A reader costs no thread: it looks every so often, and between two looks nothing waits. It sees what
any process records.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any

from anyio import sleep
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from tallystick.aio import in_thread
from tallystick.errors import InvalidInput, TallystickError
from tallystick.operations import error_json
from tallystick_server.answers import plain
from tallystick_server.endpoints import CONDITIONS, PROBLEMS, ScopeHeader, bound_for, deaf_to
from tallystick_server.guard import CALLER, Caller
from tallystick_steward import Steward

_LOOK_SECONDS = 0.25
_KEEP_ALIVE_SECONDS = 15
_PAGE = 200
_TOLD = 2_000
"""Events that a stream tells once, though they are read again."""

LastId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="The last event that the reader has."),
]


EVENTS = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""Headers of an answer that goes on."""
STOPPING = "tallystick.stopping"
"""The key of the ASGI scope under which a server has the event that it ends."""


def add_streams(router: APIRouter) -> None:
    """Add the routes of events."""
    events = {
        200: {"content": {"text/event-stream": {}}, "description": "Events, as they happen."},
        **PROBLEMS,
    }
    for path, endpoint in (
        ("/runs/{run_id}/events", run_events),
        ("/jobs/{job_id}/events", job_events),
        ("/events/stream", tally_events),
    ):
        group = _GROUPS[endpoint.__name__]
        router.add_api_route(
            path,
            endpoint,
            methods=["GET"],
            tags=[group],
            operation_id=endpoint.__name__,
            responses=events,
            response_class=Response,
            dependencies=[deaf_to(*CONDITIONS)],
        )


_GROUPS = {"run_events": "Runs", "job_events": "Jobs", "tally_events": "Stewardship"}


async def run_events(
    request: Request,
    run_id: str,
    scope_header: ScopeHeader = None,
    last_id: LastId = None,
) -> Response:
    """Send each step of a run when it starts and when it has ended, and then the end of the run.

    The id of an event is the step up to which the reader has all steps to their end.
    """
    whole = _number(last_id)
    bound = await in_thread(bound_for, request, scope_header)
    await in_thread(bound.recordings.run, run_id)  # whether there is one that the caller may see
    if whole is not None:
        last_step = partial(bound.recordings.steps, run_id, after=whole - 1, limit=1)
        if not await in_thread(last_step):
            raise InvalidInput("Last-Event-ID names no event of this run.")
    caller: Caller = request.scope[CALLER]
    sent: dict[int, bool] = {}

    def look() -> tuple[list[tuple[str | None, Any]], bool]:
        nonlocal whole
        caller.require_good()
        run = bound.recordings.run(run_id)
        steps = bound.recordings.steps(run_id, after=whole, limit=_PAGE)
        ready: list[tuple[str | None, Any]] = []
        for step in steps:
            index, has_ended = step.step_index, step.ended_at is not None
            if has_ended and index == (-1 if whole is None else whole) + 1:
                whole = index
            if sent.get(index) != has_ended:
                sent[index] = has_ended
                ready.append((_text(whole), {"type": "step", "step": plain(step)}))
        is_over = run.ended_at is not None and len(steps) < _PAGE
        if is_over:
            ready.append((_text(whole), {"type": "run", "run": plain(run)}))
        return ready, is_over

    return _stream(request, look)


async def job_events(
    request: Request,
    job_id: str,
    scope_header: ScopeHeader = None,
    last_id: LastId = None,
) -> Response:
    """Send a job whenever it has changed, until it has ended."""
    bound = await in_thread(bound_for, request, scope_header)
    await in_thread(bound.jobs.get, job_id)
    caller: Caller = request.scope[CALLER]
    latest = last_id

    def look() -> tuple[list[tuple[str | None, Any]], bool]:
        nonlocal latest
        caller.require_good()
        job = bound.jobs.get(job_id)
        mark = f"{job.updated_at}-{job.state}-{job.progress}"
        is_new, latest = mark != latest, mark
        ready: list[tuple[str | None, Any]] = []
        if is_new or job.is_over:
            ready.append((mark, {"type": "job", "job": plain(job)}))
        return ready, job.is_over

    return _stream(request, look)


async def tally_events(
    request: Request,
    follow: Annotated[bool, Query(description="Wait for what is still to come.")] = True,
    scope_header: ScopeHeader = None,
    last_id: LastId = None,
) -> Response:
    """Send what happens, as `GET /events` lists it, from now on or behind the last event that the
    reader has: each at least once, and twice under the same `id`.

    The id of an event of the stream is its cursor.
    """
    bound = await in_thread(bound_for, request, scope_header)
    steward = Steward(bound)
    caller: Caller = request.scope[CALLER]
    after = _number(last_id)
    if after is None:
        after = (await in_thread(steward.page_of_events, None)).cursor
    told: deque[str] = deque(maxlen=_TOLD)

    def look() -> tuple[list[tuple[str | None, Any]], bool]:
        nonlocal after
        caller.require_good()
        page = steward.page_of_events(after, told=[*told])
        after = page.cursor
        told.extend(each.id for each in page.events)
        ready: list[tuple[str | None, Any]] = [
            (str(each.cursor), {"type": each.kind, "event": plain(each)}) for each in page.events
        ]
        return ready, not (follow or ready)

    return _stream(request, look)


Look = Callable[[], tuple[list[tuple[str | None, Any]], bool]]


def _stream(request: Request, look: Look) -> Response:
    return StreamingResponse(_events(request, look), 200, EVENTS, "text/event-stream")


async def _events(request: Request, look: Look) -> AsyncIterator[str]:
    """Yield events until there are no more, or the reader has gone. Messages have no `event:`, so
    that a page can put them into itself.
    """
    spoken = time.monotonic()
    stopping = request.scope.get(STOPPING)
    while not await request.is_disconnected():
        if stopping is not None and stopping.is_set():
            return  # its reader goes on by the last id, at the next server
        try:
            ready, is_over = await in_thread(look)
        except TallystickError as error:
            yield event_text(None, {"type": "error", "error": error_json(error)})
            return
        for identity, data in ready:
            yield event_text(identity, data)
        if is_over:
            return
        now = time.monotonic()
        if ready:
            spoken = now
        elif now - spoken > _KEEP_ALIVE_SECONDS:
            spoken = now
            yield ": still here\n\n"
        await sleep(_LOOK_SECONDS)


def event_text(identity: str | None, data: Any) -> str:
    """Return an event as it is sent."""
    first = "" if identity is None else f"id: {identity}\n"
    return f"{first}data: {json.dumps(data, separators=(',', ':'))}\n\n"


def _text(index: int | None) -> str | None:
    return None if index is None else str(index)


def _number(last_id: str | None) -> int | None:
    """Return the index of the step that the reader has. Raises InvalidInput."""
    if last_id is None or last_id == "":
        return None
    if not (last_id.isascii() and last_id.isdigit() and len(last_id) < 19):
        raise InvalidInput("Last-Event-ID is the id of an event of this stream.")
    return int(last_id)
