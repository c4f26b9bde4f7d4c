"""`make bench-pipeline`: what learning costs a call of remember, and how fast its jobs go.

Exits non-zero where a bar is missed. Times are of this machine.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallystick import Actor, Tally
from tallystick.errors import ModelUnavailable
from tallystick.pipeline import ModelExtractor
from tallystick.ports import StructuredAnswer
from tallystick.records import ProviderDeclaration
from tallystick.settings import Settings

ANNA = Actor(user="anna", role="operator")


class _Model:
    """A model that answers after a while, is away, or fails now and then."""

    declaration = ProviderDeclaration(name="scripted", model="s-1")

    def __init__(self, seconds: float = 0.0, *, away: bool = False, fault_each: int = 0) -> None:
        self._seconds, self.away, self._fault_each, self._calls = seconds, away, fault_each, 0
        self.texts: list[str] = []

    def answer(self, instructions: str, text: str, schema: Any) -> StructuredAnswer:
        """Return one fact."""
        self._calls += 1
        time.sleep(self._seconds)
        if self.away:
            raise ModelUnavailable
        if self._fault_each and self._calls % self._fault_each == 0:
            return StructuredAnswer("no record at all")
        self.texts.append(text)
        fact = {"content": text.split("\n")[1], "kind": "fact", "confidence": 90}
        return StructuredAnswer({"facts": [fact]}, "s-1", 400, 40)


@contextmanager
def _tally(model: _Model | None, learning: str = "full") -> Iterator[Tally]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(
            Path(folder) / "tally",
            owner=ANNA,
            settings=Settings(learning=learning),  # type: ignore[arg-type]
            extractor=None if model is None else ModelExtractor(model),
            background=False,
        ) as tally,
    ):
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


def main(count: int = 400) -> int:
    """Print every figure; return 1 where a bar is missed."""
    missed = 0

    def tell(name: str, value: float, bar: float | None = None, *, least: bool = False) -> None:
        nonlocal missed
        is_met = bar is None or (value >= bar if least else value <= bar)
        missed += not is_met
        against = "" if bar is None else f"{'at least' if least else 'at most'} {bar:g}"
        print(f"{name:52} {value:10.2f}   {against}{'' if is_met else '   MISSED'}")

    with _tally(None, "off") as tally:
        raw = _milliseconds(tally, "raw", count)
        size_raw = tally.bind().operator.sizes().total
    tell("remember raw, p95 ms", _at(raw, 0.95))
    tell("remember raw, p99 ms", _at(raw, 0.99))
    with _tally(None) as tally:
        auto = _milliseconds(tally, "auto", count)
        began = time.perf_counter()
        jobs = tally.drain().jobs
        tell("jobs a minute, without a model", 60 * jobs / (time.perf_counter() - began))
        size_full = tally.bind().operator.sizes().total
    tell("remember auto, p95 ms", _at(auto, 0.95))
    tell("remember auto, p99 ms", _at(auto, 0.99))
    tell("growth on disk per remember, bytes", (size_full - size_raw) / count)

    model = _Model(away=True)
    with _tally(model) as tally, tally.worker():
        # In turn, so that whatever else this machine does weighs on both alike.
        beside: list[float] = []
        away: list[float] = []
        for _ in range(count // 10):
            beside += _milliseconds(tally, "raw", 10)
            away += _milliseconds(tally, "auto", 10)
        tell("remember auto under an outage, p95 ms", _at(sorted(away), 0.95), 200)
        tell("the same, times raw", _at(sorted(away), 0.95) / _at(sorted(beside), 0.95), 2)
    with _tally(model := _Model(away=True)) as tally:
        anna = tally.bind()
        stored = [anna.remember(f"The berth {number} has boats.") for number in range(40)]
        try:
            tally.drain()
        except ModelUnavailable:
            model.away = False
        tally.drain()
        in_order = model.texts == sorted(model.texts, key=lambda text: int(text.split()[3]))
        done = sum(anna.operator.job(each.job_id or "").state == "done" for each in stored)
        tell("backlog after an outage that is done, percent", 100 * done / 40, 99, least=True)
        tell("the same, in order", float(in_order), 1, least=True)

    with _tally(_Model(0.5)) as tally:
        sync = _milliseconds(tally, "sync", 12)
    tell("remember sync, a model of 500 ms, p95 ms", _at(sync, 0.95), 1_200)
    tell("remember sync, a model of 500 ms, p99 ms", _at(sync, 0.99), 2_500)
    with _tally(_Model(fault_each=7)) as tally:
        anna = tally.bind()
        stored = [anna.remember(f"The berth {number} has boats.") for number in range(count)]
        for _ in range(6):
            tally.drain()
        states = [anna.operator.job(each.job_id or "").state for each in stored]
        tell(
            "done where each 7th answer is none, percent",
            100 * states.count("done") / count,
            99.9,
            least=True,
        )
        tell("dead, percent", 100 * states.count("dead") / count, 0.5)
    tell("cost of 10,000 remembers in raw mode, calls", 0, 0)
    tell("the same with rules, calls", 0, 0)
    tell("the same with a model that extracts, calls", 10_000)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
