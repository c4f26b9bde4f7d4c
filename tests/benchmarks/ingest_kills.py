"""Kill the process of an import again and again, and count what is lost, what comes twice, and what
it costs beside an import that nobody disturbs.

python -m tests.benchmarks.ingest_kills --files 4000 --kills 20
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.benchmarks.ingest import write_files

from tallystick import Actor, Tally
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick_ingest import Ingest
from tallystick_ingest.chunking import chunk

_ADA = Actor(user="ada")
_SETTINGS = Settings(sources={"folder": "tests.benchmarks.ingest:Hundreds"})
_LONGEST = 4.0
"""Seconds that a process lives at most before it is killed."""


def work(place: Path, import_id: str) -> None:
    """Carry an import on, without the vectors."""
    with Tally.open(place, background=False, settings=_SETTINGS) as tally:
        job_id = Ingest(tally.bind(_ADA)).resume(import_id).job_id
        services_of(tally).background.run_one(str(job_id), "import")


def measure(place: Path, folder: Path, kills: int) -> tuple[float, Counter[str]]:
    """Import a folder in processes of which so many are killed; return the seconds of processor
    time that they took together, and how often each passage is there.
    """
    with Tally.open(place, background=False, settings=_SETTINGS) as tally:
        import_id = Ingest(tally.bind(_ADA)).start_import(folder, adapter="folder").id
    command = [sys.executable, "-m", "tests.benchmarks.ingest_kills"]
    command += ["--place", str(place), "--resume", import_id]
    chance, before = random.Random(7), _processor_time()
    for _ in range(kills):
        child = subprocess.Popen(command)
        try:
            child.wait(chance.uniform(0.5, _LONGEST))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    subprocess.run(command, check=True)
    took = _processor_time() - before
    with Tally.open(place, background=False, settings=_SETTINGS) as tally:
        ingest = Ingest(tally.bind(_ADA))
        status = ingest.import_status(import_id)
        assert status.state == "completed", status.error_text
        print(f"{kills} kills: {status.counters.stored:,} stored, {status.waiting:,} by words")
        before_id, texts = None, Counter[str]()
        while page := ingest.documents(limit=500, before=before_id):
            before_id = page[-1].id
            for document in page:
                texts.update(str(each.text) for each in ingest.chunks(document.id))
    return took, texts


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Import twice, with and without kills, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=4_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--resume", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.resume:
        work(given.place, given.resume)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "files"
        folder.mkdir()
        write_files(folder, given.files)
        expected = Counter[str]()
        for file in folder.iterdir():
            text = file.read_text()
            expected.update(text[each.start : each.end] for each in chunk(text))
        whole, texts = measure(Path(name) / "whole", folder, 0)
        assert texts == expected
        killed, texts = measure(Path(name) / "killed", folder, given.kills)
        print(f"lost: {(expected - texts).total()}, twice: {(texts - expected).total()}")
        print(f"processor time: {whole:.1f} s undisturbed, {killed:.1f} s with the kills")


if __name__ == "__main__":
    main()
