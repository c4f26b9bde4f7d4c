"""Measure the import of a folder beside a plain loop of `remember_many` over the same passages.

python -m tests.benchmarks.ingest --files 1000
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tests.core.ingest.folder_source import Folder

from tallystick import Actor, Tally
from tallystick.records import NewMemory, SourceRef
from tallystick.tally.services import services_of
from tallystick_ingest import Ingest
from tallystick_ingest.chunking import chunk

_BATCH = 100
_ADA = Actor(user="ada")


class Hundreds(Folder):
    """The folder with as much between two checkpoints as there may be."""

    page = 100


def write_files(folder: Path, count: int) -> None:
    """Write files of 150 to 600 words in one to four sections."""
    chance = random.Random(7)
    words = [f"w{number}" for number in range(5_000)]
    for number in range(count):
        sections = "".join(
            f"## Part {part}\n\n{' '.join(chance.choices(words, k=150))}\n\n"
            for part in range(chance.randint(1, 4))
        )
        (folder / f"{number:06}.md").write_text(f"# File {number}\n\n{sections}")


def passages(folder: Path) -> Iterator[NewMemory]:
    """Yield what a loop of one's own remembers: each passage with its file and its place."""
    for file in sorted(folder.iterdir()):
        text = file.read_text()
        for position, each in enumerate(chunk(text)):
            yield NewMemory(
                content=text[each.start : each.end],
                kind="document",
                subject=file.name,
                conversation=f"file:{file.name}",
                position=position,
                source=SourceRef(source_type="file", uri=str(file)),
            )


def main() -> None:
    """Import, loop and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    taken: dict[str, list[Took]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "files"
        folder.mkdir()
        write_files(folder, given.files)
        for number in range(given.rounds):
            for name, took in measure(Path(place) / str(number), folder):
                taken.setdefault(name, []).append(took)
    best = {name: Took.least(rounds) for name, rounds in taken.items()}
    for name, took in best.items():
        rate = given.files / took.seconds
        print(f"{name}: {rate:,.0f} files/s, {took.processor:.2f} s of processor time")
    loop, own = best["loop of remember_many"], best["import, with vectors"]
    print(f"import with vectors, of the loop: {loop.seconds / own.seconds:.2f}")
    print(f"the same by processor time: {loop.processor / own.processor:.2f}")
    drained = best["loop of remember_many, drained"]
    print(f"of a loop that is drained too: {drained.seconds / own.seconds:.2f}")


class Took(NamedTuple):
    """What something took, in seconds: by the clock, and of the processor in all threads."""

    seconds: float
    processor: float

    @classmethod
    def now(cls) -> Took:
        """Return the moment from which `since` measures."""
        return cls(time.perf_counter(), time.process_time())

    def since(self) -> Took:
        """Return what it took since this moment."""
        now = Took.now()
        return Took(now.seconds - self.seconds, now.processor - self.processor)

    @classmethod
    def least(cls, rounds: Sequence[Took]) -> Took:
        """Return the least of several rounds: what others did beside it is in none."""
        return cls(*map(min, zip(*rounds, strict=True)))


def measure(place: Path, folder: Path) -> Iterator[tuple[str, Took]]:
    """Yield what each way takes, in a new tally of its own."""
    with Tally.open(place / "loop", background=False) as tally:
        bound = tally.bind(_ADA)
        bound.remember("The embedder is loaded.")
        start = Took.now()
        rest = passages(folder)
        while batch := list(islice(rest, _BATCH)):
            bound.remember_many(batch)
        yield "loop of remember_many", start.since()
        tally.drain()
        yield "loop of remember_many, drained", start.since()
    with Tally.open(place / "import", background=False) as tally:
        bound = tally.bind(_ADA)
        bound.remember("The embedder is loaded.")
        start = Took.now()
        started = Ingest(bound).start_import(folder, adapter="files")
        services_of(tally).background.run_one(str(started.job_id), "import")
        yield "import, found by words", start.since()
        tally.drain()
        yield "import, with vectors", start.since()
        start = Took.now()
        Ingest(bound).start_import(folder, adapter="files")
        tally.drain()
        yield "import again, unchanged", start.since()


if __name__ == "__main__":
    main()
