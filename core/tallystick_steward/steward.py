"""Steward: a tally as whoever runs it for others looks after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from tallystick.records import (
    Alert,
    DomainHealth,
    EventKind,
    Health,
    HealthDomain,
    HealthScores,
    Limit,
    Measure,
    TallyEvent,
    checked_arguments,
)
from tallystick.tally.memory_view import Part
from tallystick.tally.served_verbs import AsyncFace, Offered
from tallystick.tally.services import Services
from tallystick.upkeep.retention import require_operator
from tallystick_steward import metrics, readings
from tallystick_steward.alerts import standing, update
from tallystick_steward.events import (
    EventSubscription,
    newest_cursor,
    read_events,
    require_kinds,
)
from tallystick_steward.health import judge, require_domain

_After = Annotated[
    int | None, Field(description="The cursor of the last event that was seen; else from now on.")
]
_Kinds = Annotated[
    tuple[EventKind, ...], Field(description="Kinds of events; by default all of them.")
]


@checked_arguments
class Steward(Part):
    """Measures, health, alerts, events and repairs of a tally: `Steward(bound)`."""

    @property
    def aio(self) -> AsyncSteward:
        """The same verbs for `async def` callers, awaited."""
        return AsyncSteward(self)

    @property
    def _services(self) -> Services:
        return self._view._services

    def _require_operator(self) -> None:
        require_operator(self._services.memory, self._view.actor)

    def _read(self) -> readings.Readings:
        services = self._services
        services.meter.flush()
        services.gate.flush(wait=False)
        return readings.read(services.memory)

    def metrics(self) -> list[Measure]:
        """Return the measures of the whole tally, read where they are: from journal, jobs, calls of
        models and the minutes of operations. Raises Denied, StorageError.
        """
        self._require_operator()
        self._services.meter.flush()
        return metrics.measure(self._services.memory)

    def exposition(self) -> bytes:
        """Return the measures in the text format of Prometheus. Raises Denied, MissingExtra."""
        return metrics.exposition(self.metrics())

    def health(self) -> Health:
        """Return the health of the tally: of its queue, storage, index, providers and the safety of
        its changes, each from 0 to 100, and the least of them. Raises Denied.
        """
        self._require_operator()
        services = self._services
        seen = self._read()
        judged = judge(seen, services.settings.alerts)
        with services.store.database.read() as connection:
            known = standing(connection)
        raised = tuple(each for each in known.values() if each.state == "raised")
        return judged.model_copy(update={"alerts": raised})

    def diagnose(
        self, domain: Annotated[HealthDomain, Field(description="Such as queue or storage.")]
    ) -> DomainHealth:
        """Return the health of one part, with its facts. Raises Denied, InvalidInput."""
        chosen = require_domain(domain)
        return self.health().of(chosen)

    def health_scores(self) -> HealthScores:
        """Return the scores alone, for whoever may read in the tally, such as an agent. Raises
        Denied.
        """
        self._view._admit("read")
        self._services.gate.require(self._view.actor, "read", self._view.scope)
        judged = judge(self._read(), self._services.settings.alerts)
        return HealthScores(
            score=judged.score, domains={each.domain: each.score for each in judged.domains}
        )

    def alerts(self) -> list[Alert]:
        """Look at every limit now, and return the alerts that stand. Raises Denied."""
        self._require_operator()
        return update(self._services.memory, self._read())

    def events(
        self,
        *,
        after: _After = None,
        kinds: _Kinds = (),
        limit: Annotated[Limit, Field(description="Events at most.")] = 100,
    ) -> list[TallyEvent]:
        """Return what happened behind a cursor, as far as this actor may read it, oldest first:
        `memory.changed`, `review.needed`, `approval.needed`, `run.ended`, and for an operator
        alerts. Without `after` the newest.

        Each event has its `cursor`: give that of the last one as `after`. What was told again after
        a failure has the same `id`. Raises InvalidInput.
        """
        self._view._admit("read")
        chosen = require_kinds(kinds)
        services = self._services
        if after is None:
            after = max(0, newest_cursor(services.memory) - limit)
        return list(
            read_events(services.memory, self._view.actor, after, chosen, limit=limit).events
        )

    def subscribe(
        self,
        listener: Callable[[TallyEvent], object],
        *,
        after: int | None = None,
        kinds: Sequence[EventKind] = (),
    ) -> EventSubscription:
        """Call `listener` with each event, in a thread of its own, at least once and in order,
        whichever process it happened in. Without `after` from now on.

        A listener that raises is called again with the same event. Who keeps the `cursor` of the
        last event goes on there after its own death. The subscription ends with the tally, or by
        its `close`. Raises InvalidInput.
        """
        services = self._services
        subscription = EventSubscription(
            services.memory, self._view.actor, listener, after, require_kinds(kinds)
        )
        services.closing.append(subscription.close)
        return subscription


class AsyncSteward(AsyncFace):
    """The verbs of `Steward`, awaited."""

    metrics = Offered(Steward.metrics)
    health = Offered(Steward.health)
    diagnose = Offered(Steward.diagnose)
    health_scores = Offered(Steward.health_scores)
    alerts = Offered(Steward.alerts)
    events = Offered(Steward.events)
