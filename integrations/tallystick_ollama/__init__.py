"""Models of Ollama, on this machine or another one: `embedder="ollama:…"`,
`learning_model="ollama:…"`.
"""

from tallystick.errors import require

require("ollama", extra="ollama")

from tallystick_ollama.embedding import embedding_model  # noqa: E402
from tallystick_ollama.learning import LearningModel  # noqa: E402

__all__ = ["LearningModel", "embedding_model"]
