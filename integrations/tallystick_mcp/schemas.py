"""Schemas of tools with nothing in them that a model does not need: they are in every prompt."""

from __future__ import annotations

from typing import Any

from tallystick.operations import Arguments

_LEFT_OUT = ("title", "additionalProperties", "default", "minimum", "maximum", "maxLength")
"""Defaults and bounds too: an error says what is out of bounds, to the one model that needs it."""


def slim_schema(arguments: type[Arguments]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, without what is the same for all of
    them: titles, and the null of an argument that may be left out.
    """
    schema = arguments.model_json_schema()
    fields = {name: _slim(field) for name, field in schema["properties"].items()}
    slim: dict[str, Any] = {"type": "object", "properties": fields}
    if schema.get("required"):
        slim["required"] = schema["required"]
    return slim


def _slim(field: dict[str, Any]) -> dict[str, Any]:
    choices = [choice for choice in field.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        field = {**field, **choices[0]}
        del field["anyOf"]
    slim = {name: value for name, value in field.items() if name not in _LEFT_OUT}
    if isinstance(slim.get("items"), dict):
        slim["items"] = _slim(slim["items"])
    if slim.get("enum"):
        slim.pop("type", None)
    return slim
