"""What the scripts have in common: a tally, scripted models, and promises that are checked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tallystick import Tally
from tallystick.tally import BoundTally


@contextmanager
def opened_tally() -> Iterator[Tally]:
    """Yield a tally in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, Tally.open(folder) as tally:
        yield tally


def promise(sentence: str, *facts: Any) -> None:
    """Print a sentence that holds: each fact is true, or a pair of equals.

    Raises AssertionError.
    """
    for fact in facts:
        if isinstance(fact, tuple):
            assert fact[0] == fact[1], f"{sentence}\n{fact[0]!r}\nis not\n{fact[1]!r}"
        else:
            assert fact, f"{sentence} {fact!r}"
    print(sentence, flush=True)


def steps_of(bound: BoundTally, place: int = 0) -> list[tuple[str, str | None, str | None, str]]:
    """Return the steps of a run, the newest first: kind, name, name of the parent, status."""
    run = bound.recordings.runs()[place]
    steps = bound.recordings.steps(run.id)
    names = {step.id: step.name for step in steps}
    return [
        (step.step_kind, step.name, names.get(step.parent_step_id or ""), step.status)
        for step in steps
    ]


def verifies(bound: BoundTally) -> bool:
    """Return True if the receipts of every run match what is stored."""
    return all(bound.recordings.verify(run.id).ok for run in bound.recordings.runs())


def scripted_chat_model(*answers: Any) -> Any:
    """Return a chat model of LangChain that plays its answers: texts, and calls as (name, args)."""
    from langchain_core.language_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    class Scripted(GenericFakeChatModel):
        asked: list[str] = []

        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

        def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
            self.asked.append("\n".join(str(message.text) for message in messages))
            return super()._generate(messages, *args, **options)

    def message(place: int, answer: Any) -> AIMessage:
        if isinstance(answer, str):
            return AIMessage(answer)
        name, arguments = answer
        call = {"name": name, "args": arguments, "id": f"call_{place}"}
        return AIMessage("", tool_calls=[call])

    return Scripted(messages=iter([message(*pair) for pair in enumerate(answers)]), asked=[])
