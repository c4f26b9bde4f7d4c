"""An embedder that Ollama runs."""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.embedding import EmbeddingAnswer, ForeignEmbedder
from tallystick.errors import EmbedderUnavailable
from tallystick_ollama.connection import connect, is_local, naming_missing

_TIMEOUT_MS = 60_000
"""A model that is not loaded is loaded first."""
_BATCH = 64
_LENGTH = ".embedding_length"


def embedding_model(model: str) -> ForeignEmbedder:
    """Return the embedder of a model such as `nomic-embed-text`: `embedder="ollama:…"`.

    It is local where the server is on this machine. What the very model is and how long its
    vectors are the server says, without a text; where it does not, a probe does.
    """
    client = connect(_TIMEOUT_MS)

    def embed(texts: list[str]) -> EmbeddingAnswer:
        with naming_missing(model, EmbedderUnavailable):
            return EmbeddingAnswer(client.embed(model, texts).embeddings)

    def identify() -> tuple[str, int] | None:
        with naming_missing(model, EmbedderUnavailable):
            facts: Mapping[str, object] = client.show(model).modelinfo or {}
        names = {model, f"{model}:latest"}
        digests = [each.digest for each in client.list().models if each.model in names]
        lengths = [value for name, value in facts.items() if name.endswith(_LENGTH)]
        if len(digests) != 1 or digests[0] is None or len(lengths) != 1:
            return None
        return digests[0].removeprefix("sha256:")[:12], int(str(lengths[0]))

    return ForeignEmbedder(
        f"ollama:{model}",
        embed,
        batch_size=_BATCH,
        local=is_local(client, model),
        identify=identify,
    )
