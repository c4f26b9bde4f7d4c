"""Whether a model finds the right tool of the MCP server: 60 tasks with the tool that answers each.

The tasks are in tests/fixtures/discovery_tasks.json and were written before the descriptions. A
plain BM25 router over names and descriptions runs everywhere. The descriptions were tuned against
the same tasks, so that its figures are those of a fit, and no forecast for other words.

With `--model openai:gpt-5`, as LangChain names it, a model chooses too: it is given the tools as
the server lists them and one task at a time, and answers with a call.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError
from Stemmer import Stemmer  # type: ignore[import-not-found,unused-ignore]
from tests.benchmarks.agreement import agreement_measures
from tests.benchmarks.measures import lines

from tallystick_mcp.routes import EXPLORE, MANAGE
from tallystick_mcp.schemas import slim_schema
from tallystick_mcp.server import TOOLS

TASKS = Path(__file__).parents[1] / "fixtures" / "discovery_tasks.json"
_MODES = {"explore": (*EXPLORE, "policy"), "manage": tuple(MANAGE)}
_K, _B = 1.2, 0.75
_STOP_WORDS = frozenset(
    """a an the of to in on at for from with by as and or it its this that these those is are was
    were be been do does did has have had can could may should would i me my we us our you your
    he she they them their user users s memory memories about if before any all so not no
    """.split()  # noqa: SIM905
)
"""Words that say nothing of a task; those that ask (what, which, who, why) do."""


def load_tasks() -> list[dict[str, Any]]:
    """Return the tasks, as they were frozen."""
    tasks: list[dict[str, Any]] = json.loads(TASKS.read_text(encoding="utf-8"))
    return tasks


class Outcome(NamedTuple):
    """How many of the tasks were answered rightly."""

    discovered: int
    """The right tool."""
    selected: int
    """The right tool, and the right mode of it."""
    called: int | None
    """The same, with every argument that the task needs, and none that the tool would refuse; None
    for a router that gives no arguments.
    """
    total: int
    misses: tuple[str, ...]

    def __str__(self) -> str:
        shares = [("discovery", self.discovered), ("selection", self.selected)]
        if self.called is not None:
            shares.append(("whole calls", self.called))
        told = ", ".join(f"{name} {count / self.total:.0%}" for name, count in shares)
        return f"{told} of {self.total} tasks"


class Choice(NamedTuple):
    """What was chosen for a task."""

    tool: str
    mode: str | None = None
    """None for a tool without modes."""
    arguments: dict[str, Any] | None = None
    """None where the router gives none."""


class Chooses(Protocol):
    """Chooses a tool for a task."""

    def route(self, task: str) -> Choice:
        """Return the tool, its mode and the arguments."""
        raise NotImplementedError


class Ranking:
    """BM25 over a few documents."""

    def __init__(self, documents: Sequence[tuple[str | None, str]]) -> None:
        self.names = [name for name, _ in documents]
        self._documents = [Counter(_words(text)) for _, text in documents]
        self._lengths = [sum(document.values()) for document in self._documents]
        self._mean = sum(self._lengths) / len(self._lengths)
        self._in = Counter(word for document in self._documents for word in document)

    def best(self, text: str) -> str | None:
        """Return the name of the best document; of equals the first."""
        words = _words(text)
        scores = [self._score(words, place) for place in range(len(self.names))]
        return self.names[max(range(len(scores)), key=lambda place: (scores[place], -place))]

    def _score(self, words: Sequence[str], place: int) -> float:
        document, length = self._documents[place], self._lengths[place]
        score = 0.0
        for word in words:
            count, number = document[word], self._in[word]
            weight = math.log(1 + (len(self.names) - number + 0.5) / (number + 0.5))
            score += weight * count * (_K + 1) / (count + _K * (1 - _B + _B * length / self._mean))
        return score


class Router:
    """Chooses a tool by the words of its description, then a mode by its part of it."""

    def __init__(self) -> None:
        self._tools = Ranking(
            [(name, f"{name} {tool.description}") for name, tool in TOOLS.items()]
        )
        self._modes = {name: Ranking(_parts(name)) for name in _MODES}

    def route(self, task: str) -> Choice:
        """Return the tool and the mode for a task."""
        tool = self._tools.best(task) or ""
        return Choice(tool, self._modes[tool].best(task) if tool in self._modes else None)


def tool_schemas() -> list[dict[str, Any]]:
    """Return the tools as the server lists them, for a chat model of LangChain."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": tool.description,
                "parameters": slim_schema(tool.arguments),
            },
        }
        for name, tool in TOOLS.items()
    ]


class ModelRouter:
    """Has a chat model of LangChain choose, from the tools as the server lists them."""

    def __init__(self, model: Any) -> None:
        self._model = model.bind_tools(tool_schemas())

    def route(self, task: str) -> Choice:
        """Return what the model calls first; no tool where it calls none."""
        calls = self._model.invoke(task).tool_calls
        if not calls:
            return Choice("", None, {})
        name, arguments = calls[0]["name"], calls[0]["args"]
        field = _FIELDS.get(name)
        return Choice(name, None if field is None else arguments.get(field), arguments)


_FIELDS = {"explore": "mode", "manage": "action"}
"""The argument that names the mode of a tool."""
_STEM = Stemmer("english")


def _words(text: str) -> list[str]:
    words = re.findall(r"[a-z]+", text.lower().replace("_", " "))
    return [_STEM.stemWord(word) for word in words if word not in _STOP_WORDS]


def _parts(name: str) -> list[tuple[str | None, str]]:
    """Return for each mode of a tool the part of the description that is about it."""
    about: dict[str, str] = dict.fromkeys(_MODES[name], "")
    for sentence in re.split(r"[.]\s+", TOOLS[name].description):
        head, _, rest = sentence.partition(":")
        if head in about:
            about[head] += rest
    return [(mode, f"{mode} {text}") for mode, text in about.items()]


def route_all(router: Chooses, tasks: Sequence[dict[str, Any]]) -> Outcome:
    """Route every task; count those that got the right tool, the right mode, the right call."""
    discovered = selected = called = 0
    gives_arguments = False
    misses = []
    for task in tasks:
        choice = router.route(task["task"])
        gives_arguments = gives_arguments or choice.arguments is not None
        is_selected = choice[:2] == (task["tool"], task["mode"])
        discovered += choice.tool == task["tool"]
        selected += is_selected
        wrong = _wrong(choice, task["arguments"]) if is_selected else []
        called += is_selected and not wrong
        if not is_selected:
            there = f"{choice.tool}/{choice.mode}, not {task['tool']}/{task['mode']}"
            misses.append(f"{task['task']} → {there}")
        elif wrong and choice.arguments is not None:
            misses.append(f"{task['task']} → {choice.tool} without a fitting {', '.join(wrong)}")
    return Outcome(
        discovered, selected, called if gives_arguments else None, len(tasks), tuple(misses)
    )


def _wrong(choice: Choice, wanted: Mapping[str, Any]) -> list[str]:
    """Return the arguments that a task needs and a call has otherwise or not, and those that the
    tool would refuse.
    """
    given = choice.arguments or {}
    wrong = [name for name, value in wanted.items() if not _fits(name, given.get(name), value)]
    try:
        TOOLS[choice.tool].arguments.model_validate(given)
    except ValidationError as error:
        wrong += [str(each["loc"][0]) for each in error.errors() if each["loc"]]
    return list(dict.fromkeys(wrong))


_PROSE = ("query", "content", "reason")
"""Arguments that may be worded in more than one way."""


def _fits(name: str, given: Any, wanted: Any) -> bool:
    """Return True if an argument says what a task needs: `*` is any value, prose has at least half
    of the words, and a list may be in another order.
    """
    if given is None or wanted == "*":
        return given is not None
    if name in _PROSE:
        words = set(_words(str(wanted)))
        return 2 * len(words & set(_words(str(given)))) >= len(words)
    if isinstance(wanted, list):
        return {str(each).casefold() for each in wanted} == {
            str(each).casefold() for each in (given if isinstance(given, list) else [given])
        }
    if isinstance(wanted, str):
        return wanted.casefold() == str(given).casefold()
    return bool(wanted == given)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what the router found, and what a model that is named chose."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="print the misses too")
    parser.add_argument("--model", help="a real model, as LangChain names it: openai:gpt-5")
    chosen = parser.parse_args(arguments)
    routers: dict[str, Chooses] = {"BM25": Router()}
    if chosen.model is not None:
        from langchain.chat_models import init_chat_model

        routers[chosen.model] = ModelRouter(init_chat_model(chosen.model))
    for name, router in routers.items():
        outcome = route_all(router, load_tasks())
        print(f"{name}: {outcome}")
        if chosen.verbose:
            print("\n".join(outcome.misses))
    print(*lines([*agreement_measures("tools")]), sep="\n")
    if chosen.model is None:
        print("A model: not run. Name one with --model, and have its key in the environment.")


if __name__ == "__main__":
    main()
