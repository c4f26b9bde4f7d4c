"""Runs that are recorded over HTTP: a run is a block, and so is each of its steps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import Any, Self

from tallystick.errors import RunClosed
from tallystick.records import (
    EntryKind,
    Foil,
    Json,
    JsonObject,
    Receipt,
    RunRecord,
    StepKind,
    StepStatus,
)
from tallystick_server.client.calls import Call, body_of, safe
from tallystick_server.client.connections import RUN, Connection
from tallystick_server.recording import EndRun, NewStep
from tallystick_server.routes import PREFIX


class RemoteRun:
    """A run that this process records on a server. Use it as a `with` block, or call `end`."""

    def __init__(self, connection: Connection, record: RunRecord) -> None:
        """Use `RemoteTally.run`."""
        self._connection = connection
        self.record = record
        """The run as it began."""
        self.ended_with: Foil | None = None
        """The end of its chain, once it has ended."""
        self._token: Token[str | None] | None = None

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.record.id

    def step(
        self,
        kind: StepKind,
        *,
        name: str | None = None,
        parent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> RemoteStep:
        """Start a step, which is sent when its block ends. Raises RunClosed after the end."""
        if self.ended_with is not None:
            raise RunClosed(f"Run {self.id} has ended; start a new one to record more steps.")
        fields: dict[str, Any] = {"name": name, "parent": parent, "metadata": metadata}
        stated = {key: value for key, value in fields.items() if value is not None}
        return RemoteStep(self._connection, self.id, {"kind": kind, **stated})

    def end(self, status: StepStatus = "completed") -> Foil:
        """End the run and return its foil. Ending twice returns the same."""
        if self.ended_with is None:
            body = body_of(EndRun, {"status": status})
            path = f"{PREFIX}/runs/{safe(self.id)}/end"
            self.ended_with = self._connection.send(Call("POST", path, body=body, result=Foil))
        assert self.ended_with is not None
        return self.ended_with

    def __enter__(self) -> Self:
        self._token = RUN.set(self.id)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            RUN.reset(self._token)
        self.end("completed" if error is None else "failed")


class RemoteStep:
    """A step that is recorded whole when its block ends, or by `end`."""

    def __init__(self, connection: Connection, run_id: str, fields: dict[str, Any]) -> None:
        """Use `RemoteRun.step`."""
        self._connection = connection
        self._run_id = run_id
        self._fields = fields
        self._entries: list[dict[str, Any]] = []
        self.receipt: Receipt | None = None
        """Its receipt, once it has ended."""

    def record(
        self, kind: EntryKind, payload: Json = None, *, summary: JsonObject | None = None
    ) -> None:
        """Record an entry: JSON values as they are now. Raises RunClosed after the end."""
        if self.receipt is not None:
            raise RunClosed("This step has ended.")
        entry = {"kind": kind, "payload": payload, "summary": summary}
        self._entries.append(json.loads(json.dumps(entry)))

    def end(self, status: StepStatus = "completed") -> Receipt:
        """Send the step and return its receipt, after the commit. Ending twice returns the same."""
        if self.receipt is None:
            values = {**self._fields, "entries": self._entries, "status": status}
            path = f"{PREFIX}/runs/{safe(self._run_id)}/steps"
            call = Call("POST", path, body=body_of(NewStep, values), result=Receipt)
            self.receipt = self._connection.send(call)
        assert self.receipt is not None
        return self.receipt

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.record("error", {"type": type(error).__name__, "message": str(error)})
        self.end("completed" if error is None else "failed")
