"""The table of operations: every verb that a surface may offer, by name.

A line has the name, the title, a sentence for people and the codes of the errors. Arguments and
result are those of the signature of the verb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import get_args

from tallystick.extension import load_extensions
from tallystick.operations.operation import Effect, Operation

_WRITE = ("denied", "invalid_input", "invalid_record", "idempotency_mismatch", "rate_limited")
_CHANGE = (*_WRITE, "not_found", "version_conflict", "state_conflict")
_READ = ("denied", "invalid_input", "rate_limited")
_OPERATE = ("denied", "idempotency_mismatch")
_MANAGE = ("denied", "invalid_input", "idempotency_mismatch")
_DECIDE = ("not_found", "denied", "invalid_input", "state_conflict", "idempotency_mismatch")


def _operation(effect: Effect) -> Callable[..., Operation]:
    def make(
        name: str,
        title: str,
        description: str,
        errors: tuple[str, ...],
        *,
        verb: str | None = None,
        needs_preview: bool = False,
    ) -> Operation:
        return Operation(name, title, description, effect, errors, verb or name, needs_preview)

    return make


_read, _change, _operate = map(_operation, get_args(Effect))

_TABLE = (
    # Memory
    _change(
        "remember",
        "Remember",
        "Remember a text as it is; it can be recalled at once.",
        (*_WRITE, "not_found", "position_taken"),
    ),
    _change(
        "remember_many",
        "Remember many",
        "Remember many texts in one transaction, all or none.",
        (*_WRITE, "not_found", "position_taken"),
    ),
    _read(
        "recall",
        "Recall",
        "Find the memories that answer a question, best first, with the reasons.",
        _READ,
    ),
    _read("get", "Read a memory", "Read one memory by its id.", ("not_found", "rate_limited")),
    _read(
        "memories",
        "List memories",
        "List memories of a scope, newest first; what is hidden or forgotten comes without its "
        "text.",
        _READ,
    ),
    _change(
        "modify",
        "Change a memory",
        "Change a memory; the old version stays in its history.",
        _CHANGE,
    ),
    _change(
        "modify_many",
        "Change many memories",
        "Change many memories, each by itself; what is refused is listed in its place.",
        ("idempotency_mismatch",),
        verb="corrections.modify_many",
    ),
    _change(
        "forget",
        "Forget",
        "Remove a memory from every recall; it can be recovered for a while.",
        _CHANGE,
    ),
    _change(
        "forget_matching",
        "Forget by query",
        "Preview what a query and filters would forget, then forget exactly that with the token.",
        _CHANGE,
        needs_preview=True,
        verb="corrections.forget_matching",
    ),
    _change(
        "recover", "Recover", "Bring a forgotten memory back as it was, within its window.", _CHANGE
    ),
    _change(
        "correct",
        "Correct",
        "Preview a correction and what it affects, then apply it with the token.",
        _CHANGE,
        needs_preview=True,
        verb="corrections.make",
    ),
    _change(
        "promote",
        "Promote",
        "Preview a copy of a memory into another scope and who would read it, then make it with "
        "the token.",
        _CHANGE,
        needs_preview=True,
        verb="corrections.promote",
    ),
    _change(
        "share",
        "Share",
        "Same as promote, for a copy that follows its origin and is withdrawn with it.",
        _CHANGE,
        needs_preview=True,
        verb="corrections.share",
    ),
    _read(
        "inspect",
        "Inspect a memory",
        "Show what a memory or a source is, why it can or cannot be seen, what depends on it, "
        "and what may be done next.",
        ("not_found", "rate_limited"),
    ),
    _read(
        "source",
        "Read a source",
        "Read the raw material behind memories: its text as it arrived, its lifecycle and what "
        "was drawn from it.",
        ("not_found", "rate_limited"),
    ),
    _read(
        "explore",
        "Explore",
        "Look around: what there is, what a scope contains, what a memory links to or depends "
        "on, everything about a name.",
        (*_READ, "not_found"),
    ),
    _read(
        "pack",
        "Pack",
        "Get what answers a question as one framed text within a budget.",
        _READ,
    ),
    _read(
        "wake",
        "Wake",
        "Get pins, constraints, preferences, decisions and open tasks as one text.",
        _READ,
    ),
    _read(
        "session_set",
        "Working set of a session",
        "Get what memory shows in a session: the profile, and what its turns add.",
        _READ,
        verb="working_set",
    ),
    _read(
        "history",
        "History of a memory",
        "Show everything that happened to a memory.",
        ("not_found", "rate_limited"),
    ),
    _read(
        "preview_access",
        "Preview access",
        "Show what an agent or person could recall, scope by scope, and why not the rest. "
        "Changes nothing.",
        ("invalid_scope", "rate_limited"),
        verb="spaces.preview_access",
    ),
    # Working memory
    _change(
        "working_set",
        "Keep in mind",
        "Keep a value under a name, for a run or from turn to turn of a thread, until it expires.",
        ("denied", "invalid_input", "idempotency_mismatch", "rate_limited"),
        verb="working.set",
    ),
    _read(
        "working_get",
        "Read what is kept in mind",
        "Read one value of working memory, or nothing where there is none.",
        ("denied", "invalid_input"),
        verb="working.get",
    ),
    _read(
        "working_list",
        "List what is kept in mind",
        "List the values of working memory: those of a run and of its thread.",
        ("denied", "invalid_input"),
        verb="working.list",
    ),
    _change(
        "working_drop",
        "Drop from mind",
        "Remove a value of working memory.",
        ("denied", "invalid_input", "idempotency_mismatch", "rate_limited"),
        verb="working.drop",
    ),
    # Review
    _read(
        "reviews",
        "List reviews",
        "List the proposals that wait for a person, or were decided, oldest first.",
        ("denied", "invalid_input", "not_found", "rate_limited"),
        verb="reviews.list",
    ),
    _read(
        "proposal",
        "Read a proposal",
        "Read one proposal with everything that happened to it.",
        ("not_found", "rate_limited"),
        verb="reviews.get",
    ),
    _change(
        "review",
        "Decide a proposal",
        "Accept, edit, defer or reject a proposal, by a person and for a reason.",
        (
            "denied",
            "invalid_input",
            "invalid_record",
            "not_found",
            "state_conflict",
            "idempotency_mismatch",
            "rate_limited",
        ),
        verb="reviews.decide",
    ),
    # Recorded runs
    _read(
        "runs",
        "List runs",
        "List recorded runs, newest first.",
        ("denied", "not_found"),
        verb="recordings.runs",
    ),
    _read("run", "Read a run", "Read one recorded run.", ("not_found",), verb="recordings.run"),
    _read(
        "steps",
        "List steps",
        "List the steps of a run, in the order in which they started.",
        ("not_found",),
        verb="recordings.steps",
    ),
    _read("step", "Read a step", "Read one recorded step.", ("not_found",), verb="recordings.step"),
    _read(
        "entries",
        "Read what a step recorded",
        "Read what was recorded in a step, with the payloads that are kept.",
        ("not_found", "corrupt_tally"),
        verb="recordings.entries",
    ),
    _read(
        "receipt",
        "Read a receipt",
        "Read the receipt of a step.",
        ("not_found",),
        verb="recordings.receipt",
    ),
    _read(
        "knew",
        "What the agent knew",
        "List what went into the context of a step, and why.",
        ("not_found",),
        verb="recordings.knew",
    ),
    _read(
        "unseen",
        "What the agent did not see",
        "List what was left out of the context of a step, and why.",
        ("not_found",),
        verb="recordings.unseen",
    ),
    _read(
        "trace",
        "Trace a sentence",
        "Show where a sentence of a step's context came from, to the raw source.",
        ("not_found",),
        verb="recordings.trace",
    ),
    _read(
        "changed",
        "What changed since the step before",
        "Show what changed since the step of the same kind before.",
        ("not_found",),
        verb="recordings.changed",
    ),
    _read(
        "diff",
        "Compare two steps",
        "Show how two steps differ: context, request and response.",
        ("not_found",),
        verb="recordings.diff",
    ),
    _read(
        "written",
        "What a run wrote",
        "List what the steps of a run wrote to memory, and by whom.",
        ("not_found",),
        verb="recordings.written",
    ),
    _read(
        "uses",
        "Steps that used a memory",
        "List the recorded steps that recalled, saw, left out or wrote a memory.",
        (),
        verb="recordings.uses",
    ),
    _read(
        "verify",
        "Verify a run",
        "Check every byte that a run's chain covers, and its checkpoint threads; with a foil "
        "that they match.",
        ("not_found",),
        verb="recordings.verify",
    ),
    _change(
        "replay",
        "Replay a step",
        "Make a recorded model step again as the step of a new run, exactly or with changes.",
        ("not_found", "denied", "invalid_input", "not_replayable"),
        verb="recordings.replay",
    ),
    _change(
        "replay_later",
        "Replay a step later",
        "Enqueue the replay of a recorded model step, without a model, as a job.",
        ("not_found", "denied", "invalid_input"),
        verb="recordings.replay_later",
    ),
    # Approvals
    _read(
        "approvals",
        "List approvals",
        "List the actions that wait for a person, or were decided, newest first.",
        ("invalid_input", "not_found"),
        verb="approvals.list",
    ),
    _read(
        "approval",
        "Read an approval",
        "Read one approval: the action, its arguments, and what was decided.",
        ("not_found",),
        verb="approvals.get",
    ),
    _operate(
        "approve",
        "Grant an approval",
        "Grant one blocked action, with exactly its arguments, once.",
        _DECIDE,
        verb="approvals.approve",
    ),
    _operate(
        "deny",
        "Deny an approval",
        "Deny one blocked action; its agent gets the reason.",
        _DECIDE,
        verb="approvals.deny",
    ),
    _operate(
        "revoke",
        "Take a decision back",
        "Take back a grant that was not used, or a denial.",
        _DECIDE,
        verb="approvals.revoke",
    ),
    # Spaces
    _operate(
        "create_space",
        "Open a scope to others",
        "Open a scope to members by creating its space.",
        (*_MANAGE, "state_conflict"),
        verb="spaces.create",
    ),
    _read("space", "Read a space", "Read the space of a scope.", ("not_found",), verb="spaces.get"),
    _read(
        "spaces",
        "List spaces",
        "List the spaces that one may see, with their members.",
        (),
        verb="spaces.list",
    ),
    _read(
        "preview_member",
        "Preview a membership",
        "Show what somebody could do and recall as a member of a space, before it is made one. "
        "Changes nothing.",
        ("invalid_input", "invalid_record", "invalid_scope", "not_found", "rate_limited"),
        verb="spaces.preview_member",
    ),
    _operate(
        "update_space",
        "Change a space",
        "Change who belongs to a space, its name, or whether it is open.",
        (*_MANAGE, "not_found", "version_conflict"),
        verb="spaces.update",
    ),
    # Access tokens
    _operate(
        "make_token",
        "Let somebody in",
        "Make an access token; its secret is shown once.",
        ("denied", "invalid_input", "idempotency_mismatch"),
        verb="tokens.make",
    ),
    _read(
        "tokens",
        "List access tokens",
        "List the access tokens, and those that have ended.",
        (),
        verb="tokens.list",
    ),
    _operate(
        "rotate_token",
        "Replace an access token",
        "Revoke an access token and make another with the same bounds.",
        ("denied", "not_found", "state_conflict", "idempotency_mismatch"),
        verb="tokens.rotate",
    ),
    _operate(
        "revoke_token",
        "End an access token",
        "Revoke an access token: the next request with it is refused.",
        ("not_found", "invalid_input", "idempotency_mismatch"),
        verb="tokens.revoke",
    ),
    # Jobs
    _read(
        "jobs",
        "List jobs",
        "List follow-up work with its state and its last error, newest first.",
        ("denied", "invalid_input", "not_found"),
        verb="jobs.list",
    ),
    _read(
        "job",
        "Read a job",
        "Read one job: its state, progress, attempts, errors and trail.",
        ("not_found",),
        verb="jobs.get",
    ),
    _change(
        "retry_jobs",
        "Retry jobs",
        "Let jobs that failed, died or wait for their next attempt be done anew.",
        ("invalid_input", "not_found", "state_conflict", "idempotency_mismatch"),
        verb="jobs.retry",
    ),
    _change(
        "cancel_job",
        "Cancel a job",
        "End a job that has not ended; a worker that holds it stores nothing more.",
        ("not_found", "state_conflict", "invalid_input", "idempotency_mismatch"),
        verb="jobs.cancel",
    ),
    _read(
        "outbound_calls",
        "List outbound calls",
        "List the calls of models that Tallystick itself made, newest first: to whom, about "
        "what, how much and how it ended, without the text.",
        ("denied", "not_found"),
        verb="operator.outbound_calls",
    ),
    # Somebody in charge
    _operate(
        "erase",
        "Erase",
        "Preview the destruction of memories' text in every copy, then do it with the token, "
        "with proof.",
        (
            *_OPERATE,
            "not_found",
            "invalid_input",
            "state_conflict",
            "storage_error",
            "rate_limited",
        ),
        verb="operator.erase",
        needs_preview=True,
    ),
    _operate(
        "erase_user",
        "Erase a user",
        "Preview the erasure of everything of one user by kind, then do it with the token, with "
        "proof.",
        (
            *_OPERATE,
            "not_found",
            "invalid_input",
            "state_conflict",
            "storage_error",
            "rate_limited",
        ),
        verb="operator.erase_user",
        needs_preview=True,
    ),
    _operate(
        "erase_recorded",
        "Erase what was recorded",
        "Name the steps of which something recorded would be erased, then erase payloads, "
        "names, metadata and summaries; receipts stay and verify.",
        (*_OPERATE, "not_found", "invalid_input", "storage_error", "rate_limited"),
        verb="operator.erase_recorded",
    ),
    _read(
        "prove_unreachable",
        "Prove that it is unreachable",
        "Try every read path for a forgotten memory, and list the copies still kept.",
        ("not_found", "state_conflict", "rate_limited"),
        verb="operator.prove_unreachable",
    ),
    _operate(
        "prove_erased",
        "Prove that it is erased",
        "Search for what is left of an erased memory; with its text in every byte.",
        ("denied", "not_found"),
        verb="operator.prove_erased",
    ),
    _operate(
        "purge",
        "Purge",
        "Count what is past its window, then remove it. Nothing within its window is removed.",
        (*_OPERATE, "rate_limited", "storage_error"),
        verb="operator.purge",
    ),
    _operate(
        "choose_windows",
        "Choose what is kept how long",
        "Choose after how many days journals, forgotten text and ended jobs go by themselves.",
        (*_OPERATE, "invalid_input"),
        verb="operator.choose_windows",
    ),
    _operate(
        "doctor",
        "Doctor",
        "Check chains, commitments, jobs, retention and the index.",
        ("denied", "invalid_input"),
        verb="operator.doctor",
    ),
    _operate(
        "sizes",
        "Sizes",
        "Count where the bytes of the tally are, by kind.",
        ("denied",),
        verb="operator.sizes",
    ),
    _operate(
        "rebuild_index",
        "Rebuild the index",
        "Make Chroma anew from the database; return the number of vectors.",
        ("denied", "invalid_input", "storage_error"),
        verb="operator.rebuild_index",
    ),
    _operate(
        "reembed",
        "Embed anew",
        "Say what it takes to embed every text by an embedder, or do it.",
        (
            "denied",
            "invalid_input",
            "missing_extra",
            "settings_error",
            "embedding_error",
            "embedder_unavailable",
        ),
        verb="operator.reembed",
    ),
    _operate(
        "freeze",
        "Freeze",
        "Suspend every change of memory, by anybody, until it is thawed.",
        _OPERATE,
        verb="operator.freeze",
    ),
    _operate("thaw", "Thaw", "Allow changes of memory again.", _OPERATE, verb="operator.thaw"),
    _operate(
        "export",
        "Export",
        "Write scopes to a folder of JSON lines and blobs, each with its digest; or count what "
        "would be written.",
        ("denied", "invalid_input", "storage_error", "rate_limited"),
        verb="operator.export",
    ),
    _operate(
        "backup",
        "Backup",
        "Write the whole tally as it is now to a new folder, while others read and write, with "
        "a manifest of digests.",
        ("denied", "invalid_input", "storage_error", "rate_limited"),
        verb="operator.backup",
    ),
    _operate(
        "import_from",
        "Import",
        "Import an export, into a new tally or beside what is there; digests are checked first.",
        (*_OPERATE, "invalid_input", "state_conflict", "corrupt_tally"),
        verb="operator.import_from",
    ),
)


class OperationTable(Mapping[str, Operation]):
    """The operations of the core and of its extensions, which are loaded when one is asked for:
    they import this room.
    """

    def __init__(self, core: Iterable[Operation]) -> None:
        self._core = {operation.name: operation for operation in core}

    @cached_property
    def _all(self) -> dict[str, Operation]:
        more = (each for extension in load_extensions() for each in extension.operations)
        return self._core | {operation.name: operation for operation in more}

    def __getitem__(self, name: str) -> Operation:
        return self._core[name] if name in self._core else self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


OPERATIONS: Mapping[str, Operation] = OperationTable(_TABLE)
"""The operations by name, in the order in which surfaces list them."""
