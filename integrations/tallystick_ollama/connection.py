"""The client of Ollama, where it is, and what a model that is not there means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import ollama

from tallystick.errors import EmbedderUnavailable, ModelUnavailable
from tallystick.kit.providers import is_loopback

_CONNECT_SECONDS = 3.0
_CLOUD = "cloud"


def connect(timeout_ms: int) -> ollama.Client:
    """Return a client of the server that `OLLAMA_HOST` names, by default that of this machine: what
    it is given goes to no proxy then, and follows nobody elsewhere. Nothing is sent yet.
    """
    timeout = httpx.Timeout(timeout_ms / 1_000, connect=_CONNECT_SECONDS)
    client = ollama.Client(timeout=timeout)
    if not is_loopback(address_of(client)):
        return client
    return ollama.Client(timeout=timeout, follow_redirects=False, trust_env=False)


def address_of(client: ollama.Client) -> str:
    """Return the address of the server."""
    return str(client._client.base_url)


def is_local(client: ollama.Client, model: str) -> bool:
    """Return whether what the model is given stays on this machine. The models that Ollama runs on
    its own servers are named so, by a tag that ends in `cloud`.
    """
    tag = model.rpartition(":")[2]
    return is_loopback(address_of(client)) and not tag.endswith(_CLOUD)


@contextmanager
def naming_missing(
    model: str, error_type: type[EmbedderUnavailable] | type[ModelUnavailable]
) -> Iterator[None]:
    """Say what to run where the server does not have the model: raises an error of that type."""
    try:
        yield
    except ollama.ResponseError as error:
        if error.status_code == 404:
            raise error_type(f"Ollama has no model {model}. Run: ollama pull {model}") from error
        raise
