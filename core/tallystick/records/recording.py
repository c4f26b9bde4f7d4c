"""What the recorder keeps: RunRecord, StepRecord, Receipt, and what verifying and replaying
return.
"""

from __future__ import annotations

from typing import Literal

from tallystick.records._base import Json, JsonObject, Persisted, Record
from tallystick.records.context import CompilationDecision, CompileConfig
from tallystick.records.identity import Scope
from tallystick.records.policy import PolicyRule

__all__ = [
    "CompileDiff",
    "DecisionChange",
    "EntryKind",
    "Fidelity",
    "Foil",
    "PurgedRun",
    "Receipt",
    "ReceiptEntry",
    "ReplayRecipe",
    "ReplayResult",
    "Retention",
    "RunRecord",
    "StepEntry",
    "StepKind",
    "StepRecord",
    "StepStatus",
    "Verification",
    "VerificationProblem",
]

StepKind = Literal[
    "model_call", "tool_call", "memory_write", "policy_check", "human_approval", "other"
]
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
]


class RunRecord(Persisted):
    """An agent run."""

    run_id: str
    scope: Scope
    agent_name: str
    domain: str | None = None
    user_goal: str | None = None
    started_at: int
    """Microseconds UTC."""
    ended_at: int | None = None
    status: StepStatus = "running"
    retention: Retention = "redacted_payloads"
    metadata: JsonObject = {}
    gaps: int = 0
    """Events that could not be recorded, counted when the run ends."""


class StepRecord(Persisted):
    """One model call, tool call, memory write, policy check or approval in a run."""

    step_id: str
    run_id: str
    step_index: int
    """Counted from 0 in the order in which steps started."""
    step_kind: StepKind
    name: str | None = None
    parent_step_id: str | None = None
    started_at: int
    """Microseconds UTC."""
    ended_at: int | None = None
    status: StepStatus = "running"
    metadata: JsonObject = {}


class StepEntry(Record):
    """One thing recorded in a step, with its payload while that is kept."""

    entry_id: str
    step_id: str
    position: int
    """Counted from 0 within the step."""
    kind: EntryKind
    at: int
    commitment: str
    """Salted digest of the stored payload bytes; empty where none were stored."""
    payload: Json = None
    """None when the retention mode kept none or it was erased; see `payload_state`."""
    payload_state: Literal["kept", "redacted", "not_kept", "erased"] = "kept"
    redactions: dict[str, int] = {}
    """Kind of secret to how many were replaced before storing."""
    summary: JsonObject = {}
    """What its receipt says of it, which stays when the payload goes."""


class ReceiptEntry(Record):
    """What a receipt says of one entry: never its content."""

    kind: EntryKind
    commitment: str = ""
    """To the payload, where one is kept."""
    payload_state: Literal["kept", "redacted", "not_kept"]
    redactions: dict[str, int] = {}
    summary: JsonObject = {}
    """Ids, counts and reason codes: which items went in, which memories were read, which model was
    asked.
    """


class Receipt(Persisted):
    """The record that answers for a step. It is an entry of the run's chain in the journal."""

    step_id: str
    run_id: str
    step_index: int
    step_kind: StepKind
    name: str | None = None
    status: StepStatus
    started_at: int
    ended_at: int
    retention: Retention
    token_method: str = "not counted"
    """How tokens were counted in this step; see TokenCounter.method."""
    entries: tuple[ReceiptEntry, ...] = ()
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
    """One thing that does not match, and where."""

    where: str
    problem: str


class PurgedRun(Record):
    """What went of a run whose recording was past its window."""

    at: int
    """When, microseconds UTC."""
    before: int
    """What was older than this moment went."""
    entries: int
    """Of its chain; receipts are among them."""
    steps: int
    payloads: int
    head: str
    """Digest of the last of those entries: a foil that was taken at the end of the run still
    matches.
    """


class Verification(Record):
    """The answer of `verify`: whether stock and foil match, and what that cannot prove."""

    run_id: str
    ok: bool
    receipts: int
    payloads_checked: int
    threads_checked: int = 0
    """Checkpoint threads in which its steps ran, each held against its code, its digests and the
    journal.
    """
    payloads_absent: int
    """Not kept by the retention mode, or erased since; their commitments still stand in the chain.
    """
    foil: Foil
    """Head and count as stored now; keep it elsewhere to catch truncation later."""
    foil_matches: bool | None = None
    """Whether the foil you gave matches; None when none was given."""
    signature_ok: bool | None = None
    """Whether the signature on a bundle or a foil is that of its key; None when nothing is signed.
    """
    problems: tuple[VerificationProblem, ...] = ()
    gaps: dict[str, dict[str, int]] = {}
    """What happened and could not be recorded: where it is missing, to the reasons and how often.
    """
    purged: PurgedRun | None = None
    """What went with retention; None where all is there."""
    not_covered: tuple[str, ...] = ()
    """Fields that no chain covers."""
    cannot_prove: tuple[str, ...] = ()


class ReplayRecipe(Persisted):
    """How to make a stored step again, exactly or with changes."""

    replay_id: str
    source_run_id: str
    source_step_id: str
    provider_override: str | None = None
    model_override: str | None = None
    token_budget: int | None = None
    response_reserve: int | None = None
    compile_overrides: CompileConfig | None = None
    policy_rules: tuple[PolicyRule, ...] | None = None
    """Rules in place of those of the step; an empty list takes all away."""
    context_mutations: dict[str, str | None] = {}
    """Item id to its new content, or to None to leave it out."""
    without_sources: tuple[str, ...] = ()
    """Ids of sources: memories that come from one of them are left out."""
    notes: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether nothing is changed."""
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
        )


class DecisionChange(Record):
    """One candidate whose fate differs between two compiles."""

    item_id: str
    before: CompilationDecision | None
    after: CompilationDecision | None


class CompileDiff(Record):
    """How two compiles differ."""

    added: tuple[DecisionChange, ...] = ()
    """In now, out before."""
    removed: tuple[DecisionChange, ...] = ()
    """Out now, in before."""
    changed: tuple[DecisionChange, ...] = ()
    """In both, but compressed, redacted or reasoned otherwise."""
    rescored: tuple[DecisionChange, ...] = ()
    """In both and treated alike, with another score."""
    policy: tuple[DecisionChange, ...] = ()
    """In or out, by another reason of policy than before; those that came or left by it stand above
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
        """Whether both compiles chose alike."""
        return not (self.added or self.removed or self.changed or self.policy)


class ReplayResult(Record):
    """What a replay did and how it compares with the receipt."""

    recipe: ReplayRecipe
    fidelity: Fidelity
    request: Json
    """The request that was made again."""
    response: Json
    """What the model answered now; None when no model was given."""
    request_matches: bool | None
    """Whether the request equals the one in the receipt; None for a mutated replay."""
    response_matches: bool | None
    """Whether the answer equals the recorded one; None when no model was given."""
    diff: CompileDiff | None = None
    """For a mutated replay: how the context differs."""
    prompt_diff: tuple[str, ...] = ()
    """For a mutated replay: how the prompt differs, as the lines of a unified diff."""
    warnings: tuple[str, ...] = ()
    run_id: str | None = None
    """The run in which the replay itself was recorded, if it was."""
    step_id: str | None = None
