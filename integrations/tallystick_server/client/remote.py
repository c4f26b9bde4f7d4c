"""RemoteTally: a tally behind a server, as one actor sees it in one scope."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from tallystick.access import AccessTokens, Spaces
from tallystick.recorder import Recordings
from tallystick.records import (
    Actor,
    CompiledContext,
    Foil,
    JsonObject,
    Receipt,
    Retention,
    RunRecord,
    Scope,
)
from tallystick.tally import BoundTally, Candidate, Operator
from tallystick_server.client.aio import AsyncRemoteTally
from tallystick_server.client.calls import Call, body_of, call_of, safe
from tallystick_server.client.connections import Connection, Server
from tallystick_server.client.items import RemoteItems
from tallystick_server.client.runs import RemoteRun
from tallystick_server.recording import CheckedCall, CheckedCallBody, Compile, StartRun
from tallystick_server.routes import PREFIX

P = ParamSpec("P")
R = TypeVar("R")


class _Verb(Generic[P, R]):
    """A verb of a bound tally, as one that the server carries out."""

    def __init__(self, verb: Callable[Concatenate[Any, P], R], part: str = "") -> None:
        self.verb = verb
        self.name = f"{part}{verb.__name__}"
        self.signature = inspect.signature(verb)

    @overload
    def __get__(self, face: None, owner: type) -> _Verb[P, R]: ...
    @overload
    def __get__(self, face: _Face, owner: type) -> Callable[P, R]: ...
    def __get__(self, face: _Face | None, owner: type) -> _Verb[P, R] | Callable[P, R]:
        if face is None:
            return self
        connection = face.connection

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            request = call_of(self.name, self.signature, args, kwargs, new_key=connection.new_key)
            result: R = connection.send(request)
            return result

        return update_wrapper(call, self.verb)


@dataclass(frozen=True)
class _Face:
    """Verbs over one connection."""

    connection: Connection


class RemoteOperator(_Face):
    """The operator's verbs, behind a server."""

    erase = _Verb(Operator.erase, "operator.")
    erase_recorded = _Verb(Operator.erase_recorded, "operator.")
    prove_unreachable = _Verb(Operator.prove_unreachable, "operator.")
    prove_erased = _Verb(Operator.prove_erased, "operator.")
    purge = _Verb(Operator.purge, "operator.")
    choose_windows = _Verb(Operator.choose_windows, "operator.")
    jobs = _Verb(Operator.jobs, "operator.")
    job = _Verb(Operator.job, "operator.")
    retry_jobs = _Verb(Operator.retry_jobs, "operator.")
    cancel_job = _Verb(Operator.cancel_job, "operator.")
    outbound_calls = _Verb(Operator.outbound_calls, "operator.")
    doctor = _Verb(Operator.doctor, "operator.")
    sizes = _Verb(Operator.sizes, "operator.")
    rebuild_index = _Verb(Operator.rebuild_index, "operator.")
    freeze = _Verb(Operator.freeze, "operator.")
    thaw = _Verb(Operator.thaw, "operator.")
    export = _Verb(Operator.export, "operator.")


class RemoteSpaces(_Face):
    """The spaces that the caller may see or manage, behind a server."""

    create = _Verb(Spaces.create, "spaces.")
    get = _Verb(Spaces.get, "spaces.")
    list = _Verb(Spaces.list, "spaces.")
    update = _Verb(Spaces.update, "spaces.")


class RemoteTokens(_Face):
    """The access tokens of the caller, behind a server."""

    make = _Verb(AccessTokens.make, "tokens.")
    list = _Verb(AccessTokens.list, "tokens.")
    rotate = _Verb(AccessTokens.rotate, "tokens.")
    revoke = _Verb(AccessTokens.revoke, "tokens.")


class RemoteRecordings(_Face):
    """What was recorded, behind a server."""

    run = _Verb(Recordings.run, "recordings.")
    steps = _Verb(Recordings.steps, "recordings.")
    step = _Verb(Recordings.step, "recordings.")
    entries = _Verb(Recordings.entries, "recordings.")
    receipt = _Verb(Recordings.receipt, "recordings.")
    knew = _Verb(Recordings.knew, "recordings.")
    unseen = _Verb(Recordings.unseen, "recordings.")
    trace = _Verb(Recordings.trace, "recordings.")
    changed = _Verb(Recordings.changed, "recordings.")
    diff = _Verb(Recordings.diff, "recordings.")
    written = _Verb(Recordings.written, "recordings.")
    uses = _Verb(Recordings.uses, "recordings.")

    def receipts(self, run_id: str) -> Sequence[Receipt]:
        """Return the receipts of a run, in the order of its chain. Raises NotFound."""
        found: list[Receipt] = self._read(f"/runs/{safe(run_id)}/receipts", list[Receipt])
        return found

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


class RemoteTally(_Face):
    """A tally behind a server: the verbs, records and errors of a bound tally. Thread-safe.

    Use `connect`. Close it, or use it as a `with` block. What happens in this process alone is not
    here: adapters that record need the tally itself.
    """

    remember = _Verb(BoundTally.remember)
    remember_many = _Verb(BoundTally.remember_many)
    recall = _Verb(BoundTally.recall)
    get = _Verb(BoundTally.get)
    memories = _Verb(BoundTally.memories)
    modify = _Verb(BoundTally.modify)
    modify_many = _Verb(BoundTally.modify_many)
    forget = _Verb(BoundTally.forget)
    forget_matching = _Verb(BoundTally.forget_matching)
    recover = _Verb(BoundTally.recover)
    correct = _Verb(BoundTally.correct)
    promote = _Verb(BoundTally.promote)
    share = _Verb(BoundTally.share)
    inspect = _Verb(BoundTally.inspect)
    source = _Verb(BoundTally.source)
    explore = _Verb(BoundTally.explore)
    context_pack = _Verb(BoundTally.context_pack)
    wake = _Verb(BoundTally.wake)
    history = _Verb(BoundTally.history)
    reflect = _Verb(BoundTally.reflect)
    end_session = _Verb(BoundTally.end_session)
    reviews = _Verb(BoundTally.reviews)
    proposal = _Verb(BoundTally.proposal)
    review = _Verb(BoundTally.review)
    preview_access = _Verb(BoundTally.preview_access)
    preview_member = _Verb(BoundTally.preview_member)
    runs = _Verb(BoundTally.runs)
    verify = _Verb(BoundTally.verify)
    replay = _Verb(BoundTally.replay)
    replay_later = _Verb(BoundTally.replay_later)
    approvals = _Verb(BoundTally.approvals)
    approval = _Verb(BoundTally.approval)
    approve = _Verb(BoundTally.approve)
    deny = _Verb(BoundTally.deny)
    revoke = _Verb(BoundTally.revoke)

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

    @property
    def operator(self) -> RemoteOperator:
        """The operator's verbs: erase, prove, purge, freeze, doctor, jobs."""
        return RemoteOperator(self.connection)

    @property
    def spaces(self) -> RemoteSpaces:
        """The spaces that the caller may see or manage."""
        return RemoteSpaces(self.connection)

    @property
    def tokens(self) -> RemoteTokens:
        """The access tokens of the caller."""
        return RemoteTokens(self.connection)

    @property
    def recordings(self) -> RemoteRecordings:
        """What was recorded."""
        return RemoteRecordings(self.connection)

    @property
    def items(self) -> RemoteItems:
        """The items of the scope, for the stores of runtimes."""
        return RemoteItems(self.connection)

    def compile(
        self, items: Sequence[Candidate], *, budget: int, **options: Any
    ) -> CompiledContext:
        """Choose the best context that fits `budget` tokens, as `BoundTally.compile` does.

        Candidates are items, memories and hits. Raises what that raises, but for `working`, which
        stays with the tally.
        """
        plain = [getattr(item, "memory", item) for item in items]
        body = body_of(Compile, {"items": plain, "budget": budget, **options})
        call = Call(
            "POST",
            f"{PREFIX}/context/compile",
            body=body,
            result=CompiledContext,
        )
        compiled: CompiledContext = self.connection.send(call)
        return compiled

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
