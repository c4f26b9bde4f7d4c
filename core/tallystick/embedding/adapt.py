"""Adapters for other embedders: Chroma, LangChain, LlamaIndex and PydanticAI, recognised by their
methods.

No runtime is imported here; the methods of an object decide its kind.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import re
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tallystick.errors import (
    DimensionMismatch,
    InvalidInput,
    TallystickError,
    UnusableVectors,
)
from tallystick.ports import Embedder
from tallystick.provider_errors import EMBEDDER, sort_error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

_PROBE = "The quick brown fox keeps a tally of every promise, and both halves must match."
_PROBE_GROUPS = 16


@dataclass(frozen=True)
class EmbeddingAnswer:
    """What a service or a library answers to texts."""

    vectors: Any
    """One for each text, in their order."""
    model: str = ""
    """The model that made the vectors, as the answer names it."""


Call = Callable[[list[str]], EmbeddingAnswer]
"""Makes vectors of texts that are not blank."""


def as_embedder(embedder: Any, *, batch_size: int = 256, local: bool = False) -> Embedder:
    """Return `embedder` as an Embedder: ours pass through, foreign ones are wrapped.

    Takes a Chroma EmbeddingFunction (or any callable from a list of texts to vectors), a LangChain
    Embeddings, a LlamaIndex BaseEmbedding, and a PydanticAI Embedder or EmbeddingModel. Say
    `local=True` for a foreign one that needs no network: then its vectors commit together with
    their text. Raises InvalidInput.
    """
    if batch_size < 1:
        raise InvalidInput("`batch_size` must be at least 1.")
    if _is_ours(embedder):
        return cast(Embedder, embedder)
    kind, call = _recognise(embedder)
    name = _name_of(embedder, kind)
    return ForeignEmbedder(name, call, batch_size=batch_size, local=local, origin=embedder)


class ForeignEmbedder:
    """An embedder made of a function from texts to vectors. As thread-safe as that function.

    Vectors are brought to unit length. Blank texts get the zero vector and are never sent, because
    some services refuse them. Dimension and fingerprint are what `identify` says of the model,
    without a text; else they come from one probing call at first need.
    """

    def __init__(
        self,
        name: str,
        call: Call,
        *,
        batch_size: int = 256,
        local: bool = False,
        origin: Any = None,
        identify: Callable[[], tuple[str, int] | None] = lambda: None,
    ) -> None:
        """`identify` returns a mark of the very model and its dimension, or None where they are not
        known; it may ask the service, and raises what that raises.
        """
        self.name = name
        """Who makes the vectors: a library or a service, and a model."""
        self._identify = identify
        self._call = call
        self._batch_size = batch_size
        self._guard = threading.Lock()
        self._probed: tuple[str, int] | None = None
        self.local = local
        """True if it runs here. False by default: then embedding is a job, after the commit."""
        self.origin = origin
        """The object of the other library that makes the vectors."""

    @property
    def is_probed(self) -> bool:
        """True if the probing call was made, so that fingerprint and dimension cost nothing."""
        return self._probed is not None

    @property
    def fingerprint(self) -> str:
        """Name and model, a mark, dimension. Raises EmbeddingError.

        The mark is that of `identify`, or 12 hexadecimal digits of a probe's vector. They come from
        the signs of 16 sums over the vector: coarse enough that a service whose answers differ in
        their last places keeps its fingerprint, fine enough to tell models of one name apart.
        """
        return self._probe_once()[0]

    @property
    def dimension(self) -> int:
        """Length of every vector. Raises EmbeddingError."""
        return self._probe_once()[1]

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors, shape (len(texts), dimension), in the order given.

        Raises EmbeddingError from whatever the foreign embedder raised, and DimensionMismatch.
        """
        import numpy as np

        fingerprint, dimension = self._probe_once()
        result = np.zeros((len(texts), dimension), dtype=np.float32)
        places = [place for place, text in enumerate(texts) if text.strip()]
        for start in range(0, len(places), self._batch_size):
            batch = places[start : start + self._batch_size]
            rows = self._rows([texts[place] for place in batch])[0]
            if rows.shape[1] != dimension:
                raise DimensionMismatch(name=fingerprint, expected=dimension, got=rows.shape[1])
            result[batch] = rows
        return result

    def _probe_once(self) -> tuple[str, int]:
        probe = self._probed
        if probe is not None:
            return probe
        with self._guard:
            if self._probed is None:
                known = self._sorted(self._identify)
                if known is None:
                    rows, model = self._rows([_PROBE])
                    known = _coarse_digest(rows[0]), int(rows.shape[1])
                    name = ":".join(_plain(part) for part in (self.name, model) if part)
                else:
                    name = _plain(self.name)
                mark, dimension = known
                named = ":".join(part for part in (name, _plain(mark)) if part)
                self._probed = f"{named}:{dimension}", dimension
            return self._probed

    def _sorted(self, call: Callable[[], T]) -> T:
        """Return what a call of somebody else returns. Raises EmbeddingError for what it raises."""
        try:
            return call()
        except TallystickError:
            raise
        except Exception as error:
            raise sort_error(f"Embedder {self.name}", error, EMBEDDER) from error

    def _rows(self, texts: list[str]) -> tuple[NDArray[np.float32], str]:
        import numpy as np

        def ask() -> tuple[EmbeddingAnswer, NDArray[np.float64]]:
            answer = self._call(texts)
            return answer, np.asarray(answer.vectors, dtype=np.float64)

        answer, values = self._sorted(ask)
        if values.ndim != 2 or values.shape[0] != len(texts) or values.shape[1] == 0:
            raise UnusableVectors(
                f"Embedder {self.name} returned the shape {values.shape} for {len(texts)} texts; "
                "one vector per text is needed."
            )
        if not np.isfinite(values).all():
            raise UnusableVectors(
                f"Embedder {self.name} returned components that are not finite numbers."
            )
        return _unit(values), answer.model


def _unit(values: NDArray[np.float64]) -> NDArray[np.float32]:
    import numpy as np

    # Scaled by the largest component first, so that squares neither overflow nor vanish.
    largest = np.abs(values).max(axis=1, keepdims=True)
    scaled = np.divide(values, largest, out=np.zeros_like(values), where=largest > 0)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    units: NDArray[np.float64] = np.divide(
        scaled, lengths, out=np.zeros_like(scaled), where=lengths > 0
    )
    return units.astype(np.float32)


def _coarse_digest(vector: NDArray[np.float32]) -> str:
    signs = bytes(
        int(float(vector[group::_PROBE_GROUPS].sum()) > 0) for group in range(_PROBE_GROUPS)
    )
    return hashlib.sha256(b"tallystick/probe/v1\x00" + signs).hexdigest()[:12]


# Recognising


def _is_ours(embedder: Any) -> bool:
    # Looked up on the type: reading `fingerprint` itself may load a table or call a service.
    missing = object()
    return not isinstance(embedder, type) and all(
        inspect.getattr_static(embedder, name, missing) is not missing
        for name in ("embed", "fingerprint", "dimension")
    )


def _recognise(embedder: Any) -> tuple[str, Call]:
    if not isinstance(embedder, type):
        if _has(embedder, "get_text_embedding_batch"):
            return "llama-index", lambda texts: EmbeddingAnswer(
                embedder.get_text_embedding_batch(texts)
            )
        if _has(embedder, "embed_documents"):
            if inspect.iscoroutinefunction(embedder.embed_documents):
                return "pydantic-ai", _async_call(embedder.embed_documents)
            return "langchain", lambda texts: EmbeddingAnswer(embedder.embed_documents(texts))
        if inspect.iscoroutinefunction(getattr(embedder, "embed", None)):
            return "pydantic-ai", _async_call(embedder.embed, input_type="document")
        if callable(embedder) and not inspect.iscoroutinefunction(embedder):
            return "chroma" if _has(
                embedder, "embed_query"
            ) else "callable", lambda texts: EmbeddingAnswer(embedder(texts))
    described = (
        f"the class {embedder.__name__}"
        if isinstance(embedder, type)
        else f"a {type(embedder).__name__}"
    )
    raise InvalidInput(
        f"{described} cannot be used as an embedder. Hand in an instance of: an Embedder of "
        f"Tallystick, a Chroma "
        "EmbeddingFunction, a LangChain Embeddings, a LlamaIndex BaseEmbedding, a PydanticAI "
        "Embedder, or a function "
        "from a list of texts to a list of vectors."
    )


def _has(embedder: Any, method: str) -> bool:
    return callable(getattr(embedder, method, None))


def _name_of(embedder: Any, kind: str) -> str:
    own = getattr(embedder, "__name__", None) or type(embedder).__name__
    if kind == "pydantic-ai":
        return kind  # the answer names provider and model
    if kind == "chroma":
        # Chroma's base class warns when a subclass does not name itself, so only a name of its own
        # is read.
        named = next(
            (vars(base)["name"] for base in type(embedder).__mro__ if "name" in vars(base)), None
        )
        if named is not None and getattr(named, "__qualname__", "") != "EmbeddingFunction.name":
            named = embedder.name()
            own = named if isinstance(named, str) and named else own
    for attribute in ("model_name", "model", "model_id", "_model_name"):
        model = getattr(embedder, attribute, None)
        if isinstance(model, str) and model and model != "unknown":
            return f"{kind}:{own}:{model}"
    return f"{kind}:{own}"


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._:/-]+", "-", name)[:120]


# PydanticAI is asynchronous


def _async_call(method: Callable[..., Coroutine[Any, Any, Any]], **options: Any) -> Call:
    def call(texts: list[str]) -> EmbeddingAnswer:
        result = _loop.run(method(texts, **options))
        described = (getattr(result, "provider_name", None), getattr(result, "model_name", None))
        return EmbeddingAnswer(
            result.embeddings,
            ":".join(part for part in described if isinstance(part, str) and part),
        )

    return call


class _Loop:
    """One event loop in a thread of its own, so that a caller who has a loop running is not in its
    way.

    It stays the same for the life of the process, because clients keep connections that belong to
    their loop.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of `work`; blocks the calling thread, in whose context it runs."""
        with self._guard:
            if self._loop is None or self._pid != os.getpid():  # a forked child has no such thread
                self._loop = asyncio.new_event_loop()
                self._pid = os.getpid()
                threading.Thread(
                    target=self._loop.run_forever, name="tallystick-embedding", daemon=True
                ).start()
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(work, loop).result()


_loop = _Loop()
