"""Text of PDFs, in a process of its own: it reads documents from its input and answers each.

The file is run by its path and imports nothing of ours, so that it starts quickly. A document comes
as a line with its size and the bytes, and an answer as a line with the size of a JSON object and
that.
Time and memory end the process, not the one that asks.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

PAGES = 2_000
SECONDS = 60.0
ADDRESS_SPACE = 600_000_000
"""Bytes; only where the system limits a process."""
IDLE_SECONDS = 60.0
"""Without a document for so long the process ends."""
_EXPANSION, _SMALL, _LARGEST = 100, 1_000_000, 200_000_000
"""A text may have so many times the bytes of its document, but always _SMALL and never more."""
_PASSWORD = 4
_RECYCLED = 300_000_000
"""Bytes of memory after which the process makes room for a fresh one."""


class _Refused(Exception):
    """A document that gives no text, by a `TextReason`."""


def main(seconds: float = SECONDS) -> None:
    """Answer documents until the input ends; one that takes longer ends the process."""
    _limit_memory()
    answers = os.fdopen(os.dup(1), "wb")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    with os.fdopen(quiet, "wb") as silent:
        while True:
            faulthandler.dump_traceback_later(IDLE_SECONDS, exit=True, file=silent)
            header = sys.stdin.buffer.readline()
            if not header:
                return
            faulthandler.dump_traceback_later(seconds, exit=True, file=silent)
            body = sys.stdin.buffer.read(int(header))
            answer = json.dumps(read(body)).encode("ascii")
            answers.write(b"%d\n%b" % (len(answer), answer))
            answers.flush()
            if _resident() > _RECYCLED:
                return


def read(body: bytes) -> dict[str, Any]:
    """Return the text and title of a document, or the reason why there is none and a detail."""
    try:
        return _by_pdfium(body) if _has_pdfium() else _by_pypdf(body)
    except _Refused as error:
        reason, detail = error.args
        return {"reason": reason, "detail": detail}
    except MemoryError:
        return {"reason": "too_large", "detail": "a PDF that needs too much memory"}
    except RecursionError:
        return {"reason": "unreadable", "detail": "a PDF that is nested too deep"}
    except Exception as error:  # noqa: BLE001 - whatever a library says of a broken document
        return {"reason": "unreadable", "detail": f"no PDF that can be read: {error}"[:200]}


def _by_pdfium(body: bytes) -> dict[str, Any]:
    pypdfium2: Any = import_module("pypdfium2")
    try:
        document = pypdfium2.PdfDocument(body)
    except pypdfium2.PdfiumError as error:
        if error.err_code == _PASSWORD:
            raise _Refused("encrypted", "a PDF that asks for a password") from error
        raise
    try:
        _check_pages(len(document))
        headings = _headings(document)
        title = document.get_metadata_dict(skip_empty=True).get("Title", "")
        return {"text": _joined(body, headings, _pages(document)), "title": title.strip()}
    finally:
        document.close()


def _has_pdfium() -> bool:
    return find_spec("pypdfium2") is not None


def _by_pypdf(body: bytes) -> dict[str, Any]:
    """Same as `_by_pdfium`, where there is no binary of it; without the bookmarks."""
    import pypdf

    document = pypdf.PdfReader(io.BytesIO(body))
    if document.is_encrypted and not document.decrypt(""):
        raise _Refused("encrypted", "a PDF that asks for a password")
    _check_pages(len(document.pages))
    title = (document.metadata.title if document.metadata else None) or ""
    texts = (page.extract_text() for page in document.pages)
    return {"text": _joined(body, {}, texts), "title": title.strip()}


def _pages(document: Any) -> Iterator[str]:
    for number in range(len(document)):
        page = document[number]
        try:
            text = page.get_textpage()
            yield text.get_text_bounded()
        finally:
            page.close()


def _headings(document: Any) -> dict[int, list[str]]:
    """Return the bookmarks by the number of their page: the headings that a PDF has."""
    headings: dict[int, list[str]] = {}
    for count, bookmark in enumerate(document.get_toc(max_depth=6)):
        if count == PAGES:
            break
        destination = bookmark.get_dest()
        page = None if destination is None else destination.get_index()
        if page is not None and (title := " ".join(bookmark.get_title().split())):
            headings.setdefault(page, []).append(f"{'#' * (bookmark.level + 1)} {title}")
    return headings


def _check_pages(count: int) -> None:
    if count > PAGES:
        raise _Refused("too_large", f"a PDF of {count} pages, more than {PAGES}")


def _joined(body: bytes, headings: dict[int, list[str]], pages: Iterator[str]) -> str:
    parts: list[str] = []
    size = 0
    limit = min(max(_EXPANSION * len(body), _SMALL), _LARGEST)
    for number, page in enumerate(pages):
        text = page.replace("\r\n", "\n").replace("\x00", "").replace("\ufffe", "-").strip()
        size += len(text)
        if size > limit:
            raise _Refused("expands_too_far", f"a PDF of {len(body)} bytes with {size} characters")
        parts += [*headings.get(number, ()), text]
    return "\n\n".join(part for part in parts if part)


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = ADDRESS_SPACE if hard == resource.RLIM_INFINITY else min(ADDRESS_SPACE, hard)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    except (ValueError, OSError):  # macOS refuses it
        return


def _resident() -> int:
    """Bytes of memory that the process has now, 0 where the system does not say. Its peak would
    count what the process had that started it.
    """
    try:
        with open("/proc/self/statm", encoding="ascii") as status:
            return int(status.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
