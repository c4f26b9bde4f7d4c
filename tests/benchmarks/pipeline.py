"""`make bench-pipeline`: what learning costs a call of remember, and how fast its jobs go.

Exits non-zero where a bar is missed. Times are of this machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.benchmarks.measures import TIME, Measure, figure, least, lines, missed, most

from tallystick import Actor, Tally
from tallystick.errors import ModelUnavailable
from tallystick.ports import StructuredAnswer
from tallystick.records import ProviderDeclaration
from tallystick.settings import Settings
from tallystick.storage.rows import outbound_calls
from tallystick.tally.memory_view import RememberMode
from tallystick.tally.services import services_of
from tallystick_learning import ModelLearner

COUNT = 400
"""Remembers of each figure."""
ANNA = Actor(user="anna", role="operator")
_PRICES = """
dated = "2026-11-01"
[models.s-1]
input = 0.25
output = 2.0
"""
"""Dollars per million tokens of the scripted model: in the range of small models."""
_COSTS: tuple[tuple[str, RememberMode], ...] = (
    ("in raw mode", "raw"),
    ("with a model that learns", "auto"),
    ("the same, in sync mode", "sync"),
    ("the same, in async mode", "async"),
)
"""Costs: a name, and the mode."""


class _Model:
    """A model that answers after a while, is away, or fails now and then."""

    declaration = ProviderDeclaration(name="scripted", model="s-1")

    def __init__(self, seconds: float = 0.0, *, away: bool = False, faulty: bool = False) -> None:
        self._seconds, self.away, self._faulty, self._calls = seconds, away, faulty, 0
        self.texts: list[str] = []

    def answer(self, instructions: str, text: str, schema: Any) -> StructuredAnswer:
        """Return one fact; of a faulty model each fifth call is away, gives no record or raises."""
        self._calls += 1
        time.sleep(self._seconds)
        if self.away or (self._faulty and self._calls % 15 == 0):
            raise ModelUnavailable
        if self._faulty and self._calls % 15 == 5:
            return StructuredAnswer("no record at all")
        if self._faulty and self._calls % 15 == 10:
            raise ConnectionResetError
        [(label, (_, said))] = json.loads(text)["said"].items()
        self.texts.append(said)
        fact = {"text": said, "kind": "fact", "sure": 90, "turn": label, "span": said}
        return StructuredAnswer({"facts": [fact]}, "s-1", 800, 60)


@contextmanager
def _tally(model: _Model | None) -> Iterator[Tally]:
    with tempfile.TemporaryDirectory() as folder:
        prices = Path(folder) / "prices.toml"
        prices.write_text(_PRICES)
        with Tally.open(
            Path(folder) / "tally",
            owner=ANNA,
            settings=Settings(learning="off" if model is None else "review", prices=prices),
            learning_model=None if model is None else ModelLearner(model),
            background=False,
        ) as tally:
            tally.bind().remember("The first call opens everything.", mode="raw")
            yield tally


def _milliseconds(tally: Tally, mode: Any, count: int) -> list[float]:
    anna, times = tally.bind(), []
    for number in range(count):
        began = time.perf_counter()
        text = f"The berth {time.perf_counter_ns()} has {number} boats."
        anna.remember(text, mode=mode, timeout_ms=60_000)
        times.append(1_000 * (time.perf_counter() - began))
    return sorted(times)


def _at(times: Sequence[float], part: float) -> float:
    return times[min(len(times) - 1, int(part * len(times)))]


def _spent(mode: RememberMode, count: int) -> tuple[int, int, float]:
    """Return the calls, tokens and dollars of `count` remembers, counted by the outbound log."""
    with _tally(_Model()) as tally:
        anna = tally.bind()
        for number in range(count):
            anna.remember(f"The berth {number} has boats.", mode=mode, timeout_ms=60_000)
        tally.drain()
        with services_of(tally).store.database.read() as connection:
            calls, tokens, micros = outbound_calls.sum_spent(connection, purposes=("learn",))
        return calls, tokens, micros / 1_000_000


def measures(count: int = COUNT) -> Iterator[Measure]:
    """Yield every figure, of so many remembers each, beside its bar."""
    with _tally(None) as tally:
        raw = _milliseconds(tally, "raw", count)
        size_raw = tally.bind().operator.sizes().total
    yield figure("remember raw, p95 ms", _at(raw, 0.95), TIME)
    yield figure("remember raw, p99 ms", _at(raw, 0.99), TIME)
    with _tally(_Model()) as tally:
        auto = _milliseconds(tally, "auto", count)
        began = time.perf_counter()
        jobs = tally.drain().jobs
        rate = 60 * jobs / (time.perf_counter() - began)
        yield figure("jobs a minute, beside the model's time", rate, TIME)
        size_full = tally.bind().operator.sizes().total
    yield figure("remember auto, p95 ms", _at(auto, 0.95), TIME)
    yield figure("remember auto, p99 ms", _at(auto, 0.99), TIME)
    yield figure("growth on disk per remember, bytes", (size_full - size_raw) / count, "disk")

    model = _Model(away=True)
    with _tally(model) as tally, tally.worker():
        # In turn, so that whatever else this machine does weighs on both alike.
        beside: list[float] = []
        away: list[float] = []
        for _ in range(count // 10):
            beside += _milliseconds(tally, "raw", 10)
            away += _milliseconds(tally, "auto", 10)
        for name, part in (("p95", 0.95), ("p99", 0.99)):
            waited = _at(sorted(away), part)
            outage = f"remember auto under an outage, {name}"
            yield most(f"{outage} ms", waited, 200, TIME)
            yield most(f"{outage}, times raw", waited / _at(sorted(beside), part), 2, TIME)
    with _tally(model := _Model(away=True)) as tally:
        anna = tally.bind()
        stored = [anna.remember(f"The berth {number} has boats.") for number in range(40)]
        try:
            tally.drain()
        except ModelUnavailable:
            model.away = False
        tally.drain()
        in_order = model.texts == sorted(model.texts, key=lambda said: int(said.split()[2]))
        done = sum(anna.jobs.get(each.job_id or "").state == "done" for each in stored)
        yield least(
            "backlog after an outage that is done, percent", 100 * done / 40, 99, "lost job"
        )
        yield least("backlog after an outage, in order", in_order, 1, "order")

    with _tally(_Model(0.5)) as tally:
        alone = _milliseconds(tally, "sync", 100)
    with _tally(_Model(0.5)) as tally, ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(_milliseconds, tally, "sync", 50) for _ in range(4)]
        together = sorted(each for call in calls for each in call.result())
    for name, times in (("sync", alone), ("sync, four callers", together)):
        slow = f"remember {name}, a model of 500 ms"
        yield most(f"{slow}, p95 ms", _at(times, 0.95), 1_200, TIME)
        yield most(f"{slow}, p99 ms", _at(times, 0.99), 2_500, TIME)

    with _tally(_Model(faulty=True)) as tally:
        anna = tally.bind()
        stored = [anna.remember(f"The berth {number} has boats.") for number in range(1_000)]
        for _ in range(300):  # what failed, or waits, is tried at the next drain
            with suppress(ModelUnavailable):
                if not tally.drain().failed:
                    break
        states = [anna.jobs.get(each.job_id or "").state for each in stored]
        share = states.count("done") / 10
        yield least("done where each fifth call fails, percent", share, 99.9, "lost job")
        yield most("dead, percent", states.count("dead") / 10, 0.5, "lost job")

    for name, mode in _COSTS:
        for unit, spent in zip(("calls", "tokens", "dollars"), _spent(mode, count), strict=True):
            named, value = f"10,000 remembers {name}, {unit}", 10_000 / count * spent
            yield most(named, value, 0, "cost") if mode == "raw" else figure(named, value, "cost")


def main() -> int:
    """Print every figure; return 1 where a bar is missed."""
    found: list[Measure] = []
    for each in measures():
        found.append(each)
        print(*lines([each]), flush=True)
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
