"""The arguments of operations and tools, derived from the functions that take them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from tallystick.records._base import BUILDS_LATER
from tallystick.records.wire import wire_type


class Arguments(BaseModel):
    """The arguments of an operation: frozen, with a JSON schema, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=BUILDS_LATER)


def arguments_of(function: Callable[..., Any], name: str) -> type[Arguments]:
    """Return the arguments of a function as a model, without its first: names, defaults and
    descriptions are those of the signature, the types those of JSON.

    Keyword arguments of any name are one argument, a mapping.
    """
    hints = get_type_hints(inspect.unwrap(function), include_extras=True)
    fields: dict[str, Any] = {}
    _, *parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        annotation = wire_type(hints[parameter.name])
        if annotation is not None:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (annotation, default)
    title = "".join(word.title() for word in name.split("_"))
    return create_model(title, __base__=Arguments, **fields)
