"""Does an agent do better with us? Run it with `make bench-agents`, or with a real model:
`make bench-agents ARGS="--model openai:gpt-5"`.

Without `--model` a deterministic policy answers in the place of a model, from its context only, so
that the figures measure context and memory. The tables are then written into
docs/agents-benchmark.md, unless a part of the tasks or arms is chosen.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks.agents.run import ARMS, Outcome, ceiling, interval, play, share_interval
from tests.benchmarks.agents.tasks import KINDS, tasks

PAGE = Path("docs/agents-benchmark.md")
BEGIN, END = "<!-- make bench-agents -->", "<!-- end -->"
_POLICY = (
    "A deterministic policy answered, from what stood in its context only: this measures context "
    "and memory, not a model."
)


def main() -> int:
    """Play every arm, print the tables, and write them into the documentation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="a real model, as LangChain names it: openai:gpt-5")
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=list(ARMS))
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    chosen = parser.parse_args()
    # No arm may send anything, but to the model that was named.
    os.environ |= {"ANONYMIZED_TELEMETRY": "False", "LANGSMITH_TRACING": "false"}
    logging.disable(logging.ERROR)
    played = [task for task in tasks() if task.kind in chosen.kinds]
    results: dict[str, list[Outcome]] = {}
    missing: dict[str, str] = {}
    for arm in chosen.arms:
        print(f"{arm} …", file=sys.stderr, flush=True)
        try:
            results[arm] = play(arm, played, model=chosen.model)
        except ImportError as error:
            missing[arm] = str(error)
    said = _POLICY if chosen.model is None else f"{chosen.model} answered."
    text = "\n".join([said, "", *_table(results), "", *_by_kind(results, ceiling(played))])
    print(text)
    for arm, reason in missing.items():
        print(f"{arm} was not played: {reason}")
    for arm, outcomes in results.items():
        for outcome in outcomes:
            if not outcome.passed and arm != "plain":
                print(f"{arm}: {outcome.task}: {outcome.answer[:100]!r}", file=sys.stderr)
    if chosen.model is None and results.keys() == set(ARMS) and len(played) == len(tasks()):
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    return 1 if missing else 0


def _table(results: Mapping[str, Sequence[Outcome]]) -> list[str]:
    lines = [
        "| arm | solved | ours minus it | tokens a task | its own calls | prefix reuse "
        "| tasks with a leak |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    ours = results.get("ours")
    for arm, outcomes in results.items():
        solved = [100.0 * each.passed for each in outcomes]
        beside = "-"
        if ours is not None and arm != "ours":
            pairs = zip(ours, outcomes, strict=True)
            beside = _percent([100.0 * (one.passed - other.passed) for one, other in pairs], "+")
        upkeep = sum(each.upkeep for each in outcomes)
        sent = [float(each.tokens) for each in outcomes]
        mean, low, high = interval(sent)
        reused, least, most = interval([float(each.reused) for each in outcomes], sent)
        leaky = sum(each.leaks > 0 for each in outcomes)
        rare, often = share_interval(leaky, len(outcomes))
        lines.append(
            f"| {_title(arm)} | {_percent(solved)} | {beside} "
            f"| {mean:,.0f} ({low:,.0f} to {high:,.0f}) | {upkeep / len(outcomes):,.0f} "
            f"| {reused:.0%} ({least:.0%} to {most:.0%}) "
            f"| {leaky} of {len(outcomes)} ({rare:.0%} to {often:.0%}) |"
        )
    return lines


def _by_kind(results: Mapping[str, Sequence[Outcome]], best: Sequence[Outcome]) -> list[str]:
    kinds = list(dict.fromkeys(each.kind for each in best))
    rows = [("the deciding turns alone", best)]
    rows = [*((_title(arm), outcomes) for arm, outcomes in results.items()), *rows]
    lines = [
        "| solved of | " + " | ".join(kinds) + " |",
        "| --- | " + " | ".join("---" for _ in kinds) + " |",
    ]
    for title, outcomes in rows:
        counts = []
        for kind in kinds:
            own = [each.passed for each in outcomes if each.kind == kind]
            counts.append(f"{sum(own)} of {len(own)}")
        lines.append(f"| {title} | " + " | ".join(counts) + " |")
    return lines


def _title(arm: str) -> str:
    title: str = importlib.import_module(f"tests.benchmarks.agents.arms.{arm}").TITLE
    return title


def _percent(values: Sequence[float], sign: str = "") -> str:
    mean, low, high = interval(values)
    return f"{mean:{sign}.0f} % ({low:{sign}.0f} to {high:{sign}.0f})"


if __name__ == "__main__":
    sys.exit(main())
