"""Messages as context items and back: what every runtime's renderer and receipt have in common, and
stored texts as an adapter shows them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from tallystick.errors import InvalidInput
from tallystick.kit.elsewhere import TallyElsewhere
from tallystick.memory import read
from tallystick.memory.contradictions import disagreements_of
from tallystick.memory.held_changes import changes_note
from tallystick.memory.passages import document_place, hit_for_model, passage_text, unfold
from tallystick.policy.redaction import Redactor
from tallystick.recorder import Step
from tallystick.records import CompiledContext, ContextItem, Hit, ItemKind, Json, JsonObject
from tallystick.records.framing import CLOSE, OPEN, Quote, frame_code, frame_quotes, may_be_recalled
from tallystick.records.framing import without_frames as _without_frames
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of


class ToolCall(NamedTuple):
    """A call of a tool as a runtime makes it."""

    name: str
    arguments: Any
    """As the tool gets them: a mapping, or the text that a model gave."""
    tool_call_id: str | None = None

    def payload(self) -> dict[str, Any]:
        """Return the call as it is recorded."""
        return {
            "name": self.name,
            "arguments": self.arguments,
            "tool_call_id": self.tool_call_id,
        }

    def summary(self) -> dict[str, Any]:
        """Return the summary of the call in a receipt, which has no payload."""
        return {"tool": self.name, "tool_call_id": self.tool_call_id}


def record_tool_call(step: Step, call: ToolCall, *, approved: bool = False) -> None:
    """Record a call; `approved` is True if a person allowed it."""
    summary = call.summary()
    if approved:
        summary["approved"] = True
    step.record("tool_call", call.payload(), summary=summary)


def record_tool_result(step: Step, result: Any, **more: Json) -> None:
    """Record the result of a call, which may be a failure that the model reads; `more` is what the
    runtime did for it besides.
    """
    step.record("tool_result", {"result": result, **more})


def record_tool_error(step: Step, error: BaseException | None, message: str) -> None:
    """Record that a tool failed without an exception: its runtime turned it into an answer."""
    kind = type(error).__name__ if error is not None else "ToolError"
    step.record("error", {"type": kind, "message": message}, summary={"type": kind})


def record_approval(step: Step, call: ToolCall) -> None:
    """Record that a call waits for a person."""
    step.record("approval", call.payload(), summary={**call.summary(), "state": "asked"})


_MEDIA_TOKENS = 1_000
"""Tokens that an image, a sound or a file counts as, at least."""


def message_item(
    item_id: str,
    kind: ItemKind,
    text: str,
    count: Callable[[str], int],
    *,
    calls: Sequence[ToolCall] = (),
    result_of: str | None = None,
    thoughts: str = "",
    media: int = 0,
    media_tokens: int = _MEDIA_TOKENS,
) -> ContextItem:
    """Return a message as an item: its text, its tool calls, or the call that it is the result of.

    `count` counts the tokens of what is more than text: the arguments of calls, and the `thoughts`
    of a model, which are sent as they are. `media` is the number of images, sounds and files, of
    which each counts as `media_tokens`.
    """
    tool_calls: list[Json] = [
        {"id": call.tool_call_id, "name": call.name, "args": json_value(call.arguments)}
        for call in calls
    ]
    more = (json.dumps(tool_calls, ensure_ascii=False) if tool_calls else "") + thoughts
    return ContextItem(
        id=item_id,
        kind=kind,
        content=text,
        token_estimate=count(f"{text}{more}") + media_tokens * media if more or media else None,
        tool_call_ids=tuple(str(call.tool_call_id) for call in calls),
        tool_call_id=result_of,
        metadata={"tool_calls": tool_calls} if tool_calls else {},
    )


def changed_items(compiled: CompiledContext) -> set[str]:
    """Return the ids of the items whose text the compiler changed: the rest are as they came in."""
    return {
        decision.item_id
        for decision in compiled.decisions
        if decision.decision in ("redact", "compress")
    }


def arguments_of(arguments: Any) -> Any:
    """Return the arguments of a call as an object: a model may give them as the text of one, and
    text that is none, of an invalid call, is its field `input`.
    """
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except ValueError:
            parsed = None
        arguments = parsed if isinstance(parsed, dict) else {"input": arguments}
    return arguments or {}


def clean_arguments(arguments: Any, clean: Callable[[Any], Any]) -> Any:
    """Return the arguments of a call cleaned: a text of JSON stays one."""
    if not isinstance(arguments, str):
        return clean(arguments)
    try:
        values = from_json(arguments)
    except ValueError:
        return clean(arguments)
    return to_json(clean(values)).decode()


def dump_model(model: BaseModel, **options: Any) -> dict[str, Any]:
    """Return a runtime's model as JSON; an object in it that JSON does not know becomes text, so
    that nobody's metadata costs the recording.
    """
    try:
        return model.model_dump(mode="json", warnings=False, **options)
    except PydanticSerializationError:
        fields: dict[str, Any] = to_jsonable_python(
            model.model_dump(warnings=False, **options), fallback=str, bytes_mode="base64"
        )
        return fields


def json_text(value: Any, **options: Any) -> str:
    """Return the text of the JSON of a runtime's value, of which nothing is left out."""
    return to_json(value, fallback=str, bytes_mode="base64", **options).decode()


def output_text(output: Any) -> str | None:
    """Return the text of an agent's output: of a typed one its JSON."""
    return output if isinstance(output, str | None) else to_json(output, fallback=str).decode()


def is_json(value: Any) -> bool:
    """Return True for a value that is JSON as it is, but for tuples."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_json(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_json, value))
    return value is None or isinstance(value, str | bool | int | float)


def json_value(value: Any) -> Json:
    """Return a value of a runtime as JSON; what JSON does not know becomes text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    try:
        converted: Json = json.loads(json.dumps(value, default=str, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        # A key that is no text, a number that is none, a value that contains itself.
        return str(value)
    return converted


_SECRET = ("api_key", "apikey", "headers", "authorization", "credentials", "secret")
_SECRETS = ("token", "access_token", "refresh_token", "id_token", "auth_token", "password")


def recordable_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters without headers, keys and credentials, whatever the retention.

    A replay uses its own.
    """
    return {
        name: recordable_tools(value) if isinstance(value, list) else value
        for name, value in parameters.items()
        if not _is_secret(name)
    }


def recordable_metadata(metadata: Mapping[str, Any]) -> JsonObject:
    """Return what a call says about itself as JSON: a UUID, a date or any other object is its text,
    so that nothing in a runtime's config costs the recording.
    """
    return {str(name): json_value(value) for name, value in metadata.items()}


def recordable_tools(tools: Iterable[Any] | None) -> list[Any]:
    """Return tools, and servers of tools without their credentials."""
    return [
        recordable_parameters(tool) if isinstance(tool, Mapping) else tool for tool in tools or ()
    ]


@lru_cache(maxsize=1_024)
def _is_secret(name: str) -> bool:
    return name.lower() in _SECRETS or any(word in name.lower() for word in _SECRET)


def framed_hits(bound: BoundTally, hits: Iterable[Hit]) -> str:
    """Return hits as one frame with its code, each with its speaker and its caption, a long one by
    the part that answers, and what says nearly the same once; empty for none. Where some contradict
    one another, all have numbers, by which a line below says so.
    """
    shown = [hit for hit, _ in unfold(hits_for_model(bound, hits))]
    lines = disagreements_of(shown)
    quotes: list[Quote] = []
    for number, hit in enumerate(shown, start=1):
        text, place = passage_text(hit)
        part = f"(part {place}) " if place is not None else ""
        mark = f"- {number}" if lines else "-"
        note = changes_note(hit.held, hit.learned)
        speaker = hit.memory.speaker or document_place(hit.memory)
        quotes.append(Quote(text, speaker, part, note, mark=mark))
    if not quotes:
        return ""
    key = services_of(bound).memory.frame_keys.signing(bound.scope)
    return frame_quotes(quotes, key, legend=lines)


def hits_for_model(bound: BoundTally | TallyElsewhere, hits: Iterable[Hit]) -> list[Hit]:
    """Return hits without secrets, by the rules of the tally; of one elsewhere by those without
    settings.
    """
    redactor = (
        services_of(bound).memory.redactor if isinstance(bound, BoundTally) else _plain_redactor()
    )
    return [hit_for_model(redactor, hit) for hit in hits]


_plain_redactor = cache(Redactor)


def text_for_model(bound: BoundTally, memory_id: str, version: int) -> str | None:
    """Return the text of a memory without secrets, while it is at this version and may be read."""
    return read.text_for_model(services_of(bound).memory, bound.actor, memory_id, version)


def codes_of(bound: BoundTally | TallyElsewhere, bodies: Sequence[str]) -> list[str]:
    """Return the code of a frame with each of these texts between its marks, made where the tally
    is.
    """
    if not isinstance(bound, BoundTally):
        return bound.frame_codes(bodies) if bodies else []
    key = services_of(bound).memory.frame_keys.signing(bound.scope)
    return [frame_code(key, body) for body in bodies]


def codes_for_caller(bound: BoundTally, bodies: Sequence[str]) -> list[str]:
    """Same as `codes_of`, for a caller behind a server: only for who may read the scope, whose
    frames these are. Raises Denied, and InvalidInput for a text that ends its frame itself.
    """
    gate = services_of(bound).gate
    gate.admit(bound.actor, "read", bound.scope)
    gate.require(bound.actor, "read", bound.scope)
    if any(OPEN in body or CLOSE in body for body in bodies):
        raise InvalidInput("A text in a frame has no mark of a frame. Escape it first.")
    return codes_of(bound, bodies)


def without_frames(bound: BoundTally, text: str) -> str:
    """Return a text without the frames that this tally made for this actor; any other text, and a
    frame that was altered or cut, stays as it is.
    """
    return _without_frames(text, _keys(bound)) if may_be_recalled(text) else text


def _keys(bound: BoundTally) -> tuple[bytes, ...]:
    return services_of(bound).memory.frame_keys.checking(bound.actor, bound.scope)
