"""What each surface leaves out of the table of operations, and does beyond it, with the reasons.

Commands are made from the table, and have its names, types and help. The tools of MCP are presented
by hand. `test_surfaces.py` and `test_mcp.py` compare both with the table: every operation is
offered, or excluded with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick_mcp.routes import EXPLORE, MANAGE


@dataclass(frozen=True)
class Offer:
    """The offer of an operation, or of several, under one name."""

    operations: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The operation's argument by the name that the surface gives it."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Arguments of the surface that the operation does not have, or has differently, with
    reasons.
    """
    absent: Mapping[str, str] = field(default_factory=dict)
    """Arguments of the operation that the surface does not take, each with the reason."""


@dataclass(frozen=True)
class Surface:
    """The offers of a surface."""

    name: str
    offers: Mapping[str, Offer]
    """By the name of the command or tool."""
    excluded: Mapping[str, str]
    """Operations that it does not offer, each with the reason."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Commands of its own that are no operation, each with the reason."""
    common: Mapping[str, str] = field(default_factory=dict)
    """Arguments that every command of the surface may have, each with what it is for."""


_ISO = "text: an ISO date or time"

CLI_EXCLUDED = {
    "health_scores": "`health` shows the scores with their facts",
    "remember_many": "an application's call",
    "end_session": "`hook session-end` ends a session, `reflect` reflects on it",
    "replay_later": "`recompile` replays at once",
    "get": "`inspect` shows a memory with its reasons",
    "modify_many": "an application's call",
    "source": "`inspect` shows a source too, with the beginning of its text",
    "session_set": "`wake --conversation` gives its text",
    "space": "`spaces` lists them all",
    "approval": "`approve` and `deny` show it before they ask",
    "erase_recorded": "an application's call, which has no preview's token yet",
}
"""Operations that no command offers."""

CLI_OWN = {
    "state": "reads checkpoints, which belong to a runtime",
    "verify-threads": "reads checkpoints, which belong to a runtime",
    "import-checkpoints": "reads the database of another saver",
    "import-from": "reads exports of other products",
    "export-to": "writes files for other products",
    "receipt": "shows receipts, or writes them as a page",
    "export-receipt": "writes a bundle to a file",
    "tape": "writes a tape to a file",
    "trust": "changes what this user trusts, which no tally holds",
    "keygen": "makes a key, without a tally",
    "evidence": "reads what the gates of a release wrote, without a tally",
    "restore": "makes a tally, so that there is none yet to ask",
    "migrate": "works on a tally that this release has not opened yet",
    "hook": "a door, which answers events of an agent's session",
    "mcp": "a door, whose tools are held against the table themselves",
    "worker": "a process that works, which is no operation",
    "serve": "a process that serves, which is no operation",
    "ui": "a process that serves pages, which is no operation",
    "help": "shows the commands",
}
"""Commands that are no operation."""

_ASKED = "asked for, at the terminal"
_EITHER = "its one argument stands for it"
CLI_ABSENT: Mapping[str, Mapping[str, str]] = {
    "init": {"idempotency_key": "a new tally has no earlier request"},
    "forget": {"memory_id": _EITHER, "query": _EITHER},
    "show": {"run_id": _EITHER, "step_id": _EITHER},
    "why": {"run_id": "that of the step"},
    "recompile": {
        "recipe": "an option for each of its parts",
        "approval_token": "who types it is a person",
    },
    "verify": {"run_id": "its argument may be a bundle too"},
    "review": {
        "proposal_id": "without it all that wait, one after the other",
        **dict.fromkeys(("decision", "reason", "changes"), _ASKED),
    },
    "space": {"members": "--member, one each time", "changes": "an option for each field"},
    "preview-agent": {"actor": "an option for each of its parts"},
    "token": {
        "name": _EITHER,
        "token_id": _EITHER,
        "actor": "an option for each of its parts",
        "token_class": "--session, else it follows from the bounds",
    },
    "jobs": {"job_id": _EITHER, "job_ids": _EITHER},
    "source-import": {
        **dict.fromkeys(("target", "import_id"), _EITHER),
        "record_id": "its second argument",
    },
    "document": dict.fromkeys(("document_id", "content", "data", "path"), _EITHER),
    "synthesize": {
        **dict.fromkeys(("query", "synthesis_id"), _EITHER),
        "mode": "--later, and --apply where something is kept",
        "scopes": "the scope in which the command works, --scope",
    },
    "task": {"assignees": "--assignee, as of a task that is started"},
}
"""Arguments that a command of their operation does not have under their name."""

_PROJECT = "which scope of those that are served the call works in"
_ROOM = "a prompt has room for fewer"
_APPLICATION = "an application's argument"
_SESSION = "needs a person: a terminal, or a session that a person opened"

MCP = Surface(
    name="mcp",
    common={"project": _PROJECT},
    offers={
        "search": Offer(
            ("recall", "memories"),
            own={
                "query": "empty, it lists",
                "status": "one state of memories, or a status of tasks; active by default",
                "limit": _ROOM,
                "include_content": "without the texts, where ids are enough",
                **dict.fromkeys(("since", "until"), _ISO),
            },
            absent={
                "scopes": "the boundary of the server, narrowed by `project`",
                **dict.fromkeys(
                    (
                        "states",
                        "project",
                        "asked_at",
                        "budget_tokens",
                        "as_of",
                        "min_score",
                        "namespace",
                        "only_confident",
                        "conversation",
                    ),
                    _APPLICATION,
                ),
            },
        ),
        "explore": Offer(
            (*dict.fromkeys(route.operation.name for route in EXPLORE.values()), "unseen"),
            own={
                "mode": "which of its operations",
                "id": "the id of whatever the mode is about",
                "query": "a question, a sentence or the name of a tool",
                "arguments": "of the call that the mode `policy` judges",
                "limit": _ROOM,
            },
            absent={
                "scopes": "the boundary of the server, narrowed by `project`",
                **dict.fromkeys(
                    (
                        "states",
                        "mode",
                        "budget_tokens",
                        "model",
                        "after",
                        "state",
                        "actor",
                        "foil",
                        "lifetime",
                        "run_id",
                        "kinds",
                        "status",
                        "links",
                        "about",
                        "project",
                        "format",
                    ),
                    _APPLICATION,
                ),
            },
        ),
        "add": Offer(
            ("remember",),
            own={
                "source": "its address alone",
                "auto_link": "whether `link_alike` links it with what it is like",
                **dict.fromkeys(("occurred_at", "valid_until"), _ISO),
            },
            absent=dict.fromkeys(
                (
                    "category",
                    "speaker",
                    "conversation",
                    "position",
                    "entities",
                    "confidence",
                    "valid_from",
                    "expires_at",
                    "mode",
                    "timeout_ms",
                ),
                _APPLICATION,
            ),
        ),
        "manage": Offer(
            (*dict.fromkeys(route.operation.name for route in MANAGE.values()), "working_drop"),
            own={
                "action": "which of its operations; of a proposal its decision",
                "id": "the id of whatever the action is about",
                "reason": "needed by every change",
                "changes": "of modify, of a proposal, of a replay",
                "correction": "of correct",
                "into": "of promote and share",
                "field": "of redact; the name of what a thread keeps",
                "replacement": "of redact; what a thread keeps",
                "query": "of forget_matching; what to import",
            },
            absent={
                "decision": "an action each, such as accept; accept with `changes` edits",
                "send": "among the `changes` of a replay",
                "replace_attributes": "among the `changes` of modify",
                "schedule": "a person says how often a source is read",
                **dict.fromkeys(
                    (
                        "assignee",
                        "branch",
                        "commits",
                        "pr_url",
                        "hours",
                        "learnings",
                        "project",
                    ),
                    "among the `changes` of a task",
                ),
                **dict.fromkeys(
                    (
                        "output_type",
                        "audience",
                        "depth",
                        "scopes",
                        "source_ids",
                        "entity_ids",
                        "outline",
                        "max_age",
                        "stale",
                        "format",
                        "section_tokens",
                        "on_behalf_of",
                        "if_digest",
                        "accept",
                        "drafter",
                        "collect",
                    ),
                    "among the `changes` of a document",
                ),
                "approval_token": "a person grants, and the same call passes",
                **dict.fromkeys(("force", "manual_override"), _SESSION),
                **dict.fromkeys(
                    (
                        "threshold",
                        "limit",
                        "kinds",
                        "tags",
                        "since",
                        "until",
                        "speaker",
                        "source_type",
                        "evidence",
                        "valid_from",
                        "lifetime",
                        "run_id",
                        "expires_in",
                        "resync",
                    ),
                    _APPLICATION,
                ),
            },
        ),
    },
    excluded={
        "session_set": "explore with the mode wake and the id of a session gives its text",
        **dict.fromkeys(("remember_many", "modify_many"), "an application's call"),
        **dict.fromkeys(
            (
                "approve",
                "deny",
                "revoke",
                "erase",
                "erase_user",
                "erase_recorded",
                "freeze",
                "thaw",
                "purge",
                "choose_windows",
                "create_space",
                "update_space",
                "export",
                "backup",
                "import_from",
                "reembed",
            ),
            _SESSION,
        ),
        **dict.fromkeys(("make_token", "tokens", "rotate_token", "revoke_token"), _SESSION),
        **dict.fromkeys(("reflect", "end_session"), "an application's call, as a session ends"),
        **dict.fromkeys(
            ("add_document", "documents", "document", "document_chunks"),
            "an application's call: search finds the passages, each with its document",
        ),
        **dict.fromkeys(
            (
                "imports",
                "import_records",
                "preview_import",
                "pause_import",
                "resume_import",
                "cancel_import",
                "replay_record",
                "remove_vanished",
            ),
            "work of whoever keeps the source",
        ),
        "synthesize_sections": "`synthesize_draft` collects them first",
        "synthesize_runs": "a person looks through documents",
        **dict.fromkeys(
            ("synthesize_remember", "synthesize_refresh"),
            "a person keeps a document, and lets it be made anew",
        ),
        "tasks": "`search` lists tasks by their state, `prioritize` with what each waits for",
        "plan": "the mode `get` shows its steps",
        "advance_plan": "`modify` gives its steps a state",
        "cancel_task": "`modify` gives it the state",
        **dict.fromkeys(("aliases", "keep_apart"), "a person looks at names and parts them"),
        **dict.fromkeys(
            (
                "doctor",
                "metrics",
                "health",
                "diagnose",
                "alerts",
                "repair",
                "rollback",
                "recover_many",
                "backfill",
                "resume_autonomy",
                "compare",
                "analytics",
                "timeline",
            ),
            "work of whoever runs the tally: an agent sees the scores of the action `health`",
        ),
        "events": "an application's call",
        "proposal": "the mode `reviews` lists them with all they have",
        "approval": "the mode `approvals` lists them with all they have",
        "run": "the resource tally://run/{id}",
        "working_get": "the mode `working` lists them with all they have",
        "step": "`steps` lists them with all they have",
        "entries": "payloads, which a person reads at a terminal",
        "changed": "figures for a person",
        "diff": "figures for a person",
        "written": "figures for a person",
        "replay_later": "the action `replay` replays at once",
        "spaces": "the mode `scopes` lists what may be reached",
        "space": "the mode `scopes` lists what may be reached",
        "preview_member": "the step before `update_space`, which needs a person",
        "prove_unreachable": "a proof for a person",
        "prove_erased": "a proof for a person",
        **dict.fromkeys(
            ("jobs", "job", "retry_jobs", "cancel_job", "outbound_calls"),
            "work of the server's owner",
        ),
    },
)
"""The offers of the MCP server."""
