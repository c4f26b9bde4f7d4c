"""Functions and files that one checkpoint and one memory pass through on the caller's thread.

    make bench-journeys [ARGS="--files"]

Counts calls, distinct functions and distinct files of this project, after a first call of the same
kind has filled the caches. What other threads do is not counted: a reader who follows a call by
hand opens these files and no others. The figures depend on the code alone, not on the machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

import tallystick
from tallystick import Tally
from tallystick_langgraph import TallySaver

_ROOTS = ("core", "checkpointers", "callbacks", "integrations")
_PROJECT = Path(tallystick.__file__).parent.parent.parent


def calls_of(call: Callable[[], Any]) -> Counter[CodeType]:
    """Count the calls of each function of this project that `call` makes on this thread."""
    counts: Counter[CodeType] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            counts[frame.f_code] += 1

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Counter({code: times for code, times in counts.items() if _file(code) is not None})


def put_journey(tally: Tally) -> Counter[CodeType]:
    """Count the calls of the second `TallySaver.put` of a thread; each holds two channels."""
    saver = TallySaver(tally)
    config: Any = {"configurable": {"thread_id": "journey", "checkpoint_ns": ""}}
    messages: list[Any] = [HumanMessage("Where is the key?", id="1")]

    def put() -> None:
        nonlocal config
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6())
        checkpoint["channel_values"] = {"messages": [*messages], "topic": "keys"}
        config = saver.put(config, checkpoint, {"source": "loop", "step": len(messages)}, {})

    put()
    messages.append(AIMessage("Under the mat.", id="2"))
    return calls_of(put)


def remember_journey(tally: Tally) -> Counter[CodeType]:
    """Count the calls of the second `remember` of one bound tally."""
    bound = tally.bind()
    bound.remember("The key is under the mat.")
    return calls_of(lambda: bound.remember("The shed has a second key."))


def main() -> None:
    """Measure both journeys in a new tally and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="list the files, most calls first")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as place,
        Tally.open(Path(place) / "tally", background=False) as tally,
    ):
        journeys = {
            "TallySaver.put": put_journey(tally),
            "bound.remember": remember_journey(tally),
        }
    for name, counts in journeys.items():
        files: Counter[str] = Counter()
        for code, times in counts.items():
            files[str(_file(code))] += times
        calls = sum(counts.values())
        print(f"{name:16} {calls:5} calls {len(counts):4} functions {len(files):3} files")
        if arguments.files:
            for file, times in files.most_common():
                print(f"    {times:4}  {file}")


def _file(code: CodeType) -> Path | None:
    """Return the file of a function relative to the project, or None for code of others."""
    path = Path(code.co_filename)
    if not path.is_relative_to(_PROJECT):
        return None
    file = path.relative_to(_PROJECT)
    return file if file.parts[0] in _ROOTS else None


if __name__ == "__main__":
    main()
