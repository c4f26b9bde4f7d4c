"""The verbs of a bound tally that a server offers too, listed once for the faces that bind them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from tallystick.access import AccessTokens, Spaces
from tallystick.aio import in_thread
from tallystick.recorder import Recordings
from tallystick.tally.model_verbs import ModelVerbs
from tallystick.tally.operator import Operator

P = ParamSpec("P")
R = TypeVar("R")


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


class RelayFace:
    """An object that relays its verbs, such as to a server."""

    def _bind_verb(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        """Return a verb, relayed."""
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


class OperatorVerbs:
    """Verbs of `Operator`."""

    erase = Offered(Operator.erase)
    erase_user = Offered(Operator.erase_user)
    erase_recorded = Offered(Operator.erase_recorded)
    prove_unreachable = Offered(Operator.prove_unreachable)
    prove_erased = Offered(Operator.prove_erased)
    purge = Offered(Operator.purge)
    choose_windows = Offered(Operator.choose_windows)
    jobs = Offered(Operator.jobs)
    job = Offered(Operator.job)
    retry_jobs = Offered(Operator.retry_jobs)
    cancel_job = Offered(Operator.cancel_job)
    outbound_calls = Offered(Operator.outbound_calls)
    doctor = Offered(Operator.doctor)
    sizes = Offered(Operator.sizes)
    rebuild_index = Offered(Operator.rebuild_index)
    freeze = Offered(Operator.freeze)
    thaw = Offered(Operator.thaw)
    export = Offered(Operator.export)


class RecordingVerbs:
    """Verbs of `Recordings`."""

    run = Offered(Recordings.run)
    steps = Offered(Recordings.steps)
    step = Offered(Recordings.step)
    receipt = Offered(Recordings.receipt)
    entries = Offered(Recordings.entries)
    knew = Offered(Recordings.knew)
    unseen = Offered(Recordings.unseen)
    trace = Offered(Recordings.trace)
    changed = Offered(Recordings.changed)
    diff = Offered(Recordings.diff)
    written = Offered(Recordings.written)
    uses = Offered(Recordings.uses)


class SpaceVerbs:
    """Verbs of `Spaces`."""

    create = Offered(Spaces.create)
    get = Offered(Spaces.get)
    list = Offered(Spaces.list)
    update = Offered(Spaces.update)


class TokenVerbs:
    """Verbs of `AccessTokens`."""

    make = Offered(AccessTokens.make)
    list = Offered(AccessTokens.list)
    rotate = Offered(AccessTokens.rotate)
    revoke = Offered(AccessTokens.revoke)


class TallyVerbs:
    """Verbs of a bound tally."""

    remember = Offered(ModelVerbs.remember)
    remember_many = Offered(ModelVerbs.remember_many)
    recall = Offered(ModelVerbs.recall)
    get = Offered(ModelVerbs.get)
    memories = Offered(ModelVerbs.memories)
    modify = Offered(ModelVerbs.modify)
    modify_many = Offered(ModelVerbs.modify_many)
    forget = Offered(ModelVerbs.forget)
    forget_matching = Offered(ModelVerbs.forget_matching)
    recover = Offered(ModelVerbs.recover)
    correct = Offered(ModelVerbs.correct)
    promote = Offered(ModelVerbs.promote)
    share = Offered(ModelVerbs.share)
    inspect = Offered(ModelVerbs.inspect)
    source = Offered(ModelVerbs.source)
    explore = Offered(ModelVerbs.explore)
    context_pack = Offered(ModelVerbs.context_pack)
    wake = Offered(ModelVerbs.wake)
    history = Offered(ModelVerbs.history)
    reflect = Offered(ModelVerbs.reflect)
    end_session = Offered(ModelVerbs.end_session)
    reviews = Offered(ModelVerbs.reviews)
    proposal = Offered(ModelVerbs.proposal)
    review = Offered(ModelVerbs.review)
    preview_access = Offered(ModelVerbs.preview_access)
    preview_member = Offered(ModelVerbs.preview_member)
    runs = Offered(ModelVerbs.runs)
    verify = Offered(ModelVerbs.verify)
    replay = Offered(ModelVerbs.replay)
    replay_later = Offered(ModelVerbs.replay_later)
    approvals = Offered(ModelVerbs.approvals)
    approval = Offered(ModelVerbs.approval)
    approve = Offered(ModelVerbs.approve)
    deny = Offered(ModelVerbs.deny)
    revoke = Offered(ModelVerbs.revoke)
