"""RemoteTally: a tally behind a server, as one actor sees it in one scope."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Self

from tallystick.records import (
    Actor,
    CompiledContext,
    Foil,
    JsonObject,
    Piece,
    Receipt,
    Retention,
    RunRecord,
    Scope,
)
from tallystick.tally import Candidate
from tallystick.tally.model_calls import Preflight
from tallystick.tally.served_verbs import (
    ApprovalVerbs,
    CorrectionVerbs,
    JobVerbs,
    OfferedPart,
    OperatorVerbs,
    RecordingVerbs,
    RelayFace,
    ReviewVerbs,
    SpaceVerbs,
    TallyVerbs,
    TokenVerbs,
    WorkingVerbs,
)
from tallystick_comparing import ComparingVerbs
from tallystick_graph import GraphVerbs
from tallystick_ingest.ingest import IngestVerbs
from tallystick_learning import LearningVerbs
from tallystick_server.client.aio import AsyncRemoteTally
from tallystick_server.client.calls import Call, body_of, call_of, safe
from tallystick_server.client.connections import Connection, Server
from tallystick_server.client.items import RemoteItems
from tallystick_server.client.runs import RemoteRun
from tallystick_server.model_calls import CalledModel, CallModel
from tallystick_server.recording import CheckedCall, CheckedCallBody, Compile, StartRun
from tallystick_server.routes import PREFIX
from tallystick_steward.steward import StewardVerbs
from tallystick_synthesis import SynthesisVerbs
from tallystick_work import WorkVerbs

_signature_of = cache(inspect.signature)


@dataclass(frozen=True)
class _Face(RelayFace):
    """Verbs over one connection."""

    connection: Connection
    part: ClassVar[str] = ""
    """The path of the part that has the verbs, such as `operator.`."""

    def _part(self, name: str) -> Connection:
        return self.connection

    def _bind_verb(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        """Return a verb, as one that the server carries out."""
        connection, name = self.connection, f"{self.part}{verb.__name__}"

        def call(*args: Any, **kwargs: Any) -> Any:
            signature = _signature_of(verb)
            return connection.send(
                call_of(name, signature, args, kwargs, new_key=connection.new_key)
            )

        return call


class RemoteOperator(_Face, OperatorVerbs):
    """The operator's verbs, behind a server."""

    part = "operator."


class RemoteSpaces(_Face, SpaceVerbs):
    """The spaces that the caller may see or manage, behind a server."""

    part = "spaces."


class RemoteTokens(_Face, TokenVerbs):
    """The access tokens of the caller, behind a server."""

    part = "tokens."


class RemoteCorrections(_Face, CorrectionVerbs):
    """What corrects memories, behind a server."""

    part = "corrections."


class RemoteReviews(_Face, ReviewVerbs):
    """The proposals that wait for a person, behind a server."""

    part = "reviews."


class RemoteLearning(_Face, LearningVerbs):
    """What a model concludes from memories, behind a server."""

    part = "learning."


class RemoteIngest(_Face, IngestVerbs):
    """Documents and their sources, behind a server."""

    part = "ingest."


class RemoteGraph(_Face, GraphVerbs):
    """The names of entities, behind a server."""

    part = "graph."


class RemoteWork(_Face, WorkVerbs):
    """The tasks and plans of a scope, behind a server."""

    part = "work."


class RemoteSteward(_Face, StewardVerbs):
    """Health, alerts, events and repairs, behind a server."""

    part = "steward."


class RemoteComparing(_Face, ComparingVerbs):
    """Another configuration of recall, behind a server."""

    part = "comparing."


class RemoteSynthesis(_Face, SynthesisVerbs):
    """Documents that are made of memory, behind a server."""

    part = "synthesis."


class RemoteWorkingMemory(_Face, WorkingVerbs):
    """What a run and its thread keep in mind, behind a server."""

    part = "working."


class RemoteApprovals(_Face, ApprovalVerbs):
    """The actions that wait for a person, behind a server."""

    part = "approvals."


class RemoteJobs(_Face, JobVerbs):
    """Follow-up work, behind a server."""

    part = "jobs."


class RemoteRecordings(_Face, RecordingVerbs):
    """What was recorded, behind a server."""

    part = "recordings."

    def receipts(self, run_id: str) -> Sequence[Receipt]:
        """Return the receipts of a run, in the order of its chain. Raises NotFound."""
        receipts: list[Receipt] = self._read(f"/runs/{safe(run_id)}/receipts", list[Receipt])
        return receipts

    def foil(self, run_id: str) -> Foil:
        """Return the end of a run's chain. Raises NotFound."""
        end: Foil = self._read(f"/runs/{safe(run_id)}/foil", Foil)
        return end

    def export_receipt(self, run_id: str) -> bytes:
        """Return a run as a bundle that `verify_bundle` checks without the tally. Raises
        NotFound.
        """
        path = f"{PREFIX}/runs/{safe(run_id)}/bundle"
        content: bytes = self.connection.send(Call("GET", path, is_repeatable=True), raw=True)
        return content

    def _read(self, path: str, result: Any) -> Any:
        return self.connection.send(
            Call("GET", f"{PREFIX}{path}", is_repeatable=True, result=result)
        )


class RemoteTally(_Face, TallyVerbs):
    """A tally behind a server: the verbs, records and errors of a bound tally. Thread-safe.

    Use `connect`. Close it, or use it as a `with` block. What happens in this process alone is not
    here: adapters that record need the tally itself.
    """

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        token: str | None = None,
        scope: str | Scope | None = None,
        timeout: float = 30.0,
        attempts: int = 3,
    ) -> RemoteTally:
        """Return the tally of the server at `address`: `unix:/path/of/socket` or `http://…`.

        `token` is the secret of an access token; on a Unix socket none is needed. Calls work in
        `scope`, by default the private one. A call waits `timeout` seconds at most, and one that
        may be sent again is, `attempts` times in all. Raises InvalidInput, InvalidScope.
        """
        server = Server.at(address, token=token, timeout=timeout, attempts=attempts)
        return cls(Connection(server, None if scope is None else str(Scope.parse(scope))))

    def within(self, scope: str | Scope) -> RemoteTally:
        """Return the same tally for calls that work in `scope`. Raises InvalidScope."""
        return type(self)(replace(self.connection, scope=str(Scope.parse(scope))))

    operator = OfferedPart(RemoteOperator)
    corrections = OfferedPart(RemoteCorrections)
    reviews = OfferedPart(RemoteReviews)
    learning = OfferedPart(RemoteLearning)
    ingest = OfferedPart(RemoteIngest)
    work = OfferedPart(RemoteWork)
    synthesis = OfferedPart(RemoteSynthesis)
    graph = OfferedPart(RemoteGraph)
    steward = OfferedPart(RemoteSteward)
    comparing = OfferedPart(RemoteComparing)
    approvals = OfferedPart(RemoteApprovals)
    jobs = OfferedPart(RemoteJobs)
    spaces = OfferedPart(RemoteSpaces)
    tokens = OfferedPart(RemoteTokens)
    recordings = OfferedPart(RemoteRecordings)
    working = OfferedPart(RemoteWorkingMemory)

    @property
    def items(self) -> RemoteItems:
        """Memories by namespace and key."""
        return RemoteItems(self._part("items"))

    def compile(
        self, items: Sequence[Candidate], *, budget: int, **options: Any
    ) -> CompiledContext:
        """Choose the best context that fits `budget` tokens, as `BoundTally.compile` does.

        Candidates are items, memories, hits and pieces of a working set. Raises what that raises,
        but for `working`, which stays with the tally.
        """
        plain = [
            item if isinstance(item, Piece) else getattr(item, "memory", item) for item in items
        ]
        body = body_of(Compile, {"items": plain, "budget": budget, **options})
        call = Call(
            "POST",
            f"{PREFIX}/context/compile",
            body=body,
            result=CompiledContext,
        )
        compiled: CompiledContext = self.connection.send(call)
        return compiled

    def call_model(
        self,
        compiled: CompiledContext,
        *,
        provider: str,
        parameters: JsonObject | None = None,
        agent_name: str = "agent",
        preflight: Preflight = "off",
        approval_token: str | None = None,
    ) -> CalledModel:
        """Send a context that a step has recorded to a model of the server's setting `providers`,
        such as `openai:gpt-5`, as `BoundTally.call_model` does.

        The call is the open model step that has no request yet, else a step of the run under way,
        else one of a new run. Raises what that raises; EgressDenied for a model that is not listed;
        ModelUnavailable, ModelFailed or ModelRefused for what the provider raises.
        """
        name, _, model = provider.partition(":")
        values = {
            "provider": name,
            "model": model,
            "compile_id": compiled.id,
            "parameters": parameters or {},
            "agent_name": agent_name,
            "preflight": preflight,
            "approval_token": approval_token,
        }
        body = body_of(CallModel, values)
        call = Call("POST", f"{PREFIX}/model/call", body=body, result=CalledModel)
        called: CalledModel = self.connection.send(call)
        return called

    def check_call(
        self, kind: str, name: str | None = None, arguments: Any = None, **facts: Any
    ) -> CheckedCall:
        """Check a `tool_call` or `model_call` against the rules before it happens here.

        Make it with the arguments of the answer. Raises ActionDenied, ApprovalRequired,
        TokenRefused, InvalidInput.
        """
        values = {"kind": kind, "name": name, "arguments": arguments, **facts}
        call = Call(
            "POST",
            f"{PREFIX}/policy/check",
            body=body_of(CheckedCallBody, values),
            result=CheckedCall,
        )
        checked: CheckedCall = self.connection.send(call)
        return checked

    def call_tool(self, name: str, arguments: JsonObject) -> JsonObject:
        """Call a memory tool with the arguments that a model gave; return the answer for it.

        Raises ActionDenied and ApprovalRequired where a rule of the server's tally says so.
        """
        call = Call(
            "POST",
            f"{PREFIX}/tools/{safe(name)}",
            body=json.dumps(arguments).encode(),
            result=dict[str, Any],
        )
        answer: JsonObject = self.connection.send(call)
        return answer

    def frame_codes(self, texts: Sequence[str]) -> list[str]:
        """Return the code of a frame around each of these texts, by which the tally knows it when
        it comes back. Raises Denied, InvalidInput.
        """
        call = Call(
            "POST",
            f"{PREFIX}/frames",
            body=json.dumps({"texts": list(texts)}).encode(),
            is_repeatable=True,
            result=list[str],
        )
        codes: list[str] = self.connection.send(call)
        return codes

    def whoami(self) -> Actor:
        """Return who acts there, as the token names it: user, agent, organization and role."""
        content = self.connection.send(
            Call("GET", f"{PREFIX}/whoami", is_repeatable=True), raw=True
        )
        return Actor.load(json.loads(content)["actor"])

    def run(
        self,
        agent_name: str,
        *,
        domain: str | None = None,
        goal: str | None = None,
        metadata: JsonObject | None = None,
        retention: Retention | None = None,
    ) -> RemoteRun:
        """Start a run; use it as a `with` block, or call its `end`. Raises Denied.

        Calls in the block are recorded in it.
        """
        values = {
            "agent_name": agent_name,
            "domain": domain,
            "goal": goal,
            "metadata": metadata,
            "retention": retention,
        }
        body = body_of(StartRun, values)
        record: RunRecord = self.connection.send(
            Call("POST", f"{PREFIX}/runs", body=body, result=RunRecord)
        )
        return RemoteRun(self.connection, record)

    @property
    def aio(self) -> AsyncRemoteTally:
        """The same verbs for `async def` callers, awaited."""
        return AsyncRemoteTally(self)

    def close(self) -> None:
        """Close the connections. Closing twice is allowed."""
        self.connection.server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteTally({self.connection.server.address!r})"
