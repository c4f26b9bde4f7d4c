"""Memory, context and receipts for the agent runtime you already use.

from tallystick import Actor, Tally

with Tally.open(".tally") as tally:
    alice = tally.bind(Actor(user="alice"))
    alice.remember("We indent with tabs.", kind="preference")
    for hit in alice.recall("how do we indent?"):
        print(hit.memory.content, hit.reason)
"""

from typing import TYPE_CHECKING, Any

from tallystick.errors import TallystickError
from tallystick.records import (
    Actor,
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

if TYPE_CHECKING:
    from tallystick.tally import BoundTally, Tally

__all__ = [
    "Actor",
    "BoundTally",
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


def __getattr__(name: str) -> Any:
    # The store and its database library load when a tally is first named, so that importing records stays light.
    if name in {"BoundTally", "Tally"}:
        from tallystick import tally

        return getattr(tally, name)
    raise AttributeError(f"module 'tallystick' has no attribute {name!r}")
