"""The places in which a call of LlamaIndex carries who acts: its instrument tags, and the store of
a workflow's context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.workflow import Context
from llama_index_instrumentation.dispatcher import active_instrument_tags

from tallystick.kit import Binder, RemoteBinder
from tallystick.kit.binder import IDENTITY_KEYS
from tallystick.records import CallContext


def call_of_tags(
    binder: Binder | RemoteBinder,
    *,
    tags: Mapping[str, Any] | None = None,
    session: str | None = None,
) -> CallContext:
    """Return the call that this code is in, by its tags: `with instrument_tags({"user_id": …})`."""
    own_tags: Mapping[str, Any] = active_instrument_tags.get() if tags is None else tags
    return binder.call(metadata=own_tags, session=session)


async def call_of_workflow(binder: Binder | RemoteBinder, ctx: Context | None) -> CallContext:
    """Same as `call_of_tags`, for a tool, which also gets the workflow's context."""
    # Early workflows have no store of that name: what is in them cannot be seen.
    store = getattr(ctx, "store", None)
    values = {}
    if store is not None:
        values = {key: await store.get(key, default=None) for key in IDENTITY_KEYS}
    named = {key: value for key, value in values.items() if value is not None}
    return binder.call(context=named or None, metadata=active_instrument_tags.get())
