"""Models of the runtimes that learn for a tally, each behind the same port."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from llama_index.core.llms import (
    CompletionResponse,
    CompletionResponseGen,
    CustomLLM,
    LLMMetadata,
    MockLLM,
)
from llama_index.core.llms.callbacks import llm_completion_callback
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import tallystick_langchain
import tallystick_llama_index
import tallystick_pydantic_ai
from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, SettingsError
from tallystick.ports import StructuredModel
from tallystick.settings import Settings
from tallystick.tally.services import services_of

ANNA = Actor(user="anna", role="operator")
OpenTally = Callable[..., Tally]
ANSWER = {
    "facts": [{"text": "I live in Berlin.", "kind": "fact", "sure": 90, "turn": "t1"}],
    "names": [{"name": "Berlin", "kind": "place"}],
    "relations": [],
}
PROSE = "Sure! You seem to live in Berlin."


class ModelSchema(BaseModel):
    """A record that a model is asked for."""

    said: str


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

    model = GenericFakeChatModel(messages=answers())
    return tallystick_langchain.LearningModel(model, structured_output=False)


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
    settings = Settings(learning="review")
    with open_sqlite(owner=ANNA, settings=settings, learning_model=model) as tally:
        anna = tally.bind()
        stored = anna.remember("Well, I live in Berlin these days, as you know.")
        tally.drain()

        job = anna.jobs.get(stored.job_id or "")
        assert (job.state, job.error_text) == ("done", None)
        [proposal] = anna.reviews.list()
        assert proposal.content is not None
        assert proposal.content.content == "I live in Berlin."
        [run] = anna.recordings.runs()
        assert run.agent_name == "tallystick-extract"
        assert anna.recordings.verify(run.id).ok


@pytest.mark.parametrize(
    "make",
    [
        lambda **given: tallystick_pydantic_ai.LearningModel("test", **given),
        lambda **given: tallystick_langchain.LearningModel(
            GenericFakeChatModel(messages=iter(())), **{"structured_output": False, **given}
        ),
        lambda **given: tallystick_llama_index.LearningModel(MockLLM(), **given),
    ],
)
def test_a_model_of_each_runtime_declares_its_limits_alike(
    make: Callable[..., StructuredModel],
) -> None:
    given = {
        "timeout_ms": 9,
        "longest_text": 200,
        "structured_output": False,
        "local": True,
    }
    declared = make(**given).declaration
    assert {name: getattr(declared, name) for name in given} == given
    with pytest.raises(InvalidInput, match="timeout_ms"):
        make(timeout_ms=0)


def test_a_model_without_structured_output_is_asked_for_its_text() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert not info.output_tools
        return ModelResponse(parts=[TextPart(PROSE)])

    for model in (
        tallystick_pydantic_ai.LearningModel(FunctionModel(respond), structured_output=False),
        tallystick_langchain.LearningModel(
            GenericFakeChatModel(messages=iter([AIMessage(PROSE)])), structured_output=False
        ),
        tallystick_llama_index.LearningModel(_Llm(text=PROSE), structured_output=False),
    ):
        answer = model.answer("Extract.", "I live in Berlin.", ModelSchema)
        assert answer.value == PROSE


def test_a_chat_model_that_cannot_answer_with_a_record_is_refused_when_it_is_given() -> None:
    with pytest.raises(InvalidInput, match=r"GenericFakeChatModel.*structured_output=False"):
        tallystick_langchain.LearningModel(GenericFakeChatModel(messages=iter(())))


def test_tokens_of_an_answer_that_is_no_record_are_passed_on() -> None:
    answer = _pydantic_ai(PROSE).answer("Extract.", "I live in Berlin.", ModelSchema)
    assert answer.value is None
    assert answer.input_tokens > 0
    assert answer.output_tokens > 0


@each_runtime
def test_prose_where_a_record_was_asked_for_is_a_failure_and_never_empty(
    open_sqlite: OpenTally, make: Callable[[str], StructuredModel]
) -> None:
    settings = Settings(learning="review")
    with open_sqlite(owner=ANNA, settings=settings, learning_model=make(PROSE)) as tally:
        anna = tally.bind()
        stored = anna.remember("I live in Berlin these days.")
        for _ in range(5):
            tally.drain()

        job = anna.jobs.get(stored.job_id or "")
        assert (job.state, job.error_code) == ("failed", "extraction_error")
        assert [each.id for each in anna.memories()] == [stored.id]


def test_a_model_that_settings_name_needs_the_allow_list_unless_it_is_on_this_machine(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://localhost:11434/v1")
    far = Settings(learning="review", learning_model=("pydantic-ai:test",))
    with pytest.raises(SettingsError, match="remote_allow"):
        open_sqlite(owner=ANNA, settings=far)
    allowed = far.model_copy(update={"remote_allow": ("pydantic-ai:test",)})
    open_sqlite(owner=ANNA, settings=allowed).close()
    with pytest.raises(SettingsError, match="is no model"):
        open_sqlite(owner=ANNA, settings=Settings(learning="review", learning_model=("nobody:x",)))


class _Ollama(GenericFakeChatModel):
    """A chat model that is made by its name, as those of LangChain's packages are."""

    model: str
    base_url: str = "http://localhost:11434"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


class _LlamaOllama(MockLLM):
    """An LLM that is made by its name, as those of LlamaIndex's packages are."""

    def __init__(self, model: str) -> None:
        super().__init__(max_tokens=9)
        self._base = "http://localhost:11434" if model == "near" else "http://far.example"

    @property
    def base_url(self) -> str:
        return self._base


def test_settings_name_models_of_each_runtime(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    langchain, llama_index = ModuleType("langchain_ollama"), ModuleType("llama_index.llms.scripted")
    langchain.ChatOllama = lambda **given: _Ollama(messages=iter(()), **given)  # type: ignore[attr-defined]
    llama_index.__all__, llama_index.Scripted = ["Scripted"], _LlamaOllama  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "langchain_ollama", langchain)
    monkeypatch.setitem(sys.modules, "llama_index.llms.scripted", llama_index)
    for name in ("langchain:ollama:qwen3", "llama-index:scripted:near"):
        named = Settings(learning="review", graph=True, learning_model=(name,), summary_model=name)
        with open_sqlite(owner=ANNA, settings=named) as tally:
            learning = services_of(tally).memory.models
            assert learning.summarizer is not None
            assert learning.learners[0].declaration == learning.summarizer.declaration
            assert learning.learners[0].declaration.local
    far = Settings(graph=True, summary_model="llama-index:scripted:far")
    with pytest.raises(SettingsError, match=r"summary_model: .*remote_allow"):
        open_sqlite(owner=ANNA, settings=far)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("llama-index:no_such:x", "pip install llama-index-llms-no-such"),
        ("llama-index:ollama", "PROVIDER:MODEL"),
        ("langchain:no_such:x", "langchain says"),
        ("pydantic-ai:no_such:x", "pydantic-ai says"),
    ],
)
def test_a_name_that_a_runtime_cannot_make_is_refused_with_its_reason(
    open_sqlite: OpenTally, name: str, told: str
) -> None:
    with pytest.raises(SettingsError, match=told):
        open_sqlite(owner=ANNA, settings=Settings(learning="review", learning_model=(name,)))


def test_a_summary_model_far_away_is_refused_too(open_sqlite: OpenTally) -> None:
    with pytest.raises(SettingsError, match="remote_allow"):
        open_sqlite(owner=ANNA, settings=Settings(summary_model="pydantic-ai:test"))
