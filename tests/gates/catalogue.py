"""The gates: for each the benchmarks that it wraps, and everything that moves their figures.

The bars are those of the benchmarks; none is written here. A quick run measures less, says so in
its sizes, and so drifts from the baseline of a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from tests.benchmarks import (
    budgets,
    compaction,
    eval_memory,
    eval_pipeline,
    everyday,
    gate_synthesis,
    held,
    ingest_gate,
    own_sets,
    pipeline,
    poisoning,
    selfheal,
    steward_cost,
    suites,
)
from tests.benchmarks.agreement import LABELS, agreement_measures
from tests.benchmarks.eval_recall import OWN_SETS
from tests.benchmarks.measures import Measure
from tests.benchmarks.synthesis_claims import CLAIMS

Sizes = Mapping[str, int]
Run = Callable[[Sizes], Iterable[Measure]]
Foreign = Callable[[Path], Iterable[Measure]]


@dataclass(frozen=True)
class Gate:
    """One gate."""

    run: Run
    whole: Sizes
    """How much is measured."""
    quick: Sizes
    """The same sizes for a look in minutes."""
    corpora: tuple[Path, ...] = ()
    """Sets that stand in the project; one that is missing holds the gate."""
    seeds: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    embedder: str = "static"
    """`static`, which comes along, or `hash`, of the tests."""
    has_times: bool = True
    """True if a bar is one of time: then the class of the machine counts as well."""
    needs: Callable[[], Iterable[str]] = tuple
    """Yields what is missing beyond the project, a model or a package: it holds the gate."""
    model: Callable[[], str] = str
    """The name of the model that is measured; empty for none."""
    foreign: Foreign | None = None
    """Measures a set of somebody else's, in the format that the benchmark reads."""


def _memory_trust(sizes: Sizes) -> Iterator[Measure]:
    names = list(suites.SUITES)[: sizes["suites"]]
    yield from eval_memory.measure(names)
    yield from poisoning.measures()


def _everyday(sizes: Sizes) -> Iterator[Measure]:
    dialogues = everyday.load(everyday.DATA)[: sizes["dialogues"]]
    yield from everyday.measures_of(dialogues, step=sizes["step"])
    yield from agreement_measures("everyday")


def _everyday_of(path: Path) -> Iterator[Measure]:
    rows = (everyday.OURS, everyday.OTHER)
    yield from everyday.measures_of(everyday.load(path), rows=rows)


def _recall(sizes: Sizes) -> Iterator[Measure]:
    yield from own_sets.measures(OWN_SETS[: sizes["sets"]])
    yield from agreement_measures("recall")


def _synthesis(sizes: Sizes) -> Iterator[Measure]:
    parts = ("sections", "claims", "attacks") if sizes["parts"] < 7 else ()
    yield from gate_synthesis.measures(sizes["large"], parts)


def _ingest(sizes: Sizes) -> Iterator[Measure]:
    yield from ingest_gate.measures(
        sizes["messages"], sizes["kills"], sizes["pages"], sizes["files"], sizes["rounds"]
    )


def _pipeline(sizes: Sizes) -> Iterator[Measure]:
    yield from eval_pipeline.measures()
    yield from pipeline.measures(sizes["remembers"])


def _steward(sizes: Sizes) -> Iterator[Measure]:
    yield from selfheal.measures_of(selfheal.play_all(selfheal.KINDS[: sizes["kinds"]]))
    yield from steward_cost.measures(sizes["calls"])


def _bench(sizes: Sizes) -> Iterator[Measure]:
    yield from budgets.measures(sizes["memories"])
    yield from compaction.measures(sizes["questions"])


def _agents(sizes: Sizes) -> Iterator[Measure]:
    model = held.model_of(held.model_name())
    yield from held.measures(model, sizes["tasks"], sizes["workflows"])


GATES: Mapping[str, Gate] = MappingProxyType(
    {
        "memory-trust": Gate(
            _memory_trust,
            {"suites": len(suites.SUITES)},
            {"suites": 5},
            corpora=(poisoning.DATA,),
            seeds={"suites": eval_memory.SEED},
            has_times=False,
            foreign=poisoning.measures,
        ),
        "everyday": Gate(
            _everyday,
            {"dialogues": 6, "step": 1},
            {"dialogues": 2, "step": 10},
            corpora=(everyday.DATA, everyday.UNRELATED, *LABELS["everyday"]),
            seeds={"chance": 1},
            has_times=False,
            foreign=_everyday_of,
        ),
        "recall": Gate(
            _recall,
            {"sets": len(OWN_SETS)},
            {"sets": 2},
            corpora=(*OWN_SETS, *LABELS["recall"]),
            has_times=False,
            foreign=lambda path: own_sets.measures([path]),
        ),
        "synthesis": Gate(
            _synthesis,
            {"large": gate_synthesis.LARGE, "parts": 7},
            {"large": 10_000, "parts": 3},
            corpora=(CLAIMS,),
            embedder="hash",
        ),
        "ingest": Gate(
            _ingest,
            {
                "messages": ingest_gate.MESSAGES,
                "kills": ingest_gate.KILLS,
                "pages": ingest_gate.PAGES,
                "files": ingest_gate.FILES,
                "rounds": ingest_gate.ROUNDS,
            },
            {"messages": 200, "kills": 4, "pages": 60, "files": 100, "rounds": 1},
        ),
        "pipeline": Gate(_pipeline, {"remembers": pipeline.COUNT}, {"remembers": 100}),
        "steward": Gate(
            _steward,
            {"kinds": len(selfheal.KINDS), "calls": steward_cost.CALLS},
            {"kinds": 2, "calls": 200},
            corpora=(selfheal.INCIDENTS,),
        ),
        "bench": Gate(
            _bench,
            {"memories": budgets.MEMORIES, "questions": compaction.QUESTIONS},
            {"memories": 500, "questions": 10},
            seeds={"memories": budgets.SEED},
        ),
        "agents": Gate(
            _agents,
            {"tasks": 40, "workflows": 21},
            {"tasks": 10, "workflows": 3},
            corpora=(held.SET,),
            has_times=False,
            needs=held.reasons_not_to_run,
            model=held.model_name,
        ),
    }
)
"""Every gate that `ship` needs, in the order in which they run."""
