"""The verbs of a bound tally that a server offers too, listed once for the faces that bind them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from tallystick.access import AccessTokens
from tallystick.aio import in_thread
from tallystick.memory import WorkingMemory
from tallystick.tally import daily_verbs
from tallystick.tally.approvals import BoundApprovals
from tallystick.tally.corrections import Corrections
from tallystick.tally.jobs import Jobs
from tallystick.tally.memory_view import MemoryView
from tallystick.tally.operator import Operator
from tallystick.tally.recordings import BoundRecordings
from tallystick.tally.reviews import Reviews
from tallystick.tally.spaces import BoundSpaces
from tallystick.tally.spellings import unknown_verb

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")


class AsyncFace:
    """An object whose verbs are awaited."""

    def __init__(self, sync: Any) -> None:
        self.sync = sync

    def _bind_verb(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        """Return a verb of the synchronous object, awaited."""
        function = getattr(self.sync, verb.__name__)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await in_thread(partial(function, *args, **kwargs))

        return call

    def _part(self, name: str) -> Any:
        return getattr(self.sync, name)


class RelayFace:
    """An object that relays its verbs, such as to a server."""

    def _bind_verb(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        """Return a verb, relayed."""
        raise NotImplementedError

    def _part(self, name: str) -> Any:
        raise NotImplementedError


class Offered(Generic[P, R]):
    """A verb of a class, on a face that awaits or relays it."""

    def __init__(self, verb: Callable[Concatenate[Any, P], R]) -> None:
        self.verb = verb

    @overload
    def __get__(self, face: None, owner: type) -> Offered[P, R]: ...
    @overload
    def __get__(self, face: AsyncFace, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, face: RelayFace, owner: type) -> Callable[P, R]: ...
    def __get__(self, face: AsyncFace | RelayFace | None, owner: type) -> Any:
        return self if face is None else update_wrapper(face._bind_verb(self.verb), self.verb)


class OfferedPart(Generic[F]):
    """A part of an object, on a face of the object."""

    def __init__(self, face: Callable[[Any], F]) -> None:
        self.face = face
        self.__doc__ = face.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, face: None, owner: type) -> OfferedPart[F]: ...
    @overload
    def __get__(self, face: AsyncFace | RelayFace, owner: type) -> F: ...
    def __get__(self, face: AsyncFace | RelayFace | None, owner: type) -> Any:
        return self if face is None else self.face(face._part(self.name))


class OperatorVerbs:
    """Verbs of `Operator`."""

    erase = Offered(Operator.erase)
    erase_user = Offered(Operator.erase_user)
    erase_recorded = Offered(Operator.erase_recorded)
    prove_unreachable = Offered(Operator.prove_unreachable)
    prove_erased = Offered(Operator.prove_erased)
    purge = Offered(Operator.purge)
    choose_windows = Offered(Operator.choose_windows)
    outbound_calls = Offered(Operator.outbound_calls)
    doctor = Offered(Operator.doctor)
    sizes = Offered(Operator.sizes)
    rebuild_index = Offered(Operator.rebuild_index)
    reembed = Offered(Operator.reembed)
    freeze = Offered(Operator.freeze)
    thaw = Offered(Operator.thaw)
    export = Offered(Operator.export)


class RecordingVerbs:
    """Verbs of `BoundRecordings`."""

    runs = Offered(BoundRecordings.runs)
    verify = Offered(BoundRecordings.verify)
    replay = Offered(BoundRecordings.replay)
    replay_later = Offered(BoundRecordings.replay_later)
    run = Offered(BoundRecordings.run)
    steps = Offered(BoundRecordings.steps)
    step = Offered(BoundRecordings.step)
    receipt = Offered(BoundRecordings.receipt)
    entries = Offered(BoundRecordings.entries)
    knew = Offered(BoundRecordings.knew)
    unseen = Offered(BoundRecordings.unseen)
    trace = Offered(BoundRecordings.trace)
    changed = Offered(BoundRecordings.changed)
    diff = Offered(BoundRecordings.diff)
    written = Offered(BoundRecordings.written)
    uses = Offered(BoundRecordings.uses)


class SpaceVerbs:
    """Verbs of `BoundSpaces`."""

    create = Offered(BoundSpaces.create)
    get = Offered(BoundSpaces.get)
    list = Offered(BoundSpaces.list)
    update = Offered(BoundSpaces.update)
    preview_access = Offered(BoundSpaces.preview_access)
    preview_member = Offered(BoundSpaces.preview_member)


class TokenVerbs:
    """Verbs of `AccessTokens`."""

    make = Offered(AccessTokens.make)
    list = Offered(AccessTokens.list)
    rotate = Offered(AccessTokens.rotate)
    revoke = Offered(AccessTokens.revoke)


class CorrectionVerbs:
    """Verbs of `Corrections`."""

    make = Offered(Corrections.make)
    modify_many = Offered(Corrections.modify_many)
    forget_matching = Offered(Corrections.forget_matching)
    promote = Offered(Corrections.promote)
    share = Offered(Corrections.share)


class ReviewVerbs:
    """Verbs of `Reviews`."""

    list = Offered(Reviews.list)
    get = Offered(Reviews.get)
    decide = Offered(Reviews.decide)


class ApprovalVerbs:
    """Verbs of `BoundApprovals`."""

    list = Offered(BoundApprovals.list)
    get = Offered(BoundApprovals.get)
    approve = Offered(BoundApprovals.approve)
    deny = Offered(BoundApprovals.deny)
    revoke = Offered(BoundApprovals.revoke)


class JobVerbs:
    """Verbs of `Jobs`."""

    list = Offered(Jobs.list)
    get = Offered(Jobs.get)
    retry = Offered(Jobs.retry)
    cancel = Offered(Jobs.cancel)


class WorkingVerbs:
    """Verbs of `WorkingMemory`."""

    set = Offered(WorkingMemory.set)
    get = Offered(WorkingMemory.get)
    list = Offered(WorkingMemory.list)
    drop = Offered(WorkingMemory.drop)


class TallyVerbs:
    """Verbs of a bound tally."""

    if not TYPE_CHECKING:  # a type checker names the missing attribute itself

        def __getattr__(self, name: str) -> Any:
            """Say which verb of this tally, or of one of its parts, does the same."""
            face, is_awaited = type(self), isinstance(self, AsyncFace)
            raise unknown_verb("bound tally", name, "bound", face, is_awaited=is_awaited)

    remember = Offered(MemoryView.remember)
    remember_many = Offered(MemoryView.remember_many)
    recall = Offered(MemoryView.recall)
    get = Offered(MemoryView.get)
    memories = Offered(MemoryView.memories)
    modify = Offered(MemoryView.modify)
    forget = Offered(daily_verbs.forget)
    recover = Offered(MemoryView.recover)
    inspect = Offered(MemoryView.inspect)
    source = Offered(MemoryView.source)
    explore = Offered(daily_verbs.explore)
    pack = Offered(daily_verbs.pack)
    wake = Offered(daily_verbs.wake)
    working_set = Offered(daily_verbs.working_set)
    history = Offered(MemoryView.history)
