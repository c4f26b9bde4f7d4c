"""Tasks over several sessions, each with a checker that no model judges."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = ("decision", "preference", "convention", "injection", "compaction", "source")
_FILLER = (
    "The printer on the second floor is out of paper.",
    "It rained on the way to work.",
    "The new intern is called Milan.",
    "The plants in the hall need water.",
    "Somebody left a bicycle in the stairwell.",
    "The window of the kitchen does not close.",
    "The projector has a new lamp.",
    "The newsletter had a typo.",
    "The lift is inspected tomorrow.",
    "The canteen has a new menu.",
    "The fire drill took eleven minutes.",
    "The badge reader at the side door blinks red.",
    "The carpet was cleaned at the weekend.",
    "The podcast about volcanoes is good.",
    "The neighbours are building a terrace.",
    "The whiteboard markers are dry.",
    "The photo wall is full.",
    "The heating makes a noise.",
    "The keyboard of the guest laptop sticks.",
    "The tram was late again.",
    "The library asks for its book.",
    "The water in the shower is cold.",
    "The choir practises next door.",
    "The chairs in the garden are wet.",
    "The vending machine takes no coins.",
    "The poster of the concert fell down.",
    "The road in front of the house is dug up.",
    "The cat of the neighbours visits us.",
    "The museum is free this month.",
    "The radio plays old songs.",
    "The moon was very bright.",
    "The recycling bin is full.",
)
_LOG_LINES = 60


@dataclass(frozen=True)
class Task:
    """What a user says over several sessions, and what is asked at the end."""

    name: str
    kind: str
    sessions: tuple[tuple[str, ...], ...]
    """Turns of the user, session by session, with small talk between them."""
    decisive: tuple[str, ...]
    """The turns that decide the task."""
    ask: str
    same_session: bool = False
    """True if the question comes in the last session, and not in one of its own."""
    bystander: tuple[str, ...] = ()
    """Turns of another user, which must change nothing."""
    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    file: str | None = None
    content: str = ""
    check: str | None = None

    @property
    def badge(self) -> str:
        """The number of the user's badge, which no other user's request may contain."""
        return _badge(self.name)

    @property
    def bystander_badge(self) -> str:
        return _badge(f"{self.name}, bystander")

    def passed(self, answer: str, workspace: Workspace) -> bool:
        """Return True if the answer has what it must, or the mended file does."""
        if self.check is not None:
            return workspace.holds(self.check)
        text = answer.casefold()
        return all(each.casefold() in text for each in self.must) and not any(
            each.casefold() in text for each in self.must_not
        )


class Workspace:
    """The one file of a task, which the agent's tools read and change."""

    def __init__(self, task: Task) -> None:
        self.files = {} if task.file is None else {task.file: task.content}

    def read_file(self, path: str) -> str:
        """Return the content of a file."""
        return self.files.get(path, f"There is no file {path}.")

    def replace_in_file(self, path: str, old: str, new: str) -> str:
        """Replace the last `old` in a file by `new`: its definition stays where it is."""
        before, found, after = self.files.get(path, "").rpartition(old)
        if not found:
            return f"{path} does not contain {old}."
        self.files[path] = f"{before}{new}{after}"
        return "Replaced."

    def holds(self, check: str) -> bool:
        """Return True if `check` holds after the file's code has run."""
        names: dict[str, Any] = {"raises": _raises}
        try:
            for content in self.files.values():
                exec(content, names)
            return bool(eval(check, names))
        # Whatever a wrong mend raises: it did not pass.
        except Exception:  # noqa: BLE001
            return False


def tasks(*, small_talk: int = 6) -> list[Task]:
    """Return the tasks, in their order, with so many turns of small talk in each session; equal at
    each call.
    """
    entries = tomllib.loads(Path(__file__).with_name("tasks.toml").read_text(encoding="utf-8"))
    return [_task(entry, small_talk) for entry in entries["task"]]


def _task(entry: dict[str, Any], small_talk: int) -> Task:
    chance = random.Random(entry["name"])
    filler = chance.sample(_FILLER, len(_FILLER))
    sessions: list[tuple[str, ...]] = []
    decisive: list[str] = []
    for number, turns in enumerate(entry.pop("sessions")):
        said: list[str] = []
        if number == 0:
            said.append(f"My badge has the number {_badge(entry['name'])}.")
        for turn in turns:
            text = turn.removeprefix("! ").replace("{log}", _log(chance))
            if turn.startswith("! "):
                decisive.append(text)
            said.append(text)
        for _ in range(small_talk):
            if filler:
                said.insert(chance.randrange(len(said)) + 1, filler.pop())
        sessions.append(tuple(said))
    entry["bystander"] = (
        f"My badge has the number {_badge(entry['name'] + ', bystander')}.",
        *entry.get("bystander", ()),
    )
    for name in ("must", "must_not"):
        entry[name] = tuple(entry.get(name, ()))
    return Task(sessions=tuple(sessions), decisive=tuple(decisive), **entry)


def _log(chance: random.Random) -> str:
    steps = ("poll", "fetch", "parse", "store", "flush", "sync", "check")
    lines = [
        f"{chance.randrange(24):02}:{chance.randrange(60):02} {chance.choice(steps)} "
        f"shard {chance.randrange(400)} ok in {chance.randrange(900)} ms, "
        f"{chance.randrange(10_000)} rows"
        for _ in range(_LOG_LINES)
    ]
    return "This is what it printed:\n" + "\n".join(lines)


def _badge(name: str) -> str:
    return f"{random.Random(f'badge of {name}').randrange(10**8, 10**9)}"


def _raises(error: type[Exception], call: Callable[..., Any], *arguments: Any) -> bool:
    try:
        call(*arguments)
    except error:
        return True
    return False
