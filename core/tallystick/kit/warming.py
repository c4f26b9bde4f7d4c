"""Warming: a surface that a person is about to use reads what their first questions need."""

from __future__ import annotations

from tallystick import memory
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of


def warm(bound: BoundTally) -> None:
    """Count scopes and map indexes for the actor of a view, so that their first list and their
    first recall find them. Nothing is logged, changed or sent. Raises StorageError, EmbeddingError.
    """
    memory.warm(services_of(bound).memory, bound.actor)
