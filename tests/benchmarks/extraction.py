"""Extraction beside its libraries alone: processor time on plain files and on the hostile set.

    python -m tests.benchmarks.extraction [--files 40] [--rounds 3]

The libraries alone are trafilatura's `extract` to Markdown on the bytes of each page, and
pypdfium2's text of each page of a PDF, both in this process. Ours is `extract` on the same files in
the same run, with its child process; texts and archives, which the libraries do not read, are read
by ours only and left out of both. A file that a library cannot read counts with the time that it
took. The rounds alternate, and each side is counted by its fastest. The command exits with 1 above
twice the time.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import trafilatura
from tests.benchmarks.measures import TIME, Measure, figure, lines, missed, most
from tests.hostile_files import write_hostile, write_plain

from tallystick.formats import pdf_text
from tallystick.formats.extracting import Unextractable, extract

FILES, ROUNDS = 40, 3
_BAR = 2.0
_KINDS = {".html": "text/html", ".pdf": "application/pdf"}


def measures(files: int = FILES, rounds: int = ROUNDS) -> Iterator[Measure]:
    """Yield the seconds of both sides, on so many plain pages and PDFs and on the hostile set."""
    with tempfile.TemporaryDirectory() as folder:
        sets = {"plain": Path(folder, "plain"), "hostile": Path(folder, "hostile")}
        write_plain(sets["plain"], files)
        write_hostile(sets["hostile"])
        for suffix in _KINDS:  # libraries load before they are measured
            first = _files(sets["plain"], suffix)[:1]
            _alone(first, suffix)
            _ours(first, suffix)
        pdf_text.READER.close()
        for name, place in sets.items():
            alone = ours = 0.0
            for suffix in _KINDS:
                bodies = _files(place, suffix)
                sides = [
                    (_seconds(_alone, bodies, suffix), _seconds(_ours, bodies, suffix))
                    for _ in range(rounds)
                ]
                first_side, second = (min(side) for side in zip(*sides, strict=True))
                alone, ours = alone + first_side, ours + second
                size = sum(len(body) for body in bodies) / 1_000_000
                of = f"{len(bodies)} {name} {suffix[1:]} files, {size:.1f} MB"
                yield figure(f"{of}: libraries, s", first_side, TIME)
                yield figure(f"{of}: ours, s", second, TIME)
            yield most(f"extraction of {name} files, times libraries", ours / alone, _BAR, TIME)


def main() -> int:
    """Measure both, print each figure, and return whether a bar is missed."""
    parser = argparse.ArgumentParser(description="Extraction beside its libraries alone.")
    parser.add_argument("--files", type=int, default=FILES, help="plain pages, and as many PDFs")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    found = list(measures(**vars(parser.parse_args())))
    print(*lines(found), sep="\n")
    return 1 if missed(found) else 0


def _files(folder: Path, suffix: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob(f"*{suffix}"))]


def _seconds(work: Callable[[list[bytes], str], None], files: list[bytes], suffix: str) -> float:
    """Processor time of some work, in this process and in the child that reads PDFs, with its
    start.
    """
    before = _spent()
    work(files, suffix)
    pdf_text.READER.close()
    return _spent() - before


def _spent() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _alone(files: list[bytes], suffix: str) -> None:
    pypdfium2: Any = import_module("pypdfium2")
    for body in files:
        if suffix == ".html":
            trafilatura.extract(
                body, output_format="markdown", include_comments=False, include_tables=True
            )
            continue
        try:
            document = pypdfium2.PdfDocument(body)
            for number in range(len(document)):
                document[number].get_textpage().get_text_bounded()
        except pypdfium2.PdfiumError:
            continue


def _ours(files: list[bytes], suffix: str) -> None:
    for body in files:
        try:
            extract(body, _KINDS[suffix])
        except Unextractable:
            continue


if __name__ == "__main__":
    sys.exit(main())
