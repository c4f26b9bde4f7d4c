"""A memory write: the steps inside a transaction that remembering and changing share, each with its
journal entry and its rows in the index; and what keeps a memory from being changed although the
actor has the right to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tallystick.access import is_expired
from tallystick.errors import StateConflict, StorageError
from tallystick.memory.conclusions import follow_origins
from tallystick.memory.context import (
    FollowUp,
    MemoryContext,
    is_made_by_extension,
    labels_of_memory,
    recall_keys,
    searchable,
)
from tallystick.policy.permissions import is_local_only
from tallystick.ranking import code_percent, indexed_words, slices
from tallystick.records import (
    AccessKind,
    Actor,
    EdgeKind,
    JsonObject,
    Memory,
    Scope,
    SourceRef,
)
from tallystick.storage import Connection, ScopeRow
from tallystick.storage.engine.writes import require
from tallystick.storage.index import search
from tallystick.storage.rows import (
    edges,
    item_summaries,
    jobs,
    journal,
    memories,
    memory_versions,
    parts,
    scopes,
)


def conversation_subject(actor: Actor, scope_id: int, conversation: str) -> str:
    """Return the subject of jobs about what a user said in a conversation of a scope."""
    said = json.dumps([actor.user, scope_id, conversation])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def require_unprotected(
    connection: Connection,
    stored: memories.Stored,
    operation: AccessKind,
    *,
    actor: Actor,
    now: int,
    force: bool = False,
) -> None:
    """Raise StateConflict where a pin or a lock keeps this actor from `operation`; `force` lets an
    operator delete what is pinned.
    """
    memory = stored.memory
    deletes = operation == "delete" and memory.state != "deleted"
    if deletes and memory.pinned and not (force and actor.is_operator):
        raise StateConflict(
            memory.id,
            state="pinned",
            reason="pinned_memory",
            hint="Let a person unpin it first, or an operator delete it: preview "
            'corrections.make(…, "delete", force=True) and apply it with its token.',
        )
    if is_pinned_for(connection, stored, actor):
        raise StateConflict(
            memory.id,
            state="pinned",
            reason="pinned_memory",
            hint="An agent changes nothing that is pinned, here or as a shared copy: ask a person.",
        )
    if is_locked(memory, actor, now):
        raise StateConflict(
            memory.id,
            state="locked",
            reason="manual_override",
            hint="A person locked this edit; ask one, or wait until the lock has ended.",
        )


def is_locked(memory: Memory, actor: Actor, now: int) -> bool:
    """Return True if a person's edit is locked against this actor, an agent."""
    return actor.agent is not None and memory.locked_until is not None and now < memory.locked_until


def is_pinned_for(connection: Connection, stored: memories.Stored, actor: Actor) -> bool:
    """Return True if a pin keeps this actor, an agent, from changing a memory.

    The pin is its own or that of a shared copy: a copy follows its origin, so that whoever changes
    or withdraws the origin would change or withdraw what is pinned.
    """
    if actor.agent is None:
        return False
    docs = [copy.doc for copy in edges.sharing(connection, stored.doc).copies]
    copies = memories.get_docs(connection, docs).values() if docs else ()
    return stored.memory.pinned or any(
        copy.memory.pinned and copy.memory.state != "deleted" for copy in copies
    )


@dataclass(frozen=True)
class Permitted:
    """A stored memory that the open transaction may change: what every change takes.

    `MemoryWrite` alone makes them, after the gate, pins and locks were asked.
    """

    stored: memories.Stored


class Rewritten(NamedTuple):
    """A memory with its new version, and its journal entry."""

    memory: Memory
    audit_id: str


@dataclass(frozen=True)
class MemoryWrite:
    """The open transaction, with the actor, the time and the correlation id of the call."""

    tx: Connection
    context: MemoryContext
    actor: Actor
    now: int
    correlation_id: str | None
    revisions: dict[int, int] = field(default_factory=dict)
    """The new revision of each scope of which this transaction changes the text."""
    enqueued: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """The jobs that this transaction has enqueued, by kind, subject and version."""
    docs: dict[str, int] = field(default_factory=dict)
    """The numbers of the memories that this transaction has remembered, by their ids."""
    imported: Set[int] = frozenset()
    """The memories that this transaction imports."""

    def permit(
        self, stored: memories.Stored, operation: AccessKind, *, force: bool = False
    ) -> Permitted:
        """Return a memory that the actor may change by `operation`; `force` lets an operator delete
        what is pinned.

        Raises NotFound alike for hidden and for absent ones, Denied, and StateConflict where a pin
        or a lock keeps it.
        """
        self.context.require_visible(self.tx, self.actor, stored.memory, operation)
        require_unprotected(self.tx, stored, operation, actor=self.actor, now=self.now, force=force)
        return Permitted(stored)

    def permit_follower(
        self, stored: memories.Stored, kind: EdgeKind, origin: memories.Stored
    ) -> Permitted:
        """Return a memory that follows one which this transaction changes, whoever may change it by
        itself: a shared copy, a conclusion. Raises StorageError where no such edge links them.
        """
        if not edges.was_linked(self.tx, kind, stored.doc, origin.doc):
            raise StorageError(f"{stored.memory.id} does not follow {origin.memory.id} by {kind}.")
        return Permitted(stored)

    def permit_upkeep(self, stored: memories.Stored) -> Permitted:
        """Return a memory that the tally itself brings up to date: one that an extension made, one
        whose end has passed, or one that comes in by an import. Raises StorageError for another.
        """
        is_ours = is_made_by_extension(stored.memory) or stored.doc in self.imported
        if not (is_ours or is_expired(stored.memory.expires_at, self.now)):
            raise StorageError(f"{stored.memory.id} is not the tally's own to change.")
        return Permitted(stored)

    def add_source(
        self,
        scope: ScopeRow,
        reference: SourceRef,
        content_key: str,
        *,
        occurred_at: int | None = None,
    ) -> str:
        """Add a source whose bytes are in `parts` under `content_key`; return its id."""
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

    def journal_event(
        self,
        scope: Scope,
        event: str,
        memory_id: str | None,
        details: dict[str, Any],
        *,
        reason: str | None = None,
    ) -> str:
        """Journal an event of a memory, or of a scope; return the audit id."""
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
        permitted: Permitted,
        memory: Memory,
        event: str,
        *,
        reason: str | None,
        vector: bytes | None = None,
        content_key: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> Rewritten:
        """Write `memory` as the next version, journal it and bring the index along; return it with
        its new version, and the audit id. `vector` is that of its text, where it has one.

        Every change of a stored memory passes here, whoever causes it.
        """
        current, before = permitted.stored, permitted.stored.memory
        require(self.tx, str(before.scope))
        memory = memory.model_copy(
            update={
                "version": before.version + 1,
                "updated_at": self.now,
                "updated_by": self.actor.user,
            }
        )
        committed = memory_versions.add_version(self.tx, current.doc, memory, at=self.now)
        forgotten = current.forgotten_at if before.state == "deleted" else self.now
        memories.update_row(
            self.tx,
            current.doc,
            memory,
            content_key=content_key or current.content_key,
            forgotten_at=forgotten if memory.state == "deleted" else None,
        )
        if content_key not in (None, current.content_key):
            # A shared copy has no source for each of its texts: what it said is named by nothing.
            parts.drop(self.tx, current.scope_id, current.content_key)
        self._reindex(current, memory, vector)
        if memory.state not in memories.FINDABLE or not _keeps_vectors(before, memory):
            item_summaries.drop(self.tx, [current.doc])
        for extension in self.context.extensions:
            extension.on_rewrite(self, current, memory)
        follow_origins(self, current, memory)
        if event == "memory.update" and self.actor.agent is None:
            self._settle(current, memory)
        event_details = {**(details or {}), "version": memory.version, "commitment": committed}
        audit_id = self.journal_event(memory.scope, event, memory.id, event_details, reason=reason)
        return Rewritten(memory, audit_id)

    def _settle(self, current: memories.Stored, memory: Memory) -> None:
        """Close the contradictions of a memory whose words a person changed: they were of others.
        What an agent changes closes none.
        """
        if memory.content != current.memory.content:
            links = edges.contradictions(self.tx, [current.doc])
            edges.close(self.tx, [link.id for link in links if link.is_open], at=self.now)

    def _reindex(self, current: memories.Stored, memory: Memory, vector: bytes | None) -> None:
        before, doc, scope_id = current.memory, current.doc, current.scope_id
        if is_made_by_extension(memory):
            return
        was_findable = before.state in memories.FINDABLE
        if memory.state not in memories.FINDABLE:
            if was_findable:
                self.hide(doc, scope_id)
            return
        if was_findable and _keeps_vectors(before, memory):
            # Recall reads the state with the revision, and the words where they changed.
            row = _text_row(self.tx, memory)
            if _text_row(self.tx, before) == row:
                search.touch(self.tx, [doc], revision=self._revision(scope_id))
            else:
                search.show_text(self.tx, doc, scope_id, row, revision=self._revision(scope_id))
            return
        if was_findable:
            search.drop_vectors(self.tx, doc)
        self.show(memory, doc=doc, scope_id=scope_id, vector=vector)
        needs_vector = not was_findable and vector is None and self.context.local_embedder
        if needs_vector and (fingerprint := self.context.settled_fingerprint()) is not None:
            # No embedder is called inside a transaction; one that is away is followed up later.
            self.enqueue_vectors(scope_id, fingerprint)

    def enqueue_vectors(self, scope_id: int, fingerprint: str) -> None:
        """Leave a job for the vectors that memories of a scope lack."""
        jobs.enqueue(
            self.tx,
            kind=jobs.REEMBED,
            subject_id=f"{scope_id}:{fingerprint}",
            scope_id=scope_id,
            actor=jobs.TALLY_ACTOR,
            job_id=self.context.store.ids.new(),
            at=self.now,
            restart=("done", "empty"),
        )

    def show(self, memory: Memory, *, doc: int, scope_id: int, vector: bytes | None) -> str | None:
        """Make a memory findable by its words and, if there is one, its vector; return the id of
        the job that will embed it, where the embedder is remote.
        """
        context = self.context
        for extension in context.extensions:
            extension.on_show(self, memory, scope_id)
        revision = self._revision(scope_id)
        text = _text_row(self.tx, memory)
        search.show_text(self.tx, doc, scope_id, text, revision=revision)
        if vector is not None:
            vectors = [(doc, scope_id, memory.version, vector)]
            search.add_vectors(self.tx, vectors, context.embedder.fingerprint)
            return None
        if context.local_embedder or is_local_only(memory.attributes):
            return None
        return self.enqueue(
            jobs.EMBED, memory.id, scope_id, actor=self.actor, version=memory.version
        )

    def derive_text(self, stored: memories.Stored) -> None:
        """Derive anew the words by which a memory is found; of one that is not findable none."""
        doc, scope_id, revision = stored.doc, stored.scope_id, self._revision(stored.scope_id)
        if stored.memory.state in memories.FINDABLE:
            row = _text_row(self.tx, stored.memory)
            search.show_text(self.tx, doc, scope_id, row, revision=revision)
        else:
            search.hide_text(self.tx, doc, revision=revision)

    def enqueue(
        self,
        kind: str,
        subject_id: str,
        scope_id: int,
        *,
        actor: Actor | None = None,
        version: int = 0,
        priority: int = jobs.NORMAL_PRIORITY,
        is_new: bool = False,
        payload: JsonObject | None = None,
        delay: int | None = None,
    ) -> str:
        """Enqueue a job about a subject in a scope, once in this transaction; return its id. It
        acts as the tally, or with the authority of `actor`. `is_new` says that the subject was made
        here, and has no job yet. With a `delay` it waits so many microseconds from now.
        """
        key = (kind, subject_id, version)
        if key not in self.enqueued:
            self.enqueued[key] = jobs.enqueue(
                self.tx,
                kind=kind,
                subject_id=subject_id,
                version=version,
                scope_id=scope_id,
                actor=actor or jobs.TALLY_ACTOR,
                job_id=self.context.store.ids.new(),
                at=self.now,
                priority=priority,
                is_new=is_new,
                payload=payload,
                delay=delay,
            )
        return self.enqueued[key]

    def follow_up(self, job: FollowUp, memory: Memory, scope: ScopeRow) -> str:
        """Leave a job that reads a new memory, or its conversation, as the actor; return its id."""
        if job.conversation is None:
            return self.enqueue(
                job.kind,
                memory.id,
                scope.id,
                actor=self.actor,
                version=memory.version,
                is_new=True,
            )
        subject = conversation_subject(self.actor, scope.id, job.conversation)
        self.enqueued.pop((job.kind, subject, 0), None)  # the last turn says when it is due
        return self.enqueue(
            job.kind,
            subject,
            scope.id,
            actor=self.actor,
            payload={"conversation": job.conversation},
            delay=job.delay,
        )

    def hide(self, doc: int, scope_id: int) -> None:
        """Take a memory out of every index."""
        search.hide_text(self.tx, doc, revision=self._revision(scope_id))

    def _revision(self, scope_id: int) -> int:
        if scope_id not in self.revisions:
            self.revisions[scope_id] = scopes.next_revision(self.tx, scope_id)
        return self.revisions[scope_id]


def _text_row(tx: Connection, memory: Memory) -> search.TextRow:
    """Return the words that a memory is found by: its text in slices, each beginning with its
    speaker, its subject and its tags.
    """
    header = " ".join(filter(None, (memory.speaker, memory.subject, *memory.tags)))
    keys = recall_keys(tx, memory.scope, memory.content, memory.attributes)
    text = searchable(memory.content, memory.attributes, keys)
    return search.TextRow(
        words=indexed_words(slices(text), header=header),
        marks=code_percent(memory.content)
        | (search.LOCAL_ONLY if is_local_only(memory.attributes) else 0),
        speaker=memory.speaker,
        tags=memory.tags,
        names=_names(memory),
        labels=labels_of_memory(memory),
        subject=memory.subject,
    )


def _names(memory: Memory) -> tuple[str, ...]:
    """Return the subject of an entity with its aliases."""
    aliases = memory.attributes.get("aliases")
    if memory.kind != "entity" or memory.subject is None or not isinstance(aliases, list):
        return ()
    return (
        memory.subject,
        *(alias for alias in aliases if isinstance(alias, str) and alias.strip()),
    )


def _keeps_vectors(before: Memory, after: Memory) -> bool:
    """Return True if the vectors of a memory are those of its text now."""
    return (
        before.content == after.content
        and searchable(before.content, before.attributes)
        == searchable(after.content, after.attributes)
        and is_local_only(before.attributes) == is_local_only(after.attributes)
    )
