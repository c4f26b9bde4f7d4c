"""A guarded embedder: refuses to run inside a write transaction, and does not embed the same text
twice.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from inspect import ismethod
from typing import TYPE_CHECKING

from tallystick.costs import count
from tallystick.errors import DimensionMismatch, InvalidInput, TallystickError, UnusableVectors
from tallystick.ports import Embedder, forbid_inside_transaction
from tallystick.provider_errors import EMBEDDER, sort_error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class GuardedEmbedder:
    """Wraps an embedder. Same vectors as `embedder`, fewer calls; thread-safe if `embedder` is.

    Keeps the vectors of the `cache_size` texts used last, by the digest of the text.
    """

    def __init__(self, embedder: Embedder, *, cache_size: int = 2048) -> None:
        if cache_size < 0:
            raise InvalidInput("`cache_size` must be at least 0.")
        self._embedder = embedder
        self._cache_size = cache_size
        self._guard = threading.Lock()
        self._vectors: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    @property
    def is_probed(self) -> bool:
        """True if fingerprint and dimension take no call."""
        return bool(getattr(self._embedder, "is_probed", True))

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the embedder inside. Raises EmbeddingError."""
        if not self.is_probed:
            forbid_inside_transaction("the embedder")
        return self._embedder.fingerprint

    @property
    def dimension(self) -> int:
        """Length of every vector. Raises EmbeddingError."""
        if not self.is_probed:
            forbid_inside_transaction("the embedder")
        return self._embedder.dimension

    @property
    def name(self) -> str:
        """Who makes the vectors: for an embedder without a name its fingerprint, which it has
        without a call. Raises EmbeddingError.
        """
        return getattr(self._embedder, "name", None) or self.fingerprint

    @property
    def local(self) -> bool:
        """True if the embedder inside is local; one without `local` is taken as remote."""
        return bool(getattr(self._embedder, "local", False))

    def is_made_of(self, embedder: object) -> bool:
        """Return True if `embedder`, ours or of another library, makes the vectors."""
        origin = getattr(self._embedder, "origin", None)
        # A method of an object is another object each time that it is read.
        return embedder is self._embedder or (
            origin is not None and (embedder is origin or (ismethod(origin) and embedder == origin))
        )

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension), in the order given; a fresh array.

        Each distinct text that is not in the cache is embedded once. Raises InsideTransaction
        inside a write transaction, even if all texts are in the cache, and EmbeddingError.
        """
        import numpy as np

        forbid_inside_transaction("the embedder")
        if not texts:
            return np.zeros((0, self._embedder.dimension), dtype=np.float32)
        if len(texts) == 1:
            return self._embed_one(texts[0])
        keys = [_key(text) for text in texts]
        vectors = self._cached_vectors(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}
        if missing:
            new_vectors = self._embed_checked(list(missing.values()))
            fresh = {
                key: np.array(row, dtype=np.float32)
                for key, row in zip(missing, new_vectors, strict=True)
            }
            self._store_vectors(fresh)
            vectors.update(fresh)
        return np.stack([vectors[key] for key in keys])

    def _embed_one(self, text: str) -> NDArray[np.float32]:
        """Same as `embed` of one text, which is the most frequent call."""
        key = _key(text)
        with self._guard:
            vector = self._vectors.get(key)
            if vector is not None:
                self._vectors.move_to_end(key)
        if vector is None:
            vector = self._embed_checked([text])[0].copy()
            self._store_vectors({key: vector})
        return vector.reshape(1, -1).copy()

    def _embed_checked(self, texts: list[str]) -> NDArray[np.float32]:
        count("embeddings")
        try:
            vectors = self._embedder.embed(texts)
        except TallystickError:
            raise
        except Exception as error:
            name = f"Embedder {type(self._embedder).__name__}"
            raise sort_error(name, error, EMBEDDER) from error
        if vectors.shape[0] != len(texts):
            raise UnusableVectors(
                f"Embedder {self._embedder.fingerprint} returned {vectors.shape[0]} vectors for "
                f"{len(texts)} texts."
            )
        if vectors.shape[1] != self._embedder.dimension:
            raise DimensionMismatch(
                name=self._embedder.fingerprint,
                expected=self._embedder.dimension,
                got=vectors.shape[1],
            )
        return vectors

    def embed_words(self, words: Sequence[str]) -> NDArray[np.float32] | None:
        """Unit vectors of single words if the embedder inside offers them, else None. Raises
        EmbeddingError.
        """
        forbid_inside_transaction("the embedder")
        offered = getattr(self._embedder, "embed_words", None)
        return None if offered is None else offered(words)

    def _cached_vectors(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        vectors = {}
        with self._guard:
            for key in keys:
                vector = self._vectors.get(key)
                if vector is not None:
                    self._vectors.move_to_end(key)
                    vectors[key] = vector
        return vectors

    def _store_vectors(self, vectors: dict[bytes, NDArray[np.float32]]) -> None:
        with self._guard:
            self._vectors.update(vectors)
            while len(self._vectors) > self._cache_size:
                self._vectors.popitem(last=False)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
