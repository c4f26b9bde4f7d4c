"""A chat model of LangChain that extracts and decides for a tally."""

from __future__ import annotations

import importlib.util
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from pydantic import BaseModel

from tallystick.errors import InvalidInput, MissingExtra
from tallystick.kit.providers import declare
from tallystick.ports import StructuredAnswer
from tallystick.records import ProviderDeclaration

_ADDRESSES = ("base_url", "openai_api_base", "anthropic_api_url", "endpoint")


class LearningModel:
    """A model for `Tally.open(learning_model=…)`: any chat model, or the name of one as
    LangChain's `init_chat_model` takes it, such as `ollama:qwen3`. Thread-safe.
    """

    def __init__(
        self,
        model: BaseChatModel | str,
        *,
        local: bool | None = None,
        timeout_ms: int = 30_000,
        longest_text: int = 100_000,
        longest_answer: int = 16_000,
        structured_output: bool = True,
    ) -> None:
        """Take the model. Raises MissingExtra for a name without the package `langchain`, and
        InvalidInput for a model without structured output, unless `structured_output` is False.
        """
        model = _init_model(model) if isinstance(model, str) else model
        self._model = model
        named = [getattr(model, name, None) for name in ("model_name", "model")]
        self.declaration: ProviderDeclaration = declare(
            model._llm_type,
            next((name for name in named if isinstance(name, str)), None),
            address=next((each for name in _ADDRESSES if (each := getattr(model, name, None))), ""),
            local=local,
            timeout_ms=timeout_ms,
            longest_text=longest_text,
            longest_answer=longest_answer,
            structured_output=structured_output,
        )
        if structured_output:
            _check_structured_output(model)

    def answer(self, instructions: str, text: str, schema: type[BaseModel]) -> StructuredAnswer:
        """Return the model's record; of a model without structured output its text."""
        messages: list[BaseMessage] = [SystemMessage(instructions), HumanMessage(text)]
        if not self.declaration.structured_output:
            return self._prose(messages)
        structured = self._model.with_structured_output(schema, include_raw=True)
        given = cast("dict[str, Any]", structured.invoke(messages))
        parsed = given.get("parsed")
        value = parsed.model_dump(mode="json") if isinstance(parsed, BaseModel) else parsed
        return _structured_answer(given["raw"], value)

    def _prose(self, messages: list[BaseMessage]) -> StructuredAnswer:
        answer = self._model.invoke(messages)
        return _structured_answer(answer, answer.text)


class _Sample(BaseModel):
    """A record that a model could answer with."""

    text: str


def _check_structured_output(model: BaseChatModel) -> None:
    try:
        model.with_structured_output(_Sample, include_raw=True)
    except NotImplementedError as error:
        raise InvalidInput(
            f"{type(model).__name__} has no structured output, by which it is asked for a record. "
            "Give one that has it, or structured_output=False, which asks for JSON in its text.",
            argument="model",
        ) from error


def _init_model(name: str) -> BaseChatModel:
    if importlib.util.find_spec("langchain") is None:
        raise MissingExtra("langchain", "langchain")
    from langchain.chat_models import init_chat_model

    return init_chat_model(name)


def _structured_answer(message: BaseMessage, value: Any) -> StructuredAnswer:
    usage = message.usage_metadata if isinstance(message, AIMessage) else None
    model = message.response_metadata.get("model_name")
    return StructuredAnswer(
        value,
        model if isinstance(model, str) else None,
        0 if usage is None else usage["input_tokens"],
        0 if usage is None else usage["output_tokens"],
    )
