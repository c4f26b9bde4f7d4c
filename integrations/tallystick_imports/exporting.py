"""A way out to other products: lines that they read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Literal

from tallystick.records import Memory
from tallystick.records._base import Json

ExportFormat = Literal["mem0", "langmem", "langgraph-store", "llama-index", "jsonl"]


def export_lines(memories: Iterable[Memory], format: ExportFormat, *, owner: str) -> Iterator[str]:
    """Yield memories as lines of JSON in the form in which `import_memories` reads them, and the
    other product what it takes: for mem0 the arguments of `add` without inference, for stores of
    LangGraph the arguments of `put`, for LlamaIndex messages.
    """
    for memory in memories:
        at = memory.occurred_at or memory.created_at
        facts: dict[str, Json] = {"kind": memory.kind, "tallystick_id": memory.id}
        if memory.tags:
            facts["tags"] = list(memory.tags)
        line: dict[str, Json]
        if format == "mem0":
            facts["created_at"] = memory.created_time.isoformat()
            line = {"messages": memory.content, "user_id": owner, "metadata": facts, "infer": False}
        elif format == "langgraph-store":
            value: Json = {"content": memory.content, **facts}
            line = {"namespace": ["memories", owner], "key": memory.id, "value": value}
        elif format == "langmem":
            item_value: Json = {"kind": "Memory", "content": {"content": memory.content, **facts}}
            line = {"namespace": ["memories", owner], "key": memory.id, "value": item_value}
        elif format == "llama-index":
            role = memory.speaker if memory.speaker in ("user", "assistant") else "user"
            block: Json = {"block_type": "text", "text": memory.content}
            line = {"key": memory.conversation or owner, "role": role, "blocks": [block]}
        else:
            line = {"content": memory.content, "user": owner, "occurred_at": at, **facts}
            if memory.conversation is not None:
                line |= {"conversation": memory.conversation, "speaker": memory.speaker}
        yield json.dumps(line, ensure_ascii=False)
