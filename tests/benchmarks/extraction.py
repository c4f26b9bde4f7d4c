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
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import trafilatura
from rich.console import Console
from rich.table import Table
from tests.hostile_files import write_hostile, write_plain

from tallystick_ingest import pdf_text
from tallystick_ingest.extracting import Unextractable, extract

_BAR = 2.0
_KINDS = {".html": "text/html", ".pdf": "application/pdf"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both, print a table, and return whether one is above the bar."""
    parser = argparse.ArgumentParser(description="Extraction beside its libraries alone.")
    parser.add_argument("--files", type=int, default=40, help="plain pages, and as many PDFs")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    table = Table("set", "kind", "files", "MB", "libraries s", "ours s", "ratio")
    is_above = False
    with tempfile.TemporaryDirectory() as folder:
        sets = {"plain": Path(folder, "plain"), "hostile": Path(folder, "hostile")}
        write_plain(sets["plain"], options.files)
        write_hostile(sets["hostile"])
        for suffix in _KINDS:  # libraries load before they are measured
            first = _files(sets["plain"], suffix)[:1]
            _alone(first, suffix)
            _ours(first, suffix)
        pdf_text.READER.close()
        for name, place in sets.items():
            alone = ours = 0.0
            for suffix in _KINDS:
                files = _files(place, suffix)
                sides = [
                    (_seconds(_alone, files, suffix), _seconds(_ours, files, suffix))
                    for _ in range(options.rounds)
                ]
                first, second = (min(side) for side in zip(*sides, strict=True))
                alone, ours = alone + first, ours + second
                size = sum(len(body) for body in files) / 1_000_000
                table.add_row(name, suffix, *_row(len(files), size, first, second))
            table.add_row(name, "all", "", "", *_row(0, 0.0, alone, ours)[2:])
            is_above |= ours > _BAR * alone
    Console().print(table)
    return int(is_above)


def _files(folder: Path, suffix: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob(f"*{suffix}"))]


def _row(count: int, size: float, alone: float, ours: float) -> tuple[str, str, str, str, str]:
    return (str(count), f"{size:.1f}", f"{alone:.2f}", f"{ours:.2f}", f"{ours / alone:.2f}")


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
