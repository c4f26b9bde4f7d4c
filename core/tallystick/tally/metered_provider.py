"""A provider whose calls are counted against a budget: for callers from outside of the process,
who send with a key that is not theirs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from tallystick.errors import EgressDenied, TallystickError
from tallystick.ports import ModelProvider, ModelResponse, ModelResponseStream
from tallystick.recorder.outbound import remaining_budget
from tallystick.records import CompiledContext, ModelAnswer, OutboundCall
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import outbound_calls, scopes
from tallystick.storage.rows.outbound_calls import Spent
from tallystick.tally.memory_view import MemoryView
from tallystick.tokens.prices import cost_of

PURPOSE = "call"
"""The purpose of these calls in the outbound log."""
_LONGEST_ANSWER = 16_000
"""Tokens that an answer counts for while it is under way, where its request has no limit of its
own.
"""
_MOST_OF_ANSWER = ("max_output_tokens", "max_completion_tokens", "max_tokens")
"""The fields of a request that limit its answer, in tokens."""
_WRITES = Writes.of("outbound")


class MeteredProvider:
    """A provider as it is, but that each call is counted before it is sent, with what it may cost
    at most, and after it with what it cost; a call for which too little of the setting
    `providers_budget` is left is refused.
    """

    def __init__(self, inner: ModelProvider, view: MemoryView) -> None:
        self._inner, self._view = inner, view
        self._budget = view._services.settings.providers_budget

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def model(self) -> str | None:
        return self._inner.model

    def render(self, compiled: CompiledContext, **parameters: Any) -> dict[str, Any]:
        return self._inner.render(compiled, **parameters)

    def check(self, request: Mapping[str, Any]) -> None:
        self._inner.check(request)

    def require_ready(self) -> None:
        self._inner.require_ready()

    def count_tokens(self, request: Mapping[str, Any]) -> int:
        return self._inner.count_tokens(request)

    def parse(self, response: Mapping[str, Any]) -> ModelAnswer:
        return self._inner.parse(response)

    def send(self, request: Mapping[str, Any]) -> ModelResponse:
        with self._counted(request) as call:
            response = self._inner.send(request)
            call.answer = self._inner.parse(response.body)
        return response

    def stream(self, request: Mapping[str, Any]) -> AbstractContextManager[ModelResponseStream]:
        return self._stream(request)

    @contextmanager
    def _stream(self, request: Mapping[str, Any]) -> Iterator[ModelResponseStream]:
        with self._counted(request) as call, self._inner.stream(request) as stream:
            call.has_begun = True
            try:
                yield stream
            finally:
                # What cannot be read as an answer is counted with what it might have cost.
                with suppress(Exception):
                    call.answer = self._inner.parse(stream.response().body)

    @contextmanager
    def _counted(self, request: Mapping[str, Any]) -> Iterator[_Counted]:
        """Count a call before and after what the block does. Raises BudgetSpent; EgressDenied where
        money is limited and the price of the model is not known.
        """
        store = self._view._services.store
        call = _Counted()
        row = self._row(request)

        def begin(tx: Connection) -> None:
            scope = scopes.ensure(tx, self._view.scope)
            now = store.clock.now()
            limits = remaining_budget(
                tx,
                self._budget,
                "providers_budget",
                purposes=(PURPOSE,),
                scope_id=scope.id,
                now=now,
                costs=Spent(1, row.input_tokens + row.output_tokens, row.micros),
            )
            for _ in limits:
                pass
            outbound_calls.add(tx, row.model_copy(update={"at": now}), scope.id)

        store.database.write(begin, name="outbound.call", writes=_WRITES)
        begun, outcome = time.monotonic(), "answered"
        try:
            yield call
        except BaseException as error:
            outcome = error.code if isinstance(error, TallystickError) else type(error).__name__
            raise
        finally:
            # Where nothing says what an answer cost, it has cost what it might have.
            most = {"input_tokens": row.input_tokens, "output_tokens": row.output_tokens}
            if call.answer is not None:
                most |= call.answer.usage
            elif outcome != "answered" and not call.has_begun:
                most["output_tokens"] = 0
            store.database.write(
                lambda tx: outbound_calls.finish(
                    tx,
                    row.id,
                    outcome=outcome,
                    model=None if call.answer is None else call.answer.model,
                    input_tokens=most["input_tokens"],
                    output_tokens=most["output_tokens"],
                    micros=self._micros(row.model or "", most) or 0,
                    duration_ms=round(1_000 * (time.monotonic() - begun)),
                ),
                name="outbound.finish",
                writes=_WRITES,
            )

    def _row(self, request: Mapping[str, Any]) -> OutboundCall:
        """Return what is logged of a call before it is made: what it may cost at most."""
        services, text = self._view._services, str(request)
        named = request.get("model")
        model = named if isinstance(named, str) else self.model or ""
        named_limits = [request.get(name) for name in _MOST_OF_ANSWER]
        limits = [each for each in named_limits if isinstance(each, int) and each > 0]
        tokens = services.counter(model).count(text)
        longest = min(limits, default=_LONGEST_ANSWER)
        micros = self._micros(model, {"input_tokens": tokens, "output_tokens": longest})
        if micros is None and any(
            most is not None and name.startswith("micros") for name, most in self._budget
        ):
            raise EgressDenied(
                f"providers_budget limits money, and the price of {self.name}:{model} is not "
                "known, so that nothing would stop it. Give `prices` that have it, or limit tokens "
                "or calls."
            )
        return OutboundCall(
            id=services.store.ids.new(),
            scope=self._view.scope,
            purpose=PURPOSE,
            provider=self.name,
            model=model,
            local=False,
            at=services.store.clock.now(),
            characters=len(text),
            input_tokens=tokens,
            output_tokens=longest,
            micros=micros or 0,
        )

    def _micros(self, model: str, usage: Mapping[str, int]) -> int | None:
        """Return what a call costs, in millionths; None where its price is unknown."""
        prices = self._view._services.prices
        amount = cost_of(self.name, [model], usage, table=prices).amount
        return None if amount is None else round(float(amount) * 1_000_000)


class _Counted:
    """A call under way, and its answer as far as it came."""

    answer: ModelAnswer | None = None
    has_begun = False
    """True once a stream came, which is paid for also by who leaves it."""
