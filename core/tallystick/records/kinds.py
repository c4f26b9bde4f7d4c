"""Kinds of memories, and the attributes that each declares."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta, tzinfo
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from tallystick.errors import InvalidRecord
from tallystick.errors.base import explain_validation
from tallystick.records._base import BUILDS_LATER, LONGEST_NAME, JsonObject, tuple_of
from tallystick.records.times import microseconds, moment_text, plain_moment
from tallystick.records.wire import Wire

KINDS: dict[str, type[BaseModel] | None] = dict.fromkeys(
    (
        "note",
        "turn",
        "fact",
        "preference",
        "constraint",
        "decision",
        "procedure",
        "plan",
        "claim",
        "episode",
        "session_summary",
        "summary",
        "artifact",
        "artifact_index",
        "working",
        "pattern",
        "rule",
        "concept",
        "warning",
        "template",
        "topic",
        "tool",
        "language",
        "config_file",
        "command",
        "project",
        "task",
        "milestone",
        "team",
        "error_pattern",
        "source",
        "document",
        "community",
        "entity",
        "store_item",
    )
)
"""The open registry: kind name to the model that validates its attributes, or None for any JSON
object.
"""


class _Attributes(BaseModel):
    """Base of the shipped attribute models: known fields are checked, unknown ones kept."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=BUILDS_LATER)


TaskStatus = Literal["todo", "doing", "blocked", "review", "done", "cancelled"]
"""States of a task or milestone; the last two are ends."""
Priority = Literal["critical", "high", "medium", "low"]
StepState = Literal["todo", "doing", "done", "skipped"]
"""States of a step of a plan."""


class _Task(_Attributes):
    status: TaskStatus = "todo"
    priority: Priority | None = None
    assignee: str | None = None
    assignees: tuple[str, ...] = ()
    due_at: int | None = None
    technologies: tuple[str, ...] = ()
    project: str | None = Field(default=None, max_length=LONGEST_NAME)
    estimate: float | None = Field(default=None, ge=0)
    hours: float | None = Field(default=None, ge=0)
    branch: str | None = None
    commits: tuple[str, ...] = ()
    pr_url: str | None = None
    blockers: tuple[str, ...] = ()
    archived: bool = False


class _PlanStep(_Attributes):
    text: str = Field(min_length=1)
    state: StepState = "todo"


class _Plan(_Attributes):
    steps: tuple[_PlanStep | Annotated[str, Field(min_length=1)], ...] = ()
    status: Literal["open", "done", "cancelled"] = "open"


class _Constraint(_Attributes):
    hard: bool = False


class _Artifact(_Attributes):
    output_type: str | None = None
    audience: str | None = None
    verdict: str | None = None
    stale: tuple[int, ...] = ()
    """Sections that cite what has changed since."""


class _ErrorPattern(_Attributes):
    error: str = ""
    resolution: str = ""


KINDS |= {
    "task": _Task,
    "milestone": _Task,
    "plan": _Plan,
    "constraint": _Constraint,
    "error_pattern": _ErrorPattern,
    "artifact": _Artifact,
}


def register_kind(name: str, attributes: type[BaseModel] | None = None) -> None:
    """Make `name` a known kind whose attributes `attributes` validates.

    Raises InvalidRecord if the kind is known already with another model.
    """
    if name in KINDS and KINDS[name] is not attributes:
        raise InvalidRecord(f"Kind {name!r} is registered already. Choose another name.")
    KINDS[name] = attributes


def validate_attributes(kind: str, attributes: JsonObject) -> None:
    """Check `attributes` against the model of `kind`. Raises InvalidRecord naming the fields."""
    if kind not in KINDS:
        kinds = ", ".join(sorted(KINDS))
        raise InvalidRecord(
            f"Unknown kind {kind!r}. Use one of {kinds}, or register_kind({kind!r}).",
            argument="kind",
        )
    model = KINDS[kind]
    if model is None:
        return
    try:
        model.model_validate(attributes)
    except ValidationError as error:
        raise InvalidRecord(f"attributes of {kind}: {explain_validation(error)}") from error


def declared_attributes(kind: str, attributes: JsonObject) -> JsonObject:
    """Return the attributes that the model of a kind names, without empty ones; moments as ISO 8601
    text.
    """
    model = KINDS.get(kind)
    fields = {} if model is None else model.model_fields
    declared: JsonObject = {
        name: value
        for name in fields
        if (value := attributes.get(name)) not in (None, [], "", False)
    }
    due_at = declared.get("due_at")
    if isinstance(due_at, int):
        declared["due_at"] = moment_text(due_at, "%Y-%m-%dT%H:%MZ")
    return declared


def attributes_with_moments(
    kind: str, attributes: Mapping[str, Any], *, zone: tzinfo, now: int
) -> JsonObject:
    """Return attributes with the moments of their kind in microseconds UTC. Raises InvalidInput."""
    if KINDS.get(kind) is not _Task or attributes.get("due_at") is None:
        return dict(attributes)
    due_at = microseconds(attributes["due_at"], zone, name="due_at", now=now)
    return {**attributes, "due_at": due_at}


def _moments_as_text(attributes: Any) -> Any:
    """Return attributes that JSON can hold: a datetime as its ISO 8601 text."""
    if not isinstance(attributes, Mapping) or not isinstance(
        attributes.get("due_at"), date | timedelta
    ):
        return attributes
    return {**attributes, "due_at": plain_moment(attributes["due_at"])}


Attributes = Annotated[JsonObject, BeforeValidator(_moments_as_text), Wire(JsonObject)]
"""Attributes of a memory; `due_at` may be any moment."""


def _check_kind(name: str) -> str:
    if name not in KINDS:
        near = get_close_matches(name, KINDS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise PydanticCustomError(
            "kind",
            "names no kind {name}; {hint}There are {kinds}",
            {"name": repr(name), "hint": hint, "kinds": ", ".join(sorted(KINDS))},
        )
    return name


_Kind = Annotated[str, AfterValidator(_check_kind)]
Kinds = Annotated[Sequence[str], tuple_of(_Kind)]
"""Names of kinds, each of which is registered."""
