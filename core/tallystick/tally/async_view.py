"""The verbs of a bound tally for `async def` callers: the same names and arguments, awaited.

There is one implementation, which is synchronous. Each call runs in a worker thread, in a copy of
the caller's context, so that open runs and steps are seen there; the threads have a limit of their
own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial, update_wrapper
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from tallystick.access import AccessTokens, Spaces
from tallystick.aio import in_thread
from tallystick.errors import RecorderError
from tallystick.memory import WorkingMemory
from tallystick.ports import ModelEvent, ModelProvider
from tallystick.recorder import Recordings, Run, Step
from tallystick.recorder.run import status_for
from tallystick.records import (
    Actor,
    CompiledContext,
    EntryKind,
    Foil,
    JsonObject,
    Receipt,
    Retention,
    RunRecord,
    Scope,
    StepKind,
    StepRecord,
    StepStatus,
)
from tallystick.tally.model_calls import ModelCall, ModelStream, Preflight
from tallystick.tally.model_verbs import ModelVerbs
from tallystick.tally.operator import Operator

P = ParamSpec("P")
R = TypeVar("R")


class _Face(Protocol):
    """An asynchronous face of an object."""

    @property
    def sync(self) -> Any: ...


class Awaited(Generic[P, R]):
    """A verb of the synchronous object, as one that is awaited."""

    def __init__(self, verb: Callable[Concatenate[Any, P], R]) -> None:
        self.verb = verb

    @overload
    def __get__(self, face: None, owner: type) -> Awaited[P, R]: ...
    @overload
    def __get__(self, face: _Face, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(
        self, face: _Face | None, owner: type
    ) -> Awaited[P, R] | Callable[P, Coroutine[Any, Any, R]]:
        if face is None:
            return self
        verb = getattr(face.sync, self.verb.__name__)

        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            result: R = await in_thread(partial(verb, *args, **kwargs))
            return result

        return update_wrapper(call, self.verb)


class AsyncBoundTally:
    """What `bound.aio` is: each verb of a bound tally, awaited. Safe to share between tasks."""

    def __init__(self, sync: ModelVerbs) -> None:
        """Use `bound.aio`."""
        self.sync = sync

    remember = Awaited(ModelVerbs.remember)
    remember_many = Awaited(ModelVerbs.remember_many)
    reads = Awaited(ModelVerbs.reads)
    recall = Awaited(ModelVerbs.recall)
    still_stand = Awaited(ModelVerbs.still_stand)
    get = Awaited(ModelVerbs.get)
    memories = Awaited(ModelVerbs.memories)
    modify = Awaited(ModelVerbs.modify)
    modify_many = Awaited(ModelVerbs.modify_many)
    forget = Awaited(ModelVerbs.forget)
    forget_matching = Awaited(ModelVerbs.forget_matching)
    recover = Awaited(ModelVerbs.recover)
    correct = Awaited(ModelVerbs.correct)
    promote = Awaited(ModelVerbs.promote)
    share = Awaited(ModelVerbs.share)
    inspect = Awaited(ModelVerbs.inspect)
    source = Awaited(ModelVerbs.source)
    activity = Awaited(ModelVerbs.activity)
    explore = Awaited(ModelVerbs.explore)
    context_pack = Awaited(ModelVerbs.context_pack)
    wake = Awaited(ModelVerbs.wake)
    call_model = Awaited(ModelVerbs.call_model)
    history = Awaited(ModelVerbs.history)
    reflect = Awaited(ModelVerbs.reflect)
    end_session = Awaited(ModelVerbs.end_session)
    reviews = Awaited(ModelVerbs.reviews)
    proposal = Awaited(ModelVerbs.proposal)
    review = Awaited(ModelVerbs.review)
    preview_access = Awaited(ModelVerbs.preview_access)
    preview_member = Awaited(ModelVerbs.preview_member)
    compile = Awaited(ModelVerbs.compile)
    runs = Awaited(ModelVerbs.runs)
    verify = Awaited(ModelVerbs.verify)
    replay = Awaited(ModelVerbs.replay)
    replay_later = Awaited(ModelVerbs.replay_later)
    keep_turn = Awaited(ModelVerbs.keep_turn)
    check_tool_call = Awaited(ModelVerbs.check_tool_call)
    check_model_call = Awaited(ModelVerbs.check_model_call)
    approvals = Awaited(ModelVerbs.approvals)
    approval = Awaited(ModelVerbs.approval)
    approve = Awaited(ModelVerbs.approve)
    deny = Awaited(ModelVerbs.deny)
    revoke = Awaited(ModelVerbs.revoke)

    @property
    def actor(self) -> Actor:
        """The actor of the view."""
        return self.sync.actor

    @property
    def scope(self) -> Scope:
        """The scope of the view."""
        return self.sync.scope

    @property
    def operator(self) -> AsyncOperator:
        """Same as `bound.operator`, awaited."""
        return AsyncOperator(self.sync.operator)

    @property
    def recordings(self) -> AsyncRecordings:
        """Same as `bound.recordings`, awaited."""
        return AsyncRecordings(self.sync.recordings)

    @property
    def spaces(self) -> AsyncSpaces:
        """Same as `bound.spaces`, awaited."""
        return AsyncSpaces(self.sync.spaces)

    @property
    def tokens(self) -> AsyncAccessTokens:
        """Same as `bound.tokens`, awaited."""
        return AsyncAccessTokens(self.sync.tokens)

    def working(self, run_id: str | None = None) -> AsyncWorkingMemory:
        """Same as `bound.working`, awaited."""
        return AsyncWorkingMemory(self.sync.working(run_id))

    def stream_model(
        self,
        compiled: CompiledContext,
        *,
        provider: ModelProvider | str,
        parameters: Mapping[str, Any] | None = None,
        agent_name: str = "agent",
        preflight: Preflight = "off",
        approval_token: str | None = None,
    ) -> AsyncModelStream:
        """Send a context when its `async with` block begins; same arguments as
        `bound.stream_model`.
        """
        return AsyncModelStream(
            partial(
                self.sync.stream_model,
                compiled,
                provider=provider,
                parameters=parameters,
                agent_name=agent_name,
                preflight=preflight,
                approval_token=approval_token,
            )
        )

    def run(
        self,
        agent_name: str,
        *,
        domain: str | None = None,
        goal: str | None = None,
        metadata: JsonObject | None = None,
        run_id: str | None = None,
        retention: Retention | None = None,
    ) -> AsyncRun:
        """Start a run when its `async with` block begins; same arguments as `bound.run`."""
        return AsyncRun(
            partial(
                self.sync.run,
                agent_name,
                domain=domain,
                goal=goal,
                metadata=metadata,
                run_id=run_id,
                retention=retention,
            )
        )


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
        self._source = self._opening()
        self._stream = await self._in_thread(self._source.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._source is not None
        await self._in_thread(partial(self._source.__exit__, kind, error, traceback))

    async def __aiter__(self) -> AsyncIterator[ModelEvent]:
        events = iter(self.sync)
        while (event := await self._in_thread(partial(next, events, None))) is not None:
            yield event

    async def call(self) -> ModelCall:
        """Return the call as it was recorded; what has not been read is read now."""
        return await self._in_thread(lambda: self.sync.call)


class AsyncOperator:
    """Same as `Operator`, awaited."""

    def __init__(self, sync: Operator) -> None:
        self.sync = sync

    erase = Awaited(Operator.erase)
    erase_recorded = Awaited(Operator.erase_recorded)
    prove_unreachable = Awaited(Operator.prove_unreachable)
    prove_erased = Awaited(Operator.prove_erased)
    purge = Awaited(Operator.purge)
    choose_windows = Awaited(Operator.choose_windows)
    jobs = Awaited(Operator.jobs)
    job = Awaited(Operator.job)
    retry_jobs = Awaited(Operator.retry_jobs)
    cancel_job = Awaited(Operator.cancel_job)
    outbound_calls = Awaited(Operator.outbound_calls)
    doctor = Awaited(Operator.doctor)
    sizes = Awaited(Operator.sizes)
    rebuild_index = Awaited(Operator.rebuild_index)
    freeze = Awaited(Operator.freeze)
    thaw = Awaited(Operator.thaw)
    backup = Awaited(Operator.backup)
    export = Awaited(Operator.export)
    import_from = Awaited(Operator.import_from)


class AsyncRecordings:
    """Same as `Recordings`, awaited."""

    def __init__(self, sync: Recordings) -> None:
        self.sync = sync

    runs = Awaited(Recordings.runs)
    run = Awaited(Recordings.run)
    steps = Awaited(Recordings.steps)
    step_counts = Awaited(Recordings.step_counts)
    step = Awaited(Recordings.step)
    find = Awaited(Recordings.find)
    steps_of_task = Awaited(Recordings.steps_of_task)
    receipts = Awaited(Recordings.receipts)
    receipt = Awaited(Recordings.receipt)
    entries = Awaited(Recordings.entries)
    compiled = Awaited(Recordings.compiled)
    candidates = Awaited(Recordings.candidates)
    knew = Awaited(Recordings.knew)
    summaries = Awaited(Recordings.summaries)
    unseen = Awaited(Recordings.unseen)
    trace = Awaited(Recordings.trace)
    changed = Awaited(Recordings.changed)
    diff = Awaited(Recordings.diff)
    written = Awaited(Recordings.written)
    uses = Awaited(Recordings.uses)
    verify = Awaited(Recordings.verify)
    foil = Awaited(Recordings.foil)
    export_receipt = Awaited(Recordings.export_receipt)
    prefix_reuse = Awaited(Recordings.prefix_reuse)
    tape = Awaited(Recordings.tape)
    player = Awaited(Recordings.player)
    replay = Awaited(Recordings.replay)
    replayed = Awaited(Recordings.replayed)


class AsyncSpaces:
    """Same as `Spaces`, awaited."""

    def __init__(self, sync: Spaces) -> None:
        self.sync = sync

    create = Awaited(Spaces.create)
    get = Awaited(Spaces.get)
    list = Awaited(Spaces.list)
    update = Awaited(Spaces.update)


class AsyncAccessTokens:
    """Same as `AccessTokens`, awaited."""

    def __init__(self, sync: AccessTokens) -> None:
        self.sync = sync

    make = Awaited(AccessTokens.make)
    list = Awaited(AccessTokens.list)
    rotate = Awaited(AccessTokens.rotate)
    revoke = Awaited(AccessTokens.revoke)


class AsyncWorkingMemory:
    """Same as `WorkingMemory`, awaited."""

    def __init__(self, sync: WorkingMemory) -> None:
        self.sync = sync

    set = Awaited(WorkingMemory.set)
    get = Awaited(WorkingMemory.get)
    all = Awaited(WorkingMemory.all)
    drop = Awaited(WorkingMemory.drop)
    clear = Awaited(WorkingMemory.clear)


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
        recorded = await in_thread(self._start)
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
        await in_thread(partial(recorded.end, status_for(kind)))


class AsyncRun(_Block[Run]):
    """A run whose begin and end are awaited: an `async with` block. Verbs inside are recorded."""

    @property
    def record(self) -> RunRecord:
        """The run as it is recorded."""
        return self.sync.record

    def step(
        self,
        kind: StepKind,
        *,
        name: str | None = None,
        parent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncStep:
        """Start a step when its `async with` block begins; same arguments as `run.step`."""
        run = self.sync
        return AsyncStep(partial(run.step, kind, name=name, parent=parent, metadata=metadata))

    async def end(self, status: StepStatus = "completed") -> Foil:
        """Same as `run.end`: return the head of the chain once everything is committed."""
        return await in_thread(partial(self.sync.end, status))


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
