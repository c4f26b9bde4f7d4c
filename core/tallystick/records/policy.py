"""Rules, approvals, decisions and the stable reason codes; spaces and their members."""

from datetime import tzinfo
from typing import Any, Literal, Self, get_args

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from tallystick.records._base import Json, JsonObject, Persisted, Record
from tallystick.records.identity import AccessKind, Actor, Scope
from tallystick.records.times import (
    MomentField,
    datetime_of,
    microseconds,
    optional_datetime_of,
    resolve_moment,
)

ReasonCode = Literal[
    "allowed_private",
    "allowed_diary",
    "allowed_project",
    "allowed_member",
    "allowed_operator",
    "missing_actor",
    "missing_organization",
    "missing_memory_space",
    "missing_scope_key",
    "missing_project_id",
    "scope_disabled",
    "missing_permission",
    "outside_credential",
    "person_required",
    "unverified_membership",
    "principal_mismatch",
    "agent_identity_required",
    "delegation_required",
    "delegation_expired",
    "scope_crossing_requires_promotion",
    "mixed_scopes",
    "unsupported_scope",
    "hidden_source",
    "redacted_source",
    "source_deleted",
    "pinned_memory",
    "version_conflict",
    "confirm_token_required",
    "confirm_token_expired",
    "confirm_token_mismatch",
    "preview_only",
    "rate_limited",
    "mutations_frozen",
    "autonomy_frozen",
    "job_policy_context_missing",
    "job_policy_context_stale",
]

Limited = Literal["read", "inspect", "preview", "export", "write", "modify", "forget", "erase"]
"""Operations that a tally may limit for each actor: recalls and other reads, inspections, previews,
exports, and the changes that remember, change, forget or destroy.
"""

Freezable = Literal["mutations", "autonomy"]
"""What an operator may suspend: every change of memory, or the work that nobody asked for."""

PolicyEffect = Literal["allow", "deny", "redact", "require_approval", "require_receipt"]

RuledSubject = Literal["context_item", "tool_call", "memory", "model_call"]
"""The subject of a rule: an item or memory on its way into a context, or a call."""

ToolClass = Literal["read_only", "write", "destructive", "network"]
"""The class of a tool, by what a call of it may do."""

GuardedAction = Literal["tool_call", "model_call", "send_to_model"]
"""An action that rules may stop: a call, or items that would go into a prompt."""

ApprovalState = Literal["pending", "granted", "denied", "expired", "revoked", "used"]


class AccessDecision(Record):
    """The one shape of every decision about access."""

    allowed: bool
    reason: ReasonCode
    operation: AccessKind
    scope: Scope | None = None
    surface: str
    audit_id: str | None = None
    """The journal event of this decision; set for every refusal."""

    @classmethod
    def refusal(
        cls, actor: Actor, reason: ReasonCode, operation: AccessKind, scope: Scope | None = None
    ) -> Self:
        """Return the refusal of an operation in a scope, by default the actor's private one."""
        return cls(
            allowed=False,
            reason=reason,
            operation=operation,
            scope=scope or actor.private_scope,
            surface=actor.surface,
        )


class ApprovalRequest(Record):
    """An approval that a rule wants from a person."""

    action: Literal["send_to_model"] = "send_to_model"
    rule_id: str
    reason: str
    """The description of the rule."""
    item_ids: tuple[str, ...]
    """The candidates it is about, in their order."""


class Approval(Persisted):
    """A decision by a person about one blocked action with exact arguments."""

    id: str
    scope: Scope
    action: GuardedAction
    subject: str
    """The name of the tool or model, or the ids of the items that would be sent."""
    arguments: Json = None
    """The arguments for showing, with placeholders for secrets; None once they are erased."""
    arguments_erased: bool = False
    rule_id: str
    reason: str
    """The description of the rule that wants the approval."""
    asked_by: JsonObject
    """The identity of the actor whose action it is; only this actor may use a grant."""
    surface: str
    run_id: str | None = None
    step_id: str | None = None
    """The recorded step that was blocked, where a run was recorded."""
    receipts: tuple[str, ...] = ()
    """The head of the run's chain at the time, which covers every receipt before it."""
    state: ApprovalState = "pending"
    created_at: int
    """Microseconds UTC."""
    created_time = datetime_of("created_at")
    expires_at: int
    """End of the wait for a decision, of a grant once it is given, or of a denial."""
    expires_time = datetime_of("expires_at")
    decided_by: JsonObject | None = None
    decided_reason: str | None = None
    decided_at: int | None = None
    decided_time = optional_datetime_of("decided_at")
    used_at: int | None = None
    used_time = optional_datetime_of("used_at")
    token: str | None = None
    """The token of a grant, only in the answer to whoever granted it."""


class ArgumentCondition(Record):
    """A condition on the arguments of a tool call: a value at `path` that one test accepts.

    Exactly one of the tests is given. Where a path leads to several values one of them suffices.
    """

    path: str
    """A JSON path such as `$.command`, `$.files[0].name`, `$.files[*].name` or `$['a.b']`."""
    equals: Json = None
    """The value, as a whole; for null use `one_of`."""
    one_of: tuple[Json, ...] = ()
    matches: str | None = None
    """A regular expression that is found in the value; without look-around and back-references."""
    contains: str | None = None
    """A text that occurs in the value. A value that is no text is searched as its JSON."""

    @model_validator(mode="after")
    def _has_one_test(self) -> Self:
        tests = (
            self.equals is not None,
            bool(self.one_of),
            self.matches is not None,
            self.contains is not None,
        )
        if sum(tests) != 1:
            raise ValueError("give exactly one of equals, one_of, matches and contains")
        if self.contains == "":
            raise ValueError("contains: every value contains an empty text")
        return self


_ADDED_CONDITIONS = frozenset({"tool", "model", "arguments"})
"""Conditions that are left out of the record's JSON while empty, and so out of the digests of
compiles.
"""


class PolicyConditions(Record):
    """Conditions under which a rule applies; each field that is set must match one of its
    values.
    """

    agent: tuple[str, ...] = ()
    task_type: tuple[str, ...] = ()
    provider: tuple[str, ...] = ()
    sensitivity: tuple[str, ...] = ()
    tool_class: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    """Scopes as text, compared whole; a bare kind such as `project` matches every scope of that
    kind.
    """
    kind: tuple[str, ...] = ()
    """Item kinds."""
    tag: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()
    """Names of tools."""
    model: tuple[str, ...] = ()
    """Names of models."""
    arguments: tuple[ArgumentCondition, ...] = ()
    """Conditions on the arguments of a tool call; each of them must be met."""

    @model_serializer(mode="wrap")
    def _without_empty_additions(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return {
            name: value for name, value in fields.items() if value or name not in _ADDED_CONDITIONS
        }


class PolicyRule(Persisted):
    """One rule. Highest priority wins; at equal priority deny wins."""

    id: str
    name: str
    description: str = ""
    applies_to: RuledSubject = "context_item"
    effect: PolicyEffect
    conditions: PolicyConditions = PolicyConditions()
    priority: int = 0
    metadata: JsonObject = {}


PrincipalType = Literal["user", "agent", "project", "organization", "everyone"]
SpaceRole = Literal["reader", "writer", "maintainer", "steward"]
SpaceState = Literal["open", "closed"]


_NAMED: JsonObject = {
    "properties": {
        "principal_type": {
            "enum": [each for each in get_args(PrincipalType) if each != "everyone"]
        },
        "principal_id": {"minLength": 1},
        "permissions": {
            "items": {"enum": [each for each in get_args(AccessKind) if each != "manage"]}
        },
    },
    "required": ["principal_id"],
}
_EVERYONE: JsonObject = {
    "properties": {
        "principal_type": {"const": "everyone"},
        "principal_id": {"const": ""},
        "role": {"const": "reader"},
        "permissions": {"maxItems": 0},
    },
    "required": ["principal_type"],
}
"""What a member looks like, of one name and of none, for those who read the schema."""


class SpaceMember(Record):
    """One member of a space, with its role and the end of its membership."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [_NAMED, _EVERYONE]})

    principal_type: PrincipalType = "user"
    principal_id: str = ""
    """Compared whole; empty for `everyone` only."""
    role: SpaceRole = "reader"
    permissions: tuple[AccessKind, ...] = ()
    """Operations granted beyond those of the role; never `manage`, which only the role of a steward
    gives.
    """
    expires_at: MomentField | None = None
    """The moment from which on this membership no longer counts; None means never."""

    @property
    def ends_at(self) -> int | None:
        """Microseconds UTC from which on it no longer counts; None means never."""
        return resolve_moment(self.expires_at)

    def at(self, zone: tzinfo) -> Self:
        """Return it with its end in microseconds UTC, as meant in `zone`."""
        end = microseconds(self.expires_at, zone, name="expires_at")
        return self if end == self.expires_at else self.model_copy(update={"expires_at": end})

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.principal_type == "everyone") == bool(self.principal_id):
            raise ValueError("`principal_id` names the principal; only `everyone` has none")
        if self.principal_type == "everyone" and (self.role != "reader" or self.permissions):
            raise ValueError("`everyone` can be a reader only")
        if "manage" in self.permissions:
            raise ValueError("`manage` cannot be granted; make the member a steward")
        return self


class MemorySpace(Persisted):
    """A stored scope with its members. Team, organization, shared and public scopes are open
    through one only.
    """

    id: str
    scope: Scope
    name: str
    description: str = ""
    state: SpaceState = "open"
    """A closed space refuses everything but inspection and management, members included."""
    members: tuple[SpaceMember, ...] = ()
    version: int = Field(default=1, ge=1)
    created_at: int
    """Microseconds UTC."""
    created_time = datetime_of("created_at")
    created_by: str
    updated_at: int
    updated_time = datetime_of("updated_at")
    updated_by: str

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.scope.kind in ("private", "diary"):
            raise ValueError(
                f"a {self.scope.kind} scope belongs to its principal; it takes no members"
            )
        named = [(member.principal_type, member.principal_id) for member in self.members]
        if len(set(named)) != len(named):
            raise ValueError("a principal is named twice among the members")
        if ("everyone", "") in named and self.scope.kind != "public":
            raise ValueError("`everyone` can be a member of the public space only")
        return self


class ScopePreview(Record):
    """The memories that one actor could recall from one scope."""

    scope: Scope
    decision: AccessDecision
    """The decision about the actor's reading there."""
    visible: tuple[str, ...] = ()
    """Ids that a recall can return, oldest first."""
    hidden: dict[str, int] = {}
    """The number of memories kept from recall, by state (or `expired`); only for an actor that may
    inspect the scope.
    """
    denied: tuple[str, ...] = ()
    """Ids that would be visible if the actor were allowed; only for an actor that may inspect the
    scope.
    """


class AccessPreview(Record):
    """The memories that an actor could recall, scope by scope. A preview changes nothing."""

    user: str
    agent: str | None = None
    scopes: tuple[ScopePreview, ...]

    @property
    def visible(self) -> tuple[str, ...]:
        """Every id that a recall over these scopes can return."""
        return tuple(memory_id for scope in self.scopes for memory_id in scope.visible)


class MemberPreview(Record):
    """The access that a principal would have as a member of a space. A preview changes nothing."""

    member: SpaceMember
    operations: tuple[AccessKind, ...]
    """What it could do in the scope then."""
    before: ScopePreview
    """What it can recall there now."""
    after: ScopePreview
    """What it could recall there then."""

    @property
    def gained(self) -> tuple[str, ...]:
        """The ids that it could recall then, and cannot now, oldest first."""
        now = set(self.before.visible)
        return tuple(memory_id for memory_id in self.after.visible if memory_id not in now)
