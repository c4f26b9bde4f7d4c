"""Desk: what every step of a synthesis works with, and where its runs are stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tallystick.access import visible_docs
from tallystick.errors import NotFound, StateConflict
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.supersession import is_current
from tallystick.recorder import Recordings, Step
from tallystick.recorder.outbound import Outbound
from tallystick.records import Actor, Memory, Scope
from tallystick.records.canonical import json_bytes
from tallystick.records.synthesis import (
    CollectedSection,
    DraftSection,
    SynthesisRequest,
    SynthesisRun,
)
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import memories, scopes, synthesis_rows

RUN_NAME = "tallystick-synthesis"
"""The name of the recorded runs of its steps."""
SYNTHESIZE = "synthesize"
"""The kind of job that takes a step of a run."""
WHAT = "Synthesis"
_OF_ROW = ("id", "scope", "created_by", "created_at", "updated_at", "job_id", "stage")
_READ_AT_ONCE = 400


@dataclass(frozen=True)
class Desk:
    """An actor at work on the documents of a scope."""

    context: MemoryContext
    outbound: Outbound
    actor: Actor
    scope: Scope

    def reader(self, request: SynthesisRequest) -> Actor:
        """Return as whom memory is read: the agent or delegation that the request names, whose
        rights are those of the actor at most.
        """
        name = request.on_behalf_of
        if name is None:
            return self.actor
        if name in self.actor.delegations:
            return self.actor.replace(delegations=frozenset({name}))
        return self.actor.replace(agent=name)

    @contextmanager
    def step(self, name: str, run_id: str) -> Iterator[Step]:
        """Record one step of a run of synthesis, in a recorded run of its own."""
        recordings = Recordings(self.outbound.recorder, self.actor, counter=self.outbound.counter)
        metadata = {"synthesis": run_id}
        run = recordings.start_run(RUN_NAME, scope=self.scope, metadata=dict(metadata))
        with run, run.step("memory_read", name=name) as step:
            yield step

    def store(
        self,
        run: SynthesisRun,
        *,
        known_at: int | None,
        event: str,
        also: Callable[[MemoryWrite, SynthesisRun], SynthesisRun] = lambda write, run: run,
    ) -> SynthesisRun:
        """Store a run as it is now, with the memories that it quotes; `also` does more in the same
        transaction. Raises Denied, and StateConflict where another call changed it since
        `known_at`.
        """
        context, gate = self.context, self.context.gate
        quoted = {item.memory_id for section in run.sections for item in section.items}

        def unit(tx: Connection) -> SynthesisRun:
            gate.confirm(tx, self.actor, "write", self.scope)
            row = scopes.ensure(tx, self.scope)
            before = synthesis_rows.find_run(tx, run.id)
            if (None if before is None else before["updated_at"]) != known_at:
                raise conflict(run, "another call went on with it meanwhile")
            now = context.store.clock.now()
            write = MemoryWrite(tx, context, self.actor, now, None)
            changed = also(write, run)
            # Two steps within one microsecond are two versions.
            at = now if known_at is None else max(now, known_at + 1)
            changed = changed.replace(updated_at=at, created_at=changed.created_at or now)
            values = {
                "id": changed.id,
                "scope_id": row.id,
                "stage": changed.stage,
                "body": json.dumps(_body_of(changed), separators=(",", ":")),
                "job_id": changed.job_id,
                "created_by": changed.created_by,
                "created_at": changed.created_at,
                "updated_at": changed.updated_at,
            }
            synthesis_rows.put_run(tx, values)
            synthesis_rows.set_quotes(tx, changed.id, row.id, quoted)
            write.journal_event(self.scope, event, changed.id, {"stage": changed.stage})
            return changed

        with gate.journaling(self.actor):
            writes = Writes.of(self.scope)
            return context.store.database.write_mostly(unit, name=event, writes=writes)

    def load(self, run_id: str, *, own: bool = False) -> SynthesisRun:
        """Return a run as it is stored. Raises NotFound alike for hidden and for absent ones; with
        `own` StateConflict for the run of somebody else.
        """
        with self.context.store.database.read() as connection:
            row = synthesis_rows.find_run(connection, run_id)
            run = None if row is None else self._run_of(connection, row)
        if run is None:
            raise NotFound(f"There is no synthesis {run_id!a} that {self.actor.user} may see.")
        if own:
            if run.created_by != self.actor.user or run.scope != self.scope:
                raise conflict(run, "it is the run of somebody else, or of another scope")
            if run.stage == "erased":
                raise conflict(run, "what it quotes was erased", "Plan it anew.")
        return run

    def list_runs(self, *, limit: int, before: str | None) -> list[SynthesisRun]:
        """Return the runs of the scope, newest first, without their bodies. Raises Denied,
        NotFound.
        """
        self.context.gate.require(self.actor, "read", self.scope)
        last = None if before is None else (self.load(before).created_at, before)
        with self.context.store.database.read() as connection:
            places = scopes.find(connection, [self.scope])
            if not places:
                return []
            runs: list[SynthesisRun] = []
            while len(runs) < limit:
                rows = synthesis_rows.runs_of(connection, places[0].id, limit=limit, before=last)
                seen = (self._run_of(connection, row) for row in rows)
                runs += [run for run in seen if run is not None]
                if len(rows) < limit:
                    break
                last = rows[-1]["created_at"], rows[-1]["id"]
        bare: dict[str, Any] = {"plan": (), "sections": (), "draft": (), "verification": None}
        return [run.replace(**bare) for run in runs[:limit]]

    def _run_of(self, connection: Connection, row: synthesis_rows.Row) -> SynthesisRun | None:
        """Return a run with what the actor may see of it; None for a hidden one."""
        scope = scopes.get_by_id(connection, row["scope_id"]).scope
        decide = self.context.gate.decide
        body = json.loads(row["body"])
        of_row = {name: row[name] for name in _OF_ROW if name in row}
        if not body:
            body = {"request": {}}
        run = SynthesisRun.load({**body, **of_row, "scope": scope.dump()})
        read = (scope, *run.request.scopes)
        if not all(decide(connection, self.actor, "read", each).allowed for each in read):
            return None
        return run

    def changed_items(self, sections: Sequence[CollectedSection]) -> dict[int, set[int]]:
        """Return by section the handles of items that changed since they were collected, whose
        validity has ended, or that the actor may not see any more.
        """
        now = self.context.store.clock.now()
        ids = {item.memory_id for section in sections for item in section.items}
        with self.context.store.database.read() as connection:
            stored = {each.memory.id: each for each in read_many(connection, sorted(ids))}
            shown = self.shown(connection, list(stored.values()))
        changed: dict[int, set[int]] = {}
        for section in sections:
            for item in section.items:
                current = stored.get(item.memory_id)
                is_same = current is not None and (
                    current.memory.version == item.version
                    and (item.holds != "current" or is_current(current.memory, now))
                )
                if not (is_same and item.memory_id in shown):
                    changed.setdefault(section.number, set()).add(item.handle)
        return changed

    def visible_ids(self, ids: Sequence[str]) -> set[str]:
        """Return those of some memories that the actor may see now."""
        with self.context.store.database.read() as connection:
            return self.shown(connection, read_many(connection, sorted(set(ids))))

    def shown(self, connection: Connection, stored: list[memories.Stored]) -> set[str]:
        """Return the ids of those memories that the actor may see by this snapshot."""
        gate, now = self.context.gate, self.context.store.clock.now()
        found_in = {each.memory.scope for each in stored}
        is_open = {
            scope: gate.decide(connection, self.actor, "read", scope).allowed for scope in found_in
        }
        readable = [each for each in stored if is_open[each.memory.scope]]
        docs = visible_docs(connection, gate, self.actor, readable, now)
        return {each.memory.id for each in readable if each.doc in docs}


def withheld(run: SynthesisRun, shown: set[str]) -> SynthesisRun:
    """Return a run without what it has of memories that may not be seen now, and without the
    sentences that cite them.
    """
    if all(item.memory_id in shown for section in run.sections for item in section.items):
        return run
    sections, handles = [], dict[int, set[int]]()
    for section in run.sections:
        items = tuple(item for item in section.items if item.memory_id in shown)
        handles[section.number] = {item.handle for item in items}
        sources = tuple(dict.fromkeys(each for item in items for each in item.source_ids))
        is_whole = len(items) == len(section.items)
        sections.append(
            section.replace(
                items=items,
                source_ids=sources,
                derived_ids=tuple(each for each in section.derived_ids if each in shown),
                unresolved=tuple(each for each in section.unresolved if each in shown),
                stale=tuple(each for each in section.stale if each in shown),
                reasons=section.reasons if is_whole else (*section.reasons, "withheld"),
            )
        )
    draft = tuple(
        section.replace(
            sentences=tuple(
                each
                for each in section.sentences
                if each.cites and handles.get(section.number, set()).issuperset(each.cites)
            )
        )
        for section in run.draft
    )
    # What was found of the draft may repeat its words.
    return run.replace(sections=tuple(sections), draft=draft, verification=None)


def conflict(run: SynthesisRun, reason: str, hint: str = "") -> StateConflict:
    """Return the error for a step that a run does not admit now."""
    return StateConflict(run.id, state=run.stage, reason=reason, hint=hint, what=WHAT)


def digest_of(value: Any) -> str:
    """Return the digest of a JSON value: memories have any text and, in attributes, any number."""
    return f"sha256:{hashlib.sha256(json_bytes(value)).hexdigest()}"


def digest_of_memory(memory: Memory) -> str:
    """Return the digest of what a memory says, and of whether it holds."""
    fields = ["id", "version", "state", "content", "speaker", "valid_from", "valid_until"]
    return digest_of([getattr(memory, name) for name in fields])


def digest_of_draft(sections: Sequence[DraftSection]) -> str:
    """Return the digest of a draft."""
    return digest_of([section.dump() for section in sections])


def _body_of(run: SynthesisRun) -> dict[str, Any]:
    body = run.dump()
    for name in (*_OF_ROW, "markdown", "stale_sections"):
        body.pop(name, None)
    return body


def read_many(connection: Connection, ids: Sequence[str]) -> list[memories.Stored]:
    """Return memories by their ids, of any scope: the caller decides who may see them."""
    return [
        each
        for start in range(0, len(ids), _READ_AT_ONCE)
        for each in memories.get_many(connection, ids[start : start + _READ_AT_ONCE])
    ]
