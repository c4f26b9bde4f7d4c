"""The base of all records: frozen, closed to unknown fields, made of plain JSON; and the same check
for the arguments of public verbs, and of how much one call may hand over.

Those limits are far beyond what anybody remembers, and below what would stall everybody else.
Whoever captures for an adapter meets them too: the agent's run goes on, and the turn that was too
large is counted and named in the health of the recorder.
"""

import builtins
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, wraps
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, get_args, get_type_hints

from pydantic import (
    VERSION,
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    PlainSerializer,
    ValidationError,
    validate_call,
)
from pydantic_core import CoreSchema, PydanticCustomError, PydanticSerializationError
from pydantic_core.core_schema import no_info_before_validator_function

from tallystick.errors import InvalidInput, InvalidRecord, UnknownArgument
from tallystick.errors.base import explain_problem, explain_validation
from tallystick.records.canonical import read_json
from tallystick.records.escaping import cut, html_of
from tallystick.records.times import DatetimeOf
from tallystick.records.wire import Wire, wire_type

T = TypeVar("T")
_UNCHANGING = frozenset({str, int, bool, float, bytes, frozenset, type(None)})

LONGEST_NAME = 1_000
"""Characters of a tag, a speaker, a subject, a category, a conversation, an idempotency key,
the agent and the domain of a run, and of each name of an actor.
"""
MOST_TAGS = 1_000
"""Tags of one memory."""
LARGEST_ATTRIBUTES = 1_000_000
"""Characters of texts and keys, and four for each other value, in `attributes` and `metadata`."""
DEEPEST = 64
"""Lists and objects inside of one another in `attributes` and `metadata`."""
LONGEST_INTEGER = 1_000
"""Digits of an integer in a JSON value: Python refuses to read more than 4,300."""
MOST_ITEMS = 100_000
"""Items of one `remember_many`."""

BUILDS_LATER = tuple(map(int, VERSION.split(".")[:2])) >= (2, 14)
"""Whether the check of a record is built when it is first used: most processes use few of them.
Before 2.14 pydantic did not hold threads apart that built the same one at the same moment.
"""

_BITS = int(LONGEST_INTEGER * 3.3219)


Json = JsonValue
"""Any JSON value."""

JsonObject = dict[str, JsonValue]
"""A JSON object."""


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


@dataclass(frozen=True)
class _TupleOf(Wire):
    checked: Any

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(_as_tuple, handler(self.checked))


def _as_tuple(items: Any) -> Any:
    own_kind = isinstance(items, Sequence) and not isinstance(items, str | bytes | list | tuple)
    return tuple(items) if own_kind else items


def tuple_of(item: Any) -> Wire:
    """Check a sequence as a tuple of `item`, whatever kind of sequence it is; a text alone is none.

    pydantic would make the caller's own kind of sequence anew, which not every kind can be.
    """
    in_json: Any = wire_type(item)
    return _TupleOf(tuple[in_json, ...], tuple[item, ...])


Texts = Annotated[Sequence[str], tuple_of(str)]
"""Texts in their order, kept as a tuple; a text alone is refused."""
Labels = Annotated[Sequence[str], tuple_of(Words)]
"""Same as Texts, for texts that are stored as labels."""

Count = Annotated[int, Field(ge=-(2**53), le=2**53 - 1), Wire(int)]
"""A number of things at most, as every database can store it."""
MOST_RESULTS = 1_000
Limit = Annotated[int, Field(ge=1, le=MOST_RESULTS)]
"""The results of one call at most; a longer list is read page by page."""

_REPLACED = "\ufffd"
_MOST_OF_A_FIELD, _MOST_SHOWN = 60, 240
"""Characters of one field, and of all, that the representation of a record has."""

Names = Annotated[
    AbstractSet[str],
    AfterValidator(frozenset),
    PlainSerializer(sorted, return_type=list[str]),
]
"""A set of names; kept as a frozenset, written in sorted order."""


class Record(BaseModel):
    """A value that crosses rooms. It cannot be changed; `replace` returns a changed copy."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=False,
        ser_json_inf_nan="strings",
        ignored_types=(DatetimeOf,),
        defer_build=BUILDS_LATER,
    )

    if not TYPE_CHECKING:  # type checkers read the fields

        def __init__(self, *values: Any, **fields: Any) -> None:
            """Validate the fields. Raises InvalidRecord naming those that do not fit."""
            if values:
                name = next(iter(type(self).model_fields), "…")
                raise TypeError(
                    f"{type(self).__name__} takes its fields by name, such as {name}={values[0]!r}."
                )
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise _invalid(type(self), error) from error

        # As pydantic marks its own: nested records are then validated without a call of Python.
        __init__.__pydantic_base_init__ = True

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`, validated. Raises InvalidRecord."""
        return self.load(
            {**{name: getattr(self, name) for name in type(self).model_fields}, **changes}
        )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return a copy with mappings of its own: nothing else in a record can be changed. Each
        default that is a record is copied so.
        """
        copied = self.__copy__()
        fields = vars(copied)
        for name, value in fields.items():
            if type(value) not in _UNCHANGING:
                fields[name] = deepcopy(value, memo)
        return copied

    @classmethod
    def load(cls, data: Any) -> Self:
        """Validate `data` (a mapping or an instance) into a record. Raises InvalidRecord naming the
        fields.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise _invalid(cls, error) from error

    @classmethod
    def of_valid(cls, **fields: Any) -> Self:
        """Return a record of all its fields, in their order, which are valid already: nothing is
        checked or looked up.
        """
        record = cls.__new__(cls)
        for name, value in (
            ("__dict__", fields),
            ("__pydantic_fields_set__", set(fields)),
            ("__pydantic_extra__", None),
            ("__pydantic_private__", None),
        ):
            object.__setattr__(record, name, value)
        return record

    @classmethod
    def loads(cls, text: str | bytes) -> Self:
        """Validate JSON text into a record. Raises InvalidRecord naming the fields."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            if error.errors()[0]["type"] == "json_invalid":
                return cls.load(_lenient(cls.__name__, text))
            raise _invalid(cls, error) from error

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Leave out of the representation what has its default."""
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            field = fields.get(name or "")
            if field is None or field.is_required() or value != field.default:
                yield name, value

    def __repr__(self) -> str:
        """Return the fields that have not their defaults, each and all cut to what a person reads:
        `dump` has everything.
        """
        shown, room = [], _MOST_SHOWN
        for name, value in self.__repr_args__():
            field = f"{name}={cut(repr(value), _MOST_OF_A_FIELD)}"
            if len(field) > room:
                shown.append("…")
                break
            shown.append(field)
            room -= len(field)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __str__(self) -> str:
        """Return the representation, of a subclass its own."""
        return repr(self)

    def _repr_html_(self) -> str | None:
        """Return the record for a notebook; None where no surface renders its kind."""
        return html_of(self)

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
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"{name}: this is not JSON ({error})") from error


def _invalid(record: type[Record], error: ValidationError) -> InvalidRecord:
    location = error.errors(include_input=False, include_url=False, include_context=False)[0]["loc"]
    return InvalidRecord(
        f"{record.__name__}: {explain_validation(error)}",
        argument=str(location[0]) if location else None,
    )


def _check_several(items: Any) -> Any:
    if isinstance(items, str | bytes | Mapping | BaseModel) or not isinstance(items, Iterable):
        raise PydanticCustomError("items", "takes a list; write [value] for one")
    return items


Several = AfterValidator(_check_several)
"""Refuses one value where an iterable of them is meant; what is in it is checked by the verb."""


@dataclass(frozen=True, init=False)
class IdOf:
    """Marks an argument as an id of a record of these kinds, of which a part is enough."""

    kinds: tuple[str, ...]

    def __init__(self, *kinds: str) -> None:
        object.__setattr__(self, "kinds", kinds)


MemoryId = Annotated[str, IdOf("memory"), Field(description="Id of a memory.")]
SourceId = Annotated[str, IdOf("source"), Field(description="Id of a source.")]
RunId = Annotated[str, IdOf("run"), Field(description="Id of a run.")]
StepId = Annotated[str, IdOf("step"), Field(description="Id of a step.")]
ApprovalId = Annotated[str, IdOf("approval"), Field(description="Id of an approval.")]
JobId = Annotated[str, IdOf("job"), Field(description="Id of a job.")]
JobIds = Annotated[Texts, IdOf("job")]
ProposalId = Annotated[str, IdOf("proposal"), Field(description="Id of a proposal.")]
MemoryOrSourceIds = Annotated[Texts, IdOf("memory", "source")]
MemoryIds = Annotated[Texts, IdOf("memory")]
SourceIds = Annotated[Texts, IdOf("source")]


def checked_arguments(cls: type[T]) -> type[T]:
    """Validate the arguments of a class's public methods by their annotations, before each call.

    A value of another type raises InvalidInput that names the argument; the methods themselves see
    what their annotations say, with ids completed by the `_full_id` of the instance. A call with
    other arguments than a method has raises TypeError, or UnknownArgument where the
    `_respell_argument` of the instance knows how it is written.
    """
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod):
            setattr(cls, name, classmethod(_check_arguments(member.__func__)))
        elif inspect.isfunction(member):
            setattr(cls, name, _check_arguments(member))
    return cls


class _Absent:
    """The default of an option that is not given."""

    def __repr__(self) -> str:
        return "..."


_ABSENT: Any = _Absent()


def _spell_options(function: Callable[..., Any]) -> None:
    """Spell the `**options` of a function out in its signature: those of the record that they
    unpack. Whoever validates, documents or completes a call reads them there.
    """
    if not function.__code__.co_flags & inspect.CO_VARKEYWORDS:
        return
    signature = inspect.signature(function)
    *parameters, last = signature.parameters.values()
    if last.kind is not last.VAR_KEYWORD or "Unpack" not in str(last.annotation):
        return
    # Alone: the other annotations may name what is defined further below.
    [record] = get_args(eval(last.annotation, function.__globals__))
    hints = get_type_hints(record, include_extras=True)
    parameters += [
        inspect.Parameter(name, last.KEYWORD_ONLY, default=_ABSENT, annotation=hint)
        for name, hint in hints.items()
    ]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    del function.__annotations__[last.name]
    function.__annotations__.update(hints)


class _NamesOf(dict[str, Any]):
    """The names of a module, also those that it loads when they are first asked for."""

    def __init__(self, module: str) -> None:
        self._module = sys.modules[module]

    def __missing__(self, name: str) -> Any:
        if not hasattr(self._module, name):
            raise KeyError(name)
        return getattr(self._module, name)


def hints_of(function: Callable[..., Any], *, extras: bool = False) -> dict[str, Any]:
    """Return the annotations of a function, evaluated in its module, which may load some of its
    names when they are first asked for (`late_names`); with `extras` also what `Annotated` adds.
    """
    function = inspect.unwrap(function)
    return get_type_hints(function, None, _NamesOf(function.__module__), include_extras=extras)


def _check_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    _spell_options(function)
    # Read off the code: each start would make the signatures of all verbs, and calls few.
    code = inspect.unwrap(function).__code__
    takes_more = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if code.co_argcount + code.co_kwonlyargcount == 1 and not takes_more:  # the instance alone
        return function

    @cache
    def check() -> tuple[Callable[..., Any], list[str], dict[str, tuple[str, ...]]]:
        names = list(inspect.signature(function).parameters)

        # Only the arguments: an error of the method itself is never taken for one of its caller.
        @wraps(function)
        def arguments(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return args, kwargs

        hints = hints_of(function, extras=True)
        # The first one is the instance, or the class.
        arguments.__annotations__ = {**hints, names[0]: Any}
        ids = {name: kinds for name in names if (kinds := _kinds_of_id(hints.get(name)))}
        return (
            validate_call(config=ConfigDict(arbitrary_types_allowed=True))(arguments),
            names,
            ids,
        )

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        validate, names, ids = check()
        try:
            args, kwargs = validate(*args, **kwargs)
        except ValidationError as error:
            raise _argument_error(function, args, kwargs, error) from None
        kwargs = {name: value for name, value in kwargs.items() if value is not _ABSENT}
        if ids:
            args, kwargs = _with_full_ids(ids, names, args, kwargs)
        return function(*args, **kwargs)

    return call


def _kinds_of_id(hint: Any) -> tuple[str, ...]:
    """Return the kinds of the ids that an annotation takes; empty where it takes none."""
    for part in get_args(hint):
        kinds = part.kinds if isinstance(part, IdOf) else _kinds_of_id(part)
        if kinds:
            return kinds
    return ()


def _with_full_ids(
    ids: dict[str, tuple[str, ...]],
    names: list[str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    complete = args[0]._full_id
    named = dict(zip(names, args, strict=False)) | kwargs
    for name, kinds in ids.items():
        value = named.get(name)
        if isinstance(value, str):
            named[name] = complete(kinds, value)
        elif isinstance(value, tuple):
            named[name] = tuple(complete(kinds, part) for part in value)
    return tuple(named[name] for name in names[: len(args)]), {name: named[name] for name in kwargs}


def _is_field(part: str) -> bool:
    return part.isidentifier() and part.islower() and part not in vars(builtins)


_BOUNDS = {
    "Input should be greater than or equal to": "must be at least",
    "Input should be less than or equal to": "must be at most",
}


def _argument_error(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: ValidationError,
) -> InvalidInput:
    """Return the error for arguments that do not validate. Raises TypeError, as Python words it,
    where their number or names do not fit.
    """
    signature = inspect.signature(function)
    respell = getattr(args[0], "_respell_argument", lambda *_: None)
    bind_arguments(signature, function.__name__, args, kwargs, respell)
    problems: dict[str, list[str]] = {}
    names = list(signature.parameters)
    for problem in error.errors(include_input=False, include_url=False, include_context=False):
        head, *path = problem["loc"]
        name = names[head] if isinstance(head, int) else head
        # Parts that are no field name are the branches of a union, which says nothing to a caller.
        inner = ".".join(str(part) for part in path if isinstance(part, int) or _is_field(part))
        text = explain_problem(problem)
        for bound, words in _BOUNDS.items():
            text = text.replace(bound, words)
        problems.setdefault(name, []).append(f"{text}{f' (at {inner})' if inner else ''}")
    listed = "; ".join(
        f"`{name}` {' or '.join(dict.fromkeys(texts))}" for name, texts in problems.items()
    )
    return InvalidInput(f"{function.__name__}: {listed}.", argument=next(iter(problems)))


def bind_arguments(
    signature: inspect.Signature,
    verb: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    respell: Callable[[str, str, object], str | None],
) -> inspect.BoundArguments:
    """Return the arguments of a call of `verb` by their names. Raises TypeError, as Python words
    it, where their number or names do not fit: UnknownArgument where `respell` knows a name.
    """
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        words = f"{verb}() {mismatch}"
        for name in kwargs.keys() - signature.parameters.keys():
            spelling = respell(verb, name, kwargs[name])
            if spelling is None and f"{name}s" in signature.parameters:
                spelling = f"{name}s=[{kwargs[name]!r}]"
            if spelling is not None:
                words = f"{verb}() got an unexpected keyword argument {name!r}. Write {spelling}."
                raise UnknownArgument(words, argument=name) from None
        by_place = _names_by_place(signature)
        if len(args) > len(by_place) + 1:
            listed = f"all but {' and '.join(by_place)}" if by_place else "all"
            words = f"{words}: {listed} are given by their names."
        elif "reason" in signature.parameters and "reason" not in kwargs:
            words = f"{words}. Write {_call_with_reason(signature, verb, kwargs)}"
        raise TypeError(words) from None


def _names_by_place(signature: inspect.Signature) -> list[str]:
    """Return the arguments that a call may give by their place, without the instance."""
    at_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, each in signature.parameters.items() if each.kind in at_place][1:]


def _call_with_reason(signature: inspect.Signature, verb: str, kwargs: Mapping[str, Any]) -> str:
    """Return how a call of a verb is written that says why: what it needs, and what was given."""
    parameters = signature.parameters
    needed = [
        name
        for name in _names_by_place(signature)
        if parameters[name].default is inspect.Parameter.empty and name not in kwargs
    ]
    takes_more = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    given = [f"{name}=…" for name in kwargs if takes_more or name in parameters]
    said = ", ".join([*needed, *given, 'reason="…"'])
    return f"{verb}({said})."


def require_length(argument: str, text: str | None) -> None:
    """Raise InvalidInput for a name that is too long."""
    if text is None or len(text) <= LONGEST_NAME:
        return
    raise InvalidInput(
        f"`{argument}` has {len(text):,} characters, and may have {LONGEST_NAME:,}. It names "
        "something: put a long text into `content` or `attributes`.",
        argument=argument,
    )


def require_item_count(count: int) -> None:
    """Raise InvalidInput for too many items in one call."""
    if count > MOST_ITEMS:
        raise InvalidInput(
            f"`items` has {count:,} items, and may have {MOST_ITEMS:,}. Remember them in several "
            "calls.",
            argument="items",
        )


def require_tags(tags: Iterable[str]) -> None:
    """Raise InvalidInput for too many tags, or one that is too long."""
    tags = tuple(tags)
    if len(tags) > MOST_TAGS:
        raise InvalidInput(
            f"`tags` has {len(tags):,} tags, and may have {MOST_TAGS:,}. Put what describes one "
            "memory alone into `attributes`.",
            argument="tags",
        )
    for tag in tags:
        require_length("tags", tag)


def require_json_size(
    argument: str,
    value: Mapping[str, Any] | None,
    *,
    finite: bool = False,
    most: int = LARGEST_ATTRIBUTES,
) -> None:
    """Raise InvalidInput for a JSON object that is too large or too deep, contains itself, or has
    an integer that nobody could read back; with `finite` also for a number that JSON does not know.
    `most` is how much it may have, counted as LARGEST_ATTRIBUTES is.
    """
    size, level = 0, [value]
    for _ in range(DEEPEST + 1):
        below: list[Any] = []
        for inner in level:
            if isinstance(inner, Mapping):
                size += sum(len(key) if isinstance(key, str) else 4 for key in inner)
                below += inner.values()
            elif isinstance(inner, list | tuple):
                below += inner
            elif isinstance(inner, str):
                size += len(inner)
            else:
                size += 4
                if finite and isinstance(inner, float) and not isfinite(inner):
                    raise InvalidInput(
                        f"`{argument}` has the number {inner}, which JSON does not know. Write it "
                        "as a text.",
                        argument=argument,
                    )
                if isinstance(inner, int) and inner.bit_length() > _BITS:
                    raise InvalidInput(
                        f"`{argument}` has an integer of more than {LONGEST_INTEGER:,} digits. "
                        "Write it as a text.",
                        argument=argument,
                    )
        # What contains itself twice would grow without an end.
        if size + len(below) > most:
            raise InvalidInput(
                f"`{argument}` has more than {most:,} characters. Put long texts "
                "into `content`, and keep large values elsewhere, with their address here.",
                argument=argument,
            )
        if not below:
            return
        level = below
    raise InvalidInput(
        f"`{argument}` has more than {DEEPEST} lists and objects inside of one another, or "
        "contains itself. Write what is deeper as a text.",
        argument=argument,
    )
