"""The places in which a PydanticAI run carries who acts, and its conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai import RunContext

from tallystick.kit import Binder, RemoteBinder
from tallystick.kit.binder import id_text
from tallystick.records import CallContext


def call_of_run(binder: Binder | RemoteBinder, ctx: RunContext[Any]) -> CallContext:
    """Return the call that a run belongs to: its dependencies, its metadata and its conversation,
    which is the session in the history of the memories that it changes.
    """
    conversation = getattr(ctx, "conversation_id", None)
    metadata = getattr(ctx, "metadata", None)
    return binder.call(
        deps=ctx.deps,
        metadata=metadata if isinstance(metadata, Mapping) else {},
        session=id_text(conversation) or None,
    )
