"""The routes: each operation under the method and path by which HTTP offers it.

An operation has one path of its own, and may have others. What is not here is in `EXCLUDED`, with
the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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
    group: str
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

ROUTES: tuple[Route, ...] = (
    # Memory.
    Route(
        "remember",
        "POST",
        "/memories",
        "Memory",
        also=(("POST", "/memory/remember"), ("POST", "/memory/write")),
    ),
    Route("remember_many", "POST", "/memories/batch", "Memory"),
    Route(
        "memories",
        "GET",
        "/memories",
        "Memory",
        cursor=("before", "id"),
    ),
    Route("recall", "POST", "/recall", "Memory", also=(("POST", "/memory/read"),)),
    Route("modify_many", "POST", "/memories/modify", "Memory", also=(("POST", "/memory/modify"),)),
    Route(
        "forget_matching", "POST", "/memories/forget", "Memory", also=(("POST", "/memory/forget"),)
    ),
    Route("explore", "GET", "/explore", "Memory"),
    Route("get", "GET", "/memories/{memory_id}", "Memory"),
    Route(
        "modify",
        "PATCH",
        "/memories/{memory_id}",
        "Memory",
        also=(("PATCH", "/memory/{memory_id}"),),
    ),
    Route(
        "forget",
        "DELETE",
        "/memories/{memory_id}",
        "Memory",
        also=(("DELETE", "/memory/{memory_id}"),),
    ),
    Route(
        "recover",
        "POST",
        "/memories/{memory_id}/recover",
        "Memory",
        also=(("POST", "/memory/{memory_id}/recover"),),
    ),
    Route(
        "correct",
        "POST",
        "/memories/{memory_id}/corrections",
        "Memory",
        also=(("POST", "/memory/corrections"), ("POST", "/memory/corrections/preview")),
    ),
    Route("promote", "POST", "/memories/{memory_id}/promote", "Memory"),
    Route("share", "POST", "/memories/{memory_id}/share", "Memory"),
    Route("inspect", "GET", "/memories/{memory_id}/inspect", "Memory"),
    Route(
        "history",
        "GET",
        "/memories/{memory_id}/history",
        "Memory",
        also=(("GET", "/memory/{memory_id}/history"),),
    ),
    Route("uses", "GET", "/memories/{memory_id}/uses", "Memory"),
    Route(
        "source",
        "GET",
        "/sources/{source_id}",
        "Memory",
        also=(("GET", "/memory/inspect/{source_id}"),),
    ),
    Route("prove_unreachable", "GET", "/memories/{memory_id}/proof", "Memory"),
    # Context.
    Route("context_pack", "POST", "/context/pack", "Context"),
    Route("wake", "POST", "/context/wake", "Context"),
    # Who may see what.
    Route(
        "preview_access",
        "POST",
        "/access/preview",
        "Access",
        also=(("POST", "/memory/spaces/members/preview"),),
    ),
    Route(
        "preview_member",
        "POST",
        "/spaces/{scope:path}/members/preview",
        "Access",
        also=(("POST", "/memory/spaces/{scope:path}/members/preview"),),
    ),
    Route("create_space", "POST", "/spaces", "Access", also=(("POST", "/memory/spaces"),)),
    Route("spaces", "GET", "/spaces", "Access", also=(("GET", "/memory/spaces"),)),
    Route(
        "update_space",
        "POST",
        "/spaces/{scope:path}/members",
        "Access",
        also=(("PATCH", "/spaces/{scope:path}"), ("POST", "/memory/spaces/{scope:path}/members")),
    ),
    Route(
        "space",
        "GET",
        "/spaces/{scope:path}",
        "Access",
        also=(("GET", "/memory/spaces/{scope:path}"),),
    ),
    Route("make_token", "POST", "/tokens", "Access"),
    Route("tokens", "GET", "/tokens", "Access"),
    Route("rotate_token", "POST", "/tokens/{token_id}/rotate", "Access"),
    Route("revoke_token", "DELETE", "/tokens/{token_id}", "Access"),
    # Runs, steps, receipts.
    Route("runs", "GET", "/runs", "Runs", cursor=("before", "run_id")),
    Route("run", "GET", "/runs/{run_id}", "Runs"),
    Route("steps", "GET", "/runs/{run_id}/steps", "Runs"),
    Route("verify", "POST", "/runs/{run_id}/verify", "Runs"),
    Route("written", "GET", "/runs/{run_id}/written", "Runs"),
    Route("step", "GET", "/steps/{step_id}", "Runs"),
    Route(
        "entries",
        "GET",
        "/steps/{step_id}/entries",
        "Runs",
        also=(("GET", "/compilations/{step_id}"),),
    ),
    Route("receipt", "GET", "/steps/{step_id}/receipt", "Runs"),
    Route("knew", "GET", "/steps/{step_id}/knew", "Runs"),
    Route("unseen", "GET", "/steps/{step_id}/unseen", "Runs"),
    Route("trace", "GET", "/steps/{step_id}/trace", "Runs"),
    Route("changed", "GET", "/steps/{step_id}/changed", "Runs"),
    Route(
        "diff",
        "GET",
        "/diff/{before}/{after}",
        "Runs",
        also=(("GET", "/diff/steps/{before}/{after}"),),
    ),
    Route("replay", "POST", "/steps/{step_id}/recompile", "Runs"),
    Route(
        "replay_later",
        "POST",
        "/steps/{step_id}/replay",
        "Runs",
        also=(("POST", "/replay"),),
        status=202,
    ),
    # Approvals.
    Route("reflect", "POST", "/reflect", "Reviews"),
    Route("end_session", "POST", "/sessions/end", "Reviews"),
    Route("reviews", "GET", "/reviews", "Reviews", cursor=("after", "id")),
    Route("proposal", "GET", "/reviews/{proposal_id}", "Reviews"),
    Route("review", "POST", "/reviews/{proposal_id}", "Reviews"),
    Route("approvals", "GET", "/approvals", "Approvals", cursor=("before", "id")),
    Route("approval", "GET", "/approvals/{approval_id}", "Approvals"),
    Route("approve", "POST", "/approvals/{approval_id}/approve", "Approvals"),
    Route("deny", "POST", "/approvals/{approval_id}/deny", "Approvals"),
    Route("revoke", "POST", "/approvals/{approval_id}/revoke", "Approvals"),
    # Follow-up work.
    Route("jobs", "GET", "/jobs", "Jobs", cursor=("before", "id")),
    Route("retry_jobs", "POST", "/jobs/retry", "Jobs"),
    Route(
        "job",
        "GET",
        "/jobs/{job_id}",
        "Jobs",
        also=(("GET", "/memory/jobs/{job_id}"), ("GET", "/replay/{job_id}")),
    ),
    Route("cancel_job", "POST", "/jobs/{job_id}/cancel", "Jobs"),
    Route("outbound_calls", "GET", "/outbound-calls", "Jobs", cursor=("before", "id")),
    # Operating.
    Route(
        "erase",
        "POST",
        "/erase",
        "Operating",
        also=(("POST", "/memory/delete"), ("POST", "/memory/delete/preview")),
    ),
    Route("erase_recorded", "POST", "/runs/{run_id}/erase", "Operating"),
    Route("prove_erased", "POST", "/memories/{memory_id}/proof", "Operating"),
    Route("purge", "POST", "/purge", "Operating"),
    Route("choose_windows", "POST", "/windows", "Operating"),
    Route("doctor", "POST", "/doctor", "Operating"),
    Route("sizes", "GET", "/sizes", "Operating"),
    Route("rebuild_index", "POST", "/index/rebuild", "Operating"),
    Route("freeze", "POST", "/freeze", "Operating"),
    Route("thaw", "POST", "/thaw", "Operating"),
    Route(
        "export",
        "POST",
        "/export/preview",
        "Operating",
        also=(("POST", "/memory/export/preview"),),
        fixed={"folder": None, "mode": "preview"},
        absent={"folder": _NO_PATHS, "mode": "to write one is work of the server's machine"},
    ),
)
"""The routes of operations, in the order in which the reference lists them. Of two that a path
fits the first one answers.
"""

EXCLUDED: Mapping[str, str] = {"import_from": _NO_PATHS, "backup": _NO_PATHS}
"""Operations without a route, each with the reason."""

OWN: Mapping[str, str] = {
    "GET /health": "whether the server runs",
    "GET /ready": "whether the tally answers",
    "GET /whoami": "who the token says that the caller is",
    "POST /context/compile": "a compile of candidates that the caller sends",
    "POST /policy/check": "rules and approvals, for a call that happens with the caller",
    "POST /runs": "starts a run, which the caller records step by step",
    "POST /runs/{run_id}/steps": "records a step of such a run, whole",
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
