"""Erasing a user: everything that belongs to one, previewed by kind, carried out with one token and
proved once.

Rows go by their owner, without a search for texts: private memories, threads, runs, working memory,
tokens, reviews, approvals and objects. Memories that the user wrote in shared scopes are destroyed
too, or handed over to the scope. The chained journal keeps the id that acted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tallystick.access import Confirmation
from tallystick.access.approvals import erase_arguments
from tallystick.errors import NotFound, StorageError
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import AccessDecision, Actor, ErasedUser, MemorySpace, Proof
from tallystick.storage import Connection
from tallystick.storage.engine import containment, texts
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import (
    approvals,
    checkpoints,
    journal,
    memories,
    proposals,
    recordings,
    settings_rows,
    spaces,
)
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.storage.rows.recordings import StoredPayload
from tallystick.storage.text import byte_search, erasing, users
from tallystick.storage.text.byte_search import RecordedHit, ThreadName
from tallystick.storage.text.users import User, UserRows
from tallystick.upkeep.proof import CANNOT_ERASE, search_remains
from tallystick.upkeep.reach import destroy_memories, erase_from_runs, withdraw_proposals
from tallystick.upkeep.retention import require_operator
from tallystick.upkeep.unfinished import PENDING, finish_erasure

Shared = Literal["destroy", "hand_over"]
_OPERATION = "erase_user"
_PAGE = 200
_KINDS = {"working": "working memory", "idempotency": "answers under idempotency keys"}
"""Names of kinds, where that of the table says less."""
_LONG, _SEARCHED = 32, 50
"""Characters of a text from which on copies of it are searched for, and the number of those that
the proof searches for everywhere, longest first.
"""
_STAYS = (
    "the id under which the user acted, in chained journals: to change it would break them",
    "what others wrote about the user, and quoted",
)


@dataclass(frozen=True)
class _Plan:
    rows: UserRows
    gone: tuple[int, ...]
    """The memories that are destroyed, by number."""
    payloads: tuple[StoredPayload, ...]
    """Payloads that runs of others recorded of these memories."""
    runs: tuple[str, ...]
    """Runs of the user that still have a text."""
    threads: tuple[ThreadName, ...]
    preview: ErasedUser


def erase_user(
    context: MemoryContext,
    actor: Actor,
    user: User,
    *,
    shared: Shared,
    reason: str,
    mode: Literal["preview", "apply"],
    confirm_token: str | None = None,
    idempotency_key: str | None = None,
    rebuilt: Callable[[], None] = lambda: None,
) -> ErasedUser:
    """Preview the erasure of a user, or carry it out with the preview's token.

    Raises Denied unless an operator of the whole tally asks, NotFound where nothing is the user's,
    InvalidInput, StateConflict when something is not as it was previewed, StorageError,
    IdempotencyMismatch.
    """
    require_reason(reason)
    require_operator(context, actor)
    actor = actor.within_act(context.store.ids.new())
    database = context.store.database
    context.gate.flush()  # a read that is noted later would name the user again
    database.flush()
    call = IdempotentCall(
        actor.private_scope,
        _OPERATION,
        idempotency_key if mode == "apply" else None,
        [*user, shared, reason, confirm_token],
    )
    with database.read() as connection:
        answered = call.read_answer(connection)
        if answered is not None:
            return ErasedUser.load(answered)
        plan = _plan(connection, user, shared)
        longest = _long_texts(connection, plan.rows, plan.gone)[:_SEARCHED]
    # The user may have left a token or a membership alone, and no scope with a key.
    key = context.frame_keys.signing(actor.private_scope)
    confirmation = Confirmation(context.gate, key, _OPERATION, actor)
    if mode == "preview":
        token, end = confirmation.token(_token_content(reason, plan), now=context.store.clock.now())
        return plan.preview.model_copy(update={"confirm_token": token, "expires_at": end})
    if confirm_token is None:
        refusal = AccessDecision.refusal(actor, "missing_permission", "delete")
        raise confirmation.refusal(refusal)
    if context.index is not None and not context.index.owned:
        raise StorageError(
            "Another process holds this tally's Chroma folder. Close it, then erase: its files "
            "are rewritten."
        )

    def unit(tx: Connection) -> tuple[_Plan, str]:
        current = _plan(tx, user, shared)
        at = context.store.clock.now()
        content = _token_content(reason, current)
        confirmation.require(confirm_token, content, now=at, subject=user.id, what="User")
        audit_id = _destroy(MemoryWrite(tx, context, actor, at, None), current, user, reason)
        settings_rows.set_setting(tx, PENDING, "1")
        return current, audit_id

    erased, audit_id = database.write(unit, name="erase.user")
    rebuilt()
    finish_erasure(context)
    proof = _prove(context, actor, user, shared, longest)
    # The name of a thread is a text: the answer is kept with its number.
    numbers = tuple(f"{thread.scope} thread:{thread.id}" for thread in erased.threads)
    result = erased.preview.model_copy(
        update={"mode": "apply", "threads": numbers, "proof": proof, "audit_id": audit_id}
    )
    database.write(
        lambda tx: call.keep(tx, result, at=context.store.clock.now()),
        name="erase.answer",
        writes=Writes.of(actor.private_scope),
    )
    return result


def _plan(connection: Connection, user: User, shared: Shared) -> _Plan:
    rows = users.rows_of(connection, user)
    destroyed = (*rows.private, *(rows.authored if shared == "destroy" else ()))
    derived = erasing.drawn_from(connection, destroyed, promoted=shared == "destroy")
    gone = tuple(sorted({*destroyed, *derived}))
    threads = tuple(byte_search.names_of(connection, rows.threads))
    runs = tuple(run_id for run_id in rows.runs if _has_texts(connection, run_id))
    counts = Counter(
        {
            "memories": len(rows.private),
            "shared memories": len(rows.authored),
            "conclusions": len(derived - set(destroyed)),
            "runs": len(runs),
            "threads": len(threads),
            "access tokens": len(rows.tokens),
            "memberships": sum(_is_member(space, user) for space in spaces.all_spaces(connection)),
            "proposals": len(rows.proposals),
            "approvals": len(rows.approvals),
            "entries of journals": len(rows.entries),
        }
    )
    for table, count in rows.rows.items():
        if texts.rows_of(table).owner != "memory":  # those go with the memories
            counts[_KINDS.get(table, table.replace("_", " "))] += count
    counts = +counts
    if not counts:
        raise NotFound(f"Nothing in this tally is of the user {user.id!a}.")
    payloads = _payloads(connection, gone, _long_texts(connection, rows, gone), set(runs))
    preview = ErasedUser(
        mode="preview",
        user=user.id,
        organization=user.organization,
        shared=shared,
        counts=dict(counts),
        payloads=tuple(sorted({payload.step_id for payload in payloads})),
        threads=tuple(f"{thread.scope} {thread.name}" for thread in threads),
        stays=_STAYS,
    )
    return _Plan(rows, gone, payloads, runs, threads, preview)


def _is_member(space: MemorySpace, user: User) -> bool:
    return space.scope.organization == user.organization and any(
        (member.principal_type, member.principal_id) == ("user", user.id)
        for member in space.members
    )


def _has_texts(connection: Connection, run_id: str) -> bool:
    """Return True if a run has a payload, or texts that its chain commits to."""
    return bool(
        recordings.stored_payloads(connection, run_id, None)
        or erasing.has_recorded_texts(connection, run_id, None)
        or recordings.has_run_texts(connection, run_id)
    )


def _payloads(
    connection: Connection, docs: Sequence[int], long_texts: Sequence[str], runs: set[str]
) -> tuple[StoredPayload, ...]:
    """Return the payloads that name one of these memories or hold one of their long texts, as the
    request of an agent that recalled one does; but for those of `runs`.
    """
    ids = [memory_id.encode() for memory_id in memories.ids_of(connection, docs)]
    needles = (*ids, *containment.needles_of(long_texts))
    payloads: dict[str, StoredPayload] = {}
    for start in range(0, len(needles), _PAGE):
        page = needles[start : start + _PAGE]
        payloads |= {hit.entry_id: hit for hit in byte_search.payloads_with(connection, page)}
    own = {
        payload.entry_id
        for run_id in runs
        for payload in recordings.stored_payloads(connection, run_id, None)
    }
    return tuple(hit for entry_id, hit in sorted(payloads.items()) if entry_id not in own)


def _long_texts(connection: Connection, rows: UserRows, gone: Sequence[int]) -> list[str]:
    """Return the texts that go by which copies are searched for, longest first: no short one, and
    no text that the scope of a memory which was handed over keeps.
    """
    stays = tuple(set(rows.authored) - set(gone))
    kept = memories.get_docs(connection, stays).values()
    kept_text = "\0".join(each.memory.content for each in kept)
    stored = memories.get_docs(connection, gone).values()
    long = {each.memory.content for each in stored if len(each.memory.content) >= _LONG}
    longest = sorted(long, key=lambda text: (-len(text), text))
    return [text for text in longest if text not in kept_text]


def _token_content(reason: str, plan: _Plan) -> Any:
    rows = plan.rows
    ids = [list(plan.gone), list(plan.runs), list(rows.tokens), list(rows.proposals)]
    return [reason, ids, [hit.entry_id for hit in plan.payloads], plan.preview.dump()]


def _destroy(write: MemoryWrite, plan: _Plan, user: User, reason: str) -> str:
    tx, now, rows = write.tx, write.now, plan.rows
    context, actor = write.context, write.actor
    why = "a user was erased"
    for start in range(0, len(plan.gone), _PAGE):
        stored = list(memories.get_docs(tx, plan.gone[start : start + _PAGE]).values())
        destroy_memories(write, stored, keep_rows=False)
        for each in stored:
            details = {"version": each.memory.version}
            write.journal_event(each.memory.scope, "memory.purge", each.memory.id, details)
    hits = [RecordedHit(run_id, None, 0) for run_id in plan.runs]
    erase_from_runs(tx, context, actor, [], hits, at=now, reason=why, whole=True)
    erase_from_runs(tx, context, actor, plan.payloads, [], at=now, reason=why)
    for thread in plan.threads:
        count = checkpoints.delete_thread(tx, thread.id)
        event = journal.Event(
            stream=thread.stream,
            event="thread.delete",
            actor=actor,
            at=now,
            audit_id=context.store.ids.new(),
            subject_id=f"thread:{thread.id}",
            details={"checkpoints": count},
        )
        journal.append(tx, event)
    suggestions = [each for each in (proposals.find(tx, each) for each in rows.proposals) if each]
    withdraw_proposals(write, suggestions)
    requests = [each for each in (approvals.find(tx, each) for each in rows.approvals) if each]
    erase_arguments(tx, context.store, actor, requests, at=now)
    for space in spaces.all_spaces(tx):
        if _is_member(space, user):
            _leave(write, space, user)
    if plan.preview.shared == "hand_over":
        users.hand_over(tx, rows.authored, user)
    users.remove(tx, users.rows_of(tx, user), user)
    context.corpora.drop()
    # The chain of the tally says that a user was erased, and not who.
    event = journal.Event(
        stream=TALLY,
        event="user.erase",
        actor=actor,
        at=now,
        audit_id=context.store.ids.new(),
        reason=reason,
        details={"shared": plan.preview.shared, "counts": dict(plan.preview.counts)},
    )
    return journal.append(tx, event).event.audit_id


def _leave(write: MemoryWrite, space: MemorySpace, user: User) -> None:
    """End the membership of a user in a space."""
    members = tuple(
        member
        for member in space.members
        if (member.principal_type, member.principal_id) != ("user", user.id)
    )
    changed = space.replace(
        members=members,
        version=space.version + 1,
        updated_at=write.now,
        updated_by=write.actor.user,
    )
    spaces.replace(write.tx, changed)
    details: dict[str, Any] = {
        "version": changed.version,
        "state": changed.state,
        "members": [member.dump() for member in members],
    }
    write.journal_event(space.scope, "space.update", space.id, details)


def _prove(
    context: MemoryContext, actor: Actor, user: User, shared: Shared, longest: Sequence[str]
) -> Proof:
    """Look for what is left of a user, by owner and, for the longest texts, in every byte."""
    with context.store.database.read() as connection:
        try:
            left = _plan(connection, user, shared).preview.counts
        except NotFound:
            left = {}
        pending = settings_rows.get_setting(connection, PENDING) == "1"
    problems = [f"{count} {name} are there" for name, count in left.items()]
    if pending:
        problems.append("the files were not rewritten yet: run `tally doctor --repair`")
    checked = ["rows of every table by their owner", "files rewritten"]
    remains = search_remains(context, actor, longest)
    if remains is not None:
        problems += remains.problems
        checked += [f"the {len(longest)} longest texts: {place}" for place in remains.checked]
    return Proof(
        id=user.id,
        claim="erased",
        holds=not problems,
        checked=tuple(checked),
        problems=tuple(problems),
        cannot_prove=(*CANNOT_ERASE, "that others do not quote what the user said"),
        at=context.store.clock.now(),
    )
