"""Providers: the models that a tally learns by, and the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tallystick.errors import EgressDenied, ExtractionError
from tallystick.memory import MemoryContext
from tallystick.policy.permissions import is_local_only
from tallystick.ports import Learner
from tallystick.recorder.outbound import Answered, Outbound
from tallystick.records import Memory, ProviderDeclaration

R = TypeVar("R")


@dataclass(frozen=True)
class LearningContext:
    """How a tally learns: its learners in the order of preference."""

    memory: MemoryContext
    outbound: Outbound
    """What calls of providers go through."""
    learners: Sequence[Learner] = ()

    @property
    def is_near(self) -> bool:
        """True if one of them is on this machine."""
        return any(each.declaration.local for each in self.learners)

    @property
    def is_far(self) -> bool:
        """True if one of them is not on this machine."""
        return not all(each.declaration.local for each in self.learners)


@dataclass(frozen=True)
class LearnedBy:
    """Who drew a conclusion, for its history."""

    provider: str
    model: str | None = None
    prompt_version: str | None = None
    run_id: str | None = None
    step_id: str | None = None

    @classmethod
    def of(cls, declaration: ProviderDeclaration, answered: Answered) -> LearnedBy:
        """Return the names of a provider with the recorded call that it answered."""
        return cls(
            declaration.name,
            answered.model,
            declaration.prompt_version,
            answered.run_id,
            answered.step_id,
        )


def ask_first(learners: Sequence[Learner], memory: Memory, ask: Callable[[Learner], R]) -> R:
    """Return the answer of the first learner that may be given a memory and answers.

    Raises EgressDenied where none may be given it, else the error of the preferred one.
    """
    if is_local_only(memory.attributes):
        learners = [each for each in learners if each.declaration.local]
        if not learners:
            raise EgressDenied("The memory stays on this machine, and no learner is on it.")
    errors: list[ExtractionError] = []
    for learner in learners:
        try:
            return ask(learner)
        except ExtractionError as error:
            errors.append(error)
    # What is away may come back: then the preferred one is asked again.
    raise next((each for each in errors if each.retry == "until_back"), errors[0])
