"""Decoding: bytes as text, and the media type that bytes show by themselves."""

from __future__ import annotations

import codecs
import re
from typing import Literal

TextReason = Literal[
    "not_of_format",
    "unreadable",
    "empty",
    "encrypted",
    "too_large",
    "expands_too_far",
    "too_slow",
    "unsupported_type",
]
"""Why a body gives no text."""
_HEAD = 8_000
"""Bytes in which a null means that no text follows, as git decides it."""
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SIGNATURES = {
    b"%PDF-": "application/pdf",
    b"PK\x03\x04": "application/zip",
    b"PK\x05\x06": "application/zip",
    b"\x1f\x8b": "application/gzip",
    b"BZh": "application/x-bzip2",
    b"\xfd7zXZ\x00": "application/x-xz",
    b"7z\xbc\xaf\x27\x1c": "application/x-7z-compressed",
    b"\x28\xb5\x2f\xfd": "application/zstd",
    b"Rar!\x1a\x07": "application/vnd.rar",
    b"\x89PNG\r\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"\x7fELF": "application/x-executable",
    b"\xd0\xcf\x11\xe0": "application/x-ole-storage",
    b"SQLite format 3\x00": "application/vnd.sqlite3",
}
_DECLARED = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})"""
    rb"""|^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})""",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r"""charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE)
_OF_PYTHON = frozenset(("idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined"))
"""Codecs that no text is stored in; one of them takes quadratic time."""


class Unextractable(Exception):
    """A body that gives no text: why, and what was found."""

    def __init__(self, reason: TextReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: TextReason = reason
        self.detail = detail


def media_type_of(body: bytes) -> str | None:
    """Return the media type that the first bytes show, None for a text and for what is unknown."""
    if body.startswith(tuple(_SIGNATURES)):
        return next(kind for mark, kind in _SIGNATURES.items() if body.startswith(mark))
    if body[257:262] == b"ustar":
        return "application/x-tar"
    if has_mark(body):
        return None
    return "application/octet-stream" if b"\x00" in body[:_HEAD] else None


def has_mark(body: bytes) -> bool:
    """Whether a byte order mark says which encoding of Unicode follows."""
    return body.startswith(tuple(_BYTE_ORDER_MARKS))


def decode(body: bytes, media_type: str = "") -> tuple[str, tuple[str, ...]]:
    """Return the text of bytes, and what was done to them beyond reading UTF-8.

    The encoding is that of a byte order mark, else the one that the media type or the head of a
    page declares, else UTF-8, else Latin-1, which reads all bytes. Where a declared encoding does
    not hold throughout, what does not fit becomes U+FFFD.
    """
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if body.startswith(mark):
            return _with_replacements(body, encoding)
    declared = _declared_encoding(body, media_type)
    if declared is not None and declared != "utf-8":
        return _with_replacements(body, declared)
    try:
        return body.decode("utf-8"), ()
    except UnicodeDecodeError:
        if declared is not None:
            return _with_replacements(body, declared)
        return body.decode("latin-1"), ("decoded/latin-1",)


def _declared_encoding(body: bytes, media_type: str) -> str | None:
    names = [match[1] for match in [_PARAMETER.search(media_type)] if match]
    head = body[:2_048]
    declared = _DECLARED.search(head) if b"<" in head else None
    if declared:
        names.append((declared[1] or declared[2]).decode("ascii", "replace"))
    for name in names:
        try:
            b" ".decode(name)  # refused for codecs from bytes to bytes, such as base64
            encoding = codecs.lookup(name).name
        except (LookupError, UnicodeError, ValueError):
            continue
        # One of 16 bits would have had a mark.
        if not encoding.startswith(("utf-16", "utf-32")) and encoding not in _OF_PYTHON:
            return encoding
    return None


def _with_replacements(body: bytes, encoding: str) -> tuple[str, tuple[str, ...]]:
    name = encoding.removesuffix("-sig")
    try:
        text = body.decode(encoding)
    except (UnicodeError, ValueError):
        return body.decode(encoding, "replace"), (f"decoded/{name}", "replaced/1")
    if name == "utf-8":
        return text, ()
    # UTF-7 can spell half a character.
    return text.encode("utf-8", "replace").decode("utf-8"), (f"decoded/{name}",)
