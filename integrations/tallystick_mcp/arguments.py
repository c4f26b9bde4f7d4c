"""The arguments of the four tools, as a model reads them: few words, because every client pays for
them in each of its prompts.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tallystick.operations import Arguments
from tallystick.records import CorrectionKind, JsonObject

Texts = tuple[str, ...]
Key = str | None
Id = Annotated[str, Field(max_length=64)]
"""An id. What is longer is none, and no error repeats it."""
Project = str | None
Time = str | None


class Search(Arguments):
    """Arguments of `search`."""

    query: str = ""
    kinds: Texts = ()
    tags: Texts = ()
    source: str | None = None
    status: Id = "active"
    project: Project = None
    assignee: Id | None = None
    language: Id | None = None
    since: Time = None
    until: Time = None
    limit: Annotated[int, Field(ge=1, le=50)] = 5
    before: Id | None = None
    include_content: bool = True


ExploreMode = Literal[
    "scopes",
    "list",
    "related",
    "dependencies",
    "about",
    "communities",
    "get",
    "inspect",
    "history",
    "source",
    "context",
    "wake",
    "working",
    "runs",
    "steps",
    "receipt",
    "why",
    "trace",
    "verify",
    "uses",
    "reviews",
    "approvals",
    "access",
    "synthesis",
    "policy",
]


class Explore(Arguments):
    """Arguments of `explore`."""

    mode: ExploreMode
    id: Id | None = None
    query: str | None = None
    arguments: JsonObject | None = None
    kinds: Texts = ()
    status: Id | None = None
    links: Texts = ()
    project: Project = None
    depth: Annotated[int, Field(ge=1, le=3)] = 1
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    before: Id | None = None


class Add(Arguments):
    """Arguments of `add`."""

    content: str
    kind: str = "note"
    subject: str | None = None
    tags: Texts = ()
    attributes: JsonObject | None = None
    project: Project = None
    source: str | None = None
    occurred_at: Time = None
    valid_until: Time = None
    derived_from: tuple[Id, ...] = ()
    related_to: tuple[Id, ...] = ()
    depends_on: tuple[Id, ...] = ()
    contradicts: tuple[Id, ...] = ()
    replaces: Id | None = None
    span: str | None = None
    importance: Annotated[int, Field(ge=0, le=100)] = 50
    pinned: bool = False
    auto_link: bool = True
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
    "accept",
    "defer",
    "reject",
    "undo",
    "hold",
    "start_task",
    "block_task",
    "unblock_task",
    "submit_review",
    "complete_task",
    "archive",
    "estimate",
    "prioritize",
    "detect_cycles",
    "link_alike",
    "synthesize_plan",
    "synthesize_draft",
    "synthesize_verify",
    "replay",
    "crawl",
    "sync",
    "refresh",
    "import_status",
    "health",
    "stats",
    "rebuild_index",
]


class Manage(Arguments):
    """Arguments of `manage`."""

    action: ManageAction
    id: Id | None = None
    reason: str | None = None
    mode: Literal["preview", "apply"] = "preview"
    confirm_token: str | None = None
    changes: JsonObject | None = None
    correction: CorrectionKind | None = None
    by: Id | None = None
    field: str | None = None
    replacement: str | None = None
    into: str | None = None
    query: str | None = None
    project: Project = None
    if_version: int | None = None
    idempotency_key: Key = None
