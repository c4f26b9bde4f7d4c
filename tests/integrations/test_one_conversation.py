"""One conversation through four runtimes: the same items are chosen, whatever the runtime calls its
messages.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tallystick.compiler import (
    FRAMED,
    compile_context,
    latest_request,
    prepare,
    searchable_texts,
    visible_items,
)
from tallystick.embedding import StaticEmbedder
from tallystick.ranking import WorkingSets
from tallystick.records import CompilationRequest, ContextItem
from tallystick.tokens import counter_for
from tallystick_langchain.render import items_of as from_langchain
from tallystick_llama_index.render import read_request as from_llama_index
from tallystick_pydantic_ai.render import read_request

COUNTER = counter_for(None, cache_dir=Path())
TURNS: list[tuple[str, str]] = [("system", "You weigh boats.")]
for number in range(30):
    TURNS += [
        ("user", f"Tell me of boat {number}."),
        ("call", f"c{number}"),
        ("result", f"c{number}"),
    ]
    TURNS += [
        ("assistant", f"Boat {number} weighs {number} tons and is moored at berth {number * 7}.")
    ]
TURNS += [("user", "Which boat is moored at berth 49?")]


def _langchain_message(kind: str, text: str) -> BaseMessage:
    if kind == "call":
        return AIMessage("", tool_calls=[{"name": "weigh", "args": {"boat": text}, "id": text}])
    if kind == "result":
        return ToolMessage(f"{text}: tons", tool_call_id=text)
    plain: dict[str, type[BaseMessage]] = {
        "system": SystemMessage,
        "user": HumanMessage,
        "assistant": AIMessage,
    }
    return plain[kind](content=text)


def _langchain() -> list[ContextItem]:
    messages = [_langchain_message(kind, text) for kind, text in TURNS]
    return [item for item, _ in from_langchain(messages, COUNTER.count).values()]


def _pydantic_ai_message(kind: str, text: str) -> ModelMessage:
    if kind == "call":
        return ModelResponse(parts=[ToolCallPart("weigh", {"boat": text}, text)])
    if kind == "assistant":
        return ModelResponse(parts=[TextPart(text)])
    if kind == "result":
        return ModelRequest(parts=[ToolReturnPart("weigh", f"{text}: tons", text)])
    return ModelRequest(
        parts=[SystemPromptPart(text) if kind == "system" else UserPromptPart(text)]
    )


def _pydantic_ai() -> list[ContextItem]:
    messages = [_pydantic_ai_message(kind, text) for kind, text in TURNS]
    return read_request(messages, None, COUNTER.count).items


def _llama_index_message(kind: str, text: str) -> ChatMessage:
    if kind == "call":
        block = getattr(types, "ToolCallBlock", None)
        if block is not None:
            call_block = block(tool_call_id=text, tool_name="weigh", tool_kwargs={"boat": text})
            return ChatMessage(role=MessageRole.ASSISTANT, blocks=[call_block])
        function = {"name": "weigh", "arguments": json.dumps({"boat": text})}
        attributes = {"tool_calls": [{"id": text, "type": "function", "function": function}]}
        return ChatMessage(role=MessageRole.ASSISTANT, additional_kwargs=attributes)
    if kind == "result":
        return ChatMessage(
            f"{text}: tons", role=MessageRole.TOOL, additional_kwargs={"tool_call_id": text}
        )
    return ChatMessage(text, role=MessageRole(kind))


def _llama_index() -> list[ContextItem]:
    messages = [_llama_index_message(kind, text) for kind, text in TURNS]
    return from_llama_index(messages, count=COUNTER.count).items


def _digests(items: list[ContextItem], budget: int) -> list[str | None]:
    request = CompilationRequest(
        request_id="r", context_items=tuple(items), token_budget=budget, as_of=1, target=FRAMED
    )
    seen = visible_items(prepare(request))
    query = latest_request(seen, request)
    assert query is not None
    relevance = WorkingSets(StaticEmbedder()).relevance(
        query, searchable_texts(seen, request), now=1
    )
    compiled = compile_context(request.model_copy(update={"relevance": relevance}), counter=COUNTER)
    assert any(
        "berth 49" in item.content and item.kind == "assistant_msg"
        for item in compiled.selected_items
    )
    return [item.stable_hash for item in compiled.selected_items]


@pytest.mark.parametrize("budget", [300, 600, 1_200])
def test_the_same_conversation_compiles_to_the_same_items_in_every_runtime(budget: int) -> None:
    """LangGraph's messages are LangChain's."""
    digests = [_digests(items, budget) for items in (_langchain(), _pydantic_ai(), _llama_index())]
    assert digests[0] == digests[1] == digests[2]
    assert len(digests[0]) > 3
