"""The config of a call of LangChain or LangGraph: where it carries who acts, its session, and the
namespace of its items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.errors import InvalidInput
from tallystick.kit.binder import PREGEL_RUNTIME, Binder
from tallystick.kit.remote_binder import RemoteBinder
from tallystick.records import Actor, CallContext

_SESSION = ("thread_id", "session_id", "conversation_id")


def call_of_config(
    binder: Binder | RemoteBinder, config: Mapping[str, Any], *, context: Any = None
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


def namespace_for(
    template: Sequence[str] | None, call: CallContext, actor: Actor
) -> tuple[str, ...] | None:
    """Return the namespace of a call: a label such as `{user_id}` is that key of `configurable`,
    and where it has none, `user_id` and `langgraph_user_id` are the acting user.

    Raises InvalidInput for a key that the call does not have: no label is ever left open.
    """
    if template is None:
        return None
    return tuple(_label(label, call, actor) for label in template)


def _label(label: str, call: CallContext, actor: Actor) -> str:
    if not (label.startswith("{") and label.endswith("}")):
        return label
    key = label[1:-1]
    value = call.configurable.get(key)
    if value is None and key in ("user_id", "langgraph_user_id"):
        value = actor.user
    if value is None:
        raise InvalidInput(f"The namespace needs {key!r}, which `configurable` does not have.")
    return str(value)
