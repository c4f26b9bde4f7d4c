"""Calls: a verb with its arguments as a request, and the answer as the verb's result or error."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ValidationError, create_model

from tallystick import errors
from tallystick.errors import ApprovalRequired, Denied, InvalidInput, TallystickError, Unreachable
from tallystick.errors.base import explain_validation
from tallystick.operations import OPERATIONS, Operation
from tallystick.records import AccessDecision, bind_arguments
from tallystick.tally.spellings import respell_remotely
from tallystick_server.endpoints import path_names
from tallystick_server.routes import OF_THE_URL, PREFIX, ROUTES, Route

_CODES: Mapping[str, type[TallystickError]] = {
    value.code: value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, TallystickError)
} | {"too_large": InvalidInput}


@dataclass(frozen=True)
class Call:
    """One request to the server."""

    method: str
    path: str
    """Behind the address of the server."""
    query: list[tuple[str, str]] = field(default_factory=list)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_repeatable: bool = False
    """True if it may be sent again: it reads, or has a key by which it is done once."""
    result: Any = None
    """The annotation of what it answers; None for bytes."""


@dataclass(frozen=True)
class WaitingApproval:
    """An approval that a call waits for, as the error of the server names it: the rest, which
    `remote.approval` returns, is left out.
    """

    id: str
    action: str
    subject: str
    rule_id: str
    state: str = "pending"
    reason: str = ""
    arguments: Any = None
    run_id: str | None = None
    step_id: str | None = None


@cache
def route_of(verb: str) -> tuple[Operation, Route]:
    """Return the operation and the route of a verb, such as `recall` or `spaces.get`."""
    for route in ROUTES:
        operation = OPERATIONS[route.operation]
        if operation.verb == verb:
            return operation, route
    raise AssertionError(f"{verb} has no route")


def call_of(
    verb: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    new_key: Callable[[], str],
) -> Call:
    """Return the request for a call of a verb with Python's arguments.

    A change gets a key of its own if the caller gives none, so that it may be sent again. Raises
    InvalidInput, UnknownArgument and TypeError, as the verb would.
    """
    operation, route = route_of(verb)
    name = verb.rpartition(".")[2]
    bound = bind_arguments(signature, name, (None, *args), kwargs, respell_remotely)
    arguments = dict(list(bound.arguments.items())[1:])  # without the instance
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            others = arguments.pop(parameter.name, {})
            if operation.spread is not None:
                arguments[operation.spread] = others
            elif others and "recipe" in operation.arguments.model_fields:
                arguments["recipe"] = others  # the fields of one, as the verb takes them too
            else:
                arguments |= others
    if unknown := sorted(set(arguments) - set(operation.arguments.model_fields)):
        raise InvalidInput(f"{verb} over HTTP takes no {', '.join(unknown)}.")
    values = _json_values(operation, {**arguments, **_plain_items(operation, arguments)})
    headers = {}
    fields = operation.arguments.model_fields
    if "idempotency_key" in fields:
        key = values.pop("idempotency_key", None)
        headers["Idempotency-Key"] = new_key() if key is None else key
    if values.get("if_version") is not None:
        headers["If-Match"] = f'"{values["if_version"]}"'
    values.pop("if_version", None)
    path = route.path
    for name in path_names(route.path):
        text = _in_path(name, str(values.pop(name)), is_whole=f"{{{name}}}" in route.path)
        path = path.replace(f"{{{name}:path}}", text).replace(f"{{{name}}}", text)
    for name, fixed in route.fixed.items():
        if values.get(name, fields[name].default) != fixed:
            why = route.absent.get(name, "the route has decided it")
            raise InvalidInput(f"{verb} over HTTP takes {name}={fixed!r} alone: {why}.")
    values = {name: value for name, value in values.items() if name not in route.fixed}
    in_url = route.method in OF_THE_URL
    return Call(
        method=route.method,
        path=f"{PREFIX}{path}",
        query=_query(operation, values) if in_url else [],
        body=None if in_url else json.dumps(values).encode(),
        headers=headers,
        is_repeatable=operation.effect == "read" or "idempotency_key" in fields,
        result=operation.result,
    )


def _plain_items(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that a verb takes in a short form as the operation takes them."""
    items = arguments.get("items")
    if operation.name == "remember_many" and isinstance(items, list | tuple):
        return {"items": [{"content": each} if isinstance(each, str) else each for each in items]}
    return {}


def _json_values(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    valid = operation.validate(arguments)
    values: dict[str, Any] = valid.model_dump(mode="json", exclude_unset=True)
    return values


def _query(operation: Operation, values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return arguments as they stand in a URL, where an empty one is None."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        default = operation.arguments.model_fields[name].default
        if value is None:
            if default is not None:
                pairs.append((name, ""))
            continue
        if value == [] and default != ():
            pairs.append((name, ""))
        for each in value if isinstance(value, list) else [value]:
            text = str(each).lower() if isinstance(each, bool) else str(each)
            if not text:
                raise InvalidInput(f"`{name}` over HTTP takes no empty text: leave it out.")
            pairs.append((name, _of_whole_characters(name, text)))
    return pairs


def _in_path(name: str, text: str, *, is_whole: bool) -> str:
    """Return an argument as it stands in a path, or with `is_whole` as one part of it. Raises
    InvalidInput for a text that would make the path of another resource.
    """
    if text in ("", ".", "..") or (is_whole and "/" in text):
        raise InvalidInput(f"`{name}` {text!r} cannot stand in the path of a URL.")
    return safe(_of_whole_characters(name, text))


def _of_whole_characters(name: str, text: str) -> str:
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidInput(f"`{name}` holds half a character, which no URL carries.")
    return text


def result_of(call: Call, content: bytes) -> Any:
    """Return the result in an answer, as the verb would return it. Raises Unreachable for what no
    server of ours answers.
    """
    if call.result is None:
        return None
    try:
        return _envelope(call.result).model_validate_json(content).result
    except ValidationError as error:
        if error.errors(include_input=False)[0]["type"] != "json_invalid":
            raise _no_server(explain_validation(error)) from error
    # The fast parser refuses halves of characters, which a text may have.
    try:
        return _envelope(call.result).model_validate(json.loads(content)).result
    except (ValueError, KeyError, TypeError) as error:
        problem = explain_validation(error) if isinstance(error, ValidationError) else "no answer"
        raise _no_server(problem) from error


def _no_server(problem: str) -> Unreachable:
    return Unreachable(f"What answered is no Tallystick server of this release: {problem}.")


@cache
def _envelope(annotation: Any) -> Any:
    """Return the model of an answer with a result of this kind."""
    return create_model("Answer", result=(annotation, ...))


def error_of(status: int, content: bytes) -> TallystickError:
    """Return the error in an answer: of the class that the verb would raise, with its facts."""
    try:
        problem = json.loads(content)
        code, message, facts = problem["code"], str(problem["detail"]), dict(problem["facts"])
    except (ValueError, KeyError, TypeError):
        return Unreachable(f"The server answered with status {status} and no reason of ours.")
    kind = _CODES.get(code)
    if kind is None:
        return Unreachable(f"The server answered {code}: {message}")
    # The constructors make messages of their own; this one is the server's.
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    vars(error)["message"] = message  # of which some make their text
    if issubclass(kind, Denied):
        error.decision = AccessDecision.load(  # type: ignore[attr-defined]
            {
                "allowed": False,
                **{name: facts.pop(name) for name in AccessDecision.model_fields if name in facts},
            }
        )
    for name, value in facts.items():
        if not isinstance(getattr(kind, name, None), property):
            setattr(error, name, _as_record(value))
    if isinstance(error, ApprovalRequired):
        error.approvals = tuple(WaitingApproval(**each) for each in facts.get("approvals", ()))
        error.new = frozenset(each.id for each in error.approvals)
    return error


def _as_record(value: Any) -> Any:
    """Return lists of a problem as tuples, as the errors have them."""
    return tuple(map(_as_record, value)) if isinstance(value, list) else value


def safe(part: str) -> str:
    """Return a text as one part of a path."""
    return quote(part, safe="")


def body_of(model: type[BaseModel], values: Mapping[str, Any]) -> bytes:
    """Return the body of a route of its own. Raises InvalidInput."""
    try:
        valid = model.model_validate(values)
    except ValidationError as error:
        raise InvalidInput(f"{explain_validation(error)}.") from error
    return json.dumps(valid.model_dump(mode="json", exclude_unset=True)).encode()
