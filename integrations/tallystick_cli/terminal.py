"""The terminal that views are printed on, in a file of its own: a server prints no view, and
loads no rich.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tallystick_cli.steering import STEERING


class Terminal(Console):
    """A terminal that stored text cannot steer: escapes and marks of writing direction are left
    out.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, without control characters."""
        for segment in super().render(renderable, options):
            yield (
                segment
                if segment.control
                else Segment(segment.text.translate(STEERING), segment.style)
            )
