"""The same client for `async def` callers: each verb awaited, in a worker thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tallystick.aio import in_thread
from tallystick.records import Actor, CompiledContext, JsonObject
from tallystick.tally.async_view import ServedOperator, ServedRecordings, ServedTally
from tallystick.tally.served_verbs import AsyncFace, Offered, OfferedPart
from tallystick_comparing import AsyncComparing
from tallystick_graph import AsyncGraph
from tallystick_ingest.ingest import AsyncIngest
from tallystick_learning import AsyncLearning
from tallystick_server.client.items import RemoteItems
from tallystick_server.model_calls import CalledModel
from tallystick_server.recording import CheckedCall
from tallystick_steward.steward import AsyncSteward
from tallystick_synthesis import AsyncSynthesis
from tallystick_work import AsyncWork


class AsyncRemoteItems(AsyncFace):
    """Same as `RemoteItems`, awaited."""

    put = Offered(RemoteItems.put)
    get = Offered(RemoteItems.get)
    find = Offered(RemoteItems.find)
    namespaces = Offered(RemoteItems.namespaces)
    sweep = Offered(RemoteItems.sweep)


class AsyncRemoteTally(ServedTally):
    """What `remote.aio` is: each verb of the client, awaited. Safe to share between tasks."""

    async def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """Same as `remote.call_tool`, awaited."""
        answer: JsonObject = await in_thread(partial(self.sync.call_tool, name, arguments))
        return answer

    async def frame_codes(self, texts: Sequence[str]) -> list[str]:
        """Same as `remote.frame_codes`, awaited."""
        codes: list[str] = await in_thread(partial(self.sync.frame_codes, texts))
        return codes

    async def call_model(self, compiled: CompiledContext, **options: Any) -> CalledModel:
        """Same as `remote.call_model`, awaited."""
        called: CalledModel = await in_thread(partial(self.sync.call_model, compiled, **options))
        return called

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

    items = OfferedPart(AsyncRemoteItems)
    learning = OfferedPart(AsyncLearning)
    ingest = OfferedPart(AsyncIngest)
    work = OfferedPart(AsyncWork)
    synthesis = OfferedPart(AsyncSynthesis)
    steward = OfferedPart(AsyncSteward)
    comparing = OfferedPart(AsyncComparing)
    graph = OfferedPart(AsyncGraph)
    operator = OfferedPart(ServedOperator)
    recordings = OfferedPart(ServedRecordings)
