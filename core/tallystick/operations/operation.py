"""Operation: a verb that a surface may offer, defined once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tallystick.errors import InvalidInput
from tallystick.explanations import explain_validation
from tallystick.records import JsonObject
from tallystick.records._base import BUILDS_LATER
from tallystick.tally import BoundTally

Effect = Literal["read", "change", "operate"]
"""The effect of an operation: to read, to change memory, or to operate the tally."""

MemoryId = Annotated[str, Field(description="Id of a memory.")]
RunId = Annotated[str, Field(description="Id of a run.")]
StepId = Annotated[str, Field(description="Id of a step.")]
Scopes = Annotated[
    tuple[str, ...] | None,
    Field(description="Scopes such as project:apollo; by default the bound one."),
]
Before = Annotated[str | None, Field(description="The last id of the page before.")]
Reason = Annotated[str, Field(description="Why; it is kept in the history.")]
IfVersion = Annotated[int | None, Field(description="Only if the memory is at this version.")]
IdempotencyKey = Annotated[
    str | None, Field(description="Key of this request: sent again, it gets the first answer.")
]


class Arguments(BaseModel):
    """The arguments of an operation: frozen, with a JSON schema, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=BUILDS_LATER)


class NoArguments(Arguments):
    """No arguments."""


class OfMemory(Arguments):
    """Arguments of a question about a memory."""

    memory_id: MemoryId


class Confirmed(Arguments):
    """Arguments of what is previewed first, and applied with the token of the preview."""

    mode: Annotated[
        Literal["preview", "apply"],
        Field(description="Preview what would be done, or apply it with the preview's token."),
    ] = "preview"
    confirm_token: Annotated[str | None, Field(description="The token of the preview.")] = None
    idempotency_key: IdempotencyKey = None


@dataclass(frozen=True)
class Operation:
    """One verb of a bound tally: its name, arguments, result and errors."""

    name: str
    """The stable name, in snake case."""
    title: str
    """A few words, for a menu."""
    description: str
    """One or two sentences for people."""
    effect: Effect
    arguments: type[Arguments]
    result: Any
    """The annotation of what the verb returns: a record, a list of records or None."""
    errors: tuple[str, ...]
    """Codes of the errors that it may raise, beside those that any call may raise."""
    verb: str
    """The path of the verb from a BoundTally, such as `recall` or `operator.erase`."""
    needs_preview: bool = False
    """True if it is previewed itself, and applied only with the token of its preview."""
    spread: str | None = None
    """The mapping argument whose entries the verb takes as keyword arguments of its own."""

    def bind(self, bound: BoundTally) -> Callable[..., Any]:
        """Return the verb on a bound tally."""
        parts: Any = reduce(getattr, self.verb.split("."), cast(Any, bound))
        return cast(Callable[..., Any], parts)

    def call(self, bound: BoundTally, arguments: Arguments | Mapping[str, Any]) -> Any:
        """Call the verb. Raises InvalidInput for arguments that do not validate, and its errors."""
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
        return self.bind(bound)(**values)

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
