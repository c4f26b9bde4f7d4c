"""Erase: destroy the text of memories wherever it stands, previewed, by an operator, and proved
afterwards.

First one transaction takes it out of every table and notes that files are to be rewritten; then the
database file is written anew, its log emptied and Chroma's folder made again. A process that dies
in between leaves the note, and `finish` takes it up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Column, Connection, delete
from sqlalchemy.sql.elements import ColumnElement

from tallystick.access import fits, mint
from tallystick.checkpoints.removing import threads_containing
from tallystick.errors import Denied, InvalidInput, NotFound, StateConflict, StorageError
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_mode, require_reason
from tallystick.memory.correct import TOKEN_LIFE_US
from tallystick.memory.fields import INDEX, item_value
from tallystick.memory.memory_write import MemoryWrite
from tallystick.pipeline.reconcile import rebuild
from tallystick.recorder.step import run_stream
from tallystick.records import (
    AccessDecision,
    Actor,
    Erasure,
    Proof,
    Scope,
    canonical_json,
    part_key,
)
from tallystick.storage import (
    byte_search,
    checkpoints,
    edges,
    erasing,
    journal,
    memories,
    recordings,
    scopes,
    settings_rows,
    tables,
)
from tallystick.storage.idempotency import Once
from tallystick.upkeep.operator_scopes import Reach
from tallystick.upkeep.proof import CANNOT_BEYOND, CANNOT_ERASE, prove_erased

__all__ = ["PENDING", "erase", "erase_recorded", "finish"]

PENDING = "erase.pending"
"""Setting: text was erased from tables, and files are still to be rewritten."""
_OPERATION = "erase"
_LONG = 16
"""Characters of a text of an item from which on other copies of it are looked for: shorter ones
stand anywhere.
"""


@dataclass(frozen=True)
class _Found:
    """Where the text stands beside the memories themselves, as far as the operator's reach goes."""

    payloads: tuple[tuple[str, int, str], ...] = ()
    threads: tuple[tuple[int, str, str], ...] = ()
    runs: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()
    sealed: int = 0
    within: tuple[int, ...] | None = None
    """The numbers of the scopes within reach; None is every one."""

    @classmethod
    def of(
        cls, connection: Connection, needles: Sequence[bytes], ids: Iterable[str], reach: Reach
    ) -> _Found:
        within = (
            None
            if reach.whole
            else tuple(row.id for row in scopes.find(connection, reach.scopes()))
        )
        if not needles:
            return cls(within=within)
        held = threads_containing(connection, needles)
        # A payload that names a memory holds it by its id where it does not quote it.
        payloads = byte_search.payloads_with(connection, [*needles, *(one.encode() for one in ids)])
        return cls(
            tuple(one for one in payloads if reach.covers_number(one[1])),
            tuple(one for one in held.threads if reach.covers(Scope.parse(one[1]))),
            tuple(
                run
                for run, scope_id in byte_search.goals_with(connection, needles)
                if reach.covers_number(scope_id)
            ),
            tuple(
                one
                for one, scope_id in byte_search.versions_with(connection, needles)
                if reach.covers_number(scope_id)
            ),
            held.encrypted,
            within,
        )

    def rows(
        self, connection: Connection, column: Column[Any], needles: Sequence[bytes]
    ) -> ColumnElement[bool]:
        """The condition for rows within reach of which a column holds the text."""
        holding = byte_search.holds(connection, column, needles)
        return (
            holding if self.within is None else holding & column.table.c.scope_id.in_(self.within)
        )


@dataclass(frozen=True)
class _Plan:
    stored: tuple[memories.Stored, ...]
    texts: tuple[str, ...]
    needles: tuple[bytes, ...]
    found: _Found
    shown: Erasure


def erase(
    context: MemoryContext,
    actor: Actor,
    ids: Sequence[str],
    *,
    reason: str,
    mode: Literal["preview", "apply"],
    confirm_token: str | None = None,
    idempotency_key: str | None = None,
    rebuilt: Callable[[], None] = lambda: None,
) -> Erasure:
    """Preview an erasure, or do it with the preview's token. `rebuilt` drops what is kept in
    memory.

    Raises Denied unless an operator of the organization asks, NotFound, InvalidInput, StateConflict
    when the world is not as it was previewed, StorageError when another process holds Chroma's
    folder, or IdempotencyMismatch.
    """
    require_reason(reason)
    require_mode(mode)
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        raise InvalidInput("Name one or more memories to erase.")
    database = context.store.database
    with database.read() as connection:
        first = _operable(connection, context, actor, wanted[0])
        row = first.scope
        request = part_key(row.secret, canonical_json([list(wanted), reason, confirm_token]))
        if mode == "apply" and idempotency_key is not None:
            answered = settings_rows.first_answer(
                connection, row.id, _OPERATION, idempotency_key, request
            )
            if answered is not None:
                return Erasure.load(answered)
        plan = _plan(connection, context, actor, wanted)
    now = context.store.clock.now()
    if mode == "preview":
        until = now + TOKEN_LIFE_US
        token = mint(row.secret, _OPERATION, actor, _bound(reason, plan), expires_at=until)
        return plan.shown.model_copy(update={"confirm_token": token, "expires_at": until})
    if confirm_token is None:
        decision = _decision(actor, first, allowed=False)
        raise context.gate.refuse(
            actor, decision.model_copy(update={"reason": "confirm_token_required"})
        )
    if context.index is not None and not context.index.owned:
        raise StorageError(
            "Another process holds this tally's Chroma folder. Close it, then erase: its files "
            "are rewritten."
        )

    def unit(tx: Connection) -> tuple[_Plan, tuple[str, ...]]:
        again = _plan(tx, context, actor, wanted)
        at = context.store.clock.now()
        if not fits(confirm_token, row.secret, _OPERATION, actor, _bound(reason, again), now=at):
            raise StateConflict(
                wanted[0],
                state="not as previewed",
                reason="the token has run out, is not for this, or more or less "
                "would be erased by now",
                hint="Preview again and confirm what it shows.",
            )
        audits = _destroy(MemoryWrite(tx, context, actor, at, None), again, reason)
        settings_rows.set_setting(tx, PENDING, "1")
        return again, audits

    done, audits = database.write(unit, name="erase")
    rebuilt()
    finish(context)
    proofs = tuple(
        prove_erased(context, actor, stored.memory.id, texts=done.texts, journaled=True)
        for stored in done.stored
    )
    result = done.shown.model_copy(update={"mode": "apply", "proofs": proofs, "audit_ids": audits})
    if idempotency_key is not None:
        database.write(
            lambda tx: settings_rows.keep_answer(
                tx, row.id, _OPERATION, idempotency_key, request, result.dumps(), at=now
            ),
            name="erase.answer",
        )
    return result


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
    """Take the payloads of a run and its goal, or of one of its steps, away with their salts; the
    steps that lose any.

    The chain still verifies and says that they were erased. Raises Denied unless an operator asks,
    NotFound, InvalidInput, StorageError, BusyTally, IdempotencyMismatch.
    """
    require_reason(reason)
    require_mode(mode)
    database = context.store.database
    database.settle()
    with database.read() as connection:
        found = recordings.find_run(connection, run_id)
        if (
            found is None
            or not context.gate.decide(connection, actor, "inspect", found[0].scope).allowed
        ):
            raise NotFound(f"There is no run {run_id} that {actor.user} may see.")
        payloads = recordings.kept_payloads(connection, run_id, step_id)
    if not actor.is_operator:
        raise context.gate.refuse(
            actor,
            AccessDecision(
                allowed=False,
                reason="missing_permission",
                operation="delete",
                scope=found[0].scope,
                surface=actor.surface,
            ),
        )
    steps = sorted({step for step, _, _ in payloads})
    if mode == "preview":
        return steps
    once = Once(found[0].scope, "erase_recorded", idempotency_key, [run_id, step_id, reason])

    def unit(tx: Connection) -> list[str]:
        answered = once.answered(tx)
        if answered is not None:
            return [str(step) for step in answered["steps"]]
        at = context.store.clock.now()
        kept = recordings.kept_payloads(tx, run_id, step_id)
        gone = _erase_payloads(tx, context, actor, kept, at=at, reason=reason)
        if step_id is None:
            erasing.drop_goals(tx, [run_id])
        if kept or step_id is None:
            settings_rows.set_setting(tx, PENDING, "1")
        once.keep(tx, {"steps": gone}, at=at)
        return gone

    done = database.write(unit, name="payload.erase")
    if payloads or step_id is None:
        rebuilt()
        finish(context)
    return done


def _erase_payloads(
    tx: Connection,
    context: MemoryContext,
    actor: Actor,
    payloads: Iterable[tuple[str, int, str]],
    *,
    at: int,
    reason: str,
) -> list[str]:
    """Erase recorded payloads and say so in the chain of each run, or it would not verify; the
    steps that lose any.
    """
    gone = erasing.erase_payloads(tx, payloads, at=at)
    for run_id, steps in gone.items():
        journal.append(
            tx,
            journal.Event(
                stream=run_stream(run_id),
                event="payload.erase",
                actor=actor,
                at=at,
                audit_id=context.store.ids.new(),
                reason=reason,
                subject_id=run_id,
                details={"steps": steps},
            ),
        )
    return sorted(step_id for steps in gone.values() for step_id in steps)


def finish(context: MemoryContext) -> bool:
    """Rewrite files where an erasure asks for it; whether one did. Raises StorageError,
    BusyTally.
    """
    database = context.store.database
    with database.read() as connection:
        if settings_rows.get_setting(connection, PENDING) != "1":
            return False
    if context.index is not None and (context.index.start_over() or context.index.is_open):
        rebuild(context)
    erasing.rewrite(database)
    database.write(lambda tx: settings_rows.set_setting(tx, PENDING, "0"), name="erase.done")
    return True


def _destroy(writing: MemoryWrite, plan: _Plan, reason: str) -> tuple[str, ...]:
    tx, now = writing.tx, writing.now
    for stored in plan.stored:
        writing.hide(stored.doc, stored.scope_id)
    erasing.destroy(tx, [stored.doc for stored in plan.stored], at=now)
    # Who may inspect the run is not who may read the memory: its journal alone says which, and why.
    _erase_payloads(
        tx,
        writing.context,
        writing.actor,
        plan.found.payloads,
        at=now,
        reason="text of a memory was erased",
    )
    erasing.working_with(tx, plan.found.rows(tx, tables.working.c.body, plan.needles), remove=True)
    erasing.drop_goals(tx, plan.shown.runs)
    keys = tables.idempotency.c
    for column in (keys.key, keys.result):
        tx.execute(delete(tables.idempotency).where(plan.found.rows(tx, column, plan.needles)))
    for number, scope, name in plan.found.threads:
        count = checkpoints.delete_thread(tx, number)
        journal.append(
            tx,
            journal.Event(
                stream=f"thread:{scope}/{name}",
                event="thread.delete",
                actor=writing.actor,
                at=now,
                audit_id=writing.context.store.ids.new(),
                subject_id=name,
                details={"checkpoints": count},
            ),
        )
    told = {
        "payloads": len(plan.shown.payloads),
        "threads": len(plan.found.threads),
        "sources": len(plan.shown.sources),
    }
    return tuple(
        writing.write_down(
            stored.memory.scope,
            "memory.erase",
            stored.memory.id,
            {"version": stored.memory.version, **told},
            reason=reason,
        )
        for stored in plan.stored
    )


def _bound(reason: str, plan: _Plan) -> str:
    versions = [[stored.memory.id, stored.memory.version] for stored in plan.stored]
    return json.dumps([reason, versions, plan.shown.dump()], sort_keys=True)


def _plan(
    connection: Connection, context: MemoryContext, actor: Actor, ids: Iterable[str]
) -> _Plan:
    named = [_operable(connection, context, actor, memory_id) for memory_id in ids]
    stored = {one.doc: one for one in named}
    reach = Reach(connection, context, actor, "manage")
    origins: set[int] = set()
    for one in named:
        around = edges.of(connection, one.doc)
        shared = [
            edge.from_doc for edge in around if edge.kind == "SHARES" and edge.to_doc == one.doc
        ]
        stored |= memories.get_docs(connection, shared)
        origins |= {
            edge.from_doc
            for edge in around
            if edge.kind == "DERIVED_FROM" and edge.to_doc == one.doc
        }
    bodies = [
        body for doc in stored for _, body in erasing.texts_of(connection, doc) if body is not None
    ]
    texts = tuple(dict.fromkeys(text for body in bodies for text in _texts(json.loads(body))))
    needles = tuple(needle for text in texts if text for needle in byte_search.forms(text))
    found = _Found.of(connection, needles, [one.memory.id for one in stored.values()], reach)
    kept = {
        one.memory.id
        for one in memories.get_docs(connection, origins).values()
        if reach.covers(one.memory.scope)
    }
    same = memories.saying(
        connection, [one.content_key for one in stored.values()], besides=list(stored)
    )
    kept |= {memory_id for memory_id, _ in same} | set(found.memories)
    cannot = [*CANNOT_ERASE, *(() if reach.whole else CANNOT_BEYOND)]
    if found.sealed:
        cannot.append(f"what {found.sealed} encrypted pieces of checkpoints hold")
    shown = Erasure(
        mode="preview",
        memory_ids=tuple(sorted(one.memory.id for one in stored.values())),
        versions=len(bodies),
        sources=tuple(
            source_id for source_id, _, _ in erasing.own_sources(connection, list(stored))
        ),
        payloads=tuple(sorted({step for step, _, _ in found.payloads})),
        threads=tuple(f"{scope} {name}" for _, scope, name in found.threads),
        working=erasing.working_with(
            connection, found.rows(connection, tables.working.c.body, needles), remove=False
        ),
        runs=found.runs,
        elsewhere=tuple(sorted(kept - {one.memory.id for one in stored.values()})),
        cannot_prove=tuple(cannot),
    )
    return _Plan(tuple(stored.values()), texts, needles, found, shown)


def _texts(body: dict[str, Any]) -> Iterator[str]:
    """What a version says, by which its copies are looked for; of an item of a store the texts of
    its value too.
    """
    content = str(body["content"])
    yield content
    if INDEX in body.get("attributes", {}):
        yield from (text for text in _leaves(item_value(content)) if len(text) >= _LONG)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _leaves(inner)


def _operable(
    connection: Connection, context: MemoryContext, actor: Actor, memory_id: str
) -> memories.Stored:
    """The memory, for an operator; others are refused where they may know of it, else told that it
    is not there.
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
    """Prove an erasure later; with `text` files and tables are searched for it too. Raises Denied,
    NotFound.
    """
    with context.store.database.read() as connection:
        _operable(connection, context, actor, memory_id)
    return prove_erased(
        context, actor, memory_id, texts=() if text is None else (text,), journaled=True
    )
