"""A recorded model call says who answered, with which model, why it ended and what it cost,
whatever runtime made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
)
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_chat_callback
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tallystick import Actor, Tally
from tallystick.tally import BoundTally
from tallystick_langchain import TallyCallbackHandler
from tallystick_llama_index import TallyInstrumentation
from tallystick_opentelemetry import Exporter
from tallystick_pydantic_ai import Tallystick

OpenTally = Callable[..., Tally]
ASKED, ANSWERED = "gpt-4o", "gpt-4o-2024-08-06"
USAGE = {"prompt_tokens": 1_000, "completion_tokens": 20, "total_tokens": 1_020}
BODY = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": ANSWERED,
    "choices": [
        {
            "index": 0,
            "finish_reason": "length",
            "message": {"role": "assistant", "content": "In the"},
        }
    ],
    "usage": USAGE,
}


class Chat(BaseChatModel):
    """Answers as LangChain's model of OpenAI does."""

    model: str = ASKED

    @property
    def _llm_type(self) -> str:
        return "chat"

    def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
        return {"ls_provider": "openai", "ls_model_type": "chat"}

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model}

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        message = AIMessage(
            "In the",
            response_metadata={"model_name": ANSWERED, "finish_reason": "length"},
            usage_metadata={"input_tokens": 1_000, "output_tokens": 20, "total_tokens": 1_020},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


class Llama(CustomLLM):
    """Answers as LlamaIndex's model of OpenAI does."""

    @classmethod
    def class_name(cls) -> str:
        return "openai_llm"

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True, model_name=ASKED)

    def to_payload(self) -> dict[str, Any]:
        return {"class_name": "openai_llm", "model": ASKED}

    @llm_chat_callback()
    def chat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=ChatMessage(role="assistant", content="In the"), raw=BODY)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        raise NotImplementedError

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError


def _langchain(bound: BoundTally) -> None:
    Chat().invoke("Where?", config={"callbacks": [TallyCallbackHandler(bound)]})


def _pydantic_ai(bound: BoundTally) -> None:
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=BODY))
    client = openai.AsyncOpenAI(
        api_key="sk-test", http_client=openai.DefaultAsyncHttpxClient(transport=transport)
    )
    model = OpenAIChatModel(ASKED, provider=OpenAIProvider(openai_client=client))
    Agent(model, capabilities=[Tallystick(bound)]).run_sync("Where?")


def _llama_index(bound: BoundTally) -> None:
    with TallyInstrumentation(bound):
        Llama().chat([ChatMessage(role="user", content="Where?")])


@pytest.mark.parametrize("play", [_langchain, _pydantic_ai, _llama_index])
def test_a_span_says_who_answered_and_why_it_ended(
    open_sqlite: OpenTally, play: Callable[[BoundTally], None]
) -> None:
    collected = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(collected))
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="anna"))
        with Exporter(bound, provider):
            play(bound)

    [call] = [span for span in collected.get_finished_spans() if span.name.startswith("chat")]
    said = call.attributes or {}
    # The oldest LlamaIndex says which class of models was asked.
    assert said.get("gen_ai.request.model") in (ASKED, "openai_llm")
    assert {
        name: said.get(name)
        for name in (
            "gen_ai.provider.name",
            "gen_ai.response.model",
            "gen_ai.response.finish_reasons",
            "gen_ai.usage.input_tokens",
            "tallystick.cost",
        )
    } == {
        "gen_ai.provider.name": "openai",
        "gen_ai.response.model": ANSWERED,
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 1_000,
        "tallystick.cost": "0.0027",
    }
