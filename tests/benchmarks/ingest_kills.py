"""Kill the process of an import of a mailbox again and again, and count what is lost, what comes
twice, and what it costs beside an import that nobody disturbs.

    python -m tests.benchmarks.ingest_kills --messages 10000 --kills 50

The processes are killed with signal 9 at moments drawn at random, evenly over the work. Processor
time is that of the work: of each process what it took to start is left out, which is until it has
opened the tally with all that carries out jobs, and loaded the adapter, the embedder and the rules
of redaction. Each says how much that was.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tallystick import Actor, Tally
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick_ingest import Ingest
from tallystick_ingest.adapters import load_adapter
from tallystick_ingest.preparing import fingerprint_of

ADA = Actor(user="ada", projects=frozenset({"apollo"}))


@dataclass(frozen=True)
class Kills:
    """What came of it."""

    messages: int
    lost: int
    twice: int
    whole: float
    """Seconds of processor time of the work, undisturbed: the lesser of one run before the killed
    import and one after it.
    """
    resumed: float
    """The same, in all processes together of an import that was killed."""
    start: float
    """Seconds of processor time of a start, on average: they are in neither of both."""
    unkilled: int
    """Kills that came after the end."""


def say(what: str) -> None:
    """Show how far a long measurement is, beside what it prints."""
    print(what, file=sys.stderr, flush=True)


def write_mailbox(file: Path, count: int) -> None:
    """Write an mbox of messages of 40 to 200 words, each with a word of its own."""
    chance = random.Random(7)
    words = [f"w{number}" for number in range(5_000)]
    with file.open("w") as box:
        for number in range(count):
            text = " ".join(chance.choices(words, k=chance.randint(40, 200)))
            box.write(
                "From ada@example.org Mon Mar  2 10:00:00 2026\n"
                f"From: Ada <ada@example.org>\nTo: bob@example.org\n"
                f"Subject: Letter {number}\nMessage-ID: <{number}@example.org>\n"
                f"Date: Mon, 02 Mar 2026 10:00:00 +0000\n\nheron{number}q {text}\n\n"
            )


def work(place: Path, import_id: str) -> None:
    """Carry an import on, without the vectors; say what the start took before."""
    with Tally.open(place, background=False) as tally:
        services = services_of(tally)
        background = services.background
        load_adapter(services.settings, "mailbox")
        fingerprint_of(services.memory)
        services.memory.redactor.redact_text("Its rules are loaded.")
        ingest = Ingest(tally.bind(ADA))
        if ingest.import_status(import_id).state == "completed":
            # The process before was killed after its last commit.
            print(time.process_time(), flush=True)
            return
        job_id = ingest.resume(import_id).job_id
        print(time.process_time(), flush=True)
        background.run_one(str(job_id), "import")


def measure(place: Path, messages: int, kills: int) -> Kills:
    """Import a mailbox undisturbed, with kills, and undisturbed again; the tally of the second one
    stays at `place / "killed"`.
    """
    place.mkdir(parents=True, exist_ok=True)
    box = place / "letters.mbox"
    write_mailbox(box, messages)
    whole, _, seconds, _ = _run(place / "whole", box, [])
    chance = random.Random(7)
    # A process lives as long as it takes to start, and for a part of the work.
    lives = [chance.uniform(0.4, 1.4) * seconds / (kills + 1) for _ in range(kills)]
    resumed, starts, _, unkilled = _run(place / "killed", box, lives)
    again, *_ = _run(place / "again", box, [])
    expected = {f"heron{number}q" for number in range(messages)}
    with Tally.open(place / "killed", background=False) as tally:
        found = Counter(text.split()[0] for text in texts_of(tally.bind(ADA)))
    return Kills(
        messages,
        lost=len(expected - found.keys()),
        twice=sum(count - 1 for count in found.values()),
        whole=min(whole, again),
        resumed=resumed,
        start=starts / (kills - unkilled + 1),
        unkilled=unkilled,
    )


def texts_of(bound: BoundTally) -> list[str]:
    """Return the text of every memory of a scope."""
    texts: list[str] = []
    last: str | None = None
    while page := bound.memories(limit=500, before=last):
        texts += [each.content for each in page]
        last = page[-1].id
    return texts


def _run(place: Path, box: Path, lives: list[float]) -> tuple[float, float, float, int]:
    """Import a mailbox in processes that live so many seconds beyond their start; return the
    processor time of their work and that of their starts, the seconds that the last one worked, and
    how many ended before they were killed.
    """
    with Tally.open(place, background=False) as tally:
        import_id = Ingest(tally.bind(ADA)).start_import(box, adapter="mailbox").id
    command = [sys.executable, "-m", "tests.benchmarks.ingest_kills"]
    command += ["--place", str(place), "--resume", import_id]
    before, starts, killed, unkilled, took = _processor_time(), 0.0, 0, 0, 0.0
    for number, life in enumerate([*lives, None]):
        say(f"{place.name}: process {number + 1} of {len(lives) + 1}")
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        starts += float(child.stdout.readline())
        started = time.monotonic()
        try:
            code = child.wait(life)
            assert code == 0
            if life is not None:
                # It has ended before it could be killed: no more is left to do.
                unkilled = len(lives) - killed
                break
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            killed += 1
        finally:
            took = time.monotonic() - started
            child.stdout.close()
    return _processor_time() - before - starts, starts, took, unkilled


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Kill imports.")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--resume", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.resume:
        work(given.place, given.resume)
        return
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(vars(measure(Path(name), given.messages, given.kills)), indent=2))


if __name__ == "__main__":
    main()
