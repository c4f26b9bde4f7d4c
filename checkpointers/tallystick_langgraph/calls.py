"""Calls of LangGraph: who acts in one, the place that its config names, and the configs that are
handed out, which go on naming who acts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from langchain_core.runnables import RunnableConfig

from tallystick.errors import InvalidInput
from tallystick.kit import Binder, RemoteBinder
from tallystick.kit.binder import IDENTITY_KEYS, call_of_config, principal_mismatch
from tallystick.records import CallContext, is_storable

_CHECKPOINTER = "__pregel_checkpointer"
"""Key of `configurable` that LangGraph fills where it asks for the state of a subgraph."""
_AUTHENTICATED = "langgraph_auth_user_id"
"""Key of `configurable` in which LangGraph's server names the user of a run."""


class HandedThread(str):
    """The id of a thread in a config that was handed out, with the names that this carries.

    LangGraph makes the config for the state of a subgraph anew, of this value alone.
    """

    names: Mapping[str, Any]


def call_of(binder: Binder | RemoteBinder, config: Mapping[str, Any] | None) -> CallContext:
    """Return the call that a config belongs to, None for a call with ids alone; in a server of
    LangGraph with the user whom its authentication names.

    Raises Denied with `principal_mismatch` where the config names another user of the server.
    """
    call = call_of_config(binder, config or {})
    user = authenticated_user()
    if user is None:
        return call
    named = call.configurable.get(_AUTHENTICATED)
    if named not in (None, "", user):
        raise principal_mismatch(
            call,
            f"the server's authentication names {user}, and configurable.{_AUTHENTICATED} names "
            f"another actor ({named}).",
        )
    return replace(call, configurable={**call.configurable, _AUTHENTICATED: user})


def authenticated_user() -> str | None:
    """Return the user whom the authentication of LangGraph's server names for the request or the
    run under way; None without one, and outside of a server.
    """
    # Only the process of a server has it, and only there is something to ask.
    server = sys.modules.get("langgraph_api.utils")
    context = None if server is None else server.get_auth_ctx()
    return None if server is None or context is None else server.get_user_id(context.user) or None


def named_config(config: RunnableConfig) -> RunnableConfig:
    """Return a config with the names that LangGraph dropped where it made that of a subgraph."""
    configurable = config.get("configurable", {})
    thread = configurable.get("thread_id")
    if not isinstance(thread, HandedThread) or _CHECKPOINTER not in configurable:
        return config
    if any(configurable.get(key) for key in IDENTITY_KEYS):
        return config
    names: Mapping[str, Any] = thread.names.get("configurable", {})
    named: Any = {**thread.names, **config, "configurable": {**names, **configurable}}
    return cast(RunnableConfig, named)


def handed_out(
    names: Mapping[str, Any], thread: str, namespace: str, checkpoint_id: str
) -> RunnableConfig:
    """Return the config of a checkpoint; `names` are the entries that name who acts."""
    place: dict[str, Any] = {
        "thread_id": thread,
        "checkpoint_ns": namespace,
        "checkpoint_id": checkpoint_id,
    }
    if not names:
        return {"configurable": place}
    place["thread_id"] = handed = HandedThread(thread)
    handed.names = names
    config: Any = {**names, "configurable": {**names["configurable"], **place}}
    # The place is that of this checkpoint alone.
    config["configurable"].pop("checkpoint_map", None)
    return cast(RunnableConfig, config)


def place_of(config: RunnableConfig) -> tuple[str, str]:
    """Return the thread and the namespace that a config names. Raises InvalidInput."""
    configurable = config.get("configurable", {})
    if "thread_id" not in configurable:
        raise InvalidInput(
            "This call names no thread. Pass config={'configurable': {'thread_id': …}}."
        )
    return thread_named(configurable["thread_id"]), str(configurable.get("checkpoint_ns") or "")


def thread_named(thread_id: object) -> str:
    """Return the id of a thread as text. Raises InvalidInput for one that no database stores."""
    text = str(thread_id)
    if not is_storable(text):
        raise InvalidInput(
            "`thread_id` holds a NUL or half a character, which no id has.", argument="thread_id"
        )
    return text


def checkpoint_id_of(config: RunnableConfig | None) -> str | None:
    """Return the checkpoint that a config names; None, and so the latest, for an empty id."""
    id = config.get("configurable", {}).get("checkpoint_id") if config else None
    return str(id) if id else None
