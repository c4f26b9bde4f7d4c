"""Text of pages and of XML: the main text as Markdown, or all of it where none is found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tallystick.errors import require
from tallystick.formats.decoding import Unextractable

LARGEST_PAGE = 20_000_000
"""Characters of a page that is read at all."""
_LARGEST_FOUND = 2_000_000
"""Characters of a page whose main text is looked for: of a larger one all text is taken."""
_MOST_ELEMENTS = 50_000
"""Elements of such a page: the time to find the text grows with them, and faster."""
_ENTITY = re.compile(r"<!ENTITY", re.IGNORECASE)
_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>", re.IGNORECASE)
_GAPS = re.compile(r"\n{3,}")
_UNSEEN = frozenset(("script", "style", "noscript", "template", "head", "svg", "math", "iframe"))
_YOUNGER: tuple[str, ...] = ("article", "aside", "details", "dialog", "figcaption", "figure")
_YOUNGER += ("footer", "header", "main", "nav", "section", "summary")
"""Blocks that are younger than the list of lxml."""
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}


def page_text(page: str) -> tuple[str, str, str]:
    """Return the main text of an HTML page as Markdown, its title, and the transform that found it.

    Raises Unextractable for a page without any text; MissingExtra.
    """
    require("trafilatura", extra="files")
    etree, html = _lxml("etree"), _lxml("html")
    if len(page) > LARGEST_PAGE:
        raise Unextractable("too_large", f"a page of {len(page)} characters")
    source = _DECLARATION.sub("", page).replace("\x00", "")
    if not source.strip():
        raise Unextractable("empty", "a page without text")
    try:
        tree = html.document_fromstring(source, ensure_head_body=True)
    except (etree.ParserError, ValueError) as error:
        raise Unextractable("unreadable", f"no HTML that can be read: {error}"[:200]) from error
    title = " ".join((tree.findtext(".//title") or "").split())
    is_usual = len(source) <= _LARGEST_FOUND and sum(1 for _ in tree.iter()) <= _MOST_ELEMENTS
    found = _main_text(tree) if is_usual else ""
    if found:
        return found, title, "html/trafilatura-2"
    text = _whole_text(tree)
    if not text:
        raise Unextractable("empty", "a page without text")
    return text, title, "html/text-1"


def xml_text(document: str) -> str:
    """Return the text of the elements of an XML document, each on its line.

    Raises Unextractable: entities of its own are refused, for they may stand for anything of any
    size; MissingExtra.
    """
    require("lxml", extra="files")
    etree = _lxml("etree")
    if _ENTITY.search(document):
        raise Unextractable("expands_too_far", "an XML document that declares entities")
    if len(document) > LARGEST_PAGE:
        raise Unextractable("too_large", f"an XML document of {len(document)} characters")
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, recover=True, huge_tree=False
    )
    try:
        tree = etree.fromstring(_DECLARATION.sub("", document), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Unextractable("unreadable", f"no XML that can be read: {error}"[:200]) from error
    texts = () if tree is None else (" ".join(str(text).split()) for text in tree.itertext())
    return "\n".join(text for text in texts if text)


def _lxml(name: str) -> Any:
    """A module of lxml, which says nothing of its types."""
    return import_module(f"lxml.{name}")


def _main_text(tree: Any) -> str:
    import trafilatura

    try:
        found = trafilatura.extract(
            tree, output_format="markdown", include_comments=False, include_tables=True
        )
    except Exception:  # noqa: BLE001 - a page that it cannot read still has its whole text
        return ""
    return _with_headings((found or "").strip(), tree)


def _with_headings(found: str, tree: Any) -> str:
    """Mark the headings in a text that has none marked: what is found on a short page is plain."""
    lines = found.splitlines()
    if any(line.startswith("#") for line in lines):
        return found
    levels = {
        " ".join("".join(element.itertext()).split()): _HEADINGS[element.tag]
        for element in tree.iter(*_HEADINGS)
    }
    return "\n".join(f"{levels[line]} {line}" if line in levels else line for line in lines)


def _whole_text(tree: Any) -> str:
    lines = (" ".join(line.split()) for line in "".join(_pieces(tree)).splitlines())
    return _GAPS.sub("\n\n", "\n".join(lines)).strip()


def _pieces(tree: Any) -> Iterator[str]:
    """Yield the text of a tree of any depth, with a new line at each block and headings as `#`."""
    blocks = {*_lxml("html.defs").block_tags, *_YOUNGER, "html", "body", "br"}
    blocks -= {*_UNSEEN, "del", "ins"}
    hidden = 0
    for event, element in _lxml("etree").iterwalk(tree, events=("start", "end")):
        tag = element.tag if isinstance(element.tag, str) else ""
        is_start = event == "start"
        hidden += (1 if is_start else -1) * (tag in _UNSEEN)
        if not hidden and (tag or not is_start):
            yield "\n\n" if tag in blocks else ""
            yield f"{_HEADINGS[tag]} " if is_start and tag in _HEADINGS else ""
            yield ((element.text if is_start else element.tail) or "").replace("\n", " ")
