"""Vectors: the slices of a text that get one each, how they are stored (float16), and how near two
of them are (exact cosine).

NumPy is imported on first use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tallystick.errors import DimensionMismatch
from tallystick.ranking.sentences import code_spans, outside

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SLICE = 700
"""Characters of the longest slice."""

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.!?…])\s|(?<=[。！？])")
_STOP = re.compile(r"[.!?…。！？]")


def slices(text: str, *, most: int = SLICE) -> list[str]:
    """Return `text` cut into pieces of at most `most` characters, in order; joined they are `text`
    again.

    A cut falls on the best boundary in the second half of the piece, else in the middle of a word.
    """
    pieces = []
    start = 0
    while len(text) - start > most:
        end = _cut(text, start + most // 2, start + most)
        pieces.append(text[start:end])
        start = end
    pieces.append(text[start:])
    return pieces


def slices_to_embed(text: str) -> list[str]:
    """Return of each of the `slices` of a text what its vector is made of: the slice without code
    between fences, or all of it where it says nothing else.
    """
    pieces, spans = slices(text), code_spans(text)
    if not spans:
        return pieces
    said: list[str] = []
    start = 0
    for piece in pieces:
        end = start + len(piece)
        prose = "\n".join(outside(text, spans, start, end))
        said.append(prose if any(map(str.isalnum, prose)) else piece)
        start = end
    return said


def _cut(text: str, low: int, high: int) -> int:
    """Return the last place where a text may be cut: behind a paragraph, else a line, else a
    sentence, else a word; `high` where it has none of them.
    """
    line = text.rfind("\n", low, high) + 1
    if line:
        return _last_end(_PARAGRAPH, text, low, high) or line
    # A sentence may have stopped right before `low`.
    if _STOP.search(text, max(low - 1, 0), high) and (end := _last_end(_SENTENCE, text, low, high)):
        return end
    piece = text[low:high]
    word = piece.rsplit(maxsplit=1)[-1:]
    return high - len(word[0]) if word and piece[-1:] == word[0][-1:] and word[0] != piece else high


def _last_end(boundary: re.Pattern[str], text: str, low: int, high: int) -> int:
    """Return where the last match within a span ends; 0 where there is none."""
    last = 0
    for match in boundary.finditer(text, low, high):
        last = match.end()
    return last


def to_float16_bytes(vectors: NDArray[Any]) -> list[bytes]:
    """One blob per row, two little-endian bytes per component; a single vector gives one blob.

    Meant for unit vectors: each component is off by at most 2**-12 of one.
    """

    rows = vectors.astype("<f2")
    return [rows.tobytes()] if rows.ndim == 1 else [row.tobytes() for row in rows]


def from_float16_bytes(blobs: Sequence[bytes]) -> NDArray[np.float32]:
    """The float32 matrix of stored blobs, one row each, in their order; shape (0, 0) for none.

    Raises DimensionMismatch when the blobs differ in length.
    """
    import numpy as np

    if not blobs:
        return np.zeros((0, 0), dtype=np.float32)
    size = len(blobs[0])
    for blob in blobs:
        if len(blob) != size:
            raise DimensionMismatch(
                name="of the stored vectors", expected=size // 2, got=len(blob) // 2
            )
    return (
        np.frombuffer(b"".join(blobs), dtype="<f2")
        .reshape(len(blobs), size // 2)
        .astype(np.float32)
    )


def slices_of(blob: bytes, dimension: int) -> NDArray[np.float32]:
    """Return the float32 vectors of a blob that contains one or more, one after the other. Raises
    DimensionMismatch.
    """
    import numpy as np

    if not blob or len(blob) % (2 * dimension):
        raise DimensionMismatch(
            name="of the stored vectors", expected=dimension, got=len(blob) // 2
        )
    return np.frombuffer(blob, dtype="<f2").reshape(-1, dimension).astype(np.float32)


def whole_vectors(blobs: Sequence[bytes], dimension: int) -> NDArray[np.float32]:
    """One vector for each blob: its only one, else the mean of its slices' at unit length. Raises
    DimensionMismatch.
    """
    import numpy as np

    if all(len(blob) == 2 * dimension for blob in blobs):
        return from_float16_bytes(blobs)
    means = np.stack([slices_of(blob, dimension).mean(axis=0) for blob in blobs])
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    return np.asarray(means / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def cosines(query: NDArray[Any], matrix: NDArray[Any]) -> NDArray[np.float32]:
    """Return the cosine of `query` with each row of `matrix`, in its order; 0 where either is a
    zero vector.

    A row's cosine does not depend on the other rows of the matrix, to the last bit, so a scan of
    everything and a re-scored shortlist agree. Raises DimensionMismatch.
    """
    import numpy as np

    vector = np.ascontiguousarray(query, dtype=np.float32)
    rows = np.ascontiguousarray(matrix, dtype=np.float32)
    if rows.shape[0] == 0:
        return np.zeros(0, dtype=np.float32)
    if vector.ndim != 1 or rows.shape[1] != vector.shape[0]:
        raise DimensionMismatch(name="of the query", expected=rows.shape[1], got=vector.shape[-1])
    # einsum works row by row; a matrix product may group rows and so round them differently.
    dots = np.einsum("ij,j->i", rows, vector)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows)) * np.sqrt(
        np.einsum("j,j->", vector, vector)
    )
    result = np.zeros(rows.shape[0], dtype=np.float32)
    np.divide(dots, lengths, out=result, where=lengths > 0)
    return np.clip(result, -1.0, 1.0)
