"""Routes that record: runs and their steps, compiles, and checks of calls."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from tallystick.aio import in_thread
from tallystick.errors import InvalidInput
from tallystick.kit.rendering import (
    ToolCall,
    record_tool_call,
    record_tool_error,
    record_tool_result,
)
from tallystick.recorder import Run, Step, current_run, time_of
from tallystick.recorder.run import require_ended, require_recordable
from tallystick.records import (
    Compaction,
    CompileConfig,
    CompiledContext,
    ContextItem,
    Coverage,
    EntryKind,
    Foil,
    Json,
    JsonObject,
    Memory,
    MomentField,
    Piece,
    PolicyRule,
    Receipt,
    Retention,
    RunRecord,
    StepKind,
    StepRecord,
    StepStatus,
    TargetProfile,
    ToolSpec,
)
from tallystick.tally import AllowedModelCall, AllowedToolCall, BoundTally
from tallystick_server.answers import answer
from tallystick_server.endpoints import (
    RequestBody,
    ScopeHeader,
    add_endpoint,
    bound_for,
)
from tallystick_server.open_runs import RunHeader, StepHeader, open_runs_of, within


class StartRun(RequestBody):
    """A run that begins."""

    agent_name: str
    domain: str | None = None
    goal: str | None = None
    metadata: JsonObject | None = None
    run_id: str | None = None
    retention: Retention | None = None


class Entry(RequestBody):
    """An input or output of a step."""

    kind: EntryKind
    payload: Json = None
    summary: JsonObject | None = None
    at: MomentField | None = Field(default=None, description="When it happened; by default now.")


_STARTED = Field(default=None, description="When it started; by default now.")
_ENDED = Field(default=None, description="When it ended; by default now.")


class NewStep(RequestBody):
    """A step, as it was, or with `open` one that begins."""

    kind: StepKind
    name: str | None = None
    parent: str | None = None
    metadata: JsonObject | None = None
    entries: tuple[Entry, ...] = Field(default=(), fail_fast=True)
    status: StepStatus = "completed"
    open: bool = Field(
        default=False, description="True to record more in it, until it is ended by itself."
    )
    started_at: MomentField | None = _STARTED
    ended_at: MomentField | None = _ENDED


class NewEntries(RequestBody):
    """Inputs and outputs of an open step."""

    entries: tuple[Entry, ...] = Field(fail_fast=True)


class EndStep(RequestBody):
    """The end of an open step."""

    status: StepStatus = "completed"
    ended_at: MomentField | None = _ENDED


class EndRun(RequestBody):
    """The end of a run."""

    status: StepStatus = "completed"


class ToolResult(RequestBody):
    """A tool call with its result or its error."""

    run_id: str | None = Field(default=None, description="By default that of the header.")
    name: str
    arguments: Json = None
    tool_call_id: str | None = None
    result: Json = None
    error: str | None = None
    started_at: MomentField | None = _STARTED
    ended_at: MomentField | None = _ENDED


class Compile(RequestBody):
    """Candidates, and the budget for which the best of them are chosen."""

    items: tuple[ContextItem | Memory | Piece, ...] = Field(max_length=10_000, fail_fast=True)
    budget: int
    model: str | None = None
    provider: str | None = None
    query: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    reserve: int = 0
    task: str | None = None
    task_type: str | None = None
    environment: str | None = None
    rules: tuple[PolicyRule, ...] = ()
    summaries: dict[str, str] | None = None
    config: CompileConfig | None = None
    target: TargetProfile | None = None
    as_of: MomentField | None = None
    coverage: Coverage = "whole"
    compaction: Compaction = "cut"
    working: bool = Field(
        default=True,
        description="False leaves out what the run under way and its thread keep in mind.",
    )
    thread: str | None = Field(
        default=None, description="The thread whose working memory is a candidate instead."
    )

    def compile_with(self, bound: BoundTally) -> CompiledContext:
        """Compile the candidates. Raises as `compile`."""
        fields = set(Compile.model_fields) - {"items", "thread"}
        options = {name: getattr(self, name) for name in fields}
        if self.thread is not None:
            options["working"] = bound.working.of(thread=self.thread)
        return bound.compile(self.items, **options)


class CheckedCallBody(RequestBody):
    """A call that is about to happen with the caller."""

    kind: Annotated[
        str, Field(pattern="^(tool_call|model_call)$", description="tool_call or model_call.")
    ]
    name: str | None = Field(default=None, description="The tool.")
    arguments: Json = Field(default=None, description="Of the tool, or the request to the model.")
    input_schema: JsonObject | None = Field(
        default=None,
        description="The tool's JSON Schema, by which the arguments are read: strictly, with its "
        "defaults.",
    )
    tool_class: str | None = None
    call_id: str | None = None
    provider: str | None = None
    model: str | None = None
    task_type: str | None = None
    environment: str | None = None
    sensitivity: str | None = None
    approval_token: str | None = None


class CheckedCall(BaseModel):
    """A call that may happen."""

    rule_id: str | None
    effect: str | None
    arguments: Json
    """The arguments to make it with: as the schema reads them, cleaned where a rule redacts."""


def add_recording(router: APIRouter) -> None:
    """Add the routes of runs, compiles and checks."""

    add = partial(add_endpoint, router)
    add("/runs", start_run, RunRecord, "Runs")
    add("/runs/start", start_run, RunRecord, "Runs", in_reference=False)
    add("/runs/{run_id}/steps", add_step, Receipt | StepRecord, "Runs")
    add("/runs/{run_id}/end", end_run, Foil, "Runs")
    add("/steps/{step_id}/entries", add_entries, StepRecord, "Runs")
    add("/steps/{step_id}/end", end_step, Receipt, "Runs")
    add("/tools/result", add_tool_result, Receipt | StepRecord, "Runs")
    add("/context/compile", compile_context, CompiledContext, "Context")
    add("/compile", compile_context, CompiledContext, "Context", in_reference=False)
    add("/policy/check", check_policy, CheckedCall, "Approvals")


async def start_run(request: Request, body: StartRun, scope_header: ScopeHeader = None) -> Response:
    """Start a run, and record it step by step. It is interrupted when the server ends."""

    def start() -> Response:
        bound = bound_for(request, scope_header)
        run = open_runs_of(request).begin(lambda: bound.run(**body.model_dump()))
        return answer(bound, run.record)

    return await in_thread(start)


async def add_step(
    request: Request, run_id: str, body: NewStep, scope_header: ScopeHeader = None
) -> Response:
    """Record a step of a run, whole, and return its receipt after the commit; or with `open` begin
    one, and return it as it is. Calls that name an open step in `Tallystick-Step` are recorded in
    it.
    """

    def record() -> Response:
        bound = bound_for(request, scope_header)
        run = open_runs_of(request).of(run_id, bound)
        if body.open and not body.model_fields_set.isdisjoint(("status", "ended_at")):
            raise InvalidInput("An open step has no end yet: leave status and ended_at out.")
        start = _start_of(run, body.started_at, body.ended_at)
        require_ended(body.status)
        _check_entries(run, body.entries, since=start)
        step = run.step(
            body.kind,
            name=body.name,
            parent=body.parent,
            metadata=body.metadata,
            started_at=start,
        )
        try:
            _record_entries(step, body.entries)
            ended = None if body.open else step.end(body.status, ended_at=body.ended_at)
        except BaseException as error:
            step.fail(error)
            raise
        return answer(bound, step.step_record if ended is None else ended)

    return await in_thread(record)


def _start_of(run: Run, started_at: MomentField | None, ended_at: MomentField | None) -> int:
    """Return when a step began, by default now. Raises InvalidInput for false times, before the
    step is there: what is refused leaves none.
    """
    time, began = partial(time_of, run.context), run.record.started_at
    start = time("started_at", started_at, since=began) or run.context.store.clock.now()
    time("ended_at", ended_at, since=start)
    return start


def _check_entries(run: Run, entries: Iterable[Entry], *, since: int) -> None:
    """Raise InvalidInput for a time or kind of one of the entries, before the first of them is
    recorded.
    """
    for entry in entries:
        require_recordable(entry.kind)
        time_of(run.context, "at", entry.at, since=since)


def _record_entries(step: Step, entries: Iterable[Entry]) -> None:
    for entry in entries:
        step.record(entry.kind, entry.payload, summary=entry.summary, at=entry.at)


async def add_entries(
    request: Request, step_id: str, body: NewEntries, scope_header: ScopeHeader = None
) -> Response:
    """Record entries in an open step, and return it as it is. The end of the step acknowledges
    them.
    """

    def record() -> Response:
        bound = bound_for(request, scope_header)
        step = open_runs_of(request).step_of(step_id, bound)
        _check_entries(step.run, body.entries, since=step.started_at)
        _record_entries(step, body.entries)
        return answer(bound, step.step_record)

    return await in_thread(record)


async def end_step(
    request: Request, step_id: str, body: EndStep, scope_header: ScopeHeader = None
) -> Response:
    """End an open step and return its receipt after the commit."""

    def end() -> Response:
        bound = bound_for(request, scope_header)
        step = open_runs_of(request).step_of(step_id, bound)
        return answer(bound, step.end(body.status, ended_at=body.ended_at))

    return await in_thread(end)


async def end_run(
    request: Request, run_id: str, body: EndRun, scope_header: ScopeHeader = None
) -> Response:
    """End a run; return its foil, which proves later that nothing was cut off."""

    def end() -> Response:
        bound = bound_for(request, scope_header)
        run = open_runs_of(request).take(run_id, bound)
        return answer(bound, run.end(body.status))

    return await in_thread(end)


async def add_tool_result(
    request: Request,
    body: ToolResult,
    scope_header: ScopeHeader = None,
    run_header: RunHeader = None,
    step_header: StepHeader = None,
) -> Response:
    """Record a tool call with its result as a step of a run, below the open step that the header
    names, and return the receipt; or in that step, where it is the step of the tool call.
    """

    def record() -> Response:
        bound = bound_for(request, scope_header)
        with within(request, bound, body.run_id or run_header, step_header):
            run = current_run()
            if run is None:
                raise InvalidInput(
                    "run_id: a tool call is recorded in a run. Name it.", argument="run_id"
                )
            if body.error is not None and body.result is not None:
                raise InvalidInput("A tool call has a result or an error: give one.")
            _start_of(run, body.started_at, body.ended_at)
            step, is_own = run.join("tool_call", name=body.name, started_at=body.started_at)
            if not is_own and (body.started_at, body.ended_at) != (None, None):
                raise InvalidInput(
                    "The open step of the tool call has times of its own: leave started_at and "
                    "ended_at out."
                )
            try:
                record_tool_call(step, ToolCall(body.name, body.arguments, body.tool_call_id))
                if body.error is None:
                    record_tool_result(step, body.result)
                else:
                    record_tool_error(step, None, body.error)
                if not is_own:
                    return answer(bound, step.step_record)
                status: StepStatus = "completed" if body.error is None else "failed"
                return answer(bound, step.end(status, ended_at=body.ended_at))
            except BaseException as error:
                if is_own:
                    step.fail(error)
                raise

    return await in_thread(record)


async def compile_context(
    request: Request,
    body: Compile,
    scope_header: ScopeHeader = None,
    run_header: RunHeader = None,
    step_header: StepHeader = None,
) -> Response:
    """Choose the best context that fits a budget, with a decision for every candidate."""

    def compile_items() -> Response:
        bound = bound_for(request, scope_header)
        with within(request, bound, run_header, step_header):
            return answer(bound, body.compile_with(bound))

    return await in_thread(compile_items)


async def check_policy(
    request: Request,
    body: CheckedCallBody,
    scope_header: ScopeHeader = None,
    run_header: RunHeader = None,
    step_header: StepHeader = None,
) -> Response:
    """Check a call against the rules before it happens: refused, waiting for a person, or allowed
    with the arguments that it may have.
    """

    def check_call() -> Response:
        bound = bound_for(request, scope_header)
        facts: dict[str, Any] = {
            name: getattr(body, name)
            for name in ("provider", "model", "task_type", "environment", "sensitivity")
        }
        facts |= {"approval_token": body.approval_token, "piece": "HTTP"}
        with within(request, bound, run_header, step_header):
            check: AllowedModelCall | AllowedToolCall
            if body.kind == "model_call":
                check = sent = bound.check_model_call(
                    request=body.arguments, call_id=body.call_id, **facts
                )
                arguments = sent.request
            elif body.name is None:
                raise InvalidInput("name: a tool call has the name of its tool.", argument="name")
            else:
                check = allowed = bound.check_tool_call(
                    body.name,
                    body.arguments,
                    input_schema=body.input_schema,
                    tool_class=body.tool_class,
                    tool_call_id=body.call_id,
                    **facts,
                )
                arguments = allowed.arguments
        result = {"rule_id": check.rule_id, "effect": check.effect, "arguments": arguments}
        return answer(bound, result)

    return await in_thread(check_call)
