"""The gate of documents and sources: what an import promises, measured, each beside its bar.

    python -m tests.benchmarks.ingest_gate [--only killed speed] [--messages 10000 --kills 50]

It prints a table and exits with 1 where a bar is missed. Everything is local: the mailbox, the site
and the files are written here, and no network is used.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from tests.benchmarks import extraction, ingest, ingest_kills, library
from tests.benchmarks.measures import TIME, Measure, least, lines, missed, most
from tests.hostile_files import write_hostile

from tallystick import Actor, Tally
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick_ingest import Ingest
from tallystick_sources.crawl import CrawlSource

MESSAGES, KILLS, PAGES, FILES, ROUNDS = 10_000, 50, 1_000, 1_000, 3
_ADA = ingest_kills.ADA
_BOB = Actor(user="bob", projects=frozenset({"apollo"}))
_ROOT = Path(__file__).parents[2]
_MEGABYTE = 1_024 * 1_024


def killed(place: Path, messages: int, kills: int) -> Iterator[Measure]:
    """An import of a mailbox that is killed, and who finds what came of it."""
    done = ingest_kills.measure(place, messages, kills)
    of = f"{messages:,} messages, kill -9 at {kills - done.unkilled} points"
    yield most("messages lost after kills", done.lost, 0, "lost", of)
    yield most("messages twice after kills", done.twice, 0, "twice", of)
    yield most("processor time of the work, resumed", done.resumed / done.whole, 1.2, TIME)
    with Tally.open(place / "killed", background=False) as tally:
        bound = tally.bind(_ADA)
        [newest] = Ingest(bound).imports()
        found = sum(
            any(hit.content.startswith(word) for hit in bound.recall(word, limit=1))
            for word in _with_progress("asked for a word", messages)
        )
        early = found if newest.waiting == newest.counters.stored == messages else 0
        of = f"found by a word of {messages:,}, before any vector"
        yield least(of, early, messages, "not found", f"{newest.waiting:,} wait for vectors")
        project = [tally.bind(actor, scope="project:apollo") for actor in (_ADA, _BOB)]
        shared = project[0].remember("Letters about herons are answered on Mondays.").id
        leaked = sum(
            hit.memory.id != shared
            for word in _with_progress("asked in the project", messages)
            for other in project
            for hit in other.recall(f"{word} letter heron", limit=5)
        )
        yield most("private records in a project's recall", leaked, 0, "leak")


def _with_progress(what: str, messages: int) -> Iterator[str]:
    """Yield the word of each message, and say how far it is."""
    for number in range(messages):
        if number % 1_000 == 0:
            ingest_kills.say(f"{what}: {number:,} of {messages:,}")
        yield f"heron{number}q"


def hostile(place: Path) -> Iterator[Measure]:
    """Files that somebody made to hurt whoever reads them."""
    count = write_hostile(place)
    script = _ROOT / "tests" / "core" / "formats" / "hostile_reading.py"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    run = subprocess.run(
        [sys.executable, str(script), str(place)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    said: Any = json.loads(run.stdout) if run.returncode == 0 else {"outcomes": {}, "peaks": [0]}
    read = len(said["outcomes"])
    yield least("hostile files", count, 60, "hostile file")
    yield most("hostile files neither taken nor skipped", count - read, 0, "hostile file")
    peak = max(said["peaks"]) / _MEGABYTE
    yield most("hostile files: memory, MB", peak or math.inf, 500, "memory")


class _Pages(BaseHTTPRequestHandler):
    """A site of so many pages, each of which leads to ten others, and to one that is forbidden."""

    count: ClassVar[int] = 30
    asked: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        """Answer."""
        self.asked[self.path] += 1
        name = self.path.strip("/") or "0"
        if self.path == "/robots.txt":
            self._say(200, "text/plain", "User-agent: *\nDisallow: /secret/\n")
        elif name.isdigit() and int(name) < self.count:
            number = int(name)
            following = range(10 * number + 1, 10 * number + 11)
            links = "".join(f'<a href="/{each}">{each}</a>' for each in following)
            text = f"<p>The heron number {number} nests at pond {7 * number}.</p>" * 5
            page = f"<title>Page {number}</title>{text}{links}<a href='/secret/{number}'>s</a>"
            self._say(200, "text/html", page)
        else:
            self._say(404, "text/plain", "none")

    def _say(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", f"{kind}; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        """Say nothing."""


class PatientCrawl(CrawlSource):
    """A crawler whose waits take no time: the rate is measured by the other one."""

    def __init__(self, **options: Any) -> None:
        now = [0.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        super().__init__(**options, clock=lambda: now[0], sleep=sleep)


def crawled(place: Path, pages: int) -> Iterator[Measure]:
    """A local site, at the polite rate, and a larger one twice."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    sources = {"patient": "tests.benchmarks.ingest_gate:PatientCrawl"}
    with Tally.open(place, background=False, settings=Settings(sources=sources)) as tally:
        ingest = Ingest(tally.bind(_ADA))
        _Pages.count = 30
        start = time.monotonic()
        begun = ingest.start_import(address, adapter="crawl", options={"allow_private": True})
        services_of(tally).background.run_one(str(begun.job_id), "import")
        rate = 60 * ingest.import_status(begun.id).counters.stored / (time.monotonic() - start)
        yield least("crawl at the polite rate, pages a minute", rate, 10, TIME)
        _Pages.count = pages
        options: Any = {"allow_private": True, "depth": 5, "max_pages": 10 * pages}
        versions = []
        for _ in range(2):
            begun = ingest.start_import(address, adapter="patient", options=options)
            services_of(tally).background.run_one(str(begun.job_id), "import")
            versions.append(ingest.import_status(begun.id).counters)
        first, second = versions
        seen = second.unchanged + second.stored
        # The first thirty were there from the crawl before.
        of = f"of {first.stored + first.duplicate:,}"
        yield least("pages of a second sync", seen, pages, "lost", of)
        yield most("versions by a second sync", second.stored, 0, "twice", of)
        broken = sum(count for path, count in _Pages.asked.items() if path.startswith("/secret/"))
        yield most("requests that robots.txt forbids", broken, 0, "robots")
    server.shutdown()
    server.server_close()


def replayed(place: Path) -> Iterator[Measure]:
    """One record read again, twice."""
    folder = place / "files"
    folder.mkdir(parents=True)
    ingest.write_files(folder, 20)
    sources = {"folder": "tests.benchmarks.ingest:Hundreds"}
    with Tally.open(place / "tally", background=False, settings=Settings(sources=sources)) as tally:
        bound = tally.bind(_ADA)
        done = Ingest(bound).start_import(folder, adapter="folder")
        tally.drain()
        (folder / "000003.md").write_text("# File 3\n\nThe heron moved to the weir.\n")
        Ingest(bound).replay(done.id, "000003.md")
        before = [each.dump() for each in bound.memories(limit=500)]
        Ingest(bound).replay(done.id, "000003.md")
        is_same = before == [each.dump() for each in bound.memories(limit=500)]
    yield most("changes by a second replay", not is_same, 0, "twice")


def speed(place: Path, files: int, rounds: int) -> Iterator[Measure]:
    """Files a second beside a loop of one's own, and beside LlamaIndex's pipeline with Chroma."""
    folder = place / "files"
    folder.mkdir(parents=True)
    ingest.write_files(folder, files)
    rounds_took: list[dict[str, ingest.Took]] = []
    for number in range(rounds):
        ingest_kills.say(f"speed: round {number + 1} of {rounds}")
        took = dict(ingest.measure(place / str(number), folder))
        with Tally.open(place / f"embedder{number}", background=False) as tally:
            tally.bind(_ADA).remember("The embedder is loaded.")
            embedder = services_of(tally).memory.embedder
            if number == 0:
                # What is imported and compiled once is in no round.
                library.chroma_pipeline(folder, place / "first", embedder)
            start = ingest.Took.now()
            library.chroma_pipeline(folder, place / f"chroma{number}", embedder)
            took["pipeline"] = start.since()
        rounds_took.append(took)
    for name, way, bar in (
        ("a loop of remember_many", "loop of remember_many", 0.7),
        ("a loop that is drained too", "loop of remember_many, drained", 0.7),
        ("LlamaIndex and Chroma", "pipeline", 1.0),
    ):
        own, other = (
            ingest.Took.least([each[of] for each in rounds_took])
            for of in ("import, with vectors", way)
        )
        ratio = other.seconds / own.seconds
        rates = f"{files / own.seconds:,.0f} to {files / other.seconds:,.0f} files/s"
        used = f"{other.processor / own.processor:.2f} by processor time"
        beside = f"import with vectors beside {name}"
        yield least(beside, ratio, bar, TIME, f"{rates}; {used}")


def asked(place: Path) -> Iterator[Measure]:
    """Questions over the standard library's documentation."""
    found, count, digest = library.measure(place / "library", place)
    own = found.pop("import and recall")
    for name, other in found.items():
        of = f"{own.recall:.3f} to {other.recall:.3f}, {count:,} sections, questions {digest[:8]}"
        more = own.recall - other.recall
        yield least(f"R@5 of sections, more than {name}", more, 0, "recall", of)


def extracted() -> Iterator[Measure]:
    """The reading of pages and PDFs beside the libraries alone."""
    yield from extraction.measures(files=40)


def measures(
    messages: int = MESSAGES,
    kills: int = KILLS,
    pages: int = PAGES,
    files: int = FILES,
    rounds: int = ROUNDS,
    only: Sequence[str] = (),
) -> Iterator[Measure]:
    """Yield every figure beside its bar; `only` are names of parts."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        parts = {
            "hostile": hostile(place / "hostile"),
            "crawled": crawled(place / "site", pages),
            "replayed": replayed(place / "replayed"),
            "extracted": extracted(),
            "asked": asked(place / "asked"),
            "speed": speed(place / "speed", files, rounds),
            "killed": killed(place / "kills", messages, kills),
        }
        for part in only or parts:
            yield from parts[part]


def main() -> int:
    """Measure, print and return whether a bar fails."""
    parser = argparse.ArgumentParser(description="The gate of documents and sources.")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="*", default=(), help="parts, such as killed or speed")
    found = []
    for each in measures(**vars(parser.parse_args())):
        print(*lines([each]), flush=True)
        found.append(each)
    print("", *lines(found), sep="\n")
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
