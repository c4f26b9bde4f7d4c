"""Erase: destroy the text of memories and its copies, previewed, by an operator, and proved
afterwards.

First one transaction removes it from every table and notes that files are to be rewritten; then the
database file is written anew, its log emptied and Chroma begun anew, where there is one. A process
that dies in between leaves the note, and `finish` completes the work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tallystick.access import Confirmation
from tallystick.access.approvals import erase_arguments
from tallystick.errors import Denied, InvalidInput, NotFound, StorageError
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import (
    AccessDecision,
    Actor,
    Erasure,
    Proof,
    canonical_json,
)
from tallystick.storage import Connection
from tallystick.storage.engine import containment
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import (
    approvals,
    checkpoints,
    edges,
    journal,
    memories,
    proposals,
    recordings,
    settings_rows,
    working,
)
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.storage.rows.proposals import StoredProposal
from tallystick.storage.text import erasing
from tallystick.storage.text.byte_search import RecordedHit
from tallystick.storage.text.scope_selection import ScopeSelection
from tallystick.upkeep.copies import Copies, OperatorScopes, searched_texts
from tallystick.upkeep.proof import CANNOT_BEYOND, CANNOT_ERASE, prove_erased, search_remains
from tallystick.upkeep.reach import (
    destroy_copies,
    destroy_memories,
    erase_from_runs,
    withdraw_proposals,
)
from tallystick.upkeep.unfinished import PENDING, finish_erasure

_OPERATION = "erase"
_SHORTEST = 4
"""Characters that a fragment has at least."""


@dataclass(frozen=True)
class _Plan:
    stored: tuple[memories.Stored, ...]
    texts: tuple[str, ...]
    fragments: tuple[str, ...]
    needles: tuple[bytes, ...]
    copies: Copies
    proposals: tuple[StoredProposal, ...]
    preview: Erasure
    streams: tuple[str, ...] | None
    """The journals within reach; None is every one."""


def erase(
    context: MemoryContext,
    actor: Actor,
    ids: Sequence[str],
    *,
    fragments: Sequence[str] = (),
    reason: str,
    mode: Literal["preview", "apply"],
    confirm_token: str | None = None,
    idempotency_key: str | None = None,
    rebuilt: Callable[[], None] = lambda: None,
) -> Erasure:
    """Preview an erasure, or carry it out with the preview's token. `rebuilt` is called to drop
    what is cached in memory.

    Raises Denied unless an operator of the organization asks, NotFound, InvalidInput, StateConflict
    when something is not as it was previewed, StorageError when another process holds Chroma's
    folder, or IdempotencyMismatch.
    """
    require_reason(reason)
    actor = actor.within_act(context.store.ids.new())
    memory_ids, fragments = list(dict.fromkeys(ids)), list(dict.fromkeys(fragments))
    if not memory_ids:
        raise InvalidInput("Name one or more memories to erase.")
    if any(len(fragment.strip()) < _SHORTEST for fragment in fragments):
        raise InvalidInput(
            f"A fragment to erase has {_SHORTEST} characters at least: it is searched for inside "
            f"of words, so that a shorter one is found anywhere.",
            argument="fragments",
        )
    database = context.store.database
    # What models were given is recorded behind their work.
    database.flush()
    with database.read() as connection:
        first = _require_operable(connection, context, actor, memory_ids[0])
        call = IdempotentCall(
            first.scope,
            _OPERATION,
            idempotency_key if mode == "apply" else None,
            _arguments(memory_ids, fragments, reason, confirm_token),
        )
        answered = call.read_answer(connection)
        if answered is not None:
            return Erasure.load(answered)
        plan = _plan(connection, context, actor, memory_ids, fragments)
    now = context.store.clock.now()
    confirmation = Confirmation(context.gate, first.scope.secret, _OPERATION, actor)
    if mode == "preview":
        token, expires_at = confirmation.token(_token_content(reason, plan), now=now)
        return plan.preview.model_copy(update={"confirm_token": token, "expires_at": expires_at})
    if confirm_token is None:
        raise confirmation.refusal(_decision(actor, first, allowed=False))
    if context.index is not None and not context.index.owned:
        raise StorageError(
            "Another process holds this tally's Chroma folder. Close it, then erase: its files "
            "are rewritten."
        )

    def unit(tx: Connection) -> tuple[_Plan, tuple[str, ...]]:
        current = _plan(tx, context, actor, memory_ids, fragments)
        at = context.store.clock.now()
        confirmation.require(
            confirm_token,
            _token_content(reason, current),
            now=at,
            subject=memory_ids[0],
        )
        audits = _destroy(MemoryWrite(tx, context, actor, at, None), current, reason)
        settings_rows.set_setting(tx, PENDING, "1")
        return current, audits

    erased, audits = database.write(unit, name="erase")
    rebuilt()
    finish_erasure(context)
    # One search serves all: it reads every table and file for the texts of all of them.
    remains = search_remains(context, actor, erased.texts, erased.fragments)
    proofs = tuple(
        prove_erased(context, actor, stored.memory.id, remains) for stored in erased.stored
    )
    result = erased.preview.model_copy(
        update={"mode": "apply", "proofs": proofs, "audit_ids": audits}
    )
    if idempotency_key is not None:
        # The names of the threads that went may be what was erased: the answer is kept without.
        stored_result = result.model_copy(update={"threads": tuple(_numbers(erased.copies))})
        database.write(
            lambda tx: call.keep(tx, stored_result, at=now),
            name="erase.answer",
            writes=Writes.of(first.scope.scope),
        )
    return result


def _arguments(
    ids: Sequence[str], fragments: Sequence[str], reason: str, confirm_token: str | None
) -> bytes:
    """Return the arguments of an erasure, by which a second call under its key is compared."""
    named = [list(ids), reason, confirm_token]
    return canonical_json([*named, list(fragments)] if fragments else named)


def _numbers(copies: Copies) -> Iterator[str]:
    """Yield the threads of a plan by their numbers."""
    for thread in copies.threads:
        yield f"{thread.scope} thread:{thread.id}"


def erase_recorded(
    context: MemoryContext,
    actor: Actor,
    run_id: str,
    *,
    step_id: str | None,
    reason: str,
    mode: Literal["preview", "apply"],
    idempotency_key: str | None = None,
    rebuilt: Callable[[], None] = lambda: None,
) -> list[str]:
    """Remove the payloads of a run, or of one of its steps, with their salts, its names, goal,
    metadata and summaries, and the arguments of approvals that it asked for; return the steps that
    lose any of it.

    The chain still verifies and says that they were erased. A step that goes on keeps its name,
    metadata and summaries until it has ended. Raises Denied unless an operator asks,
    NotFound, InvalidInput, StorageError, BusyTally, IdempotencyMismatch.
    """
    require_reason(reason)
    actor = actor.within_act(context.store.ids.new())
    database = context.store.database
    database.flush()
    with database.read() as connection:
        recorded = recordings.find_run(connection, run_id)
        scope = None if recorded is None else recorded.record.scope
        if scope is None or not context.gate.decide(connection, actor, "inspect", scope).allowed:
            raise NotFound(f"There is no run {run_id} that {actor.user} may see.")
        payloads = recordings.stored_payloads(connection, run_id, step_id)
        with_texts = erasing.has_recorded_texts(
            connection, run_id, None if step_id is None else [step_id]
        )
    if not actor.is_operator:
        raise context.gate.refusal(actor, "missing_permission", "delete", scope)
    steps = sorted({*(payload.step_id for payload in payloads), *with_texts})
    if mode == "preview":
        return steps
    call = IdempotentCall(scope, "erase_recorded", idempotency_key, [run_id, step_id, reason])

    def unit(tx: Connection) -> list[str]:
        answered = call.read_answer(tx)
        if answered is not None:
            return [str(step) for step in answered["steps"]]
        at = context.store.clock.now()
        stored = recordings.stored_payloads(tx, run_id, step_id)
        hits = [RecordedHit(run_id, step_id, 0)]
        steps = erase_from_runs(
            tx, context, actor, stored, hits, at=at, reason=reason, whole=step_id is None
        )
        waiting = approvals.of_runs(tx, [run_id], step_id=step_id)
        erase_arguments(tx, context.store, actor, waiting, at=at)
        settings_rows.set_setting(tx, PENDING, "1")
        call.keep(tx, {"steps": steps}, at=at)
        return steps

    erased_steps = database.write(unit, name="payload.erase")
    rebuilt()
    finish_erasure(context)
    return erased_steps


def _destroy(write: MemoryWrite, plan: _Plan, reason: str) -> tuple[str, ...]:
    tx, now = write.tx, write.now
    withdraw_proposals(write, plan.proposals)
    destroy_memories(write, plan.stored, keep_rows=True)
    # Not everybody who may inspect the run may read the memory: the memory's journal alone names
    # it.
    destroy_copies(
        write, plan.needles, plan.copies, plan.streams, reason="text of a memory was erased"
    )
    working.remove_with(tx, plan.needles, within=plan.copies.within)
    waiting = approvals.with_text(tx, plan.needles, within=plan.copies.within)
    erase_arguments(tx, write.context.store, write.actor, waiting, at=now, needles=plan.needles)
    for thread in plan.copies.threads:
        count = checkpoints.delete_thread(tx, thread.id)
        journal.append(
            tx,
            journal.Event(
                stream=thread.stream,
                event="thread.delete",
                actor=write.actor,
                at=now,
                audit_id=write.context.store.ids.new(),
                subject_id=f"thread:{thread.id}",
                details={"checkpoints": count},
            ),
        )
    counts = {
        "payloads": len(plan.preview.payloads),
        "threads": len(plan.copies.threads),
        "sources": len(plan.preview.sources),
    }
    return tuple(
        write.journal_event(
            stored.memory.scope,
            "memory.erase",
            stored.memory.id,
            {"version": stored.memory.version, **counts},
            reason=reason,
        )
        for stored in plan.stored
    )


def _token_content(reason: str, plan: _Plan) -> str:
    versions = [[stored.memory.id, stored.memory.version] for stored in plan.stored]
    return json.dumps([reason, versions, plan.preview.dump()], sort_keys=True)


def _plan(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    ids: Iterable[str],
    fragments: Sequence[str],
) -> _Plan:
    named = [_require_operable(connection, context, actor, memory_id) for memory_id in ids]
    stored = {entry.doc: entry for entry in named}
    reach = OperatorScopes(connection, context, actor, "manage")
    stored |= memories.get_docs(connection, _shared_copies(connection, named))
    named_ids = [entry.memory.id for entry in stored.values()]
    derived = memories.get_docs(connection, erasing.drawn_from(connection, stored, promoted=True))
    stored |= derived
    memory_ids = [entry.memory.id for entry in stored.values()]
    versions, texts = _texts(connection, stored)
    needles = containment.needles_of(texts, fragments)
    copies = Copies.find(connection, needles, memory_ids, reach)
    keys = [entry.content_key for entry in stored.values()]
    same = memories.with_content(connection, keys, besides=list(stored))
    elsewhere = {memory_id for memory_id, _ in same} | set(copies.memories)
    read = recordings.runs_that_read(connection, memory_ids)
    sent = [
        each for run_id in read for each in recordings.stored_payloads(connection, run_id, None)
    ]
    about = _proposals_about(connection, needles, memory_ids, within=copies.within)
    streams = _streams(connection, reach)
    cannot = [*CANNOT_ERASE, *(() if reach.whole else CANNOT_BEYOND)]
    if copies.encrypted:
        cannot.append(f"what {copies.encrypted} encrypted pieces of checkpoints hold")
    preview = Erasure(
        mode="preview",
        memory_ids=tuple(sorted(named_ids)),
        derived=tuple(sorted(entry.memory.id for entry in derived.values())),
        versions=versions,
        sources=tuple(source.id for source in erasing.own_sources(connection, list(stored))),
        payloads=tuple(sorted({step for step, _, _ in (*copies.payloads, *sent)})),
        threads=tuple(f"{thread.scope} {thread.name}" for thread in copies.threads),
        working=working.count_with(connection, needles, within=copies.within),
        runs=tuple(
            dict.fromkeys([*(hit.run_id for hit in copies.recorded if hit.step_id is None), *read])
        ),
        steps=tuple(hit.step_id for hit in copies.recorded if hit.step_id is not None),
        approvals=tuple(
            stored.record.id
            for stored in approvals.with_text(connection, needles, within=copies.within)
        ),
        proposals=tuple(
            sorted(each.record.id for each in about if each.record.content is not None)
        ),
        journal=erasing.count_journal_texts(connection, needles, memory_ids, streams=streams),
        in_chain=tuple(erasing.chained_texts(connection, needles, streams=streams)),
        elsewhere=tuple(sorted(elsewhere.difference(memory_ids))),
        cannot_prove=tuple(cannot),
    )
    return _Plan(
        tuple(stored.values()), texts, tuple(fragments), needles, copies, about, preview, streams
    )


def _texts(connection: Connection, docs: Iterable[int]) -> tuple[int, tuple[str, ...]]:
    """Return the number of versions of memories that have a body, and the texts in them."""
    bodies = [
        version.body
        for doc in docs
        for version in erasing.texts_of(connection, doc)
        if version.body is not None
    ]
    texts = (text for body in bodies for text in searched_texts(json.loads(body)))
    return len(bodies), tuple(dict.fromkeys(texts))


def _shared_copies(connection: Connection, named: Iterable[memories.Stored]) -> set[int]:
    """Return the shared copies of these memories."""
    return {
        edge.from_doc
        for entry in named
        for edge in edges.of(connection, entry.doc)
        if edge.kind == "SHARES" and edge.to_doc == entry.doc
    }


def _proposals_about(
    connection: Connection,
    needles: Sequence[bytes],
    memory_ids: Sequence[str],
    *,
    within: Sequence[int] | None,
) -> tuple[StoredProposal, ...]:
    """Return the proposals that contain a text, or that were drawn from one of these memories, in
    other words.
    """
    about = proposals.of_memories(connection, memory_ids)
    about += proposals.with_text(connection, needles, within=within)
    return tuple({stored.record.id: stored for stored in about}.values())


def _streams(connection: Connection, reach: OperatorScopes) -> tuple[str, ...] | None:
    """Return the journals within reach, of scopes, runs and threads; None for all of them."""
    return None if reach.whole else ScopeSelection.of(connection, reach.scopes()).streams


def _require_operable(
    connection: Connection, context: MemoryContext, actor: Actor, memory_id: str
) -> memories.Stored:
    """Return the memory, for an operator; others are refused where they may read it, and get
    NotFound where they may not.
    """
    stored = memories.get(connection, memory_id)
    if stored is None:
        raise context.absent(actor, memory_id)
    scope = stored.memory.scope
    if actor.is_operator and context.gate.decide(connection, actor, "manage", scope).allowed:
        return stored
    if not context.gate.decide(connection, actor, "read", scope).allowed:
        raise context.absent(actor, memory_id)
    raise Denied(
        _decision(actor, stored, allowed=False), "Only an operator may erase. Forget it instead."
    )


def _decision(actor: Actor, stored: memories.Stored, *, allowed: bool) -> AccessDecision:
    return AccessDecision(
        allowed=allowed,
        reason="missing_permission",
        operation="delete",
        scope=stored.memory.scope,
        surface=actor.surface,
    )


def prove(context: MemoryContext, actor: Actor, memory_id: str, text: str | None) -> Proof:
    """Prove an erasure later; with `text` tables and files are searched for it too. Raises Denied,
    NotFound.
    """
    with context.store.database.read() as connection:
        _require_operable(connection, context, actor, memory_id)
    remains = None if text is None else search_remains(context, actor, [text])
    return prove_erased(context, actor, memory_id, remains)
