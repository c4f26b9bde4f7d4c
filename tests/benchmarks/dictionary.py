"""How `packing.dict` was trained: on rows of a tally filled with sentences of this project.

What is stored is read with the dictionary that it was written with: the file of a release is never
made again. This writes another one, to be compared with it.

    python -m tests.benchmarks.dictionary FILE
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import zstandard
from sqlalchemy import select
from tests.benchmarks.languages import SAID
from tests.fixtures.releases.recording import record

from tallystick import Tally
from tallystick.storage.engine import tables
from tallystick.storage.engine.packing import PackedBytes, PackedText
from tallystick.tally.services import services_of

SIZE = 32 * 1024
_ROOT = Path(__file__).parent.parent.parent
_LENGTHS = (80, 130, 200, 300, 600, 1_000)
_TEXTS = 900
_MARKUP = re.compile(r"(?s)```.*?```|[|`*#<>\[\]_]|https?://\S+")


def _prose() -> str:
    docs = _ROOT / "docs"
    files = [*sorted(docs.glob("*.md")), *sorted(docs.glob("reference/*.md"))]
    files += [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md"]
    texts = [_MARKUP.sub(" ", file.read_text(encoding="utf-8")) for file in files]
    texts += [" ".join(said) for said, _ in SAID.values()]
    return re.sub(r"\s+", " ", " ".join(texts))


def _fill(tally: Tally) -> None:
    record(tally)
    bound, text, source = tally.bind(), _prose(), random.Random(14)
    for number in range(_TEXTS):
        length = _LENGTHS[number % len(_LENGTHS)]
        begin = source.randrange(len(text) - length)
        content = text[begin : begin + length]
        if number % 2:
            bound.remember(content, kind="turn", conversation="c", position=number, speaker="Anna")
            continue
        remembered = bound.remember(content, tags=["notes"], kind="fact")
        if number % 30 == 0:
            bound.forget(remembered.id, reason="It is no longer so.")
        if number % 20 == 0:
            with bound.run("assistant", goal=content[:60]) as run, run.step("model_call") as step:
                step.record(
                    "request",
                    {
                        "model": "gpt-5",
                        "messages": [
                            {"role": "system", "content": "You are a helpful assistant."},
                            {"role": "user", "content": content},
                        ],
                    },
                )
                step.record("response", {"answer": {"role": "assistant", "content": content}})


def _samples() -> Iterator[bytes]:
    """Yield what a tally stores packed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(Path(folder) / "tally", background=False) as tally,
    ):
        _fill(tally)
        with services_of(tally).store.database.read() as connection:
            for table in tables.metadata.sorted_tables:
                for column in table.columns:
                    if type(column.type) not in (PackedText, PackedBytes):
                        continue
                    for value in connection.execute(select(column)).scalars():
                        if value:
                            yield value.encode() if isinstance(value, str) else value


if __name__ == "__main__":
    trained = zstandard.train_dictionary(SIZE, list(_samples()), level=3)
    Path(sys.argv[1]).write_bytes(trained.as_bytes())
