"""Follow-up work: jobs that a write leaves, carried out later with leases, retries and a trail."""

from tallystick.jobs.background import Background, Chore, Drained
from tallystick.jobs.runner import Ended, Handler, JobRunner, Work
from tallystick.jobs.worker import Worker
from tallystick.storage.rows.jobs import TALLY_ACTOR

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
]
