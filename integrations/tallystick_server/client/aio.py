"""The same client for `async def` callers: each verb awaited, in a worker thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tallystick.access import AccessTokens, Spaces
from tallystick.aio import in_thread
from tallystick.recorder import Recordings
from tallystick.records import Actor, JsonObject
from tallystick.tally import BoundTally, Operator
from tallystick.tally.async_view import Awaited
from tallystick_server.client.items import RemoteItems
from tallystick_server.recording import CheckedCall


class _Face:
    """Verbs of one part of the synchronous client."""

    def __init__(self, sync: Any) -> None:
        self.sync = sync


class AsyncRemoteOperator(_Face):
    """Same as `RemoteOperator`, awaited."""

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
    export = Awaited(Operator.export)


class AsyncRemoteSpaces(_Face):
    """Same as `RemoteSpaces`, awaited."""

    create = Awaited(Spaces.create)
    get = Awaited(Spaces.get)
    list = Awaited(Spaces.list)
    update = Awaited(Spaces.update)


class AsyncRemoteTokens(_Face):
    """Same as `RemoteTokens`, awaited."""

    make = Awaited(AccessTokens.make)
    list = Awaited(AccessTokens.list)
    rotate = Awaited(AccessTokens.rotate)
    revoke = Awaited(AccessTokens.revoke)


class AsyncRemoteRecordings(_Face):
    """Same as `RemoteRecordings`, awaited."""

    run = Awaited(Recordings.run)
    steps = Awaited(Recordings.steps)
    step = Awaited(Recordings.step)
    entries = Awaited(Recordings.entries)
    receipt = Awaited(Recordings.receipt)
    knew = Awaited(Recordings.knew)
    unseen = Awaited(Recordings.unseen)
    trace = Awaited(Recordings.trace)
    changed = Awaited(Recordings.changed)
    diff = Awaited(Recordings.diff)
    written = Awaited(Recordings.written)
    uses = Awaited(Recordings.uses)
    receipts = Awaited(Recordings.receipts)
    foil = Awaited(Recordings.foil)
    export_receipt = Awaited(Recordings.export_receipt)


class AsyncRemoteItems(_Face):
    """Same as `RemoteItems`, awaited."""

    put = Awaited(RemoteItems.put)
    get = Awaited(RemoteItems.get)
    find = Awaited(RemoteItems.find)
    namespaces = Awaited(RemoteItems.namespaces)
    sweep = Awaited(RemoteItems.sweep)


class AsyncRemoteTally(_Face):
    """What `remote.aio` is: each verb of the client, awaited. Safe to share between tasks."""

    remember = Awaited(BoundTally.remember)
    remember_many = Awaited(BoundTally.remember_many)
    recall = Awaited(BoundTally.recall)
    get = Awaited(BoundTally.get)
    memories = Awaited(BoundTally.memories)
    modify = Awaited(BoundTally.modify)
    modify_many = Awaited(BoundTally.modify_many)
    forget = Awaited(BoundTally.forget)
    forget_matching = Awaited(BoundTally.forget_matching)
    recover = Awaited(BoundTally.recover)
    correct = Awaited(BoundTally.correct)
    promote = Awaited(BoundTally.promote)
    share = Awaited(BoundTally.share)
    inspect = Awaited(BoundTally.inspect)
    source = Awaited(BoundTally.source)
    explore = Awaited(BoundTally.explore)
    context_pack = Awaited(BoundTally.context_pack)
    wake = Awaited(BoundTally.wake)
    history = Awaited(BoundTally.history)
    reflect = Awaited(BoundTally.reflect)
    end_session = Awaited(BoundTally.end_session)
    reviews = Awaited(BoundTally.reviews)
    proposal = Awaited(BoundTally.proposal)
    review = Awaited(BoundTally.review)
    preview_access = Awaited(BoundTally.preview_access)
    preview_member = Awaited(BoundTally.preview_member)
    runs = Awaited(BoundTally.runs)
    verify = Awaited(BoundTally.verify)
    replay = Awaited(BoundTally.replay)
    replay_later = Awaited(BoundTally.replay_later)
    approvals = Awaited(BoundTally.approvals)
    approval = Awaited(BoundTally.approval)
    approve = Awaited(BoundTally.approve)
    deny = Awaited(BoundTally.deny)
    revoke = Awaited(BoundTally.revoke)
    compile = Awaited(BoundTally.compile)

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """Same as `remote.call_tool`, awaited."""
        answer: JsonObject = await in_thread(partial(self.sync.call_tool, name, arguments))
        return answer

    async def frame_codes(self, texts: Sequence[str]) -> list[str]:
        """Same as `remote.frame_codes`, awaited."""
        codes: list[str] = await in_thread(partial(self.sync.frame_codes, texts))
        return codes

    async def check_call(
        self, kind: str, name: str | None = None, arguments: Any = None, **facts: Any
    ) -> CheckedCall:
        """Same as `remote.check_call`, awaited."""
        call = partial(self.sync.check_call, kind, name, arguments, **facts)
        checked: CheckedCall = await in_thread(call)
        return checked

    async def whoami(self) -> Actor:
        """Same as `remote.whoami`, awaited."""
        actor: Actor = await in_thread(self.sync.whoami)
        return actor

    @property
    def items(self) -> AsyncRemoteItems:
        """Same as `remote.items`, awaited."""
        return AsyncRemoteItems(self.sync.items)

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
