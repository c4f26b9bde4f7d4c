"""BoundTally: everything an actor does with a tally, working in one scope."""

from __future__ import annotations

from tallystick.access import Spaces
from tallystick.tally.operator import Operator
from tallystick.tally.run_verbs import RunVerbs

__all__ = ["BoundTally"]


class BoundTally(RunVerbs):
    """A tally as one actor sees it, working in one scope: what adapters and applications use.

    The verbs of memory and of runs are its own. `spaces` opens scopes to others, `operator` has
    what only somebody in charge does, `recordings` and `threads` read what was recorded and
    checkpointed. Thread-safe.
    """

    @property
    def spaces(self) -> Spaces:
        """The spaces that this actor may see or manage: create, get, list, update."""
        services = self._services
        return Spaces(services.store, services.gate, self.actor)

    @property
    def operator(self) -> Operator:
        """The operator's verbs: erase, prove, purge, freeze, doctor, export, import."""
        return Operator(self._services, self.actor, self.scope)
