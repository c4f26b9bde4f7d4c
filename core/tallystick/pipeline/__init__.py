"""Follow-up work: jobs that a write leaves, carried out later with leases, retries and a trail."""

from tallystick.pipeline.background import Background, Chore, Drained
from tallystick.pipeline.learning import LearningHandler
from tallystick.pipeline.models import ModelDecider, ModelExtractor, ModelSummarizer
from tallystick.pipeline.outbound import Outbound
from tallystick.pipeline.providers import LearningContext
from tallystick.pipeline.reconcile import Reconciled
from tallystick.pipeline.reflection_jobs import ReflectionHandler
from tallystick.pipeline.runner import Ended, Handler, JobRunner, Work
from tallystick.pipeline.summaries import SummaryHandler
from tallystick.pipeline.worker import Worker
from tallystick.storage.jobs import TALLY_ACTOR

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
