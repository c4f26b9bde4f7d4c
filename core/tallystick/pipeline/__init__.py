"""Follow-up work: what a write leaves to be done, done later, with leases, retries and dead letters."""

from tallystick.pipeline.indexer import Indexer

__all__ = ["Indexer"]
