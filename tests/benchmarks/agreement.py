"""Agreement between two passes of labels: Krippendorff's alpha, written by hand.

    python -m tests.benchmarks.agreement

Labels are accepted from 0.8 on. The second pass was made from the items alone, without a look at
the first, and stands beside it as data; both stay as they were given. The rules are in
tests/fixtures/LABELLING.md. A set whose labels are made by construction (generated claims, injected
incidents, written secrets) has none to agree on.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.agents.tasks import Workspace, tasks
from tests.benchmarks.measures import Measure, figure, least, lines, missed

ACCEPTED = 0.8
"""The least alpha of labels that count."""
FIXTURES = Path(__file__).parents[1] / "fixtures"
_LEVELS = ("none", "helps", "needs")

Unit = Sequence[Hashable | None]
"""The labels that one item got, one of each labeller; None where somebody gave none."""
Distance = Callable[[Any, Any], float]


def alpha(units: Iterable[Unit], *, order: Sequence[Hashable] = ()) -> float:
    """Return Krippendorff's alpha of labels: nominal, or ordinal in the `order` given.

    1 where all agree; 0 where they agree as by chance; also 1 where only one label was ever given,
    which says nothing. Raises ValueError where no item has two labels.
    """
    paired = [given for unit in units if len(given := [e for e in unit if e is not None]) > 1]
    if not paired:
        raise ValueError("No item has two labels.")
    coincidences: Counter[tuple[Hashable, Hashable]] = Counter()
    for given in paired:
        weight = 1 / (len(given) - 1)
        for place, one in enumerate(given):
            for other in (*given[:place], *given[place + 1 :]):
                coincidences[one, other] += weight  # type: ignore[assignment]
    totals: Counter[Hashable] = Counter()
    for (one, _), count in coincidences.items():
        totals[one] += count
    distance = _ordinal(totals, order) if order else _nominal
    whole = sum(totals.values())
    observed = sum(count * distance(*pair) for pair, count in coincidences.items())
    expected = sum(
        totals[one] * totals[other] * distance(one, other) for one in totals for other in totals
    ) / (whole - 1)
    return 1.0 if expected == 0 else 1 - observed / expected


def _nominal(one: Hashable, other: Hashable) -> float:
    return float(one != other)


def _ordinal(totals: Mapping[Hashable, float], order: Sequence[Hashable]) -> Distance:
    """Return the squared number of labels between two of them, both ends by half."""
    place = {label: number for number, label in enumerate(order)}

    def distance(one: Hashable, other: Hashable) -> float:
        low, high = sorted((place[one], place[other]))
        between = sum(totals.get(label, 0) for label in order[low : high + 1])
        return (between - (totals[one] + totals[other]) / 2) ** 2

    return distance


def everyday_units(first: Path, second: Path) -> list[tuple[str, str]]:
    """Return for each request, and each turn of the same user in an earlier session, whether an
    answer needs it, by both passes. Turns that serve as well as one another are one item.
    """
    given = json.loads(second.read_text("utf-8"))["dialogues"]
    units: list[tuple[str, str]] = []
    for dialogue in json.loads(first.read_text("utf-8"))["dialogues"]:
        labels = given[dialogue["id"]]
        earlier: list[tuple[str, str]] = []
        for session in sorted(dialogue["sessions"], key=lambda each: str(each["date"])):
            own = [turn for owner, turn in earlier if owner == session["user"]]
            for turn in session["turns"]:
                if turn["role"] == "user":
                    units += _turn_units(turn, labels.get(turn["id"], {}), own)
            earlier += [(session["user"], turn["id"]) for turn in session["turns"]]
    return units


def _turn_units(
    turn: Mapping[str, Any], other: Mapping[str, Any], earlier: Sequence[str]
) -> Iterator[tuple[str, str]]:
    groups = [{need, *turn.get("instead", {}).get(need, ())} for need in turn.get("needs", ())]
    grouped = set().union(*groups) if groups else set()
    groups += [{each} for each in earlier if each not in grouped]
    for group in groups:
        yield _level(turn, group), _level(other, group)


def _level(labels: Mapping[str, Any], turns: set[str]) -> str:
    if not turns.isdisjoint(labels.get("needs", ())):
        return "needs"
    return "helps" if not turns.isdisjoint(labels.get("helps", ())) else "none"


def evidence_units(first: Path, *passes: Path) -> list[tuple[bool, ...]]:
    """Return for each question and each turn whether the turn answers it, by the set and by each of
    the other passes.
    """
    given = [json.loads(each.read_text("utf-8")) for each in passes]
    units: list[tuple[bool, ...]] = []
    for conversation in json.loads(first.read_text("utf-8")):
        turns = [
            turn["dia_id"]
            for name, said in conversation["conversation"].items()
            if isinstance(said, list)
            for turn in said
        ]
        labels = [each[conversation["sample_id"]] for each in given]
        for number, asked in enumerate(conversation["qa"]):
            answers = [asked["evidence"], *(each[str(number)] for each in labels)]
            units += [tuple(turn in each for each in answers) for turn in turns]
    return units


def alias_units(first: Path, second: Path) -> list[tuple[bool, bool]]:
    """Return for each pair of names whether they are one entity, by both passes."""
    given = set(json.loads(second.read_text("utf-8"))["same"])
    pairs = json.loads(first.read_text("utf-8"))["pairs"]
    return [(bool(pair["same"]), place in given) for place, pair in enumerate(pairs)]


def link_units(first: Path, second: Path) -> list[tuple[bool, bool]]:
    """Return for each task and each memory whether they are linked, by both passes."""
    given = json.loads(second.read_text("utf-8"))["links"]
    linked = json.loads(first.read_text("utf-8"))
    return [
        (target in task["links"], target in links)
        for task, links in zip(linked["tasks"], given, strict=True)
        for target in range(len(linked["targets"]))
    ]


def decisive_units(first: Path, second: Path) -> list[tuple[bool, bool]]:
    """Return for each task of the agents, and each turn in it, whether it decides, by both passes;
    without the tasks that have no second label.
    """
    given = json.loads(second.read_text("utf-8"))["labels"]
    units: list[tuple[bool, bool]] = []
    for task, label in zip(tomllib.loads(first.read_text("utf-8"))["task"], given, strict=True):
        turns = [turn for session in task["sessions"] for turn in session]
        if label is not None:
            units += [(turn.startswith("! "), n in label[0]) for n, turn in enumerate(turns)]
    return units


def answers_that_count(second: Path) -> list[bool]:
    """Return for each answer of the second pass whether the agents' task counts as solved by it."""
    given = json.loads(second.read_text("utf-8"))["labels"]
    return [
        task.passed(label[1], Workspace(task))
        for task, label in zip(tasks(), given, strict=True)
        if label and label[1]
    ]


def task_units(first: Path, second: Path) -> list[tuple[str, str]]:
    """Return for each task the tool and the mode that it wants, by both passes."""
    given = json.loads(second.read_text("utf-8"))["labels"]
    tasks = json.loads(first.read_text("utf-8"))
    return [
        (f"{task['tool']} {task['mode']}", f"{tool} {mode}")
        for task, (tool, mode) in zip(tasks, given, strict=True)
    ]


def _beside(path: Path, number: str = "second") -> Path:
    return path.parent / number / path.name


_EVERYDAY = FIXTURES / "everyday" / "dev.json"
_RECALL = tuple(sorted((FIXTURES / "recall").glob("*.json")))
_TRACES = FIXTURES / "recall" / "tool_traces.json"
"""The set whose labels are those of its third pass: the first two differed by what no rule said."""
_ALIASES = FIXTURES / "work" / "alias_pairs.json"
_LINKED = _ALIASES.with_name("linked_tasks.json")
_TASKS = FIXTURES / "discovery_tasks.json"
_AGENTS = Path(__file__).parent / "agents" / "tasks.toml"
_AGENTS_SECOND = _beside(_AGENTS.with_suffix(".json"))
LABELS: Mapping[str, tuple[Path, ...]] = {
    "everyday": (_beside(_EVERYDAY),),
    "recall": (*map(_beside, _RECALL), _beside(_TRACES, "first"), _beside(_TRACES, "third")),
    "work": (_beside(_ALIASES), _beside(_LINKED)),
    "tools": (_beside(_TASKS),),
    "agents": (_AGENTS_SECOND,),
}
"""The further passes of labels by the gate, or by what no gate measures."""


def agreement_measures(gate: str) -> Iterator[Measure]:
    """Yield the agreement on the labels of a gate, beside the bar."""
    if gate == "everyday":
        units = everyday_units(_EVERYDAY, _beside(_EVERYDAY))
        needed = [tuple(each == "needs" for each in unit) for unit in units]
        yield _agreement("everyday: needed turns", alpha(needed))
        both = alpha(units, order=_LEVELS)
        yield figure("labels of everyday: needed and helpful turns, ordinal alpha", both, "labels")
    elif gate == "recall":
        for path in _RECALL:
            yield _agreement(f"{path.stem}: answers", alpha(evidence_units(path, _beside(path))))
        every = evidence_units(_TRACES, _beside(_TRACES), _beside(_TRACES, "first"))
        yield figure("labels of tool_traces: with the pass before the rule", alpha(every), "labels")
    elif gate == "work":
        yield _agreement("alias_pairs: one entity", alpha(alias_units(_ALIASES, _beside(_ALIASES))))
        yield _agreement("linked_tasks: links", alpha(link_units(_LINKED, _beside(_LINKED))))
    elif gate == "tools":
        yield _agreement("discovery_tasks: tool, mode", alpha(task_units(_TASKS, _beside(_TASKS))))
    elif gate == "agents":
        yield _agreement("agents: deciding turns", alpha(decisive_units(_AGENTS, _AGENTS_SECOND)))
        count = answers_that_count(_AGENTS_SECOND)
        name = f"labels of agents: share of {len(count)} answers that count as solved"
        yield figure(name, sum(count) / len(count), "labels")


def _agreement(name: str, value: float) -> Measure:
    return least(f"labels of {name}, alpha", round(value, 4), ACCEPTED, "labels")


def main() -> int:
    """Print the agreement on every set; return 1 where labels are not accepted."""
    found = [each for gate in LABELS for each in agreement_measures(gate)]
    print(*lines(found), sep="\n")
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
