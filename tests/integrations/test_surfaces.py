"""Each surface offers the table of operations: its names, types, defaults and help."""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from llama_index.core.tools import FunctionTool
from pydantic_ai import RunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage
from tests.integrations.surface_offers import CLI_ABSENT, CLI_EXCLUDED, CLI_OWN

from tallystick.operations import MEMORY_TOOLS, OPERATIONS, MemoryTool
from tallystick.tally import Tally
from tallystick_cli.app import build_command

OpenTally = Callable[..., Tally]
COMMANDS: dict[str, Any] = dict(build_command().commands)


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


def operations_of(name: str) -> tuple[str, ...]:
    return getattr(_function(name), "operations", ())


def _function(name: str) -> Any:
    """The function of a command, behind what typer puts around it."""
    return inspect.unwrap(COMMANDS[name].callback)


def test_each_operation_is_on_the_command_line_or_is_excluded_with_a_reason() -> None:
    offered = {operation for name in COMMANDS for operation in operations_of(name)}

    assert offered | set(CLI_EXCLUDED) == set(OPERATIONS)
    assert not offered & set(CLI_EXCLUDED)
    assert {name for name in COMMANDS if not operations_of(name)} == set(CLI_OWN)
    assert all([*CLI_EXCLUDED.values(), *CLI_OWN.values()])


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - set(CLI_OWN)))
def test_a_command_takes_what_its_operations_take(name: str) -> None:
    options = {parameter.name for parameter in COMMANDS[name].params}
    arguments = {
        argument
        for operation in operations_of(name)
        for argument in OPERATIONS[operation].arguments.model_fields
    }

    assert arguments - options == set(CLI_ABSENT.get(name, ()))
    assert all(CLI_ABSENT.get(name, {}).values())


def test_an_argument_is_typed_by_its_name() -> None:
    """By its place, or as an option: a flag for a mode, one each time for several."""
    spelled = {
        name: {parameter.name: parameter for parameter in command.params}
        for name, command in COMMANDS.items()
    }
    fields = OPERATIONS["correct"].arguments.model_fields

    correct = spelled["correct"]
    assert (correct["memory_id"].metavar, correct["correction"].metavar) == ("MEMORY", "CORRECTION")
    assert correct["mode"].opts == ["--apply"]
    assert correct["idempotency_key"].opts == ["--key"]
    assert correct["field"].help == fields["field"].description
    assert correct["field"].default == fields["field"].default
    assert spelled["remember"]["entities"].opts == ["--entity"]
    assert spelled["export"]["mode"].opts == ["--preview"]
    assert "`all` for every one" in spelled["approvals"]["state"].help


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - set(CLI_OWN)))
def test_a_command_of_one_operation_is_described_as_in_the_table(name: str) -> None:
    help_text = " ".join((COMMANDS[name].help or "").split())

    assert help_text
    if len(operations_of(name)) == 1 and name not in ("init", "recompile"):
        assert help_text.startswith(OPERATIONS[operations_of(name)[0]].description)


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
    names = {"str": "string", "int": "integer", "bool": "boolean"}
    names |= {"list[str]": "array", "dict": "object"}
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
