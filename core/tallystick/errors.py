"""Every error Tallystick raises, as one tree.

TallystickError
├── InvalidInput              a value cannot be used as given
│   ├── UnknownName           a verb that another memory has; also an AttributeError
│   ├── UnknownArgument       an argument that another memory takes; also a TypeError
│   ├── InvalidRecord         a record or its attributes do not validate
│   ├── InvalidScope          a scope is not one of the known forms
│   └── IdempotencyMismatch   a key was used before with other arguments
├── SettingsError             configuration is missing or contradicts itself
├── MissingExtra              an optional package is needed; the message holds the install command
├── StorageError
│   ├── TallyNotFound         there is no tally at this place and none may be made
│   ├── NewerTally            the tally was written by a newer release
│   ├── UnreleasedTally       the tally was made by a commit before 0.1.0
│   ├── ClosedTally           the tally was closed
│   ├── ForkedTally           this process inherited the tally from its parent
│   ├── BusyTally             another writer held the database for too long
│   ├── ReadOnlyTally         the tally can be read here and not written; carries why
│   ├── CorruptTally          stored bytes do not match what was written
│   ├── BlockedType           stored state names a class that may not be built
│   └── InsideTransaction     a model or embedder was about to be called inside a write
├── NotFound                  no such record in the scopes of this actor
├── Unreachable               a server of ours did not answer, or what answered is none
├── Unauthenticated           a caller over a network sent no access token that is good
├── Denied                    policy refused; carries the decision and its reason code
│   └── RateLimited           the actor called too often; carries after how long it may call again
├── Conflict
│   ├── VersionConflict       the record changed since it was read; carries both versions
│   ├── StateConflict         the record's state does not allow this change
│   └── PositionTaken         another turn stands at this place of the conversation
├── EmbeddingError            the embedder is away: what waits for it is tried until it is back
│   ├── EmbedderUnavailable   the embedder's package or weights are not there
│   ├── EmbedderFailed        the embedder raised an error of its own, or was too slow
│   ├── TextRefused           the embedder will not take this text, now or later
│   └── UnusableVectors       the embedder answered, but not with one usable vector per text
│       └── DimensionMismatch     vectors of two sizes; names both sides
├── ExtractionError           extraction, a decision or a summary failed: no usable answer came
│   ├── ModelUnavailable      its model is away: what waits for it is tried until it is back
│   │   └── CredentialRefused a model or embedder refused the key: it counts as away
│   ├── ModelFailed           the model raised an error of its own, or was too slow
│   ├── ModelRefused          the model will not take this text, now or later
│   ├── EgressDenied          the text may not leave for this model: consent is missing
│   └── BudgetSpent           the budget of extraction is used up; carries which limit
├── LeaseLost                 a worker no longer holds its job: it ran out, or was cancelled
├── Blocked                   a rule stopped an action before it happened
│   ├── ActionDenied          a rule or a person denied it, or what the rule requires is missing
│   ├── ApprovalRequired      a rule wants an approval of a person; carries the approvals
│   └── TokenRefused          the token of an approval is not good for this action
├── CompileError
│   ├── RequestDenied         policy denies the latest request, so that there is nothing to answer
│   ├── BudgetInfeasible      required items alone exceed the budget; lists them
│   └── InvalidContext        items contradict one another (unpaired tool call, cycle, …)
└── RecorderError
    ├── RunClosed             the run or step has ended
    ├── NotReplayable         the retention mode kept too little to replay
    ├── TapeDiverged          an agent that plays a tape asked for something else; carries the diff
    └── RecordedFailure       the call failed when it was recorded, and so on its tape

The message is for people. For programs each class has a stable `code`, and `facts()` has what they
need as JSON: ids, versions, counts and reason codes, never text that somebody stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, Protocol

from tallystick.remedies import REMEDIES, TOKEN_REMEDIES

__all__ = [
    "ActionDenied",
    "ApprovalRequired",
    "Blocked",
    "BlockedType",
    "BudgetInfeasible",
    "BudgetSpent",
    "BusyTally",
    "ClosedTally",
    "CompileError",
    "Conflict",
    "CorruptTally",
    "CredentialRefused",
    "Denied",
    "DimensionMismatch",
    "EgressDenied",
    "EmbedderFailed",
    "EmbedderUnavailable",
    "EmbeddingError",
    "ExtractionError",
    "ForkedTally",
    "IdempotencyMismatch",
    "InsideTransaction",
    "InvalidContext",
    "InvalidInput",
    "InvalidRecord",
    "InvalidScope",
    "LeaseLost",
    "MissingExtra",
    "ModelFailed",
    "ModelRefused",
    "ModelUnavailable",
    "NewerTally",
    "NotFound",
    "NotReplayable",
    "PositionTaken",
    "RateLimited",
    "ReadOnlyTally",
    "RecordedFailure",
    "RecorderError",
    "RequestDenied",
    "RunClosed",
    "SettingsError",
    "StateConflict",
    "StorageError",
    "TallyNotFound",
    "TallystickError",
    "TapeDiverged",
    "TextRefused",
    "TokenRefused",
    "Unauthenticated",
    "UnknownArgument",
    "UnknownName",
    "Unreachable",
    "UnreleasedTally",
    "UnusableVectors",
    "VersionConflict",
]


class Decision(Protocol):
    """The parts of an access decision that a refusal needs; see `records.AccessDecision`."""

    @property
    def reason(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def scope(self) -> object: ...
    @property
    def surface(self) -> str: ...
    @property
    def audit_id(self) -> str | None: ...


class StoredApproval(Protocol):
    """The parts of an approval that its error needs; see `records.Approval`."""

    @property
    def id(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def arguments(self) -> Any: ...
    @property
    def state(self) -> str: ...
    @property
    def rule_id(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def run_id(self) -> str | None: ...
    @property
    def step_id(self) -> str | None: ...


_NAMED = re.compile(r"`([a-z_]+)`")


Retry = Literal["until_back", "some_times", "never"]
"""A job that meets an error is tried again until what was away is back, some times, or never."""


class TallystickError(Exception):
    """Something in Tallystick failed. Catch this to catch everything below."""

    code: ClassVar[str] = "tallystick_error"
    """The stable name of this error for programs, logs and other languages."""
    retry: Retry = "some_times"
    """What becomes of a job that meets this error."""
    needs_proof: bool = False
    """True if its text is to blame only once the provider has answered for another text since."""
    end_state: ClassVar[Literal["failed", "dead"]] = "failed"
    """The state in which a job ends that is not tried again after this error."""
    _facts: ClassVar[tuple[str, ...]] = ()
    """Attributes that `facts` returns."""

    def facts(self) -> dict[str, Any]:
        """Return what a program needs as JSON values: no text that somebody stored."""
        return {name: _plain(getattr(self, name)) for name in self._facts}

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or type(self).__name__).strip())


class InvalidInput(TallystickError):
    """A value cannot be used as given; nothing was stored. Correct the argument and call again."""

    code = "invalid_input"
    _facts = ("argument",)

    def __init__(self, message: str | None = None, *, argument: str | None = None) -> None:
        begins = _NAMED.match(message or "")
        self.argument = argument or (begins and begins[1])
        """The name of the argument or field, where it is a single one: given, or the name in
        backquotes with which the message begins.
        """
        super().__init__(message)


class UnknownName(InvalidInput, AttributeError):
    """This object has no verb of that name. The message names the one that does the same."""

    code = "unknown_name"


class UnknownArgument(InvalidInput, TypeError):
    """This verb has no argument of that name. The message says how it is written."""

    code = "unknown_argument"


class InvalidRecord(InvalidInput):
    """A record or its attributes do not validate; nothing was stored. The message names each
    field.
    """

    code = "invalid_record"


class InvalidScope(InvalidInput):
    """A scope must read like `private:alice`, `project:apollo` or `public`."""

    code = "invalid_scope"


class IdempotencyMismatch(InvalidInput):
    """This idempotency key was used before with other arguments. Use a new key for a new
    request.
    """

    code = "idempotency_mismatch"


class SettingsError(TallystickError):
    """Configuration is missing or contradicts itself. The message names the setting."""

    code = "settings_error"


class MissingExtra(TallystickError, ImportError):
    """An optional package is needed. Install the extra that the message names."""

    code = "missing_extra"
    _facts = ("package", "extra")

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{package} is not installed. Run: pip install 'tallystick[{extra}]'")


class StorageError(TallystickError):
    """The store could not do what was asked. Nothing was half written."""

    code = "storage_error"


class TallyNotFound(StorageError):
    """There is no tally at this place. Give the folder of an existing one, or let `Tally.open` make
    it.
    """

    code = "tally_not_found"


class NewerTally(StorageError):
    """This tally was written by a newer release of Tallystick. Upgrade to open it; nothing was
    changed.
    """

    code = "newer_tally"
    _facts = ("schema", "supported")

    def __init__(self, schema: str, *, supported: str) -> None:
        self.schema = schema
        self.supported = supported
        super().__init__(
            f"This tally has schema {schema}, which this release (schema {supported}) does not "
            "know. Upgrade tallystick to open it; nothing was changed."
        )


class UnreleasedTally(StorageError):
    """This tally was made by a commit of Tallystick before 0.1.0, whose schema was never released.
    Open it with that commit, or make a new tally; nothing was changed.
    """

    code = "unreleased_tally"
    _facts = ("schema", "supported")

    def __init__(self, schema: str, *, supported: str) -> None:
        self.schema = schema
        self.supported = supported
        super().__init__(
            f"This was made by a commit of Tallystick before 0.1.0: its schema {schema} was never "
            f"released, and this one reads {supported}. Nothing was changed. Open it with that "
            "commit, or make a new tally."
        )


class ClosedTally(StorageError):
    """This tally was closed. Open it again with `Tally.open`."""

    code = "closed_tally"


class ForkedTally(StorageError):
    """This process inherited the tally from its parent by fork. Open your own with `Tally.open`."""

    code = "forked_tally"


class BusyTally(StorageError):
    """Another writer held the database for longer than `busy_timeout_ms`. Nothing was written; try
    again.
    """

    code = "busy_tally"


UnwritableReason = Literal["disk_full", "read_only", "no_permission", "write_failed"]
"""Why a tally cannot be written."""
_UNWRITABLE: Mapping[UnwritableReason, str] = {
    "disk_full": "The disk is full. Free some space, and call again or open the tally anew.",
    "read_only": "The tally is on a read-only disk or server. Open it where it can be written.",
    "no_permission": "This process may not write the tally's files. Give it write permission to "
    "the folder and to all files in it.",
    "write_failed": "The system refused to write the tally's files. Look at the disk, quotas and "
    "limits of this process.",
}


class ReadOnlyTally(StorageError):
    """This tally can be read here and not written. Nothing was written; `reason` says why."""

    code = "read_only_tally"
    retry = "until_back"
    _facts = ("reason",)

    def __init__(self, reason: UnwritableReason = "write_failed", message: str = "") -> None:
        self.reason: UnwritableReason = reason
        self.cause = _UNWRITABLE[reason]
        """Why it cannot be written, and what to do."""
        super().__init__(f"{message or 'Nothing was written.'} {self.cause}")


class CorruptTally(StorageError):
    """Stored bytes do not match what was written. Run `tally verify` to see where."""

    code = "corrupt_tally"


class BlockedType(StorageError):
    """Stored state names a class that may not be built. If it is yours, allow it where the saver is
    made.
    """

    code = "blocked_type"
    _facts = ("module", "name")

    def __init__(self, module: str, name: str, *, where: str = "") -> None:
        self.module = module
        self.name = name
        self.where = where
        super().__init__(
            f"Stored state{where and f' ({where})'} holds {module}.{name}, which may not be built. "
            f"If it is a type of yours, allow it: TallySaver(tally, allow=[{name}])."
        )


class InsideTransaction(StorageError):
    """A model or embedder was about to be called inside a write transaction. Call it before the
    write.
    """

    code = "inside_transaction"


class NotFound(TallystickError):
    """No such record in the scopes of this actor."""

    code = "not_found"


class Denied(TallystickError):
    """Policy refused. `decision.reason` is the stable reason code."""

    code = "denied"

    def __init__(self, decision: Decision, message: str | None = None) -> None:
        self.decision = decision
        refusal = (
            f"{decision.operation} in {decision.scope or 'no scope'} was refused: {decision.reason}"
        )
        remedy = REMEDIES.get(decision.reason)
        super().__init__(message or (refusal if remedy is None else f"{refusal}. {remedy}"))

    def facts(self) -> dict[str, Any]:
        """Return the decision."""
        decision = self.decision
        return {
            "reason": decision.reason,
            "operation": decision.operation,
            "scope": None if decision.scope is None else str(decision.scope),
            "surface": decision.surface,
            "audit_id": decision.audit_id,
        }

    @property
    def reason(self) -> str:
        """The stable reason code."""
        return self.decision.reason


class Unreachable(TallystickError):
    """The server of a tally did not answer, or what answered is none of ours.

    Whether a change was made is not known: send it again with the same idempotency key.
    """

    code = "unreachable"


class Unauthenticated(TallystickError):
    """The caller over a network sent no access token, or one that is not good.

    A token that never was, that has run out or that was revoked are told apart for nobody.
    """

    code = "unauthenticated"

    def __init__(self) -> None:
        super().__init__(
            "Send a good access token, as in `Authorization: Bearer tally_…`. Whoever operates the "
            "tally makes one with `tally token make`."
        )


class RateLimited(Denied):
    """This actor called more often than the tally allows. Try again after `retry_after` seconds."""

    code = "rate_limited"

    def __init__(self, decision: Decision, *, retry_after_us: int) -> None:
        self.retry_after = -(-retry_after_us // 1_000_000)
        """Seconds, rounded up."""
        super().__init__(
            decision,
            f"{decision.operation} was refused: {decision.reason}. Try again in "
            f"{self.retry_after} s.",
        )

    def facts(self) -> dict[str, Any]:
        """Return the decision, and when to try again."""
        return {**super().facts(), "retry_after": self.retry_after}


class Conflict(TallystickError):
    """The change does not fit what is stored now. Nothing was changed."""

    code = "conflict"


class VersionConflict(Conflict):
    """The record changed since it was read. Read it again and decide anew."""

    code = "version_conflict"
    _facts = ("memory_id", "expected", "actual")

    reason = "version_conflict"

    def __init__(self, memory_id: str, *, expected: int, actual: int) -> None:
        self.memory_id = memory_id
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"Memory {memory_id} is at version {actual}, not {expected}. Read it again and "
            f"decide anew."
        )


class StateConflict(Conflict):
    """The record's state does not allow this change."""

    code = "state_conflict"
    _facts = ("memory_id", "state", "reason")

    def __init__(
        self, memory_id: str, *, state: str, reason: str, hint: str = "", what: str = "Memory"
    ) -> None:
        self.memory_id = memory_id
        self.state = state
        self.reason = reason
        super().__init__(f"{what} {memory_id} is {state}: {reason}.{' ' + hint if hint else ''}")


class PositionTaken(Conflict):
    """Another turn stands at this place of the conversation. Leave `position` out to append."""

    code = "position_taken"
    _facts = ("conversation", "position", "memory_id")

    def __init__(self, conversation: str, position: int, memory_id: str) -> None:
        self.conversation = conversation
        self.position = position
        self.memory_id = memory_id
        super().__init__(
            f"Conversation {conversation!r} holds another turn ({memory_id}) at position "
            f"{position}. "
            "Leave `position` out to append, or modify that turn."
        )


class EmbeddingError(TallystickError):
    """Text could not be embedded. What was remembered stays recallable by its words.

    A job that meets it is tried again until the embedder answers, however long that takes.
    """

    code = "embedding_error"
    retry: Retry = "until_back"


class EmbedderUnavailable(EmbeddingError):
    """The embedder's package or weights are not there. The message says what to install."""

    code = "embedder_unavailable"


class EmbedderFailed(EmbeddingError):
    """The embedder raised an error of its own, or did not answer in time. Look at the text and at
    the embedder, then retry the job.
    """

    code = "embedder_failed"
    retry = "some_times"
    end_state = "dead"

    def __init__(self, message: str | None = None, *, timed_out: bool = False) -> None:
        self.needs_proof = timed_out
        super().__init__(message)


class TextRefused(EmbeddingError):
    """The embedder will not take this text, now or later: it is too long, or forbidden there."""

    code = "text_refused"
    retry = "never"
    needs_proof = True
    end_state = "dead"


class UnusableVectors(EmbeddingError):
    """The embedder answered, but not with one usable vector for each text."""

    code = "unusable_vectors"
    retry = "some_times"


class DimensionMismatch(UnusableVectors):
    """Vectors of two sizes cannot be compared."""

    code = "dimension_mismatch"
    _facts = ("name", "expected", "got")

    def __init__(self, *, name: str, expected: int, got: int) -> None:
        self.name = name
        self.expected = expected
        self.got = got
        super().__init__(
            f"Embedder {name} returned {got} dimensions where {expected} were expected."
        )


class ExtractionError(TallystickError):
    """Extraction, a decision or a summary failed: no usable answer came, and nothing was concluded.

    The text itself stays recallable. A job that meets it is tried again some times, and is then
    `failed`.
    """

    code = "extraction_error"


class ModelUnavailable(ExtractionError):
    """The model is away. What waits for it is tried again until it is back."""

    code = "model_unavailable"
    retry: Retry = "until_back"


class CredentialRefused(ModelUnavailable, EmbeddingError):
    """A model or an embedder refused the key that it was given. Mend the key: what waits for it
    goes on then.
    """

    code = "credential_refused"


class ModelFailed(ExtractionError):
    """The model raised an error of its own, or did not answer in time. Look at the text and at the
    model, then retry the job.
    """

    code = "model_failed"
    end_state = "dead"

    def __init__(self, message: str | None = None, *, timed_out: bool = False) -> None:
        self.needs_proof = timed_out
        super().__init__(message)


class ModelRefused(ExtractionError):
    """The model will not take this text, now or later: it is too long, or a filter stopped it."""

    code = "model_refused"
    retry = "never"
    needs_proof = True
    end_state = "dead"


class EgressDenied(ExtractionError):
    """The text may not leave for this model. Pass the model in code, add its name to
    `learning_allow`, or use a local one.
    """

    code = "egress_denied"
    retry = "never"


class BudgetSpent(ExtractionError):
    """A budget of extraction is used up. What waits for a day's goes on when the day is over; where
    a job used up its own, raise the limit and retry the job.
    """

    code = "budget_spent"
    _facts = ("limit", "spent", "allowed")

    def __init__(self, limit: str, *, spent: int, allowed: int) -> None:
        self.limit, self.spent, self.allowed = limit, spent, allowed
        self.holds = next(each for each in ("job", "scope", "day") if f"_per_{each}" in limit)
        """What is held back: one job, a scope, or for the budget of a day everything."""
        self.retry = "never" if self.holds == "job" else "until_back"
        super().__init__(
            f"The budget `{limit}` is used up: {spent} of {allowed}. Raise the setting, or wait "
            f"for the next day; what was remembered stays recallable."
        )


class LeaseLost(TallystickError):
    """A worker no longer holds its job: the lease ran out, or the job was cancelled. Nothing was
    stored.
    """

    code = "lease_lost"


class Blocked(TallystickError):
    """A rule stopped an action before it happened. No tool ran and nothing was sent."""

    code = "blocked"


class ActionDenied(Blocked):
    """A rule or a person denied an action, or what the rule requires is missing.

    `reason` is `denied_by_rule`, `denied_by_person`, `receipt_required` or `not_enforced`.
    """

    code = "action_denied"
    _facts = ("action", "subject", "rule_id", "reason", "approval_id")

    def __init__(
        self,
        action: str,
        subject: str,
        *,
        rule_id: str,
        reason: str,
        why: str,
        approval_id: str | None = None,
    ) -> None:
        self.action = action
        self.subject = subject
        """The name of the tool or model, or the ids of items."""
        self.rule_id = rule_id
        self.reason = reason
        """The stable reason code."""
        self.approval_id = approval_id
        super().__init__(f"{action} {subject} was stopped by rule {rule_id}: {why}")


class ApprovalRequired(Blocked):
    """A rule wants an approval of a person first. Nothing happened; the step is blocked."""

    code = "approval_required"

    def __init__(
        self, approvals: Sequence[StoredApproval], *, new: frozenset[str] = frozenset()
    ) -> None:
        self.approvals = tuple(approvals)
        """The approvals that are waited for: `records.Approval`."""
        self.new = new
        """Ids of those that nobody had been asked for before this call: an answer that the call
        brings along was given to something else.
        """
        listed = "; ".join(
            f"{approval.action} {approval.subject} (rule {approval.rule_id}: {approval.reason}), "
            f"approval {approval.id}"
            for approval in self.approvals
        )
        super().__init__(
            f"An approval is required: {listed}. Once a person has granted it "
            "(bound.approvals.approve, or `tally approve` at a terminal), do exactly the same "
            "again."
        )

    def facts(self) -> dict[str, Any]:
        """Return the approvals: id, action, subject and rule."""
        approvals = [
            {
                "id": approval.id,
                "action": approval.action,
                "subject": approval.subject,
                "rule_id": approval.rule_id,
            }
            for approval in self.approvals
        ]
        return {"approvals": approvals}


class TokenRefused(Blocked):
    """The token of an approval is not good for this action, which did not happen.

    `reason` is `token_foreign` (of other arguments, another actor or another scope),
    `token_expired`, `token_revoked` or `token_used`.
    """

    code = "token_refused"
    _facts = ("reason", "approval_id")

    def __init__(self, reason: str, *, approval_id: str | None = None) -> None:
        self.reason = reason
        """The stable reason code."""
        self.approval_id = approval_id
        super().__init__(f"The approval token was refused: {reason}. {TOKEN_REMEDIES[reason]}")


class CompileError(TallystickError):
    """The context could not be compiled. No model was called."""

    code = "compile_error"


class RequestDenied(CompileError):
    """Policy denies the latest request of the user, so nothing was compiled: without it a model
    would answer something else. Correct the rule, or leave the request out yourself.
    """

    code = "request_denied"
    _facts = ("item_id", "rule_id")

    def __init__(self, item_id: str, *, why: str, rule_id: str | None = None) -> None:
        self.item_id = item_id
        self.rule_id = rule_id
        super().__init__(
            f"The latest request ({item_id}) may not be sent: {why}. Nothing was compiled. Correct "
            "the rule, or leave the request out of the candidates."
        )


class BudgetInfeasible(CompileError):
    """Required items alone exceed the budget. Raise the budget or shorten what `required` lists."""

    code = "budget_infeasible"
    _facts = ("budget", "required")

    def __init__(self, *, budget: int, required: Mapping[str, int]) -> None:
        self.budget = budget
        self.required = dict(required)
        listed = ", ".join(f"{item} ({tokens})" for item, tokens in self.required.items())
        super().__init__(
            f"Required items need {sum(self.required.values())} tokens and the budget leaves "
            f"{budget}: {listed}. "
            "Raise the budget, lower `response_reserve`, or shorten these items."
        )


class InvalidContext(CompileError):
    """The items contradict one another; the request would be refused by a provider."""

    code = "invalid_context"
    _facts = ("item_ids",)

    def __init__(self, message: str, *, item_ids: Sequence[str] = ()) -> None:
        self.item_ids = tuple(item_ids)
        super().__init__(message)


class RecorderError(TallystickError):
    """The recorder could not do what was asked. What was acknowledged is kept."""

    code = "recorder_error"


class RunClosed(RecorderError):
    """The run or step has ended; nothing can be added to it. Start a new one."""

    code = "run_closed"


class NotReplayable(RecorderError):
    """The retention mode kept too little to replay this step."""

    code = "not_replayable"
    _facts = ("step_id", "retention")

    def __init__(
        self, step_id: str, *, retention: str, missing: str, hint: str | None = None
    ) -> None:
        self.step_id = step_id
        self.retention = retention
        self.missing = missing
        advice = hint or "Record with retention='redacted_payloads' or 'full_payloads'."
        super().__init__(
            f"Step {step_id} cannot be replayed: {missing} (retention {retention}). {advice}"
        )


class TapeDiverged(RecorderError):
    """An agent that plays a tape asked for something else than was recorded. The diff says what."""

    code = "tape_diverged"
    _facts = ("step_id",)

    def __init__(self, what: str, *, step_id: str | None, diff: Sequence[str] = ()) -> None:
        self.what = what
        self.step_id = step_id
        self.diff = tuple(diff)
        super().__init__("\n".join([f"The agent left its tape: {what}.", *self.diff]))


class RecordedFailure(RecorderError):
    """The call failed when it was recorded, and so it fails when the tape is played.

    It is raised as the class that was recorded too, where that is known, so that retries and
    handlers take it.
    """

    code = "recorded_failure"
    _facts = ("kind",)

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        # Not by way of `super`: beside this class may stand one whose constructor takes other
        # arguments.
        Exception.__init__(self, message)

    def __str__(self) -> str:
        return self.message


def require(package: str, *, extra: str) -> None:
    """Raise MissingExtra unless `package` is installed; the first line of every adapter."""
    with suppress(ModuleNotFoundError):
        if find_spec(package) is not None:
            return
    raise MissingExtra(package, extra)


def _plain(value: Any) -> Any:
    """Return a fact as JSON values."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)
