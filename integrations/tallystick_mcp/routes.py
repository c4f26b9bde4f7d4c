"""The operations behind the modes and actions of the four tools.

Four tools have the operations as their modes and actions: the list of tools is in every prompt of
every client, and a tool for each operation would cost ten times as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.operations import OPERATIONS, Operation


@dataclass(frozen=True)
class Route:
    """The way from a mode or action of a tool to an operation."""

    operation: Operation
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The operation's argument by that of the tool."""
    direct: frozenset[str] = frozenset()
    """Arguments of the tool that it takes beside the renamed ones, under the same name."""
    tool: str = ""
    """The name by which rules know the call: that of the memory tool in every runtime."""
    asks: bool = False
    """True if a person is asked before it is done."""

    @property
    def arguments(self) -> frozenset[str]:
        """The arguments of the tool that it takes."""
        return self.direct | frozenset(self.renamed)


def _route(
    name: str, *direct: str, tool: str | None = None, asks: bool = False, **renamed: str
) -> Route:
    return Route(OPERATIONS[name], renamed, frozenset(direct), tool or f"memory_{name}", asks)


_FILTERS = ("kinds", "tags", "source", "since", "until")
_LABELS = ("assignee", "language")
_NARROWED = ("kinds", "status", "links")
_CONFIRM = ("mode", "confirm_token", "idempotency_key")

SEARCH: Mapping[str, Route] = {
    "recall": _route(
        "recall", "query", *_FILTERS, "limit", *_LABELS, tool="memory_search", status="status"
    ),
    "list": _route(
        "memories", *_FILTERS, "limit", "before", *_LABELS, tool="memory_list", status="status"
    ),
}
"""With words, and without."""

EXPLORE: Mapping[str, Route] = {
    "scopes": _route("explore"),
    "list": _route("explore", "limit", "before", *_NARROWED),
    "related": _route("explore", "depth", "limit", *_NARROWED, id="around"),
    "dependencies": _route("explore", "limit", id="around"),
    "about": _route("explore", "depth", "limit", query="around"),
    "communities": _route("explore", "depth", "limit", query="around"),
    "get": _route("get", id="memory_id"),
    "inspect": _route("inspect", id="memory_id"),
    "history": _route("history", id="memory_id"),
    "source": _route("source", id="source_id"),
    "context": _route("pack", "query", id="conversation"),
    "wake": _route("wake", id="conversation"),
    "working": _route("working_list", tool="memory_working", id="thread"),
    "runs": _route("runs", "limit", "before"),
    "steps": _route("steps", id="run_id"),
    "receipt": _route("receipt", id="step_id"),
    "why": _route("knew", id="step_id", tool="memory_why"),
    "trace": _route("trace", id="step_id", query="text"),
    "verify": _route("verify", id="run_id"),
    "uses": _route("uses", id="memory_id", limit="most"),
    "reviews": _route("reviews", "limit", before="after"),
    "approvals": _route("approvals", "limit", "before"),
    "access": _route("preview_access"),
    "synthesis": _route("synthesize_run", id="synthesis_id"),
}
"""By mode. The mode `policy` is none of the table: it tells what the rules say of a call."""

ADD: Route = _route(
    "remember",
    "content",
    "kind",
    "subject",
    "tags",
    "attributes",
    "source",
    "occurred_at",
    "valid_until",
    "derived_from",
    "related_to",
    "depends_on",
    "contradicts",
    "replaces",
    "span",
    "importance",
    "pinned",
    "idempotency_key",
    tool="memory_store",
)


_CHANGED = ("reason", "if_version", "idempotency_key")
_DECIDED = ("reason", "idempotency_key")

MANAGE: Mapping[str, Route] = {
    "modify": _route("modify", *_CHANGED, "changes", asks=True, id="memory_id"),
    "forget": _route("forget", *_CHANGED, asks=True, id="memory_id"),
    "forget_matching": _route("forget_matching", *_CONFIRM, "query", "reason", asks=True),
    "recover": _route("recover", *_CHANGED, asks=True, id="memory_id"),
    "correct": _route(
        "correct",
        *_CONFIRM,
        "correction",
        "reason",
        "by",
        "field",
        "replacement",
        "if_version",
        asks=True,
        id="memory_id",
    ),
    "promote": _route(
        "promote", *_CONFIRM, "into", "reason", "if_version", asks=True, id="memory_id"
    ),
    "share": _route("share", *_CONFIRM, "into", "reason", "if_version", asks=True, id="memory_id"),
    "pin": _route("modify", *_CHANGED, asks=True, id="memory_id"),
    "unpin": _route("modify", *_CHANGED, asks=True, id="memory_id"),
    "accept": _route("review", *_DECIDED, "changes", asks=True, id="proposal_id"),
    "defer": _route("review", *_DECIDED, asks=True, id="proposal_id"),
    "reject": _route("review", *_DECIDED, asks=True, id="proposal_id"),
    "undo": _route("review", *_DECIDED, asks=True, id="proposal_id"),
    "hold": _route(
        "working_set",
        "idempotency_key",
        tool="memory_working",
        id="thread",
        field="name",
        replacement="value",
    ),
    "start_task": _route("start_task", *_CHANGED, id="task_id"),
    "block_task": _route("block_task", *_CHANGED, by="blocker", id="task_id"),
    "unblock_task": _route("unblock_task", *_CHANGED, id="task_id"),
    "submit_review": _route("submit_task", *_CHANGED, id="task_id"),
    "complete_task": _route("complete_task", *_CHANGED, id="task_id"),
    "archive": _route("archive_task", *_CHANGED, id="task_id"),
    "estimate": _route("estimate_task", id="task_id"),
    "prioritize": _route("prioritize_tasks"),
    "detect_cycles": _route("task_cycles"),
    "link_alike": _route("link_alike", "mode", "reason", id="memory_id"),
    "synthesize_plan": _route("synthesize_plan", "query"),
    "synthesize_draft": _route("synthesize_draft", id="synthesis_id"),
    "synthesize_verify": _route("synthesize_verify", id="synthesis_id"),
    "replay": _route("replay", tool="memory_replay", id="step_id", changes="recipe"),
    "crawl": _route(
        "start_import", tool="memory_crawl", query="target", changes="options", by="schedule"
    ),
    "sync": _route(
        "start_import",
        tool="memory_sync",
        query="target",
        field="adapter",
        changes="options",
        by="schedule",
    ),
    "refresh": _route("resync_import", tool="memory_refresh", id="import_id"),
    "import_status": _route("import_status", tool="memory_import_status", id="import_id"),
    "health": _route("health_scores", tool="memory_health"),
    "stats": _route("sizes", tool="memory_stats"),
    "rebuild_index": _route("rebuild_index", "reason"),
}
"""By action."""

LET_GO: Route = _route(
    "working_drop", "idempotency_key", tool="memory_working", id="thread", field="name"
)
"""Behind `hold` without a replacement."""
