"""What is derived of synthesis: the texts of its runs."""

from __future__ import annotations

from typing import ClassVar

from tallystick.jobs.derived import Derived
from tallystick.records import Actor, Finding
from tallystick.storage.rows import synthesis_rows


class Documents(Derived):
    """The runs of synthesis: texts that repeat what they quote, and go with it."""

    name: ClassVar[str] = "synthesis"

    def check(self) -> Finding:
        """Read the body of every run."""
        with self._database.read() as connection:
            damaged = synthesis_rows.count_damaged(connection)
            count = synthesis_rows.count_runs(connection)
        if damaged:
            return self._says("problem", f"{damaged} runs of synthesis cannot be read")
        return self._says("ok", f"{count} runs of synthesis can be read")

    def repair(self, actor: Actor) -> Finding:
        """Nothing is mended here: a run is planned anew."""
        return self._says("ok", "a run is planned anew by `tally synthesize plan`")
