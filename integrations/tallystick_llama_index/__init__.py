"""LlamaIndex on a tally: recall as a retriever, a memory that lasts, nodes in a budget, and every
run recorded.
"""

from tallystick.errors import require

require("llama_index", extra="llama-index")

from tallystick_llama_index.ingesting import TallySink, ingest  # noqa: E402
from tallystick_llama_index.instrumentation import TallyInstrumentation  # noqa: E402
from tallystick_llama_index.learning import LearningModel  # noqa: E402
from tallystick_llama_index.memory import TallyMemory, TallyMemoryBlock, TallyNodePostprocessor  # noqa: E402
from tallystick_llama_index.models import ruled_llm  # noqa: E402
from tallystick_llama_index.policy import ruled_tools  # noqa: E402
from tallystick_llama_index.replay import llm_call  # noqa: E402
from tallystick_llama_index.retriever import TallyRetriever  # noqa: E402
from tallystick_llama_index.tape import TapeLLM, tape_tools  # noqa: E402
from tallystick_llama_index.tools import memory_tools  # noqa: E402

__all__ = [
    "LearningModel",
    "TallyInstrumentation",
    "TallyMemory",
    "TallyMemoryBlock",
    "TallyNodePostprocessor",
    "TallyRetriever",
    "TallySink",
    "TapeLLM",
    "ingest",
    "llm_call",
    "memory_tools",
    "ruled_llm",
    "ruled_tools",
    "tape_tools",
]
