"""Libraries that embed and rerank on this machine, by name: they load with the first text, and
nothing is downloaded unless it may be. They are not installed here: stand-ins have the signatures
of their releases.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tallystick import Tally
from tallystick.embedding import named_embedder
from tallystick.errors import EmbedderUnavailable, InvalidInput, MissingExtra
from tallystick.errors.base import install_line
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]


@pytest.mark.parametrize("library", ["fastembed", "sentence-transformers"])
def test_a_library_that_is_not_installed_is_named_with_the_line_to_run(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setattr("tallystick.embedding.libraries.find_spec", lambda name: None)
    told = re.escape(install_line(library))
    with pytest.raises(MissingExtra, match=told):
        open_sqlite(embedder=f"{library}:some/model")
    with pytest.raises(MissingExtra, match=told):
        open_sqlite(settings=Settings(reranker=f"{library}:some/model"))


class _TextEmbedding:
    """As FastEmbed 0.9: vectors come one by one, and models are described without being loaded."""

    loaded: list[tuple[str, bool]] = []

    def __init__(self, model_name: str, *, local_files_only: bool = False) -> None:
        if model_name == "BAAI/absent":
            raise ValueError("Could not load")
        self.loaded.append((model_name, local_files_only))

    @classmethod
    def list_supported_models(cls) -> list[dict[str, Any]]:
        return [{"model": "BAAI/small", "dim": 16}, {"model": "BAAI/absent", "dim": 16}]

    def embed(self, documents: Sequence[str]) -> Iterator[Any]:
        yield from HashEmbedder(16).embed(documents)


class _TextCrossEncoder:
    """As FastEmbed 0.9: scores come one by one."""

    def __init__(self, model_name: str, *, local_files_only: bool = False) -> None:
        assert local_files_only

    @classmethod
    def list_supported_models(cls) -> list[dict[str, Any]]:
        return [{"model": "Xenova/cross"}]

    def rerank(self, query: str, documents: Sequence[str]) -> Iterator[float]:
        yield from (float(len(text)) for text in documents)


class _SentenceTransformer:
    """As sentence-transformers 6: vectors come as one array."""

    def __init__(self, model_name_or_path: str, *, local_files_only: bool = False) -> None:
        if not Path(model_name_or_path).exists():
            raise OSError("not in the cache")

    def encode(self, inputs: Sequence[str], *, show_progress_bar: bool) -> Any:
        return HashEmbedder(8).embed(inputs)


class _CrossEncoder:
    """As sentence-transformers 6: pairs are scored, and the scores come as one array."""

    def __init__(self, model_name_or_path: str, *, local_files_only: bool = False) -> None:
        assert local_files_only

    def predict(self, inputs: Sequence[tuple[str, str]], *, show_progress_bar: bool) -> Any:
        return np.array([len(text) for _, text in inputs], dtype=np.float32)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """FastEmbed and sentence-transformers, by their doors alone."""
    fastembed, cross = ModuleType("fastembed"), ModuleType("fastembed.rerank.cross_encoder")
    transformers = ModuleType("sentence_transformers")
    fastembed.TextEmbedding = _TextEmbedding  # type: ignore[attr-defined]
    cross.TextCrossEncoder = _TextCrossEncoder  # type: ignore[attr-defined]
    transformers.SentenceTransformer = _SentenceTransformer  # type: ignore[attr-defined]
    transformers.CrossEncoder = _CrossEncoder  # type: ignore[attr-defined]
    rerank = ModuleType("fastembed.rerank")
    for module in (fastembed, rerank, cross, transformers):
        module.__spec__ = ModuleSpec(module.__name__, None)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    _TextEmbedding.loaded = []


@pytest.mark.usefixtures("libraries")
def test_fastembed_loads_with_the_first_text_and_downloads_nothing(open_sqlite: OpenTally) -> None:
    with open_sqlite(embedder="fastembed:BAAI/small") as tally:
        assert services_of(tally).embedder.fingerprint == "fastembed:BAAI/small:16"
        assert not _TextEmbedding.loaded
        tally.bind().remember("The heron nests in March.")
        assert tally.bind().recall("heron")[0].signals["vector"] > 0
        assert _TextEmbedding.loaded == [("BAAI/small", True)]
    with pytest.raises(EmbedderUnavailable, match="allow_download"):
        named_embedder("fastembed:BAAI/absent").embed(["heron"])
    named_embedder("fastembed:BAAI/small", allow_download=True).embed(["heron"])
    assert _TextEmbedding.loaded[-1] == ("BAAI/small", False)
    with pytest.raises(InvalidInput, match="BAAI/small"):
        named_embedder("fastembed:BAAI/unknown")


@pytest.mark.usefixtures("libraries")
def test_sentence_transformers_takes_a_folder_or_a_model_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mini").mkdir()
    embedder = named_embedder(f"sentence-transformers:{tmp_path / 'mini'}")
    assert embedder.fingerprint.startswith("sentence-transformers:mini:")
    assert embedder.dimension == 8
    # So is a folder that says how it is made, without loading it: what it computes has a digest.
    made = tmp_path / "made"
    (made / "1_Pooling").mkdir(parents=True)
    modules = [{"path": "", "type": "Transformer"}, {"path": "1_Pooling", "type": "Pooling"}]
    (made / "modules.json").write_text(json.dumps(modules))
    (made / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 384}')
    before = named_embedder(f"sentence-transformers:{made}")
    assert before.dimension == 384
    (made / "model.safetensors").write_text("other weights")
    assert named_embedder(f"sentence-transformers:{made}").fingerprint != before.fingerprint
    # Of a model of the hub commit and dimension stand beside its weights.
    commit = tmp_path / "0123456789abcdef"
    (commit / "1_Pooling").mkdir(parents=True)
    (commit / "modules.json").write_text(json.dumps(modules))
    (commit / "1_Pooling" / "config.json").write_text('{"word_embedding_dimension": 384}')
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(commit))
    of_hub = named_embedder("sentence-transformers:some/model")
    assert of_hub.fingerprint == "sentence-transformers:some/model:0123456789ab:384"
    with pytest.raises(EmbedderUnavailable, match="allow_download"):
        of_hub.embed(["heron"])


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("name", ["fastembed:Xenova/cross", "sentence-transformers:some/cross"])
def test_a_reranker_by_name_orders_the_best_hits(open_sqlite: OpenTally, name: str) -> None:
    texts = ["heron", "The heron nests in March.", "A heron nests."]
    with open_sqlite(settings=Settings(reranker=name, rerank_deadline_ms=60_000)) as tally:
        tally.bind().remember_many(texts)
        found = tally.bind().recall("heron")
        assert [hit.content for hit in found] == sorted(texts, key=len, reverse=True)
        assert not found.warnings


def test_a_table_of_the_hub_is_fetched_only_where_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    def download(model: str, *, local_files_only: bool) -> str:
        asked.append(local_files_only)
        raise OSError("there is no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(EmbedderUnavailable, match="allow_download"):
        named_embedder("model2vec:minishlab/potion-base-8M")
    with pytest.raises(EmbedderUnavailable, match="cannot be fetched"):
        named_embedder("model2vec:minishlab/potion-base-8M", allow_download=True)
    assert asked == [True, False]
