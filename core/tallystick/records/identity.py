"""Identities: the Actor who acts, the Scope in which a record lives, and the AccessToken that lets
a caller in over a network.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, Self, cast, get_args
from urllib.parse import quote, unquote

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    field_validator,
    model_serializer,
    model_validator,
)

from tallystick.errors import InvalidScope
from tallystick.records._base import LONGEST_NAME, JsonObject, Names, Persisted, Record
from tallystick.records.times import datetime_of, optional_datetime_of

ScopeKind = Literal[
    "private", "project", "delegated", "team", "organization", "shared", "public", "diary"
]
Role = Literal["member", "operator"]
AccessKind = Literal[
    "read",
    "write",
    "reflect",
    "share",
    "promote",
    "inspect",
    "correct",
    "export",
    "delete",
    "record",
    "manage",
]


def _whole(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        # The codec's own message would echo the name.
        raise ValueError(
            "holds half a character (a lone surrogate); an identity cannot be stored so"
        ) from None
    return value


def _short(value: str) -> str:
    if len(value) > LONGEST_NAME:
        raise ValueError(
            f"has {len(value):,} characters, and may have {LONGEST_NAME:,}: what is remembered "
            "names it as a speaker. Use an id of yours."
        )
    return value


def _short_names(names: AbstractSet[str]) -> AbstractSet[str]:
    for name in names:
        _short(name)
    return names


_Name = Annotated[str, AfterValidator(_whole)]
ActorName = Annotated[_Name, AfterValidator(_short)]
_ActorNames = Annotated[Names, AfterValidator(_short_names)]


def _id_text(value: Any) -> Any:
    """Return a user's integer id as text, as databases and frameworks number users."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_UserName = Annotated[
    ActorName, BeforeValidator(_id_text), Field(json_schema_extra={"minLength": 1})
]


class Diary(NamedTuple):
    """The parts of the key of a diary: one agent of one principal in one project."""

    user: str
    agent: str
    project: str


class Scope(Record):
    """The place in which a record lives. Written as `private:alice`, `project:apollo`, …,
    `public`.

    A scope of an organization is written `acme/project:apollo`; the two never meet.
    """

    kind: ScopeKind
    key: _Name = ""
    """The owner of the scope; empty for `public` only. Any text: it is compared, never matched as a
    pattern.
    """
    organization: _Name | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return cls._split(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _has_key(self) -> Self:
        if (self.kind == "public") == bool(self.key):
            raise ValueError(f"scope {self.kind} {'takes no key' if self.key else 'needs a key'}")
        return self

    @model_serializer
    def _to_text(self) -> str:
        return str(self)

    @classmethod
    def parse(cls, value: "str | Scope") -> "Scope":
        """Read a scope from its text. Raises InvalidScope."""
        if isinstance(value, Scope):
            return value
        try:
            return _parse_cached(value) if isinstance(value, str) else cls.model_validate(value)
        except ValueError as error:
            raise InvalidScope(
                f"{value!r} is not a scope. Write it like 'private:alice', 'project:apollo' or "
                f"'public'."
            ) from error

    @staticmethod
    def _split(text: str) -> dict[str, Any]:
        head, _, key = text.partition(":")
        organization, slash, kind = head.rpartition("/")
        if kind not in get_args(ScopeKind):
            raise ValueError("unknown scope kind")
        return {"kind": kind, "key": key, "organization": unquote(organization) if slash else None}

    @classmethod
    def diary(cls, user: str, agent: str, project: str, organization: str | None = None) -> "Scope":
        """Return the diary of one agent of one principal in one project."""
        key = "/".join(quote(part, safe="") for part in (user, agent, project))
        return cls(kind="diary", key=key, organization=organization)

    @property
    def diary_of(self) -> Diary | None:
        """The parts of a diary's key; None for other scopes and for a key of another form."""
        parts = self.key.split("/")
        if self.kind != "diary" or len(parts) != 3:
            return None
        user, agent, project = (unquote(part) for part in parts)
        return Diary(user, agent, project)

    def within(self, organization: str | None) -> "Scope":
        """Return this scope as seen from `organization`, if it does not name one itself."""
        if self.organization is not None or organization is None:
            return self
        return self.model_copy(update={"organization": organization})

    def __str__(self) -> str:
        head = (
            self.kind
            if self.organization is None
            else f"{quote(self.organization, safe='')}/{self.kind}"
        )
        return head if self.kind == "public" else f"{head}:{self.key}"

    def __hash__(self) -> int:
        return hash((self.kind, self.key, self.organization))


@lru_cache(maxsize=4_096)
def _parse_cached(text: str) -> Scope:
    return Scope.model_validate(text)


class Credential(Record):
    """The bounds of an actor that came in over a network: it may do no more than its token says.

    The roles and projects of such an actor come from the token too.
    """

    token_id: str | None = None
    """The access token; None for who may open a Unix socket of ours."""
    scopes: tuple[Scope, ...] | None = None
    """The scopes that it is good for; None for all of the actor's."""
    operations: tuple[AccessKind, ...] | None = None
    """What it is good for; None for all that the actor may do."""
    is_attended: bool = False
    """True if a person is there: made at a terminal, for a session. Nothing is granted, forced or
    erased otherwise.
    """

    is_agents: bool = False
    """True if an agent comes in by itself: it reaches its user's private scope only where `scopes`
    name that.
    """

    @property
    def manages(self) -> bool:
        """True if it is good for what concerns the whole tally, or the actor's own tokens."""
        return self.scopes is None and (self.operations is None or "manage" in self.operations)

    def covers(self, operation: AccessKind, scope: Scope) -> bool:
        """Return True if it is good for an operation in a scope."""
        return (self.operations is None or operation in self.operations) and self.reaches(scope)

    def reaches(self, scope: Scope) -> bool:
        """Return True if it is good for a scope."""
        if self.scopes is None:
            return not (self.is_agents and scope.kind == "private")
        return scope in self.scopes


class Actor(Record):
    """The person or agent who acts. Every operation takes one and nothing infers it.

    An actor with an `agent` is never an operator.
    """

    user: _UserName
    """The principal: a person or a service account. An integer id is taken as text. No name of an
    actor is longer than 1,000 characters.
    """
    agent: ActorName | None = None
    """The agent that acts for the principal, if one does."""
    acting_for: ActorName | None = None
    """The principal on whose behalf a delegated agent acts."""
    organization: ActorName | None = None
    projects: _ActorNames = frozenset()
    """Projects that this actor belongs to."""
    delegations: _ActorNames = frozenset()
    """Live delegations of this actor."""
    role: Role = "member"
    surface: ActorName = "python"
    """The surface the call came through, such as `python`, `langgraph`, `cli` or `mcp`."""
    request_id: ActorName | None = None
    """The request that the call serves, for the history."""
    session_id: ActorName | None = None
    """The session that the call belongs to, for the history."""
    credential: Credential | None = None
    """The bounds of the token it came with; None for a caller in this process."""
    correlation_id: str | None = Field(default=None, exclude=True)
    """The one act of which all that the actor changes is a part, for the history. Never stored with
    the actor.
    """
    assumed: bool = Field(default=False, exclude=True)
    """True if a runtime named nobody and the owner acts for that reason alone: refused once users
    were named. Never stored.
    """

    @model_validator(mode="before")
    @classmethod
    def _is_no_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("takes an Actor, not a text: write Actor(user=…)")
        return value

    @field_validator("user")
    @classmethod
    def _require_name(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must name somebody")
        return value

    @property
    def is_operator(self) -> bool:
        """True if this actor has the rights of an operator, which a token for some scopes alone, or
        one that is not good to manage, does not give.
        """
        if self.role != "operator" or self.agent is not None:
            return False
        return self.credential is None or self.credential.manages

    @property
    def operates_tally(self) -> bool:
        """True for an operator of the whole tally, and not of one organization in it alone."""
        return self.is_operator and self.organization is None

    @property
    def is_attended(self) -> bool:
        """True if a person is there, or it is a caller in this process who answers for that."""
        return self.credential is None or self.credential.is_attended

    def on(self, surface: str) -> "Actor":
        """Return the same actor, coming through `surface`."""
        return self.model_copy(update={"surface": surface})

    def traced(self, *, request_id: str | None = None, session_id: str | None = None) -> "Actor":
        """Return the same actor, serving a request or in a session; an omitted id stays as it
        is.
        """
        if request_id is None and session_id is None:
            return self
        return self.replace(
            request_id=request_id or self.request_id, session_id=session_id or self.session_id
        )

    def within_act(self, correlation_id: str) -> "Actor":
        """Return the same actor, whose changes are parts of one act: a repair, a purge."""
        return self.model_copy(update={"correlation_id": correlation_id})

    def diary(self, project: str) -> Scope:
        """Return the scope of the diary of this actor's agent in `project`. Nobody else reads it,
        and calls in it are refused without an agent.
        """
        return Scope.diary(self.user, self.agent or "", project, self.organization)

    def same_as(self, other: "Actor") -> bool:
        """Return True if the other is the same actor, whatever its surface, request and session."""
        plain = {
            "surface": "",
            "request_id": None,
            "session_id": None,
            "correlation_id": None,
            "assumed": False,
            "credential": None,
        }
        return self.model_copy(update=plain) == other.model_copy(update=plain)

    @property
    def private_scope(self) -> Scope:
        """The scope that belongs to this principal alone."""
        return Scope(kind="private", key=self.user, organization=self.organization)

    def home(self, scope: str | Scope | None = None) -> "Scope":
        """Return the scope to work in: `scope` within this actor's organization, else the private
        one.
        """
        return self.private_scope if scope is None else Scope.parse(scope).within(self.organization)

    def identity(self) -> dict[str, Any]:
        """Return the ids of this actor that the journal records."""
        keep = ("user", "agent", "acting_for", "organization", "role")
        return {
            name: cast(Any, getattr(self, name)) for name in keep if getattr(self, name) is not None
        }


@dataclass(frozen=True, slots=True)
class CallContext:
    """Everything in a call of a runtime that can say who acts: what `actor_from` and the `actor` of
    an adapter are given. What a runtime does not have is empty.
    """

    runtime: str
    """`langgraph`, `langchain`, `pydantic_ai` or `llama_index`."""
    piece: str
    """The piece of the adapter that asks, such as `TallySaver`."""
    configurable: Mapping[str, Any] = field(default_factory=dict)
    """`configurable` of a LangChain or LangGraph config."""
    context: Any = None
    """The runtime context of LangGraph; of a LlamaIndex workflow the values in its store."""
    deps: Any = None
    """The dependencies of a PydanticAI run."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of a LangChain config or a PydanticAI run; LlamaIndex's instrument tags."""
    session: str | None = None
    """The thread, conversation or session of the call."""


TokenClass = Literal["personal", "scoped", "session"]
"""`personal` is good for all that its user may do, `scoped` for some scopes or operations.

`session` is for a person's sitting of a few hours, made at a terminal: with that one alone is
anything granted, forced or erased.
"""


class AccessToken(Persisted):
    """A token of an access to a tally: who comes in with it, for what, until when."""

    id: str
    token_class: TokenClass
    name: str
    """What people call it, such as the machine that has it."""
    actor: Actor
    """Who comes in with it: user, agent, organization, projects, delegations and role."""
    scopes: tuple[Scope, ...] | None = None
    """The scopes that it is good for; None for all that the actor may reach."""
    operations: tuple[AccessKind, ...] | None = None
    """What it is good for; None for all that the actor may do."""
    created_at: int
    """Microseconds UTC."""
    created_time = datetime_of("created_at")
    created_by: JsonObject
    """The identity of who made it."""
    expires_at: int
    expires_time = datetime_of("expires_at")
    revoked_at: int | None = None
    revoked_time = optional_datetime_of("revoked_at")
    revoked_reason: str | None = None
    replaced_by: str | None = None
    """The token that took its place when it was rotated."""
    secret: str | None = None
    """What the caller sends, only in the answer to whoever made it: the tally keeps its digest."""

    @property
    def credential(self) -> Credential:
        """The bounds of whoever comes in with it."""
        return Credential(
            token_id=self.id,
            scopes=self.scopes,
            operations=self.operations,
            is_attended=self.token_class == "session",
            is_agents=self.actor.agent is not None,
        )

    def caller(self, surface: str) -> "Actor":
        """Return the actor who comes in with it through `surface`."""
        return self.actor.replace(surface=surface, credential=self.credential)

    def is_good_at(self, now: int) -> bool:
        """Return True if it lets anybody in at `now`, microseconds UTC."""
        return self.revoked_at is None and now < self.expires_at
