"""Input and output of the compiler: ContextItem, CompilationRequest, CompilationDecision,
CompiledContext.
"""

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, Literal, Self, get_args

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from tallystick.records._base import JsonObject, Names, Persisted, Record
from tallystick.records.identity import Scope
from tallystick.records.memory import Memory, SourceRef
from tallystick.records.policy import PolicyRule, ToolClass
from tallystick.records.times import MomentField, datetime_of, microseconds, resolve_moment

ItemKind = Literal[
    "system",
    "policy",
    "user_msg",
    "assistant_msg",
    "task",
    "constraint",
    "plan",
    "memory",
    "retrieval_doc",
    "tool_schema",
    "tool_result",
    "artifact",
    "file",
    "code_diff",
    "summary",
    "handoff",
    "working",
    "other",
]
Sensitivity = Literal["public", "internal", "restricted", "secret"]
Decision = Literal["include", "exclude", "compress", "redact"]
Compaction = Literal["cut", "summary"]
"""What becomes of a long memory that does not fit: it is cut, or its summary stands for it."""
Coverage = Literal["whole", "recalled"]
"""The part of a model request that a compile decided over: all of it, or what memory added."""
COVERAGE_TITLES: Mapping[Coverage | None, str] = {
    "whole": "What the model saw",
    "recalled": "What memory added",
    None: "What was compiled",
}
"""How a surface calls a context for people; one of an earlier release did not say what it is."""
PrefixCause = Literal[
    "first",
    "appended",
    "compacted",
    "prefix_changed",
    "history_changed",
    "context_changed",
    "turn_changed",
]
SectionName = Literal["stable_prefix", "history", "task_context", "volatile_suffix"]

CompileReason = Literal[
    # included
    "required_latest_request",
    "required_constraint",
    "required_policy",
    "required_tool_result",
    "required_pinned",
    "required_system",
    "dependency_of_included",
    "tool_pair_of_included",
    "selected_by_score",
    # compressed
    "compressed_extractive",
    "compressed_structural",
    "compressed_summary",
    # redacted
    "policy_redacted",
    # excluded
    "policy_denied",
    "policy_requires_approval",
    "duplicate",
    "conflict_loser",
    "superseded",
    "expired",
    "stale",
    "empty",
    "below_relevance",
    "over_budget",
    "compacted",
    "class_budget",
    "dependency_missing",
    "dependency_excluded",
    "tool_pair_excluded",
    "unpaired_tool_result",
]


_TOOL_CLASSES = frozenset(get_args(ToolClass))


class ContextItem(Record):
    """One candidate for a model call, with provenance.

    An assistant message that calls tools names the calls in `tool_call_ids`; a tool result names
    the one call it answers in `tool_call_id`.
    """

    id: str
    kind: ItemKind
    content: str
    source_ref: SourceRef = SourceRef()
    created_at: MomentField | None = None
    """A moment without an offset is one of the tally's time zone."""
    freshness_ts: MomentField | None = None
    """The moment at which it was last known to be true."""
    ttl_seconds: int | None = Field(default=None, ge=0)
    """Lifetime from `freshness_ts` (else `created_at`)."""
    trust_score: int = Field(default=50, ge=0, le=100)
    """Percent."""
    importance_score: int = Field(default=50, ge=0, le=100)
    """Percent."""
    sensitivity: Sensitivity = "internal"
    scope: Scope | None = None
    dependencies: tuple[str, ...] = ()
    """Ids of items without which this one makes no sense."""
    token_estimate: int | None = Field(default=None, ge=0)
    """Tokens of `content`. The compiler counts for itself and keeps the larger: say more for
    arguments or images.
    """
    stable_hash: str | None = None
    """Digest of the content of the item, the same for equal items; always computed anew by the
    compiler.
    """
    tags: Names = frozenset()
    """`hard` marks a hard constraint, `blocking` an unresolved tool result, `pinned` an item that
    must stay.

    `decision` and `open_question` mark turns that come before others when the conversation is
    compacted.
    """
    metadata: JsonObject = {}
    """`subject` and `supersedes` (ids) steer conflict detection; the rest is the caller's."""
    tool_call_ids: tuple[str, ...] = ()
    tool_call_id: str | None = None

    @property
    def known_at(self) -> int | None:
        """Microseconds UTC at which it was last known to be true: `freshness_ts`, else
        `created_at`.
        """
        return resolve_moment(self.created_at if self.freshness_ts is None else self.freshness_ts)

    def at(self, zone: tzinfo) -> Self:
        """Return it with every moment in microseconds UTC, as meant in `zone`.

        Raises InvalidInput for an integer that can only be of another unit.
        """
        moments = {
            name: microseconds(moment, zone, name=name)
            for name in ("created_at", "freshness_ts")
            if (moment := getattr(self, name)) is not None
        }
        return self.model_copy(update=moments) if moments else self


class ToolSpec(Record):
    """A tool as a model gets it."""

    name: str
    description: str = ""
    parameters: JsonObject = {}
    """JSON Schema."""
    tool_class: ToolClass | None = None
    """The class that the tool claims. Only rules that restrict go by it; the class itself is
    declared where the tally is opened.
    """


class TargetProfile(Record):
    """The tokens that a model call costs around its content: overheads of the target."""

    per_item: int = Field(default=4, ge=0)
    per_tool: int = Field(default=8, ge=0)
    per_request: int = Field(default=3, ge=0)


class ScoreWeights(Record):
    """Weights of the score, in thousandths. General defaults, not fitted to a data set."""

    relevance: int = 400
    """The match of the item with the request: the ranking of `tallystick.ranking`."""
    freshness: int = 150
    """Newer items are likelier to be true: halves every `half_life_seconds`."""
    trust: int = 150
    importance: int = 150
    dependency: int = 50
    """Others need it."""
    pin: int = 300
    staleness: int = 200
    """Subtracted in proportion to the share of the lifetime that is spent."""
    risk: int = 100
    """Subtracted for restricted and secret items."""
    half_life_seconds: int = 7 * 24 * 3600


class CompileConfig(Persisted):
    """The configuration of a compile. Part of every digest."""

    weights: ScoreWeights = ScoreWeights()
    compression: bool = True
    """True if items that do not fit may be shortened (never the protected kinds)."""
    min_compressed_tokens: int = Field(default=24, ge=1)
    """A remnant shorter than this is left out instead."""
    class_ceilings: dict[str, int] = {}
    """Budget class to its largest share, percent of the budget; classes not named may use what is
    left.
    """
    history_share: int = Field(default=75, ge=0, le=100)
    """Percent of the budget for the newest turns, which stay as they are from step to step. The
    rest is chosen.
    """
    turn_share: int = Field(default=0, ge=0, le=90)
    """Percent of the budget kept free for the rest of the current turn, so that its steps begin
    alike.
    """
    memory_budget: int | None = Field(default=None, ge=0)
    """Most tokens of memories, but for required ones; None is no limit of their own."""
    max_sensitivity: Sensitivity = "secret"
    """Items above this never enter, whatever the rules say."""
    relevance_floor: int = Field(default=250_000, ge=0, le=1_000_000)
    """Relevance below which a memory, document, file or artifact stays out, however much room there
    is; 0 for no floor. What nothing scored is never below it.
    """
    schema_version: int = 2

    @model_validator(mode="before")
    @classmethod
    def _without_floor_before_there_was_one(cls, fields: Any) -> Any:
        if isinstance(fields, Mapping) and fields.get("schema_version") == 1:
            return {"relevance_floor": 0, **fields, "schema_version": 2}
        return fields


class SummaryWish(Record):
    """A summary that the compiler could have used; made outside, it comes back in `summaries`."""

    item_id: str
    input_digest: str
    max_tokens: int


class CompilationRequest(Persisted):
    """Everything a compile depends on; the compiler reads nothing else."""

    request_id: str
    run_id: str | None = None
    step_id: str | None = None
    provider: str | None = None
    model: str | None = None
    task_summary: str | None = None
    query: str | None = None
    """The query of compression; None is the latest request."""
    context_items: tuple[ContextItem, ...] = ()
    tool_specs: tuple[ToolSpec, ...] = ()
    memory_records: tuple[Memory, ...] = ()
    policy_rules: tuple[PolicyRule, ...] = ()
    token_budget: int = Field(ge=1)
    response_reserve: int = Field(default=0, ge=0)
    """Tokens kept free for the answer, inside `token_budget`."""
    as_of: int
    """Now, microseconds UTC."""
    as_of_time = datetime_of("as_of")
    compile_config: CompileConfig = CompileConfig()
    target: TargetProfile = TargetProfile()
    relevance: dict[str, int] = {}
    """Item id to relevance in 0..1,000,000: quantised, because floating-point libraries differ. An
    item that is not in it was scored by nothing.
    """
    summaries: dict[str, str] = {}
    """Digest of an item's content to its summary, made and recorded outside."""
    agent: str | None = None
    task_type: str | None = None
    environment: str | None = None
    approved: dict[str, tuple[str, ...]] = {}
    """Id of a rule that wants an approval to the ids of the items that a person approved."""
    tool_classes: dict[str, str] = {}
    """Name of a tool to the class that the tally declares; empty where no rule goes by classes, and
    then left out of the JSON, so that digests stay.
    """
    coverage: Coverage | None = None
    """The part of the model request that the candidates are; None for a request of an earlier
    release, which did not say.
    """
    schema_version: int = 2

    @model_validator(mode="before")
    @classmethod
    def _without_unknown_classes(cls, fields: Any) -> Any:
        """Version 1 took any name as the class of a tool; rules knew the four alone."""
        if not isinstance(fields, Mapping) or fields.get("schema_version") != 1:
            return fields
        tools = [
            {**tool, "tool_class": None}
            if isinstance(tool, Mapping) and tool.get("tool_class") not in _TOOL_CLASSES
            else tool
            for tool in fields.get("tool_specs", ())
        ]
        return {**fields, "tool_specs": tools, "schema_version": 2}

    chosen_as: dict[str, str] = {}
    """Id of a memory of a session's working set to why it is there. Empty, it is left out of the
    JSON, so that digests stay.
    """
    profile: tuple[str, ...] = ()
    """Ids of the memories that stand in the stable prefix; left out like `chosen_as`."""
    contradictions: tuple[tuple[str, str], ...] | None = None
    """Pairs of ids of memories that contradict one another, as the tally knows them. None where no
    tally was asked: then values of one subject do. It is left out of the JSON, so that digests
    stay.
    """

    @model_serializer(mode="wrap")
    def _without_empty_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        for name in ("tool_classes", "chosen_as", "profile"):
            if not fields.get(name):
                fields.pop(name, None)
        if fields.get("contradictions", ()) is None:
            del fields["contradictions"]
        return fields


class CompilationDecision(Record):
    """The decision about one candidate, and its reason. Each candidate has exactly one."""

    item_id: str
    decision: Decision
    pass_name: str
    reason_code: CompileReason
    score_breakdown: dict[str, int] = {}
    """Term to its weighted contribution in millionths; `total` is their sum. Empty when it was not
    scored.
    """
    original_tokens: int
    final_tokens: int
    """Tokens that it takes of the budget, overhead included; 0 if excluded."""
    related_id: str | None = None
    """The item that this decision points to: the kept duplicate, the winner, the missing
    dependency.
    """
    notes: str = ""


class Section(Record):
    """A run of items in layout order. Its digest is the same as long as its rendered bytes are."""

    name: SectionName
    item_ids: tuple[str, ...]
    digest: str
    tokens: int


class PrefixReuse(Record):
    """The part of the previous prompt that begins this one, in tokens, and why it is not longer."""

    cause: PrefixCause
    item_id: str | None = None
    """The first item of the previous prompt that moved or left."""
    reused: int = 0
    before: int = 0
    """Tokens of the previous prompt."""
    zone_reused: int = 0
    zone: int = 0
    """Tokens of the previous prompt that are meant to be reused: its stable prefix and its history
    window.
    """
    left: tuple[str, ...] = ()
    """Turns that left the window."""


class CompiledContext(Persisted):
    """The items that the compiler chose, in layout order, with one decision per candidate."""

    id: str
    """Digest of request and outcome: same inputs and configuration, same id."""
    request_id: str
    coverage: Coverage | None = None
    """The part of the model request that it is: `recalled` is what memory added to a request that
    holds more. None for one of an earlier release, which did not say.
    """
    provider: str | None = None
    model: str | None = None
    selected_items: tuple[ContextItem, ...]
    """In layout order; compressed and redacted ones with their final content."""
    excluded_items: tuple[ContextItem, ...]
    """In the order of their ids; denied ones without content."""
    decisions: tuple[CompilationDecision, ...]
    """In the order of the candidates."""
    token_allocation: dict[str, int]
    """Budget class to tokens, plus `budget`, `response_reserve`, `used` and `free`."""
    token_method: str
    """The method of counting tokens; see TokenCounter.method."""
    token_exact: bool
    stable_prefix_hash: str
    volatile_suffix_hash: str
    sections: tuple[Section, ...]
    wishes: tuple[SummaryWish, ...] = ()
    frame_codes: tuple[str, str] | None = None
    """The codes of its frames, of the instructions and of the context, where a tally made it; not
    part of `id`, because each scope has its own key.
    """

    def __repr__(self) -> str:
        used, budget = (self.token_allocation.get(name, 0) for name in ("used", "budget"))
        return (
            f"CompiledContext({len(self.selected_items)} of {len(self.decisions)} items, "
            f"{used} of {budget} tokens, id={self.id!r})"
        )

    @property
    def title(self) -> str:
        """What it is, for people."""
        return COVERAGE_TITLES[self.coverage]

    def decision(self, item_id: str) -> CompilationDecision:
        """Return the decision about one candidate. Raises KeyError."""
        for decision in self.decisions:
            if decision.item_id == item_id:
                return decision
        raise KeyError(item_id)
