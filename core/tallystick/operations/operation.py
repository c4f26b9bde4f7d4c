"""Operation: a verb that a surface may offer, defined once for all of them, with the arguments of
the function that carries it out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from tallystick.errors import InvalidInput
from tallystick.errors.base import explain_validation
from tallystick.records import JsonObject
from tallystick.records._base import BUILDS_LATER, hints_of
from tallystick.records.wire import wire_type
from tallystick.tally import BoundTally


class Arguments(BaseModel):
    """The arguments of an operation: frozen, with a JSON schema, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=BUILDS_LATER)


def arguments_of(function: Callable[..., Any], name: str) -> type[Arguments]:
    """Return the arguments of a function as a model, without its first: names, defaults and
    descriptions are those of the signature, the types those of JSON.

    Keyword arguments of any name are one argument, a mapping.
    """
    hints = hints_of(function, extras=True)
    fields: dict[str, Any] = {}
    _, *parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        annotation = wire_type(hints[parameter.name])
        if annotation is not None:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (annotation, default)
    title = "".join(word.title() for word in name.split("_"))
    return create_model(title, __base__=Arguments, **fields)


Effect = Literal["read", "change", "operate"]
"""The effect of an operation: to read, to change memory, or to operate the tally."""


@dataclass(frozen=True)
class Operation:
    """One verb of a bound tally: its name, effect and errors. The signature of the verb defines
    arguments and result.
    """

    name: str
    """The stable name, in snake case."""
    title: str
    """A few words, for a menu."""
    description: str
    """One or two sentences for people."""
    effect: Effect
    errors: tuple[str, ...]
    """Codes of the errors that it may raise, beside those that any call may raise."""
    verb: str
    """The path of the verb from a BoundTally, such as `recall` or `operator.erase`; of that of an
    extension, from its name.
    """
    needs_preview: bool = False
    """True if it is previewed itself, and applied only with the token of its preview."""
    face: Callable[[BoundTally], Any] | None = None
    """The class of the extension that has the verb, which is made of a BoundTally."""

    @cached_property
    def _path(self) -> list[str]:
        """The names from the bound tally, or the class of the extension, to the verb."""
        names = self.verb.split(".")
        return names if self.face is None else names[-1:]

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The method that carries the verb out, of the class of the part that has it."""
        part: Any = self.face or BoundTally
        *names, verb = self._path
        for name in names:
            part = hints_of(getattr(part, name).fget)["return"]
        return cast(Callable[..., Any], getattr(part, verb))

    @cached_property
    def arguments(self) -> type[Arguments]:
        """The arguments of the verb, built when they are first used."""
        return arguments_of(self.function, self.name)

    @cached_property
    def result(self) -> Any:
        """The annotation of what the verb returns: a record, a list of records or None."""
        returned = hints_of(self.function)["return"]
        return None if returned is type(None) else returned

    @cached_property
    def spread(self) -> str | None:
        """The mapping argument whose entries the verb takes as keyword arguments of its own."""
        *_, last = inspect.signature(self.function).parameters.values()
        is_spread = last.kind is last.VAR_KEYWORD and last.name in self.arguments.model_fields
        return last.name if is_spread else None

    def bind(self, bound: BoundTally) -> Callable[..., Any]:
        """Return the verb on a bound tally."""
        face: Any = bound if self.face is None else self.face(bound)
        return cast(Callable[..., Any], reduce(getattr, self._path, face))

    def call(self, bound: BoundTally, arguments: Arguments | Mapping[str, Any], **own: Any) -> Any:
        """Call the verb, with what only a caller in this process can give it, such as `progress`.
        Raises InvalidInput for arguments that do not validate, and its errors.
        """
        valid = self.validate(arguments)
        values = {name: getattr(valid, name) for name in type(valid).model_fields}
        if self.spread is not None:
            changes = values.pop(self.spread)
            misplaced = sorted(set(changes) & set(values))
            if misplaced:
                raise InvalidInput(
                    f"{self.name}: {', '.join(misplaced)} is given beside `{self.spread}`, not in "
                    "it."
                )
            values |= changes
        return self.bind(bound)(**values, **own)

    def validate(self, arguments: Arguments | Mapping[str, Any]) -> Arguments:
        """Validate arguments and return them as their record. Raises InvalidInput, naming each
        field.
        """
        if isinstance(arguments, self.arguments):
            return arguments
        try:
            return self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise InvalidInput(f"{self.name}: {explain_validation(error)}.") from error

    def schema(self) -> JsonObject:
        """Return the JSON schema of the arguments."""
        return self.arguments.model_json_schema()

    def help(self, argument: str) -> str:
        """Return the description of one argument."""
        return self.arguments.model_fields[argument].description or ""
