"""Models of the runtimes that extract and decide for a tally, each behind the same port."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import tallystick_langchain
import tallystick_llama_index
import tallystick_pydantic_ai
from tallystick import Actor, Tally
from tallystick.errors import SettingsError
from tallystick.ports import StructuredModel
from tallystick.settings import Settings

ANNA = Actor(user="anna", role="operator")
OpenTally = Callable[..., Tally]
ANSWER = {
    "facts": [{"content": "I live in Berlin.", "kind": "fact", "confidence": 90}],
    "entities": [{"name": "Berlin", "kind": "place"}],
    "relations": [],
}
PROSE = "Sure! You seem to live in Berlin."


def _pydantic_ai(answer: str) -> StructuredModel:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if answer == PROSE:
            return ModelResponse(parts=[TextPart(answer)])
        [tool] = info.output_tools
        return ModelResponse(parts=[ToolCallPart(tool.name, answer)])

    return tallystick_pydantic_ai.LearningModel(FunctionModel(respond, model_name="scripted"))


def _langchain(answer: str) -> StructuredModel:
    def answers() -> Any:
        while True:
            yield AIMessage(answer)

    return tallystick_langchain.LearningModel(GenericFakeChatModel(messages=answers()))


class _Llm(CustomLLM):
    text: str

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="scripted")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.text)

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        raise NotImplementedError


def _llama_index(answer: str) -> StructuredModel:
    return tallystick_llama_index.LearningModel(_Llm(text=answer))


each_runtime = pytest.mark.parametrize("make", [_pydantic_ai, _langchain, _llama_index])


@each_runtime
def test_a_model_extracts_in_a_recorded_step(
    open_sqlite: OpenTally, make: Callable[[str], StructuredModel]
) -> None:
    model = make(json.dumps(ANSWER))
    assert not model.declaration.local
    settings = Settings(learning="full")
    with open_sqlite(owner=ANNA, settings=settings, extractor=model) as tally:
        anna = tally.bind()
        stored = anna.remember("Well, I live in Berlin these days, as you know.")
        tally.drain()

        job = anna.operator.job(stored.job_id or "")
        assert (job.state, job.error_text) == ("done", None)
        assert "I live in Berlin." in {each.content for each in anna.memories()}
        [run] = anna.runs()
        assert run.agent_name == "tallystick-extract"
        assert anna.verify(run.run_id).ok


@each_runtime
def test_prose_where_a_record_was_asked_for_is_a_failure_and_never_empty(
    open_sqlite: OpenTally, make: Callable[[str], StructuredModel]
) -> None:
    settings = Settings(learning="full")
    with open_sqlite(owner=ANNA, settings=settings, extractor=make(PROSE)) as tally:
        anna = tally.bind()
        stored = anna.remember("I live in Berlin these days.")
        for _ in range(5):
            tally.drain()

        job = anna.operator.job(stored.job_id or "")
        assert (job.state, job.error_code) == ("failed", "extraction_error")
        assert [each.id for each in anna.memories()] == [stored.id]


def test_a_model_that_settings_name_needs_the_allow_list_unless_it_is_on_this_machine(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://localhost:11434/v1")
    far = Settings(learning="full", learning_models=("pydantic-ai:test",))
    with pytest.raises(SettingsError, match="learning_allow"):
        open_sqlite(owner=ANNA, settings=far)
    allowed = far.model_copy(update={"learning_allow": ("pydantic-ai:test",)})
    open_sqlite(owner=ANNA, settings=allowed).close()
    with pytest.raises(SettingsError, match="is no model"):
        open_sqlite(owner=ANNA, settings=Settings(learning="full", learning_models=("nobody:x",)))
