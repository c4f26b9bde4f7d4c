"""Tape mode: an agent runs again on recorded model and tool results, and each request is compared
with the tape.

Nothing is sent. A request that differs from the recorded one stops the agent at the first
difference; if secrets were redacted from the recorded request, the same rules are applied to the
new one first. Agents that make calls side by side may make them in another order: a request is
matched with any recorded one that was not played yet.
"""

from __future__ import annotations

import builtins
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
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
from tallystick.recorder.payloads import PayloadRedactor, plain, storable_text
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
from tallystick.records.framing import has_frame, without_codes

Normal = Callable[[Json], Json]
"""Removes from a request the fields that differ from run to run: ids of messages, times, usage."""

_REQUEST_KIND = {"model_call": "request", "tool_call": "tool_call"}
_ANSWER_KIND = {"model_call": "response", "tool_call": "tool_result"}
_NUMBERED = re.compile(r"\[redacted:([a-z0-9_]{1,40}):\d{1,12}\]")
_IGNORED = "…"


def tool_form(tool: Json) -> Json:
    """Return the name, description and parameters of a tool, in whichever form its provider takes
    it.
    """
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
    """Return the tape of a run. Raises NotReplayable where the payload of a call is missing."""
    by_id = {step.id: step for step, _ in steps}
    calls = [
        call for step, entries in steps if (call := _call_of(run, step, entries, by_id)) is not None
    ]
    return Tape(
        run_id=run.id, agent_name=run.agent_name, retention=run.retention, calls=tuple(calls)
    )


def _call_of(
    run: RunRecord, step: StepRecord, entries: Sequence[StepEntry], by_id: Mapping[str, StepRecord]
) -> TapeCall | None:
    """Return the request of a step and the answer to it; None for a step without a request."""
    kind: Literal["model_call", "tool_call"] = (
        "model_call" if step.step_kind == "model_call" else "tool_call"
    )
    by_kind: dict[str, StepEntry] = {entry.kind: entry for entry in entries}
    request = by_kind.get(_REQUEST_KIND.get(step.step_kind, ""))
    if request is None:
        return None
    answer, failure = by_kind.get(_ANSWER_KIND[kind]), by_kind.get("error")
    for entry in (request, answer, failure):
        if entry is not None and entry.payload_state in {"not_kept", "erased"}:
            raise NotReplayable(
                step.id,
                retention=run.retention,
                missing=f"its {entry.kind.replace('_', ' ')} was "
                f"{entry.payload_state.replace('_', ' ')}",
            )
    response: Json = None if answer is None else answer.payload
    if response is None and answer is not None and kind == "tool_call":
        response = {"result": None}  # of a tool that gives nothing, and gave that
    error = failure.payload if failure is not None and isinstance(failure.payload, dict) else None
    return TapeCall(
        step_id=step.id,
        kind=kind,
        name=step.name,
        request=request.payload,
        response=response,
        error=None
        if error is None
        else {name: str(error.get(name, "")) for name in ("type", "message")},
        redacted=bool(request.redactions),
        blocked=step.status == "blocked",
        chunks=_chunks(answer),
        inside=_tool_around(step, by_id),
    )


def _chunks(answered: StepEntry | None) -> int | None:
    """Return the number of chunks of an answer, as its receipt has it."""
    stream = None if answered is None else answered.summary.get("stream")
    count = stream.get("chunks") if isinstance(stream, dict) else None
    return count if isinstance(count, int) else None


def _tool_around(step: StepRecord, by_id: Mapping[str, StepRecord]) -> str | None:
    """Return the step of the tool call in which a step was made, or None."""
    outer = by_id.get(step.parent_step_id or "")
    while outer is not None and outer.step_kind != "tool_call":
        outer = by_id.get(outer.parent_step_id or "")
    return None if outer is None else outer.id


def write_tape(tape: Tape, path: str | Path) -> None:
    """Write a tape as a file that a person can read and a review can compare. Its folder is created
    if need be.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(tape.dump(), ensure_ascii=False, indent=1, sort_keys=True)
    # Half a character has no UTF-8 form and is written as its escape.
    halves = re.sub(r"[\ud800-\udfff]", lambda half: json.dumps(half[0])[1:-1], text)
    Path(path).write_text(f"{halves}\n", "utf-8")


def read_tape(path: str | Path) -> Tape:
    """Read a tape from its file. Raises InvalidInput."""
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
        """Take the rules of the recording tally as `redactor`, by default those of a tally without
        settings. `ignore` are regular expressions for text that may differ, such as a date in a
        prompt. `errors` are classes as which recorded failures are raised, by their names, beside
        the built-in ones. Raises InvalidInput.
        """
        self.tape = tape
        self._redactor: PayloadRedactor = redactor or Redactor()
        self._errors = tuple(errors)
        try:
            self._ignore = tuple(re.compile(pattern) for pattern in ignore)
        except re.error as error:
            raise InvalidInput(
                f"{error.pattern!r} in `ignore` is no regular expression: {error}.",
                argument="ignore",
            ) from error
        self._guard = threading.Lock()
        self._unplayed = list(tape.calls)
        self._divergence: Divergence | None = None

    @property
    def report(self) -> TapeReport:
        """Report how far the agent has followed the tape."""
        with self._guard:
            return TapeReport(
                fidelity=self.tape.fidelity,
                calls=len(self.tape.calls),
                played=len(self.tape.calls) - len(self._unplayed),
                divergence=self._divergence,
            )

    def model(
        self,
        request: Any,
        *,
        normal: Normal = lambda request: request,
        errors: Iterable[type[Exception]] = (),
    ) -> Json:
        """Return the recorded answer to a request of a model. Raises TapeDiverged, or
        RecordedFailure where the recorded call failed.

        `errors` are classes of the runtime as which a failure is raised, by their names.
        """
        return self.answer(self.call_model(request, normal=normal), errors=errors)

    def call_model(self, request: Any, *, normal: Normal = lambda request: request) -> TapeCall:
        """Return the recorded call of a model. Raises TapeDiverged.

        `answer` returns its answer. A stream that broke has both the answer until then and the
        error.
        """
        return self._play("model_call", None, plain(request), normal)

    def answer(self, call: TapeCall, *, errors: Iterable[type[Exception]] = ()) -> Json:
        """Return the answer to a recorded call. Raises RecordedFailure where it failed, and
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

    def tool(self, name: str, request: Any, *, errors: Iterable[type[Exception]] = ()) -> Json:
        """Return the recorded result of a tool, called with `{"arguments": …}`. Raises the same as
        `model`, and NotReplayable where there is no result.
        """
        return self.result(self.call_tool(name, request), errors=errors)

    def call_tool(self, name: str, request: Any, *, real: bool = False) -> TapeCall:
        """Return the recorded call of a tool, called with `{"arguments": …}`. Raises TapeDiverged.

        With `real` the tool runs now, and with it the calls that it makes; otherwise those count as
        played. A call that waited for a person and was made again is played with its answer.
        """
        call = self._play("tool_call", name, plain(request), _arguments)
        if real:
            return call
        with self._guard:
            while call.blocked and (again := self._again(call)) is not None:
                self._unplayed.remove(again)
                call = again
            self._skip_inside(call.step_id)
        return call

    def result(self, call: TapeCall, *, errors: Iterable[type[Exception]] = ()) -> Json:
        """Return the result of a recorded call of a tool. Raises RecordedFailure where it failed,
        and NotReplayable.
        """
        answer = self.answer(call, errors=errors)
        return answer.get("result", answer) if isinstance(answer, dict) else answer

    def finish(self) -> TapeReport:
        """End the play. Raises TapeDiverged where the agent left the tape, or left recorded calls
        unmade.
        """
        with self._guard:
            if self._divergence is None and self._unplayed:
                first = self._unplayed[0]
                what = (
                    f"the agent ended before {len(self._unplayed)} of {len(self.tape.calls)} "
                    f"recorded calls"
                )
                self._divergence = Divergence(
                    step_id=first.step_id, what=f"{what}; the next was {_name(first)}"
                )
            divergence = self._divergence
        if divergence is not None:
            raise TapeDiverged(divergence.what, step_id=divergence.step_id, diff=divergence.diff)
        return self.report

    def _play(self, kind: str, name: str | None, request: Json, normal: Normal) -> TapeCall:
        with self._guard:
            if self._divergence is None:
                candidates = [
                    call
                    for call in self._unplayed
                    if call.kind == kind and (name is None or call.name == name)
                ]
                for call in candidates:
                    recorded, now = self._normalize_pair(call, request, normal)
                    # Python takes 1, 1.0 and true for the same, and JSON does not.
                    if recorded == now and _text(recorded) == _text(now):
                        self._unplayed.remove(call)
                        if kind == "model_call":
                            self._count_real_tools(call)
                        return call
                self._divergence = self._describe_divergence(
                    kind, name, candidates, request, normal
                )
            # Only the first difference is reported: the others follow from it.
            divergence = self._divergence
        raise TapeDiverged(divergence.what, step_id=divergence.step_id, diff=divergence.diff)

    def _again(self, call: TapeCall) -> TapeCall | None:
        """Return the same call, made again after a person answered, or None."""
        key = (call.kind, call.name, _text(_arguments(call.request)))
        return next(
            (
                other
                for other in self._unplayed
                if (other.kind, other.name, _text(_arguments(other.request))) == key
            ),
            None,
        )

    def _count_real_tools(self, asking: TapeCall) -> None:
        """Count tools that ran for real as played where a request that matches contains their
        results: they did as was recorded.
        """
        place = self.tape.calls.index(asking)
        before = {call.step_id for call in self.tape.calls[:place] if call.kind == "tool_call"}
        if not any(call.step_id in before for call in self._unplayed):
            return
        texts = set(_strings(asking.request))
        self._unplayed = [
            call
            for call in self._unplayed
            if call.step_id not in before or _call_id(call) not in texts
        ]

    def _skip_inside(self, step_id: str) -> None:
        inside = [call for call in self._unplayed if call.inside == step_id]
        self._unplayed = [call for call in self._unplayed if call.inside != step_id]
        for call in inside:
            self._skip_inside(call.step_id)

    def _normalize_pair(self, call: TapeCall, request: Json, normal: Normal) -> tuple[Json, Json]:
        """Return the recorded request and the new one, in the form in which they are compared."""
        if not call.redacted:
            return self._without(normal(call.request)), self._without(normal(request))
        # As it would have been stored. Placeholders that came from the tape itself shift the
        # numbers of others.
        redacted = self._redactor.redact_json(request)[0]
        recorded, now = (
            _map_texts(normal(value), _strip_numbers) for value in (call.request, redacted)
        )
        return self._without(recorded), self._without(now)

    def _without(self, value: Json) -> Json:
        """Return a value without the codes of frames, which each tally makes with its own key, and
        without what is to be ignored.
        """

        def rest(text: str) -> str:
            text = without_codes(text)
            for pattern in self._ignore:
                text = pattern.sub(_IGNORED, text)
            return text

        return _map_texts(value, rest)

    def _describe_divergence(
        self,
        kind: str,
        name: str | None,
        candidates: Sequence[TapeCall],
        request: Json,
        normal: Normal,
    ) -> Divergence:
        place = len(self.tape.calls) - len(self._unplayed) + 1
        if not candidates:
            called = f"the tool {name}" if name is not None else "a model"
            what = f"call {place} asks {called}, and the tape holds no such call any more"
            now = self._redact_request(normal(request))
            return Divergence(
                step_id=None, what=what, diff=tuple(diff_lines({}, now, "recorded", "asked now"))
            )
        first = candidates[0]
        recorded, now = self._normalize_pair(first, request, normal)
        differences = "; ".join(_differences(recorded, now))
        return Divergence(
            step_id=first.step_id,
            what=f"call {place} is not the recorded one ({_name(first)})"
            f"{differences and f': {differences}'}",
            diff=tuple(diff_lines(recorded, self._redact_request(now), "recorded", "asked now")),
        )

    def _redact_request(self, request: Json) -> Json:
        """Return a request as a diff may show it: no secret goes into the log of a test."""
        return (
            request
            if self.tape.retention == "full_payloads"
            else self._redactor.redact_json(request)[0]
        )


def _differences(recorded: Json, now: Json) -> Iterator[str]:
    """Yield what a diff does not show at a glance: how many parts of a request are missing or
    additional, and whether they are memories.
    """
    if not isinstance(recorded, dict) or not isinstance(now, dict):
        return
    for field in sorted({*recorded, *now}):
        before, after = recorded.get(field), now.get(field)
        if not isinstance(before, list) or not isinstance(after, list):
            continue
        texts = [[_text(part) for part in side] for side in (before, after)]
        missing = [
            part for part, text in zip(before, texts[0], strict=True) if text not in texts[1]
        ]
        added = [part for part, text in zip(after, texts[1], strict=True) if text not in texts[0]]
        counts = (
            [(len(missing), "missing"), (len(added), "not recorded")]
            if len(missing) != len(added)
            else []
        )
        summary = " and ".join(f"{count} {what}" for count, what in counts if count)
        if any(has_frame(json.dumps(part, ensure_ascii=False)) for part in (*missing, *added)):
            summary = f"{summary or 'there are others'}, with memories that a tally recalled"
        if summary:
            yield f"of `{field}` {summary}"


def _text(value: Json) -> str:
    """Return a JSON value as text that is equal for equal values."""
    return json.dumps(value, sort_keys=True)


def _arguments(request: Json) -> Json:
    """Return the arguments of a tool call, without its id: that comes from the model, whose answer
    is compared itself.
    """
    if isinstance(request, dict) and "arguments" in request:
        return {"arguments": request["arguments"]}
    return request


def _call_id(call: TapeCall) -> Json:
    return call.request.get("tool_call_id") if isinstance(call.request, dict) else None


def _strings(value: Json) -> Iterator[str]:
    """Yield every text in a value, keys aside."""
    if isinstance(value, str):
        yield value
    for inner in (
        value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    ):
        yield from _strings(inner)


def _map_texts(value: Json, change: Callable[[str], str]) -> Json:
    """Return a value with each of its texts changed, keys aside."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _map_texts(item, change) for name, item in value.items()}
    return value


def _strip_numbers(text: str) -> str:
    return _NUMBERED.sub(r"[redacted:\1]", text)


def _name(call: TapeCall) -> str:
    return (
        f"{call.kind.replace('_', ' ')} {call.name or ''}".strip() + f", step {call.step_id[-8:]}"
    )


@lru_cache(maxsize=256)
def _failure(kind: str, classes: tuple[type[Exception], ...]) -> type[RecordedFailure]:
    """Return a class of the recorded name: a RecordedFailure, and the exception of that name if it
    is among `classes` or built in.
    """
    base = next((cls for cls in classes if cls.__name__ == kind), getattr(builtins, kind, None))
    if isinstance(base, type) and issubclass(base, Exception):
        # The layouts of two bases may conflict, and a class may want more than a message.
        with suppress(Exception):
            both: type[RecordedFailure] = type(
                kind, (RecordedFailure, base), {"__doc__": RecordedFailure.__doc__}
            )
            both(kind, "")
            return both
    return type(storable_text(kind), (RecordedFailure,), {"__doc__": RecordedFailure.__doc__})


_MAX_PIECES = 16
"""Most pieces of an answer that was not recorded as a stream: about one for each word."""


def stream_pieces(call: TapeCall, texts: Sequence[str]) -> list[list[str]]:
    """Cut the texts of a recorded answer into pieces: each into one at least, together into as many
    as the answer had chunks.

    There are fewer pieces if the texts have fewer characters than the stream had chunks, and more
    if there are more texts than chunks. A piece is empty only if it is the whole of an empty text.
    No piece begins within a character as a person sees it, or within an escape of JSON.
    """
    characters = [_characters(text) for text in texts]
    words = sum(len(text.split()) for text in texts)
    chunks = call.chunks if call.chunks is not None else min(words, _MAX_PIECES)
    lengths = [len(parts) for parts in characters]
    return [
        list(_cut(parts, share))
        for parts, share in zip(characters, _shares(lengths, chunks), strict=True)
    ]


def _shares(lengths: Sequence[int], chunks: int) -> Iterator[int]:
    """Yield the number of pieces of each text: one, and a share of the rest in proportion to its
    length.
    """
    rest, total, before = max(0, chunks - len(lengths)), sum(lengths), 0
    for length in lengths:
        share = rest * (before + length) // total - rest * before // total if total else 0
        before += length
        yield 1 + share


def _cut(characters: Sequence[str], pieces: int) -> Iterator[str]:
    """Yield characters in at most `pieces` pieces of about the same length."""
    count = max(1, min(pieces, len(characters)))
    ends = [len(characters) * place // count for place in range(count + 1)]
    return ("".join(characters[start:end]) for start, end in pairwise(ends))


def _characters(text: str) -> list[str]:
    """Return the parts that are never cut: characters as a person sees them, and escapes of JSON,
    two of which may be one character.
    """
    characters: list[str] = _pattern().findall(text)
    return characters


@lru_cache(maxsize=1)
def _pattern() -> Any:
    # The import takes a twentieth of a second, and only a tape played as a stream needs it.
    import regex  # type: ignore[import-untyped]

    return regex.compile(
        r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
        r"|\\u[0-9a-fA-F]{4}"
        r"|[\ud800-\udbff][\udc00-\udfff]"
        r"|\\?\X"
    )
