"""The fakes that Tallystick is tested with, and contract suites for what has several
implementations.

Fakes stand in for the model, the clock and the ids only; everything else is real. The suites in
`tally_contract`, `adapter_contract`, `capture`, `request_contract` and `source_contract` need
pytest and are imported from there; the fixture `tape` comes with the plugin that pytest finds by
itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystick.testing.fakes import (
        CountingIds,
        HashEmbedder,
        ScriptedCall,
        ScriptedLearner,
        StepClock,
        WordCounter,
    )
    from tallystick.testing.tally_contract import effects

__all__ = [
    "CountingIds",
    "HashEmbedder",
    "ScriptedCall",
    "ScriptedLearner",
    "StepClock",
    "WordCounter",
    "effects",
]


def __getattr__(name: str) -> Any:
    """Fakes load when they are named: pytest imports this package for its plugin in every project
    that has it.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "tally_contract" if name == "effects" else "fakes"
    return getattr(import_module(f"tallystick.testing.{module}"), name)
