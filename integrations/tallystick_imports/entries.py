"""What a reader yields: an entry for each memory, with its place, and the reason for each that it
cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from tallystick.errors import InvalidInput, InvalidRecord, TallystickError
from tallystick.memory import Put
from tallystick.records import KINDS, NewMemory, SourceRef, validate_attributes

_DEEPEST = 100
"""Levels of objects and lists within each other that a memory of another product may have."""
TOO_DEEP = f"is nested deeper than {_DEEPEST} levels"
_SPEAKERS = {"human": "user", "ai": "assistant"}


@dataclass(frozen=True)
class Entry:
    """A memory of another product."""

    place: str
    """Line of the file, or address in it."""
    owner: str
    """Whose it is there; empty where the file is of one person."""
    value: NewMemory | Put

    def __post_init__(self) -> None:
        _make_storable(self, "place", "owner")


@dataclass(frozen=True)
class Unreadable:
    """A memory that cannot be read, and why."""

    place: str
    reason: str

    def __post_init__(self) -> None:
        _make_storable(self, "place", "reason")


Read = Iterator[Entry | Unreadable]
Reader = Callable[[Path], Read]
_Made = TypeVar("_Made", bound="Entry | None")


def storable(text: str) -> str:
    """Return a name as every database and terminal takes it: half a character and NUL become ?."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "?")


def _make_storable(record: Any, *names: str) -> None:
    for name in names:
        object.__setattr__(record, name, storable(getattr(record, name)))


def read_each(
    values: Iterator[tuple[str, Any]], reader: Callable[[str, Any], Iterator[Entry | Unreadable]]
) -> Read:
    """Yield what a reader makes of each value; one that it cannot read stops no other."""
    for place, value in values:
        if isinstance(value, Unreadable):
            yield value
        elif is_too_deep(value):
            yield Unreadable(place, TOO_DEEP)
        else:
            try:
                yield from reader(place, value)
            except READING_ERRORS as error:
                yield Unreadable(place, reason_of(error))


def entry_of(place: str, make: Callable[[], _Made]) -> _Made | Unreadable:
    """Return one memory among several of a value, or why it cannot be read."""
    try:
        return make()
    except READING_ERRORS as error:
        return Unreadable(place, reason_of(error))


def is_too_deep(value: Any) -> bool:
    """Return True for a value that is nested deeper than a memory is."""
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


READING_ERRORS = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    OSError,
    TallystickError,
)
"""What values of another form may raise."""


def reason_of(error: Exception) -> str:
    """Return why a value could not be read, by what reading it raised."""
    if isinstance(error, KeyError):
        return f"has no field {error}"
    if isinstance(error, InvalidRecord | InvalidInput):
        return str(error)
    return f"is of another form ({error})"


def new_memory(
    *,
    content: Any,
    source: tuple[str, Any, str],
    occurred_at: Any,
    title: Any = None,
    tags: tuple[str, ...] = (),
    attributes: Mapping[str, Any] = {},
    **fields: Any,
) -> NewMemory:
    """Return a memory; `source` is its product, its id there and its owner, `title` that of what
    it is from. Raises ValueError where there is no text, and InvalidRecord.
    """
    if not isinstance(content, str) or not content.strip():
        raise ValueError("there is no text")
    product, record_id, owner = source
    for name in ("conversation", "subject"):
        if isinstance(fields.get(name), str):
            fields[name] = storable(fields[name])
    address = ":".join(str(part) for part in (product, owner, record_id) if part)
    new = NewMemory(
        content=content,
        occurred_at=occurred_at,
        tags=tags,
        attributes={name: value for name, value in attributes.items() if value is not None},
        source=SourceRef(
            source_type="memory",
            uri=storable(address[:1_000]),
            title=title_of(title) if title else None,
        ),
        **fields,
    )
    validate_attributes(new.kind, new.attributes)  # here, so that a preview says so
    return new


def pop_kind(facts: dict[str, Any], default: str) -> str:
    """Take the kind of a memory out of what a product says of it, where it is a kind of ours; a
    word of the product's own stays there.
    """
    kind = facts.get("kind")
    return str(facts.pop("kind")) if isinstance(kind, str) and kind in KINDS else default


def speaker_of(role: Any) -> str:
    """Return who speaks in a turn, by the role that a product names."""
    return _SPEAKERS.get(str(role), str(role))


def mapping(value: Any) -> dict[str, Any]:
    """Return an object, an empty one for anything else."""
    return dict(value) if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def tags_of(value: Any) -> tuple[str, ...]:
    """Return the items of a list as tags."""
    return tuple(str(each) for each in value) if isinstance(value, list | tuple) else ()


def title_of(value: Any) -> str | None:
    """Return a text as a name of 200 characters at most."""
    if not isinstance(value, str):
        return None
    return storable(" ".join(value.split())[:200]) or None


def moment(value: Any) -> Any:
    """Return a moment: seconds since 1970 as the time they are, a text without an offset as UTC.
    Raises ValueError, OverflowError and OSError for a number that no time is.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC)
    if isinstance(value, str) and value:
        read = datetime.fromisoformat(value)
        return read if read.tzinfo else read.replace(tzinfo=UTC)
    return None


def number_of(place: str) -> int:
    """Return the number that a place ends with."""
    return int(place.rpartition(" ")[2])
