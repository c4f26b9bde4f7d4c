"""What the verbs of memory work with: the store, the gate, the embedder and the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tallystick.access import Gate
from tallystick.errors import Denied, EmbeddingError, NotFound
from tallystick.memory.fields import INDEX, texts_of_item
from tallystick.policy.redaction import Redactor
from tallystick.ports import Embedder, Reranker
from tallystick.ranking import RecallWeights, slices, to_float16_bytes
from tallystick.records import AccessKind, Actor, JsonObject, Memory, is_storable
from tallystick.records.framing import without_recalls
from tallystick.storage import ChromaIndex, Connection, Store, memories
from tallystick.storage.corpus_cache import CorpusCache

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MemoryContext", "is_local_only", "searchable"]


@dataclass(frozen=True)
class MemoryContext:
    """The dependencies of every verb of memory. Thread-safe."""

    store: Store
    gate: Gate
    embedder: Embedder
    index: ChromaIndex | None
    local_embedder: bool
    """Whether the embedder runs here: then its vector commits with the text, else embedding is a
    job.
    """
    vector_search: Literal["auto", "exact", "chroma"] = "auto"
    exact_scan_limit: int = 150_000
    forget_window_us: int = 30 * 24 * 3600 * 1_000_000
    override_us: int = 30 * 24 * 3600 * 1_000_000
    """How long a person's edit is locked, where asked for without an end."""
    redactor: Redactor = field(default_factory=Redactor)
    """Takes secrets out of what leaves for an embedder or reranker that is far away."""

    weights: RecallWeights = field(default_factory=RecallWeights)
    reranker: Reranker | None = None
    rerank_deadline_ms: int = 300
    corpora: CorpusCache = field(default_factory=lambda: CorpusCache(most_bytes=512 * 1024 * 1024))

    def silent(self) -> MemoryContext:
        """The same room, which sends nothing to an embedder or reranker that is far away."""
        quiet = replace(
            self, reranker=self.reranker if getattr(self.reranker, "local", False) else None
        )
        return quiet if self.local_embedder else replace(quiet, embedder=_Silent(self.embedder))

    def vectors_for(self, texts: Sequence[str]) -> tuple[list[bytes | None], tuple[str, ...]]:
        """float16 vectors of texts, and warnings; a failing embedder costs the vectors, never the
        text.

        A blob holds the vectors of a text's slices, one after the other.
        """
        if not texts or not self.local_embedder:
            return [None] * len(texts), ()
        try:
            return list(self._blobs(texts)), ()
        except EmbeddingError as error:
            warning = f"stored without a vector ({type(error).__name__}); it is found by its words"
            return [None] * len(texts), (warning,)

    def embedded(self, found: Sequence[Memory]) -> list[bytes]:
        """The vectors of memories, as they are stored. Raises EmbeddingError."""
        return self._blobs([searchable(memory.content, memory.attributes) for memory in found])

    def _blobs(self, texts: Sequence[str]) -> list[bytes]:
        if not self.local_embedder:
            texts = [self.redactor.redact_text(text)[0] for text in texts]
        parts = [slices(text) for text in texts]
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

    def word_vectors(self, words: Sequence[str]) -> NDArray[np.float32] | None:
        """Vectors of single words, or None when the embedder offers none, fails or is far away."""
        offered = getattr(self.embedder, "embed_words", None)
        if offered is None or not self.local_embedder:
            return None
        try:
            vectors: NDArray[np.float32] | None = offered(words)
        except EmbeddingError:
            return None
        return vectors

    def query_vector(self, query: str) -> NDArray[np.float32] | None:
        """The vector of a query, or None when the embedder fails or knows none of its words."""
        if not self.local_embedder:
            query = self.redactor.redact_text(query)[0]
        try:
            vector: NDArray[np.float32] = self.embedder.embed([query])[0]
        except EmbeddingError:
            return None
        return vector if bool(vector.any()) else None

    def visible(
        self,
        connection: Connection,
        actor: Actor,
        memory_id: str,
        operation: AccessKind,
        *,
        sources: bool = True,
    ) -> memories.Stored:
        """The memory, if `actor` may do `operation` with it. Raises NotFound alike for hidden and
        for absent ones.
        """
        stored = (
            memories.get(connection, memory_id, sources=sources) if is_storable(memory_id) else None
        )
        if stored is None:
            raise self.absent(actor, memory_id)
        decision = self.gate.decide(connection, actor, operation, stored.memory.scope)
        if decision.reason == "mutations_frozen":
            raise Denied(decision)
        if not decision.allowed:
            raise self.absent(actor, memory_id)
        return stored

    @staticmethod
    def absent(actor: Actor, memory_id: str) -> NotFound:
        """What is raised for absent and for hidden memories alike."""
        told = memory_id if is_storable(memory_id) else ascii(memory_id)
        return NotFound(f"There is no memory {told} that {actor.user} may see.")


class _Silent:
    """An embedder that is known and not asked."""

    def __init__(self, embedder: Embedder) -> None:
        self.fingerprint, self.dimension = embedder.fingerprint, embedder.dimension

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Nothing. Raises EmbeddingError."""
        raise EmbeddingError("What is asked here stays here.")


def searchable(content: str, attributes: JsonObject) -> str:
    """The text by which a memory is found: what it says, and the `caption` of the image that came
    with it.

    Of an item of a store it is the fields that are to be found, which `attributes["index"]` names.
    An item stays as it was put, so what was recalled from a tally may stand in it: it is not found
    by that.
    """
    if INDEX in attributes:
        return "\n".join(
            without_recalls(text) for text in texts_of_item(content, attributes[INDEX])
        )
    caption = attributes.get("caption")
    return f"{content}\n{caption}" if isinstance(caption, str) and caption.strip() else content


def is_local_only(attributes: JsonObject) -> bool:
    """Whether a text stays here: no embedder, reranker, extractor or summarizer that is far away is
    given it.
    """
    return attributes.get("local_only") is True or attributes.get("sensitivity") in (
        "restricted",
        "secret",
    )
