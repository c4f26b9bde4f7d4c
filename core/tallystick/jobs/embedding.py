"""Embedding: vectors for memories that were written without one, and for all of them after a change
of the embedder.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.errors import EmbeddingError
from tallystick.jobs.culprits import Suspects, Tried, take_apart
from tallystick.jobs.derived import MEND, Derived
from tallystick.jobs.runner import Ended, Work, enqueue_in_scope
from tallystick.memory import MemoryContext
from tallystick.policy.permissions import is_local_only
from tallystick.records import Actor, Finding
from tallystick.storage import Connection
from tallystick.storage.index import search
from tallystick.storage.rows import job_list, jobs, memories, scopes

_PAGE = 200
_LEASE_SECONDS = 120


class EmbeddingHandler:
    """Carries out the jobs of the kind `jobs.EMBED`, which a remote embedder leaves."""

    kind = jobs.EMBED
    batch = _PAGE
    lease_seconds = _LEASE_SECONDS
    is_upkeep = False
    changes_memory = False
    is_autonomous = False

    def __init__(self, context: MemoryContext) -> None:
        self._context = context

    def handle(self, work: Work) -> int:
        """Embed the memories of these jobs; those that are gone or said anew are `empty`. Raises
        EmbeddingError, LeaseLost.
        """
        with self._context.store.database.read() as connection:
            stored_by_job = {job.id: memories.get(connection, job.subject_id) for job in work.jobs}
        living = {
            job.id: stored
            for job in work.jobs
            if (stored := stored_by_job[job.id]) is not None and self._is_asked_for(job, stored)
        }
        vectors = _vectors(self._context, list(living.values()))
        by_doc = {stored.doc: vectors[place] for place, stored in enumerate(living.values())}
        count = 0

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            nonlocal count
            mine = [living[job.id] for job in allowed if job.id in living]
            stored = _store(tx, self._context, mine, [by_doc[each.doc] for each in mine])
            count = len(stored)
            return {
                job.id: Ended(
                    "done" if job.id in living and living[job.id].doc in stored else "empty",
                    cost={"texts": 1} if job.id in living else None,
                )
                for job in allowed
            }

        work.commit(unit)
        return count

    def _is_asked_for(self, job: jobs.LeasedJob, stored: memories.Stored) -> bool:
        memory = stored.memory
        return (
            memory.state in memories.FINDABLE
            and job.version in (0, memory.version)
            and (self._context.local_embedder or not is_local_only(memory.attributes))
        )


class ReembeddingHandler:
    """Carries out the jobs of the kind `jobs.REEMBED`: page by page, the memories of one scope that
    have no vector of the current embedder.
    """

    kind = jobs.REEMBED
    batch = 1
    lease_seconds = _LEASE_SECONDS
    is_upkeep = True
    changes_memory = False
    is_autonomous = False

    def __init__(self, context: MemoryContext) -> None:
        self._context = context

    def handle(self, work: Work) -> int:
        """Embed page by page, each in commits of its own, until nothing is missing. Raises
        EmbeddingError, LeaseLost.

        A text that the embedder will not take is passed over: the job ends as `failed` then. One
        that it may take later is tried again with the job.
        """
        [job] = work.jobs
        assert job.scope_id is not None
        missing = self._missing(job.scope_id, after=0, limit=None)
        total, finished, vector_count, after = len(missing), 0, 0, 0
        suspects, failures = Suspects(), list[EmbeddingError]()

        def embed(page: Sequence[memories.Stored]) -> Tried[memories.Stored]:
            nonlocal vector_count
            try:
                vectors = _vectors(self._context, page)
            except EmbeddingError as error:
                return Tried(page, error, is_proof=False)
            vector_count += self._commit(work, page, vectors)
            return Tried((), None, is_proof=bool(vectors))

        while not work.is_stopping:
            docs = self._missing(job.scope_id, after=after, limit=_PAGE)
            if not docs:
                self._end(work, job, vector_count, failures)
                break
            with self._context.store.database.read() as connection:
                page = list(memories.get_docs(connection, docs).values())
            before = vector_count
            tried = take_apart(
                page,
                embed,
                suspects,
                key=lambda stored: stored.doc,
                is_stopping=lambda: work.is_stopping,
            )
            if tried.outage is not None:
                raise tried.outage
            failures += [error for _, error in tried.failed if isinstance(error, EmbeddingError)]
            after, finished = docs[-1], finished + len(docs)
            work.note_progress(
                job, finished, max(total, finished), {"texts": vector_count - before}
            )
        return vector_count

    def _commit(self, work: Work, page: Sequence[memories.Stored], vectors: Sequence[bytes]) -> int:
        count = 0

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            nonlocal count
            count = len(_store(tx, self._context, page, vectors))
            return {}

        work.commit(unit)
        return count

    def _end(
        self, work: Work, job: jobs.LeasedJob, vector_count: int, failures: Sequence[EmbeddingError]
    ) -> None:
        """End the job, unless what was passed over may be taken later. Raises EmbeddingError."""
        ended = Ended("done" if vector_count else "empty", result={"vectors": vector_count})
        if failures:
            order = ("until_back", "some_times", "never")
            worst = min(failures, key=lambda each: order.index(each.retry))
            if worst.retry != "never" or not vector_count:
                raise worst
            text = f"{len(failures)} texts were passed over. {worst}"
            ended = Ended("failed", code=worst.code, text=text)
        work.commit(lambda tx, allowed: {job.id: ended})

    def _missing(self, scope_id: int, *, after: int, limit: int | None) -> list[int]:
        with self._context.store.database.read() as connection:
            return search.docs_missing_vectors(
                connection,
                self._context.embedder.fingerprint,
                scope_id=scope_id,
                after=after,
                limit=limit,
                local_embedder=self._context.local_embedder,
            )


class Vectors(Derived):
    """The vectors of memories: made before the transaction of a change or by its job, dropped in
    the one in which the text changes. Only a failure or a changed embedder leaves some out.
    """

    name, mends = "vectors", "notice"

    def follow(self) -> int:
        """Enqueue a job for each scope with memories that have neither a vector of the current
        embedder nor a job; return the number of scopes. Raises EmbeddingError.

        A scope whose job failed is left alone until somebody requeues that.
        """
        missing = self._missing()
        for scope_id, subject in missing.items():
            enqueue_in_scope(self._context.store, jobs.REEMBED, subject, scope_id)
        return len(missing)

    def check(self) -> Finding:
        """Look for memories without a vector, which no job makes."""
        if missing := self._missing():
            text = f"texts of {len(missing)} scopes have no vector, and are found by their words"
            return self._says("notice", f"{text}: the background embeds them, or {MEND}")
        return self._says("ok", "every text has a vector, or a job that makes it")

    def repair(self, actor: Actor) -> Finding:
        """Enqueue the jobs that embed them."""
        return self._says("repaired", f"the texts of {self.follow()} scopes are to be embedded")

    def _missing(self) -> dict[int, str]:
        """Return the scopes with texts that no job embeds, each with the subject of its job."""
        fingerprint = self._context.embedder.fingerprint
        with self._database.read() as connection:
            scope_ids = search.scopes_missing_vectors(
                connection, fingerprint, local_embedder=self._context.local_embedder
            )
            waiting = job_list.open_subjects(connection, jobs.REEMBED) if scope_ids else set()
        subjects = {scope_id: f"{scope_id}:{fingerprint}" for scope_id in scope_ids}
        return {scope_id: name for scope_id, name in subjects.items() if name not in waiting}


def _vectors(context: MemoryContext, living: Sequence[memories.Stored]) -> list[bytes]:
    return context.embed_memories([stored.memory for stored in living]) if living else []


def _store(
    tx: Connection,
    context: MemoryContext,
    living: Sequence[memories.Stored],
    vectors: Sequence[bytes],
) -> set[int]:
    """Store the vectors of those memories whose text is still the one that was embedded; return
    their documents.
    """
    if not living:
        return set()
    fingerprint = context.embedder.fingerprint
    current = memories.get_docs(tx, [stored.doc for stored in living])
    missing = search.without_vector(tx, fingerprint, [stored.doc for stored in living])
    rows = [
        (stored.doc, stored.scope_id, stored.memory.version, vector)
        for stored, vector in zip(living, vectors, strict=True)
        if stored.doc in missing and current[stored.doc].memory.version == stored.memory.version
    ]
    search.add_vectors(tx, rows, fingerprint)
    for scope_id in sorted({scope_id for _, scope_id, *_ in rows}):
        docs = [doc for doc, of, *_ in rows if of == scope_id]
        search.touch(tx, docs, revision=scopes.next_revision(tx, scope_id))
    return {doc for doc, *_ in rows}
