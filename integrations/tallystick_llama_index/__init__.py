"""LlamaIndex on a tally: `TallyRetriever` recalls memories as nodes."""

from tallystick.errors import require

require("llama_index", extra="llama-index")

from tallystick_llama_index.retriever import TallyRetriever  # noqa: E402

__all__ = ["TallyRetriever"]
