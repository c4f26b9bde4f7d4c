"""Errors of the runtimes' models, as their clients make them from real answers of HTTP: one refused
text holds up no other one, and an outage costs none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from llama_index.core.llms import (
    CompletionResponse,
    CompletionResponseGen,
    CustomLLM,
    LLMMetadata,
)
from llama_index.core.llms.callbacks import llm_completion_callback
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

import tallystick_langchain
import tallystick_llama_index
import tallystick_pydantic_ai
from tallystick import Actor, Tally
from tallystick.errors import ModelUnavailable
from tallystick.ports import StructuredModel
from tallystick.settings import Settings
from tallystick.tally.services import services_of

ANNA = Actor(user="anna", role="operator")
OpenTally = Callable[..., Tally]
ANSWER = json.dumps({"facts": [{"text": "I have boats.", "kind": "fact", "sure": 90}]})


class Service:
    """A service that answers over HTTP as a test tells it, without a network."""

    def __init__(self) -> None:
        self.status = 200
        self.refusal = 400
        """The status by which it answers a text with the word poison."""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        status = self.status
        if status == 200 and b"poison" in request.content:
            status = self.refusal
        if status != 200:
            return httpx2.Response(status, json={"error": {"message": "No."}})
        if request.url.path.endswith("/messages"):
            content: dict[str, Any] = {"content": [{"type": "text", "text": ANSWER}]}
            answer = {"type": "message", "role": "assistant", "stop_reason": "end_turn"} | content
            answer["usage"] = {"input_tokens": 1, "output_tokens": 1}
        else:
            message = {"role": "assistant", "content": ANSWER}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            answer = {"object": "chat.completion", "created": 1, "choices": [choice]}
        return httpx2.Response(200, json={"id": "1", "model": "m-1", **answer})


def _pydantic_ai_openai(service: Service) -> StructuredModel:
    client = openai.AsyncOpenAI(
        api_key="k",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(service)),
    )
    model = OpenAIChatModel("m-1", provider=OpenAIProvider(openai_client=client))
    return tallystick_pydantic_ai.LearningModel(model, structured_output=False)


def _pydantic_ai_anthropic(service: Service) -> StructuredModel:
    client = anthropic.AsyncAnthropic(
        api_key="k",
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(service)),
    )
    model = AnthropicModel("m-1", provider=AnthropicProvider(anthropic_client=client))
    return tallystick_pydantic_ai.LearningModel(model, structured_output=False)


class _ChatModel(BaseChatModel):
    """A chat model of LangChain on the client of OpenAI."""

    client: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        answer = self.client.chat.completions.create(
            model="m-1", messages=[{"role": "user", "content": each.text} for each in messages]
        )
        message = AIMessage(answer.choices[0].message.content)
        return ChatResult(generations=[ChatGeneration(message=message)])


def _langchain(service: Service) -> StructuredModel:
    client = openai.OpenAI(
        api_key="k",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(service)),
    )
    return tallystick_langchain.LearningModel(_ChatModel(client=client), structured_output=False)


class _Llm(CustomLLM):
    """An LLM of LlamaIndex on the client of Anthropic."""

    client: Any

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="m-1")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        answer = self.client.messages.create(
            model="m-1", max_tokens=99, messages=[{"role": "user", "content": prompt}]
        )
        return CompletionResponse(text=answer.content[0].text)

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        raise NotImplementedError


def _llama_index(service: Service) -> StructuredModel:
    client = anthropic.Anthropic(
        api_key="k",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(service)),
    )
    return tallystick_llama_index.LearningModel(_Llm(client=client), structured_output=False)


each_runtime = pytest.mark.parametrize(
    "make", [_pydantic_ai_openai, _pydantic_ai_anthropic, _langchain, _llama_index]
)


def states(tally: Tally) -> dict[str, int]:
    return dict(Counter(job.state for job in tally.bind(ANNA).jobs.list(kind="learn")))


@each_runtime
def test_one_refused_text_ends_and_holds_up_no_other(
    open_sqlite: OpenTally, make: Callable[[Service], StructuredModel]
) -> None:
    service = Service()
    settings = Settings(learning="review")
    with open_sqlite(owner=ANNA, settings=settings, learning_model=make(service)) as tally:
        anna = tally.bind()
        refused = anna.remember("I have poison.").job_id or ""
        for number in range(3):
            anna.remember(f"I have {number} boats.")
        tally.drain()
        tally.drain()
        assert states(tally) == {"done": 3, "dead": 1}
        job = anna.jobs.get(refused)
        assert (job.state, job.error_code) == ("dead", "model_refused")
        assert "status 400" in (job.error_text or "")


@each_runtime
@pytest.mark.parametrize(
    "status",
    [
        404,
        503,
        pytest.param(401, marks=pytest.mark.slow),
        pytest.param(429, marks=pytest.mark.slow),
    ],
)
def test_an_outage_fails_no_text(
    open_sqlite: OpenTally, make: Callable[[Service], StructuredModel], status: int
) -> None:
    service = Service()
    service.status = status
    settings = Settings(learning="review")
    with open_sqlite(owner=ANNA, settings=settings, learning_model=make(service)) as tally:
        for number in range(3):
            tally.bind().remember(f"I have {number} boats.")
        for _ in range(7):
            try:
                assert {each.state for each in tally.drain().failed} == {"retry_scheduled"}
            except ModelUnavailable:
                assert status != 404
        assert set(states(tally)) <= {"pending", "retry_scheduled"}
        [finding] = [each for each in tally.bind().operator.doctor() if each.check == "jobs"]
        assert finding.status == ("problem" if status in (401, 404) else "notice")
        service.status = 200
        services_of(tally).background.runner.run(drain=True)
        assert states(tally) == {"done": 3}
