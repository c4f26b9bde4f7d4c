"""One writing under way: what remembering and changing have in common inside their transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.memory import index
from tallystick.memory.context import MemoryContext, is_local_only
from tallystick.records import Actor, Memory, Scope, SourceRef
from tallystick.storage import Connection, ScopeRow, jobs, journal, memories, outbox, scopes, search

__all__ = ["MemoryWrite"]


@dataclass(frozen=True)
class MemoryWrite:
    """The open transaction with who writes, when, and on whose request."""

    tx: Connection
    context: MemoryContext
    actor: Actor
    now: int
    correlation_id: str | None
    revisions: dict[int, int] = field(default_factory=dict)
    """The revision of each scope's text that this transaction makes."""

    def add_source(
        self,
        scope: ScopeRow,
        reference: SourceRef,
        content_key: str,
        *,
        occurred_at: int | None = None,
    ) -> str:
        """Write a source whose bytes stand in `parts` under `content_key`; its id."""
        source_id = self.context.store.ids.new()
        memories.add_source(
            self.tx,
            source_id,
            reference,
            scope=scope,
            content_key=content_key,
            created_by=self.actor.user,
            at=self.now,
            occurred_at=occurred_at,
        )
        return source_id

    def write_down(
        self,
        scope: Scope,
        event: str,
        memory_id: str,
        details: dict[str, Any],
        *,
        reason: str | None = None,
    ) -> str:
        """Journal what happened to a memory; the audit id."""
        entry = journal.append(
            self.tx,
            journal.Event(
                stream=f"scope:{scope}",
                event=event,
                actor=self.actor,
                at=self.now,
                audit_id=self.context.store.ids.new(),
                reason=reason,
                correlation_id=self.correlation_id,
                subject_id=memory_id,
                details=details,
            ),
        )
        return entry.event.audit_id

    def rewrite(
        self,
        current: memories.Stored,
        memory: Memory,
        event: str,
        *,
        reason: str | None,
        vector: bytes | None = None,
        content_key: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> tuple[Memory, str]:
        """Write `memory` as the next version of what stands, journal it and bring the index along.

        Gives the memory as it stands now, and the audit id. `vector` is that of its text, where it
        has one.
        """
        before = current.memory
        memory = memory.model_copy(
            update={
                "version": before.version + 1,
                "updated_at": self.now,
                "updated_by": self.actor.user,
            }
        )
        committed = memories.add_version(self.tx, current.doc, memory, at=self.now)
        forgotten = current.forgotten_at if before.state == "deleted" else self.now
        memories.update_row(
            self.tx,
            current.doc,
            memory,
            content_key=content_key or current.content_key,
            forgotten_at=forgotten if memory.state == "deleted" else None,
        )
        self._reindex(current, memory, vector)
        told = {**(details or {}), "version": memory.version, "commitment": committed}
        return memory, self.write_down(memory.scope, event, memory.id, told, reason=reason)

    def _reindex(self, current: memories.Stored, memory: Memory, vector: bytes | None) -> None:
        was, found = (one.state in memories.FINDABLE for one in (current.memory, memory))
        doc, scope_id = current.doc, current.scope_id
        if was and found and index.keeps_vectors(current.memory, memory):
            # Recall reads the state with the revision, and the words where they changed.
            if index.text_row(current.memory) == index.text_row(memory):
                search.touch(self.tx, [doc], revision=self._revision(scope_id))
            else:
                index.show_anew(
                    self.tx, memory, doc=doc, scope_id=scope_id, revision=self._revision(scope_id)
                )
            return
        if found:
            if was:
                search.drop_vectors(self.tx, doc)
                if vector is None:
                    outbox.append(self.tx, [doc])
            self.show(memory, doc=doc, scope_id=scope_id, vector=vector)
        elif was:
            self.hide(doc, scope_id)

    def show(self, memory: Memory, *, doc: int, scope_id: int, vector: bytes | None) -> str | None:
        """Make a memory findable; the job that will embed it, where its embedder is a remote
        one.
        """
        context = self.context
        index.show(
            self.tx,
            memory,
            doc=doc,
            scope_id=scope_id,
            vector=vector,
            fingerprint=context.embedder.fingerprint,
            revision=self._revision(scope_id),
        )
        if vector is not None or context.local_embedder or is_local_only(memory.attributes):
            return None
        return jobs.enqueue(
            self.tx,
            kind=jobs.EMBED,
            subject_id=memory.id,
            scope_id=scope_id,
            actor=self.actor,
            job_id=context.store.ids.new(),
            at=self.now,
        )

    def hide(self, doc: int, scope_id: int) -> None:
        """Make a memory unfindable."""
        index.hide(self.tx, doc, revision=self._revision(scope_id))

    def _revision(self, scope_id: int) -> int:
        if scope_id not in self.revisions:
            self.revisions[scope_id] = scopes.next_revision(self.tx, scope_id)
        return self.revisions[scope_id]
