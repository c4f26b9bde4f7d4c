"""Embedders of Chroma, LangChain, PydanticAI and LlamaIndex serve a tally as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from chromadb import Documents, EmbeddingFunction, Embeddings
from langchain_core.embeddings import DeterministicFakeEmbedding
from llama_index.core.embeddings import MockEmbedding
from pydantic_ai import Embedder
from pydantic_ai.embeddings import TestEmbeddingModel

from tallystick import Tally


class _Lengths(EmbeddingFunction[Documents]):
    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale

    def __call__(self, input: Documents) -> Embeddings:
        return [
            np.array([len(text), text.count("e"), self._scale], dtype=np.float32) for text in input
        ]


EMBEDDERS: dict[str, Callable[[], Any]] = {
    "chroma": _Lengths,
    "langchain": lambda: DeterministicFakeEmbedding(size=16),
    "llama_index": lambda: MockEmbedding(embed_dim=8),
    "pydantic_ai": lambda: Embedder(TestEmbeddingModel()),
}


@pytest.mark.parametrize("kind", EMBEDDERS)
def test_a_runtime_s_own_embedder_serves_a_tally(
    kind: str, open_sqlite: Callable[..., Tally]
) -> None:
    embedder: Any = EMBEDDERS[kind]()
    with open_sqlite(embedder=embedder) as tally:
        owner = tally.bind()
        stored = owner.remember_many(["The heron nests in March.", "We indent with tabs."])
        assert all(change.job_id for change in stored)

        assert tally.drain().embedded == 2
        hits = owner.recall("heron March")

        assert (hits[0].memory.content, hits.path) == ("The heron nests in March.", "exact")
        assert "vector" in hits[0].signals
