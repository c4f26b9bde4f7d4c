"""Follow-up work: jobs that a write leaves, carried out later with leases, retries and a trail."""

from tallystick.pipeline.background import Background, Chore, Drained
from tallystick.pipeline.reconcile import Reconciled
from tallystick.pipeline.runner import TALLY_ACTOR, Ended, Handler, JobRunner, Work
from tallystick.pipeline.worker import Worker

__all__ = [
    "TALLY_ACTOR",
    "Background",
    "Chore",
    "Drained",
    "Ended",
    "Handler",
    "JobRunner",
    "Reconciled",
    "Work",
    "Worker",
]
