"""Memory, context and receipts for the agent runtime you already use.

from tallystick import Actor, Tally

with Tally.open(".tally") as tally:
    alice = tally.bind(Actor(user="alice"))
    alice.remember("We indent with tabs.", kind="preference")
    for hit in alice.recall("how do we indent?"):
        print(hit.memory.content, hit.reason)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystick.errors import TallystickError
    from tallystick.records import (
        Actor,
        CallContext,
        CompileConfig,
        ContextItem,
        Hit,
        Memory,
        NewMemory,
        PolicyRule,
        Receipt,
        Scope,
        SourceRef,
        ToolSpec,
    )
    from tallystick.tally import BoundTally, Tally

__all__ = [
    "Actor",
    "BoundTally",
    "CallContext",
    "CompileConfig",
    "ContextItem",
    "Hit",
    "Memory",
    "NewMemory",
    "PolicyRule",
    "Receipt",
    "Scope",
    "SourceRef",
    "Tally",
    "TallystickError",
    "ToolSpec",
]

__version__ = "0.1.0"


_ROOMS = {"BoundTally": "tally", "Tally": "tally", "TallystickError": "errors"}
"""The module of each public name that is not among the records."""


def __getattr__(name: str) -> Any:
    # Each room loads when a name of it is first used: pytest imports this package, for the plugin,
    # in every project that has it, and who imports records needs no database library.
    if name not in __all__:
        raise AttributeError(f"module 'tallystick' has no attribute {name!r}")
    return getattr(import_module(f"tallystick.{_ROOMS.get(name, 'records')}"), name)
