"""Embedding: implementations of the Embedder port, by default an offline static table.

Importing this loads nothing heavy; NumPy, tokenizers and the table come on first use.
"""

from tallystick.embedding.adapt import EmbeddingAnswer, ForeignEmbedder, as_embedder
from tallystick.embedding.guard import GuardedEmbedder
from tallystick.embedding.named import Model2VecEmbedder, named_embedder, named_reranker
from tallystick.embedding.static import StaticEmbedder

__all__ = [
    "EmbeddingAnswer",
    "ForeignEmbedder",
    "GuardedEmbedder",
    "Model2VecEmbedder",
    "StaticEmbedder",
    "as_embedder",
    "named_embedder",
    "named_reranker",
]
