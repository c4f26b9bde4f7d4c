"""Tape mode: an agent runs again on recorded model and tool results, and each request is held against the tape.

Nothing is sent. A request that is not the recorded one stops the agent at the first difference; a recorded request in
which secrets were redacted is compared after the same rules were applied to the new one. Agents may ask in another
order where they ask side by side: a request is matched with any recorded one that was not played yet.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tallystick.errors import InvalidInput, InvalidRecord, NotReplayable, RecordedFailure, TapeDiverged
from tallystick.policy.redaction import Redactor
from tallystick.recorder.answers import diff_lines
from tallystick.recorder.pieces import plain
from tallystick.records import Divergence, Json, RunRecord, StepEntry, StepRecord, Tape, TapeCall, TapeReport

__all__ = ["Normal", "Player", "read_tape", "tape_of", "write_tape"]

Normal = Callable[[Json], Json]
"""Takes out of a request what differs from run to run: ids of messages, times, usage."""

_ASKED = {"model_call": "request", "tool_call": "tool_call"}
_ANSWERED = {"model_call": "response", "tool_call": "tool_result"}


def tape_of(run: RunRecord, steps: Sequence[tuple[StepRecord, Sequence[StepEntry]]]) -> Tape:
    """The tape of a run. Raises NotReplayable where a call was recorded without its payload."""
    calls = []
    for step, entries in steps:
        if step.step_kind not in _ASKED:
            continue
        by_kind: dict[str, StepEntry] = {entry.kind: entry for entry in entries}
        asked, answered, failed = (
            by_kind.get(kind) for kind in (_ASKED[step.step_kind], _ANSWERED[step.step_kind], "error")
        )
        if asked is None:
            continue
        for entry in (asked, answered):
            if entry is not None and entry.payload_state in {"not_kept", "erased"}:
                raise NotReplayable(
                    step.step_id, retention=run.retention,
                    missing=f"its {entry.kind.replace('_', ' ')} was {entry.payload_state.replace('_', ' ')}",
                )  # fmt: skip
        error = failed.payload if failed is not None and isinstance(failed.payload, dict) else None
        calls.append(
            TapeCall(
                step_id=step.step_id, kind="model_call" if step.step_kind == "model_call" else "tool_call",
                name=step.name, request=asked.payload, response=None if answered is None else answered.payload,
                error=None if error is None else {name: str(error.get(name, "")) for name in ("type", "message")},
                redacted=bool(asked.redactions),
            )
        )  # fmt: skip
    return Tape(run_id=run.run_id, agent_name=run.agent_name, retention=run.retention, calls=tuple(calls))


def write_tape(tape: Tape, path: str | Path) -> None:
    """Write a tape as a file that a person can read and a review can compare."""
    Path(path).write_text(json.dumps(tape.dump(), ensure_ascii=False, indent=1, sort_keys=True) + "\n", "utf-8")


def read_tape(path: str | Path) -> Tape:
    """A tape from its file. Raises InvalidInput."""
    try:
        return Tape.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, InvalidRecord) as error:
        raise InvalidInput(f"{path} is no tape: {error}. `tally tape RUN` writes one.") from error


class Player:
    """Plays a tape to one run of an agent. Thread-safe."""

    def __init__(self, tape: Tape, *, redactor: Redactor | None = None) -> None:
        self.tape = tape
        self._redactor = redactor or Redactor()
        self._guard = threading.Lock()
        self._left = list(tape.calls)
        self._divergence: Divergence | None = None

    @property
    def report(self) -> TapeReport:
        """How far the agent has followed the tape."""
        with self._guard:
            return TapeReport(
                fidelity=self.tape.fidelity, calls=len(self.tape.calls),
                played=len(self.tape.calls) - len(self._left), divergence=self._divergence,
            )  # fmt: skip

    def model(self, request: Any, *, normal: Normal = lambda request: request) -> Json:
        """The recorded answer to a request of a model. Raises TapeDiverged, or RecordedFailure where it failed then."""
        return self._play("model_call", None, plain(request), normal)

    def tool(self, name: str, arguments: Any) -> Json:
        """The recorded result of a tool. Raises TapeDiverged, or RecordedFailure where it failed then."""
        found = self._play("tool_call", name, plain(arguments), _arguments)
        return found.get("result") if isinstance(found, dict) else found

    def passed(self, name: str, arguments: Any) -> None:
        """Hold a call of a tool that runs for real against the tape. Raises TapeDiverged."""
        self._match("tool_call", name, plain(arguments), _arguments)

    def finish(self) -> TapeReport:
        """Say that the agent is done. Raises TapeDiverged where it left the tape, or left recorded calls unmade."""
        with self._guard:
            if self._divergence is None and self._left:
                first = self._left[0]
                what = f"the agent ended before {len(self._left)} of {len(self.tape.calls)} recorded calls"
                self._divergence = Divergence(step_id=first.step_id, what=f"{what}; the next was {_name(first)}")
            divergence = self._divergence
        if divergence is not None:
            raise TapeDiverged(divergence.what, step_id=divergence.step_id, diff=divergence.diff)
        return self.report

    def _play(self, kind: str, name: str | None, asked: Json, normal: Normal) -> Json:
        call = self._match(kind, name, asked, normal)
        if call.error is not None:
            raise RecordedFailure(call.error["type"], call.error["message"])
        return call.response

    def _match(self, kind: str, name: str | None, asked: Json, normal: Normal) -> TapeCall:
        """The recorded call that is made now, which counts as played."""
        with self._guard:
            if self._divergence is not None:
                # The first difference is the one that tells; what follows from it does not.
                told = self._divergence
                raise TapeDiverged(told.what, step_id=told.step_id, diff=told.diff)
            candidates = [call for call in self._left if call.kind == kind and (name is None or call.name == name)]
            wanted: dict[bool, Json] = {}
            for call in candidates:
                if call.redacted not in wanted:
                    # As it is, and as it would have been kept.
                    kept = self._redactor.redact_json(asked)[0] if call.redacted else asked
                    wanted[call.redacted] = normal(kept)
                if normal(call.request) == wanted[call.redacted]:
                    self._left.remove(call)
                    return call
            told = self._divergence = self._diverged(kind, name, candidates, wanted, asked, normal)
            raise TapeDiverged(told.what, step_id=told.step_id, diff=told.diff)

    def _diverged(
        self, kind: str, name: str | None, candidates: Sequence[TapeCall], wanted: dict[bool, Json], asked: Json,
        normal: Normal,
    ) -> Divergence:  # fmt: skip
        place = len(self.tape.calls) - len(self._left) + 1
        if not candidates:
            called = f"the tool {name}" if name is not None else "a model"
            shown = diff_lines(None, asked, "recorded", "asked now")
            what = f"call {place} asks {called}, which the tape does not at this place"
            return Divergence(step_id=None, what=what, diff=tuple(shown))
        first = candidates[0]
        lines = diff_lines(normal(first.request), wanted[first.redacted], "recorded", "asked now")
        return Divergence(
            step_id=first.step_id, what=f"call {place} is not the recorded one ({_name(first)})", diff=tuple(lines)
        )


def _arguments(request: Json) -> Json:
    """What a tool was called with: the id of a call comes from the model, which is compared itself."""
    if isinstance(request, dict) and "arguments" in request:
        return request["arguments"]
    return request


def _name(call: TapeCall) -> str:
    return f"{call.kind.replace('_', ' ')} {call.name or ''}".strip() + f", step {call.step_id[-8:]}"
