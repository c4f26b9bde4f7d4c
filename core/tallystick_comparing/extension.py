"""The extension: what comparing adds to a tally."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallystick.extension import Extension
from tallystick.loading import Late
from tallystick.operations import Operation

if TYPE_CHECKING:
    from tallystick.jobs import Background, Chore
    from tallystick.memory import MemoryContext


def _chores(context: MemoryContext, background: Background) -> Sequence[Chore]:
    from tallystick.jobs import Chore, patient
    from tallystick_comparing.comparer import EVERY, comparer_of

    compare = patient("compare", comparer_of(context).work)
    return (Chore(compare, EVERY, first=EVERY),)


EXTENSION: Extension[Operation] = Extension(
    chores=_chores,
    serving=Late("tallystick_comparing.comparer:serving"),
    on_recall=Late("tallystick_comparing.comparer:on_recall"),
    operations=(
        Operation(
            "compare",
            "Compare configurations",
            "Compare another configuration of recall with that of the settings, promote it, or "
            "stop.",
            "operate",
            ("denied", "invalid_input", "state_conflict"),
            verb="comparing.compare",
            face=Late("tallystick_comparing.comparing:Comparing"),
        ),
    ),
)
