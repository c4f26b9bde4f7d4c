"""A model behind Anthropic's API that extracts and decides for a tally."""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel

from tallystick.errors import require
from tallystick.kit.providers import NamedLearning, is_loopback
from tallystick.ports import StructuredAnswer
from tallystick_anthropic.provider import signed_in


class LearningModel(NamedLearning):
    """A model for `Tally.open(learning_model=…)`: a name such as `claude-haiku-4-5`.
    Thread-safe.
    """

    _provider = "anthropic"

    @staticmethod
    def _connect(timeout_ms: int) -> Any:
        require("anthropic", extra="anthropic")
        import anthropic

        # What is given to a server on this machine goes to no proxy.
        here = is_loopback(os.environ.get("ANTHROPIC_BASE_URL"))
        http: Any = anthropic.DefaultHttpxClient
        client = anthropic.Anthropic(
            timeout=timeout_ms / 1_000,
            max_retries=1,
            http_client=http(trust_env=False, follow_redirects=False) if here else None,
        )
        return signed_in(client, "name another model")

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
