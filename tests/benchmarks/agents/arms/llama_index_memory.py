"""LlamaIndex with its own memory: a queue of messages, and blocks for what is pushed out of it.

https://developers.llamaindex.ai/python/framework/module_guides/deploying/agents/memory and
https://developers.llamaindex.ai/python/examples/memory/memory: one memory for each user, with a
vector block in Chroma and a block of facts, with the parameters of that page; the facts have the
priority 0, by which they are never left out.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import FactExtractionMemoryBlock, Memory, VectorMemoryBlock
from tests.benchmarks.agents.policy import Call, Message, reply
from tests.benchmarks.agents.world import BUDGET, INSTRUCTIONS, Say, SharedEmbeddings, World

TITLE = "LlamaIndex `Memory` with a vector and a fact block"


class Embedding(BaseEmbedding):
    """The embedder of every arm, as LlamaIndex takes it."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return SharedEmbeddings().embed_query(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return SharedEmbeddings().embed_query(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return SharedEmbeddings().embed_query(query)


@contextmanager
def opened(world: World) -> Iterator[Say]:
    """Give an agent with a memory for each user."""
    import chromadb
    from chromadb.config import Settings

    chroma: Any = importlib.import_module("llama_index.vector_stores.chroma")
    client = chromadb.PersistentClient(
        str(world.folder / "chroma"), Settings(anonymized_telemetry=False)
    )
    vectors = chroma.ChromaVectorStore(chroma_collection=client.get_or_create_collection("memory"))
    llm, upkeep = _llm(world), _llm(world, is_upkeep=True)
    memories: dict[str, Memory] = {}

    def memory_of(user: str) -> Memory:
        if user not in memories:
            memories[user] = Memory.from_defaults(
                session_id=user,
                token_limit=BUDGET,
                # A tenth, as by default: the number itself is meant for a limit of 30,000.
                token_flush_size=BUDGET // 10,
                memory_blocks=[
                    FactExtractionMemoryBlock(
                        name="extracted_info", llm=upkeep, max_facts=50, priority=0
                    ),
                    VectorMemoryBlock(
                        name="vector_memory",
                        vector_store=vectors,
                        embed_model=Embedding(),
                        priority=1,
                    ),
                ],
            )
        return memories[user]

    def say(user: str, thread: str, text: str) -> str:
        async def run() -> str:
            agent = FunctionAgent(
                tools=world.functions(), llm=llm, system_prompt=INSTRUCTIONS, streaming=False
            )
            return str(await agent.run(text, memory=memory_of(user)))

        return asyncio.run(run())

    yield say


def _llm(world: World, *, is_upkeep: bool = False) -> Any:
    """Return the model; every request is noted when it starts."""
    if world.model_name is None:
        return MockFunctionCallingLLM(
            response_generator=lambda messages, **options: _answer(
                world, messages, options, is_upkeep
            )
        )
    provider, _, name = world.model_name.partition(":")
    if provider == "anthropic":
        model: Any = importlib.import_module("llama_index.llms.anthropic").Anthropic
    else:
        model = importlib.import_module("llama_index.llms.openai").OpenAI
    from llama_index.core.callbacks import CallbackManager, CBEventType
    from llama_index.core.callbacks.base_handler import BaseCallbackHandler

    class Noting(BaseCallbackHandler):
        """Notes every request of this model."""

        def on_event_start(
            self, event_type: Any, payload: Any = None, *args: Any, **options: Any
        ) -> str:
            if event_type is CBEventType.LLM and payload and "messages" in payload:
                tools = (payload.get("additional_kwargs") or {}).get("tools") or []
                world.note(_written(payload["messages"], tools), is_upkeep=is_upkeep)
            return ""

        def on_event_end(self, *args: Any, **options: Any) -> None:
            """Nothing is noted of answers."""

        def start_trace(self, trace_id: str | None = None) -> None:
            """Traces are not noted."""

        def end_trace(self, *args: Any, **options: Any) -> None:
            """Traces are not noted."""

    return model(model=name, temperature=0, callback_manager=CallbackManager([Noting([], [])]))


def _answer(
    world: World, messages: Sequence[ChatMessage], options: dict[str, Any], is_upkeep: bool
) -> ChatMessage:
    tools = options.get("tools") or []
    schemas = [each.metadata.to_openai_tool() for each in tools]
    world.note(_written(messages, schemas), is_upkeep=is_upkeep)
    answer = reply(
        [_of_llama_index(message) for message in messages],
        [each["function"]["name"] for each in schemas],
    )
    blocks = [
        ToolCallBlock(
            tool_call_id=f"call-{len(messages)}-{n}",
            tool_name=call.name,
            tool_kwargs=dict(call.arguments),
        )
        for n, call in enumerate(answer.calls)
    ]
    if blocks:
        return ChatMessage(role="assistant", blocks=blocks)
    return ChatMessage(role="assistant", content=answer.text)


def _of_llama_index(message: ChatMessage) -> Message:
    calls = tuple(
        Call(block.tool_name, dict(block.tool_kwargs))
        for block in message.blocks
        if isinstance(block, ToolCallBlock) and isinstance(block.tool_kwargs, dict)
    )
    return Message(message.role.value, message.content or "", calls)


def _written(messages: Sequence[ChatMessage], tools: Sequence[Any]) -> str:
    said = []
    for message in messages:
        calls = [
            {"name": block.tool_name, "args": block.tool_kwargs}
            for block in message.blocks
            if isinstance(block, ToolCallBlock)
        ]
        written = f"\n{json.dumps(calls)}" if calls else ""
        said.append(f"{message.role.value}\n{message.content or ''}{written}")
    return "\n".join([json.dumps(list(tools)), *said])
