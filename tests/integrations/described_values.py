"""Values of a JSON schema, as a client that is generated from a description may send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Schema = Mapping[str, Any]
_DEEPEST = 5
_ANY = st.sampled_from([1, "x", True, [1], {"a": "b"}])
_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12)
_FORMATS: Mapping[str, st.SearchStrategy[str]] = {
    "date-time": st.just("2026-01-31T09:30:00+01:00"),
    "date": st.just("2026-01-31"),
    "duration": st.just("PT1H"),
}


def values_of(schema: Schema, schemas: Mapping[str, Schema], depth: int = 0) -> Any:
    """Return a strategy for the values of a schema; `schemas` are those that it may name."""

    def inner(part: Schema) -> Any:
        return st.deferred(lambda: values_of(part, schemas, depth + 1))

    if "$ref" in schema:
        return inner(schemas[str(schema["$ref"]).rpartition("/")[2]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices and "properties" in schema:
        whole = {name: each for name, each in schema.items() if name != "anyOf"}
        return st.one_of([inner(_merged(whole, each)) for each in choices])
    if choices:
        plain = [each for each in choices if each.get("type") not in (None, "object", "array")]
        return st.one_of([inner(each) for each in (depth > _DEEPEST and plain) or choices])
    match schema.get("type"):
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            least = int(schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1))
            return st.integers(least, int(schema.get("maximum", least + 100)))
        case "number":
            least = schema.get("minimum", 0)
            return st.floats(least, schema.get("maximum", least + 10))
        case "string":
            return _texts(schema)
        case "array":
            return _lists(schema, inner)
        case "object":
            return _objects(schema, inner, depth)
    return _ANY


def _merged(schema: Schema, more: Schema) -> Schema:
    """Return a schema with what another one adds to it."""
    both = {**schema, **more}
    for name in set(schema) & set(more):
        if isinstance(schema[name], dict) and name != "const":
            both[name] = _merged(schema[name], more[name])
        elif name == "required":
            both[name] = [*schema[name], *more[name]]
    return both


def _texts(schema: Schema) -> st.SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(
            schema["pattern"],
            fullmatch=False,
            alphabet=st.characters(codec="ascii", exclude_categories=["C"]),
        )
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    least = schema.get("minLength", 0)
    return _TEXT.filter(lambda text: len(text) >= least)


def _lists(schema: Schema, inner: Any) -> Any:
    if "prefixItems" in schema:
        return st.tuples(*map(inner, schema["prefixItems"])).map(list)
    least = schema.get("minItems", 0)
    most = min(schema.get("maxItems", least + 2), least + 2)
    return st.lists(inner(schema.get("items", {})), min_size=least, max_size=most)


def _objects(schema: Schema, inner: Any, depth: int) -> Any:
    required = schema.get("required", ())
    fields = {name: inner(each) for name, each in schema.get("properties", {}).items()}
    optional = {name: each for name, each in fields.items() if name not in required}
    known = st.fixed_dictionaries(
        {name: fields[name] for name in required},
        optional=optional if depth <= _DEEPEST else {},
    )
    more = schema.get("additionalProperties")
    if not isinstance(more, dict) or not more:
        return known
    return st.tuples(st.dictionaries(st.sampled_from("abc"), inner(more), max_size=2), known).map(
        lambda parts: {**parts[0], **parts[1]}
    )
