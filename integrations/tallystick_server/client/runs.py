"""Runs that are recorded over HTTP: a run is a block, and so is each of its steps."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from tallystick.errors import RunClosed
from tallystick.recorder import status_for
from tallystick.records import (
    EntryKind,
    Foil,
    Json,
    JsonObject,
    Receipt,
    RunRecord,
    StepKind,
    StepRecord,
    StepStatus,
)
from tallystick_server.client.calls import Call, body_of, safe
from tallystick_server.client.connections import RUN, STEP, Connection, RecordedStep, Server
from tallystick_server.recording import EndRun, EndStep, NewEntries, NewStep
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
        self._began = time.perf_counter_ns()

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
        """Start a step. Calls in its block are recorded in it. Raises RunClosed after the end."""
        if self.ended_with is not None:
            raise RunClosed(f"Run {self.id} has ended; start a new one to record more steps.")
        fields: dict[str, Any] = {"name": name, "parent": parent, "metadata": metadata}
        stated = {key: value for key, value in fields.items() if value is not None}
        return RemoteStep(self, {"kind": kind, **stated})

    def end(self, status: StepStatus = "completed") -> Foil:
        """End the run and return its foil. Ending twice returns the same."""
        if self.ended_with is None:
            path = f"/runs/{safe(self.id)}/end"
            self.ended_with = self._send(path, EndRun, {"status": status}, Foil)
        assert self.ended_with is not None
        return self.ended_with

    def _now(self) -> int:
        """Return the time on the server's calendar by the clock of this process, which no
        correction of either changes: durations are those that are measured here.
        """
        return self.record.started_at + (time.perf_counter_ns() - self._began) // 1_000

    def _send(self, path: str, body: type[BaseModel], values: Any, result: Any) -> Any:
        """Send something about a step, which is not a call inside of one."""
        call = Call("POST", f"{PREFIX}{path}", body=body_of(body, values), result=result)
        token = STEP.set(None)
        try:
            return self._connection.send(call)
        finally:
            STEP.reset(token)

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
        self.end(status_for(kind))


class RemoteStep:
    """A step: opened on the server by the first call inside of it, else sent whole at its end. Its
    times are those of this process. Thread-safe.
    """

    def __init__(self, run: RemoteRun, fields: dict[str, Any]) -> None:
        """Use `RemoteRun.step`."""
        self._run = run
        self._guard = threading.Lock()
        self._fields = {**fields, "started_at": run._now()}
        self._entries: list[dict[str, Any]] = []
        """Those that were recorded before the server knows the step."""
        self._id: str | None = None
        self._token: Token[RecordedStep | None] | None = None
        self.receipt: Receipt | None = None
        """Its receipt, once it has ended."""

    @property
    def id(self) -> str:
        """The id of the step, which is opened on the server for it."""
        with self._guard:
            if self._id is None:
                values = {**self._fields, "entries": self._entries, "open": True}
                opened: StepRecord = self._send_step(values, StepRecord)
                self._id, self._entries = opened.id, []
            return self._id

    def open_at(self, server: Server) -> str | None:
        """Return its id where it is open at this server, which opens it."""
        is_here = self.receipt is None and self._run._connection.server is server
        return self.id if is_here else None

    def record(
        self, kind: EntryKind, payload: Json = None, *, summary: JsonObject | None = None
    ) -> None:
        """Record an entry: JSON values as they are now. Raises RunClosed after the end."""
        entry = {"kind": kind, "payload": payload, "summary": summary, "at": self._run._now()}
        with self._guard:
            if self.receipt is not None:
                raise RunClosed("This step has ended.")
            if self._id is None:
                self._entries.append(json.loads(json.dumps(entry)))
                return
        path = f"/steps/{safe(self._id)}/entries"
        self._run._send(path, NewEntries, {"entries": [entry]}, StepRecord)

    def end(self, status: StepStatus = "completed") -> Receipt:
        """End the step and return its receipt, after the commit. Ending twice returns the same."""
        end = {"status": status, "ended_at": self._run._now()}
        with self._guard:
            if self.receipt is None and self._id is None:
                values = {**self._fields, "entries": self._entries, **end}
                receipt: Receipt = self._send_step(values, Receipt)
                self.receipt, self._id = receipt, receipt.step_id
            elif self.receipt is None:
                path = f"/steps/{safe(str(self._id))}/end"
                self.receipt = self._run._send(path, EndStep, end, Receipt)
            assert self.receipt is not None
            return self.receipt

    def _send_step(self, values: Mapping[str, Any], result: Any) -> Any:
        return self._run._send(f"/runs/{safe(self._run.id)}/steps", NewStep, values, result)

    def __enter__(self) -> Self:
        self._token = STEP.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            STEP.reset(self._token)
        status = status_for(kind)
        # A blocked step has no error: the approval that it waits for is recorded already.
        if error is not None and status != "blocked":
            name = type(error).__name__
            self.record("error", {"type": name, "message": str(error)}, summary={"type": name})
        self.end(status)
