"""Steward: a tally as whoever runs it for others looks after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from tallystick.records import (
    Alert,
    AnalyticsRow,
    Backfill,
    BackfillWork,
    Count,
    DirectRepair,
    DomainHealth,
    EventKind,
    Health,
    HealthDomain,
    HealthScores,
    Limit,
    Measure,
    Repair,
    TallyEvent,
    TimelineEntry,
    Words,
    checked_arguments,
)
from tallystick.records.arguments import ConfirmMode, ConfirmToken, Reason
from tallystick.records.times import DAY, Occasion
from tallystick.tally.memory_view import Part
from tallystick.tally.served_verbs import AsyncFace, Offered
from tallystick.tally.services import Services
from tallystick.upkeep.alerts import standing
from tallystick.upkeep.backfill import backfill
from tallystick.upkeep.retention import require_operator
from tallystick_steward import metrics, readings
from tallystick_steward.alerts import update
from tallystick_steward.analytics import Analysis, analyse, timeline
from tallystick_steward.events import EventSubscription, Page, newest_cursor, read_events
from tallystick_steward.health import judge
from tallystick_steward.loop import resume
from tallystick_steward.repairs import Act, Repairs
from tallystick_steward.taking_back import Selection

_After = Annotated[
    Count | None, Field(description="The cursor of the last event that was seen; else from now on.")
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

    def _judge(self) -> Health:
        return judge(self._read(), self._services.settings.alerts)

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
        judged = self._judge()
        with self._services.store.database.read() as connection:
            return judged.replace(alerts=tuple(standing(connection).values()))

    def diagnose(
        self, domain: Annotated[HealthDomain, Field(description="Such as queue or storage.")]
    ) -> DomainHealth:
        """Return the health of one part, with its facts. Raises Denied, InvalidInput."""
        return self.health().of(domain)

    def health_scores(self) -> HealthScores:
        """Return the scores alone, for an agent of somebody who may operate the tally: of others'
        scopes even a score tells something. Raises Denied.
        """
        person = self._view.actor.model_copy(update={"agent": None})
        if not person.operates_tally:
            self._require_operator()
        judged = self._judge()
        return HealthScores(score=judged.score, domains=judged.scores)

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
        services = self._services
        if after is None:
            after = max(0, newest_cursor(services.memory) - limit)
        return list(
            read_events(services.memory, self._view.actor, after, kinds, limit=limit).events
        )

    def repair(
        self,
        action: Annotated[
            DirectRepair, Field(description="Such as requeue, release_lease, reembed or reindex.")
        ],
        *,
        target: Annotated[Words | None, Field(description="One job; by default all.")] = None,
        reason: Reason,
    ) -> Repair:
        """Repair the tally: the journal has it before and after, with the health of both moments.

        `requeue` and `release_lease` let jobs start anew, `check` compares what is derived,
        `reembed` embeds some pages here, `reindex` mends the index, and `purge` is a person's. Each
        rests for 10 minutes; 20 are made in an hour and 100 in a day. Raises Denied, InvalidInput,
        which lists the actions, and StateConflict, which says when it may be done again.
        """
        act = Act(self._view._traced_actor, action, reason, target)
        return self._repairs.repair(act)

    def rollback(
        self,
        act: Annotated[Words, Field(description="The correlation id of an act in the history.")],
        *,
        reason: Reason,
        mode: ConfirmMode = "preview",
        confirm_token: ConfirmToken = None,
    ) -> Repair:
        """Preview, and with the preview's token undo, everything that one act changed; see
        `recover_many`. Raises Denied, InvalidInput, StateConflict.
        """
        actor, selection = self._view._traced_actor, Selection(act=act)
        rollback = Act(actor, "rollback", reason, act, selection, confirm_token)
        return self._repairs.repair(rollback, mode=mode)

    def recover_many(
        self,
        *,
        by_job: Annotated[Words | None, Field(description="What one job of learning did.")] = None,
        by_model: Annotated[Words | None, Field(description="What one model did.")] = None,
        by_actor: Annotated[
            Words | None, Field(description="What a user did, or user/agent.")
        ] = None,
        since: Annotated[Occasion, Field(description="Changes of this moment or later.")],
        until: Annotated[Occasion | None, Field(description="Changes before it.")] = None,
        reason: Reason,
        mode: ConfirmMode = "preview",
        confirm_token: ConfirmToken = None,
    ) -> Repair:
        """Preview what a job, a model or a caller did since a moment, or all that happened in a
        stretch of time, and with the preview's token take it back whole.

        What was forgotten is recovered, what was added is forgotten, what was changed is as before;
        a change that another one followed stays, and is counted as `changed_since`. A person asks,
        with the right to each change. Raises Denied, InvalidInput, StateConflict.
        """
        now = self._services.store.clock.now()
        selection = Selection(
            by_job=by_job,
            by_model=by_model,
            by_actor=by_actor,
            since=self._view._ago(since, "since") or 0,
            until=self._view._ago(until, "until") or now + 1,
        )
        actor, target = self._view._traced_actor, by_job or by_model or by_actor
        act = Act(actor, "recover_many", reason, target, selection, confirm_token)
        return self._repairs.repair(act, mode=mode)

    @property
    def _repairs(self) -> Repairs:
        services = self._services
        return Repairs(services.memory, services.background, services.windows)

    def backfill(
        self,
        work: Annotated[BackfillWork, Field(description="learn, embed or graph.")],
        *,
        portion: Annotated[
            int, Field(description="Memories of one portion at most.", ge=1, le=10_000)
        ] = 500,
        reason: Reason,
        mode: Annotated[
            Literal["preview", "apply"], Field(description="Say what is left, or do a portion.")
        ] = "preview",
    ) -> Backfill:
        """Say how much of the bound scope is not learned from, embedded or in the graph yet and
        what it takes, or do the next portion. A call that was cut off is made again, and goes on
        where it was. Raises Denied, InvalidInput.
        """
        services = self._services
        return backfill(
            services.memory,
            services.background,
            self._view._traced_actor,
            self._view.scope,
            work,
            portion=portion,
            mode=mode,
            reason=reason,
            counter=services.counter(None),
            prices=services.prices,
        )

    def resume_autonomy(self, *, reason: Reason) -> None:
        """Let a loop that was halted, because its repairs did not help, go on. Raises Denied."""
        self._require_operator()
        self._services.gate.require_person(self._view.actor, "manage", self._view.scope)
        resume(self._services.memory, self._view.actor, reason)

    def analytics(
        self,
        analysis: Annotated[
            Analysis, Field(description="usage, errors, logs, memory-safety, hours or days.")
        ],
        *,
        since: Annotated[
            Occasion | None, Field(description="From this moment on; by default a day ago.")
        ] = None,
    ) -> list[AnalyticsRow]:
        """Count the operations, errors, calls of models or changes of a stretch of time, by
        operation, actor, provider, connector and stage. Raises Denied, InvalidInput.
        """
        self._require_operator()
        self._services.meter.flush()
        ago = self._view._ago(since, "since")
        moment = self._services.store.clock.now() - DAY if ago is None else ago
        return analyse(self._services.memory, analysis, moment)

    def timeline(
        self,
        subject: Annotated[
            Words, Field(description="The id of a memory, a request, a session or an act.")
        ],
        *,
        limit: Annotated[Limit, Field(description="Entries at most, the newest.")] = 200,
    ) -> list[TimelineEntry]:
        """List what happened to a memory, or in a request or session, with the decisions and the
        automatic actions, in order; as far as this actor may see it. Raises NotFound.
        """
        self._view._admit("inspect")
        return timeline(
            self._services.memory,
            self._view.actor,
            self._view._full_id(("memory",), subject),
            limit=limit,
        )

    def page_of_events(self, after: int | None, *, told: Sequence[str] = ()) -> Page:
        """Return what is behind a cursor, without what was told, and the cursor to go on with; of
        no cursor the one from now on.
        """
        memory = self._services.memory
        place = newest_cursor(memory) if after is None else after
        return read_events(memory, self._view.actor, place, (), limit=200, told=tuple(told))

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
            services.memory, self._view.actor, listener, after, tuple(kinds)
        )
        services.closing.append(subscription.close)
        return subscription


class StewardVerbs:
    """Verbs of `Steward`."""

    metrics = Offered(Steward.metrics)
    health = Offered(Steward.health)
    diagnose = Offered(Steward.diagnose)
    health_scores = Offered(Steward.health_scores)
    alerts = Offered(Steward.alerts)
    events = Offered(Steward.events)
    repair = Offered(Steward.repair)
    rollback = Offered(Steward.rollback)
    recover_many = Offered(Steward.recover_many)
    backfill = Offered(Steward.backfill)
    resume_autonomy = Offered(Steward.resume_autonomy)
    analytics = Offered(Steward.analytics)
    timeline = Offered(Steward.timeline)


class AsyncSteward(AsyncFace, StewardVerbs):
    """Same as `Steward`, awaited."""
