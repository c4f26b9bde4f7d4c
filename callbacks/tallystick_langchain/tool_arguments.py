"""The arguments of a tool call as the tool gets them: read once by its schema, and handed to it.

Must hold: the schema reads what the model wrote once. A second reading may make another value of
it (a validator that counts, a default that is made anew), which no rule has seen. So the tool that
runs is a copy whose own reading is replaced by the values that were checked. A tool whose class
reads in a way of its own is handed the values in place of what the model wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, Tool
from pydantic import BaseModel

from tallystick.errors import InvalidInput
from tallystick.kit import SchemaReader, with_optional
from tallystick.tally import AllowedToolCall

_READ = "_parse_input"
"""The method by which a tool of LangChain reads its arguments."""
_STEPS = ("invoke", "ainvoke", "run", "arun", "_to_args_and_kwargs")
"""The methods that lead to the reading."""


def _reads_by_schema(tool: BaseTool) -> bool:
    """Return True for a tool whose arguments LangChain reads."""
    return all(
        getattr(type(tool), step)
        in [getattr(each, step) for each in (BaseTool, StructuredTool, Tool)]
        for step in _STEPS
    )


class ReadArguments:
    """What a model wrote for a tool, and what the schema of the tool makes of it."""

    def __init__(self, tool: BaseTool, written: Mapping[str, Any], call_id: Any) -> None:
        self._tool = tool
        self._hidden = _hidden_names(tool)
        own = {name: value for name, value in written.items() if name not in self._hidden}
        self.injected = {name: written[name] for name in written if name in self._hidden}
        """Values of arguments that no model writes, where somebody has put them in already."""
        self.values: Any = own
        """The arguments in the types of the tool, by the names of its parameters."""
        self.refusal: Exception | None = None
        """The error of the schema, where it refuses what the model wrote."""
        self.is_replaced = _reads_by_schema(tool)
        """True if a copy of the tool has its reading replaced; else it is handed the values."""
        try:
            self.values = _read(tool, deepcopy(own), call_id, self._hidden)
        except Exception as error:  # noqa: BLE001 - the tool gives its own error in its own place
            self.refusal = error

    def running_with(self, check: AllowedToolCall, written: Mapping[str, Any]) -> BaseTool:
        """Return the tool as one that runs with the arguments of a check, whenever it is called
        with what was `written`, and refuses any other call.
        """
        tool = self._tool

        def read(given: Any, call_id: str | None) -> Any:
            own = given if isinstance(given, Mapping) else {"": given}
            if {name: own[name] for name in own if name not in self._hidden} != {
                name: written[name] for name in written if name not in self._hidden
            }:
                raise InvalidInput(
                    f"{tool.name}: the arguments were changed after the rules had seen them. Put "
                    "the piece that enforces the rules last in `middleware`."
                )
            injected = getattr(tool, _READ)(given, call_id) if self._hidden else {}
            return {
                **{name: injected[name] for name in self._hidden if name in injected},
                **check.arguments,
            }

        return _reading(tool, read)

    def never_running(self) -> BaseTool:
        """Return the tool as one that gives its own error for what its schema refuses."""
        tool = self._tool

        def read(given: Any, call_id: str | None) -> Any:
            if isinstance(tool.args_schema, dict):
                _read(tool, self.values, call_id, self._hidden)
            getattr(tool, _READ)(given, call_id)
            raise InvalidInput(
                f"{tool.name}: rules cannot see the arguments, which its schema takes only "
                "together with what the graph injects. Do not validate the one by the other."
            )

        return _reading(tool, read)


def _read(tool: BaseTool, written: dict[str, Any], call_id: Any, hidden: frozenset[str]) -> Any:
    schema = tool.args_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel) and not schema.model_fields:
        # LangChain calls such a tool without arguments, whatever the model wrote.
        return {}
    if isinstance(schema, dict):
        return SchemaReader(schema).validate_python(written)
    if hidden and isinstance(schema, type) and issubclass(schema, BaseModel):
        tool = tool.model_copy(update={"args_schema": with_optional(schema, hidden)})
    values = getattr(tool, _READ)(written, call_id)
    return {name: value for name, value in values.items() if name not in hidden}


def _reading(tool: BaseTool, read: Any) -> BaseTool:
    clone = tool.model_copy()
    # An attribute of the copy alone, which comes before the method of its class.
    object.__setattr__(clone, _READ, read)
    return clone


def _hidden_names(tool: BaseTool) -> frozenset[str]:
    """Return the names of the arguments that the graph injects, and no model writes."""
    names = frozenset[str](getattr(tool, "_injected_args_keys", ()))
    schema = tool.args_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        shown: Any = tool.tool_call_schema
        names |= frozenset(schema.model_fields) - frozenset(shown.model_fields)
    return names
