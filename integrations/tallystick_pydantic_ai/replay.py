"""A PydanticAI model as the `call` of `recordings.replay`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic_ai.models import Model

from tallystick.kit import check_model
from tallystick_pydantic_ai.messages import answer_of, arguments_of


def model_call(model: Model) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a `call` for `recordings.preview_replay(step_id, call=…)`: it sends the
    recorded request to `model` and returns the answer.
    """
    check_model(model, Model, "model_call(infer_model({}))")

    async def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        return answer_of(await model.request(*arguments_of(request)))

    def call(request: Mapping[str, Any]) -> dict[str, Any]:
        # On a loop of its own thread, so that it works whether or not the caller runs one.
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(lambda: asyncio.run(ask(request))).result()

    return call
