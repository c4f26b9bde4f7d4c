"""A model that learns for a tally, behind OpenAI's API or a server of yours that speaks it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from tallystick.kit.providers import NamedLearning
from tallystick.ports import StructuredAnswer
from tallystick_openai.connection import connect, is_openai


class LearningModel(NamedLearning):
    """A model for `Tally.open(learning_model=…)`: a name such as `gpt-5-mini`. Thread-safe.

    It is asked by Chat Completions, which servers other than OpenAI's speak too.
    """

    _provider, _connect = "openai", staticmethod(connect)

    def answer(self, instructions: str, text: str, schema: type[BaseModel]) -> StructuredAnswer:
        """Return the model's record as JSON text. Raises what the client raises."""
        declared = self.declaration
        # A limit is named as older servers know it, where it is not OpenAI's.
        limit = "max_completion_tokens" if is_openai(self._client) else "max_tokens"
        options: dict[str, Any] = {limit: declared.longest_answer}
        if declared.structured_output:
            options["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": schema.__name__,
                    "schema": _strict(schema.model_json_schema()),
                    "strict": True,
                },
            }
        answer = self._client.chat.completions.create(
            model=declared.model or "",
            messages=[
                {"role": "system", "content": instructions},
                {"role": "user", "content": text},
            ],
            **options,
        )
        usage = answer.usage
        return StructuredAnswer(
            next((each.message.content or "" for each in answer.choices), ""),
            answer.model,
            0 if usage is None else usage.prompt_tokens,
            0 if usage is None else usage.completion_tokens,
        )


def _strict(schema: Any) -> Any:
    """Return a schema in the form that OpenAI holds a model to: every field is given, and no other
    one.
    """
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _strict(inner) for name, inner in schema.items() if name != "default"}
    if isinstance(fields := strict.get("properties"), dict) and strict.get("type") == "object":
        # A field may be called as a keyword of schemas is.
        strict["properties"] = {name: _strict(schema["properties"][name]) for name in fields}
        strict |= {"required": list(fields), "additionalProperties": False}
    return strict
