"""Comparing: the verbs of whoever tries another configuration of recall."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from tallystick.errors import InvalidInput
from tallystick.jobs import patient
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.records import (
    Actor,
    Alert,
    AlertName,
    CompareAction,
    Comparison,
    JsonObject,
    Words,
    checked_arguments,
)
from tallystick.storage import Connection
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.tally.memory_view import Part
from tallystick.tally.served_verbs import AsyncFace, Offered
from tallystick.upkeep import alerts
from tallystick.upkeep.jobs import note_repair
from tallystick.upkeep.retention import require_operator
from tallystick_comparing import comparisons
from tallystick_comparing.comparer import candidate_of, comparer_of, lacking


@checked_arguments
class Comparing(Part):
    """A candidate configuration of recall beside that of the settings: `Comparing(bound)`."""

    @property
    def aio(self) -> AsyncComparing:
        """The same verbs for `async def` callers, awaited."""
        return AsyncComparing(self)

    def compare(
        self,
        action: Annotated[
            CompareAction, Field(description="report, start, promote or stop.")
        ] = "report",
        *,
        candidate: Annotated[
            JsonObject | None,
            Field(description="Settings that `start` tries: embedder, recall_weights, graph, …"),
        ] = None,
        sample_percent: Annotated[
            int, Field(description="Questions of a hundred that `start` compares.", ge=1, le=100)
        ] = 5,
        reason: Annotated[
            Words | None, Field(description="Why; the journal has it. For all but `report`.")
        ] = None,
    ) -> Comparison | None:
        """Start to compare another configuration of recall with that of the settings, report how
        far it came, promote it after three green runs, or stop; None where nothing was compared.

        Callers are answered by the settings until it is promoted; then by the candidate, until it
        is stopped or, slower by a fifth or with wrong targets for 15 minutes, taken back. Raises
        Denied, InvalidInput, StateConflict.
        """
        context, actor = self._view._services.memory, self._view._traced_actor
        require_operator(context, actor)
        if action == "report":
            comparer = comparer_of(context)
            patient("compare", comparer.work)()
            return comparer.standing(fresh=True)
        context.gate.require_person(actor, "manage", self._view.scope)
        reason = reason or ""
        require_reason(reason)
        if candidate is not None and action != "start":
            raise InvalidInput(
                f"`candidate` is of start, and not of {action}.", argument="candidate"
            )
        if action == "start":
            candidate_of(context, candidate or {})
            details = {"settings": sorted(candidate or {}), "percent": sample_percent}
            begin = partial(comparisons.begin, context, candidate or {}, sample_percent)
            return _change(context, actor, "compare.started", begin, reason, **details)
        if action == "promote":
            _require_vectors(context)
            return _change(context, actor, "compare.promoted", comparisons.promote, reason)
        return _change(context, actor, "compare.stopped", comparisons.stop, reason)


def _require_vectors(context: MemoryContext) -> None:
    """Raise StateConflict while texts lack a vector of the candidate's embedder."""
    comparison = comparer_of(context).standing(fresh=True)
    if comparison is not None and comparison.is_open:
        missing = lacking(context, candidate_of(context, comparison.candidate))
        if missing:
            text = f"texts of {len(missing)} scopes have no vector of its embedder yet"
            raise comparisons.conflict(comparison.id, comparison.state, text)


def _change(
    context: MemoryContext,
    actor: Actor,
    event: str,
    change: Callable[[Connection], Comparison],
    reason: str,
    **details: Any,
) -> Comparison:
    """Store what stands from now on, with its entry of the journal; the alert about a candidate
    that was taken back ends with it.
    """

    def unit(tx: Connection) -> tuple[Comparison, list[Alert]]:
        comparison = change(tx)
        comparisons.save(tx, comparison)
        note_repair(
            tx, context, actor, event, {"comparison": comparison.id, **details}, reason=reason
        )
        name: AlertName = "candidate_reverted"
        is_raised = name in alerts.standing(tx)
        return comparison, [alerts.clear_alert(tx, context, name)] if is_raised else []

    comparison, cleared = context.store.database.write(
        unit, name="compare", writes=Writes.of(TALLY)
    )
    alerts.call_listeners(context, cleared)
    comparer_of(context).standing(fresh=True)
    return comparison


class ComparingVerbs:
    """Verbs of `Comparing`."""

    compare = Offered(Comparing.compare)


class AsyncComparing(AsyncFace, ComparingVerbs):
    """Same as `Comparing`, awaited."""
