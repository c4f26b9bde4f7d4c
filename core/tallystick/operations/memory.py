"""Operations on memory: remember, recall, change, correct, share, inspect."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tallystick.memory.recall import Recalled
from tallystick.operations.operation import (
    Arguments,
    Before,
    Confirmed,
    IdempotencyKey,
    IfVersion,
    MemoryId,
    OfMemory,
    Operation,
    Reason,
    Scopes,
)
from tallystick.records import (
    AccessPreview,
    Actor,
    Change,
    Changed,
    ContextPack,
    Correction,
    CorrectionKind,
    Crossing,
    Explored,
    ExploreMode,
    Forgetting,
    Forgotten,
    HistoryEntry,
    Inspection,
    JsonObject,
    Memory,
    MemoryState,
    MomentField,
    NewMemory,
    OccasionField,
    Remembered,
    SourceInspection,
    SourceRef,
    SourceType,
)

_WRITE = ("denied", "invalid_input", "invalid_record", "idempotency_mismatch", "rate_limited")
_CHANGE = (*_WRITE, "not_found", "version_conflict", "state_conflict")
_READ = ("denied", "invalid_input", "rate_limited")

States = Annotated[
    tuple[MemoryState, ...], Field(description="States of the memories; by default active ones.")
]
Tags = Annotated[tuple[str, ...], Field(description="Only memories with all of these.")]
FromSource = Annotated[str | None, Field(description="Only from this source id or address.")]
Since = Annotated[
    OccasionField | None,
    Field(description="Said, happened or remembered at this moment or later."),
]
Until = Annotated[
    OccasionField | None, Field(description="Said, happened or remembered before it.")
]
Status = Annotated[str | None, Field(description="Only with this status, such as todo.")]
OfProject = Annotated[str | None, Field(description="Only of this project.")]
Assignee = Annotated[str | None, Field(description="Only those of this assignee.")]
Language = Annotated[str | None, Field(description="Only in this language, as it was labelled.")]
Budget = Annotated[int, Field(description="Tokens at most.", ge=1)]
Model = Annotated[
    str | None, Field(description="The model whose tokens are counted; else an estimate.")
]


Mode = Annotated[
    Literal["auto", "sync", "async", "raw"],
    Field(description="Where the tally learns: leave a job, wait for it, or learn nothing."),
]
TimeoutMs = Annotated[
    int, Field(description="How long `sync` waits for what is learned, milliseconds.", ge=1)
]


class Remember(Arguments):
    """Arguments of `remember`."""

    content: Annotated[str, Field(description="What to remember, word for word.")]
    kind: Annotated[
        str, Field(description="Such as note, fact, preference, decision, constraint.")
    ] = "note"
    subject: Annotated[str | None, Field(description="What it is about.")] = None
    speaker: Annotated[str | None, Field(description="Who said it.")] = None
    category: Annotated[str | None, Field(description="A category of your own.")] = None
    occurred_at: Annotated[
        MomentField | None,
        Field(description="When it was said or happened: ISO 8601, or microseconds UTC."),
    ] = None
    conversation: Annotated[
        str | None, Field(description="The conversation that it is a turn of.")
    ] = None
    position: Annotated[int | None, Field(description="Its place in the conversation.")] = None
    source: Annotated[SourceRef | None, Field(description="Where it came from.")] = None
    tags: Annotated[tuple[str, ...], Field(description="Tags.")] = ()
    attributes: Annotated[JsonObject | None, Field(description="Further fields.")] = None
    importance: Annotated[int, Field(description="0 to 100.")] = 50
    confidence: Annotated[int, Field(description="0 to 100.")] = 100
    pinned: Annotated[bool, Field(description="Keep it in every pack; never forget it.")] = False
    valid_from: Annotated[
        MomentField | None,
        Field(description="Since when it holds: ISO 8601, or microseconds UTC."),
    ] = None
    valid_until: Annotated[
        OccasionField | None,
        Field(description="Until when it holds: ISO 8601, or microseconds UTC."),
    ] = None
    expires_at: Annotated[
        OccasionField | None,
        Field(description="When it leaves every recall: ISO 8601, or microseconds UTC."),
    ] = None
    derived_from: Annotated[
        tuple[str, ...], Field(description="Ids of memories that it was concluded from.")
    ] = ()
    related_to: Annotated[
        tuple[str, ...], Field(description="Ids of memories that it points to.")
    ] = ()
    depends_on: Annotated[
        tuple[str, ...], Field(description="Ids of memories that come before it.")
    ] = ()
    entities: Annotated[tuple[str, ...], Field(description="Names in it, for the graph.")] = ()
    mode: Mode = "auto"
    timeout_ms: TimeoutMs = 2_500
    idempotency_key: IdempotencyKey = None


class RememberMany(Arguments):
    """Arguments of `remember_many`."""

    items: Annotated[
        tuple[NewMemory, ...], Field(description="Memories with the fields of `remember`.")
    ]
    mode: Mode = "auto"
    timeout_ms: TimeoutMs = 2_500
    idempotency_key: IdempotencyKey = None


class Recall(Arguments):
    """Arguments of `recall`."""

    query: Annotated[
        str,
        Field(description="What to look for, in plain words; empty, the newest with the filters."),
    ]
    limit: Annotated[int | None, Field(description="Hits at most; 10 by default.")] = None
    kinds: Annotated[tuple[str, ...], Field(description="Only memories of these kinds.")] = ()
    conversation: Annotated[str | None, Field(description="Only turns of this one.")] = None
    scopes: Scopes = None
    tags: Tags = ()
    source: FromSource = None
    since: Since = None
    until: Until = None
    asked_at: Annotated[
        MomentField | None, Field(description='The moment from which "last week" is counted.')
    ] = None
    budget_tokens: Annotated[
        int | None, Field(description="Tokens at most: the best hits that fit together.")
    ] = None
    states: Annotated[
        tuple[MemoryState, ...], Field(description="Only memories in these states.")
    ] = ()
    as_of: Annotated[
        MomentField | None,
        Field(description="What was valid at this moment."),
    ] = None
    namespace: Annotated[
        tuple[str, ...] | None,
        Field(description="Items of stores beneath this namespace as well; [] is all of them."),
    ] = None
    min_score: Annotated[
        float, Field(description="The least likelihood that a hit answers, 0 to 1.", ge=0, le=1)
    ] = 0.0
    only_confident: Annotated[
        bool, Field(description="Nothing at all, unless the best hit is likely to answer.")
    ] = False
    status: Status = None
    project: OfProject = None
    assignee: Assignee = None
    language: Language = None


class Memories(Arguments):
    """Arguments of `memories`."""

    kinds: Annotated[tuple[str, ...], Field(description="Only memories of these kinds.")] = ()
    states: States = ("active",)
    conversation: Annotated[str | None, Field(description="Only turns of this one.")] = None
    limit: Annotated[int, Field(description="Memories at most.", ge=1)] = 50
    before: Before = None
    namespace: Annotated[
        tuple[str, ...] | None,
        Field(description="Of the items of stores those beneath this namespace; null for none."),
    ] = ()
    tags: Tags = ()
    source: FromSource = None
    since: Since = None
    until: Until = None
    status: Status = None
    project: OfProject = None
    assignee: Assignee = None
    language: Language = None


class Modify(Arguments):
    """Arguments of `modify`."""

    memory_id: MemoryId
    reason: Reason
    changes: Annotated[
        JsonObject,
        Field(description="Fields and their new values, such as content, tags, kind, pinned."),
    ]
    if_version: IfVersion = None
    idempotency_key: IdempotencyKey = None
    manual_override: Annotated[
        OccasionField | bool,
        Field(description="Lock it against agents: until this moment, or for a while."),
    ] = False


class ModifyMany(Arguments):
    """Arguments of `modify_many`."""

    items: Annotated[
        tuple[JsonObject, ...],
        Field(description="For each memory its id, the reason and the fields to change."),
    ]
    idempotency_key: IdempotencyKey = None


class Forget(Arguments):
    """Arguments of `forget`."""

    memory_id: MemoryId
    reason: Reason
    if_version: IfVersion = None
    force: Annotated[bool, Field(description="Also what is pinned.")] = False
    confirm_token: Annotated[
        str | None, Field(description="With force: the token of the preview by `correct`.")
    ] = None
    idempotency_key: IdempotencyKey = None


class ForgetMatching(Confirmed):
    """Arguments of `forget_matching`."""

    query: Annotated[
        str | None, Field(description="What to forget, in plain words; or filters alone.")
    ] = None
    reason: Reason
    threshold: Annotated[float, Field(description="The least score of a match.", ge=0)] = 0.5
    limit: Annotated[
        int | None, Field(description="Matches at most; by default as many as are allowed.")
    ] = None
    kinds: Annotated[tuple[str, ...], Field(description="Only memories of these kinds.")] = ()
    tags: Annotated[tuple[str, ...], Field(description="Only memories with all of these.")] = ()
    speaker: Annotated[str | None, Field(description="Only what this speaker said.")] = None
    source_type: Annotated[
        SourceType | None, Field(description="Only from sources of this type, such as tool.")
    ] = None
    since: Annotated[
        OccasionField | None,
        Field(description="Said, happened or remembered at this moment or later."),
    ] = None
    until: Annotated[
        OccasionField | None,
        Field(description="Said, happened or remembered before it."),
    ] = None


class Recover(Arguments):
    """Arguments of `recover`."""

    memory_id: MemoryId
    reason: Reason
    if_version: IfVersion = None
    idempotency_key: IdempotencyKey = None


class Correct(Confirmed):
    """Arguments of `correct`."""

    memory_id: MemoryId
    correction: Annotated[CorrectionKind, Field(description="What to do with it.")]
    reason: Reason
    by: Annotated[
        str | None, Field(description="The replacement, or the memory that it repeats.")
    ] = None
    field: Annotated[str, Field(description="What to redact, such as attributes.phone.")] = (
        "content"
    )
    replacement: Annotated[str, Field(description="The text in its place.")] = "[redacted]"
    evidence: Annotated[tuple[str, ...], Field(description="Ids of the sources that show it.")] = ()
    valid_from: Annotated[
        MomentField | None,
        Field(description="Since when the replacement holds: ISO 8601, or microseconds UTC."),
    ] = None
    if_version: IfVersion = None
    force: Annotated[bool, Field(description="Also what is pinned.")] = False


class Cross(Confirmed):
    """Arguments of `promote` and `share`."""

    memory_id: MemoryId
    into: Annotated[str, Field(description="Where to, such as project:apollo.")]
    reason: Reason
    if_version: IfVersion = None


class OfSource(Arguments):
    """Arguments of `source`."""

    source_id: Annotated[str, Field(description="Id of a source.")]


class Explore(Arguments):
    """Arguments of `explore`."""

    around: Annotated[
        str | None,
        Field(description="A scope such as project:apollo, the id of a memory, or a name."),
    ] = None
    mode: Annotated[
        ExploreMode | None,
        Field(
            description="dependencies of a memory or scope; about: everything about a name; "
            "communities: what a scope, a name or words belong to."
        ),
    ] = None
    depth: Annotated[int, Field(description="Links away from the middle; levels.", ge=1, le=3)] = 1
    limit: Annotated[int, Field(description="Memories at most.", ge=1)] = 50
    before: Before = None
    states: States = ("active",)


class Pack(Arguments):
    """Arguments of `context_pack`."""

    query: Annotated[str, Field(description="What the text should answer.")]
    budget_tokens: Budget = 2_000
    scopes: Scopes = None
    model: Model = None


class Wake(Arguments):
    """Arguments of `wake`."""

    budget_tokens: Budget = 1_200
    scopes: Scopes = None
    model: Model = None


class PreviewAccess(Arguments):
    """Arguments of `preview_access`."""

    actor: Annotated[
        Actor | None, Field(description="Whose access to preview; by default one's own.")
    ] = None
    scopes: Scopes = None


OPERATIONS = (
    Operation(
        name="remember",
        title="Remember",
        description="Remember a text as it is; it can be recalled at once.",
        effect="change",
        arguments=Remember,
        result=Remembered,
        errors=(*_WRITE, "not_found", "position_taken"),
        verb="remember",
    ),
    Operation(
        name="remember_many",
        title="Remember many",
        description="Remember many texts in one transaction, all or none.",
        effect="change",
        arguments=RememberMany,
        result=list[Remembered],
        errors=(*_WRITE, "not_found", "position_taken"),
        verb="remember_many",
    ),
    Operation(
        name="recall",
        title="Recall",
        description="Find the memories that answer a question, best first, with the reasons.",
        effect="read",
        arguments=Recall,
        result=Recalled,
        errors=_READ,
        verb="recall",
    ),
    Operation(
        name="get",
        title="Read a memory",
        description="Read one memory by its id.",
        effect="read",
        arguments=OfMemory,
        result=Memory,
        errors=("not_found", "rate_limited"),
        verb="get",
    ),
    Operation(
        name="memories",
        title="List memories",
        description="List memories of a scope, newest first; what is hidden or forgotten comes "
        "without its text.",
        effect="read",
        arguments=Memories,
        result=list[Memory],
        errors=_READ,
        verb="memories",
    ),
    Operation(
        name="modify",
        title="Change a memory",
        description="Change a memory; the old version stays in its history.",
        effect="change",
        arguments=Modify,
        result=Change,
        errors=_CHANGE,
        verb="modify",
        spread="changes",
    ),
    Operation(
        name="modify_many",
        title="Change many memories",
        description="Change many memories, each by itself; what is refused is listed in its place.",
        effect="change",
        arguments=ModifyMany,
        result=list[Changed],
        errors=("idempotency_mismatch",),
        verb="modify_many",
    ),
    Operation(
        name="forget",
        title="Forget",
        description="Remove a memory from every recall; it can be recovered for a while.",
        effect="change",
        arguments=Forget,
        result=Forgotten,
        errors=_CHANGE,
        verb="forget",
    ),
    Operation(
        name="forget_matching",
        title="Forget by query",
        description="Preview what a query and filters would forget, then forget exactly that with "
        "the token.",
        effect="change",
        arguments=ForgetMatching,
        result=Forgetting,
        errors=_CHANGE,
        verb="forget_matching",
        needs_preview=True,
    ),
    Operation(
        name="recover",
        title="Recover",
        description="Bring a forgotten memory back as it was, within its window.",
        effect="change",
        arguments=Recover,
        result=Change,
        errors=_CHANGE,
        verb="recover",
    ),
    Operation(
        name="correct",
        title="Correct",
        description="Preview a correction and what it affects, then apply it with the token.",
        effect="change",
        arguments=Correct,
        result=Correction,
        errors=_CHANGE,
        verb="correct",
        needs_preview=True,
    ),
    Operation(
        name="promote",
        title="Promote",
        description="Preview a copy of a memory into another scope and who would read it, then "
        "make it with the token.",
        effect="change",
        arguments=Cross,
        result=Crossing,
        errors=_CHANGE,
        verb="promote",
        needs_preview=True,
    ),
    Operation(
        name="share",
        title="Share",
        description="Same as promote, for a copy that follows its origin and is withdrawn with it.",
        effect="change",
        arguments=Cross,
        result=Crossing,
        errors=_CHANGE,
        verb="share",
        needs_preview=True,
    ),
    Operation(
        name="inspect",
        title="Inspect a memory",
        description="Show what a memory or a source is, why it can or cannot be seen, what depends "
        "on it, and what may be done next.",
        effect="read",
        arguments=OfMemory,
        result=Inspection,
        errors=("not_found", "rate_limited"),
        verb="inspect",
    ),
    Operation(
        name="source",
        title="Read a source",
        description="Read the raw material behind memories: its text as it arrived, its lifecycle "
        "and what was drawn from it.",
        effect="read",
        arguments=OfSource,
        result=SourceInspection,
        errors=("not_found", "rate_limited"),
        verb="source",
    ),
    Operation(
        name="explore",
        title="Explore",
        description="Look around: what there is, what a scope contains, what a memory links to or "
        "depends on, everything about a name.",
        effect="read",
        arguments=Explore,
        result=Explored,
        errors=(*_READ, "not_found"),
        verb="explore",
    ),
    Operation(
        name="context_pack",
        title="Context pack",
        description="Get what answers a question as one framed text within a budget.",
        effect="read",
        arguments=Pack,
        result=ContextPack,
        errors=_READ,
        verb="context_pack",
    ),
    Operation(
        name="wake",
        title="Wake",
        description="Get pins, constraints, preferences, decisions and open tasks as one text.",
        effect="read",
        arguments=Wake,
        result=ContextPack,
        errors=_READ,
        verb="wake",
    ),
    Operation(
        name="history",
        title="History of a memory",
        description="Show everything that happened to a memory.",
        effect="read",
        arguments=OfMemory,
        result=list[HistoryEntry],
        errors=("not_found", "rate_limited"),
        verb="history",
    ),
    Operation(
        name="preview_access",
        title="Preview access",
        description="Show what an agent or person could recall, scope by scope, and why not the "
        "rest. Changes nothing.",
        effect="read",
        arguments=PreviewAccess,
        result=AccessPreview,
        errors=("invalid_scope", "rate_limited"),
        verb="preview_access",
    ),
)
"""In the order in which surfaces list them."""
