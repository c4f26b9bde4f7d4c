"""Plays the tasks through an arm, and counts."""

from __future__ import annotations

import importlib
import math
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.agents.policy import Message, reply
from tests.benchmarks.agents.tasks import Task, Workspace
from tests.benchmarks.agents.world import INSTRUCTIONS, Request, World

ARMS = (
    *("plain", "langgraph_store", "langmem_tools", "llama_index_memory", "mem0_memory"),
    *("ours", "ours_artifact", "ours_files"),
)
_PROBE = "Which number has the badge of my colleague?"
_RESAMPLES = 10_000


@dataclass(frozen=True)
class Outcome:
    """How one task ended in one arm."""

    task: str
    kind: str
    passed: bool
    answer: str
    tokens: int
    """Tokens of the agent's requests for the task's user."""
    upkeep: int
    """Tokens of the requests that a memory or a summary makes of its own."""
    reused: int
    """Those of the tokens that begin an earlier request of the same thread."""
    leaks: int
    """Requests and answers of the task's user that contain a badge number of somebody else."""


def play(arm: str, tasks: Sequence[Task], *, model: str | None = None) -> list[Outcome]:
    """Play the tasks through an arm, all on one memory, each as a user of its own."""
    module: Any = importlib.import_module(f"tests.benchmarks.agents.arms.{arm}")
    badges = {task.badge for task in tasks} | {task.bystander_badge for task in tasks}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        world = World(Path(folder), model)
        with module.opened(world) as say:
            return [
                _played(world, say, task, f"user-{number}", badges)
                for number, task in enumerate(tasks)
            ]


def _played(world: World, say: Any, task: Task, user: str, badges: set[str]) -> Outcome:
    other = f"{user}-colleague"
    world.workspace = Workspace(task)
    first = len(world.requests)

    def turn(user: str, thread: str, text: str) -> str:
        with world.conversation(user, thread):
            answer: str = say(user, thread, text)
        return answer

    for text in task.bystander:
        turn(other, f"{other}-0", text)
    answers = []
    thread = ""
    for number, session in enumerate(task.sessions):
        thread = f"{user}-{number}"
        answers += [turn(user, thread, text) for text in session]
    if not task.same_session:
        thread = f"{user}-ask"
    answers.append(turn(user, thread, task.ask))
    passed = task.passed(answers[-1], world.workspace)
    asked = [each for each in world.requests[first:] if each.user == user]
    probed = len(world.requests)
    answers.append(turn(user, f"{user}-probe", _PROBE))
    theirs = badges - {task.badge}
    texts = [each.text for each in asked] + [each.text for each in world.requests[probed:]]
    return Outcome(
        task=task.name,
        kind=task.kind,
        passed=passed,
        answer=answers[-2],
        tokens=sum(each.tokens for each in asked if not each.is_upkeep),
        upkeep=sum(each.tokens for each in asked if each.is_upkeep),
        reused=reuse(each for each in asked if not each.is_upkeep),
        leaks=sum(any(badge in text for badge in theirs) for text in [*texts, *answers]),
    )


def ceiling(tasks: Sequence[Task]) -> list[Outcome]:
    """Return what the policy makes of a context that has the decisive turns and nothing else."""
    outcomes = []
    for task in tasks:
        workspace = Workspace(task)
        names = ("read_file", "replace_in_file")
        tools: dict[str, Any] = {
            "read_file": workspace.read_file,
            "replace_in_file": workspace.replace_in_file,
        }
        messages = [Message("system", INSTRUCTIONS)]
        answer = ""
        for text in (*task.decisive, task.ask):
            messages.append(Message("user", text))
            while (said := reply(messages, names)).calls:
                messages.append(Message("assistant", "", said.calls))
                for call in said.calls:
                    messages.append(Message("tool", tools[call.name](**call.arguments)))
            answer = said.text
            messages.append(Message("assistant", answer))
        passed = task.passed(answer, workspace)
        outcomes.append(Outcome(task.name, task.kind, passed, answer, 0, 0, 0, 0))
    return outcomes


def reuse(requests: Iterable[Request]) -> int:
    """Return how many tokens stand at the beginning of an earlier request of the same thread, as a
    provider's cache of prefixes has them.
    """
    earlier: defaultdict[str, list[str]] = defaultdict(list)
    common = 0
    for request in requests:
        common += max((_shared(request.text, each) for each in earlier[request.thread]), default=0)
        earlier[request.thread].append(request.text)
    return common // 4


def _shared(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def interval(
    values: Sequence[float], weights: Sequence[float] | None = None, *, seed: int = 7
) -> tuple[float, float, float]:
    """Return the mean of values of tasks, or their sum over that of `weights`, and its 95 %
    interval by a bootstrap over tasks.
    """
    chance = random.Random(seed)
    pairs = list(zip(values, weights or [1.0] * len(values), strict=True))
    means = sorted(_ratio(chance.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES))
    low, high = means[int(0.025 * _RESAMPLES)], means[int(0.975 * _RESAMPLES)]
    return _ratio(pairs), low, high


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    total = math.fsum(weight for _, weight in pairs)
    return math.fsum(value for value, _ in pairs) / total if total else 0.0


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval by Wilson of a share of which `count` of `total` were seen: it says
    how often something may happen that was never seen.
    """
    if not total:
        return 0.0, 1.0
    share, square = count / total, 1.96**2
    middle = share + square / (2 * total)
    margin = 1.96 * math.sqrt(share * (1 - share) / total + square / (4 * total**2))
    scale = 1 + square / total
    return max(0.0, (middle - margin) / scale), min(1.0, (middle + margin) / scale)
