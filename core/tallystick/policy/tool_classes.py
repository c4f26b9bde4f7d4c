"""Tool classes: what a call of a tool may do, declared by the developer for each tool.

A class may be a function of the arguments: a tool that runs SQL reads or destroys. Whatever is not
declared, and whatever a function cannot tell, counts as destructive. A class that comes with a call
or a schema is a claim, by which rules may only restrict more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast, get_args

from tallystick.errors import SettingsError
from tallystick.records import ToolClass

ToolClassSource = ToolClass | Callable[[Any], ToolClass]
"""A class, or a function from the arguments of a call to its class."""

TOOL_CLASSES: tuple[ToolClass, ...] = get_args(ToolClass)

_UNKNOWN: ToolClass = "destructive"


class ToolClasses:
    """The declared classes of tools, by name."""

    def __init__(self, declared: Mapping[str, ToolClassSource] = MappingProxyType({})) -> None:
        """Raises SettingsError for a class that does not exist."""
        for name, source in declared.items():
            if not callable(source) and source not in TOOL_CLASSES:
                raise SettingsError(
                    f"tool_classes: {name!r} has the unknown class {source!r}. Use one of "
                    f"{', '.join(TOOL_CLASSES)}, or a function of the arguments."
                )
        self._declared = dict(declared)

    def class_of(self, name: str, arguments: Any) -> ToolClass:
        """Return the class of a call.

        A function that fails or answers with something else counts as destructive. It gets the
        arguments as JSON values.
        """
        source: Any = self._declared.get(name)
        if callable(source):
            try:
                source = source(arguments)
            except Exception:  # noqa: BLE001 - a class that cannot be told is the worst one
                return _UNKNOWN
        return cast(ToolClass, source) if source in TOOL_CLASSES else _UNKNOWN

    def class_of_schema(self, name: str) -> ToolClass:
        """Return the class of a tool that is only offered: where it depends on the arguments,
        the worst one.
        """
        source: Any = self._declared.get(name)
        return _UNKNOWN if source is None or callable(source) else source
