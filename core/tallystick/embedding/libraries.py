"""Embedders and rerankers of libraries on this machine: FastEmbed and sentence-transformers.

A library and its model load with the first text. A model that is not on this machine is fetched
only where downloads are allowed.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tallystick.embedding.adapt import EmbeddingAnswer, ForeignEmbedder
from tallystick.errors import EmbedderUnavailable, InvalidInput, MissingExtra

FASTEMBED, SENTENCE_TRANSFORMERS = "fastembed", "sentence-transformers"
"""The libraries, as settings name them, and the extras that bring them."""
_SIZES = ("word_embedding_dimension", "embedding_dimension", "out_features")
"""What says how long vectors are, in the configuration of the last module that has one of them."""
_MODULES = {FASTEMBED: "fastembed", SENTENCE_TRANSFORMERS: "sentence_transformers"}


class LibraryReranker:
    """A cross-encoder of a library: it reads a question and a text together. Thread-safe."""

    local = True
    """It runs here: nothing that it is shown leaves this machine."""

    def __init__(self, name: str, score: Callable[[str, Sequence[str]], Iterable[float]]) -> None:
        self.name = name
        """The library and the model."""
        self._score = score

    def rerank(self, query: str, texts: Sequence[str], *, deadline_ms: int) -> Sequence[float]:
        """Return one score per text, higher is better. Raises what the library raises."""
        return [float(score) for score in self._score(query, texts)]


class _Once:
    """Something that takes long to make and is made once, by the first thread that needs it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._guard, self._made = make, threading.Lock(), list[Any]()

    def __call__(self) -> Any:
        with self._guard:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]


def fastembed_embedder(model: str, *, allow_download: bool) -> ForeignEmbedder:
    """Return an embedder of FastEmbed. Raises MissingExtra, and InvalidInput for a model that it
    does not know.
    """
    library = _library(FASTEMBED)
    described = {each["model"].lower(): each for each in _models_of(library.TextEmbedding)}
    dimension = _known(described, model, FASTEMBED)["dim"]
    loaded = _Once(
        lambda: _load(
            FASTEMBED,
            model,
            lambda: library.TextEmbedding(model, local_files_only=not allow_download),
        )
    )
    return ForeignEmbedder(
        f"{FASTEMBED}:{model}",
        lambda texts: EmbeddingAnswer(list(loaded().embed(texts))),
        local=True,
        identify=lambda: ("", int(dimension)),
    )


def fastembed_reranker(model: str, *, allow_download: bool) -> LibraryReranker:
    """Return a reranker of FastEmbed. Raises MissingExtra, and InvalidInput for a model that it
    does not know.
    """
    _library(FASTEMBED)
    cross_encoder: Any = import_module("fastembed.rerank.cross_encoder").TextCrossEncoder
    described = {each["model"].lower(): each for each in _models_of(cross_encoder)}
    _known(described, model, FASTEMBED)
    loaded = _Once(
        lambda: _load(
            FASTEMBED, model, lambda: cross_encoder(model, local_files_only=not allow_download)
        )
    )
    return LibraryReranker(
        f"{FASTEMBED}:{model}", lambda query, texts: loaded().rerank(query, list(texts))
    )


def sentence_transformers_embedder(model: str, *, allow_download: bool) -> ForeignEmbedder:
    """Return an embedder of sentence-transformers, of a folder or a name. Raises MissingExtra."""
    _require(SENTENCE_TRANSFORMERS)
    loaded = _Once(
        lambda: _load(
            SENTENCE_TRANSFORMERS,
            model,
            lambda: _library(SENTENCE_TRANSFORMERS).SentenceTransformer(
                model, local_files_only=not allow_download
            ),
        )
    )
    return ForeignEmbedder(
        f"{SENTENCE_TRANSFORMERS}:{_base(model)}",
        lambda texts: EmbeddingAnswer(loaded().encode(texts, show_progress_bar=False)),
        local=True,
        identify=lambda: _identify(model),
    )


def sentence_transformers_reranker(model: str, *, allow_download: bool) -> LibraryReranker:
    """Return a reranker of sentence-transformers, of a folder or a name. Raises MissingExtra."""
    _require(SENTENCE_TRANSFORMERS)
    loaded = _Once(
        lambda: _load(
            SENTENCE_TRANSFORMERS,
            model,
            lambda: _library(SENTENCE_TRANSFORMERS).CrossEncoder(
                model, local_files_only=not allow_download
            ),
        )
    )
    return LibraryReranker(
        f"{SENTENCE_TRANSFORMERS}:{_base(model)}",
        lambda query, texts: loaded().predict(
            [(query, text) for text in texts], show_progress_bar=False
        ),
    )


def _require(name: str) -> None:
    if find_spec(_MODULES[name]) is None:
        raise MissingExtra(name, name)


def _library(name: str) -> Any:
    _require(name)
    return import_module(_MODULES[name])


def _models_of(kind: Any) -> list[dict[str, Any]]:
    described: list[dict[str, Any]] = kind.list_supported_models()
    return described


def _known(described: dict[str, dict[str, Any]], model: str, library: str) -> dict[str, Any]:
    if model.lower() not in described:
        names = ", ".join(each["model"] for each in described.values())
        raise InvalidInput(f"{library} has no model {model!r}; it has {names}.")
    return described[model.lower()]


def _load(library: str, model: str, load: Callable[[], Any]) -> Any:
    """Return a model. Raises EmbedderUnavailable: the libraries raise what they like."""
    try:
        return load()
    except Exception as error:
        raise EmbedderUnavailable(
            f"{library} cannot load {model} ({type(error).__name__}). Name a model that is on this "
            "machine, or let it be downloaded once, with the setting allow_download = true."
        ) from error


def hub_folder(model: str, *, allow_download: bool) -> Path | None:
    """Return the folder in which the cache of the hub has a model, None where it has none. It is
    fetched only where that is allowed; raises EmbedderUnavailable where that fails.
    """
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(model, local_files_only=not allow_download))
    except Exception as error:  # what the hub and its client raise has no common root
        if allow_download:
            raise EmbedderUnavailable(
                f"{model} cannot be fetched from the hub ({type(error).__name__})."
            ) from error
        return None


def _identify(model: str) -> tuple[str, int] | None:
    """Return a mark and the dimension of a model of sentence-transformers, from its files: loading
    it takes many seconds. The mark is the commit of the hub, or a digest of the folder. None where
    the files do not say it.
    """
    is_folder = os.path.isdir(model)
    folder = Path(model) if is_folder else hub_folder(model, allow_download=False)
    if folder is None:
        return None
    try:
        modules = [
            folder / each["path"]
            for each in json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        ]
        sizes = [
            size
            for module in modules
            if module != folder
            for name, size in _config(module).items()
            if name in _SIZES
        ]
        mark = _digest(modules) if is_folder else folder.name
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return (mark[:12], int(sizes[-1])) if sizes else None


def _config(module: Path) -> dict[str, Any]:
    """Return how a module of a model is made; one such as a normalisation has nothing to say."""
    file = module / "config.json"
    made: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return made


def _digest(modules: Iterable[Path]) -> str:
    """Return a digest of what is computed: weights and configurations of the modules."""
    digest = hashlib.sha256()
    for file in sorted({each for module in modules for each in module.glob("*")}):
        if file.suffix in (".safetensors", ".bin", ".json"):
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _base(model: str) -> str:
    """Return the name of a model: of a folder its last part, so that it can be moved."""
    return os.path.basename(os.path.abspath(model)) if os.path.isdir(model) else model
