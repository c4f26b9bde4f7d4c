"""A PydanticAI model as the `call` of `recordings.replay`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_ai.models import Model

from tallystick.kit import check_model
from tallystick.kit.tapes import replay_call
from tallystick_pydantic_ai.messages import answer_of, arguments_of


def model_call(model: Model) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a `call` for `recordings.preview_replay(step_id, call=…)`: it sends the
    recorded request to `model` and returns the answer.
    """
    check_model(model, Model, "model_call(infer_model({}))")

    async def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        return answer_of(await model.request(*arguments_of(request)))

    return replay_call(ask)
