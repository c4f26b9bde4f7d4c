"""Endpoints of operations: arguments from path, query, headers and body, the verb, the answer."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, get_args, get_origin

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, create_model, model_validator

from tallystick.aio import in_thread
from tallystick.errors import InvalidInput
from tallystick.operations import OPERATIONS, Arguments, Operation
from tallystick.tally import BoundTally, Tally
from tallystick_server.answers import Problem, answer
from tallystick_server.bodies import BODY
from tallystick_server.guard import CALLER, Caller
from tallystick_server.open_runs import RunHeader, StepHeader, within
from tallystick_server.routes import OF_THE_URL, ROUTES, Method, Route

CONDITIONS = ("Idempotency-Key", "If-Match")
"""Headers that make a change happen once, or at one version alone."""

RESULT = "result"
"""The type of the result in the description of a response, of which its model is made."""
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "model": Problem,
        "description": "An error, with its code.",
        "content": {"application/problem+json": {}},
    }
}


def _written(value: Any) -> Any:
    """Return a header as it was written, in UTF-8: it arrives as Latin-1."""
    try:
        return value.encode("latin-1").decode() if isinstance(value, str) else value
    except UnicodeError:
        return value


_Text = Annotated[str | None, BeforeValidator(_written)]
ScopeHeader = Annotated[
    _Text,
    Header(
        alias="Tallystick-Scope",
        description="The scope to work in, such as project:apollo; by default the private one.",
    ),
]
KeyHeader = Annotated[
    _Text,
    Header(
        alias="Idempotency-Key",
        description="Sent again with the same key, a request gets the first answer.",
    ),
]
_MatchHeader = Annotated[
    str | None,
    Header(alias="If-Match", description='Only if it is at this version, such as "3".'),
]
_IN_HEADERS: Mapping[str, tuple[str, Any]] = {
    "idempotency_key": ("key", KeyHeader),
    "if_version": ("match", _MatchHeader),
}
"""Arguments that come as headers: the name of the parameter, and what it is."""
_VERSIONED = ("get", "modify", "space", "create_space", "update_space", "recover")


class RequestBody(Arguments):
    """The body of a request, built with its route: FastAPI takes no models that wait."""

    model_config = ConfigDict(defer_build=False)


class _OfTheUrl(RequestBody):
    """Arguments in a URL, where an empty one is None: `?state=` lists approvals in any state. Of a
    list that is never None it is an empty list.
    """

    @model_validator(mode="before")
    @classmethod
    def _empty_is_none(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {
            name: cls._empty(name) if value in ("", [""]) else value
            for name, value in values.items()
        }

    @classmethod
    def _empty(cls, name: str) -> tuple[()] | None:
        field = cls.model_fields.get(name)
        return () if field is not None and get_origin(field.annotation) is tuple else None


def add_operations(router: APIRouter) -> None:
    """Add every operation that has a route."""
    for route in ROUTES:
        operation = OPERATIONS[route.operation]
        places: list[tuple[Method, str]] = [(route.method, route.path), *route.also]
        for number, (method, path) in enumerate(places):
            router.add_api_route(
                path,
                _endpoint(route, operation, method, path),
                methods=[method],
                name=route.operation,
                operation_id=route.operation,
                include_in_schema=number == 0,
                summary=operation.title,
                description=_describe_operation(route, operation),
                tags=[route.group],
                status_code=route.status,
                responses={
                    route.status: {RESULT: operation.result, "description": "The result."},
                    **PROBLEMS,
                },
                response_class=Response,
            )


def add_endpoint(
    router: APIRouter,
    path: str,
    endpoint: Callable[..., Awaitable[Response]],
    result: Any,
    group: str,
    *,
    method: Method = "POST",
    deaf: Sequence[str] = CONDITIONS,
    in_reference: bool = True,
) -> None:
    """Add a route that is no operation, under the name of its function; `deaf` are the headers that
    it refuses.
    """
    router.add_api_route(
        path,
        endpoint,
        methods=[method],
        tags=[group],
        operation_id=endpoint.__name__,
        include_in_schema=in_reference,
        responses={200: {RESULT: result, "description": "The result."}, **PROBLEMS},
        response_class=Response,
        dependencies=[deaf_to(*deaf)],
    )


def bound_for(request: Request, scope: str | None) -> BoundTally:
    """Return the tally as the caller of a request sees it, in the scope that it names."""
    caller: Caller = request.scope[CALLER]
    tally: Tally = request.app.state.tally
    session = None if caller.token is None else caller.token.id
    return tally.bind(caller.actor, scope or caller.home, session_id=session)


def path_names(path: str) -> list[str]:
    """Return the arguments that stand in a path."""
    return [part.strip("{}").removesuffix(":path") for part in path.split("/") if "{" in part]


def _describe_operation(route: Route, operation: Operation) -> str:
    errors = ", ".join(f"`{code}`" for code in operation.errors)
    absent = "".join(f" Without `{name}`: {why}." for name, why in route.absent.items())
    also = ", ".join(f"`{method} {path}`" for method, path in route.also)
    return (
        f"{operation.description}{absent}"
        + (f" Also as {also}." if also else "")
        + (f" Errors: {errors}." if errors else "")
    )


def _endpoint(
    route: Route, operation: Operation, method: Method, path: str
) -> Callable[..., Awaitable[Response]]:
    """Return the function that FastAPI calls, with the signature that its reference shows."""
    in_path = [name for name in path_names(path) if name in operation.arguments.model_fields]
    fixed = route.fixed_at(path) if "mode" in operation.arguments.model_fields else route.fixed
    model = _arguments_model(route, operation, method, in_path, path, fixed)
    placed = () if model is None else tuple(model.model_fields)

    async def endpoint(request: Request, **values: Any) -> Response:
        arguments: dict[str, Any] = dict(fixed)
        arguments |= {name: values[name] for name in in_path}
        body = values.get(BODY, values.get("arguments"))
        if isinstance(body, BaseModel):
            arguments |= {name: getattr(body, name) for name in body.model_fields_set}
        if values.get("key") is not None:
            arguments["idempotency_key"] = values["key"]
        if values.get("match") is not None:
            arguments["if_version"] = _version(values["match"])
        _refuse_unheard(request, operation, () if method not in OF_THE_URL else placed)
        return await in_thread(partial(_call, request, values, route, operation, arguments))

    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        _parameters(operation, method, in_path, model)
    )
    endpoint.__doc__ = None
    return endpoint


def _parameters(
    operation: Operation, method: Method, in_path: list[str], model: type[BaseModel] | None
) -> list[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("request", keyword, annotation=Request)]
    for name in in_path:
        choice = operation.arguments.model_fields[name].annotation
        # An operation refuses another value in its own words.
        is_choice = get_origin(choice) is Literal
        extra: Any = {"enum": list(get_args(choice))} if is_choice else None
        place = Path(description=operation.help(name), json_schema_extra=extra)
        parameters.append(inspect.Parameter(name, keyword, annotation=Annotated[str, place]))
    if model is not None:
        name, hint = (
            ("arguments", Annotated[model, Query()]) if method in OF_THE_URL else (BODY, model)
        )
        parameters.append(inspect.Parameter(name, keyword, annotation=hint))
    headers: list[tuple[str, Any]] = [
        ("scope_header", ScopeHeader),
        ("run_header", RunHeader),
        ("step_header", StepHeader),
    ]
    for name, annotation in headers:
        parameters.append(inspect.Parameter(name, keyword, default=None, annotation=annotation))
    for argument, (name, annotation) in _IN_HEADERS.items():
        if argument in operation.arguments.model_fields:
            parameters.append(inspect.Parameter(name, keyword, default=None, annotation=annotation))
    return parameters


def _arguments_model(
    route: Route,
    operation: Operation,
    method: Method,
    in_path: list[str],
    path: str,
    fixed: Mapping[str, Any],
) -> type[BaseModel] | None:
    """Return the arguments that neither path nor headers nor the route itself give."""
    placed = {*in_path, *_IN_HEADERS, *fixed}
    # A list stops at its first wrong item: a long one of them would be explained for minutes.
    fields: dict[str, Any] = {
        name: (
            Annotated[field.annotation, FailFast()]
            if get_origin(field.annotation) is tuple
            else field.annotation,
            field,
        )
        for name, field in operation.arguments.model_fields.items()
        if name not in placed
    }
    if not fields:
        return None
    suffix = "Query" if method in OF_THE_URL else "Body"
    words = "".join(word.title() for word in operation.name.split("_"))
    number = "" if path == route.path else str([each[1] for each in route.also].index(path) + 2)
    base = _OfTheUrl if method in OF_THE_URL else RequestBody
    model: type[BaseModel] = create_model(f"{words}{suffix}{number}", __base__=base, **fields)
    return model


def _call(
    request: Request,
    values: Mapping[str, Any],
    route: Route,
    operation: Operation,
    arguments: Mapping[str, Any],
) -> Response:
    """Call the verb, in a worker thread."""
    bound = bound_for(request, values["scope_header"])
    valid = operation.validate(arguments)
    with within(request, bound, values["run_header"], values["step_header"]):
        result = operation.call(bound, valid)
    headers = {}
    if operation.name in _VERSIONED:
        headers["etag"] = f'"{result.version}"'
    return answer(
        bound,
        result,
        status=route.status,
        next_page=_next(route, valid, result),
        headers=headers,
    )


def _next(route: Route, arguments: Arguments, result: Any) -> str | None:
    """Return the cursor of the next page, where this one is full."""
    if route.cursor is None or not result or len(result) < getattr(arguments, "limit", 0):
        return None
    return str(getattr(result[-1], route.cursor[1]))


def deaf_to(*headers: str) -> Any:
    """Return what a route depends on to refuse headers that would change nothing there."""

    def refuse(request: Request) -> None:
        for header in headers:
            if header in request.headers:
                raise InvalidInput(f"This route takes no {header}. Leave the header out.")

    return Depends(refuse)


def _refuse_unheard(request: Request, operation: Operation, in_url: Sequence[str]) -> None:
    """Raise InvalidInput for a header or a part of the URL that would change nothing here."""
    fields = operation.arguments.model_fields
    for argument, header in (("idempotency_key", "Idempotency-Key"), ("if_version", "If-Match")):
        if header in request.headers and argument not in fields:
            raise InvalidInput(f"{operation.name} takes no {header}. Leave the header out.")
    for name in request.query_params:
        if name not in in_url:
            raise InvalidInput(f"{operation.name} takes no {name!r} in the URL.")
        if not _takes_list(fields[name].annotation) and len(request.query_params.getlist(name)) > 1:
            raise InvalidInput(f"{name!r} stands twice in the URL, and takes one value.")


def _takes_list(annotation: Any) -> bool:
    """Return True for the annotation of a list, or of one that may be None."""
    return get_origin(annotation) is tuple or any(map(_takes_list, get_args(annotation)))


def _version(match: str) -> int:
    """Return the version that If-Match names. Raises InvalidInput."""
    text = match.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidInput('If-Match takes one version, such as "3", as ETag gives it.')
    return int(text)
