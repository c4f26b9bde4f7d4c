"""The gate of documents and sources: what an import promises, measured, each beside its bar.

    python -m tests.benchmarks.ingest_gate [--only killed speed] [--messages 10000 --kills 50]

It prints a table and exits with 1 where a bar fails. Everything is local: the mailbox, the site and
the files are written here, and no network is used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rich.console import Console
from rich.table import Table
from tests.benchmarks import extraction, ingest, ingest_kills, library
from tests.hostile_files import write_hostile

from tallystick import Actor, Tally
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick_ingest import Ingest
from tallystick_sources.crawl import CrawlSource

_ADA = ingest_kills.ADA
_BOB = Actor(user="bob", projects=frozenset({"apollo"}))
_ROOT = Path(__file__).parents[2]
_MEGABYTE = 1_024 * 1_024


class Bar(NamedTuple):
    """One promise."""

    what: str
    measured: str
    wanted: str
    holds: bool


def killed(place: Path, messages: int, kills: int) -> Iterator[Bar]:
    """An import of a mailbox that is killed, and who finds what came of it."""
    done = ingest_kills.measure(place, messages, kills)
    name = f"mbox of {messages:,}, kill -9 at {kills - done.unkilled} points"
    yield Bar(f"{name}: lost", str(done.lost), "0", done.lost == 0)
    yield Bar(f"{name}: twice", str(done.twice), "0", done.twice == 0)
    ratio = done.resumed / done.whole
    yield Bar("processor time of the work, resumed", f"{ratio:.2f}", "≤ 1.20", ratio <= 1.2)
    with Tally.open(place / "killed", background=False) as tally:
        bound = tally.bind(_ADA)
        [newest] = Ingest(bound).imports()
        found = sum(
            any(hit.content.startswith(word) for hit in bound.recall(word, limit=1))
            for word in _with_progress("asked for a word", messages)
        )
        share = f"{found:,} with {newest.waiting:,} waiting for vectors"
        is_before = newest.waiting == newest.counters.stored == messages
        yield Bar(
            "found by a word, before any vector", share, "all", found == messages and is_before
        )
        project = [tally.bind(actor, scope="project:apollo") for actor in (_ADA, _BOB)]
        shared = project[0].remember("Letters about herons are answered on Mondays.").id
        leaked = sum(
            hit.memory.id != shared
            for word in _with_progress("asked in the project", messages)
            for other in project
            for hit in other.recall(f"{word} letter heron", limit=5)
        )
        yield Bar("private records in a project's recall", str(leaked), "0", leaked == 0)


def _with_progress(what: str, messages: int) -> Iterator[str]:
    """Yield the word of each message, and say how far it is."""
    for number in range(messages):
        if number % 1_000 == 0:
            ingest_kills.say(f"{what}: {number:,} of {messages:,}")
        yield f"heron{number}q"


def hostile(place: Path) -> Iterator[Bar]:
    """Files that somebody made to hurt whoever reads them."""
    count = write_hostile(place)
    script = _ROOT / "tests" / "core" / "ingest" / "hostile_reading.py"
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
    yield Bar(
        f"hostile set of {count}: taken or skipped", f"{read}", "all", read == count and count >= 60
    )
    peak = max(said["peaks"]) / _MEGABYTE
    yield Bar("hostile set: memory", f"{peak:.0f} MB", "≤ 500 MB", 0 < peak <= 500)


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


def crawled(place: Path, pages: int) -> Iterator[Bar]:
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
        yield Bar("crawl at the polite rate", f"{rate:.0f} pages/min", "> 10", rate > 10)
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
        yield Bar(
            f"second sync of {first.stored + first.duplicate:,} pages: versions",
            f"{second.stored} of {seen:,}",
            "0",
            second.stored == 0 and seen >= pages,
        )
        broken = sum(count for path, count in _Pages.asked.items() if path.startswith("/secret/"))
        yield Bar("requests that robots.txt forbids", str(broken), "0", broken == 0)
    server.shutdown()
    server.server_close()


def replayed(place: Path) -> Iterator[Bar]:
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
    yield Bar("replay twice", "changes nothing" if is_same else "changes", "nothing", is_same)


def speed(place: Path, files: int, rounds: int) -> Iterator[Bar]:
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
        ("LlamaIndex and Chroma", "pipeline", 1.0),
    ):
        own, other = (
            ingest.Took.least([each[of] for each in rounds_took])
            for of in ("import, with vectors", way)
        )
        ratio = other.seconds / own.seconds
        rates = f"{files / own.seconds:,.0f} to {files / other.seconds:,.0f} files/s"
        used = f"{other.processor / own.processor:.2f} by processor time"
        measured = f"{ratio:.2f} ({rates}; {used})"
        yield Bar(f"import with vectors beside {name}", measured, f"≥ {bar}", ratio >= bar)


def asked(place: Path) -> Iterator[Bar]:
    """Questions over the standard library's documentation."""
    found, count, digest = library.measure(place / "library", place)
    own = found.pop("import and recall")
    for name, other in found.items():
        yield Bar(
            f"R@5 of {count:,} sections, questions {digest[:8]}, beside {name}",
            f"{own.recall:.3f} to {other.recall:.3f}",
            "≥",
            own.recall >= other.recall,
        )


def extracted() -> Iterator[Bar]:
    """The reading of pages and PDFs beside the libraries alone."""
    failed = extraction.main(["--files", "40"])
    yield Bar("extraction beside its libraries", "see its table", "≤ 2 times", not failed)


def main() -> int:
    """Measure, print and return whether a bar fails."""
    parser = argparse.ArgumentParser(description="The gate of documents and sources.")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--pages", type=int, default=1_000)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="parts, such as killed or speed")
    given = parser.parse_args()
    table = Table("what", "measured", "bar", "", title="Documents and sources")
    is_failed = False
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        parts = {
            "hostile": hostile(place / "hostile"),
            "crawled": crawled(place / "site", given.pages),
            "replayed": replayed(place / "replayed"),
            "extracted": extracted(),
            "asked": asked(place / "asked"),
            "speed": speed(place / "speed", given.files, given.rounds),
            "killed": killed(place / "kills", given.messages, given.kills),
        }
        for part in given.only or parts:
            for bar in parts[part]:
                table.add_row(bar.what, bar.measured, bar.wanted, "" if bar.holds else "FAILS")
                is_failed |= not bar.holds
                print(f"{bar.what}: {bar.measured} ({bar.wanted})", flush=True)
    Console().print(table)
    return int(is_failed)


if __name__ == "__main__":
    sys.exit(main())
