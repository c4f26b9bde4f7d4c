"""Outbound: the one way to a provider of extraction, decisions and summaries.

It keeps what must stay here, takes secrets out and puts them back in, holds budgets, waits no
longer than a provider declares, writes a log without content, and records each call as a step.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from tallystick.errors import (
    BudgetSpent,
    EgressDenied,
    ExtractionError,
    ModelFailed,
    ModelUnavailable,
    TallystickError,
)
from tallystick.logs import log_operation
from tallystick.policy.permissions import is_local_only
from tallystick.policy.redaction import Redactor, restored
from tallystick.ports import (
    StructuredAnswer,
    StructuredModel,
    TokenCounter,
    forbid_inside_transaction,
)
from tallystick.provider_errors import MODEL, sort_error
from tallystick.recorder import RecorderContext, Run
from tallystick.recorder.payloads import seal
from tallystick.records import (
    Actor,
    CallBudget,
    LearningBudget,
    Memory,
    ModelCost,
    OutboundCall,
    ProviderDeclaration,
)
from tallystick.storage import Connection, Store
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import outbound_calls, scopes
from tallystick.storage.rows.recordings import READS

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

RUN_NAME = "tallystick-extract"
"""The name of the runs in which calls are recorded."""
_PROMPT_VERSION = "3"
_TRIES = 2
_DAY = 24 * 3600 * 1_000_000
_PURPOSES = ("learn", "summarize", "draft")
_WRITES = Writes.of("outbound")
"""Calls are counted one after the other, in all processes: a limit is read and used in one turn,
and a call that could share the end of one of tokens or money waits for those that are under way.
"""
_exchange: ContextVar[_Exchange | None] = ContextVar("tallystick_exchange", default=None)


def note_request(text: str, *, again: bool) -> None:
    """Note what a model is asked within the call that is under way; `again` counts another call.
    Raises BudgetSpent where no further one is allowed, and ModelUnavailable where nothing waits for
    its answer any more.
    """
    exchange = _exchange.get()
    if exchange is not None:
        exchange.note_request(text, again=again)


def note_answer(answer: StructuredAnswer) -> None:
    """Count the tokens of an answer for the call that is under way."""
    exchange = _exchange.get()
    if exchange is not None:
        exchange.answers.append(answer)


@dataclass
class OutboundSubject:
    """The memory that calls are about, under whose authority, and the run that records them."""

    actor: Actor
    memory: Memory
    scope_id: int
    job_id: str | None = None
    others: Sequence[str] = ()
    """Ids of further memories that are sent."""
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

    def restore(self, text: str) -> str:
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
    keep_placeholders: bool = False
    """True if what placeholders stand for is recorded, sealed, beside the request."""
    declarations: Sequence[ProviderDeclaration] = ()
    """Of the providers that calls are made to: how long they may take, and what they may answer."""

    def hide(
        self, declaration: ProviderDeclaration, text: str, originals: dict[str, str] | None = None
    ) -> Hidden:
        """Return a text as a provider may see it: whole where it is local, else with placeholders
        for secrets and personal data, of which the map stays here.
        """
        mapping: dict[str, str] = {} if originals is None else originals
        if declaration.local:
            return Hidden(text, mapping)
        return Hidden(self.redactor.redact_text(text, originals=mapping).text, mapping)

    def call(
        self,
        purpose: str,
        declaration: ProviderDeclaration,
        subject: OutboundSubject,
        sent: Any,
        function: Callable[[], T],
        *,
        originals: Mapping[str, str],
    ) -> Answered:
        """Return what a provider answers; where it asks its model again, that is a call of its own.
        `originals` is what the placeholders in `sent` stand for. Tokens that it does not report are
        estimated. Raises EgressDenied, BudgetSpent,
        ModelUnavailable, ModelRefused, ModelFailed or ExtractionError, whatever the provider
        raised; what it was, the log says.
        """
        forbid_inside_transaction(f"The provider {declaration.name}")
        if not declaration.local and is_local_only(subject.memory.attributes):
            raise EgressDenied(
                f"The memory stays on this machine, and {declaration.name} is not on it."
            )
        exchange = _Exchange(self, purpose, declaration, subject, sent, originals)
        exchange.begin()
        try:
            value, error = _within(function, declaration, exchange)
        except BaseException as interruption:
            exchange.close(error=interruption)
            raise
        if error is None:
            return exchange.close(_whole_characters(value))
        exchange.close(error=error)
        if isinstance(error, TallystickError):
            raise error
        raise sort_error(declaration.name, error, MODEL) from error

    def tokens(self, model: str | None, value: Any) -> int:
        """Return about how many tokens a value has that was sent or answered."""
        return self.counter(model).count(value if isinstance(value, str) else str(value))

    def micros(
        self, declaration: ProviderDeclaration, model: str | None, usage: Mapping[str, int]
    ) -> int:
        """Return what a call costs, in millionths; 0 where it is local or its price is unknown."""
        amount = self.price(declaration, model, usage).amount
        return 0 if amount is None else round(float(amount) * 1_000_000)

    def price(
        self, declaration: ProviderDeclaration, model: str | None, usage: Mapping[str, int]
    ) -> ModelCost:
        """Return what a call costs, by the model that answered, or else by the one declared."""
        if self.cost is None or declaration.local:
            return ModelCost()
        cost = self.cost(declaration.name, model, usage)
        if cost.amount is None and model != declaration.model:
            return self.cost(declaration.name, declaration.model, usage)
        return cost

    def may_begin(self, connection: Connection, subject: OutboundSubject) -> bool:
        """Return whether a call may begin now: False where answers that others wait for may reach a
        limit of tokens or money before it. Raises BudgetSpent where a limit is reached already: the
        call that reaches it is the last one.
        """
        if self.budget == LearningBudget():
            return True
        now = self.store.clock.now()
        may = True
        for which, left in remaining_budget(
            connection,
            self.budget,
            "learning_budget",
            purposes=_PURPOSES,
            scope_id=subject.scope_id,
            job_id=subject.job_id,
            now=now,
        ):
            if may and left.keys() & self._longest_answer.keys():
                waiting = outbound_calls.under_way(connection, since=now - self.patience, **which)
                may = all(
                    waiting == 0 or waiting * most < left[unit]
                    for unit, most in self._longest_answer.items()
                    if unit in left
                )
        return may

    @cached_property
    def patience(self) -> int:
        """How long a call under way may take, microseconds: after that its process has died."""
        return 1_000 * max((each.timeout_ms for each in self.declarations), default=0)

    @cached_property
    def _longest_answer(self) -> dict[str, int]:
        """The most that one answer may cost, in tokens and millionths."""
        return {
            "tokens": max((each.longest_answer for each in self.declarations), default=0),
            "micros": max(
                (
                    self.micros(
                        each, each.model, {"input_tokens": 0, "output_tokens": each.longest_answer}
                    )
                    for each in self.declarations
                ),
                default=0,
            ),
        }


def remaining_budget(
    connection: Connection,
    budget: CallBudget,
    setting: str,
    *,
    purposes: Sequence[str],
    scope_id: int,
    now: int,
    job_id: str | None = None,
    costs: Sequence[int] = (0, 0, 0),
) -> Iterator[tuple[dict[str, Any], dict[str, int]]]:
    """Yield what is left of each limit, by unit, with the rows that it counts: those of calls for
    these purposes. Raises BudgetSpent, by the name of the setting, where nothing is left, or less
    than what the next call `costs` at most.
    """
    counted: dict[str, dict[str, Any]] = {
        "per_scope_and_day": {"scope_id": scope_id},
        "per_day": {},
    }
    if job_id is not None:
        counted["per_job"] = {"job_id": job_id}
    for name, rows in counted.items():
        which = {**rows, "purposes": purposes}
        since = None if name == "per_job" else now - _DAY
        spent = outbound_calls.sum_spent(connection, since=since, **which)
        left = dict[str, int]()
        for unit, count, more in zip(("calls", "tokens", "micros"), spent, costs, strict=True):
            allowed = getattr(budget, f"{unit}_{name}")
            if allowed is not None and (count >= allowed or count + more > allowed):
                raise BudgetSpent(f"{setting}.{unit}_{name}", spent=count, allowed=allowed)
            if allowed is not None:
                left[unit] = allowed - count
        yield which, left


class _Exchange:
    """What is asked of a provider for one answer, and again where it gave none: each is counted,
    logged and recorded as a call of its own. It may end in one thread while it is used in another.
    """

    def __init__(
        self,
        outbound: Outbound,
        purpose: str,
        declaration: ProviderDeclaration,
        subject: OutboundSubject,
        sent: Any,
        originals: Mapping[str, str],
    ) -> None:
        self._outbound, self._purpose, self._declaration = outbound, purpose, declaration
        self._subject, self._sent, self._originals = subject, sent, originals
        self._lock = threading.Lock()
        self._is_open = False
        self.answers: list[StructuredAnswer] = []

    def begin(self) -> None:
        """Count a call before it is made: a process that dies in it has spent it."""
        outbound, declared, subject = self._outbound, self._declaration, self._subject
        self.answers, self._asked = [], self._sent
        tokens = outbound.tokens(declared.model, self._sent)
        row = OutboundCall(
            id=outbound.store.ids.new(),
            scope=subject.memory.scope,
            purpose=self._purpose,
            provider=declared.name,
            model=declared.model,
            local=declared.local,
            subject_id=subject.memory.id,
            job_id=subject.job_id,
            at=outbound.store.clock.now(),
            characters=len(self._sent if isinstance(self._sent, str) else str(self._sent)),
            redacted=len(self._originals),
            input_tokens=tokens,
            micros=outbound.micros(
                declared, declared.model, {"input_tokens": tokens, "output_tokens": 0}
            ),
        )

        def unit(tx: Connection) -> bool:
            if not outbound.may_begin(tx, subject):
                return False
            now = outbound.store.clock.now()
            outbound_calls.add(tx, row.model_copy(update={"at": now}), subject.scope_id)
            return True

        pause = 0.02
        while not outbound.store.database.write(unit, name="outbound.call", writes=_WRITES):
            time.sleep(pause)
            pause = min(2 * pause, 0.5)
        self._call_id, self._begun, self._is_open = row.id, time.monotonic(), True
        if subject.run is None:
            from tallystick.recorder import Recordings

            recordings = Recordings(outbound.recorder, subject.actor, counter=outbound.counter)
            subject.run = recordings.start_run(
                RUN_NAME,
                scope=subject.memory.scope,
                metadata={READS: [*dict.fromkeys((subject.memory.id, *subject.others))]},
            )
        self._run = subject.run
        self._step = subject.run.step("model_call", name=self._purpose)
        self._step.record("request", {"input": self._sent}, summary={"provider": declared.name})
        if outbound.keep_placeholders and self._originals:
            with outbound.store.database.read() as connection:
                secret = scopes.get_by_id(connection, subject.scope_id).secret
            sealed = seal(secret, subject.run.id, self._originals)
            self._step.record("placeholders", sealed, summary={"count": len(self._originals)})

    def note_request(self, text: str, *, again: bool) -> None:
        """Note what is asked; `again` ends the call before, and begins another."""
        with self._lock:
            if not self._is_open:
                raise ModelUnavailable(f"Nothing waits for {self._declaration.name} any more.")
            if again:
                self._end([each.value for each in self.answers], None)
                self.begin()
            self._asked = text

    def close(self, value: Any = None, error: BaseException | None = None) -> Answered:
        """End the call under way, if there is one, by what it returned or raised."""
        with self._lock:
            model = self._end(value, error) if self._is_open else None
            return Answered(value, self._run.id, self._step.id, model)

    def _end(self, value: Any, error: BaseException | None) -> str | None:
        self._is_open = False
        outbound, declared, answers = self._outbound, self._declaration, list(self.answers)
        model = next((each.model for each in answers if each.model), declared.model)
        answered = [each.value for each in answers] or ([] if error else _plain(value))
        usage = {
            "input_tokens": sum(each.input_tokens for each in answers)
            or outbound.tokens(model, self._asked),
            "output_tokens": sum(each.output_tokens for each in answers)
            or (outbound.tokens(model, answered) if answered else 0),
        }
        outcome = "answered"
        if error is None:
            cost = outbound.price(declared, model, usage).dump()
            summary = {"usage": usage, "cost": cost}
            self._step.record("response", {"answers": answered}, summary=summary)
            self._step.end(wait=False)
        else:
            outcome = error.code if isinstance(error, TallystickError) else type(error).__name__
            self._step.fail(error)
        outbound.store.database.write(
            lambda tx: outbound_calls.finish(
                tx,
                self._call_id,
                outcome=outcome,
                model=model,
                input_tokens=usage["input_tokens"],
                output_tokens=usage["output_tokens"],
                micros=outbound.micros(declared, model, usage),
                duration_ms=round(1_000 * (time.monotonic() - self._begun)),
            ),
            name="outbound.finish",
            writes=_WRITES,
        )
        log_operation(
            "model_call",
            outcome=outcome,
            duration_ms=1_000 * (time.monotonic() - self._begun),
            stage=self._purpose,
            provider=declared.name,
            model=model,
            job_id=self._subject.job_id,
            memory_id=self._subject.memory.id,
            scope_kind=self._subject.memory.scope.kind,
        )
        return model


def _within(
    function: Callable[[], T], declaration: ProviderDeclaration, exchange: _Exchange
) -> tuple[T, None] | tuple[None, BaseException]:
    """Return what `function` returns, or raises, within the time that its provider declares.

    A call that does not come back is left in its thread, which ends with the process: nothing waits
    for it, and nothing that it returns is used.
    """
    outcomes: list[tuple[T, None] | tuple[None, BaseException]] = []

    def work() -> None:
        _exchange.set(exchange)
        try:
            outcomes.append((function(), None))
        except BaseException as error:  # noqa: BLE001 - sorted in the thread that waits
            outcomes.append((None, error))

    thread = threading.Thread(
        target=copy_context().run, args=(work,), name="tallystick-provider", daemon=True
    )
    thread.start()
    thread.join(declaration.timeout_ms / 1_000)
    if outcomes:
        return outcomes[0]
    text = f"{declaration.name} did not answer within {declaration.timeout_ms} ms."
    return None, ModelFailed(text, timed_out=True)


def _whole_characters(value: Any) -> Any:
    """Return an answer with a mark in place of each half character, which no text may hold."""
    if isinstance(value, str):
        halves = value.encode("utf-16-le", "surrogatepass")
        return value if value.isascii() else halves.decode("utf-16-le", "replace")
    if isinstance(value, (list, tuple)):
        return type(value)([_whole_characters(each) for each in value])
    if isinstance(value, BaseModel):
        names = type(value).model_fields
        update = {name: _whole_characters(getattr(value, name)) for name in names}
        return value.model_copy(update=update)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    dump = getattr(value, "dump", None)
    return dump() if callable(dump) else str(value)


# Asking a model for a record
# ---------------------------
# An adapter of a runtime adds one thing, a `StructuredModel`. The text is data: it comes behind the
# instructions, escaped and labelled, and nothing in an answer is carried out here.


def declare_prompt(model: StructuredModel) -> ProviderDeclaration:
    """Return what a model says of itself, with the version of our prompts."""
    return model.declaration.model_copy(update={"prompt_version": _PROMPT_VERSION})


def frame_text(text: str) -> str:
    """Return a text between tags that nothing inside of it can close."""
    escaped = text.replace("<", "&lt;").replace(">", "&gt;")
    return f"<text>\n{escaped}\n</text>"


def unescape_text(text: str) -> str:
    """Return words of an answer as the framed text has them."""
    return text.replace("&lt;", "<").replace("&gt;", ">")


def ask_model(
    model: StructuredModel, instructions: str, text: str, schema: type[M]
) -> tuple[M, list[str]]:
    """Return the record that a model answers with, and warnings; it is asked once more where it
    gives none. Raises ExtractionError.
    """
    if not model.declaration.structured_output:
        # It may still write JSON, which is read; prose is a failure, never an empty result.
        instructions += f"\nAnswer with JSON alone, by this schema: {_schema(schema)}"
    warnings: list[str] = []
    for number in range(_TRIES):
        note_request(f"{instructions}\n{text}", again=number > 0)
        answer = model.answer(instructions, text, schema)
        note_answer(answer)
        record = _read(answer.value, schema)
        if record is not None:
            return record, warnings
        warnings.append(f"answer {number + 1} was no record of the kind that was asked for")
    raise ExtractionError(
        f"{model.declaration.name} answered {_TRIES} times with something else than the record "
        f"that was asked for."
    )


def _schema(schema: type[BaseModel]) -> str:
    return json.dumps(schema.model_json_schema(), separators=(",", ":"))


def _read(value: Any, schema: type[M]) -> M | None:
    if isinstance(value, schema):
        return value
    try:
        if isinstance(value, str):
            begin, end = value.find("{"), value.rfind("}")
            return schema.model_validate_json(value[begin : end + 1]) if begin >= 0 else None
        return schema.model_validate(value)
    except ValidationError:
        return None
