"""Each surface offers the table of operations: its names, types, defaults and help."""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import typer
from llama_index.core.tools import FunctionTool
from pydantic_ai import RunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage
from tests.integrations.surface_offers import CLI

from tallystick.operations import MEMORY_TOOLS, OPERATIONS, MemoryTool
from tallystick.tally import Tally
from tallystick_cli.app import app

OpenTally = Callable[..., Tally]
COMMANDS = {
    command.name or (command.callback.__name__ if command.callback else ""): command
    for command in app.registered_commands
}


def plain(annotation: Any) -> str:
    """An annotation as what a person types, or a model gives, for it."""
    if get_origin(annotation) is Annotated:
        return plain(get_args(annotation)[0])
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        names = sorted({plain(argument) for argument in arguments} - {"NoneType"})
        return " | ".join(names)
    if origin in (list, tuple):
        return f"list[{plain(arguments[0])}]"
    if origin is Literal or annotation is Path:
        return "str"
    return str(getattr(annotation, "__name__", annotation))


def options_of(command: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(command.callback).parameters)


def test_each_operation_is_on_the_command_line_or_is_excluded_with_a_reason() -> None:
    offered = {name for offer in CLI.offers.values() for name in offer.operations}

    assert offered <= set(OPERATIONS)
    assert offered | set(CLI.excluded) == set(OPERATIONS)
    assert not offered & set(CLI.excluded)
    assert set(COMMANDS) == set(CLI.offers) | set(CLI.own)
    assert all([*CLI.excluded.values(), *CLI.own.values(), *CLI.common.values()])


@pytest.mark.parametrize("name", CLI.offers)
def test_a_command_takes_what_its_operations_take(name: str) -> None:
    offer, command = CLI.offers[name], COMMANDS[name]
    fields: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    for operation in offer.operations:
        fields |= OPERATIONS[operation].arguments.model_fields
        hints |= get_type_hints(OPERATIONS[operation].arguments, include_extras=True)
    annotations = get_type_hints(command.callback, include_extras=True)
    covered = set(offer.absent)
    for parameter in options_of(command).values():
        argument = offer.renamed.get(parameter.name, parameter.name)
        if argument in fields:
            covered.add(argument)
        if parameter.name in offer.own:
            assert offer.own[parameter.name]
            continue
        if parameter.name in CLI.common and argument not in fields:
            continue
        field = fields[argument]
        annotation = annotations[parameter.name]
        assert plain(annotation) == plain(hints[argument]), parameter.name
        if parameter.default is parameter.empty:
            assert field.is_required(), parameter.name
        else:
            assert not field.is_required(), parameter.name
            assert (parameter.default or None) == (field.default or None), parameter.name
        [info] = [
            extra
            for extra in get_args(annotation)[1:]
            if isinstance(extra, typer.models.ParameterInfo)
        ]
        assert info.help == field.description, parameter.name

    assert covered == set(fields)
    assert not set(offer.absent) - set(fields)
    assert set(offer.own) | set(offer.renamed) <= set(options_of(command))


@pytest.mark.parametrize("name", CLI.offers)
def test_a_command_of_one_operation_is_described_as_in_the_table(name: str) -> None:
    offer = CLI.offers[name]
    group: Any = typer.main.get_command(app)
    help_text = " ".join((group.commands[name].help or "").split())

    assert help_text
    if len(offer.operations) == 1 and not offer.is_part:
        description = OPERATIONS[offer.operations[0]].description
        assert help_text == f"{description} {offer.note}".strip()


def _langchain(tally: Tally) -> dict[str, dict[str, Any]]:
    from tallystick_langchain import memory_tools

    return {
        tool.name: {"description": tool.description, **_properties(tool.tool_call_schema)}
        for tool in memory_tools(tally)
    }


def _llama_index(tally: Tally) -> dict[str, dict[str, Any]]:
    from tallystick_llama_index import memory_tools

    tools: list[FunctionTool] = memory_tools(tally)
    return {
        str(tool.metadata.name): {
            "description": tool.metadata.description,
            **_properties(tool.metadata.fn_schema),
        }
        for tool in tools
    }


def _pydantic_ai(tally: Tally) -> dict[str, dict[str, Any]]:
    from tallystick_pydantic_ai import memory_toolset

    context = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage())
    tools = asyncio.run(memory_toolset(tally).get_tools(context))
    return {
        name: {
            "description": tool.tool_def.description,
            "schema": tool.tool_def.parameters_json_schema,
        }
        for name, tool in tools.items()
    }


def _properties(schema: Any) -> dict[str, Any]:
    return {"schema": schema if isinstance(schema, dict) else schema.model_json_schema()}


RUNTIMES = {"langchain": _langchain, "llama_index": _llama_index, "pydantic_ai": _pydantic_ai}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_runtime_offers_the_memory_tools_as_they_are_defined(
    runtime: str, open_sqlite: OpenTally
) -> None:
    with open_sqlite() as tally:
        offered = RUNTIMES[runtime](tally)

    assert list(offered) == list(MEMORY_TOOLS)
    for name, tool in MEMORY_TOOLS.items():
        schema = offered[name]["schema"]
        assert _of_a_model(offered[name]["description"]).endswith(_of_a_model(tool.description))
        assert _arguments(schema) == _expected(tool), name


def _of_a_model(text: str) -> str:
    return " ".join(text.split())


def _arguments(schema: Any) -> dict[str, tuple[str, Any]]:
    required = set(schema.get("required", ()))
    return {
        name: (_json_type(field), "required" if name in required else field.get("default"))
        for name, field in schema["properties"].items()
    }


def _expected(tool: MemoryTool) -> dict[str, tuple[str, Any]]:
    hints = get_type_hints(tool.function)
    names = {"str": "string", "int": "integer", "list[str]": "array"}
    return {
        parameter.name: (
            names[plain(hints[parameter.name])],
            "required" if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in list(inspect.signature(tool.function).parameters.values())[1:]
    }


def _json_type(field: Any) -> str:
    kinds = [kind.get("type") for kind in field.get("anyOf", [field])]
    [kind] = [kind for kind in kinds if kind != "null"]
    return str(kind)
