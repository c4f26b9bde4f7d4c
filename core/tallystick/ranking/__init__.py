"""Pure ranking: words, text scores, vectors and their fusion, shared by recall and compiler.

Nothing here reads a store or a clock. NumPy and the stemmer are imported on first use.
"""

from tallystick.ranking.bm25 import bm25
from tallystick.ranking.fusion import Weights, fuse, quantise
from tallystick.ranking.relevance import relevance
from tallystick.ranking.vectors import cosines, from_float16_bytes, to_float16_bytes
from tallystick.ranking.words import analyze, query_terms

__all__ = [
    "Weights",
    "analyze",
    "bm25",
    "cosines",
    "from_float16_bytes",
    "fuse",
    "quantise",
    "query_terms",
    "relevance",
    "to_float16_bytes",
]
