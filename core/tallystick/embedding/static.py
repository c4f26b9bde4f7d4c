"""The default embedder: a static table of word pieces, read from the wheel that carries it,
offline.

A text's vector is the mean of its pieces' rows, at unit length. The table is the one of
`wordllama`; its files are read directly, because importing that package configures logging and its
loader tries to download.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystick.errors import EmbedderUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

_NAME = "wordllama-l2-supercat-256"
_DIMENSION = 256
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_METHOD = b"mean of rows, unit length, blank text is zero; 1"
"""The method by which vectors are computed from the table. If it changes, the fingerprint changes
too.
"""
_LATIN_END = "\u0530"
"""The first character after those of the Latin alphabets."""
_SPACE = "\u2581"
"""The character for a space in the vocabulary."""
_WORDS, _LONG_WORD = 16_384, 64
"""The number of words whose pieces are cached, and the characters of the longest of them."""
_SLICE = 8192
"""Rows gathered at once, so that a very long text needs little memory."""


@dataclass(frozen=True)
class Table:
    """A row for each word piece, and the tokenizer that cuts texts into them."""

    rows: NDArray[np.floating[Any]]
    """As exact as its file has them: those of a text are widened when they are gathered."""
    tokenizer: Tokenizer
    _of_word: Callable[[str], list[int]]
    _space: int | None
    """The row of the piece that a space behind the last word is."""

    @classmethod
    def of(cls, rows: NDArray[np.floating[Any]], tokenizer: Tokenizer) -> Table:
        """Return the table with a memory for the pieces of the words used last."""

        def of_word(word: str) -> list[int]:
            ids: list[int] = tokenizer.encode(word, add_special_tokens=False).ids
            return ids

        space = tokenizer.token_to_id(_SPACE)
        return cls(rows, tokenizer, lru_cache(maxsize=_WORDS)(of_word), space)

    def pieces(self, text: str) -> list[int]:
        """Return the rows of a text's pieces, in order.

        No piece of the vocabulary reaches over a single space, so that a text has the pieces of its
        words; one space behind them, with which most slices end, is a piece by itself. Where a text
        is no plain row of words (several spaces, a special token, the character for a space), it is
        cut whole.
        """
        words = text.split(" ")
        last: list[int] = []
        if len(words) > 1 and not words[-1] and self._space is not None:
            words.pop()
            last = [self._space]
        if "" in words or "<" in text or _SPACE in text or max(map(len, words)) > _LONG_WORD:
            ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
            return ids
        return [*chain.from_iterable(map(self._of_word, words)), *last]

    def embed(self, texts: Sequence[str], *, whole: bool = False) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension), in the order given: the mean of each
        text's rows. A blank text gives the zero vector. With `whole` a text is always cut whole,
        for tokenizers whose pieces reach over spaces.
        """
        import numpy as np

        result = np.zeros((len(texts), self.rows.shape[1]), dtype=np.float32)
        for place, text in enumerate(texts):
            if not text.strip():
                continue
            # Text by text: a batch would start the tokenizer's threads, which do not survive a
            # fork.
            said = _well_formed(text)
            ids = (
                self.tokenizer.encode(said, add_special_tokens=False).ids
                if whole
                else self.pieces(said)
            )
            if not ids:
                continue
            total = self._sum(ids[:_SLICE])
            for start in range(_SLICE, len(ids), _SLICE):
                total += self._sum(ids[start : start + _SLICE])
            length = math.sqrt(total.dot(total))
            if length > 0:
                np.divide(total, length, out=result[place])
        return result

    def _sum(self, ids: list[int]) -> NDArray[np.float32]:
        rows = self.rows.take(ids, axis=0)
        total: NDArray[np.float32] = rows.astype("float32", copy=False).sum(axis=0)
        return total


class StaticEmbedder:
    """Unit vectors of 256 components from the bundled table. Thread-safe.

    The table loads on first use, once for all embedders of a process. A text without anything but
    white space gives the zero vector, which is near to nothing.
    """

    name = "static"
    """As settings name it."""
    local = True
    """It runs here: no network, so a vector can commit together with its text."""

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        return _DIMENSION

    @property
    def fingerprint(self) -> str:
        """Name, digest of the weights and the tokenizer, dimension. Raises EmbedderUnavailable.

        The digest covers every byte of both files (18 MB, read once), so that two tables never
        share it.
        """
        return _fingerprint()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors, shape (len(texts), 256), in the order given. Raises EmbedderUnavailable."""
        return _get_table().embed(texts)

    def embed_words(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Same as `embed`: one table serves words and texts, so that single words can be compared.

        A word in other letters than Latin ones gives the zero vector: the table was made from
        English, and what it has of other scripts is likeness of bytes. Raises EmbedderUnavailable.
        """
        return self.embed([word if _is_readable(word) else "" for word in words])


def _is_readable(word: str) -> bool:
    return all(char < _LATIN_END for char in word)


@cache
def _fingerprint() -> str:
    fingerprint = hashlib.sha256(_METHOD)
    for name in (_WEIGHTS, _TOKENIZER):
        fingerprint.update(_digest(_file(name)))
    return f"{_NAME}:{fingerprint.hexdigest()[:12]}:{_DIMENSION}"


_tables: list[Table] = []
"""The table, once it is loaded, for all embedders of the process: it is large, and slow to load."""
_guard = threading.Lock()


def _after_fork() -> None:
    """A child has none of the threads that may have held it."""
    global _guard
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _get_table() -> Table:
    if not _tables:
        with _guard:
            if not _tables:
                _tables.append(_load())
    return _tables[0]


def _load() -> Table:
    try:
        import numpy as np
        from safetensors import SafetensorError, safe_open
        from tokenizers import Tokenizer
    except ImportError as error:
        raise EmbedderUnavailable(
            f"The default embedder needs {error.name}. Run: pip install numpy safetensors "
            f"tokenizers"
        ) from error
    weights, tokenizer = _file(_WEIGHTS), _file(_TOKENIZER)
    try:
        with safe_open(weights, framework="np") as tensors:
            rows = np.ascontiguousarray(tensors.get_tensor("embedding.weight"))
        parsed = Tokenizer.from_str(tokenizer.read_text(encoding="utf-8"))
    except (OSError, ValueError, SafetensorError) as error:
        raise EmbedderUnavailable(
            f"The default embedder's files cannot be read: {error}. {_REPAIR}"
        ) from error
    if rows.ndim != 2 or rows.shape[1] != _DIMENSION or rows.shape[0] < parsed.get_vocab_size():
        raise EmbedderUnavailable(
            f"The default embedder's table has the shape {rows.shape}. {_REPAIR}"
        )
    parsed.no_padding()
    parsed.no_truncation()
    return Table.of(rows, parsed)


_REPAIR = "Run: pip install --force-reinstall 'wordllama>=0.4.0.post1,<0.5'"


def _file(name: str) -> Path:
    """Return the path of a file of the package; the package itself is never imported."""
    spec = importlib.util.find_spec("wordllama")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(place) / name
        if path.is_file():
            return path
    missing = (
        f"{name} of the package wordllama is" if spec is not None else "The package wordllama is"
    )
    raise EmbedderUnavailable(
        f"{missing} not installed, so the default embedder cannot run. "
        "Run: pip install 'wordllama>=0.4.0.post1,<0.5', or hand in an embedder of your own."
    )


def _digest(path: Path) -> bytes:
    """Return the digest of a file, which is never in memory as a whole."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError as error:
        raise EmbedderUnavailable(
            f"The default embedder's files cannot be read: {error}. {_REPAIR}"
        ) from error


def _well_formed(text: str) -> str:
    """`text` with lone surrogates replaced; the tokenizer takes well-formed text only."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
