"""The same client for `async def` callers: each verb awaited, in a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from tallystick.access import AccessTokens, Spaces
from tallystick.aio import in_thread
from tallystick.recorder import Recordings
from tallystick.tally import BoundTally, Operator

if TYPE_CHECKING:
    from tallystick_server.client.remote import RemoteTally

__all__ = ["AsyncRemoteTally"]

P = ParamSpec("P")
R = TypeVar("R")


class _Awaited(Generic[P, R]):
    """A verb of the synchronous client, as one that is awaited."""

    def __init__(self, verb: Callable[Concatenate[Any, P], R]) -> None:
        self.verb = verb

    @overload
    def __get__(self, face: None, owner: type) -> _Awaited[P, R]: ...
    @overload
    def __get__(self, face: _Face, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(
        self, face: _Face | None, owner: type
    ) -> _Awaited[P, R] | Callable[P, Coroutine[Any, Any, R]]:
        if face is None:
            return self
        verb = getattr(face.sync, self.verb.__name__)

        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            result: R = await in_thread(partial(verb, *args, **kwargs))
            return result

        return update_wrapper(call, self.verb)


class _Face:
    """Verbs of one part of the synchronous client."""

    def __init__(self, sync: Any) -> None:
        self.sync = sync


class AsyncRemoteOperator(_Face):
    """Same as `RemoteOperator`, awaited."""

    erase = _Awaited(Operator.erase)
    erase_recorded = _Awaited(Operator.erase_recorded)
    prove_unreachable = _Awaited(Operator.prove_unreachable)
    prove_erased = _Awaited(Operator.prove_erased)
    purge = _Awaited(Operator.purge)
    choose_windows = _Awaited(Operator.choose_windows)
    jobs = _Awaited(Operator.jobs)
    job = _Awaited(Operator.job)
    retry_jobs = _Awaited(Operator.retry_jobs)
    cancel_job = _Awaited(Operator.cancel_job)
    doctor = _Awaited(Operator.doctor)
    sizes = _Awaited(Operator.sizes)
    freeze = _Awaited(Operator.freeze)
    thaw = _Awaited(Operator.thaw)
    export = _Awaited(Operator.export)


class AsyncRemoteSpaces(_Face):
    """Same as `RemoteSpaces`, awaited."""

    create = _Awaited(Spaces.create)
    get = _Awaited(Spaces.get)
    list = _Awaited(Spaces.list)
    update = _Awaited(Spaces.update)


class AsyncRemoteTokens(_Face):
    """Same as `RemoteTokens`, awaited."""

    make = _Awaited(AccessTokens.make)
    list = _Awaited(AccessTokens.list)
    rotate = _Awaited(AccessTokens.rotate)
    revoke = _Awaited(AccessTokens.revoke)


class AsyncRemoteRecordings(_Face):
    """Same as `RemoteRecordings`, awaited."""

    run = _Awaited(Recordings.run)
    steps = _Awaited(Recordings.steps)
    step = _Awaited(Recordings.step)
    entries = _Awaited(Recordings.entries)
    receipt = _Awaited(Recordings.receipt)
    knew = _Awaited(Recordings.knew)
    unseen = _Awaited(Recordings.unseen)
    trace = _Awaited(Recordings.trace)
    changed = _Awaited(Recordings.changed)
    diff = _Awaited(Recordings.diff)
    written = _Awaited(Recordings.written)
    uses = _Awaited(Recordings.uses)
    receipts = _Awaited(Recordings.receipts)
    foil = _Awaited(Recordings.foil)
    export_receipt = _Awaited(Recordings.export_receipt)


class AsyncRemoteTally(_Face):
    """What `remote.aio` is: each verb of the client, awaited. Safe to share between tasks."""

    def __init__(self, sync: RemoteTally) -> None:
        """Use `remote.aio`."""
        super().__init__(sync)

    remember = _Awaited(BoundTally.remember)
    remember_many = _Awaited(BoundTally.remember_many)
    recall = _Awaited(BoundTally.recall)
    get = _Awaited(BoundTally.get)
    memories = _Awaited(BoundTally.memories)
    modify = _Awaited(BoundTally.modify)
    modify_many = _Awaited(BoundTally.modify_many)
    forget = _Awaited(BoundTally.forget)
    forget_matching = _Awaited(BoundTally.forget_matching)
    recover = _Awaited(BoundTally.recover)
    correct = _Awaited(BoundTally.correct)
    promote = _Awaited(BoundTally.promote)
    share = _Awaited(BoundTally.share)
    inspect = _Awaited(BoundTally.inspect)
    source = _Awaited(BoundTally.source)
    explore = _Awaited(BoundTally.explore)
    context_pack = _Awaited(BoundTally.context_pack)
    wake = _Awaited(BoundTally.wake)
    history = _Awaited(BoundTally.history)
    preview_access = _Awaited(BoundTally.preview_access)
    runs = _Awaited(BoundTally.runs)
    verify = _Awaited(BoundTally.verify)
    replay = _Awaited(BoundTally.replay)
    replay_later = _Awaited(BoundTally.replay_later)
    approvals = _Awaited(BoundTally.approvals)
    approval = _Awaited(BoundTally.approval)
    approve = _Awaited(BoundTally.approve)
    deny = _Awaited(BoundTally.deny)
    revoke = _Awaited(BoundTally.revoke)
    compile = _Awaited(BoundTally.compile)

    @property
    def operator(self) -> AsyncRemoteOperator:
        """Same as `remote.operator`, awaited."""
        return AsyncRemoteOperator(self.sync.operator)

    @property
    def spaces(self) -> AsyncRemoteSpaces:
        """Same as `remote.spaces`, awaited."""
        return AsyncRemoteSpaces(self.sync.spaces)

    @property
    def tokens(self) -> AsyncRemoteTokens:
        """Same as `remote.tokens`, awaited."""
        return AsyncRemoteTokens(self.sync.tokens)

    @property
    def recordings(self) -> AsyncRemoteRecordings:
        """Same as `remote.recordings`, awaited."""
        return AsyncRemoteRecordings(self.sync.recordings)
