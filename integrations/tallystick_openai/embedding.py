"""An embedder behind OpenAI's API, or behind a server of yours that speaks it."""

from __future__ import annotations

from tallystick.embedding import EmbeddingAnswer, ForeignEmbedder
from tallystick.errors import EmbedderUnavailable
from tallystick.kit.providers import is_loopback
from tallystick_openai.connection import connect, is_openai

_TIMEOUT_MS = 30_000
_DIMENSIONS = {
    "text-embedding-3-small": 1_536,
    "text-embedding-3-large": 3_072,
    "text-embedding-ada-002": 1_536,
}
"""Of OpenAI's own models: they are known without a call."""


def embedding_model(model: str) -> ForeignEmbedder:
    """Return the embedder of a model such as `text-embedding-3-small`: `embedder="openai:…"`.

    It is remote, but where `OPENAI_BASE_URL` names a server on this machine. Raises MissingExtra,
    and SettingsError without a key.
    """
    client = connect(_TIMEOUT_MS)
    ours = is_openai(client)
    known = _DIMENSIONS.get(model) if ours else None

    def embed(texts: list[str]) -> EmbeddingAnswer:
        import openai

        try:
            answer = client.embeddings.create(model=model, input=texts, encoding_format="float")
        except openai.NotFoundError as error:
            raise EmbedderUnavailable(
                f"{client.base_url.host} has no model {model} for this key."
            ) from error
        ordered = sorted(answer.data, key=lambda each: each.index)
        return EmbeddingAnswer([each.embedding for each in ordered])

    return ForeignEmbedder(
        f"openai:{model}" if ours else f"openai:{client.base_url.host}:{model}",
        embed,
        local=is_loopback(client.base_url),
        identify=lambda: None if known is None else ("", known),
    )
