"""Pure ranking: words, text scores, and vectors, shared by recall and compiler.

Nothing here reads a store or a clock. NumPy and the stemmer are imported on first use.
"""

from typing import TYPE_CHECKING

from tallystick.loading import late_names

if TYPE_CHECKING:
    from tallystick.ranking.confidence import CONFIDENT, UNRELATED, names_source
    from tallystick.ranking.corpus import Corpus
    from tallystick.ranking.dates import Span, date_fit, spans
    from tallystick.ranking.order import Ranked, proposals, rank, rows_within
    from tallystick.ranking.question import QUERY_READ, Question, ask
    from tallystick.ranking.relevance import (
        BestSlice,
        Text,
        WorkingSets,
        best_slices,
        passage_of,
        quantise,
    )
    from tallystick.ranking.segment import Entry
    from tallystick.ranking.sentences import (
        FENCES,
        code_percent,
        code_spans,
        excerpt,
        prose_parts,
        sentence_spans,
    )
    from tallystick.ranking.signals import SIGNALS, Pool, Signal
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
else:
    __getattr__ = late_names(
        __name__,
        {
            "confidence": "CONFIDENT UNRELATED names_source",
            "corpus": "Corpus",
            "dates": "Span date_fit spans",
            "order": "Ranked proposals rank rows_within",
            "question": "QUERY_READ Question ask",
            "relevance": "BestSlice Text WorkingSets best_slices passage_of quantise",
            "segment": "Entry",
            "sentences": "FENCES code_percent code_spans excerpt prose_parts sentence_spans",
            "signals": "SIGNALS Pool Signal",
            "vectors": "cosines from_float16_bytes slices slices_of slices_to_embed "
            "to_float16_bytes whole_vectors",
            "weights": "RecallWeights",
            "words": "analyze indexed_words query_terms",
        },
    )

__all__ = [
    "CONFIDENT",
    "FENCES",
    "QUERY_READ",
    "SIGNALS",
    "UNRELATED",
    "BestSlice",
    "Corpus",
    "Entry",
    "Pool",
    "Question",
    "Ranked",
    "RecallWeights",
    "Signal",
    "Span",
    "Text",
    "WorkingSets",
    "analyze",
    "ask",
    "best_slices",
    "code_percent",
    "code_spans",
    "cosines",
    "date_fit",
    "rows_within",
    "excerpt",
    "from_float16_bytes",
    "indexed_words",
    "names_source",
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
]
