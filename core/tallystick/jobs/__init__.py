"""Follow-up work: jobs that a write leaves, carried out later with leases, retries and a trail."""

from tallystick.jobs.background import Background, Chore, Drained
from tallystick.jobs.learning import LearningHandler
from tallystick.jobs.models import ModelDecider, ModelExtractor, ModelSummarizer
from tallystick.jobs.outbound import Outbound
from tallystick.jobs.providers import LearningContext
from tallystick.jobs.reconcile import Reconciled
from tallystick.jobs.reflection_jobs import ReflectionHandler
from tallystick.jobs.runner import Ended, Handler, JobRunner, Work
from tallystick.jobs.summaries import SummaryHandler
from tallystick.jobs.worker import Worker
from tallystick.storage.rows.jobs import TALLY_ACTOR

__all__ = [
    "LearningContext",
    "LearningHandler",
    "ReflectionHandler",
    "SummaryHandler",
    "ModelSummarizer",
    "ModelDecider",
    "ModelExtractor",
    "Outbound",
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
