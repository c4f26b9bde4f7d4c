"""Every error Tallystick raises, as one tree.

TallystickError
├── InvalidInput              a value cannot be used as given
│   ├── UnknownName           a verb that another memory has; also an AttributeError
│   ├── UnknownArgument       an argument that another memory takes; also a TypeError
│   ├── InvalidRecord         a record or its attributes do not validate
│   ├── InvalidScope          a scope is not one of the known forms
│   ├── IdempotencyMismatch   a key was used before with other arguments
│   └── NotOfFormat           a target is not what the adapter of a source reads
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
├── AuthorizationNeeded       a source refuses the credential: an import pauses until there is one
├── RateLimitReached          a source asks to wait; carries after how long it may be asked again
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

from tallystick.errors.access import (
    ActionDenied,
    ApprovalRequired,
    Blocked,
    Denied,
    RateLimited,
    TokenRefused,
    Unauthenticated,
)
from tallystick.errors.access import Decision as Decision
from tallystick.errors.access import StoredApproval as StoredApproval
from tallystick.errors.base import (
    IdempotencyMismatch,
    InvalidInput,
    InvalidRecord,
    InvalidScope,
    MissingExtra,
    NotFound,
    SettingsError,
    TallystickError,
    UnknownArgument,
    UnknownName,
    Unreachable,
)
from tallystick.errors.base import Retry as Retry
from tallystick.errors.base import require as require
from tallystick.errors.models import (
    BudgetSpent,
    CredentialRefused,
    DimensionMismatch,
    EgressDenied,
    EmbedderFailed,
    EmbedderUnavailable,
    EmbeddingError,
    ExtractionError,
    LeaseLost,
    ModelFailed,
    ModelRefused,
    ModelUnavailable,
    TextRefused,
    UnusableVectors,
)
from tallystick.errors.recording import (
    BudgetInfeasible,
    CompileError,
    InvalidContext,
    NotReplayable,
    RecordedFailure,
    RecorderError,
    RequestDenied,
    RunClosed,
    TapeDiverged,
)
from tallystick.errors.sources import AuthorizationNeeded, NotOfFormat, RateLimitReached
from tallystick.errors.storage import (
    BlockedType,
    BusyTally,
    ClosedTally,
    Conflict,
    CorruptTally,
    ForkedTally,
    InsideTransaction,
    NewerTally,
    PositionTaken,
    ReadOnlyTally,
    StateConflict,
    StorageError,
    TallyNotFound,
    UnreleasedTally,
    VersionConflict,
)
from tallystick.errors.storage import UnwritableReason as UnwritableReason

__all__ = [
    "ActionDenied",
    "ApprovalRequired",
    "AuthorizationNeeded",
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
    "NotOfFormat",
    "NotReplayable",
    "PositionTaken",
    "RateLimitReached",
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
