"""A model of Ollama that extracts and decides for a tally."""

from __future__ import annotations

from pydantic import BaseModel

from tallystick.errors import ModelUnavailable
from tallystick.kit.providers import declare
from tallystick.ports import StructuredAnswer
from tallystick.records import ProviderDeclaration
from tallystick_ollama.connection import address_of, connect, is_local, naming_missing

_LEAST_CONTEXT, _MOST_CONTEXT = 8_192, 131_072
_CHARACTERS = 3
"""Of a token, at least: what does not fit into the context that it is told Ollama cuts, and says
nothing.
"""


class LearningModel:
    """A model for `Tally.open(learning_model=…)`: the name of one of Ollama, such as `qwen3`.
    Thread-safe.
    """

    def __init__(
        self,
        model: str,
        *,
        local: bool | None = None,
        timeout_ms: int = 120_000,
        longest_text: int = 100_000,
        longest_answer: int = 8_000,
        structured_output: bool = True,
    ) -> None:
        """Take the name; nothing is sent yet. It is local where the server of `OLLAMA_HOST` is on
        this machine, unless `local` says. Raises InvalidInput for a limit that is none.
        """
        self._client = connect(timeout_ms)
        self.declaration: ProviderDeclaration = declare(
            "ollama",
            model,
            address=address_of(self._client),
            local=is_local(self._client, model) if local is None else local,
            timeout_ms=timeout_ms,
            longest_text=longest_text,
            longest_answer=longest_answer,
            structured_output=structured_output,
        )

    def answer(self, instructions: str, text: str, schema: type[BaseModel]) -> StructuredAnswer:
        """Return the model's record as JSON text. Raises ModelUnavailable for a model that is not
        there, and what the client raises.
        """
        declared = self.declaration
        model = declared.model or ""
        tokens = (len(instructions) + len(text)) // _CHARACTERS + declared.longest_answer
        with naming_missing(model, ModelUnavailable):
            answer = self._client.chat(
                model,
                [
                    {"role": "system", "content": instructions},
                    {"role": "user", "content": text},
                ],
                format=schema.model_json_schema() if declared.structured_output else None,
                think=False,
                options={
                    "temperature": 0,
                    "num_ctx": _context(tokens),
                    "num_predict": declared.longest_answer,
                },
            )
        return StructuredAnswer(
            answer.message.content or "",
            answer.model,
            answer.prompt_eval_count or 0,
            answer.eval_count or 0,
        )


def _context(tokens: int) -> int:
    """Return a size of context that holds so many tokens, a power of two: with each other size the
    model is loaded anew.
    """
    return min(_MOST_CONTEXT, max(_LEAST_CONTEXT, 1 << (tokens - 1).bit_length()))
