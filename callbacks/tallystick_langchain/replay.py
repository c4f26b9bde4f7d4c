"""A LangChain chat model as the `call` of `recordings.replay`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable

from tallystick.adapters import check_model
from tallystick_langchain.messages import answer_of_message, to_messages

__all__ = ["chat_model_call"]


def chat_model_call(
    model: BaseChatModel | Runnable[Any, BaseMessage],
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a `call` for `recordings.replay(step_id, call=…)`: it sends the recorded messages to
    `model` and returns the answer.
    """
    check_model(model, Runnable, "chat_model_call(init_chat_model({}))")

    def call(request: Mapping[str, Any]) -> dict[str, Any]:
        return answer_of_message(model.invoke(to_messages(request)))

    return call
