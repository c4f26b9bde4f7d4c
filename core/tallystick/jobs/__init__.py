"""Follow-up work: jobs that a write leaves, carried out later with leases, retries and a trail."""

from typing import TYPE_CHECKING

from tallystick.loading import late_names

if TYPE_CHECKING:
    from tallystick.jobs.background import Background, Chore, Drained, patient
    from tallystick.jobs.runner import Ended, Handler, JobRunner, Work
    from tallystick.jobs.worker import Worker
    from tallystick.storage.rows.jobs import TALLY_ACTOR
else:
    __getattr__ = late_names(
        "tallystick",
        {
            "jobs.background": "Background Chore Drained patient",
            "jobs.runner": "Ended Handler JobRunner Work",
            "jobs.worker": "Worker",
            "storage.rows.jobs": "TALLY_ACTOR",
        },
    )

__all__ = [
    "TALLY_ACTOR",
    "Background",
    "Chore",
    "Drained",
    "Ended",
    "Handler",
    "JobRunner",
    "Work",
    "Worker",
    "patient",
]
