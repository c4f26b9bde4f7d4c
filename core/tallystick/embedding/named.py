"""Embedders and rerankers by name, as code, settings and commands write them. Nothing is downloaded
unless it may be.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystick.embedding.adapt import as_embedder
from tallystick.embedding.libraries import (
    FASTEMBED,
    SENTENCE_TRANSFORMERS,
    fastembed_embedder,
    fastembed_reranker,
    hub_folder,
    sentence_transformers_embedder,
    sentence_transformers_reranker,
)
from tallystick.embedding.static import StaticEmbedder, Table
from tallystick.errors import EmbedderUnavailable, InvalidInput
from tallystick.ports import Embedder, Reranker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STATIC, MINILM = "static", "minilm"
"""The embedders whose name needs no model."""
_MODEL2VEC = "model2vec"
_GROUP = "tallystick.embedders"
"""The entry points of adapters that make an embedder of the name of a model."""
_FILES = ("model.safetensors", "tokenizer.json")
_METHOD = b"model2vec, mean of weighted rows, unit length; 1"


def named_embedder(name: str, *, allow_download: bool = False) -> Embedder:
    """Return the embedder of a name: `static`, `minilm`, or a library or service and its model, as
    in `fastembed:BAAI/bge-small-en-v1.5`, `ollama:nomic-embed-text`.

    Raises InvalidInput for a name of nothing, MissingExtra with the line to run for a library that
    is not installed, SettingsError for a key that is not set, EmbedderUnavailable for a model that
    is not there.
    """
    if name == STATIC:
        return StaticEmbedder()
    if name == MINILM:
        return _minilm(allow_download=allow_download)
    library, _, model = name.partition(":")
    here: dict[str, Callable[..., Embedder]] = {
        _MODEL2VEC: _model2vec,
        FASTEMBED: fastembed_embedder,
        SENTENCE_TRANSFORMERS: sentence_transformers_embedder,
    }
    if model and library in here:
        return here[library](model, allow_download=allow_download)
    services = {point.name: point for point in entry_points(group=_GROUP)}
    if model and library in services:
        made: Embedder = services[library].load()(model)
        return made
    known = [f"{each}:MODEL" for each in sorted({*here, *services})]
    raise InvalidInput(
        f"`embedder` is {name!r}, and takes {STATIC}, {MINILM}, {', '.join(known)}, or an object."
    )


def named_reranker(name: str, *, allow_download: bool = False) -> Reranker:
    """Return the reranker of a name: a library and its model, as in
    `fastembed:Xenova/ms-marco-MiniLM-L-6-v2`. It loads with the first question.

    Raises InvalidInput for a name of nothing, MissingExtra.
    """
    library, _, model = name.partition(":")
    here: dict[str, Callable[..., Reranker]] = {
        FASTEMBED: fastembed_reranker,
        SENTENCE_TRANSFORMERS: sentence_transformers_reranker,
    }
    if not model or library not in here:
        known = ", ".join(f"{each}:MODEL" for each in here)
        raise InvalidInput(
            f"`reranker` is {name!r}, and takes {known}, or an object. Other libraries and "
            "services have no model that scores a text for a question."
        )
    return here[library](model, allow_download=allow_download)


def _model2vec(model: str, *, allow_download: bool) -> Embedder:
    """Return the embedder of a folder, or of a table of the hub."""
    if "/" in model and not Path(model).exists() and not model.startswith((".", "/", "~")):
        folder = hub_folder(model, allow_download=allow_download)
        if folder is None:
            raise EmbedderUnavailable(
                f"The table {model} is not on this machine. Name the folder of one, or let it be "
                "fetched once from the hub, with the setting allow_download = true."
            )
        return Model2VecEmbedder(folder, name=model.rpartition("/")[2])
    return Model2VecEmbedder(Path(model).expanduser())


class Model2VecEmbedder:
    """Unit vectors from a table in the form of model2vec, read from a folder on this machine: the
    mean of a text's rows. Thread-safe. The package itself is not needed.
    """

    local = True
    """It runs here: no network, so a vector can commit together with its text."""

    def __init__(self, folder: Path, *, name: str | None = None) -> None:
        """Take the folder with `model.safetensors` and `tokenizer.json`, and a name for the
        fingerprint, by default that of the folder. Raises EmbedderUnavailable.
        """
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise EmbedderUnavailable(
                f"{folder} has no {' and no '.join(missing)}: name the folder of a table in the "
                f'form of model2vec, as in embedder = "{_MODEL2VEC}:potion-multilingual".'
            )
        self._folder, self._name = folder, name or folder.absolute().name
        self.name = f"{_MODEL2VEC}:{self._name}"
        """Who makes the vectors."""

    @property
    def dimension(self) -> int:
        """Length of every vector. Raises EmbedderUnavailable."""
        return int(self._table.rows.shape[1])

    @property
    def fingerprint(self) -> str:
        """Name of the table, digest of both files, dimension. Raises EmbedderUnavailable."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(_METHOD)
        for name in _FILES:
            digest.update(hashlib.sha256((self._folder / name).read_bytes()).digest())
        return f"model2vec-{self._name}:{digest.hexdigest()[:12]}:{self.dimension}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors, shape (len(texts), dimension), in the order given. Raises
        EmbedderUnavailable.
        """
        return self._table.embed(texts, whole=True)

    def embed_words(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Same as `embed`: one table serves words and texts."""
        return self.embed(words)

    @cached_property
    def _table(self) -> Table:
        return _read_table(self._folder)


@dataclass(frozen=True)
class _Tensors:
    embeddings: Any
    weights: Any
    mapping: Any


def _read_table(folder: Path) -> Table:
    import numpy as np
    from safetensors import SafetensorError, safe_open
    from tokenizers import Tokenizer

    try:
        with safe_open(folder / _FILES[0], framework="np") as tensors:
            found = _Tensors(
                *(
                    tensors.get_tensor(name) if name in tensors.keys() else None  # noqa: SIM118
                    for name in ("embeddings", "weights", "mapping")
                )
            )
        described = json.loads((folder / _FILES[1]).read_text(encoding="utf-8"))
        tokenizer = Tokenizer.from_str(json.dumps(described))
    except (OSError, ValueError, SafetensorError) as error:
        raise EmbedderUnavailable(f"The table in {folder} cannot be read: {error}.") from error
    except Exception as error:
        # `tokenizers` raises plain exceptions for what it cannot parse.
        if type(error) is not Exception:
            raise
        raise EmbedderUnavailable(f"The tokenizer in {folder} cannot be read: {error}.") from error
    if found.embeddings is None or found.embeddings.ndim != 2:
        raise EmbedderUnavailable(f"The table in {folder} has no rows named `embeddings`.")
    rows = np.asarray(found.embeddings, dtype=np.float32)
    if found.mapping is not None:
        rows = rows[np.asarray(found.mapping, dtype=np.int64)]
    if found.weights is not None:
        rows = rows * np.asarray(found.weights, dtype=np.float32).reshape(-1, 1)
    if rows.shape[0] < tokenizer.get_vocab_size():
        raise EmbedderUnavailable(
            f"The table in {folder} has {rows.shape[0]} rows for "
            f"{tokenizer.get_vocab_size()} word pieces: its files belong to two models."
        )
    unknown = described.get("model", {}).get("unk_token")
    if isinstance(unknown, str) and (place := tokenizer.token_to_id(unknown)) is not None:
        # What the table does not know says nothing, as in model2vec itself.
        rows = rows.copy()
        rows[place] = 0
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return Table.of(np.ascontiguousarray(rows), tokenizer)


def _minilm(*, allow_download: bool) -> Embedder:
    """Return MiniLM as Chroma runs it, from where Chroma keeps it."""
    module = import_module("chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2")
    function = module.ONNXMiniLM_L6_V2
    model = Path(function.DOWNLOAD_PATH) / function.EXTRACTED_FOLDER_NAME / "model.onnx"
    if not model.is_file() and not allow_download:
        raise EmbedderUnavailable(
            f"MiniLM is not on this machine ({model}). Put it there, or let Chroma download it "
            "once, with the setting allow_download = true."
        )
    try:
        return as_embedder(function(), local=True)
    except ValueError as error:
        raise EmbedderUnavailable(f"MiniLM needs onnxruntime: {error}") from error
