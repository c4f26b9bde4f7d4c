"""The operations that each surface offers, and those that it leaves out, with the reasons.

A surface presents by hand: commands with positionals and prompts, tools with signatures that a
runtime reads. `test_surfaces.py` and `test_mcp.py` compare them with the table: every operation is
offered, or excluded with a reason, and each argument has the table's name, type, default and help
unless the offer gives a reason to differ.
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
    note: str = ""
    """A sentence that the surface adds to the description."""
    is_part: bool = False
    """True if the operation is a part of what the command does, which then describes itself."""


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


_PART_OF_ID = "takes the beginning or end of an id too"
_APPLY = "a flag, beside the preview that is the default"
_MEMORY = {"memory": _PART_OF_ID}
_STEP = {"step": _PART_OF_ID}
_CONFIRM = {"apply": "mode", "token": "confirm_token", "key": "idempotency_key"}
_OF_CHANGES = "a field of `changes`"
_LISTS = "the option of all lists"
_ISO = "text: an ISO date or time"
_SCOPES = "by default all that one may read"
_OF_SOURCE = "a part of the source"
_PERSON = "Shows it first and needs a person at a terminal."
_ELSEWHERE = "an application's argument; the command keeps to what a person types"

CLI = Surface(
    name="cli",
    common={
        "where": "which tally",
        "as_json": "for programs",
        "scope": "which scope the command works in",
    },
    offers={
        "remember": Offer(
            ("remember",),
            renamed={
                "text": "content",
                "tag": "tags",
                "entity": "entities",
                "source_uri": "source",
                "key": "idempotency_key",
            },
            own={
                "text": "without it standard input is read",
                "tag": "one each time",
                "entity": "one each time",
                **dict.fromkeys(("occurred_at", "valid_from", "valid_until", "expires_at"), _ISO),
                **dict.fromkeys(("source_uri", "source_title", "source_type"), _OF_SOURCE),
            },
            absent=dict.fromkeys(("attributes", "derived_from"), _ELSEWHERE),
        ),
        "recall": Offer(
            ("recall",),
            renamed={"text": "query", "kind": "kinds", "tag": "tags", "scope": "scopes"},
            own={
                "limit": "the default, spelled out",
                "scope": _SCOPES,
                "since": _ISO,
                "until": _ISO,
            },
            absent=dict.fromkeys(
                ("asked_at", "budget_tokens", "states", "as_of", "namespace", "only_confident"),
                _ELSEWHERE,
            ),
        ),
        "memories": Offer(
            ("memories",),
            renamed={"state": "states", "kind": "kinds", "tag": "tags"},
            own={
                "limit": "a terminal shows fewer",
                "state": "one each time; active by default",
                "since": _ISO,
                "until": _ISO,
            },
            absent={"namespace": _ELSEWHERE},
        ),
        "explore": Offer(
            ("explore",),
            own={"around": _PART_OF_ID, "limit": _LISTS},
            absent={"states": _ELSEWHERE},
        ),
        "wake": Offer(("wake",), renamed={"scope": "scopes"}, own={"scope": _SCOPES}),
        "pack": Offer(("context_pack",), renamed={"scope": "scopes"}, own={"scope": _SCOPES}),
        "inspect": Offer(("inspect",), renamed={"memory": "memory_id"}, own=_MEMORY),
        "history": Offer(("history",), renamed={"memory": "memory_id"}, own=_MEMORY),
        "modify": Offer(
            ("modify",),
            renamed={
                "memory": "memory_id",
                "key": "idempotency_key",
                "lock": "manual_override",
                "content": "changes",
            },
            own={
                **_MEMORY,
                **dict.fromkeys(("content", "tag", "kind", "importance", "pinned"), _OF_CHANGES),
                "lock": "a flag: for as long as the settings say",
            },
        ),
        "correct": Offer(
            ("correct",),
            renamed={"memory": "memory_id", **_CONFIRM},
            own={
                **_MEMORY,
                "apply": _APPLY,
                "by": _PART_OF_ID,
                "correction": "text, whose values its help lists",
            },
            absent=dict.fromkeys(("evidence", "valid_from", "if_version", "force"), _ELSEWHERE),
        ),
        "forget": Offer(
            ("forget", "forget_matching"),
            renamed={
                "what": "memory_id",
                "matching": "query",
                "kind": "kinds",
                "tag": "tags",
                **_CONFIRM,
            },
            own={
                "what": "an id, or with --matching a query",
                "matching": "a flag that makes WHAT a query",
                "preview": "what a forget would do, which `correct` previews",
                "apply": _APPLY,
                "since": _ISO,
                "until": _ISO,
            },
            absent=dict.fromkeys(("if_version", "limit"), _ELSEWHERE),
        ),
        "recover": Offer(
            ("recover",),
            renamed={"memory": "memory_id", "key": "idempotency_key"},
            own=_MEMORY,
            absent={"if_version": _ELSEWHERE},
        ),
        "promote": Offer(
            ("promote",),
            renamed={"memory": "memory_id", **_CONFIRM},
            own={**_MEMORY, "apply": _APPLY},
            absent={"if_version": _ELSEWHERE},
        ),
        "share": Offer(
            ("share",),
            renamed={"memory": "memory_id", **_CONFIRM},
            own={**_MEMORY, "apply": _APPLY},
            absent={"if_version": _ELSEWHERE},
        ),
        "preview-agent": Offer(
            ("preview_access",),
            renamed={"user": "actor", "scope": "scopes"},
            own={
                **dict.fromkeys(("user", "agent", "project", "delegation"), "a part of the actor"),
                "scope": "by default all there are",
            },
        ),
        "token": Offer(
            ("make_token", "tokens", "rotate_token", "revoke_token"),
            renamed={
                "what": "token_id",
                "user": "actor",
                "scope": "scopes",
                "operation": "operations",
                "session": "token_class",
                "key": "idempotency_key",
            },
            own={
                "action": "which of these operations",
                "what": "an id, or the name of a new one",
                **dict.fromkeys(("user", "agent", "project", "operator"), "a part of the actor"),
                "scope": "one each time",
                "operation": "one each time",
                "session": "else it follows from the bounds",
                "expires_in": "with a unit",
                "reason": "only to revoke",
            },
            absent={"name": "the argument of make"},
        ),
        "runs": Offer(("runs",), own={"limit": _LISTS}),
        "show": Offer(
            ("run", "steps", "step", "entries", "receipt"),
            renamed={"identity": "step_id"},
            own={"identity": "a step, or a run whose steps are listed"},
            absent={
                "run_id": "either id is taken",
                "after": "all steps are shown",
                "limit": "all steps are shown",
            },
        ),
        "why": Offer(
            ("knew", "unseen", "changed", "written"),
            renamed={"step": "step_id"},
            own=_STEP,
            absent={"run_id": "that of the step"},
        ),
        "trace": Offer(("trace",), renamed={"step": "step_id"}, own=_STEP),
        "diff": Offer(("diff",), own=dict.fromkeys(("before", "after"), _PART_OF_ID)),
        "uses": Offer(
            ("uses",), renamed={"memory": "memory_id"}, own=_MEMORY, absent={"most": _ELSEWHERE}
        ),
        "verify": Offer(
            ("verify",),
            renamed={"run": "run_id"},
            own={
                "run": "a part of an id, or the file of a bundle",
                "foil": "COUNT:DIGEST, as the command prints it",
                "public_key": "of a bundle, which is checked without the tally",
            },
            note="A bundle is checked without the tally. Exits with 1 when something differs.",
        ),
        "recompile": Offer(
            ("replay",),
            renamed={"identity": "step_id", "drop": "recipe"},
            own={
                "identity": _PART_OF_ID,
                "keep": "records it; without it nothing is recorded",
                "send": "calls the model of a provider",
                **dict.fromkeys(
                    ("drop", "source", "model", "provider", "weights", "budget", "rules"),
                    "a part of the recipe",
                ),
            },
            is_part=True,
        ),
        "spaces": Offer(("spaces",)),
        "space": Offer(
            ("create_space", "update_space", "preview_member"),
            renamed={"key": "idempotency_key", "member": "members", "state": "changes"},
            own={
                "scope": "which scope, as an argument",
                "name": "needed to create it",
                "description": "kept as it is where it is left out",
                "member": "one member each time",
                "if_version": "the option that memories have too",
                "without": "a part of `changes`",
                "state": "a part of `changes`",
                "preview": "the other of its operations, for each member",
            },
            absent={"member": "one of --member"},
        ),
        "reflect": Offer(
            ("reflect",),
            renamed={"source": "sources"},
        ),
        "reviews": Offer(
            ("reviews",),
            renamed={"state": "states"},
            own={"limit": _LISTS, "state": "one each time; what waits by default"},
        ),
        "review": Offer(
            ("review", "proposal"),
            renamed={"proposal": "proposal_id", "key": "idempotency_key"},
            own={"proposal": "without it all that wait, one after the other"},
            absent=dict.fromkeys(("decision", "reason", "changes"), "asked for, at the terminal"),
        ),
        "approvals": Offer(
            ("approvals",),
            own={"limit": _LISTS, "state": "`all` in place of none"},
        ),
        "approve": Offer(
            ("approve",),
            renamed={"approval": "approval_id", "key": "idempotency_key"},
            own={"approval": _PART_OF_ID, "expires_in": "whole seconds"},
            note=_PERSON,
        ),
        "deny": Offer(
            ("deny",),
            renamed={"approval": "approval_id", "key": "idempotency_key"},
            own={"approval": _PART_OF_ID},
            note=_PERSON,
        ),
        "revoke": Offer(
            ("revoke",),
            renamed={"approval": "approval_id", "key": "idempotency_key"},
            own={"approval": _PART_OF_ID},
            note=_PERSON,
        ),
        "erase": Offer(
            ("erase",),
            renamed={"memory": "memory_ids", "fragment": "fragments", **_CONFIRM},
            own={**_MEMORY, "apply": _APPLY},
            note="To do it needs a person at a terminal.",
        ),
        "prove": Offer(
            ("prove_unreachable", "prove_erased"), renamed={"memory": "memory_id"}, own=_MEMORY
        ),
        "purge": Offer(
            ("purge",),
            renamed={"apply": "mode", "key": "idempotency_key"},
            own={"apply": _APPLY},
        ),
        "jobs": Offer(
            ("jobs", "job", "retry_jobs", "cancel_job"),
            renamed={"job": "job_ids", "key": "idempotency_key"},
            own={
                "action": "which of these operations",
                "job": _PART_OF_ID,
                "state": "one each time",
                "limit": _LISTS,
                "reason": "only to cancel",
            },
            absent={"job_id": "an id is one of JOB…"},
        ),
        "outbound": Offer(
            ("outbound_calls",),
            own={"limit": _LISTS},
        ),
        "doctor": Offer(
            ("doctor", "sizes"),
            own={"sizes": "the other of its operations"},
            note="Exits with 1 when something is wrong.",
        ),
        "rebuild-index": Offer(
            ("rebuild_index",),
            own={"check": "compares, which `doctor` does too"},
            note="With --check only says whether it matches.",
        ),
        "freeze": Offer(("freeze",), renamed={"key": "idempotency_key"}),
        "thaw": Offer(("thaw",), renamed={"key": "idempotency_key"}),
        "export": Offer(
            ("export",),
            renamed={"scope": "scopes", "preview": "mode"},
            own={
                "scope": "by default all one may take",
                "preview": "a flag, beside the writing that is the default",
            },
        ),
        "backup": Offer(("backup",)),
        "import": Offer(("import_from",), renamed={"key": "idempotency_key"}),
        "init": Offer(
            ("choose_windows",),
            own={
                **dict.fromkeys(
                    ("journal_days", "tombstones_days", "done_jobs_days", "dead_jobs_days"),
                    "asked for at a terminal",
                ),
                "owner": "who owns a new tally",
                "project": "a project of the owner",
                "retention": "a setting, which is written to the file of settings",
                "time_zone": "a setting, which is written to the file of settings",
            },
            absent={"idempotency_key": "a new tally has no earlier request"},
            is_part=True,
        ),
    },
    excluded={
        "remember_many": "an application's call",
        "end_session": "`hook session-end` ends a session, `reflect` reflects on it",
        "replay_later": "`recompile` replays at once",
        "get": "`inspect` shows a memory with its reasons",
        "modify_many": "an application's call",
        "source": "`inspect` shows a source too, with the beginning of its text",
        "space": "`spaces` lists them all",
        "approval": "`approve` and `deny` show it before they ask",
        "erase_recorded": "an application's call, which has no preview's token yet",
    },
    own={
        "state": "reads checkpoints, which belong to a runtime",
        "verify-threads": "reads checkpoints, which belong to a runtime",
        "import-checkpoints": "reads the database of another saver",
        "import-from": "reads exports of other products",
        "export-to": "writes files for other products",
        "receipt": "shows receipts, or writes them as a page",
        "export-receipt": "writes a bundle to a file",
        "tape": "writes a tape to a file",
        "keygen": "makes a key, without a tally",
        "restore": "makes a tally, so that there is none yet to ask",
        "migrate": "works on a tally that this release has not opened yet",
        "hook": "a door, which answers events of an agent's session",
        "mcp": "a door, whose tools are held against the table themselves",
        "worker": "a process that works, which is no operation",
        "serve": "a process that serves, which is no operation",
        "ui": "a process that serves pages, which is no operation",
        "help": "shows the commands",
    },
)
"""The offers of the command line."""

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
                    ("states", "mode", "budget_tokens", "model", "after", "state", "actor", "foil"),
                    _APPLICATION,
                ),
            },
        ),
        "add": Offer(
            ("remember",),
            own={
                "source": "its address alone",
                **dict.fromkeys(("occurred_at", "valid_until"), _ISO),
            },
            absent=dict.fromkeys(
                (
                    "category",
                    "speaker",
                    "conversation",
                    "position",
                    "attributes",
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
            tuple(dict.fromkeys(route.operation.name for route in MANAGE.values())),
            own={
                "action": "which of its operations; of a proposal its decision",
                "id": "the id of whatever the action is about",
                "reason": "needed by every change",
                "changes": "of modify",
                "correction": "of correct",
                "into": "of promote and share",
                "field": "of redact",
                "replacement": "of redact",
            },
            absent={
                "decision": "an action each: accept, defer, reject; accept with `changes` edits",
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
                        "recipe",
                        "repair",
                    ),
                    _APPLICATION,
                ),
            },
        ),
    },
    excluded={
        **dict.fromkeys(("remember_many", "modify_many"), "an application's call"),
        **dict.fromkeys(
            (
                "approve",
                "deny",
                "revoke",
                "erase",
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
            ),
            _SESSION,
        ),
        **dict.fromkeys(("make_token", "tokens", "rotate_token", "revoke_token"), _SESSION),
        **dict.fromkeys(("reflect", "end_session"), "an application's call, as a session ends"),
        "proposal": "the mode `reviews` lists them with all they have",
        "approval": "the mode `approvals` lists them with all they have",
        "run": "the resource tally://run/{id}",
        "step": "`steps` lists them with all they have",
        "entries": "payloads, which a person reads at a terminal",
        "changed": "figures for a person",
        "diff": "figures for a person",
        "written": "figures for a person",
        "replay": "a call of a model, which `replay` makes as a job",
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
