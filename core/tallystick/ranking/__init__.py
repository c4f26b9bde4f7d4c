"""Pure ranking: words, text scores, vectors and their fusion, shared by recall and compiler.

Nothing here reads a store or a clock. NumPy and the stemmer are imported on first use.
"""

from tallystick.ranking.bm25 import bm25, inverse_frequency
from tallystick.ranking.confidence import CONFIDENT, confidence
from tallystick.ranking.corpus import Corpus
from tallystick.ranking.dates import date_fit, event_named, spans
from tallystick.ranking.days import of_these_days
from tallystick.ranking.evidence import UNRELATED
from tallystick.ranking.excerpt import excerpt
from tallystick.ranking.fences import FENCES, code_spans, prose_parts, with_blank_code
from tallystick.ranking.fusion import Weights, fuse, quantise
from tallystick.ranking.languages import text_flags
from tallystick.ranking.order import (
    QUERY_READ,
    Pool,
    Question,
    Ranked,
    ask,
    introducing,
    proposals,
    rank,
)
from tallystick.ranking.pages import PageReader
from tallystick.ranking.passages import BestSlice, best_slices, passage_of
from tallystick.ranking.relevance import Text, WorkingSets
from tallystick.ranking.segment import Entry
from tallystick.ranking.sentences import sentence_spans
from tallystick.ranking.signals import names_source
from tallystick.ranking.time_spans import Span
from tallystick.ranking.vectors import (
    cosines,
    from_float16_bytes,
    slices,
    slices_of,
    slices_to_embed,
    to_float16_bytes,
    whole_vectors,
)
from tallystick.ranking.weights import RecallWeights
from tallystick.ranking.words import analyze, indexed_words, query_terms

__all__ = [
    "CONFIDENT",
    "FENCES",
    "QUERY_READ",
    "UNRELATED",
    "BestSlice",
    "Corpus",
    "Entry",
    "PageReader",
    "Pool",
    "Question",
    "Ranked",
    "RecallWeights",
    "Span",
    "Text",
    "Weights",
    "WorkingSets",
    "analyze",
    "ask",
    "best_slices",
    "bm25",
    "code_spans",
    "confidence",
    "cosines",
    "date_fit",
    "event_named",
    "excerpt",
    "from_float16_bytes",
    "fuse",
    "indexed_words",
    "introducing",
    "inverse_frequency",
    "text_flags",
    "names_source",
    "of_these_days",
    "passage_of",
    "proposals",
    "prose_parts",
    "quantise",
    "query_terms",
    "rank",
    "sentence_spans",
    "slices",
    "slices_of",
    "slices_to_embed",
    "spans",
    "to_float16_bytes",
    "whole_vectors",
    "with_blank_code",
]
