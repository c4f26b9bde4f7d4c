"""The config of a call of LangChain or LangGraph: where it carries who acts, and its session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.adapters.binder import PREGEL_RUNTIME, Binder
from tallystick.records import CallContext

__all__ = ["call_of_config", "session_of"]

_SESSION = ("thread_id", "session_id", "conversation_id")


def call_of_config(
    binder: Binder, config: Mapping[str, Any], *, context: Any = None
) -> CallContext:
    """Return the call that a config belongs to; `context` is LangGraph's runtime context, where
    the piece is given it apart from the config.
    """
    configurable = config.get("configurable") or {}
    metadata = config.get("metadata") or {}
    if context is None:
        context = getattr(configurable.get(PREGEL_RUNTIME), "context", None)
    return binder.call(
        configurable=configurable,
        context=context,
        metadata=metadata,
        session=session_of(metadata) or session_of(configurable),
    )


def session_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the thread, session or conversation of a call, as its history names it."""
    return next((str(metadata[name]) for name in _SESSION if metadata.get(name)), None)
