"""The base of all records: frozen, closed to unknown fields, made of plain JSON."""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    ValidationError,
)
from pydantic_core import PydanticSerializationError

from tallystick.errors import InvalidInput, InvalidRecord, explain_validation
from tallystick.records.canonical import read_json

__all__ = [
    "FIRST_MOMENT",
    "LAST_MOMENT",
    "Moment",
    "Json",
    "JsonObject",
    "Micros",
    "Names",
    "Persisted",
    "Record",
    "Words",
    "is_storable",
    "microseconds",
]

Json = JsonValue
"""Any JSON value."""

JsonObject = dict[str, JsonValue]
"""A JSON object."""

FIRST_MOMENT, LAST_MOMENT = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999: the range of calendars and of every database."""

Moment = int | datetime
"""A point in time: microseconds since 1970 UTC, or an aware datetime."""

Micros = Annotated[int, Field(ge=FIRST_MOMENT, le=LAST_MOMENT)]
"""A moment: microseconds since 1970 UTC."""


def is_storable(text: str) -> bool:
    """Return True if every database can store a text as a name: no NUL and no half of a
    character.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def _require_storable(text: str) -> str:
    if not is_storable(text):
        raise ValueError("holds a NUL or half a character; only `content` may hold any text")
    return text


Words = Annotated[str, AfterValidator(_require_storable)]
"""A text that is stored as a name or label."""

_REPLACED = "\ufffd"

Names = Annotated[
    AbstractSet[str],
    AfterValidator(frozenset),
    PlainSerializer(sorted, return_type=list[str]),
]
"""A set of names; kept as a frozenset, written in sorted order."""


class Record(BaseModel):
    """A value that crosses rooms. It cannot be changed; `replace` returns a changed copy."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=False, ser_json_inf_nan="strings"
    )

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`, validated. Raises InvalidRecord."""
        return self.load(
            {**{name: getattr(self, name) for name in type(self).model_fields}, **changes}
        )

    @classmethod
    def load(cls, data: Any) -> Self:
        """Validate `data` (a mapping or an instance) into a record. Raises InvalidRecord naming the
        fields.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise InvalidRecord(f"{cls.__name__}: {explain_validation(error)}") from error

    @classmethod
    def loads(cls, text: str | bytes) -> Self:
        """Validate JSON text into a record. Raises InvalidRecord naming the fields."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            if error.errors()[0]["type"] == "json_invalid":
                return cls.load(_lenient(cls.__name__, text))
            raise InvalidRecord(f"{cls.__name__}: {explain_validation(error)}") from error

    def dump(self, *, defaults: bool = True) -> JsonObject:
        """Return the record as plain JSON values, with or without the fields that have their
        defaults.
        """
        data: JsonObject = read_json(self.dumps(defaults=defaults))
        return data

    def dumps(self, *, defaults: bool = True) -> str:
        """Return the record as JSON text; `loads` returns an equal record, whatever text it
        contains.
        """
        try:
            text = self.model_dump_json(exclude_defaults=not defaults)
        except PydanticSerializationError:
            text = _REPLACED
        # Half a character has no UTF-8 form: pydantic refuses it in a value and replaces it in a
        # key without a word. It is written as its escape instead.
        if _REPLACED in text:
            return json.dumps(self.model_dump(exclude_defaults=not defaults), separators=(",", ":"))
        return text


class Persisted(Record):
    """A record that is written to disk and may be read by a later release."""

    schema_version: int = 1
    """Raised when the shape changes; older shapes are upcast on read."""

    def dump(self, *, defaults: bool = True) -> JsonObject:
        """Same as `Record.dump`; the version of the shape, with its defaults, is always there."""
        return {**super().dump(defaults=defaults), "schema_version": self.schema_version}


def _lenient(name: str, text: str | bytes) -> Any:
    # The fast parser refuses escapes of half a character, which `dumps` writes where a record holds
    # one.
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRecord(f"{name}: this is not JSON ({error})") from error


def microseconds(moment: Moment | None) -> int | None:
    """Return a moment as microseconds since 1970, UTC. Raises InvalidInput."""
    if moment is None:
        return None
    if isinstance(moment, bool) or not isinstance(moment, int | datetime):
        raise InvalidInput(
            f"{moment!r} is no moment. Give microseconds since 1970, UTC, or an aware datetime."
        )
    if isinstance(moment, int):
        if not FIRST_MOMENT <= moment <= LAST_MOMENT:
            raise InvalidInput(
                f"{moment} is no moment of the years 1 to 9999. Give microseconds since 1970, UTC."
            )
        return moment
    if moment.tzinfo is None:
        raise InvalidInput(
            "This datetime has no time zone. Give an aware one, such as datetime.now(UTC)."
        )
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
