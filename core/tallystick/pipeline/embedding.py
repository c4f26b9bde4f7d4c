"""Embedding: vectors for memories that were written without one, and for all of them after a change
of the embedder.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.errors import EmbeddingError, TallystickError
from tallystick.memory import MemoryContext
from tallystick.memory.context import is_local_only
from tallystick.storage import Connection, jobs, memories, outbox, scopes, search

__all__ = ["EmbeddingHandler"]


class EmbeddingHandler:
    """Carries out the jobs of the kind `jobs.EMBED`, which a remote embedder leaves."""

    kind = jobs.EMBED
    retried: tuple[type[TallystickError], ...] = (EmbeddingError,)

    def __init__(self, context: MemoryContext, *, batch: int) -> None:
        self._context = context
        self._batch = batch

    def handle(self, leased: Sequence[jobs.Job]) -> None:
        """Embed the memories of these jobs and finish the jobs. Raises EmbeddingError."""
        database = self._context.store.database
        with database.read() as connection:
            subjects = [memories.get(connection, job.subject_id) for job in leased]
        living = [
            stored
            for stored in subjects
            if stored is not None and stored.memory.state in memories.FINDABLE
        ]
        if not self._context.local_embedder:
            living = [stored for stored in living if not is_local_only(stored.memory.attributes)]
        vectors = self._vectors(living)
        ids = [job.id for job in leased]
        database.write(lambda tx: self._store(tx, living, vectors, ids), name="finalize")

    def embed_missing(self) -> int:
        """Embed a batch of the memories that have neither a vector of the current embedder nor a
        job; return the number of vectors stored. Raises EmbeddingError.
        """
        database = self._context.store.database
        with database.read() as connection:
            # Those with an embedding job are left to it: it has their retries.
            docs = search.docs_missing_vectors(
                connection,
                self._context.embedder.fingerprint,
                limit=self._batch,
                local_embedder=self._context.local_embedder,
            )
            living = list(memories.get_docs(connection, docs).values())
        if not living:
            return 0
        vectors = self._vectors(living)
        return database.write(lambda tx: self._store(tx, living, vectors, []), name="finalize")

    def _vectors(self, living: Sequence[memories.Stored]) -> list[bytes]:
        if not living:
            return []
        return self._context.embed_memories([stored.memory for stored in living])

    def _store(
        self,
        tx: Connection,
        living: Sequence[memories.Stored],
        vectors: Sequence[bytes],
        job_ids: list[str],
    ) -> int:
        """Store the vectors of those memories whose text is still the one that was embedded; return
        their number.
        """
        fingerprint = self._context.embedder.fingerprint
        current = memories.get_docs(tx, [stored.doc for stored in living])
        missing = search.without_vector(tx, fingerprint, [stored.doc for stored in living])
        rows = [
            (stored.doc, stored.scope_id, stored.memory.version, vector)
            for stored, vector in zip(living, vectors, strict=True)
            if stored.doc in missing and current[stored.doc].memory.version == stored.memory.version
        ]
        search.add_vectors(tx, rows, fingerprint)
        outbox.append(tx, [doc for doc, *_ in rows])
        for scope_id in sorted({scope_id for _, scope_id, *_ in rows}):
            docs = [doc for doc, of, *_ in rows if of == scope_id]
            search.touch(tx, docs, revision=scopes.next_revision(tx, scope_id))
        if job_ids:
            jobs.finish(tx, job_ids)
        return len(rows)
