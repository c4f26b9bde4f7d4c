"""The routes: each operation under the method and path by which HTTP offers it.

An operation has one path of its own, and may have others. What is not here is in `EXCLUDED`, with
the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

PREFIX = "/v1"
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


OF_THE_URL: tuple[Method, ...] = ("GET", "DELETE")
"""Methods whose arguments stand in the query, because such a request has no body."""


@dataclass(frozen=True)
class Route:
    """One operation as HTTP offers it."""

    operation: str
    """Its name in the table of operations."""
    method: Method
    path: str
    """Behind `/v1`; `{name}` is an argument of the operation."""
    group: str = ""
    """The part of the reference that it stands in."""
    also: tuple[tuple[Method, str], ...] = ()
    """Other methods and paths of the same."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the path has decided."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Arguments that it does not take, each with the reason."""
    status: int = 200
    cursor: tuple[str, str] | None = None
    """The argument for the next page, and the field of the last result that goes there."""

    def fixed_at(self, path: str) -> Mapping[str, Any]:
        """Return the arguments that one of its paths has decided: another one that ends with
        `/preview` changes nothing.
        """
        is_preview = path != self.path and path.endswith("/preview") and "mode" not in self.fixed
        return {**self.fixed, "mode": "preview"} if is_preview else self.fixed


_NO_PATHS = "a path of the server's machine, which no caller may name"


def _route(operation: str, place: str, *also: str, **more: Any) -> Route:
    """Return the route of an operation at its place, such as `GET /memories`, and at others."""
    method, path = _place(place)
    return Route(operation, method, path, also=tuple(map(_place, also)), **more)


def _place(text: str) -> tuple[Method, str]:
    method, path = text.split(" ")
    return cast(Method, method), path


def _group(group: str, *routes: Route) -> tuple[Route, ...]:
    return tuple(replace(route, group=group) for route in routes)


ROUTES: tuple[Route, ...] = (
    *_group(
        "Documents",
        _route(
            "add_document", "POST /documents", "POST /documents/file", absent={"path": _NO_PATHS}
        ),
        _route("documents", "GET /documents", cursor=("before", "id")),
        _route("document", "GET /documents/{document_id}"),
        _route("document_chunks", "GET /documents/{document_id}/chunks"),
        _route("start_import", "POST /sources/imports", status=202),
        _route("preview_import", "POST /sources/imports/preview"),
        _route("imports", "GET /sources/imports", cursor=("before", "id")),
        _route("import_status", "GET /sources/imports/{import_id}"),
        _route(
            "import_records",
            "GET /sources/imports/{import_id}/records",
            cursor=("after", "record_id"),
        ),
        _route("pause_import", "POST /sources/imports/{import_id}/pause"),
        _route("resume_import", "POST /sources/imports/{import_id}/resume"),
        _route("cancel_import", "POST /sources/imports/{import_id}/cancel"),
        _route("resync_import", "POST /sources/imports/{import_id}/resync", status=202),
        _route("replay_record", "POST /sources/imports/{import_id}/replay"),
        _route("remove_vanished", "POST /sources/imports/{import_id}/vanished"),
    ),
    *_group(
        "Memory",
        _route(
            "remember",
            "POST /remember",
            "POST /memories",
            "POST /memory/remember",
            "POST /memory/write",
        ),
        _route("remember_many", "POST /memories/batch"),
        _route("memories", "GET /memories", cursor=("before", "id")),
        _route("recall", "POST /recall", "POST /memory/read"),
        _route("modify_many", "POST /memories/modify", "POST /memory/modify"),
        _route("forget_matching", "POST /memories/forget", "POST /memory/forget"),
        _route("explore", "GET /explore"),
        _route("get", "GET /memories/{memory_id}"),
        _route("modify", "PATCH /memories/{memory_id}", "PATCH /memory/{memory_id}"),
        _route("forget", "DELETE /memories/{memory_id}", "DELETE /memory/{memory_id}"),
        _route("recover", "POST /memories/{memory_id}/recover", "POST /memory/{memory_id}/recover"),
        _route(
            "correct",
            "POST /memories/{memory_id}/corrections",
            "POST /memory/corrections",
            "POST /memory/corrections/preview",
        ),
        _route("promote", "POST /memories/{memory_id}/promote"),
        _route("share", "POST /memories/{memory_id}/share"),
        _route("inspect", "GET /memories/{memory_id}/inspect"),
        _route("history", "GET /memories/{memory_id}/history", "GET /memory/{memory_id}/history"),
        _route("uses", "GET /memories/{memory_id}/uses"),
        _route("source", "GET /sources/{source_id}", "GET /memory/inspect/{source_id}"),
        _route("prove_unreachable", "GET /memories/{memory_id}/proof"),
    ),
    *_group(
        "Context",
        _route("pack", "POST /pack", "POST /context/pack"),
        _route("wake", "POST /context/wake"),
        _route("session_set", "POST /context/session"),
        _route("working_set", "POST /working"),
        _route("working_list", "GET /working"),
        _route("working_get", "GET /working/{name:path}"),
        _route("working_drop", "DELETE /working/{name:path}"),
    ),
    *_group(
        "Access",
        _route("preview_access", "POST /access/preview", "POST /memory/spaces/members/preview"),
        _route(
            "preview_member",
            "POST /spaces/{scope:path}/members/preview",
            "POST /memory/spaces/{scope:path}/members/preview",
        ),
        _route("create_space", "POST /spaces", "POST /memory/spaces"),
        _route("spaces", "GET /spaces", "GET /memory/spaces"),
        _route(
            "update_space",
            "POST /spaces/{scope:path}/members",
            "PATCH /spaces/{scope:path}",
            "POST /memory/spaces/{scope:path}/members",
        ),
        _route("space", "GET /spaces/{scope:path}", "GET /memory/spaces/{scope:path}"),
        _route("make_token", "POST /tokens"),
        _route("tokens", "GET /tokens"),
        _route("rotate_token", "POST /tokens/{token_id}/rotate"),
        _route("revoke_token", "DELETE /tokens/{token_id}"),
    ),
    *_group(
        "Runs",
        _route("runs", "GET /runs", cursor=("before", "id")),
        _route("run", "GET /runs/{run_id}"),
        _route("steps", "GET /runs/{run_id}/steps"),
        _route("verify", "POST /runs/{run_id}/verify"),
        _route("written", "GET /runs/{run_id}/written"),
        _route("step", "GET /steps/{step_id}"),
        _route("entries", "GET /steps/{step_id}/entries", "GET /compilations/{step_id}"),
        _route("receipt", "GET /steps/{step_id}/receipt"),
        _route("knew", "GET /steps/{step_id}/knew"),
        _route("unseen", "GET /steps/{step_id}/unseen"),
        _route("trace", "GET /steps/{step_id}/trace"),
        _route("changed", "GET /steps/{step_id}/changed"),
        _route("diff", "GET /diff/{before}/{after}", "GET /diff/steps/{before}/{after}"),
        _route("replay", "POST /steps/{step_id}/recompile"),
        _route("replay_later", "POST /steps/{step_id}/replay", "POST /replay", status=202),
    ),
    *_group(
        "Work",
        _route("tasks", "GET /tasks"),
        _route("prioritize_tasks", "GET /tasks/next"),
        _route("task_cycles", "GET /tasks/cycles"),
        _route("start_task", "POST /tasks/{task_id}/start"),
        _route("block_task", "POST /tasks/{task_id}/block"),
        _route("unblock_task", "POST /tasks/{task_id}/unblock"),
        _route("submit_task", "POST /tasks/{task_id}/submit"),
        _route("complete_task", "POST /tasks/{task_id}/complete"),
        _route("cancel_task", "POST /tasks/{task_id}/cancel"),
        _route("archive_task", "POST /tasks/{task_id}/archive"),
        _route("estimate_task", "GET /tasks/{task_id}/estimate"),
        _route("plan", "GET /plans/{plan_id}"),
        _route("advance_plan", "POST /plans/{plan_id}/steps"),
        _route("link_alike", "POST /memories/{memory_id}/alike"),
        _route("aliases", "GET /graph/aliases"),
        _route("keep_apart", "POST /graph/apart"),
    ),
    *_group(
        "Synthesis",
        _route("synthesize_plan", "POST /synthesize/plan"),
        _route("synthesize_sections", "POST /synthesize/sections"),
        _route("synthesize_draft", "POST /synthesize/draft"),
        _route("synthesize_verify", "POST /synthesize/verify"),
        _route("synthesize_remember", "POST /synthesize/remember"),
        _route("synthesize_refresh", "POST /synthesize/refresh"),
        _route("synthesize_runs", "GET /synthesize/runs", cursor=("before", "id")),
        _route("synthesize_run", "GET /synthesize/runs/{synthesis_id}"),
    ),
    *_group(
        "Reviews",
        _route("reflect", "POST /reflect"),
        _route("end_session", "POST /sessions/end"),
        _route("reviews", "GET /reviews", cursor=("after", "id")),
        _route("proposal", "GET /reviews/{proposal_id}"),
        _route("review", "POST /reviews/{proposal_id}"),
    ),
    *_group(
        "Approvals",
        _route("approvals", "GET /approvals", cursor=("before", "id")),
        _route("approval", "GET /approvals/{approval_id}"),
        _route("approve", "POST /approvals/{approval_id}/approve"),
        _route("deny", "POST /approvals/{approval_id}/deny"),
        _route("revoke", "POST /approvals/{approval_id}/revoke"),
    ),
    *_group(
        "Jobs",
        _route("jobs", "GET /jobs", cursor=("before", "id")),
        _route("retry_jobs", "POST /jobs/retry"),
        _route("job", "GET /jobs/{job_id}", "GET /memory/jobs/{job_id}", "GET /replay/{job_id}"),
        _route("cancel_job", "POST /jobs/{job_id}/cancel"),
        _route("outbound_calls", "GET /outbound-calls", cursor=("before", "id")),
    ),
    *_group(
        "Stewardship",
        _route("health", "GET /diagnostics"),
        _route("health_scores", "GET /diagnostics/scores"),
        _route("diagnose", "GET /diagnostics/{domain}"),
        _route("alerts", "GET /alerts"),
        _route("events", "GET /events", cursor=("after", "cursor")),
        _route("repair", "POST /repairs"),
        _route("rollback", "POST /memories/rollback"),
        _route("recover_many", "POST /memories/take-back"),
        _route("backfill", "POST /backfill"),
        _route("resume_autonomy", "POST /autonomy/resume"),
        _route("compare", "POST /compare"),
        _route("analytics", "GET /analytics/{analysis}"),
        _route("timeline", "GET /timeline/{subject:path}"),
    ),
    *_group(
        "Operating",
        _route("erase", "POST /erase", "POST /memory/delete", "POST /memory/delete/preview"),
        _route("erase_user", "DELETE /users/{user:path}"),
        _route("erase_recorded", "POST /runs/{run_id}/erase"),
        _route("prove_erased", "POST /memories/{memory_id}/proof"),
        _route("purge", "POST /purge"),
        _route("choose_windows", "POST /windows"),
        _route("doctor", "POST /doctor"),
        _route("sizes", "GET /sizes"),
        _route("rebuild_index", "POST /index/rebuild"),
        _route("freeze", "POST /freeze"),
        _route("thaw", "POST /thaw"),
        _route(
            "export",
            "POST /export/preview",
            "POST /memory/export/preview",
            fixed={"folder": None, "mode": "preview"},
            absent={"folder": _NO_PATHS, "mode": "to write one is work of the server's machine"},
        ),
    ),
)
"""The routes of operations, in the order in which the reference lists them. Of two that a path
fits the first one answers.
"""

_OF_TEXTS = (
    "add_document",
    "remember",
    "remember_many",
    "modify",
    "modify_many",
    "correct",
    "review",
)
BULK: frozenset[str] = frozenset(
    {
        *(
            f"{method} {path}"
            for route in ROUTES
            if route.operation in _OF_TEXTS
            for method, path in ((route.method, route.path), *route.also)
        ),
        "POST /context/compile",
        "POST /compile",
        "POST /model/call",
        "POST /policy/check",
        "POST /runs/{run_id}/steps",
        "POST /steps/{step_id}/entries",
        "POST /tools/result",
        "POST /items",
        "POST /frames",
        "POST /hooks/{event}",
        "POST /tools/{name}",
    }
)
"""Routes that take long bodies: texts, payloads, or many of something."""

EXCLUDED: Mapping[str, str] = {
    "import_from": _NO_PATHS,
    "backup": _NO_PATHS,
    "metrics": "GET /metrics has them in the text format of Prometheus",
    "reembed": "whoever calls it says where every text is sent: that is for who has the machine",
}
"""Operations without a route, each with the reason."""

OWN: Mapping[str, str] = {
    "GET /health": "whether the server runs",
    "GET /ready": "whether the tally answers",
    "GET /metrics": "the measures of the tally, as Prometheus reads them",
    "GET /events/stream": "events behind a cursor, as server-sent events",
    "GET /whoami": "who the token says that the caller is",
    "POST /context/compile": "a compile of candidates that the caller sends",
    "POST /model/call": "sends a compiled context to a model of the setting `providers`",
    "POST /policy/check": "rules and approvals, for a call that happens with the caller",
    "POST /runs": "starts a run, which the caller records step by step",
    "POST /runs/{run_id}/steps": "records a step of such a run, whole or open",
    "POST /steps/{step_id}/entries": "records entries in an open step",
    "POST /steps/{step_id}/end": "ends an open step",
    "POST /runs/{run_id}/end": "ends such a run",
    "POST /tools/result": "records a tool call as a step",
    "GET /runs/{run_id}/receipts": "the receipts of a run, in one answer",
    "GET /runs/{run_id}/foil": "the end of a run's chain",
    "GET /runs/{run_id}/bundle": "a bundle, which is a file",
    "GET /runs/{run_id}/events": "a run as it goes on, as server-sent events",
    "GET /jobs/{job_id}/events": "a job as it goes on, as server-sent events",
    "POST /items": "puts and deletes items of a store, all or none",
    "POST /items/get": "the items under addresses",
    "POST /items/find": "the items beneath a namespace",
    "POST /items/namespaces": "the namespaces that have items",
    "POST /items/sweep": "forgets items whose time to live is over",
    "POST /frames": "codes of frames around memory texts, which the server signs",
    "POST /hooks/{event}": "the hooks of coding agents",
    "POST /tools/{name}": "the memory tools, with the answers that a model reads",
}
"""Routes that are no operation, each with what it is."""
