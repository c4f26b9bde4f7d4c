"""Stewardship: measures, health, alerts and events of a tally, and what was repaired."""

from typing import Annotated, Literal

from pydantic import Field

from tallystick.records._base import JsonObject, Record
from tallystick.records.identity import Scope
from tallystick.records.model_calls import ModelCost
from tallystick.records.times import datetime_of

Autonomy = Literal["off", "observe", "execute"]
"""Whether a tally looks after itself: never; it says what it would do; or it does what is allowed
unattended.
"""
HealthDomain = Literal["queue", "storage", "index", "provider", "mutation_safety"]
"""What health is measured of."""
RepairAction = Literal[
    "requeue",
    "release_lease",
    "check",
    "reembed",
    "reindex",
    "purge",
    "rollback",
    "recover_many",
]
"""A repair that the steward knows."""
RepairState = Literal["previewed", "done", "failed"]
DirectRepair = Literal["requeue", "release_lease", "check", "reembed", "reindex", "purge"]
"""A repair that is made at once; the others are previewed."""
UnattendedAction = Literal["requeue", "release_lease", "check", "reembed"]
"""A repair that destroys nothing, and may run without a person."""
AlertName = Literal[
    "jobs_dead",
    "queue_age",
    "remember_slow",
    "busy",
    "delete_spike",
    "read_spike",
    "undone_changes",
    "forged_speakers",
    "backup_old",
    "steward_halted",
    "candidate_reverted",
]
CompareAction = Literal["report", "start", "promote", "stop"]
"""What is done with a comparison of configurations."""
EventKind = Literal[
    "memory.changed",
    "review.needed",
    "approval.needed",
    "run.ended",
    "alert.raised",
    "alert.cleared",
]
"""What a subscriber is told of."""
BackfillWork = Literal["learn", "embed", "graph"]


class AlertLimits(Record):
    """The limits beyond which the steward alerts."""

    jobs_dead_percent: Annotated[float, Field(ge=0, le=100)] = 1.0
    """The most jobs, of those that ended within 15 minutes, that died."""
    queue_age_seconds: Annotated[int, Field(ge=1)] = 300
    """How long 95 % of the jobs that are due may wait."""
    remember_p95_ms: Annotated[int, Field(ge=1)] = 1_200
    """How long 95 % of the calls of remember may take, over 30 minutes."""
    busy_percent: Annotated[float, Field(ge=0, le=100)] = 1.0
    """The most operations of 15 minutes that found the database busy, where three times the day
    before is less.
    """
    spike_factor: Annotated[float, Field(gt=1)] = 5.0
    """How many times a caller's median hour is too much."""
    deletes: Annotated[int, Field(ge=1)] = 20
    """Memories that one caller may forget within an hour in any case."""
    reads: Annotated[int, Field(ge=1)] = 1_000
    """Memories that one caller may be given within an hour in any case."""
    undone: Annotated[int, Field(ge=1)] = 3
    """Changes of a model that may be undone within a day."""
    forged: Annotated[int, Field(ge=1)] = 10
    """Memories of 15 minutes whose writer names another user of the tally as their speaker."""
    backup_days: Annotated[int, Field(ge=1)] | None = None
    """Days after which a backup is too old; None asks for none."""


class Sample(Record):
    """One value of a measure."""

    labels: dict[str, str] = {}
    value: float


class Measure(Record):
    """One measure of a tally, under the name by which Prometheus has it."""

    name: str
    help: str
    kind: Literal["counter", "gauge"]
    samples: tuple[Sample, ...]


class Alert(Record):
    """An alert that stands, or stood."""

    name: AlertName
    state: Literal["raised", "cleared"]
    text: str
    facts: JsonObject = {}
    """Numbers, and the ids of callers."""
    at: int
    """Microseconds UTC since which it is in this state."""
    time = datetime_of("at")
    audit_id: str | None = None


class DomainHealth(Record):
    """The health of one part of a tally."""

    domain: HealthDomain
    score: Annotated[int, Field(ge=0, le=100)]
    facts: JsonObject = {}
    """The numbers that it was made of."""
    losses: dict[str, int] = {}
    """The points that were taken off, by the fact that took them."""


class Health(Record):
    """The health of a tally: of each part, and the least of them."""

    score: Annotated[int, Field(ge=0, le=100)]
    domains: tuple[DomainHealth, ...]
    at: int
    """Microseconds UTC."""
    time = datetime_of("at")
    alerts: tuple[Alert, ...] = ()
    """Those that stand."""

    @property
    def scores(self) -> dict[str, int]:
        """The score of each part."""
        return {each.domain: each.score for each in self.domains}

    def of(self, domain: HealthDomain) -> DomainHealth:
        """Return the health of one part."""
        return next(each for each in self.domains if each.domain == domain)


class HealthScores(Record):
    """The health of a tally, as an agent sees it."""

    score: int
    domains: dict[str, int]


class TallyEvent(Record):
    """One thing that happened, as a subscriber is told: ids, never content."""

    id: str
    """The same whenever it is told again."""
    cursor: int
    """Give it as `after`, and what follows is told."""
    kind: EventKind
    event: str
    """The event of the journal, such as `memory.forget`."""
    subject_id: str | None = None
    scope: Scope | None = None
    """None for what concerns the whole tally."""
    at: int
    """Microseconds UTC."""
    time = datetime_of("at")
    facts: JsonObject = {}


class Repair(Record):
    """What a repair did, or in a preview would do."""

    action: RepairAction
    state: RepairState
    target: str | None = None
    changed: int = 0
    """The number of things that it changed or would change."""
    facts: JsonObject = {}
    correlation_id: str
    """By which the journal has it before and after."""
    before: dict[str, int] = {}
    """Health before, by part."""
    after: dict[str, int] = {}
    confirm_token: str | None = None
    """Confirms what a preview of something destructive showed."""


class Backfill(Record):
    """A portion of work on what a tally has from before."""

    work: BackfillWork
    mode: Literal["preview", "apply"]
    scope: Scope
    total: int
    """Memories that are left, with those of this portion."""
    portion: int
    """Memories of this portion."""
    enqueued: int = 0
    tokens: int = 0
    """Tokens of the texts of all that is left, an estimate."""
    cost: ModelCost | None = None
    """What the model's input takes; None where it runs here."""
    is_over: bool = False


class ComparedRun(Record):
    """Counts of questions that two configurations of recall answered: the one of the settings, the
    old one, and a candidate, the new one.
    """

    questions: int = 0
    old_us: int = 0
    """Microseconds in which the old one answered them all."""
    new_us: int = 0
    wrong: int = 0
    """Wrong targets of the new one."""
    same_best: int = 0
    """Questions of which the best hit is the same."""
    shared: int = 0
    """Hits that both have."""
    old_hits: int = 0
    new_hits: int = 0

    @property
    def is_slow(self) -> bool:
        """True if the new one takes more than a fifth longer."""
        return 100 * self.new_us > 120 * self.old_us

    @property
    def is_green(self) -> bool:
        """True if the new one is not slow, and has no wrong target."""
        return not self.is_slow and not self.wrong

    def plus(self, other: "ComparedRun") -> "ComparedRun":
        """Return both together."""
        return ComparedRun(
            **{name: getattr(self, name) + getattr(other, name) for name in type(self).model_fields}
        )


class Comparison(Record):
    """A candidate configuration of recall beside the one of the settings."""

    id: str
    state: Literal["comparing", "promoted", "reverted", "stopped"]
    candidate: JsonObject
    """The settings that it changes."""
    sample_percent: int
    started_at: int
    """Microseconds UTC."""
    started_time = datetime_of("started_at")
    green: int = 0
    """Green runs in a row; three let it be promoted."""
    run: ComparedRun = ComparedRun()
    """The run under way, of 20 questions."""
    runs: tuple[ComparedRun, ...] = ()
    """The last runs that ended, the newest last."""
    recent: tuple[ComparedRun, ...] = ()
    """The last questions, each by itself: a promoted candidate is judged by them."""
    reasons: dict[str, int] = {}
    """Wrong targets by code: `target_lost`, `not_readable`, `not_findable`, `no_vectors`."""
    skipped: int = 0
    """Questions that could not be asked again."""
    breach_since: int | None = None
    """Microseconds UTC since which a promoted candidate is slow or has wrong targets."""
    breach: tuple[str, ...] = ()
    """Why it was taken back."""

    @property
    def is_open(self) -> bool:
        """True while questions are compared."""
        return self.state in ("comparing", "promoted")


class AnalyticsRow(Record):
    """One line of an analysis."""

    labels: dict[str, str]
    count: int
    facts: dict[str, float] = {}


class TimelineEntry(Record):
    """One thing that happened, in its place: without text above the reader's right."""

    at: int
    """Microseconds UTC."""
    time = datetime_of("at")
    event: str
    actor: str | None = None
    surface: str | None = None
    subject_id: str | None = None
    correlation_id: str | None = None
    reason: str | None = None
    automatic: bool = False
    """True if nobody asked for it: the steward or a job did it."""
    facts: JsonObject = {}
    audit_id: str
