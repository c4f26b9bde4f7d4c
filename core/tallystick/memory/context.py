"""The dependencies of the verbs of memory: the store, the gate, the embedder and the index."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from tallystick.access import FrameKeys, Gate
from tallystick.errors import (
    Denied,
    EmbedderUnavailable,
    EmbeddingError,
    InvalidInput,
    NotFound,
)
from tallystick.logs import get_logger
from tallystick.memory.fields import INDEX, texts_of_item
from tallystick.policy.redaction import Redactor
from tallystick.ports import Embedder, Models, Reranker
from tallystick.ranking import RecallWeights, cosines, slices_to_embed, to_float16_bytes
from tallystick.ranking.vocabulary import WordVectors
from tallystick.records import (
    AccessKind,
    Actor,
    EdgeKind,
    JsonObject,
    Memory,
    NewMemory,
    Scope,
    SecretsInMemory,
    SourceRef,
    is_storable,
)
from tallystick.records.framing import frame_key, may_be_recalled, without_recalls
from tallystick.settings import Settings
from tallystick.storage import ChromaIndex, Connection, ScopeRow, Store
from tallystick.storage.index.corpus_cache import CorpusCache
from tallystick.storage.rows import memories, scopes, sources
from tallystick.storage.rows.scopes import KnownScopes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tallystick.embedding import GuardedEmbedder
    from tallystick.memory.recall_request import RecallRequest
    from tallystick.records import Explored, Extraction, Proposal

_SESSIONS = 1_024
"""Sessions whose state is kept by this process alone; the oldest go first."""
_LABELS = ("status", "project", "assignee", "language")
"""Attributes that are labels, where they are texts."""


class TextVectors(NamedTuple):
    """The float16 vectors of texts, in their order."""

    blobs: list[bytes | None]
    """The vectors of a text's slices, one after the other; None for a text without."""
    warnings: tuple[str, ...] = ()


class Write(Protocol):
    """The transaction in which memories change, as far as what follows them needs it."""

    @property
    def tx(self) -> Connection: ...
    @property
    def context(self) -> MemoryContext: ...
    @property
    def actor(self) -> Actor: ...
    @property
    def now(self) -> int: ...
    def permit_follower(
        self, stored: memories.Stored, kind: EdgeKind, origin: memories.Stored
    ) -> Any: ...
    def permit_upkeep(self, stored: memories.Stored) -> Any: ...
    def rewrite(
        self,
        permitted: Any,
        memory: Memory,
        event: str,
        *,
        reason: str | None,
        details: Any = None,
    ) -> object: ...
    def add_source(self, scope: ScopeRow, reference: SourceRef, content_key: str) -> str: ...
    def enqueue(
        self,
        kind: str,
        subject_id: str,
        scope_id: int,
        *,
        actor: Actor | None = None,
        priority: int = ...,
    ) -> str: ...
    def journal_event(
        self,
        scope: Scope,
        event: str,
        memory_id: str,
        details: dict[str, Any],
        *,
        reason: str | None = None,
    ) -> str: ...


class FollowUp(NamedTuple):
    """A job that reads what is remembered."""

    kind: str
    conversation: str | None = None
    """The conversation that it reads, once for all of its turns; None for the memory alone."""
    delay: int = 0
    """Microseconds to wait from the last turn on: each further one puts it off."""


class SignalRequest(NamedTuple):
    """The candidates of a question, to be measured."""

    question: str
    docs: Sequence[int]
    scope_ids: Sequence[int]
    texts: int
    """The number of memories that were searched."""
    weights: RecallWeights
    """A signal without one may be left out."""


class SessionStates:
    """The state of sessions that only this process knows: those without a name, and of actors who
    may not write. Thread-safe.
    """

    def __init__(self) -> None:
        """Know of no session yet."""
        self._guard = threading.Lock()
        self._states: OrderedDict[tuple[str, ...], str] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> str | None:
        """Return what is kept under a key."""
        with self._guard:
            return self._states.get(key)

    def put(self, key: tuple[str, ...], body: str) -> None:
        """Keep the state of a session."""
        with self._guard:
            self._states[key] = body
            self._states.move_to_end(key)
            while len(self._states) > _SESSIONS:
                self._states.popitem(last=False)


Explore = Callable[["MemoryContext", Actor, Scope, "str | Scope | None", int, int], "Explored"]
"""Looks around in a scope by the `around`, `depth` and `limit` of `explore`."""


@dataclass(frozen=True, kw_only=True)
class MemoryExtension:
    """What an extension does where memories are written and recalled: by default nothing. `Write`
    is the open transaction, and no model or embedder is called within it.
    """

    job_for: Callable[[MemoryContext, Actor, NewMemory], FollowUp | None] = (
        lambda context, actor, new: None
    )
    """The job that is left for a memory which is remembered, and reads it."""
    plan_change: Callable[
        [MemoryContext, Actor, Scope, NewMemory],
        Callable[[Write, memories.Stored], Proposal | None] | None,
    ] = lambda context, actor, scope, new: None
    """Checks, before the transaction, what a memory is to replace; returns what stores the change
    in there, beside the memory, and applies it where it passes.
    """
    on_show: Callable[[Write, Memory, int], None] = lambda write, memory, scope_id: None
    """Follows a memory of a scope that becomes findable."""
    on_rewrite: Callable[[Write, memories.Stored, Memory], None] = lambda write, before, after: None
    """Follows a memory that was just rewritten."""
    on_extraction: Callable[
        [MemoryContext, memories.Stored, Extraction], Callable[[Write], object] | None
    ] = lambda context, stored, extraction: None
    """Reads what a learner drew from a memory, before the transaction; returns what stores it in
    there.
    """
    signals: Callable[
        [Connection, MemoryContext, SignalRequest], Mapping[str, NDArray[np.float64]]
    ] = lambda connection, context, request: {}
    """Signals of recall, each with a number for each document. One that `RecallWeights` lacks
    counts in full.
    """
    modes: Mapping[str, Explore] = field(default_factory=dict)
    """Modes of `explore`, by name."""
    serving: Callable[[MemoryContext], MemoryContext] = lambda context: context
    """Returns the context by which recall answers, in place of that of the settings."""
    on_recall: Callable[[MemoryContext, Actor, Sequence[Scope], str, RecallRequest], None] = (
        lambda context, actor, scopes, query, request: None
    )
    """Follows a question that a caller asked, once it is answered."""


def is_made_by_extension(memory: Memory) -> bool:
    """Return True if an extension made a memory and keeps it up: recall does not find it by its
    words.
    """
    return memory.transform_version is not None


@dataclass(frozen=True)
class MemoryContext:
    """The dependencies of every verb of memory. Thread-safe."""

    store: Store
    gate: Gate
    embedder: Embedder
    open_index: Callable[[], ChromaIndex | None]
    local_embedder: bool
    """True if the embedder runs here: then its vector commits with the text, else embedding is a
    job.
    """
    vector_search: Literal["auto", "exact", "chroma"] = "auto"
    forget_window_us: int = 30 * 24 * 3600 * 1_000_000
    override_us: int = 30 * 24 * 3600 * 1_000_000
    """The time for which a person's edit is locked by default, microseconds."""
    longest_memory_kb: int = 1_024
    """The longest text of a memory, kB of UTF-8."""
    forget_batch: int = 100
    """The most memories that one `forget_matching` forgets."""
    forget_preview_only: bool = False
    """True if `forget_matching` is previewed and never applied."""
    redactor: Redactor = field(default_factory=Redactor)
    """Takes secrets out of what is stored, and of what a model is shown."""
    remote_redactor: Redactor = field(default_factory=lambda: Redactor(pii=True))
    """Takes secrets and personal data out of what an embedder, a reranker or a provider far away is
    given.
    """
    secrets_in_memory: SecretsInMemory = "redact"
    """What is done with a secret in a text that is to be stored."""

    weights: RecallWeights = field(default_factory=RecallWeights)
    reranker: Reranker | None = None
    rerank_deadline_ms: int = 300
    settings: Settings = field(default_factory=Settings)
    """The settings of the tally, for its extensions."""
    models: Models = field(default_factory=Models)
    """The models that the tally was given, for its extensions."""
    extensions: tuple[MemoryExtension, ...] = ()
    known_scopes: KnownScopes = field(default_factory=KnownScopes)
    sessions: SessionStates = field(default_factory=SessionStates)
    """The working sets that only this process keeps."""
    corpora: CorpusCache = field(default_factory=lambda: CorpusCache(most_bytes=512 * 1024 * 1024))

    alert_listeners: list[Callable[[Any], object]] = field(default_factory=list)
    """Called with each alert that this process raises or clears."""

    held: dict[str, Any] = field(default_factory=dict)
    """What extensions keep of this tally in memory, by their own name."""
    origin: MemoryContext | None = None
    """The context of the tally, of which this is a copy that recalls otherwise."""

    _absence: threading.Event = field(default_factory=threading.Event)
    """Set once it was said that the embedder is not installed."""
    _absence_logged: threading.Event = field(default_factory=threading.Event)
    """Set once the log says so."""

    def settled_fingerprint(self) -> str | None:
        """Return the fingerprint of the embedder where that takes no call, as within a transaction;
        None where it does, and where the embedder is not there.
        """
        if not getattr(self.embedder, "is_probed", True):
            return None
        try:
            return self.embedder.fingerprint
        except EmbeddingError:
            return None

    @property
    def index(self) -> ChromaIndex | None:
        """The index of vectors of the embedder, where there is one."""
        return self.open_index()

    @property
    def uses_chroma(self) -> bool:
        """True if recall may ask Chroma."""
        return self.vector_search != "exact"

    @property
    def large_scope(self) -> int:
        """The most memories of a scope that is not large."""
        return self.corpora.large_scope

    @cached_property
    def frame_keys(self) -> FrameKeys:
        """The keys under which frames of recalled text are made and checked."""
        return FrameKeys(self.store)

    def silent(self) -> MemoryContext:
        """Return a copy that sends nothing to a remote embedder or reranker."""
        silent = replace(
            self,
            reranker=self.reranker if getattr(self.reranker, "local", False) else None,
            origin=self.origin or self,
        )
        return silent if self.local_embedder else replace(silent, embedder=_Silent(self.embedder))

    def with_settings(self, settings: Settings, embedder: GuardedEmbedder | None) -> MemoryContext:
        """Return a copy that recalls by other settings, and by another embedder if one is given,
        whose vectors have a cache of their own.
        """
        cache = self.corpora
        if embedder is not None or settings.large_scope != cache.large_scope:
            cache = cache.beside(large_scope=settings.large_scope)
        other = replace(
            self,
            settings=settings,
            weights=settings.recall_weights,
            vector_search=settings.vector_search,
            corpora=cache,
            origin=self.origin or self,
        )
        if embedder is not None:
            return replace(
                other, embedder=embedder, local_embedder=embedder.local, open_index=lambda: None
            )
        # One cache of single words for both: what is dropped from one would stay in the other.
        other.__dict__["word_vectors"] = self.word_vectors
        return other

    def require_content(self, content: str) -> None:
        """Raise InvalidInput for a text that is longer than a memory may be: each reader of it
        would pay for its length.
        """
        most = self.longest_memory_kb * 1_024
        if 4 * len(content) <= most:  # a character has four bytes at most
            return
        size = len(content.encode("utf-8", "surrogatepass"))
        if size > most:
            raise InvalidInput(
                f"`content` has {size:,} bytes, and may have {most:,} (`longest_memory_kb`). "
                "Remember it in parts, with `remember_many`."
            )

    def vectors_for(self, texts: Sequence[str]) -> TextVectors:
        """Return the vectors of texts; a failing embedder costs the vectors, never the text. One
        that is not installed is warned of once, as that stays so: the doctor says it again.
        """
        if not texts or not self.local_embedder:
            return TextVectors([None] * len(texts))
        try:
            return TextVectors(list(self._blobs(texts)))
        except EmbeddingError as error:
            warning = f"stored without a vector ({type(error).__name__}); it is found by its words"
            is_known = isinstance(error, EmbedderUnavailable) and self._absence.is_set()
            self._log_absence(error)
            if isinstance(error, EmbedderUnavailable):
                self._absence.set()
            return TextVectors([None] * len(texts), () if is_known else (warning,))

    def vector_for(self, memory: Memory) -> bytes | None:
        """Return the vector of a memory's text, or None; see `vectors_for`."""
        text = self.searchable(memory.scope, memory.content, memory.attributes)
        return self.vectors_for([text]).blobs[0]

    def embed_texts(self, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of the texts by which memories are found, as they are stored. Raises
        EmbeddingError.
        """
        return self._blobs(texts) if texts else []

    def searchable(self, scope: Scope, content: str, attributes: JsonObject) -> str:
        """Return the text by which a memory of `scope` is found; see `searchable`."""
        if INDEX not in attributes:
            return searchable(content, attributes)
        with self.store.database.read() as connection:
            keys = recall_keys(connection, scope, content, attributes)
        return searchable(content, attributes, keys)

    def _blobs(self, texts: Sequence[str]) -> list[bytes]:
        texts = [self.for_embedder(text) for text in texts]
        parts = [slices_to_embed(text) for text in texts]
        vectors = (
            to_float16_bytes(self.embedder.embed([part for text in parts for part in text]))
            if parts
            else []
        )
        blobs, first = [], 0
        for text in parts:
            blobs.append(b"".join(vectors[first : first + len(text)]))
            first += len(text)
        return blobs

    @cached_property
    def word_vectors(self) -> WordVectors:
        """The vectors of single words; None when the embedder offers none, fails or is remote."""
        vectors = WordVectors(self._embed_words, most_bytes=self.corpora.most_bytes // 4)
        self.corpora.word_vectors = vectors
        return vectors

    def _embed_words(self, words: Sequence[str]) -> NDArray[np.float32] | None:
        embed_words = getattr(self.embedder, "embed_words", None)
        if embed_words is None or not self.local_embedder:
            return None
        try:
            vectors: NDArray[np.float32] | None = embed_words(words)
        except EmbeddingError:
            return None
        return vectors

    def nearness(
        self, texts: Sequence[str], vector: NDArray[np.float32]
    ) -> NDArray[np.float32] | None:
        """Return the cosine of each of many short texts with a vector, or None when the embedder
        offers no vectors of words, which says that they cost little, fails or is remote.
        """
        if self.word_vectors(()) is None:
            return None
        try:
            return cosines(vector, self.embedder.embed(list(texts)))
        except EmbeddingError:
            return None

    def for_embedder(self, text: str) -> str:
        """Return a text as the embedder may see it: whole where it runs here, else without secrets
        and personal data.

        It must be the text as somebody wrote it. The rules know secrets by their form, which case
        folding, splitting or cutting takes away: afterwards no rule finds them, and they leave.
        """
        return text if self.local_embedder else self.remote_redactor.redact_text(text)[0]

    def query_vector(self, meaning: str) -> NDArray[np.float32] | None:
        """Return the vector of the words of a query, or None when the embedder fails or knows none
        of them.

        Give it words of a query that went through `for_embedder` before they were analysed.
        """
        try:
            vector: NDArray[np.float32] = self.embedder.embed([meaning])[0]
        except EmbeddingError as error:
            self._log_absence(error)
            return None
        return vector if bool(vector.any()) else None

    def _log_absence(self, error: EmbeddingError) -> None:
        """Say once in the log that the embedder is not installed: words and structure find."""
        if isinstance(error, EmbedderUnavailable) and not self._absence_logged.is_set():
            self._absence_logged.set()
            get_logger("embedding").warning("embedder.unavailable", error=type(error).__name__)

    def visible(
        self,
        connection: Connection,
        actor: Actor,
        memory_id: str,
        operation: AccessKind,
        *,
        sources: bool = True,
    ) -> memories.Stored:
        """Return the memory, if `actor` may do `operation` with it. Raises Denied for one that the
        actor may read, else NotFound alike for hidden and for absent ones.
        """
        stored = (
            memories.get(connection, memory_id, sources=sources) if is_storable(memory_id) else None
        )
        if stored is None:
            raise self.absent(actor, memory_id)
        self.require_visible(connection, actor, stored.memory, operation)
        return stored

    def require_visible(
        self, connection: Connection, actor: Actor, memory: Memory, operation: AccessKind
    ) -> None:
        """Raise Denied unless `actor` may do `operation` with a memory, or NotFound, as for an
        absent one, where `actor` may not read it either.
        """
        decision = self.gate.decide(connection, actor, operation, memory.scope)
        if decision.reason in ("mutations_frozen", "missing_actor"):
            # About the call, whatever the memory: neither says whether it is there.
            raise Denied(decision)
        if not decision.allowed:
            if self.gate.decide(connection, actor, "read", memory.scope).allowed:
                raise Denied(decision)
            raise self.absent(actor, memory.id)

    def visible_source(
        self, connection: Connection, actor: Actor, source_id: str, operation: AccessKind
    ) -> sources.StoredSource:
        """Return the source, if `actor` may do `operation` in its scope. Raises NotFound alike for
        hidden and for absent ones.
        """
        source = sources.find(connection, source_id) if is_storable(source_id) else None
        if (
            source is None
            or not self.gate.decide(connection, actor, operation, source.scope).allowed
        ):
            raise NotFound(f"There is no source {source_id!a} that {actor.user} may see.")
        return source

    @staticmethod
    def absent(actor: Actor, memory_id: str) -> NotFound:
        """Return the error to raise for absent and for hidden memories alike."""
        printable_id = memory_id if is_storable(memory_id) else ascii(memory_id)
        return NotFound(f"There is no memory {printable_id} that {actor.user} may see.")


class _Silent:
    """An embedder with the fingerprint of another one, which it never calls."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def fingerprint(self) -> str:
        """That of the other one. Raises EmbeddingError."""
        return self._embedder.fingerprint

    @property
    def dimension(self) -> int:
        """That of the other one. Raises EmbeddingError."""
        return self._embedder.dimension

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Raise EmbeddingError."""
        raise EmbeddingError("What is asked here stays here.")


def recall_keys(
    connection: Connection, scope: Scope, content: str, attributes: JsonObject
) -> tuple[bytes, ...]:
    """Return the keys with which `searchable` recognises recalled text in an item of `scope`; none
    for other memories and for an item without a mark.
    """
    if INDEX not in attributes or not may_be_recalled(content):
        return ()
    return tuple(frame_key(row.secret) for row in scopes.find(connection, [scope]))


def searchable(content: str, attributes: JsonObject, keys: Sequence[bytes] = ()) -> str:
    """Return the text by which a memory is found: its content, and the `caption` of the image that
    came with it.

    For an item of a store these are the fields that its index attribute names. An item stays as it
    was put and may contain text that was recalled from a tally; it is not found by that. `keys` are
    those of `recall_keys`.
    """
    if INDEX in attributes:
        texts = texts_of_item(content, attributes[INDEX])
        return "\n".join(without_recalls(text, keys) if keys else text for text in texts)
    caption = attributes.get("caption")
    return f"{content}\n{caption}" if isinstance(caption, str) and caption.strip() else content


def labels_of_memory(memory: Memory) -> tuple[tuple[str, str], ...]:
    """Return the labels of a memory. One of a project's scope belongs to the project unless it
    names another.
    """
    labels = {
        name: value
        for name in _LABELS
        if isinstance(value := memory.attributes.get(name), str) and value.strip()
    }
    if memory.kind in ("task", "milestone"):
        labels.setdefault("status", "todo")
    if memory.scope.kind == "project" and memory.scope.key:
        labels.setdefault("project", memory.scope.key)
    return tuple(labels.items())


def labels_asked(
    status: str | None, project: str | None, assignee: str | None, language: str | None
) -> dict[str, str]:
    """Return the labels that a call filters by."""
    values = dict(zip(_LABELS, (status, project, assignee, language), strict=True))
    return {name: value for name, value in values.items() if value is not None}
