"""Follow-up work: jobs that a write leaves, carried out later with leases, retries and dead
letters.
"""

from tallystick.pipeline.reconcile import Reconciled
from tallystick.pipeline.worker import Drained, Worker

__all__ = ["Drained", "Reconciled", "Worker"]
