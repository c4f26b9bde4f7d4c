"""What tests of memory as files look at: answers without their frame, files as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tallystick.records.framing import NOTICE
from tallystick.tally import BoundTally


def unframed(answer: str) -> str:
    """An answer without its frame."""
    head, _, rest = answer.partition("<tallystick-context")
    return head + rest.partition(f"{NOTICE}\n")[2].rpartition("\n</tallystick-context>")[0]


def lines_in(answer: str) -> list[str]:
    return [line.partition("\t")[2] for line in unframed(answer).split("\n")[1:]]


def stored_files(bound: BoundTally) -> dict[str, str]:
    """The text of every file by its path, as it is stored."""
    texts = (memory.content for memory in bound.memories(kinds=["document"], limit=500))
    return {path: text for path, _, text in (each.partition("\n") for each in texts)}


def refusals(kind: Any, *commands: Callable[[], str]) -> list[Any]:
    """The error of each of these commands, which are all refused."""
    errors = []
    for command in commands:
        with pytest.raises(kind) as refused:
            command()
        errors.append(refused.value)
    return errors
