"""A model behind Anthropic's API that extracts and decides for a tally."""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel

from tallystick.errors import SettingsError, require
from tallystick.kit.providers import declare, is_loopback
from tallystick.ports import StructuredAnswer
from tallystick.records import ProviderDeclaration


class LearningModel:
    """A model for `Tally.open(learning_model=…)`: a name such as `claude-haiku-4-5`.
    Thread-safe.
    """

    def __init__(
        self,
        model: str,
        *,
        local: bool | None = None,
        timeout_ms: int = 60_000,
        longest_text: int = 100_000,
        longest_answer: int = 16_000,
        structured_output: bool = True,
    ) -> None:
        """Take the name; nothing is sent yet. Raises MissingExtra, SettingsError without a key, and
        InvalidInput for a limit that is none.
        """
        require("anthropic", extra="anthropic")
        import anthropic

        # What is given to a server on this machine goes to no proxy.
        here = is_loopback(os.environ.get("ANTHROPIC_BASE_URL"))
        self._client = anthropic.Anthropic(
            timeout=timeout_ms / 1_000,
            max_retries=1,
            http_client=anthropic.DefaultHttpxClient(trust_env=False, follow_redirects=False)
            if here
            else None,
        )
        client = self._client
        if not (client.api_key or client.auth_token or getattr(client, "credentials", None)):
            raise SettingsError("ANTHROPIC_API_KEY is not set. Set it, or name another model.")
        self.declaration: ProviderDeclaration = declare(
            "anthropic",
            model,
            address=client.base_url,
            local=local,
            timeout_ms=timeout_ms,
            longest_text=longest_text,
            longest_answer=longest_answer,
            structured_output=structured_output,
        )

    def answer(self, instructions: str, text: str, schema: type[BaseModel]) -> StructuredAnswer:
        """Return the model's record as JSON text. Raises what the client raises."""
        from anthropic import transform_schema

        declared = self.declaration
        options: dict[str, Any] = {}
        if declared.structured_output:
            form = {"type": "json_schema", "schema": transform_schema(schema)}
            options["output_config"] = {"format": form}
        answer = self._client.messages.create(
            model=declared.model or "",
            max_tokens=declared.longest_answer,
            system=instructions,
            messages=[{"role": "user", "content": text}],
            **options,
        )
        return StructuredAnswer(
            "".join(part.text for part in answer.content if part.type == "text"),
            answer.model,
            answer.usage.input_tokens,
            answer.usage.output_tokens,
        )
