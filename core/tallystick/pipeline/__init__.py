"""Follow-up work: jobs that a write leaves, carried out with leases, retries and dead letters;
a handler for each kind.
"""

from tallystick.pipeline.reconcile import Reconciled
from tallystick.pipeline.worker import Drained, Worker

__all__ = ["Drained", "Reconciled", "Worker"]
