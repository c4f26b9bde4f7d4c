"""LlamaIndex on a tally: recall as a retriever, a chat memory that lasts, and nodes compiled into a budget."""

from tallystick.errors import require

require("llama_index", extra="llama-index")

from tallystick_llama_index.memory import TallyMemory, TallyMemoryBlock, TallyNodePostprocessor  # noqa: E402
from tallystick_llama_index.retriever import TallyRetriever  # noqa: E402

__all__ = ["TallyMemory", "TallyMemoryBlock", "TallyNodePostprocessor", "TallyRetriever"]
