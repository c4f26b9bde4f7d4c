"""Routes of the server itself: whether it is well, who calls, files, and the memory tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from tallystick import __version__
from tallystick.aio import in_thread
from tallystick.errors import InvalidInput, NotFound
from tallystick.kit import has_rules, tool_arguments
from tallystick.kit.rendering import codes_for_caller
from tallystick.operations import MODEL_TOOLS
from tallystick.records import Foil, JsonObject, Receipt
from tallystick.tally import AllowedToolCall, BoundTally
from tallystick_hooks import BadPayload, HookFormat
from tallystick_hooks.events import HookPath
from tallystick_hooks.handling import handle
from tallystick_server.answers import answer
from tallystick_server.endpoints import (
    CONDITIONS,
    PROBLEMS,
    ScopeHeader,
    add_endpoint,
    bound_for,
    deaf_to,
)
from tallystick_server.guard import CALLER, Caller
from tallystick_server.open_runs import RunHeader, StepHeader, within
from tallystick_steward import Steward
from tallystick_steward.metrics import CONTENT_TYPE

_TRANSCRIPT = "transcript_path"
_OF_TRANSCRIPTS = ("Stop", "SessionEnd", "PreCompact")
"""Events whose words are read from a file."""


class Health(BaseModel):
    """The state of the server."""

    status: str
    version: str


class Readiness(BaseModel):
    """The state of the tally."""

    status: str
    read_only: str | None
    """Why the tally cannot be written, where it cannot."""


class WhoAmI(BaseModel):
    """The caller, as the token says."""

    user: str
    agent: str | None
    organization: str | None
    projects: list[str]
    role: str
    token_class: str | None
    """None for a caller through a Unix socket."""
    scopes: list[str] | None
    """The scopes that the token is good for; None for all that the caller may reach."""
    operations: list[str] | None
    """What the token is good for; None for all that the caller may do."""
    expires_at: int | None
    """Microseconds UTC."""


class Frames(BaseModel):
    """Memory texts as they stand in frames that the caller makes."""

    model_config = ConfigDict(extra="forbid")

    texts: list[str] = Field(max_length=1_000, fail_fast=True)


def add_health(router: APIRouter) -> None:
    """Add the routes by which whoever runs the server looks after it."""
    add = partial(add_endpoint, router, method="GET")
    add("/health", server_health, Health, "Server")
    add("/ready", ready, Readiness, "Server")


def add_system(router: APIRouter) -> None:
    """Add the other routes of the server itself."""
    add = partial(add_endpoint, router, method="GET")
    add("/whoami", whoami, WhoAmI, "Server")
    add("/runs/{run_id}/receipts", receipts, list[Receipt], "Runs")
    add("/runs/{run_id}/foil", foil, Foil, "Runs")
    add("/frames", frame_codes, list[str], "Memory", method="POST")
    add("/tools/{name}", call_tool, JsonObject, "Memory", method="POST")
    router.add_api_route(
        "/metrics",
        metrics,
        methods=["GET"],
        tags=["Stewardship"],
        operation_id="metrics",
        responses={
            200: {"content": {"text/plain": {}}, "description": "The measures."},
            **PROBLEMS,
        },
        response_class=Response,
        dependencies=[deaf_to(*CONDITIONS)],
    )
    router.add_api_route(
        "/hooks/{event}",
        answer_hook,
        methods=["POST"],
        tags=["Hooks"],
        operation_id="answer_hook",
        responses={200: {"description": "The answer, in the format of the hook."}, **PROBLEMS},
        response_class=Response,
        dependencies=[deaf_to(*CONDITIONS, "Tallystick-Scope")],
    )
    router.add_api_route(
        "/runs/{run_id}/bundle",
        bundle,
        methods=["GET"],
        tags=["Runs"],
        operation_id="bundle",
        responses={
            200: {"content": {"application/zip": {}}, "description": "The bundle."},
            **PROBLEMS,
        },
        response_class=Response,
        dependencies=[deaf_to(*CONDITIONS)],
    )


async def server_health(request: Request) -> Response:
    """Say that the server runs."""
    # Without a thread: it is answered however busy the server is.
    return answer(bound_for(request, None), {"status": "ok", "version": __version__})


async def ready(request: Request) -> Response:
    """Say that the tally answers; an error says why it does not."""

    def look() -> Response:
        bound = bound_for(request, None)
        bound.tally.scopes()  # reads the database
        return answer(bound, {"status": "ready", "read_only": bound.tally.read_only})

    return await in_thread(look)


async def whoami(request: Request, scope_header: ScopeHeader = None) -> Response:
    """Say who the caller is, and what the token is good for."""
    caller: Caller = request.scope[CALLER]
    actor, token = caller.actor, caller.token
    bounds = actor.credential
    result = {
        "user": actor.user,
        "agent": actor.agent,
        "organization": actor.organization,
        "projects": sorted(actor.projects),
        "role": actor.role,
        "token_class": None if token is None else token.token_class,
        "scopes": None if bounds is None or bounds.scopes is None else [*map(str, bounds.scopes)],
        "operations": None if bounds is None or bounds.operations is None else [*bounds.operations],
        "expires_at": None if token is None else token.expires_at,
    }
    return answer(await in_thread(bound_for, request, scope_header), result)


async def receipts(request: Request, run_id: str, scope_header: ScopeHeader = None) -> Response:
    """Return the receipts of a run, in the order of its chain."""
    return await _read(request, scope_header, lambda bound: bound.recordings.receipts(run_id))


async def foil(request: Request, run_id: str, scope_header: ScopeHeader = None) -> Response:
    """Return the end of a run's chain: keep it, and `verify` finds what is cut off later."""
    return await _read(request, scope_header, lambda bound: bound.recordings.foil(run_id))


async def bundle(request: Request, run_id: str, scope_header: ScopeHeader = None) -> Response:
    """Return a run as a file that anybody can verify without the tally."""

    def export() -> Response:
        content = bound_for(request, scope_header).recordings.export_receipt(run_id)
        name = f'attachment; filename="run-{run_id[-8:]}.tally"'
        return Response(content, 200, {"content-disposition": name}, "application/zip")

    return await in_thread(export)


async def metrics(request: Request, scope_header: ScopeHeader = None) -> Response:
    """Return the measures of the tally in the text format of Prometheus, to an operator."""

    def scrape() -> Response:
        content = Steward(bound_for(request, scope_header)).exposition()
        return Response(content, 200, {}, CONTENT_TYPE)

    return await in_thread(scrape)


class HookCall(BaseModel):
    """An event of an agent's session."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    payload: Any = None
    """The input of the hook, as the agent's program gives it."""
    format: HookFormat = "neutral"
    scope: str | None = None
    agent: str | None = None
    """The agent whose session it is, where the token names none."""
    via: HookPath | None = None
    """Where the hook is written down, where several tell of one session."""


async def answer_hook(request: Request, event: str, body: HookCall) -> Response:
    """Answer an event of an agent's session, as `tally hook` does, from a tally that is warm.

    The answer is the hook's own, without what other answers say beside the result.
    """

    def respond() -> Response:
        bound = bound_for(request, body.scope)
        actor = bound.actor
        if body.agent is not None and actor.agent not in (None, body.agent):
            raise InvalidInput("agent: the token names another one.", argument="agent")
        if body.agent is not None:
            bound = bound.tally.bind(actor.replace(agent=body.agent), bound.scope)
        try:
            answered = handle(
                bound, event, _own_payload(request, body.payload), body.format, body.via
            )
        except BadPayload as error:
            raise InvalidInput(str(error)) from error
        return Response(json.dumps(answered).encode(), 200, {}, "application/json")

    return await in_thread(respond)


def _own_payload(request: Request, payload: Any) -> Any:
    """Return a payload that leads to no file of the server's machine, unless its user sent it.

    Raises InvalidInput for a session whose words are in such a file.
    """
    caller: Caller = request.scope[CALLER]
    if caller.token is None or not isinstance(payload, dict) or _TRANSCRIPT not in payload:
        return payload
    if payload.get("hook_event_name") in _OF_TRANSCRIPTS:
        raise InvalidInput(
            f"{_TRANSCRIPT} is a file of the server's machine. Send the hook to its socket, or the "
            "words in the neutral format."
        )
    return {name: value for name, value in payload.items() if name != _TRANSCRIPT}


async def call_tool(
    request: Request,
    name: str,
    body: JsonObject,
    scope_header: ScopeHeader = None,
    run_header: RunHeader = None,
    step_header: StepHeader = None,
) -> Response:
    """Call a memory tool with the arguments that a model gave; the answer is for the model.

    The rules of the tally over tool calls hold. A tool that changes memory needs the approval of
    whoever runs the agent too, which the caller has asked for.
    """
    tool = MODEL_TOOLS.get(name)
    if tool is None:
        raise NotFound(f"There is no tool of that name: {', '.join(MODEL_TOOLS)}.")
    arguments = tool_arguments(name, body)

    def call(bound: BoundTally) -> Any:
        with within(request, bound, run_header, step_header):
            check = AllowedToolCall(checked=arguments)
            if has_rules(bound, "tool_call"):
                check = bound.check_tool_call(name, arguments, piece="HTTP")
            return check.result(tool.function(bound, **check.arguments))

    return await _read(request, scope_header, call)


async def frame_codes(request: Request, body: Frames, scope_header: ScopeHeader = None) -> Response:
    """Return the codes by which frames around memory texts are recognised when they come back, in
    the order of the texts. The key stays here.
    """
    return await _read(request, scope_header, lambda bound: codes_for_caller(bound, body.texts))


async def _read(request: Request, scope: str | None, call: Callable[[BoundTally], Any]) -> Response:
    def respond() -> Response:
        bound = bound_for(request, scope)
        return answer(bound, call(bound))

    return await in_thread(partial(respond))
