"""The six memory tools, once for every runtime: plain functions from a bound tally and arguments to
JSON values.

What they give to a model is data: memory text stands in fields of its own, under a notice that says
so, and with the source and the reason for each item. A refusal or a conflict is an answer that the
model can act on, not a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from tallystick.errors import Conflict, Denied, InvalidInput, NotFound
from tallystick.records import Change, Memory
from tallystick.records.framing import NOTICE
from tallystick.tally import BoundTally

__all__ = ["MEMORY_TOOLS", "NOTICE", "MemoryTool"]

P = ParamSpec("P")

Answer = dict[str, Any]
_CITE = f"{NOTICE} Cite them by id."


@dataclass(frozen=True)
class MemoryTool:
    """One tool as a runtime needs to know it."""

    name: str
    function: Callable[..., Answer]
    """Takes a BoundTally first; the rest are the arguments that the model gives."""
    changes: bool
    """Whether it changes or forgets what is there: then the runtime asks for approval."""

    @property
    def description(self) -> str:
        """What the model is told."""
        return (self.function.__doc__ or "").strip()


def _answers(
    function: Callable[Concatenate[BoundTally, P], Answer],
) -> Callable[Concatenate[BoundTally, P], Answer]:
    @wraps(function)
    def answering(bound: BoundTally, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        try:
            return function(bound, *args, **kwargs)
        except (Conflict, InvalidInput, NotFound) as error:
            return {"error": type(error).__name__, "message": str(error)}
        except Denied as error:
            return {"error": "Denied", "reason": error.reason, "message": str(error)}

    return answering


@_answers
def memory_search(bound: BoundTally, query: str, limit: int = 5) -> Answer:
    """Search long-term memory for what answers a question. Returns the best matches with their ids
    and sources.
    """
    found = bound.recall(query, limit=max(1, min(limit, 50)))
    shown = [
        {
            **_shown(hit.memory),
            "score": round(hit.score, 4),
            "visible_to": str(hit.visible_to),
            "reason": hit.reason,
            **({"holds_no_longer": True, "replaced_by": hit.replaced_by} if hit.history else {}),
        }
        for hit in found
    ]
    return {
        "notice": _CITE,
        "memories": shown,
        **({"warnings": list(found.warnings)} if found.warnings else {}),
    }


@_answers
def memory_store(
    bound: BoundTally, content: str, kind: str = "note", tags: list[str] | None = None
) -> Answer:
    """Store one statement in long-term memory, word for word. Kinds: note, fact, preference,
    decision, constraint.
    """
    stored = bound.remember(content, kind=kind, tags=tags or ())
    return {"memory_id": stored.memory_id, "status": stored.status}


@_answers
def memory_get(bound: BoundTally, memory_id: str) -> Answer:
    """Read one memory by its id."""
    return {"notice": _CITE, "memory": _shown(bound.get(memory_id))}


@_answers
def memory_list(bound: BoundTally, limit: int = 20, before: str | None = None) -> Answer:
    """List memories, newest first. Give the last id of a page as `before` to see older ones."""
    found = bound.memories(limit=max(1, min(limit, 100)), before=before)
    return {"notice": _CITE, "memories": [_shown(memory) for memory in found]}


@_answers
def memory_modify(
    bound: BoundTally, memory_id: str, content: str, reason: str, if_version: int
) -> Answer:
    """Correct the text of a memory. Give the version that you read as `if_version`, and why as
    `reason`.
    """
    return _changed(bound.modify(memory_id, content=content, reason=reason, if_version=if_version))


@_answers
def memory_forget(bound: BoundTally, memory_id: str, reason: str) -> Answer:
    """Take a memory out of recall, with the reason. A person can recover it for a while."""
    return _changed(bound.forget(memory_id, reason=reason))


MEMORY_TOOLS: Mapping[str, MemoryTool] = {
    function.__name__: MemoryTool(function.__name__, function, changes)
    for function, changes in (
        (memory_search, False),
        (memory_store, False),
        (memory_get, False),
        (memory_list, False),
        (memory_modify, True),
        (memory_forget, True),
    )
}
"""The tools by name, in the order in which they are offered."""


def _shown(memory: Memory) -> Answer:
    fields = {
        "id": memory.id,
        "version": memory.version,
        "kind": memory.kind,
        "text": memory.content,
        "who": memory.who,
        "tags": list(memory.tags),
        "source_ids": [source.source_id for source in memory.sources],
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}


def _changed(change: Change) -> Answer:
    return {
        "memory_id": change.memory_id,
        "status": change.status,
        "version": change.version,
        "state": change.state,
    }
