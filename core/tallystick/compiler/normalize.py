"""Normalize: memories and tools become items, and all candidates get one order.

Items whose order is nothing stand by id, so that shuffled input gives the same bytes; messages keep
theirs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

from tallystick.compiler.state import CONVERSATION, State
from tallystick.records import ContextItem, JsonObject, Memory, Sensitivity, SourceRef, ToolSpec

_STEERING = frozenset({"hard", "blocking", "pinned"})
"""Tags that make an item required. A memory is pinned or hard by its own fields, never by what tags
say.
"""


def normalize(state: State) -> State:
    """Return the state with its candidates as items, in one order, and the time at which each
    expires.
    """
    request = state.request
    memories = {memory.id: memory for memory in request.memory_records}
    loose = [item for item in request.context_items if item.kind not in CONVERSATION]
    profile = frozenset(request.profile)
    loose += [
        _memory_item(
            memory,
            is_profile=memory.id in profile,
            chosen_as=request.chosen_as.get(memory.id),
        )
        for memory in request.memory_records
    ]
    loose += [_tool_item(spec) for spec in request.tool_specs]
    loose.sort(key=lambda item: item.id)
    messages = [item for item in request.context_items if item.kind in CONVERSATION]
    candidates = (*loose, *messages)
    return replace(
        state,
        candidates=candidates,
        memories=memories,
        tool_classes={
            f"tool:{spec.name}": (
                request.tool_classes.get(spec.name, spec.tool_class),
                spec.tool_class,
            )
            for spec in request.tool_specs
        },
        expiry={item.id: at for item in candidates if (at := _expiry(item, memories)) is not None},
    )


def _memory_item(memory: Memory, *, is_profile: bool, chosen_as: str | None) -> ContextItem:
    tags = set(memory.tags) - _STEERING
    if memory.pinned:
        tags.add("pinned")
    if is_profile:
        tags.add("profile")
    if memory.kind == "constraint" and memory.attributes.get("hard") is True:
        tags.add("hard")
    metadata: JsonObject = {"memory_kind": memory.kind, "version": memory.version}
    if memory.subject is not None:
        metadata["subject"] = memory.subject
    if memory.occurred_at is not None:
        metadata["occurred_at"] = memory.occurred_at
    if chosen_as is not None:
        metadata["chosen_as"] = chosen_as
    if memory.sources:
        metadata["source_ids"] = [source.source_id for source in memory.sources]
    freshness = memory.freshness_ts
    if freshness is None:
        freshness = memory.occurred_at if memory.occurred_at is not None else memory.updated_at
    return ContextItem(
        id=memory.id,
        kind="memory",
        content=memory.content,
        source_ref=SourceRef(
            source_type="memory",
            uri=f"memory:{memory.id}",
            version=str(memory.version),
            author=memory.speaker,
        ),
        created_at=memory.created_at,
        freshness_ts=freshness,
        ttl_seconds=None
        if memory.expires_at is None
        else max(0, (memory.expires_at - freshness) // 1_000_000),
        trust_score=memory.confidence,
        importance_score=memory.importance,
        sensitivity=_sensitivity(memory),
        scope=memory.scope,
        tags=frozenset(tags),
        metadata=metadata,
    )


def _sensitivity(memory: Memory) -> Sensitivity:
    named = memory.attributes.get("sensitivity")
    for level_name in get_args(Sensitivity):
        if named == level_name:
            level: Sensitivity = level_name
            return level
    return "internal"


def _tool_item(spec: ToolSpec) -> ContextItem:
    # Not canonical_json: a schema may hold floats and keys that are not ASCII.
    content = json.dumps(
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
        ensure_ascii=False,
        sort_keys=True,
        separators=(",", ":"),
    )
    return ContextItem(
        id=f"tool:{spec.name}",
        kind="tool_schema",
        content=content,
        source_ref=SourceRef(source_type="tool", title=spec.name),
        metadata={"tool_class": spec.tool_class} if spec.tool_class else {},
    )


def _expiry(item: ContextItem, memories: dict[str, Memory]) -> int | None:
    if item.kind == "memory" and (memory := memories.get(item.id)) is not None:
        return memory.expires_at
    if item.ttl_seconds is None:
        return None
    start = item.known_at
    if start is None:
        return 0 if item.ttl_seconds == 0 else None
    return start + item.ttl_seconds * 1_000_000
