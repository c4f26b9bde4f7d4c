"""Follow-up work for engines that run workflows: what is due, and one job carried out by its id."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.kit.arguments import check_count, check_tally
from tallystick.records import Job
from tallystick.tally import Tally
from tallystick.tally.services import services_of


class JobRunning:
    """The jobs of a tally, of some kinds or of all. Thread-safe.

    Whatever an engine does twice, or at the same time on two hosts, is stored once: a job is leased
    before it is carried out, and its end is committed with what it makes.
    """

    def __init__(self, tally: Tally, kinds: Sequence[str] | None, *, usage: str) -> None:
        """Take what the piece was given; `usage` is the line to write. Raises InvalidInput."""
        check_tally(tally, usage)
        self._runner = services_of(tally).background.runner
        self._runner.require_kinds(kinds)
        self.kinds = tuple(kinds or self._runner.handlers)

    def due(self, *, limit: int = 1_000) -> list[Job]:
        """Return the jobs that can be leased now, the oldest first, in turn from each scope. Raises
        InvalidInput, StorageError.
        """
        check_count("limit", limit, least=1)
        return self._runner.due(self.kinds, limit=limit)

    def carry_out(self, job_id: str, kind: str) -> bool:
        """Carry out one job if it is due, and store how it ended; return False where it is not due,
        or another worker has it. What its handler raises is written into its trail.
        """
        return self._runner.run_one(job_id, kind)
