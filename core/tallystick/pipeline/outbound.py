"""Outbound: the one way to a provider of extraction, decisions and summaries.

It keeps what must stay here, takes secrets out and puts them back in, holds budgets, waits no
longer than a provider declares, writes a log without content, and records each call as a step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from tallystick.errors import (
    BudgetSpent,
    EgressDenied,
    ModelUnavailable,
    TallystickError,
)
from tallystick.memory.context import is_local_only
from tallystick.policy.redaction import Redactor, restored
from tallystick.ports import StructuredAnswer, TokenCounter, forbid_inside_transaction
from tallystick.recorder import RecorderContext, Recordings, Run
from tallystick.records import Actor, LearningBudget, Memory, ModelCost, ProviderDeclaration
from tallystick.storage import Store, outbound_calls
from tallystick.storage.outbound_calls import OutboundCall, Spent

__all__ = ["Answered", "Outbound", "OutboundSubject", "note_answer"]

T = TypeVar("T")

RUN_NAME = "tallystick-extract"
"""The name of the runs in which calls are recorded."""
_DAY = 24 * 3600 * 1_000_000
_answers: ContextVar[list[StructuredAnswer] | None] = ContextVar("tallystick_answers", default=None)


def note_answer(answer: StructuredAnswer) -> None:
    """Count the tokens of an answer for the call that is under way."""
    answers = _answers.get()
    if answers is not None:
        answers.append(answer)


@dataclass
class OutboundSubject:
    """The memory that calls are about, under whose authority, and the run that records them."""

    actor: Actor
    memory: Memory
    scope_id: int
    job_id: str | None = None
    run: Run | None = None

    def close(self) -> None:
        """End the run, if a call was made."""
        if self.run is not None:
            self.run.end(wait=False)
            self.run = None


class Answered(NamedTuple):
    """The result of a call, and where it is recorded."""

    value: Any
    run_id: str | None
    step_id: str | None
    model: str | None


class Hidden(NamedTuple):
    """A text as a provider may see it, and what its placeholders stand for."""

    text: str
    originals: dict[str, str]

    def restored(self, text: str) -> str:
        """Return a text of the provider's with what the placeholders stand for."""
        return restored(text, self.originals)


@dataclass(frozen=True)
class Outbound:
    """The way out of one tally. Thread-safe."""

    store: Store
    redactor: Redactor
    recorder: RecorderContext
    counter: Callable[[str | None], TokenCounter]
    budget: LearningBudget = field(default_factory=LearningBudget)
    cost: Callable[[str, str | None, Mapping[str, int]], ModelCost] | None = None
    """Returns what a call costs, by provider, model and usage."""

    def hidden(
        self, declaration: ProviderDeclaration, text: str, originals: dict[str, str] | None = None
    ) -> Hidden:
        """Return a text as a provider may see it: whole where it is local, else with placeholders
        for secrets, of which the map stays here.
        """
        kept: dict[str, str] = {} if originals is None else originals
        if declaration.local:
            return Hidden(text, kept)
        return Hidden(self.redactor.redact_text(text, originals=kept).text, kept)

    def call(
        self,
        purpose: str,
        declaration: ProviderDeclaration,
        subject: OutboundSubject,
        sent: Any,
        function: Callable[[], T],
        *,
        redacted: int = 0,
    ) -> Answered:
        """Call a provider once. Raises EgressDenied, BudgetSpent, ModelUnavailable or
        ExtractionError; what another error was, the log says.
        """
        forbid_inside_transaction(f"The provider {declaration.name}")
        if not declaration.local and is_local_only(subject.memory.attributes):
            raise EgressDenied(
                f"The memory stays on this machine, and {declaration.name} is not on it."
            )
        self._require_budget(subject)
        call_id, started_at = self.store.ids.new(), self.store.clock.now()
        characters = len(sent) if isinstance(sent, str) else len(str(sent))
        row = OutboundCall(
            id=call_id,
            scope_id=subject.scope_id,
            purpose=purpose,
            provider=declaration.name,
            model=declaration.model,
            local=declaration.local,
            subject_id=subject.memory.id,
            job_id=subject.job_id,
            at=started_at,
            characters=characters,
            redacted=redacted,
        )
        # Counted before it is made: a process that dies in the call has spent it.
        self.store.database.write(lambda tx: outbound_calls.add(tx, row), name="outbound.call")
        if subject.run is None:
            recordings = Recordings(self.recorder, subject.actor, counter=self.counter)
            subject.run = recordings.start_run(RUN_NAME, scope=subject.memory.scope)
        step = subject.run.step("model_call", name=purpose)
        step.record("request", {"input": sent}, summary={"provider": declaration.name})
        begun = time.monotonic()
        answers: list[StructuredAnswer] = []
        outcome, model = "answered", declaration.model
        try:
            value = _within(function, declaration, answers)
        except BaseException as error:
            outcome = error.code if isinstance(error, TallystickError) else type(error).__name__
            step.fail(error)
            if isinstance(error, TallystickError) or not isinstance(error, Exception):
                raise
            # A foreign error says what went wrong by its type: its message may repeat the text.
            raise ModelUnavailable(f"{declaration.name} raised {type(error).__name__}.") from error
        else:
            model = next((each.model for each in answers if each.model), model)
            usage = {
                "input_tokens": sum(each.input_tokens for each in answers),
                "output_tokens": sum(each.output_tokens for each in answers),
            }
            step.record(
                "response",
                {"answers": [each.value for each in answers] or _plain(value)},
                summary={"usage": usage, "cost": self._cost(declaration, model, usage).dump()},
            )
            step.end(wait=False)
            return Answered(value, step.run.id, step.id, model)
        finally:
            self._finish(call_id, declaration, model, answers, outcome, begun)

    def _finish(
        self,
        call_id: str,
        declaration: ProviderDeclaration,
        model: str | None,
        answers: list[StructuredAnswer],
        outcome: str,
        begun: float,
    ) -> None:
        usage = {
            "input_tokens": sum(each.input_tokens for each in answers),
            "output_tokens": sum(each.output_tokens for each in answers),
        }
        amount = self._cost(declaration, model, usage).amount
        micros = 0 if amount is None else round(float(amount) * 1_000_000)
        self.store.database.write(
            lambda tx: outbound_calls.finish(
                tx,
                call_id,
                outcome=outcome,
                model=model,
                input_tokens=usage["input_tokens"],
                output_tokens=usage["output_tokens"],
                micros=micros,
                duration_ms=round(1_000 * (time.monotonic() - begun)),
            ),
            name="outbound.finish",
        )

    def _cost(
        self, declaration: ProviderDeclaration, model: str | None, usage: Mapping[str, int]
    ) -> ModelCost:
        if self.cost is None or declaration.local:
            return ModelCost()
        return self.cost(declaration.name, model, usage)

    def _require_budget(self, subject: OutboundSubject) -> None:
        """Raise BudgetSpent where a limit is reached already: the call that reaches it is the last
        one.
        """
        budget, today = self.budget, self.store.clock.now() - _DAY
        if budget == LearningBudget():
            return
        with self.store.database.read() as connection:
            for name, spent in (
                ("per_job", outbound_calls.spent(connection, job_id=subject.job_id)),
                (
                    "per_scope_and_day",
                    outbound_calls.spent(connection, since=today, scope_id=subject.scope_id),
                ),
                ("per_day", outbound_calls.spent(connection, since=today)),
            ):
                if name == "per_job" and subject.job_id is None:
                    continue
                _require_within(budget, name, spent)


def _require_within(budget: LearningBudget, name: str, spent: Spent) -> None:
    for unit, count in zip(("calls", "tokens", "micros"), spent, strict=True):
        allowed = getattr(budget, f"{unit}_{name}")
        if allowed is not None and count >= allowed:
            raise BudgetSpent(f"learning_budget.{unit}_{name}", spent=count, allowed=allowed)


def _within(
    function: Callable[[], T], declaration: ProviderDeclaration, answers: list[StructuredAnswer]
) -> T:
    """Return what `function` returns, within the time that its provider declares.

    A call that does not come back is left in its thread, which ends with the process: nothing waits
    for it, and nothing that it returns is used.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        _answers.set(answers)
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            errors.append(error)

    thread = threading.Thread(
        target=copy_context().run, args=(work,), name="tallystick-provider", daemon=True
    )
    thread.start()
    thread.join(declaration.timeout_ms / 1_000)
    if errors:
        raise errors[0]
    if not results:
        raise ModelUnavailable(
            f"{declaration.name} did not answer within {declaration.timeout_ms} ms."
        )
    return results[0]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    dump = getattr(value, "dump", None)
    return dump() if callable(dump) else str(value)
