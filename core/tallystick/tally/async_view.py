"""The verbs of a bound tally for `async def` callers: the same names and arguments, awaited.

There is one implementation, which is synchronous. Each call runs in a worker thread, in a copy of
the caller's context, so that open runs and steps are seen there; the threads have a limit of their
own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial, update_wrapper
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from tallystick.aio import begin_in_thread, end_in_thread, in_thread
from tallystick.errors import RecorderError
from tallystick.memory import WorkingMemory
from tallystick.ports import ModelEvent
from tallystick.recorder import Run, Step
from tallystick.recorder.run import status_for
from tallystick.records import (
    Actor,
    EntryKind,
    Foil,
    Receipt,
    RunRecord,
    Scope,
    StepRecord,
    StepStatus,
)
from tallystick.tally import call_checks, daily_verbs, model_calls
from tallystick.tally.kept_turns import keep_tool_output, keep_turn
from tallystick.tally.model_calls import ModelCall, ModelStream
from tallystick.tally.operator import Operator
from tallystick.tally.recordings import BoundRecordings
from tallystick.tally.served_verbs import (
    ApprovalVerbs,
    AsyncFace,
    CorrectionVerbs,
    JobVerbs,
    Offered,
    OfferedPart,
    OperatorVerbs,
    RecordingVerbs,
    ReviewVerbs,
    SpaceVerbs,
    TallyVerbs,
    TokenVerbs,
    WorkingVerbs,
)

P = ParamSpec("P")
R = TypeVar("R")
B = TypeVar("B")


class _HasSync(Protocol):
    @property
    def sync(self) -> Any: ...


class Opened(Generic[P, B]):
    """A verb that opens a block, as one whose block is entered with `async with`."""

    def __init__(
        self, verb: Callable[Concatenate[Any, P], Any], block: Callable[[Callable[[], Any]], B]
    ) -> None:
        self.verb, self.block = verb, block

    @overload
    def __get__(self, face: None, owner: type) -> Opened[P, B]: ...
    @overload
    def __get__(self, face: _HasSync, owner: type) -> Callable[P, B]: ...
    def __get__(self, face: _HasSync | None, owner: type) -> Opened[P, B] | Callable[P, B]:
        if face is None:
            return self
        verb = getattr(face.sync, self.verb.__name__)

        def begin(*args: P.args, **kwargs: P.kwargs) -> B:
            return self.block(partial(verb, *args, **kwargs))

        return update_wrapper(begin, self.verb)


class AsyncModelStream:
    """An answer under way: an `async with` block whose events are iterated over with `async for`.

    Everything runs in worker threads, one after the other, in one context.
    """

    def __init__(self, opening: Callable[[], AbstractContextManager[ModelStream]]) -> None:
        """Use `bound.aio.stream_model`."""
        self._opening = opening
        self._context = copy_context()
        self._source: AbstractContextManager[ModelStream] | None = None
        self._stream: ModelStream | None = None

    @property
    def sync(self) -> ModelStream:
        """The stream itself. Raises RecorderError before its block began."""
        if self._stream is None:
            raise RecorderError(
                "A stream begins with its block: async with bound.aio.stream_model(…) as stream."
            )
        return self._stream

    async def _in_thread(self, function: Callable[[], R]) -> R:
        return await in_thread(partial(self._context.run, function))

    async def __aenter__(self) -> Self:
        self._source = source = self._opening()

        def leave(_: ModelStream) -> None:
            self._context.run(source.__exit__, None, None, None)

        self._stream = await begin_in_thread(partial(self._context.run, source.__enter__), leave)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._source is not None
        leave = partial(self._source.__exit__, kind, error, traceback)
        await end_in_thread(self._context.run, leave)

    async def __aiter__(self) -> AsyncIterator[ModelEvent]:
        events = iter(self.sync)
        while (event := await self._in_thread(partial(next, events, None))) is not None:
            yield event

    async def call(self) -> ModelCall:
        """Return the call as it was recorded; what has not been read is read now."""
        return await self._in_thread(lambda: self.sync.call)


Recorded = TypeVar("Recorded", Run, Step)


class _Block(Generic[Recorded]):
    """A run or step that begins and ends with an `async with` block, in the caller's context."""

    def __init__(self, start: Callable[[], Recorded]) -> None:
        self._start: Callable[[], Recorded] = start
        self._recorded: Recorded | None = None
        self._leave: Callable[[], None] = lambda: None

    @property
    def sync(self) -> Recorded:
        """The run or step itself. Raises RecorderError before its block began."""
        if self._recorded is None:
            raise RecorderError(
                "A run or step begins with its block: async with bound.aio.run(…) as run."
            )
        return self._recorded

    @property
    def id(self) -> str:
        """The id of the run or step."""
        return self.sync.id

    async def __aenter__(self) -> Self:
        recorded = await begin_in_thread(self._start, lambda begun: begun.end("cancelled"))
        self._recorded, self._leave = recorded, recorded.enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()
        recorded = self.sync
        if error is not None and isinstance(recorded, Step):
            recorded.fail(error)
        await end_in_thread(partial(recorded.end, status_for(kind)))


class AsyncStep(_Block[Step]):
    """A step whose end is awaited: an `async with` block. Verbs inside are recorded in it."""

    @property
    def step_record(self) -> StepRecord:
        """The step as it is recorded."""
        return self.sync.step_record

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, once the step has ended and is stored."""
        return self.sync.receipt

    def record(
        self, kind: EntryKind, payload: Any = None, *, summary: Mapping[str, Any] | None = None
    ) -> None:
        """Same as `step.record`: nothing waits, so that nothing is awaited."""
        self.sync.record(kind, payload, summary=summary)

    async def end(self, status: StepStatus = "completed") -> Receipt:
        """Same as `step.end`: return the receipt after the commit."""
        return await in_thread(partial(self.sync.end, status))


class AsyncRun(_Block[Run]):
    """A run whose begin and end are awaited: an `async with` block. Verbs inside are recorded."""

    @property
    def record(self) -> RunRecord:
        """The run as it is recorded."""
        return self.sync.record

    step = Opened(Run.step, AsyncStep)

    async def end(self, status: StepStatus = "completed") -> Foil:
        """Same as `run.end`: return the head of the chain once everything is committed."""
        return await in_thread(partial(self.sync.end, status))


class ServedOperator(AsyncFace, OperatorVerbs):
    """The verbs of `Operator` that a server offers too, awaited."""


class AsyncOperator(ServedOperator):
    """Same as `Operator`, awaited."""

    backup = Offered(Operator.backup)
    import_from = Offered(Operator.import_from)


class ServedRecordings(AsyncFace, RecordingVerbs):
    """The verbs of `BoundRecordings` that a server offers too, awaited."""

    receipts = Offered(BoundRecordings.receipts)
    foil = Offered(BoundRecordings.foil)
    export_receipt = Offered(BoundRecordings.export_receipt)


class AsyncRecordings(ServedRecordings):
    """Same as `BoundRecordings`, awaited."""

    runs_of = Offered(BoundRecordings.runs_of)
    step_counts = Offered(BoundRecordings.step_counts)
    find = Offered(BoundRecordings.find)
    steps_of_task = Offered(BoundRecordings.steps_of_task)
    compiled = Offered(BoundRecordings.compiled)
    candidates = Offered(BoundRecordings.candidates)
    summaries = Offered(BoundRecordings.summaries)
    prefix_reuse = Offered(BoundRecordings.prefix_reuse)
    tape = Offered(BoundRecordings.tape)
    player = Offered(BoundRecordings.player)
    activity = Offered(BoundRecordings.activity)
    reads = Offered(BoundRecordings.reads)
    preview_replay = Offered(BoundRecordings.preview_replay)
    replayed = Offered(BoundRecordings.replayed)


class AsyncSpaces(AsyncFace, SpaceVerbs):
    """Same as `BoundSpaces`, awaited."""


class AsyncAccessTokens(AsyncFace, TokenVerbs):
    """Same as `AccessTokens`, awaited."""


class AsyncCorrections(AsyncFace, CorrectionVerbs):
    """Same as `Corrections`, awaited."""


class AsyncReviews(AsyncFace, ReviewVerbs):
    """Same as `Reviews`, awaited."""


class AsyncApprovals(AsyncFace, ApprovalVerbs):
    """Same as `BoundApprovals`, awaited."""


class AsyncJobs(AsyncFace, JobVerbs):
    """Same as `Jobs`, awaited."""


class ServedWorkingMemory(AsyncFace, WorkingVerbs):
    """What a server offers of `WorkingMemory`, awaited."""


class AsyncWorkingMemory(ServedWorkingMemory):
    """Same as `WorkingMemory`, awaited."""

    all = Offered(WorkingMemory.all)
    clear = Offered(WorkingMemory.clear)
    shown = Offered(WorkingMemory.shown)

    def of(self, run_id: str | None = None, *, thread: str | None = None) -> AsyncWorkingMemory:
        """Same as `bound.working.of`."""
        return AsyncWorkingMemory(self.sync.of(run_id, thread=thread))


class ServedTally(AsyncFace, TallyVerbs):
    """The verbs of a bound tally that a server offers too, awaited."""

    compile = Offered(daily_verbs.compile)

    corrections = OfferedPart(AsyncCorrections)
    reviews = OfferedPart(AsyncReviews)
    approvals = OfferedPart(AsyncApprovals)
    jobs = OfferedPart(AsyncJobs)
    spaces = OfferedPart(AsyncSpaces)
    tokens = OfferedPart(AsyncAccessTokens)
    working: OfferedPart[Any] = OfferedPart(ServedWorkingMemory)


class AsyncBoundTally(ServedTally):
    """What `bound.aio` is: each verb of a bound tally, awaited. Safe to share between tasks."""

    call_model = Offered(model_calls.call_model)
    keep_turn = Offered(keep_turn)
    keep_tool_output = Offered(keep_tool_output)
    check_tool_call = Offered(call_checks.check_tool_call)
    check_model_call = Offered(call_checks.check_model_call)
    stream_model = Opened(model_calls.stream_model, AsyncModelStream)
    run = Opened(daily_verbs.run, AsyncRun)

    @property
    def actor(self) -> Actor:
        """The actor of the view."""
        actor: Actor = self.sync.actor
        return actor

    @property
    def scope(self) -> Scope:
        """The scope of the view."""
        scope: Scope = self.sync.scope
        return scope

    operator = OfferedPart(AsyncOperator)
    recordings = OfferedPart(AsyncRecordings)
    working: OfferedPart[Any] = OfferedPart(AsyncWorkingMemory)
