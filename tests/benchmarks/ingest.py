"""Measure the import of a folder beside a plain loop of `remember_many` over the same passages.

python -m tests.benchmarks.ingest --files 1000
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

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
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "files"
        folder.mkdir()
        write_files(folder, given.files)
        for number in range(given.rounds):
            for name, took in measure(Path(place) / str(number), folder):
                best[name] = min(took, best.get(name, took))
    for name, took in best.items():
        print(f"{name}: {given.files / took:,.0f} files/s")
    ratio = best["loop of remember_many"] / best["import, with vectors"]
    print(f"import with vectors, of the loop: {ratio:.2f}")


def measure(place: Path, folder: Path) -> Iterator[tuple[str, float]]:
    """Yield the seconds that each way takes, in a new tally of its own."""
    with Tally.open(place / "loop", background=False) as tally:
        bound = tally.bind(_ADA)
        bound.remember("The embedder is loaded.")
        start = time.perf_counter()
        rest = passages(folder)
        while batch := list(islice(rest, _BATCH)):
            bound.remember_many(batch)
        yield "loop of remember_many", time.perf_counter() - start
    with Tally.open(place / "import", background=False) as tally:
        bound = tally.bind(_ADA)
        bound.remember("The embedder is loaded.")
        start = time.perf_counter()
        started = Ingest(bound).start_import(folder, adapter="files")
        services_of(tally).background.run_one(str(started.job_id), "import")
        yield "import, found by words", time.perf_counter() - start
        tally.drain()
        yield "import, with vectors", time.perf_counter() - start
        start = time.perf_counter()
        Ingest(bound).start_import(folder, adapter="files")
        tally.drain()
        yield "import again, unchanged", time.perf_counter() - start


if __name__ == "__main__":
    main()
