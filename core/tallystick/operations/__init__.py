"""The table of operations: one definition for the command line, tools, servers and clients."""

from tallystick.operations.error_status import STATUS, WireStatus, error_json, wire_status
from tallystick.operations.operation import Arguments, Effect, Operation, arguments_of
from tallystick.operations.table import OPERATIONS
from tallystick.operations.tools import (
    MEMORY_INSTRUCTIONS,
    MEMORY_TOOLS,
    MODEL_TOOLS,
    WORKING_TOOL,
    MemoryTool,
    found_fields,
    framed_answer,
    memory_fields,
    not_approved,
    offered_tools,
    require_kind_of_models,
    warning_fields,
)
from tallystick.records.framing import NOTICE

__all__ = [
    "MEMORY_INSTRUCTIONS",
    "MEMORY_TOOLS",
    "MODEL_TOOLS",
    "NOTICE",
    "OPERATIONS",
    "Arguments",
    "Effect",
    "MemoryTool",
    "Operation",
    "STATUS",
    "WORKING_TOOL",
    "WireStatus",
    "arguments_of",
    "error_json",
    "found_fields",
    "framed_answer",
    "memory_fields",
    "not_approved",
    "offered_tools",
    "require_kind_of_models",
    "warning_fields",
    "wire_status",
]
