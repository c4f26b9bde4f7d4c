"""Records of the recorder: RunRecord, StepRecord, Receipt, Tape, the entries of the journal,
answers about a step, and the results of verifying and replaying.
"""

from typing import Literal

from tallystick.records._base import Json, JsonObject, Persisted, Record
from tallystick.records.context import CompilationDecision, CompileConfig
from tallystick.records.identity import Scope
from tallystick.records.memory import SourceRef
from tallystick.records.policy import PolicyRule
from tallystick.records.times import datetime_of, optional_datetime_of

StepKind = Literal[
    "model_call",
    "tool_call",
    "memory_read",
    "memory_write",
    "compile",
    "retrieval",
    "policy_check",
    "human_approval",
    "event",
    "other",
]
"""What a step is. `retrieval`: of a retriever of the runtime; `event`: a custom one of it."""
StepStatus = Literal["running", "completed", "failed", "cancelled", "blocked", "interrupted"]
Retention = Literal["metadata_only", "redacted_payloads", "full_payloads"]
Fidelity = Literal["exact", "exact_redacted", "not_replayable"]

EntryKind = Literal[
    "compile_request",
    "compiled",
    "compaction",
    "request",
    "response",
    "tool_call",
    "tool_result",
    "memory_read",
    "memory_write",
    "policy_check",
    "approval",
    "error",
    "note",
    "gap",
    "wire_request",
    "wire_response",
    "placeholders",
]


class RunRecord(Persisted):
    """An agent run."""

    id: str
    scope: Scope
    agent_name: str
    domain: str | None = None
    goal: str | None = None
    started_at: int
    """Microseconds UTC."""
    started_time = datetime_of("started_at")
    ended_at: int | None = None
    ended_time = optional_datetime_of("ended_at")
    status: StepStatus = "running"
    retention: Retention = "redacted_payloads"
    metadata: JsonObject = {}
    gaps: int = 0
    """Number of events that could not be recorded."""


class StepRecord(Persisted):
    """A piece of work in a run: a model call, a tool call, a read or a write of memory, a compile,
    a retrieval, a policy check, an approval, an event.
    """

    id: str
    run_id: str
    step_index: int
    """Counted from 0 in the order in which steps started."""
    step_kind: StepKind
    name: str | None = None
    parent_step_id: str | None = None
    started_at: int
    """Microseconds UTC."""
    started_time = datetime_of("started_at")
    ended_at: int | None = None
    ended_time = optional_datetime_of("ended_at")
    status: StepStatus = "running"
    metadata: JsonObject = {}


class StepEntry(Record):
    """One entry of a step, with its payload while that is kept."""

    id: str
    step_id: str
    position: int
    """Counted from 0 within the step."""
    kind: EntryKind
    at: int
    time = datetime_of("at")
    commitment: str
    """Salted digest of the stored payload bytes; empty where none were stored."""
    payload: Json = None
    """None if the retention mode kept none or it was erased; see `payload_state`."""
    payload_state: Literal["kept", "redacted", "not_kept", "erased"] = "kept"
    redactions: dict[str, int] = {}
    """Number of secrets replaced before storing, by kind."""
    summary: JsonObject = {}
    """Facts that the receipt commits to; they are erased with the payload."""


class ReceiptEntry(Record):
    """One entry in a receipt: never its content."""

    kind: EntryKind
    commitment: str = ""
    """Commitment to the payload, where one is kept."""
    payload_state: Literal["kept", "redacted", "not_kept"]
    redactions: dict[str, int] = {}
    summary: JsonObject = {}
    """Ids, counts and reason codes: which items went in, which memories were read, which model was
    asked.
    """


class Receipt(Persisted):
    """The proof of a step: an entry of the run's chain in the journal."""

    step_id: str
    run_id: str
    step_index: int
    step_kind: StepKind
    name: str | None = None
    status: StepStatus
    started_at: int
    started_time = datetime_of("started_at")
    ended_at: int
    ended_time = datetime_of("ended_at")
    retention: Retention
    token_method: str = "not counted"
    """Method by which tokens were counted in this step; see TokenCounter.method."""
    continues: str | None = None
    """The step that this one goes on with: its process was taken for dead, and its receipt is
    final.
    """
    entries: tuple[ReceiptEntry, ...] = ()
    texts_erased: bool = False
    """True if its name and the summaries of its entries were erased."""
    previous: str
    """Digest of the entry before it in the run's chain."""
    digest: str
    """Digest of this entry; the last one of a run is the head that you keep as the foil."""
    position: int
    """Place in the run's chain, counted from 0."""


class Foil(Record):
    """The half that you keep: head digest and length of a run's chain, signed if you have a key."""

    run_id: str
    count: int
    head: str
    signature: str | None = None
    """Ed25519 over the canonical form of `["tallystick/foil/v1", run_id, count, head]`, in
    hexadecimal.
    """
    signed_by: str | None = None
    """The public key, 32 bytes in hexadecimal."""


class VerificationProblem(Record):
    """A mismatch, and where it is."""

    where: str
    problem: str


class PurgedRun(Record):
    """The purged part of a run whose recording was past its window."""

    at: int
    """Time of the purge, microseconds UTC."""
    time = datetime_of("at")
    before: int
    """Moment before which recordings were purged, microseconds UTC."""
    entries: int
    """Number of purged entries of its chain; receipts are among them."""
    steps: int
    payloads: int
    head: str
    """Digest of the last of those entries: a foil that was taken at the end of the run still
    matches.
    """


class Verification(Record):
    """The result of `verify`: problems between stock and foil, and the limits of the proof."""

    run_id: str
    ok: bool
    receipts: int
    payloads_checked: int
    threads_checked: int = 0
    """Checkpoint threads in which its steps ran, each checked against its MAC, its digests and the
    journal.
    """
    payloads_absent: int
    """Payloads not kept by the retention mode, or erased since; the chain still has their
    commitments.
    """
    foil: Foil
    """Head and count as stored now; keep it elsewhere to catch truncation later."""
    foil_matches: bool | None = None
    """True if the foil that you gave matches; None if none was given."""
    signature_ok: bool | None = None
    """True if the signature on a bundle or a foil is that of its key; None if nothing is signed."""
    problems: tuple[VerificationProblem, ...] = ()
    gaps: dict[str, dict[str, int]] = {}
    """Number of events that could not be recorded, by where they are missing and by reason."""
    purged: PurgedRun | None = None
    """The part that retention removed; None if nothing is missing."""
    not_covered: tuple[str, ...] = ()
    """Fields that no chain covers."""
    texts_erased: tuple[str, ...] = ()
    """Entries of the chain whose texts were erased: the names, goal, metadata and summaries to
    which they commit.
    """
    cannot_prove: tuple[str, ...] = ()


class ReplayRecipe(Persisted):
    """Instructions to make a stored step again, exactly or with changes."""

    id: str = ""
    """Given by the replay, like the step that it is made for."""
    source_run_id: str = ""
    source_step_id: str = ""
    provider_override: str | None = None
    model_override: str | None = None
    token_budget: int | None = None
    response_reserve: int | None = None
    compile_overrides: CompileConfig | None = None
    score_weights: dict[str, int] = {}
    """Name of a score weight to its new value, in thousandths; the others stay as they were."""
    policy_rules: tuple[PolicyRule, ...] | None = None
    """Rules in place of those of the step; an empty list removes all."""
    context_mutations: dict[str, str | None] = {}
    """Item id to its new content, or to None to leave it out."""
    without_sources: tuple[str, ...] = ()
    """Ids of sources: memories that come from one of them are left out."""
    notes: str = ""

    @property
    def is_exact(self) -> bool:
        """True if nothing is changed."""
        changes = (
            self.provider_override,
            self.model_override,
            self.token_budget,
            self.response_reserve,
            self.compile_overrides,
            self.policy_rules,
        )
        return (
            all(change is None for change in changes)
            and not self.context_mutations
            and not self.without_sources
            and not self.score_weights
        )


class DecisionChange(Record):
    """One candidate whose decision differs between two compiles."""

    item_id: str
    before: CompilationDecision | None
    after: CompilationDecision | None


class CompileDiff(Record):
    """The differences between two compiles."""

    added: tuple[DecisionChange, ...] = ()
    """In now, out before."""
    removed: tuple[DecisionChange, ...] = ()
    """Out now, in before."""
    changed: tuple[DecisionChange, ...] = ()
    """In both, but compressed, redacted or for another reason."""
    rescored: tuple[DecisionChange, ...] = ()
    """In both and treated alike, with another score."""
    policy: tuple[DecisionChange, ...] = ()
    """In or out by another policy reason than before; those added or removed by it are listed above
    too.
    """
    unchanged: int = 0
    budget_before: int = 0
    budget_after: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    stable_prefix_changed: bool = False

    @property
    def is_empty(self) -> bool:
        """True if both compiles made the same choices."""
        return not (self.added or self.removed or self.changed or self.policy)


class ReplayResult(Record):
    """The outcome of a replay, and its comparison with the receipt."""

    recipe: ReplayRecipe
    fidelity: Fidelity
    request: Json
    """The request that was made again."""
    response: Json
    """The new answer of the model; None if no model was given."""
    request_matches: bool | None
    """True if the request equals the one in the receipt; None for a mutated replay."""
    response_matches: bool | None
    """True if the answer equals the recorded one; None if no model was given."""
    response_diff: tuple[str, ...] = ()
    """The differences of the answer from the recorded one, as the lines of a unified diff."""
    diff: CompileDiff | None = None
    """For a mutated replay: the differences of the context."""
    prompt_diff: tuple[str, ...] = ()
    """For a mutated replay: the differences of the prompt, as the lines of a unified diff."""
    warnings: tuple[str, ...] = ()
    run_id: str | None = None
    """The run in which the replay itself was recorded, if it was."""
    step_id: str | None = None


class TapeCall(Record):
    """One recorded call: its request and its answer."""

    step_id: str
    kind: Literal["model_call", "tool_call"]
    name: str | None = None
    request: Json
    response: Json = None
    error: dict[str, str] | None = None
    """`type` and `message` of the error, if the call failed."""
    redacted: bool = False
    """True if secrets were redacted from the request before it was stored."""
    blocked: bool = False
    """True if the call was not made, because it waits for a person."""
    chunks: int | None = None
    """Number of chunks of the answer, if it was recorded as a stream."""
    inside: str | None = None
    """The step of the tool call that made this call, such as of an agent that is a tool; both are
    played together.
    """


class Tape(Persisted):
    """The calls of a run in the order in which they began. A file of JSON that a test can keep."""

    run_id: str
    agent_name: str
    retention: Retention
    calls: tuple[TapeCall, ...]

    @property
    def fidelity(self) -> Fidelity:
        """`exact` if no request was redacted, else `exact_redacted`."""
        return "exact_redacted" if any(call.redacted for call in self.calls) else "exact"


class Divergence(Record):
    """The first place where an agent left its tape."""

    step_id: str | None
    """The recorded step; None if the agent made more calls than were recorded."""
    what: str
    """One sentence that names the call, and the part of its request that differs."""
    diff: tuple[str, ...] = ()
    """Lines of a unified diff from the recorded request to the one that was made."""


class TapeReport(Record):
    """The progress of an agent along its tape."""

    fidelity: Fidelity
    calls: int
    played: int
    divergence: Divergence | None = None

    @property
    def matches(self) -> bool:
        """True if every request was the recorded one, and all of them were made."""
        return self.divergence is None and self.played == self.calls


class ContextCandidate(Record):
    """One candidate of a step's context, with its decision and its text."""

    item_id: str
    decision: CompilationDecision
    says: str | None = None
    """The text as the model got it, or would have got it; None where policy withheld it."""
    memory_id: str | None = None
    """The id of the memory, if the candidate is one."""
    source_ids: tuple[str, ...] = ()
    """The raw sources that the memory was derived from."""
    source: SourceRef | None = None
    """The origin that the caller stated."""


class Provenance(Record):
    """The origin of a sentence of a context."""

    item_id: str
    quote: str
    """The sentence with the words around it in the item."""
    memory_id: str | None = None
    source_id: str | None = None
    source: SourceRef | None = None
    raw: str | None = None
    """The source exactly as it arrived; None if the tally has none, or the actor may not read it.
    """


class RecordedWrite(Record):
    """One change of memory that a step made."""

    step_id: str
    memory_id: str
    event: str
    by: JsonObject
    """The ids of the actor."""
    at: int
    """Microseconds UTC."""
    time = datetime_of("at")


class MemoryUse(Record):
    """One step that recalled, saw, left out or wrote a memory."""

    step: StepRecord
    how: tuple[str, ...]
    """`recalled`, `in_context`, `left_out`, `written`, in the order in which they happened."""


class StepDiff(Record):
    """The differences of two steps: of their contexts, requests and answers."""

    before: str
    """Id of the step."""
    after: str
    compile: CompileDiff | None = None
    """None where one of them compiled nothing or kept nothing."""
    request: tuple[str, ...] = ()
    """Lines of a unified diff of the requests."""
    response: tuple[str, ...] = ()
    """The same of the answers."""
    compaction: tuple[str, ...] = ()
    """Turns that left the history between the two."""
    notes: tuple[str, ...] = ()
    """Parts that could not be compared, and why."""

    @property
    def is_empty(self) -> bool:
        """True if nothing differs that could be compared."""
        compiled = self.compile
        same = compiled is None or (
            compiled.is_empty
            and not compiled.rescored
            and compiled.budget_before == compiled.budget_after
        )
        return same and not (self.request or self.response or self.compaction)


class JournalEntry(Persisted):
    """Ids, counts, digests and reason codes; never a private body."""

    sequence: int
    """Place in the whole journal; the only order there is."""
    audit_id: str
    stream: str
    """`scope:…`, `run:…` or `thread:…`; each is one hash chain."""
    position: int
    """Place in the stream, counted from 0."""
    event: str
    at: int
    """Microseconds UTC."""
    time = datetime_of("at")
    actor: JsonObject
    surface: str
    reason: str | None = None
    correlation_id: str | None = None
    request_id: str | None = None
    session_id: str | None = None
    texts: str | None = None
    """The commitment to what people wrote: `reason`, `request_id`, `session_id` and such `details`.
    """
    row_texts: str | None = None
    """The commitment to names, goal, metadata and summaries, which are in the rows of a run or
    step.
    """
    texts_erased: bool = False
    """True if what it commits to was erased: the texts are None, or missing from `details`."""
    subject_id: str | None = None
    """The record that it is about."""
    details: JsonObject = {}
    previous: str
    digest: str
