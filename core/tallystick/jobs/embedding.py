"""Embedding: vectors for memories that were written without one, and for all of them after a change
of the embedder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from tallystick.errors import EmbedderUnavailable, EmbeddingError
from tallystick.jobs.culprits import Suspects, Tried, take_apart
from tallystick.jobs.derived import MEND, Derived
from tallystick.jobs.runner import Ended, Work, enqueue_in_scope
from tallystick.memory import MemoryContext
from tallystick.policy.permissions import is_local_only
from tallystick.records import Actor, Finding, JsonObject
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import search
from tallystick.storage.rows import job_list, jobs, memories, memory_versions, scopes

_PAGE, _PAGES_AHEAD = 200, 50
_LEASE_SECONDS = 120


class _Text(NamedTuple):
    """A text by which a memory is found, to be embedded."""

    doc: int
    scope_id: int
    version: int
    text: str


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
            job.id: self._text_of(stored)
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

    def _text_of(self, stored: memories.Stored) -> _Text:
        memory = stored.memory
        text = self._context.searchable(memory.scope, memory.content, memory.attributes)
        return _Text(stored.doc, stored.scope_id, memory.version, text)

    def _is_asked_for(self, job: jobs.LeasedJob, stored: memories.Stored) -> bool:
        memory = stored.memory
        return (
            memory.state in memories.FINDABLE
            and job.version in (0, memory.version)
            and (self._context.local_embedder or not is_local_only(memory.attributes))
        )


@dataclass
class Unembedded:
    """The memories of one scope that have no vector of the embedder of `context`, embedded page by
    page; whoever begins anew goes on where it was left.
    """

    context: MemoryContext
    scope_id: int
    beside_jobs: bool = False
    """True if also those count whose embedding is a job: that job is for another embedder."""
    finished: int = 0
    """Memories that were looked at."""
    vectors: int = 0
    """Memories whose vectors were stored."""
    failures: list[EmbeddingError] = field(default_factory=list)
    """Of texts that were passed over, one each."""
    in_hand: int = 0
    """Memories of the transaction under way, or of the last one."""
    stored: int = 0
    """Those of them whose vectors it stores."""
    _after: int = 0
    _waiting: list[int] = field(default_factory=list)
    _suspects: Suspects = field(default_factory=Suspects)

    def docs(self, *, limit: int | None = None) -> list[int]:
        """Return the numbers of those that were not looked at yet, in order."""
        with self.context.store.database.read() as connection:
            return search.docs_missing_vectors(
                connection,
                self.context.embedder.fingerprint,
                scope_id=self.scope_id,
                after=self._after,
                limit=limit,
                local_embedder=self.context.local_embedder,
                beside_jobs=self.beside_jobs,
            )

    def committing(self, name: str) -> Callable[[Callable[[Connection], None]], None]:
        """Return a commit for `embed_page`: each in a transaction of its own, by this name."""
        with self.context.store.database.read() as connection:
            writes = Writes.of(scopes.get_by_id(connection, self.scope_id).scope)
        return partial(self.context.store.database.write, name=name, writes=writes)

    def count(self) -> int:
        """Return the number of those that were not looked at yet."""
        docs = self.docs()
        if self.context.local_embedder:
            self._waiting = docs[: _PAGES_AHEAD * _PAGE]
        return len(docs)

    def embed_page(
        self,
        commit: Callable[[Callable[[Connection], None]], None],
        is_stopping: Callable[[], bool],
    ) -> bool:
        """Embed the next page, and store it in transactions of its own by `commit`; return False
        where nothing is left. A text that the embedder will not take is passed over. Raises
        EmbeddingError where the embedder is away.
        """
        if not self._waiting:
            # A text that left meanwhile is embedded for nothing on this machine: what is sent to
            # another one is looked up for each page.
            pages = _PAGES_AHEAD if self.context.local_embedder else 1
            self._waiting = self.docs(limit=pages * _PAGE)
        docs, self._waiting = self._waiting[:_PAGE], self._waiting[_PAGE:]
        if not docs:
            return False
        with self.context.store.database.read() as connection:
            scope = scopes.get_by_id(connection, self.scope_id).scope
            bodies = memory_versions.current_bodies(connection, docs)
        page = [
            _Text(doc, of, version, self.context.searchable(scope, body["content"], _about(body)))
            for doc, of, version, body in bodies
        ]

        def embed(part: Sequence[_Text]) -> Tried[_Text]:
            try:
                vectors = _vectors(self.context, part)
            except EmbeddingError as error:
                return Tried(part, error, is_proof=False)
            commit(partial(self._store, part=part, vectors=vectors))
            self.vectors += self.stored
            return Tried((), None, is_proof=bool(vectors))

        tried = take_apart(
            page, embed, self._suspects, key=lambda each: each.doc, is_stopping=is_stopping
        )
        if tried.outage is not None:
            raise tried.outage
        self.failures += [error for _, error in tried.failed if isinstance(error, EmbeddingError)]
        self._after, self.finished = docs[-1], self.finished + len(docs)
        return True

    def _store(self, tx: Connection, *, part: Sequence[_Text], vectors: Sequence[bytes]) -> None:
        self.in_hand, self.stored = len(part), len(_store(tx, self.context, part, vectors))


def unembedded(
    connection: Connection, context: MemoryContext, *, beside_jobs: bool = False
) -> list[Unembedded]:
    """Return the scopes of texts that have no vector of the embedder of a context. Raises
    EmbeddingError.
    """
    scope_ids = search.scopes_missing_vectors(
        connection,
        context.embedder.fingerprint,
        local_embedder=context.local_embedder,
        beside_jobs=beside_jobs,
    )
    return [Unembedded(context, scope_id, beside_jobs) for scope_id in scope_ids]


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
        scope = Unembedded(self._context, job.scope_id)
        total = scope.count()

        def commit(unit: Callable[[Connection], None]) -> None:
            def store(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
                unit(tx)
                finished = scope.finished + scope.in_hand
                made = {"texts": scope.stored}
                jobs.note_progress(tx, job, finished, max(total, finished), made)
                return {}

            work.commit(store)
            work.is_proof |= scope.stored > 0

        while not work.is_stopping:
            if not scope.embed_page(commit, lambda: work.is_stopping):
                self._end(work, job, scope.vectors, scope.failures)
                break
        return scope.vectors

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


class Vectors(Derived):
    """The vectors of memories: made before the transaction of a change or by its job, dropped in
    the one in which the text changes. Only a failure or a changed embedder leaves some out: one on
    this machine gets all texts by itself, one far away where somebody says so (`tally reembed`).
    """

    name, mends = "vectors", "notice"

    def follow(self) -> int:
        """Enqueue a job for each scope with memories that have neither a vector of the current
        embedder nor a job; return the number of scopes. Raises EmbeddingError.

        A scope whose job failed is left alone until somebody requeues that. An embedder far away is
        given nothing by itself.
        """
        if not self._context.local_embedder:
            return 0
        try:
            missing = self._missing()
        except EmbedderUnavailable:
            return 0  # which the opening and the doctor say
        for scope_id, subject in missing.items():
            enqueue_in_scope(self._context.store, jobs.REEMBED, subject, scope_id)
        return len(missing)

    def check(self) -> Finding:
        """Look for memories without a vector, which no job makes."""
        try:
            missing = self._missing()
        except EmbedderUnavailable as error:
            return self._says("notice", f"words and structure find, without vectors: {error}")
        if missing:
            text = f"texts of {len(missing)} scopes have no vector, and are found by their words"
            if not self._context.local_embedder:
                say = "`tally reembed` says what it costs, and embeds them"
                return self._says("notice", f"{text}: {say}")
            return self._says("notice", f"{text}: the background embeds them, or {MEND}")
        return self._says("ok", "every text has a vector, or a job that makes it")

    def repair(self, actor: Actor) -> Finding:
        """Enqueue the jobs that embed them, where that sends nothing."""
        if not self._context.local_embedder or self._context.settled_fingerprint() is None:
            return self.check()
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


def _vectors(context: MemoryContext, living: Sequence[_Text]) -> list[bytes]:
    return context.embed_texts([each.text for each in living])


def _about(body: Mapping[str, Any]) -> JsonObject:
    """Return the attributes of a stored body."""
    attributes: JsonObject = body.get("attributes") or {}
    return attributes


def _store(
    tx: Connection,
    context: MemoryContext,
    living: Sequence[_Text],
    vectors: Sequence[bytes],
) -> set[int]:
    """Store the vectors of those memories whose text is still the one that was embedded; return
    their documents.
    """
    if not living:
        return set()
    fingerprint = context.embedder.fingerprint
    versions = search.without_vector(tx, fingerprint, [each.doc for each in living])
    rows = [
        (each.doc, each.scope_id, each.version, vector)
        for each, vector in zip(living, vectors, strict=True)
        if versions.get(each.doc) == each.version
    ]
    search.add_vectors(tx, rows, fingerprint)
    for scope_id in sorted({scope_id for _, scope_id, *_ in rows}):
        docs = [doc for doc, of, *_ in rows if of == scope_id]
        search.touch(tx, docs, revision=scopes.next_revision(tx, scope_id))
    return {doc for doc, *_ in rows}
