"""Extracting: the text of a body as Markdown, whatever its media type, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from tallystick.formats.decoding import Unextractable, decode, media_type_of
from tallystick.formats.html_text import page_text, xml_text
from tallystick.formats.markup import markdown, restructured, title_of
from tallystick.formats.pdf_text import READER

__all__ = ["LARGEST_TEXT", "Extracted", "Unextractable", "extract"]

LARGEST_TEXT = 50_000_000
"""Bytes of a body that is read as text."""
_BY_SUFFIX = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".rst": "text/x-rst",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "text/html",
    ".xml": "application/xml",
    ".pdf": "application/pdf",
}
_PAGES = frozenset(("text/html", "application/xhtml+xml"))
_MARKDOWN = frozenset(("text/markdown", "text/x-markdown"))
_RESTRUCTURED = frozenset(("text/x-rst", "text/prs.fallenstein.rst"))
_UNKNOWN = frozenset(("", "text/plain", "application/octet-stream"))
_WITHOUT_TEXT = ("image/", "audio/", "video/", "font/")


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a body."""

    text: str
    """Markdown; headings begin with `#`."""
    title: str = ""
    """By the document itself; empty where it has none."""
    transforms: tuple[str, ...] = ()
    """What was done to the body, in order, as name/version."""


def extract(body: str | bytes, media_type: str, name: str = "") -> Extracted:
    """Return the text of a body.

    `media_type` may have a charset; where it says nothing the end of `name` decides, and bytes that
    show what they are always do. Raises Unextractable; MissingExtra for a library that is missing.
    """
    kind = media_type.partition(";")[0].strip().lower()
    if kind in _UNKNOWN:
        kind = _BY_SUFFIX.get(PurePosixPath(name).suffix.lower(), kind)
    shown = None
    if isinstance(body, bytes):
        shown = media_type_of(body)
        kind = shown or kind
        if kind == "application/pdf":
            text, title = READER.read(body)
            return _finish(Extracted(text, title or title_of(text), ("pdf/text-1",)))
    if not body:
        raise Unextractable("empty", "nothing")
    if kind.startswith(_WITHOUT_TEXT) or shown is not None:
        raise Unextractable("unsupported_type", f"{kind or 'bytes'}, which has no text to read")
    if len(body) > LARGEST_TEXT:
        raise Unextractable("too_large", f"{kind or 'a text'} of {len(body)} bytes")
    text, done = (body, ()) if isinstance(body, str) else decode(body, media_type)
    extracted = _by_kind(text, kind)
    return _finish(replace(extracted, transforms=(*done, *extracted.transforms)))


def _by_kind(text: str, kind: str) -> Extracted:
    if kind in _PAGES:
        found, title, transform = page_text(text)
        return Extracted(found, title or title_of(found), (transform,))
    if kind.endswith(("/xml", "+xml")):
        return Extracted(xml_text(text), "", ("xml/text-1",))
    if kind in _RESTRUCTURED:
        changed = restructured(text)
        return Extracted(changed, title_of(changed), ("rst/headings-1",))
    if kind in _MARKDOWN:
        changed = markdown(text)
        transforms = () if changed == text else ("md/headings-1",)
        return Extracted(changed, title_of(changed), transforms)
    return Extracted(text)


def _finish(extracted: Extracted) -> Extracted:
    """Return it without nulls, which PostgreSQL does not take in a text."""
    text, transforms = extracted.text, extracted.transforms
    if "\x00" in text:
        text, transforms = text.replace("\x00", "\ufffd"), (*transforms, "nulls/1")
    if not text.strip():
        raise Unextractable("empty", "a document without text")
    return Extracted(text, extracted.title.replace("\x00", ""), transforms)
