"""The client of OpenAI for embedding and learning, made of the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tallystick.errors import SettingsError, require
from tallystick.kit.providers import is_loopback

if TYPE_CHECKING:
    from openai import OpenAI

_KEY, _BASE = "OPENAI_API_KEY", "OPENAI_BASE_URL"


def connect(timeout_ms: int) -> OpenAI:
    """Return a client of OpenAI, or of the server that `OPENAI_BASE_URL` names; one on this machine
    needs no key, and what it is given goes to no proxy. Nothing is sent yet; a job tries again by
    itself what fails.

    Raises MissingExtra, SettingsError without a key.
    """
    require("openai", extra="openai")
    here = is_loopback(os.environ.get(_BASE))
    key = os.environ.get(_KEY) or ("none" if here else None)
    if key is None:
        raise SettingsError(f"{_KEY} is not set. Set it, or name another model.")
    import openai

    return openai.OpenAI(
        api_key=key,
        timeout=timeout_ms / 1_000,
        max_retries=1,
        http_client=openai.DefaultHttpxClient(trust_env=False, follow_redirects=False)
        if here
        else None,
    )


def is_openai(client: OpenAI) -> bool:
    """Return whether a client asks OpenAI itself."""
    return client.base_url.host.endswith(".openai.com")
