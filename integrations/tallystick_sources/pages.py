"""Pages: what one says of itself, and where it leads; addresses in one spelling."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

from tallystick.formats import decode
from tallystick_sources.polite import Fetched

_LINKS = 2_000
"""Links that are read of a page."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says of itself."""

    title: str
    canonical: str | None
    links: list[str]
    robots: str = ""
    """What the page and its answer ask of robots."""


def address_of(url: str) -> str | None:
    """Return an address in one spelling, without what follows `#`; None for what is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in ("http", "https") or not host or parts.username or len(url) > 2_000:
        return None
    name = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}[scheme]
    netloc = name if port in (None, default) else f"{name}:{port}"
    return urlunsplit((scheme, netloc, parts.path or "/", parts.query, ""))


def read_page(fetched: Fetched, kind: str) -> Page:
    """Return the title, the links and the wishes of a page; nothing of what is no HTML."""
    if kind not in ("text/html", "application/xhtml+xml"):
        return Page("", None, [])
    etree, html = _lxml("etree"), _lxml("html")
    text, _ = decode(fetched.body, fetched.media_type)
    text = text.partition("?>")[2] if text.lstrip().startswith("<?xml") else text
    try:
        tree = html.document_fromstring(text.replace("\x00", ""), ensure_head_body=True)
    except (etree.ParserError, ValueError):
        return Page("", None, [])
    base = urljoin(fetched.url, (tree.xpath("string(//base/@href)") or "").strip())
    links = [_joined(base, each) for each in tree.xpath("//a/@href")[:_LINKS]]
    robots = ",".join(
        [
            fetched.headers.get("x-robots-tag", ""),
            *(meta.get("content", "") for meta in tree.iter("meta") if _is_for_robots(meta)),
        ]
    ).lower()
    canonical = tree.xpath("string(//link[@rel='canonical']/@href)").strip()
    return Page(
        " ".join((tree.findtext(".//title") or "").split()),
        _joined(base, canonical) if canonical else None,
        [] if "nofollow" in robots else [link for link in dict.fromkeys(links) if link is not None],
        robots,
    )


def _is_for_robots(meta: Any) -> bool:
    return str(meta.get("name", "")).strip().lower() == "robots"


def _lxml(name: str) -> Any:
    """A module of lxml, which says nothing of its types."""
    return import_module(f"lxml.{name}")


def _joined(base: str, link: str) -> str | None:
    try:
        return address_of(urljoin(base, link.strip()))
    except ValueError:
        return None


def read_sitemap(body: bytes, start: str) -> tuple[list[str], list[str]]:
    """Return the pages that a sitemap lists, and the sitemaps, in their order; nothing of what is
    no sitemap, or declares entities.
    """
    etree = _lxml("etree")
    pages: list[str] = []
    sitemaps: list[str] = []
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, recover=True)
    try:
        is_read = bool(body.strip()) and b"<!ENTITY" not in body.upper()
        tree = etree.fromstring(body, parser) if is_read else None
    except (etree.XMLSyntaxError, ValueError):
        tree = None
    for place in () if tree is None else tree.iter("{*}loc"):
        url = _joined(start, "".join(place.itertext()))
        parent = place.getparent()
        if url is not None and parent is not None:
            (sitemaps if str(parent.tag).endswith("sitemap") else pages).append(url)
    return pages, sitemaps
