"""Extension: the seam for what is built on the core, in packages beside it.

An extension is a constant that lists what it adds, each a function of what an opened tally has. The
tally loads the constant of each package of `EXTENSIONS`, and none of them is known here otherwise:
there is no discovery, and no code of third parties. Settings, records and tables of an extension
are declared with those of the core, whether it is on or off, so that an erasure reaches all text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tallystick.memory.context import MemoryContext, MemoryExtension

if TYPE_CHECKING:
    from tallystick.jobs import Background, Chore, Handler
    from tallystick.jobs.derived import Derived
    from tallystick.ports import Models
    from tallystick.recorder.outbound import Outbound
    from tallystick.records import Remembered
    from tallystick.settings import Settings

EXTENSIONS = (
    "tallystick_learning",
    "tallystick_graph",
    "tallystick_ingest",
    "tallystick_work",
    "tallystick_steward",
    "tallystick_comparing",
    "tallystick_synthesis",
)
"""The packages, each of which has a constant `EXTENSION`."""

OperationT = TypeVar("OperationT")


@dataclass(frozen=True, kw_only=True)
class Extension(MemoryExtension, Generic[OperationT]):
    """What an extension adds to a tally; by default nothing. Off or on, it is loaded: its functions
    read the settings. Most processes call few of them: `Late` has the rest wait in their files.
    """

    operations: tuple[OperationT, ...] = ()
    """Lines of the table of operations, `tallystick.operations.Operation`: surfaces offer them as
    those of the core.
    """
    require_use: Callable[[Settings, Models], None] = lambda settings, models: None
    """Raises SettingsError for a model that it would never call, and where it lacks one."""
    handlers: Callable[[MemoryContext, Outbound], Sequence[Handler]] = lambda context, outbound: ()
    """Who carries out its jobs."""
    derived: Callable[[MemoryContext], Sequence[Derived]] = lambda context: ()
    """The kinds of state that it derives: brought up to date, checked by the doctor and mended."""
    chores: Callable[[MemoryContext, Background], Sequence[Chore]] = lambda context, background: ()
    """What it looks after now and then, in every process that has its background."""
    after_remember: Callable[
        [MemoryContext, Background, Sequence[Remembered], int], list[Remembered]
    ] = lambda context, background, results, timeout_ms: list(results)
    """Does what its jobs would do later, within a time in milliseconds, after a `remember` with the
    mode `sync`; returns the results with how far it came.
    """


def load_extensions() -> tuple[Extension[Any], ...]:
    """Return the extensions of every tally, in the order in which they act."""
    return tuple(import_module(name).EXTENSION for name in EXTENSIONS)
