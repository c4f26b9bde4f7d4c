"""A model of PydanticAI that extracts and decides for a tally."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ContentFilterError, UnexpectedModelBehavior
from pydantic_ai.models import Model, infer_model
from pydantic_ai.usage import RunUsage

from tallystick.kit.providers import declare
from tallystick.ports import StructuredAnswer
from tallystick.records import ProviderDeclaration


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


class LearningModel:
    """A model for `Tally.open(learning_model=…)`: an instance of PydanticAI's, or a name such
    as `openai:gpt-5-mini`. Thread-safe.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        local: bool | None = None,
        timeout_ms: int = 30_000,
        longest_text: int = 100_000,
        longest_answer: int = 16_000,
        structured_output: bool = True,
    ) -> None:
        self._model = infer_model(model)
        # One loop for all calls: connections that a client keeps belong to the loop that made them.
        self._loop = asyncio.new_event_loop()
        threading.Thread(
            target=_run, args=(self._loop,), name="tallystick-learning-loop", daemon=True
        ).start()
        weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)
        self.declaration: ProviderDeclaration = declare(
            self._model.system,
            self._model.model_name,
            address=self._model.base_url,
            local=local,
            timeout_ms=timeout_ms,
            longest_text=longest_text,
            longest_answer=longest_answer,
            structured_output=structured_output,
        )

    def answer(self, instructions: str, text: str, schema: type[BaseModel]) -> StructuredAnswer:
        """Return the model's record, or its text where it gives none by declaration; an answer that
        is neither has no value. Raises what the model's client raises.
        """
        agent: Agent[None, Any] = Agent(
            self._model,
            output_type=schema if self.declaration.structured_output else str,
            instructions=instructions,
            retries=0,
        )
        usage = RunUsage()
        try:
            result = asyncio.run_coroutine_threadsafe(
                agent.run(text, usage=usage), self._loop
            ).result()
        except ContentFilterError:
            raise
        except UnexpectedModelBehavior:
            return StructuredAnswer(
                None, self._model.model_name, usage.input_tokens, usage.output_tokens
            )
        output = result.output
        return StructuredAnswer(
            output.model_dump(mode="json") if isinstance(output, BaseModel) else output,
            self._model.model_name,
            usage.input_tokens,
            usage.output_tokens,
        )
