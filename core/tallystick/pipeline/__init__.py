"""Follow-up work: what a write leaves to be done, done later, with leases, retries and dead
letters.
"""

from tallystick.pipeline.indexer import Drained, Indexer
from tallystick.pipeline.reconcile import Reconciled

__all__ = ["Drained", "Indexer", "Reconciled"]
