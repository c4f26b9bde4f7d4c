"""The arguments of the four tools, as a model reads them: few words, because every client pays for
them in each of its prompts.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tallystick.operations import Arguments
from tallystick.records import CorrectionKind, JsonObject, MemoryState

__all__ = ["Add", "Explore", "ExploreMode", "Manage", "ManageAction", "Search"]

Texts = tuple[str, ...]
Key = str | None
Project = str | None
Time = str | None


class Search(Arguments):
    """Arguments of `search`."""

    query: Annotated[str, Field(description="Plain words; empty lists the newest.")] = ""
    kinds: Texts = ()
    tags: Texts = ()
    source: Annotated[str | None, Field(description="Its id or address.")] = None
    status: MemoryState = "active"
    project: Project = None
    since: Time = None
    until: Time = None
    limit: Annotated[int, Field(ge=1, le=50)] = 5
    before: str | None = None
    include_content: bool = True


ExploreMode = Literal[
    "scopes",
    "list",
    "related",
    "get",
    "inspect",
    "history",
    "source",
    "context",
    "wake",
    "runs",
    "steps",
    "receipt",
    "why",
    "trace",
    "verify",
    "uses",
    "approvals",
    "access",
    "policy",
]


class Explore(Arguments):
    """Arguments of `explore`."""

    mode: ExploreMode
    id: Annotated[str | None, Field(description="Memory, source, run or step.")] = None
    query: Annotated[
        str | None, Field(description="context: question; trace: sentence; policy: tool.")
    ] = None
    arguments: JsonObject | None = None
    project: Project = None
    depth: Annotated[int, Field(ge=1, le=2)] = 1
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    before: str | None = None


class Add(Arguments):
    """Arguments of `add`."""

    content: Annotated[str, Field(description="One statement, word for word.")]
    kind: Annotated[
        str, Field(description="note, fact, preference, decision, constraint or task.")
    ] = "note"
    subject: str | None = None
    speaker: str | None = None
    tags: Texts = ()
    project: Project = None
    source: Annotated[str | None, Field(description="Its address.")] = None
    occurred_at: Time = None
    valid_from: Time = None
    valid_until: Time = None
    expires_at: Time = None
    derived_from: Annotated[Texts, Field(description="Memory ids.")] = ()
    importance: Annotated[int, Field(ge=0, le=100)] = 50
    pinned: bool = False
    idempotency_key: Key = None


ManageAction = Literal[
    "modify",
    "forget",
    "forget_matching",
    "recover",
    "correct",
    "promote",
    "share",
    "pin",
    "unpin",
    "replay",
    "health",
    "stats",
]


class Manage(Arguments):
    """Arguments of `manage`."""

    action: ManageAction
    id: Annotated[str | None, Field(description="Memory; replay: step.")] = None
    reason: str | None = None
    mode: Literal["preview", "apply"] = "preview"
    confirm_token: str | None = None
    changes: Annotated[JsonObject | None, Field(description="Such as content, tags.")] = None
    correction: CorrectionKind | None = None
    by: Annotated[str | None, Field(description="The replacement or original.")] = None
    field: str | None = None
    replacement: str | None = None
    into: Annotated[str | None, Field(description="Such as project:apollo.")] = None
    query: str | None = None
    project: Project = None
    if_version: int | None = None
    idempotency_key: Key = None
