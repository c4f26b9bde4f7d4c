"""A LlamaIndex model as the `call` of `recordings.replay`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.base.llms.base import BaseLLM

from tallystick.kit import check_model
from tallystick_llama_index.messages import answer_of, to_messages
from tallystick_llama_index.models import suspend_recording


def llm_call(llm: BaseLLM) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a `call` for `recordings.preview_replay(step_id, call=…)`: it sends the
    recorded request to `llm` and returns the answer.

    It is no step of any run, also while a `TallyInstrumentation` is attached.
    """
    check_model(llm, BaseLLM, "llm_call(OpenAI(…))")

    def call(request: Mapping[str, Any]) -> dict[str, Any]:
        options = {
            **request["parameters"],
            **({"tools": request["tools"]} if request["tools"] else {}),
        }
        with suspend_recording():
            if "messages" in request:
                return answer_of(llm.chat(to_messages(request), **options))
            return answer_of(llm.complete(request["prompt"], **options))

    return call
