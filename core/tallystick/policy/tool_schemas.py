"""Arguments of a tool read by its JSON Schema: validated strictly, and completed by its defaults.

Must hold: what is returned is what rules judge and what is sent, so that a tool whose own reading
is lax (`"true"` for `true`, a default for a missing key) finds nothing left to convert. A schema is
a stranger's: nothing is fetched for it, and its patterns are its own to test.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from importlib import import_module
from itertools import islice
from typing import Any, NamedTuple

from pydantic_core import PydanticCustomError, ValidationError

from tallystick.errors import InvalidInput
from tallystick.policy.arguments import UNREADABLE, json_arguments
from tallystick.records import Json, json_bytes

_MOST_PROBLEMS, _LONGEST_PROBLEM = 5, 200
_TRIED = ("not", "if", "contains", "unevaluatedItems", "unevaluatedProperties")
"""Keywords that only test a value, and complete none."""


class _Problem(NamedTuple):
    """A part of arguments that a schema refuses."""

    path: tuple[str | int, ...]
    text: str


def read_by_schema(schema: Mapping[str, Any], arguments: Any) -> Json:
    """Return arguments as JSON values of the types that a schema states, with its defaults.

    Nothing is converted; a default that the schema itself refuses is left out. Raises InvalidInput.
    """
    value, problems = _read(schema, arguments)
    if problems:
        raise InvalidInput("; ".join(problem.text for problem in problems))
    return value


class SchemaReader:
    """Reads as `read_by_schema` does, as a validator of pydantic: a ValidationError is to every
    runtime the mistake of its model.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    def validate_python(self, input: Any, **_: Any) -> Any:
        """Return arguments as the schema reads them. Raises ValidationError."""
        value, problems = _read(self._schema, input)
        if problems:
            raise ValidationError.from_exception_data(
                "arguments",
                [
                    {
                        "type": PydanticCustomError("json_schema", "{text}", {"text": each.text}),
                        # LangGraph shows the model what has a place.
                        "loc": each.path or ("arguments",),
                        "input": input,
                    }
                    for each in problems
                ],
            )
        return value

    def validate_json(self, input: str | bytes | bytearray, **_: Any) -> Any:
        """Same as `validate_python`, of a text; a key that comes twice is refused."""
        return self.validate_python(input if isinstance(input, str) else bytes(input).decode())


def _read(schema: Mapping[str, Any], arguments: Any) -> tuple[Json, list[_Problem]]:
    value = json_arguments({} if arguments is None else arguments)
    if value is UNREADABLE:
        return None, [_Problem((), "the arguments are no JSON, or a key comes twice")]
    referencing = import_module("referencing.exceptions")
    jsonschema = import_module("jsonschema.exceptions")
    try:
        errors = _validator(json_bytes(dict(schema))).iter_errors(value)
        problems = [
            _Problem(
                tuple(error.absolute_path),
                f"{error.json_path} is not valid by the schema of the tool: {error.validator} "
                f"{json_bytes(error.validator_value).decode()[:_LONGEST_PROBLEM]}",
            )
            for error in islice(errors, _MOST_PROBLEMS)
        ]
    except (RecursionError, jsonschema.SchemaError, referencing.Unresolvable) as error:
        text = f"the arguments cannot be checked by the schema of the tool ({type(error).__name__})"
        return None, [_Problem((), text)]
    return value, problems


@lru_cache(maxsize=256)
def _validator(schema_bytes: bytes) -> Any:
    """Return the validator of a schema, which completes the value that it reads.

    Raises SchemaError of jsonschema.
    """
    validators = import_module("jsonschema.validators")
    schema = json.loads(schema_bytes)
    base = validators.validator_for(schema, default=validators.Draft202012Validator)
    base.check_schema(schema)
    schema.pop("$schema", None)  # by which the parts would be read by `base`
    keywords = base.VALIDATORS
    completing = validators.extend(
        base,
        {
            **{word: _on_a_copy(keywords[word]) for word in _TRIED if word in keywords},
            "properties": _completing(keywords["properties"]),
            "anyOf": _first_fitting,
            "oneOf": _first_fitting,
            "pattern": lambda *_: (),
        },
        type_checker=base.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int),
    )
    return completing(schema, registry=import_module("referencing").Registry())


def _completing(check: Any) -> Any:
    def complete(validator: Any, properties: Any, value: Any, schema: Any) -> Iterable[Any]:
        if isinstance(value, dict):
            for name, inner in properties.items():
                if name not in value and isinstance(inner, dict) and "default" in inner:
                    default = deepcopy(inner["default"])
                    if validator.evolve(schema=inner).is_valid(default):
                        value[name] = default
        return check(validator, properties, value, schema) or ()

    return complete


def _first_fitting(validator: Any, parts: Any, value: Any, _: Any) -> Iterator[Any]:
    """Complete a value by the first of alternatives that it fits."""
    for part in parts:
        trial = deepcopy(value)
        if next(iter(validator.descend(trial, part)), None) is None:
            if isinstance(value, dict):
                value.update(trial)
            elif isinstance(value, list):
                value[:] = trial
            return
    yield import_module("jsonschema.exceptions").ValidationError("fits none of the alternatives")


def _on_a_copy(check: Any) -> Any:
    return lambda validator, word, value, schema: check(validator, word, deepcopy(value), schema)
