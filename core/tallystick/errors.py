"""Every error Tallystick raises, as one tree.

TallystickError
├── InvalidInput              a value cannot be used as given
│   ├── InvalidRecord         a record or its attributes do not validate
│   ├── InvalidScope          a scope is not one of the known forms
│   └── IdempotencyMismatch   a key was used before with other arguments
├── SettingsError             configuration is missing or contradicts itself
├── MissingExtra              an optional package is needed; the message holds the install command
├── StorageError
│   ├── TallyNotFound         there is no tally at this place and none may be made
│   ├── NewerTally            the tally was written by a newer release
│   ├── ClosedTally           the tally was closed
│   ├── ForkedTally           this process inherited the tally from its parent
│   ├── BusyTally             another writer held the database for too long
│   ├── CorruptTally          stored bytes do not match what was written
│   ├── BlockedType           stored state names a class that may not be built
│   └── InsideTransaction     a model or embedder was about to be called inside a write
├── NotFound                  no such record in the scopes of this actor
├── Denied                    policy refused; carries the decision and its reason code
│   └── RateLimited           the actor looked too often; carries after how long it may look again
├── Conflict
│   ├── VersionConflict       the record changed since it was read; carries both versions
│   ├── StateConflict         the record's state does not allow this change
│   └── PositionTaken         another turn stands at this place of the conversation
├── EmbeddingError
│   ├── EmbedderUnavailable   the embedder's package or weights are not there
│   └── DimensionMismatch     vectors of two sizes; names both sides
├── CompileError
│   ├── ApprovalRequired      a rule wants an approval before this is sent; lists what and why
│   ├── BudgetInfeasible      required items alone exceed the budget; lists them
│   └── InvalidContext        items contradict one another (unpaired tool call, cycle, …)
└── RecorderError
    ├── RunClosed             the run or step has ended
    ├── NotReplayable         the retention mode kept too little to replay
    ├── TapeDiverged          an agent that plays a tape asked for something else; carries the diff
    └── RecordedFailure       the call failed when it was recorded, and so on its tape

Facts that a program needs are attributes; the message is for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystick.records import AccessDecision, ApprovalRequest

__all__ = [
    "ApprovalRequired",
    "BlockedType",
    "BudgetInfeasible",
    "BusyTally",
    "ClosedTally",
    "CompileError",
    "Conflict",
    "CorruptTally",
    "Denied",
    "DimensionMismatch",
    "EmbedderUnavailable",
    "EmbeddingError",
    "ForkedTally",
    "IdempotencyMismatch",
    "InsideTransaction",
    "InvalidContext",
    "InvalidInput",
    "InvalidRecord",
    "InvalidScope",
    "MissingExtra",
    "NewerTally",
    "NotFound",
    "NotReplayable",
    "PositionTaken",
    "RateLimited",
    "RecordedFailure",
    "RecorderError",
    "RunClosed",
    "SettingsError",
    "StateConflict",
    "StorageError",
    "TallyNotFound",
    "TallystickError",
    "TapeDiverged",
    "VersionConflict",
]


class TallystickError(Exception):
    """Something in Tallystick failed. Catch this to catch everything below."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or type(self).__name__).strip())


class InvalidInput(TallystickError):
    """A value cannot be used as given; nothing was stored. Correct the argument and call again."""


class InvalidRecord(InvalidInput):
    """A record or its attributes do not validate; nothing was stored. The message names each
    field.
    """


class InvalidScope(InvalidInput):
    """A scope must read like `private:alice`, `project:apollo` or `public`."""


class IdempotencyMismatch(InvalidInput):
    """This idempotency key was used before with other arguments. Use a new key for a new
    request.
    """


class SettingsError(TallystickError):
    """Configuration is missing or contradicts itself. The message names the setting."""


class MissingExtra(TallystickError, ImportError):
    """An optional package is needed. Install the extra that the message names."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{package} is not installed. Run: pip install 'tallystick[{extra}]'")


class StorageError(TallystickError):
    """The store could not do what was asked. Nothing was half written."""


class TallyNotFound(StorageError):
    """There is no tally at this place. Give the folder of an existing one, or let `Tally.open` make
    it.
    """


class NewerTally(StorageError):
    """This tally was written by a newer release of Tallystick. Upgrade to open it; nothing was
    changed.
    """

    def __init__(self, found: str, known: str) -> None:
        self.found = found
        self.known = known
        super().__init__(
            f"This tally has schema {found}, which this release (schema {known}) does not know. "
            "Upgrade tallystick to open it; nothing was changed."
        )


class ClosedTally(StorageError):
    """This tally was closed. Open it again with `Tally.open`."""


class ForkedTally(StorageError):
    """This process inherited the tally from its parent by fork. Open your own with `Tally.open`."""


class BusyTally(StorageError):
    """Another writer held the database for longer than `busy_timeout_ms`. Nothing was written; try
    again.
    """


class CorruptTally(StorageError):
    """Stored bytes do not match what was written. Run `tally verify` to see where."""


class BlockedType(StorageError):
    """Stored state names a class that may not be built. If it is yours, allow it where the saver is
    made.
    """

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


class NotFound(TallystickError):
    """No such record in the scopes of this actor."""


_MEET: Mapping[str, str] = {
    "missing_actor": "Name who acts.",
    "missing_organization": "Give the actor its organization.",
    "missing_memory_space": "Let an operator create the space first.",
    "missing_scope_key": "Name the diary by its project.",
    "missing_project_id": "Name the project of the diary.",
    "scope_disabled": "It stays closed until an operator creates or opens its space.",
    "missing_permission": "Ask a steward for another role, or let an operator do it.",
    "unverified_membership": "Name the project in the credential, or let a steward add the member.",
    "principal_mismatch": "It belongs to somebody else; sharing is the owner's to do.",
    "agent_identity_required": "Give the actor its agent.",
    "delegation_required": "Let the delegator add the agent to the space, and name the "
    "delegation in the credential.",
    "delegation_expired": "Let the delegator renew it.",
    "scope_crossing_requires_promotion": "Ask who owns the scope to promote or share it.",
    "unsupported_scope": "Nothing is shared into a private scope or a diary; share from it "
    "instead.",
    "hidden_source": "Restore that memory first.",
    "redacted_source": "Restore that memory first.",
    "source_deleted": "Recover that memory first.",
    "confirm_token_required": "Preview it, and confirm with the token that the preview gives.",
    "mutations_frozen": "An operator suspended every change; wait until it is taken back.",
}
"""What to do about a refusal, by its reason code. docs/policy.md says more."""


class Denied(TallystickError):
    """Policy refused. `decision.reason` holds the stable reason code."""

    def __init__(self, decision: AccessDecision, message: str | None = None) -> None:
        self.decision = decision
        told = (
            f"{decision.operation} in {decision.scope or 'no scope'} was refused: {decision.reason}"
        )
        meet = _MEET.get(decision.reason)
        super().__init__(message or (told if meet is None else f"{told}. {meet}"))

    @property
    def reason(self) -> str:
        """The stable reason code."""
        return self.decision.reason


class RateLimited(Denied):
    """This actor looked more often than the tally allows. Try again after `retry_after` seconds."""

    def __init__(self, decision: AccessDecision, *, retry_after_us: int) -> None:
        self.retry_after = -(-retry_after_us // 1_000_000)
        """Seconds, rounded up."""
        super().__init__(
            decision,
            f"{decision.operation} was refused: {decision.reason}. Try again in "
            f"{self.retry_after} s.",
        )


class Conflict(TallystickError):
    """The change does not fit what is stored now. Nothing was changed."""


class VersionConflict(Conflict):
    """The record changed since it was read. Read it again and decide anew."""

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

    def __init__(
        self, memory_id: str, *, state: str, reason: str, hint: str = "", what: str = "Memory"
    ) -> None:
        self.memory_id = memory_id
        self.state = state
        self.reason = reason
        super().__init__(f"{what} {memory_id} is {state}: {reason}.{' ' + hint if hint else ''}")


class PositionTaken(Conflict):
    """Another turn stands at this place of the conversation. Leave `position` out to append."""

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
    """Text could not be embedded. What was remembered stays recallable by its words."""


class EmbedderUnavailable(EmbeddingError):
    """The embedder's package or weights are not there. The message says what to install."""


class DimensionMismatch(EmbeddingError):
    """Vectors of two sizes cannot be compared."""

    def __init__(self, *, name: str, expected: int, got: int) -> None:
        self.name = name
        self.expected = expected
        self.got = got
        super().__init__(
            f"Embedder {name} returned {got} dimensions where {expected} were expected."
        )


class CompileError(TallystickError):
    """The context could not be compiled. No model was called."""


class ApprovalRequired(CompileError):
    """A rule wants an approval before these items go to a model. Nothing was sent; the step is
    blocked.
    """

    code = "APPROVAL_REQUIRED"

    def __init__(self, requests: Sequence[ApprovalRequest]) -> None:
        self.requests = tuple(requests)
        listed = "; ".join(
            f"{', '.join(one.item_ids)} (rule {one.rule_id}: {one.reason})" for one in self.requests
        )
        super().__init__(
            f"An approval is required before this is sent: {listed}. Once it is given, compile "
            f"again with a rule of "
            "higher priority that allows these items, or compile without them."
        )


class BudgetInfeasible(CompileError):
    """Required items alone exceed the budget. Raise the budget or shorten what `required` lists."""

    code = "BUDGET_INFEASIBLE"

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

    def __init__(self, message: str, *, item_ids: Sequence[str] = ()) -> None:
        self.item_ids = tuple(item_ids)
        super().__init__(message)


class RecorderError(TallystickError):
    """The recorder could not do what was asked. What was acknowledged is kept."""


class RunClosed(RecorderError):
    """The run or step has ended; nothing can be added to it. Start a new one."""


class NotReplayable(RecorderError):
    """The retention mode kept too little to replay this step."""

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
    try:
        found = find_spec(package) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise MissingExtra(package, extra)


def explain_validation(error: Any) -> str:
    """Turn a pydantic ValidationError into one line per field, without echoing the values given."""
    lines = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'value'}: {problem['msg']}"
        for problem in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    return "; ".join(lines)
