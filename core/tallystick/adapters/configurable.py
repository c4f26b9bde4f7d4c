"""Actor and thread in the `configurable` of a RunnableConfig, LangChain's and LangGraph's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.records import Actor

__all__ = ["actor_from_configurable", "thread_from_configurable"]


def actor_from_configurable(config: Mapping[str, Any]) -> Actor | None:
    """Return the Actor under `actor` in `configurable`, or None."""
    actor = config.get("configurable", {}).get("actor")
    return actor if isinstance(actor, Actor) else None


def thread_from_configurable(config: Mapping[str, Any]) -> str | None:
    """Return the thread of a call: the session in the history of the memories that it changes."""
    thread = config.get("configurable", {}).get("thread_id")
    return None if thread is None else str(thread)
