"""An LLM of LlamaIndex that extracts and decides for a tally."""

from __future__ import annotations

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms import LLM
from pydantic import BaseModel

from tallystick.adapters.learning_models import declare
from tallystick.ports import StructuredAnswer
from tallystick.records import ProviderDeclaration

__all__ = ["LearningModel"]

_ADDRESSES = ("api_base", "base_url")


class LearningModel:
    """A model for `Tally.open(extractor=…, decider=…)`: any LLM of LlamaIndex. Thread-safe."""

    def __init__(self, llm: LLM, *, local: bool | None = None, timeout_ms: int = 30_000) -> None:
        self._llm = llm
        self.declaration: ProviderDeclaration = declare(
            llm.class_name(),
            llm.metadata.model_name,
            address=next((each for name in _ADDRESSES if (each := getattr(llm, name, None))), ""),
            local=local,
            timeout_ms=timeout_ms,
        )

    def answer(self, instructions: str, text: str, schema: type[BaseModel]) -> StructuredAnswer:
        """Return the model's record; an answer that is none has no value."""
        messages = [
            ChatMessage(role=MessageRole.SYSTEM, content=instructions),
            ChatMessage(role=MessageRole.USER, content=text),
        ]
        try:
            response = self._llm.as_structured_llm(schema).chat(messages)
        except ValueError:  # its parsers raise it for an answer that is no record
            return StructuredAnswer(None)
        raw = response.raw
        value = raw.model_dump(mode="json") if isinstance(raw, BaseModel) else raw
        usage = response.additional_kwargs
        return StructuredAnswer(
            value,
            self._llm.metadata.model_name,
            int(usage.get("prompt_tokens", 0)),
            int(usage.get("completion_tokens", 0)),
        )
