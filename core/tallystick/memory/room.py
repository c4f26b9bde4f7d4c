"""What the verbs of memory work with: the store, the gate, the embedder and the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sqlalchemy import Connection

from tallystick.access import Gate
from tallystick.errors import EmbeddingError, NotFound
from tallystick.ports import Embedder
from tallystick.ranking import analyze, to_float16_bytes
from tallystick.records import Actor, Memory, Operation
from tallystick.storage import ChromaIndex, Store, memories

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MemoryRoom"]


@dataclass(frozen=True)
class MemoryRoom:
    """The dependencies of every verb of memory. Thread-safe."""

    store: Store
    gate: Gate
    embedder: Embedder
    index: ChromaIndex | None
    local_embedder: bool
    """Whether the embedder runs here: then its vector commits with the text, else embedding is a job."""
    vector_search: Literal["auto", "exact", "chroma"] = "auto"
    exact_scan_limit: int = 20_000
    forget_window_us: int = 30 * 24 * 3600 * 1_000_000

    def vectors_for(self, texts: Sequence[str]) -> tuple[list[bytes | None], tuple[str, ...]]:
        """float16 vectors for texts, and warnings; a failing embedder costs the vectors, never the text."""
        if not texts or not self.local_embedder:
            return [None] * len(texts), ()
        try:
            vectors = self.embedder.embed(list(texts))
        except EmbeddingError as error:
            warning = f"stored without a vector ({type(error).__name__}); it is found by its words"
            return [None] * len(texts), (warning,)
        return list(to_float16_bytes(vectors)), ()

    def query_vector(self, query: str) -> NDArray[np.float32] | None:
        """The vector of a query, or None when the embedder fails or knows none of its words."""
        try:
            vector: NDArray[np.float32] = self.embedder.embed([query])[0]
        except EmbeddingError:
            return None
        return vector if bool(vector.any()) else None

    def visible(self, connection: Connection, actor: Actor, memory_id: str, operation: Operation) -> memories.Stored:
        """The memory, if `actor` may do `operation` with it. Raises NotFound alike for hidden and for absent ones."""
        stored = memories.get(connection, memory_id)
        if stored is None or not self.gate.decide(connection, actor, operation, stored.memory.scope).allowed:
            raise self.absent(actor, memory_id)
        return stored

    @staticmethod
    def absent(actor: Actor, memory_id: str) -> NotFound:
        """What is raised for absent and for hidden memories alike."""
        return NotFound(f"There is no memory {memory_id} that {actor.user} may see.")


def index_words(memory: Memory) -> list[str]:
    """The words by which a memory is found: what it says, who said it, what it is about, its tags."""
    return analyze(" ".join(filter(None, (memory.who, memory.subject, *memory.tags, memory.content))))
