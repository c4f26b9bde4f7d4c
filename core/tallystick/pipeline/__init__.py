"""Follow-up work: jobs that a write leaves, carried out later with leases, retries and a trail."""

from tallystick.pipeline.apply import LearnedBy
from tallystick.pipeline.background import Background, Chore, Drained
from tallystick.pipeline.decide import RuleDecider, Thresholds
from tallystick.pipeline.extract import RuleExtractor
from tallystick.pipeline.learning import LearningContext, LearningHandler
from tallystick.pipeline.models import ModelDecider, ModelExtractor, ModelSummarizer
from tallystick.pipeline.outbound import Outbound
from tallystick.pipeline.reconcile import Reconciled
from tallystick.pipeline.reflection_jobs import ReflectionHandler
from tallystick.pipeline.runner import Ended, Handler, JobRunner, Work
from tallystick.pipeline.summaries import SummaryHandler
from tallystick.pipeline.worker import Worker
from tallystick.storage.jobs import TALLY_ACTOR

__all__ = [
    "LearnedBy",
    "LearningContext",
    "LearningHandler",
    "ReflectionHandler",
    "SummaryHandler",
    "ModelSummarizer",
    "ModelDecider",
    "ModelExtractor",
    "Outbound",
    "RuleDecider",
    "RuleExtractor",
    "Thresholds",
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
