"""An LLM of LlamaIndex that extracts and decides for a tally."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
from llama_index.core.llms import LLM
from pydantic import BaseModel

from tallystick.errors import InvalidInput
from tallystick.kit.providers import declare
from tallystick.ports import StructuredAnswer
from tallystick.records import ProviderDeclaration

_ADDRESSES = ("api_base", "base_url")


class LearningModel:
    """A model for `Tally.open(learning_model=…)`: any LLM of LlamaIndex, or a name such as
    `ollama:qwen3`: the package `llama_index.llms.ollama`, and the model of its LLM. Thread-safe.
    """

    def __init__(
        self,
        llm: LLM | str,
        *,
        local: bool | None = None,
        timeout_ms: int = 30_000,
        longest_text: int = 100_000,
        longest_answer: int = 16_000,
        structured_output: bool = True,
    ) -> None:
        """Take the LLM. Raises InvalidInput for a name whose package is not there or has none."""
        llm = _load_llm(llm) if isinstance(llm, str) else llm
        self._llm = llm
        self.declaration: ProviderDeclaration = declare(
            llm.class_name(),
            llm.metadata.model_name,
            address=next((each for name in _ADDRESSES if (each := getattr(llm, name, None))), ""),
            local=local,
            timeout_ms=timeout_ms,
            longest_text=longest_text,
            longest_answer=longest_answer,
            structured_output=structured_output,
        )

    def answer(self, instructions: str, text: str, schema: type[BaseModel]) -> StructuredAnswer:
        """Return the model's record; an answer that is none has no value."""
        messages = [
            ChatMessage(role=MessageRole.SYSTEM, content=instructions),
            ChatMessage(role=MessageRole.USER, content=text),
        ]
        if not self.declaration.structured_output:
            return self._structured_answer(self._llm.chat(messages))
        try:
            response = self._llm.as_structured_llm(schema).chat(messages)
        except ValueError:  # its parsers raise it for an answer that is no record
            return StructuredAnswer(None)
        raw = response.raw
        value = raw.model_dump(mode="json") if isinstance(raw, BaseModel) else raw
        return self._structured_answer(response, value)

    def _structured_answer(self, response: ChatResponse, value: Any = None) -> StructuredAnswer:
        usage = response.additional_kwargs
        return StructuredAnswer(
            response.message.content if value is None else value,
            self._llm.metadata.model_name,
            int(usage.get("prompt_tokens", 0)),
            int(usage.get("completion_tokens", 0)),
        )


def _load_llm(name: str) -> LLM:
    provider, _, model = name.partition(":")
    package = f"llama_index.llms.{provider}"
    if not provider.isidentifier() or not model:
        raise InvalidInput(f"`llm` is {name!r}. Write it as PROVIDER:MODEL, such as ollama:qwen3.")
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError as error:
        distribution = f"llama-index-llms-{provider.replace('_', '-')}"
        raise InvalidInput(
            f"`llm` names {provider}, and {package} is not installed. Run: pip install "
            f"{distribution}"
        ) from error
    for exported in getattr(module, "__all__", ()):
        kind: Any = getattr(module, exported)
        if isinstance(kind, type) and issubclass(kind, LLM):
            return cast("Callable[..., LLM]", kind)(model=model)
    raise InvalidInput(f"`llm` names {provider}, and {package} has no LLM.")
