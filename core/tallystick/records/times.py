"""Moments and durations: what people write for them, and the microseconds that are stored."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Annotated, Any, Generic, TypeVar, cast, overload

from pydantic import (
    PlainSerializer,
    PlainValidator,
    SkipValidation,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from tallystick.errors import InvalidInput
from tallystick.records.wire import Wire

FIRST_MOMENT, LAST_MOMENT = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999: the range of calendars and of every database."""

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
DAY = 24 * HOUR
"""Units of time, in microseconds."""

Duration = Annotated[timedelta | int, SkipValidation]
"""A length of time: a timedelta, or whole seconds."""

_DURATION = TypeAdapter(timedelta)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FORMS = (
    "Give a datetime, a date, an ISO 8601 text such as 2026-01-31T09:30:00+01:00, or microseconds "
    "since 1970, UTC"
)
_OTHER_UNITS = (
    ("seconds", 1_000_000, range(900_000_000, 5_000_000_000)),
    ("milliseconds", 1_000, range(900_000_000_000, 5_000_000_000_000)),
)
"""Units that clocks of other libraries count in, with their numbers of the years 1998 to 2128. As
microseconds these are the first hours and weeks of 1970, of which nobody remembers anything.
"""
_HINTS = {
    float: "; time.time() gives seconds, datetime.now(UTC) a datetime",
    timedelta: "; a timedelta is a distance",
}


def moment_text(micros: int, form: str, zone: tzinfo | None = UTC) -> str:
    """Return a moment as `strftime` writes it, in a zone, or in that of this machine for None. A
    moment that no calendar has is shown as its number of microseconds.
    """
    try:
        return (_EPOCH + timedelta(microseconds=micros)).astimezone(zone).strftime(form)
    except (OverflowError, ValueError, OSError):
        return f"{micros} µs"


@overload
def microseconds(
    moment: Occasion,
    zone: tzinfo = ...,
    *,
    name: str = ...,
    now: int | None = ...,
    back: bool = ...,
) -> int: ...
@overload
def microseconds(
    moment: Occasion | None,
    zone: tzinfo = ...,
    *,
    name: str = ...,
    now: int | None = ...,
    back: bool = ...,
) -> int | None: ...
def microseconds(
    moment: Occasion | None,
    zone: tzinfo = UTC,
    *,
    name: str = "moment",
    now: int | None = None,
    back: bool = False,
) -> int | None:
    """Return a moment as microseconds since 1970, UTC.

    What has no offset is a time in `zone`; a timedelta is counted from `now`, where that is given,
    or with `back` from there into the past. Raises InvalidInput that names the argument, also for
    an integer that can only be seconds or milliseconds.
    """
    if moment is None:
        return None
    try:
        away = distance(moment) if now is not None else None
        if away is not None and now is not None:
            return _check_moment(now + away // _MICROSECOND * (-1 if back else 1))
        known = _parse_moment(moment)
        return known if isinstance(known, int) else _since_epoch(known.replace(tzinfo=zone))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"`{name}` {error}", argument=name) from None


def distance(moment: Occasion | None) -> timedelta | None:
    """Return the timedelta by which a moment is given, also as ISO 8601 text such as P7D; None for
    all others. Raises ValueError.
    """
    if isinstance(moment, timedelta):
        return moment
    if isinstance(moment, str) and moment.lstrip("+-")[:1] == "P":
        try:
            return _DURATION.validate_python(moment)
        except ValidationError:
            raise ValueError("is no ISO 8601 duration; write one such as P7D or PT30M") from None
    return None


def seconds(duration: Duration, *, name: str) -> int:
    """Return a duration in whole seconds. Raises InvalidInput that names the argument."""
    if isinstance(duration, timedelta):
        return duration // timedelta(seconds=1)
    if isinstance(duration, bool) or not isinstance(duration, int):
        raise InvalidInput(
            f"`{name}` takes a timedelta or whole seconds, not {type(duration).__name__}.",
            argument=name,
        )
    return duration


def resolve_moment(moment: Occasion | None) -> int | None:
    """Return a moment of a record; one that still lacks its time zone is read as UTC."""
    return moment if moment is None or isinstance(moment, int) else microseconds(moment)


def as_datetime(moment: int) -> datetime:
    """Return microseconds since 1970 as an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=moment)


_T = TypeVar("_T")


class DatetimeOf(Generic[_T]):
    """An integer field of a record as an aware datetime in UTC."""

    def __init__(self, field: str) -> None:
        self.field = field

    @overload
    def __get__(self, record: None, owner: type) -> DatetimeOf[_T]: ...
    @overload
    def __get__(self, record: object, owner: type) -> _T: ...
    def __get__(self, record: object | None, owner: type) -> DatetimeOf[_T] | _T:
        if record is None:
            return self
        moment = getattr(record, self.field)
        return cast(_T, None if moment is None else as_datetime(moment))


def datetime_of(field: str) -> DatetimeOf[datetime]:
    """Return the property that offers an integer field as a datetime."""
    return DatetimeOf(field)


def optional_datetime_of(field: str) -> DatetimeOf[datetime | None]:
    """Same as `datetime_of`, for a field that may be None."""
    return DatetimeOf(field)


def _parse_moment(moment: object) -> int | datetime:
    """Return microseconds, or a datetime without an offset. Raises ValueError."""
    if isinstance(moment, int) and not isinstance(moment, bool):
        return _check_moment(moment)
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError:
            raise ValueError(f"is no ISO 8601 text. {_FORMS}.") from None
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    if isinstance(moment, datetime):
        return moment if moment.tzinfo is None else _since_epoch(moment)
    hint = _HINTS.get(type(moment), "")
    raise ValueError(f"takes a moment, not {type(moment).__name__}. {_FORMS}{hint}.")


def _since_epoch(moment: datetime) -> int:
    return _check_moment((moment - _EPOCH) // _MICROSECOND)


def _check_moment(moment: int) -> int:
    """Return the moment. Raises ValueError where it is none, or is in another unit."""
    if not FIRST_MOMENT <= moment <= LAST_MOMENT:
        raise ValueError(f"{moment} is no moment of the years 1 to 9999. {_FORMS}.")
    for unit, factor, values in _OTHER_UNITS:
        if moment in values:
            raise ValueError(
                f"{moment} looks like {unit}: as microseconds it would be "
                f"{as_datetime(moment):%Y-%m-%d %H:%M}. Multiply by {factor:_}, or give a datetime."
            )
    return moment


def _field_value(value: Any) -> Any:
    """Return microseconds; without an offset a datetime, until the tally's time zone is known.

    An integer may be of any range here: stored records are read by the same field. A tally looks at
    its unit when it is given the record.
    """
    try:
        if type(value) is int and FIRST_MOMENT <= value <= LAST_MOMENT:
            return value
        return _parse_moment(value)
    except ValueError as error:
        raise PydanticCustomError("moment", "{problem}", {"problem": str(error)}) from None


def _occasion_value(value: Any) -> Any:
    try:
        away = distance(value)
    except ValueError as error:
        raise PydanticCustomError("moment", "{problem}", {"problem": str(error)}) from None
    return _field_value(value) if away is None else away


def plain_moment(value: Any) -> int | str:
    """Return a moment, or its distance from now, as JSON has it."""
    if isinstance(value, timedelta):
        return str(_DURATION.dump_python(value, mode="json"))
    return value if isinstance(value, int) else str(value.isoformat())


_SCHEMA = WithJsonSchema(
    {
        "anyOf": [{"type": "integer"}, {"type": "string", "format": "date-time"}],
        "description": "An ISO 8601 time, or microseconds since 1970, UTC.",
    }
)
_Moment = int | datetime | date | str
MomentField = Annotated[
    _Moment, PlainValidator(_field_value), PlainSerializer(plain_moment), _SCHEMA
]
"""A field that takes any moment: microseconds, or a datetime that still lacks its time zone."""
Moment = Annotated[_Moment, SkipValidation, Wire(MomentField)]
"""A point in time: a datetime, a date (its first moment), an ISO 8601 text, or microseconds since
1970 UTC. Without an offset it is a time in the tally's `time_zone`.
"""

_Occasion = _Moment | timedelta
OccasionField = Annotated[
    _Occasion, PlainValidator(_occasion_value), PlainSerializer(plain_moment), _SCHEMA
]
"""Same as MomentField, for a moment that may be given by its distance from now."""
Occasion = Annotated[_Occasion, SkipValidation, Wire(OccasionField)]
"""A moment, or its distance from now: a timedelta, or ISO 8601 text such as P7D."""
