"""Tape mode: an agent runs again on recorded model and tool results, and each request is held
against the tape.

Nothing is sent. A request that is not the recorded one stops the agent at the first difference; a
recorded request in which secrets were redacted is compared after the same rules were applied to the
new one. Agents may ask in another order where they ask side by side: a request is matched with any
recorded one that was not played yet.
"""

from __future__ import annotations

import builtins
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from tallystick.errors import (
    InvalidInput,
    InvalidRecord,
    NotReplayable,
    RecordedFailure,
    TapeDiverged,
)
from tallystick.policy.redaction import Redactor
from tallystick.recorder.answers import diff_lines
from tallystick.recorder.payloads import PayloadRedactor, plain
from tallystick.records import (
    Divergence,
    Json,
    RunRecord,
    StepEntry,
    StepRecord,
    Tape,
    TapeCall,
    TapeReport,
)
from tallystick.records.framing import is_framed

__all__ = ["Normal", "Player", "read_tape", "tape_of", "tool_form", "write_tape"]

Normal = Callable[[Json], Json]
"""Takes out of a request what differs from run to run: ids of messages, times, usage."""

_ASKED = {"model_call": "request", "tool_call": "tool_call"}
_ANSWERED = {"model_call": "response", "tool_call": "tool_result"}
_NUMBERED = re.compile(r"\[redacted:([a-z0-9_]{1,40}):\d{1,9}\]")
_IGNORED = "…"


def tool_form(tool: Json) -> Json:
    """What a tool tells a model of itself, in whatever form its provider takes it."""
    inner = tool.get("function", tool) if isinstance(tool, dict) else tool
    if not isinstance(inner, dict) or "name" not in inner:
        return inner
    parameters = inner.get("parameters", inner.get("input_schema"))
    return {
        "name": inner["name"],
        "description": inner.get("description"),
        "parameters": parameters,
    }


def tape_of(run: RunRecord, steps: Sequence[tuple[StepRecord, Sequence[StepEntry]]]) -> Tape:
    """The tape of a run. Raises NotReplayable where a call was recorded without its payload."""
    known = {step.step_id: step for step, _ in steps}
    calls = [
        call for step, entries in steps if (call := _call_of(run, step, entries, known)) is not None
    ]
    return Tape(
        run_id=run.run_id, agent_name=run.agent_name, retention=run.retention, calls=tuple(calls)
    )


def _call_of(
    run: RunRecord, step: StepRecord, entries: Sequence[StepEntry], known: Mapping[str, StepRecord]
) -> TapeCall | None:
    """What a step asked and what came back; None for a step that asked nothing."""
    kind: Literal["model_call", "tool_call"] = (
        "model_call" if step.step_kind == "model_call" else "tool_call"
    )
    by_kind: dict[str, StepEntry] = {entry.kind: entry for entry in entries}
    asked = by_kind.get(_ASKED.get(step.step_kind, ""))
    if asked is None:
        return None
    answered, failed = by_kind.get(_ANSWERED[kind]), by_kind.get("error")
    for entry in (asked, answered, failed):
        if entry is not None and entry.payload_state in {"not_kept", "erased"}:
            raise NotReplayable(
                step.step_id,
                retention=run.retention,
                missing=f"its {entry.kind.replace('_', ' ')} was "
                f"{entry.payload_state.replace('_', ' ')}",
            )
    error = failed.payload if failed is not None and isinstance(failed.payload, dict) else None
    return TapeCall(
        step_id=step.step_id,
        kind=kind,
        name=step.name,
        request=asked.payload,
        response=None if answered is None else answered.payload,
        error=None
        if error is None
        else {name: str(error.get(name, "")) for name in ("type", "message")},
        redacted=bool(asked.redactions),
        blocked=step.status == "blocked",
        chunks=_chunks(answered),
        inside=_tool_around(step, known),
    )


def _chunks(answered: StepEntry | None) -> int | None:
    """How many chunks an answer came in, as its receipt says it."""
    streamed = None if answered is None else answered.summary.get("stream")
    count = streamed.get("chunks") if isinstance(streamed, dict) else None
    return count if isinstance(count, int) else None


def _tool_around(step: StepRecord, known: Mapping[str, StepRecord]) -> str | None:
    """The tool call that a step was made in."""
    outer = known.get(step.parent_step_id or "")
    while outer is not None and outer.step_kind != "tool_call":
        outer = known.get(outer.parent_step_id or "")
    return None if outer is None else outer.step_id


def write_tape(tape: Tape, path: str | Path) -> None:
    """Write a tape as a file that a person can read and a review can compare. Its folder is made if
    need be.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(tape.dump(), ensure_ascii=False, indent=1, sort_keys=True)
    # Half a character has no UTF-8 form and stands as its escape.
    halves = re.sub(r"[\ud800-\udfff]", lambda half: json.dumps(half[0])[1:-1], text)
    Path(path).write_text(f"{halves}\n", "utf-8")


def read_tape(path: str | Path) -> Tape:
    """A tape from its file. Raises InvalidInput."""
    try:
        return Tape.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError as error:
        raise InvalidInput(
            f"There is no tape at {path}. `tally tape RUN --out {path}` writes one."
        ) from error
    except (OSError, UnicodeDecodeError, InvalidRecord) as error:
        raise InvalidInput(f"{path} is no tape: {error}. `tally tape RUN` writes one.") from error


class Player:
    """Plays a tape to one run of an agent. Thread-safe."""

    def __init__(
        self,
        tape: Tape,
        *,
        redactor: PayloadRedactor | None = None,
        ignore: Iterable[str] = (),
        errors: Iterable[type[Exception]] = (),
    ) -> None:
        """`redactor` holds the rules that the recording tally has, by default those of a tally
        without settings. `ignore` are regular expressions for what may differ, such as a date in a
        prompt. `errors` are classes that recorded failures are raised as, by their names; built-in
        ones are known. Raises InvalidInput.
        """
        self.tape = tape
        self._redactor: PayloadRedactor = redactor or Redactor()
        self._errors = tuple(errors)
        try:
            self._ignore = tuple(re.compile(pattern) for pattern in ignore)
        except re.error as error:
            raise InvalidInput(
                f"{error.pattern!r} in `ignore` is no regular expression: {error}."
            ) from error
        self._guard = threading.Lock()
        self._left = list(tape.calls)
        self._divergence: Divergence | None = None

    @property
    def report(self) -> TapeReport:
        """How far the agent has followed the tape."""
        with self._guard:
            return TapeReport(
                fidelity=self.tape.fidelity,
                calls=len(self.tape.calls),
                played=len(self.tape.calls) - len(self._left),
                divergence=self._divergence,
            )

    def model(
        self,
        request: Any,
        *,
        normal: Normal = lambda request: request,
        errors: Iterable[type[Exception]] = (),
    ) -> Json:
        """The recorded answer to a request of a model. Raises TapeDiverged, or RecordedFailure
        where it failed then.

        `errors` are classes of the runtime that a failure is raised as, by their names.
        """
        return self.answer(self.call_model(request, normal=normal), errors=errors)

    def call_model(self, request: Any, *, normal: Normal = lambda request: request) -> TapeCall:
        """The recorded call of a model. Raises TapeDiverged.

        `answer` gives what it said. A stream that broke holds both what it said until then and what
        went wrong.
        """
        return self._play("model_call", None, plain(request), normal)

    def answer(self, call: TapeCall, *, errors: Iterable[type[Exception]] = ()) -> Json:
        """What came back to a recorded call. Raises RecordedFailure where it failed, and
        NotReplayable.
        """
        if call.error is not None:
            kind, message = call.error["type"], call.error["message"]
            raise _failure(kind, (*self._errors, *errors))(kind, message)
        if call.response is None:
            raise NotReplayable(
                call.step_id,
                retention=self.tape.retention,
                missing="it waits for a person"
                if call.blocked
                else "the recording ended before it had an answer",
                hint="Let the tool run for real: name it in `safe`."
                if call.kind == "tool_call"
                else "Record a run that comes to its end.",
            )
        return call.response

    def tool(self, name: str, asked: Any, *, errors: Iterable[type[Exception]] = ()) -> Json:
        """The recorded result of a tool, asked with `{"arguments": …}`. Raises the same as `model`,
        and NotReplayable where there is no result.
        """
        return self.result(self.call_tool(name, asked), errors=errors)

    def call_tool(self, name: str, asked: Any, *, real: bool = False) -> TapeCall:
        """The recorded call of a tool, asked with `{"arguments": …}`. Raises TapeDiverged.

        With `real` the tool now runs, and so does what it calls; else that is played with it. A
        call that waited for a person and was made again is played with its answer.
        """
        call = self._play("tool_call", name, plain(asked), _arguments)
        if real:
            return call
        with self._guard:
            while call.blocked and (again := self._again(call)) is not None:
                self._left.remove(again)
                call = again
            self._skip_inside(call.step_id)
        return call

    def result(self, call: TapeCall, *, errors: Iterable[type[Exception]] = ()) -> Json:
        """What a recorded call of a tool gave. Raises RecordedFailure where it failed, and
        NotReplayable.
        """
        found = self.answer(call, errors=errors)
        return found.get("result") if isinstance(found, dict) else found

    def finish(self) -> TapeReport:
        """Say that the agent is done. Raises TapeDiverged where it left the tape, or left recorded
        calls unmade.
        """
        with self._guard:
            if self._divergence is None and self._left:
                first = self._left[0]
                what = (
                    f"the agent ended before {len(self._left)} of {len(self.tape.calls)} "
                    f"recorded calls"
                )
                self._divergence = Divergence(
                    step_id=first.step_id, what=f"{what}; the next was {_name(first)}"
                )
            divergence = self._divergence
        if divergence is not None:
            raise TapeDiverged(divergence.what, step_id=divergence.step_id, diff=divergence.diff)
        return self.report

    def _play(self, kind: str, name: str | None, asked: Json, normal: Normal) -> TapeCall:
        with self._guard:
            if self._divergence is None:
                candidates = [
                    call
                    for call in self._left
                    if call.kind == kind and (name is None or call.name == name)
                ]
                for call in candidates:
                    recorded, now = self._compared(call, asked, normal)
                    # Python takes 1, 1.0 and true for the same, and JSON does not.
                    if recorded == now and _text(recorded) == _text(now):
                        self._left.remove(call)
                        if kind == "model_call":
                            self._done_elsewhere(call)
                        return call
                self._divergence = self._diverged(kind, name, candidates, asked, normal)
            # The first difference is the one that tells; what follows from it does not.
            told = self._divergence
        raise TapeDiverged(told.what, step_id=told.step_id, diff=told.diff)

    def _again(self, call: TapeCall) -> TapeCall | None:
        """The same call, made again when a person had answered."""
        asked = (call.kind, call.name, _text(_arguments(call.request)))
        return next(
            (
                one
                for one in self._left
                if (one.kind, one.name, _text(_arguments(one.request))) == asked
            ),
            None,
        )

    def _done_elsewhere(self, asking: TapeCall) -> None:
        """Tools that nobody gave to the player ran for real; where a request that matches holds
        their results, they did as was recorded.
        """
        place = self.tape.calls.index(asking)
        before = {call.step_id for call in self.tape.calls[:place] if call.kind == "tool_call"}
        if not any(call.step_id in before for call in self._left):
            return
        held = set(_strings(asking.request))
        self._left = [
            call for call in self._left if call.step_id not in before or _call_id(call) not in held
        ]

    def _skip_inside(self, step_id: str) -> None:
        inside = [call for call in self._left if call.inside == step_id]
        self._left = [call for call in self._left if call.inside != step_id]
        for call in inside:
            self._skip_inside(call.step_id)

    def _compared(self, call: TapeCall, asked: Json, normal: Normal) -> tuple[Json, Json]:
        """What was recorded and what is asked, in the form in which they are compared."""
        if not call.redacted:
            return self._without(normal(call.request)), self._without(normal(asked))
        # As it would have been kept. Placeholders that came from the tape itself move the numbers
        # of others.
        kept = self._redactor.redact_json(asked)[0]
        recorded, now = (_mapped(normal(one), _unnumbered) for one in (call.request, kept))
        return self._without(recorded), self._without(now)

    def _without(self, value: Json) -> Json:
        if not self._ignore:
            return value

        def rest(text: str) -> str:
            for pattern in self._ignore:
                text = pattern.sub(_IGNORED, text)
            return text

        return _mapped(value, rest)

    def _diverged(
        self,
        kind: str,
        name: str | None,
        candidates: Sequence[TapeCall],
        asked: Json,
        normal: Normal,
    ) -> Divergence:
        place = len(self.tape.calls) - len(self._left) + 1
        if not candidates:
            called = f"the tool {name}" if name is not None else "a model"
            what = f"call {place} asks {called}, and the tape holds no such call any more"
            now = self._shown(normal(asked))
            return Divergence(
                step_id=None, what=what, diff=tuple(diff_lines({}, now, "recorded", "asked now"))
            )
        first = candidates[0]
        recorded, now = self._compared(first, asked, normal)
        told = "; ".join(_differences(recorded, now))
        return Divergence(
            step_id=first.step_id,
            what=f"call {place} is not the recorded one ({_name(first)}){told and f': {told}'}",
            diff=tuple(diff_lines(recorded, self._shown(now), "recorded", "asked now")),
        )

    def _shown(self, asked: Json) -> Json:
        """What a diff may show of a request: no secret goes into the log of a test."""
        return (
            asked
            if self.tape.retention == "full_payloads"
            else self._redactor.redact_json(asked)[0]
        )


def _differences(recorded: Json, now: Json) -> Iterator[str]:
    """What a diff does not say at a glance: how many parts of a request are missing or too many,
    and where from.
    """
    if not isinstance(recorded, dict) or not isinstance(now, dict):
        return
    for field in sorted({*recorded, *now}):
        one, other = recorded.get(field), now.get(field)
        if not isinstance(one, list) or not isinstance(other, list):
            continue
        texts = [[_text(part) for part in side] for side in (one, other)]
        missing = [part for part, text in zip(one, texts[0], strict=True) if text not in texts[1]]
        added = [part for part, text in zip(other, texts[1], strict=True) if text not in texts[0]]
        counts = (
            [(len(missing), "missing"), (len(added), "not recorded")]
            if len(missing) != len(added)
            else []
        )
        told = " and ".join(f"{count} {what}" for count, what in counts if count)
        if any(is_framed(json.dumps(part, ensure_ascii=False)) for part in (*missing, *added)):
            told = f"{told or 'there are others'}, with memories that a tally recalled"
        if told:
            yield f"of `{field}` {told}"


def _text(value: Json) -> str:
    """A JSON value as text that is equal for equal values."""
    return json.dumps(value, sort_keys=True)


def _arguments(request: Json) -> Json:
    """What a tool was called with: the id of a call comes from the model, which is compared
    itself.
    """
    if isinstance(request, dict) and "arguments" in request:
        return {"arguments": request["arguments"]}
    return request


def _call_id(call: TapeCall) -> Json:
    return call.request.get("tool_call_id") if isinstance(call.request, dict) else None


def _strings(value: Json) -> Iterator[str]:
    """Every text in a value, keys aside."""
    if isinstance(value, str):
        yield value
    for inner in (
        value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    ):
        yield from _strings(inner)


def _mapped(value: Json, change: Callable[[str], str]) -> Json:
    """A value with each of its texts changed, keys aside."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(one, change) for one in value]
    if isinstance(value, dict):
        return {name: _mapped(one, change) for name, one in value.items()}
    return value


def _unnumbered(text: str) -> str:
    return _NUMBERED.sub(r"[redacted:\1]", text)


def _name(call: TapeCall) -> str:
    return (
        f"{call.kind.replace('_', ' ')} {call.name or ''}".strip() + f", step {call.step_id[-8:]}"
    )


@lru_cache(maxsize=256)
def _failure(kind: str, known: tuple[type[Exception], ...]) -> type[RecordedFailure]:
    """A class of the recorded name: a RecordedFailure, and the exception of that name where it is
    known.
    """
    found = next((one for one in known if one.__name__ == kind), getattr(builtins, kind, None))
    bases: tuple[type, ...] = (RecordedFailure,)
    if isinstance(found, type) and issubclass(found, Exception):
        bases = (RecordedFailure, found)
    try:
        return type(kind, bases, {"__doc__": RecordedFailure.__doc__})
    except TypeError:  # two layouts that cannot be one
        return type(kind, (RecordedFailure,), {"__doc__": RecordedFailure.__doc__})
