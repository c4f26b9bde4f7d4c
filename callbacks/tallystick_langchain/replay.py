"""A LangChain chat model as the `call` of a replay, and its request as the `render`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable

from tallystick.kit import check_model
from tallystick.records import CompiledContext
from tallystick_langchain.messages import answer_of_message, request_of, to_messages
from tallystick_langchain.render import render


def chat_model_call(
    model: BaseChatModel | Runnable[Any, BaseMessage],
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a `call` for `recordings.preview_replay(step_id, call=…)`: it sends the
    recorded messages to `model` and returns the answer.
    """
    check_model(model, Runnable, "chat_model_call(init_chat_model({}))")

    def call(request: Mapping[str, Any]) -> dict[str, Any]:
        return answer_of_message(model.invoke(to_messages(request)))

    return call


def render_chat(compiled: CompiledContext) -> dict[str, Any]:
    """Return the request of a chat model for a compiled context, as it is recorded: the `render` of
    `recordings.replay(step_id, …, render=render_chat, call=chat_model_call(model))`.

    Raises InvalidContext for calls and results that do not pair.
    """
    request = request_of(render(compiled, {}).all, {})
    return {**request, "model": compiled.model}
