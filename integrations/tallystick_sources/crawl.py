"""Crawl: the pages of a site, politely."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import urljoin, urlsplit

from tallystick.errors import require
from tallystick.formats import media_type_of
from tallystick_ingest.adapters import LOCAL_ONLY
from tallystick_ingest.contract import (
    Corpus,
    Known,
    NotOfFormat,
    PrivacyClass,
    Skipped,
    SourceRecord,
    Unchanged,
    Yielded,
)
from tallystick_ingest.pacing import Cursor, with_checkpoints
from tallystick_sources.answers import ServiceFailed

require("httpx2", extra="crawl")
require("protego", extra="crawl")

from httpx2 import HTTPError  # noqa: E402 - behind the guard

from tallystick_sources.pages import address_of, read_page, read_sitemap  # noqa: E402
from tallystick_sources.polite import (  # noqa: E402
    Fetched,
    Polite,
    Refused,
    Resolve,
    resolve,
)

MAX_PAGES = 1_000
_SITEMAPS = 20
"""Sitemaps that are read of a site, with those that an index names."""
_FAILURES = 3
"""Pages in a row that do not answer, after which the site does not."""
_TEXTS = ("text/", "application/xhtml+xml", "application/pdf", "application/json")


@dataclass(frozen=True, slots=True)
class _Place:
    """A page to be read."""

    url: str
    depth: int
    parent: str | None


class CrawlSource:
    """Reads the pages that a page leads to on its host, to a depth, and those of its sitemap.

    `include` and `exclude` are patterns of `fnmatch` over a whole address; robots.txt holds. At
    most two requests a second go to a host, fewer where robots.txt asks for that. Addresses of
    private networks are refused unless `allow_private`. `clock` and `sleep` are in seconds.
    """

    name = "crawl"
    version = "1"
    privacy_class: PrivacyClass = "public"
    reads_paths = False
    """A target is no path of this machine."""
    metadata_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "depth": {"type": "integer"},
            "canonical": {"type": ["string", "null"]},
            "address": {"type": "string"},
        },
        "required": ["depth", "canonical", "address"],
        "additionalProperties": False,
    }

    options_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "depth": {"type": "integer", "minimum": 0, "maximum": 20},
            "include": {"type": "array", "items": {"type": "string"}, "maxItems": 100},
            "exclude": {"type": "array", "items": {"type": "string"}, "maxItems": 100},
            "max_pages": {"type": "integer", "minimum": 1, "maximum": 100_000},
            "allow_private": {"type": "boolean", LOCAL_ONLY: True},
        },
        "additionalProperties": False,
    }

    def __init__(
        self,
        *,
        depth: int = 2,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        allow_private: bool = False,
        max_pages: int = MAX_PAGES,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        resolve: Resolve = resolve,
    ) -> None:
        self._depth, self._max_pages = depth, max_pages
        self._include, self._exclude = tuple(include), tuple(exclude)
        self._open = partial(
            Polite, clock=clock, sleep=sleep, resolve=resolve, allow_private=allow_private
        )

    def corpus(self, target: str) -> Corpus:
        """Same as `SourceAdapter.corpus`; nothing is asked of the site."""
        url = _start(target)
        return Corpus(id=f"crawl:{url}", title=urlsplit(url).netloc)

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        """Same as `SourceAdapter.records`. A cursor holds what is still to be read and digests of
        what was. Where the first page gives an error, or some in a row do not answer, the site
        fails: a single page is skipped.
        """
        start = _start(target)
        frontier = _Frontier([_Place(start, 0, None)], start)
        if checkpoint:
            frontier = _Frontier.of(checkpoint)
        return with_checkpoints(self._pages(frontier, known), frontier.mark())

    def _pages(self, frontier: _Frontier, known: Known) -> Iterator[tuple[Cursor, Yielded | None]]:
        with self._open() as site:
            failures = 0
            while frontier.read < self._max_pages and (place := frontier.take()) is not None:
                try:
                    item, links = self._page(site, place, frontier, known)
                    failures = 0
                except HTTPError as error:
                    failures += 1
                    if place.parent is None or failures == _FAILURES:
                        raise
                    item, links = Skipped(place.url, "unreadable", f"no answer: {error}"[:200]), []
                if place.parent is None and not isinstance(item, Skipped):
                    links = [*links, *_sitemap(site, frontier.home)]
                for link in links:
                    is_within = place.depth < self._depth and self._is_wanted(link, frontier.home)
                    if is_within and frontier.waiting + frontier.read < self._max_pages:
                        frontier.add(_Place(link, place.depth + 1, place.url))
                yield frontier.mark(), item

    def _page(
        self, site: Polite, place: _Place, frontier: _Frontier, known: Known
    ) -> tuple[Yielded | None, list[str]]:
        stored = known(place.url)
        # A page whose links are followed is read each time: a 304 would not tell them.
        condition = stored if place.depth >= self._depth else None
        try:
            fetched = site.get(place.url, condition)
        except Refused as refused:
            if place.parent is None and refused.reason == "unreadable":
                raise ServiceFailed(f"the first page of the site: {refused.detail}") from refused
            return Skipped(place.url, refused.reason, refused.detail), []
        if fetched is None:
            return Unchanged(place.url), []
        if place.parent is None:
            frontier.home = fetched.url
        elif urlsplit(fetched.url).netloc != urlsplit(frontier.home).netloc:
            return Skipped(place.url, "outside", "a redirect that leads to another host"), []
        if fetched.url != place.url and not frontier.see(fetched.url):
            return None, []
        kind = media_type_of(fetched.body) or fetched.media_type.partition(";")[0].strip().lower()
        if not kind.startswith(_TEXTS):
            return Skipped(place.url, "unsupported_type", f"{kind or 'nothing'} is not read"), []
        page = read_page(fetched, kind)
        if "noindex" in page.robots:
            asked = "the page asks not to be kept"
            return Skipped(place.url, "refused_by_robots", asked), page.links
        is_copy = (
            page.canonical not in (None, place.url, fetched.url)
            and urlsplit(page.canonical or "").netloc == urlsplit(fetched.url).netloc
            and not frontier.see(page.canonical or "")
        )
        if is_copy:
            return None, page.links
        version = _version(fetched)
        if stored == version:
            return Unchanged(place.url), page.links
        record = SourceRecord(
            record_id=place.url,
            version=version,
            dedupe_key=f"sha256:{hashlib.sha256(fetched.body).hexdigest()}",
            body=fetched.body,
            media_type=fetched.media_type if kind in fetched.media_type.lower() else kind,
            title=page.title,
            url=page.canonical or fetched.url,
            parent_url=place.parent,
            occurred_at=_moment(fetched.headers.get("last-modified")),
            metadata={"depth": place.depth, "canonical": page.canonical, "address": fetched.url},
        )
        return record, page.links

    def _is_wanted(self, url: str, start: str) -> bool:
        first, other = urlsplit(start), urlsplit(url)
        if (first.scheme, first.netloc) != (other.scheme, other.netloc):
            return False
        if any(fnmatch.fnmatchcase(url, pattern) for pattern in self._exclude):
            return False
        return not self._include or any(
            fnmatch.fnmatchcase(url, pattern) for pattern in self._include
        )


class _Frontier:
    """What is still to be read, in order, and what was seen.

    Both only grow, so that a place in them is a few numbers, and is written when it is asked for.
    """

    def __init__(
        self, queue: list[_Place], home: str, seen: Iterable[bytes] = (), read: int = 0
    ) -> None:
        self.home, self.read = home, read
        self._places, self._taken = queue, 0
        self._seen = dict.fromkeys(seen or [_digest(place.url) for place in queue])

    @classmethod
    def of(cls, cursor: str) -> _Frontier:
        """Return what a cursor holds."""
        state = json.loads(zlib.decompress(base64.b64decode(cursor)))
        seen = base64.b64decode(state["seen"])
        return cls(
            [_Place(*place) for place in state["queue"]],
            state["home"],
            [seen[at : at + 8] for at in range(0, len(seen), 8)],
            state["read"],
        )

    @property
    def waiting(self) -> int:
        """How many pages are still to be read."""
        return len(self._places) - self._taken

    def mark(self) -> Cursor:
        """Return what writes the cursor of this place, whatever comes after it."""
        return partial(
            self._cursor, self._taken, len(self._places), len(self._seen), self.read, self.home
        )

    def _cursor(self, taken: int, places: int, seen: int, read: int, home: str) -> str:
        waiting = self._places[taken:places]
        state = {
            "queue": [[place.url, place.depth, place.parent] for place in waiting],
            "seen": base64.b64encode(b"".join(islice(self._seen, seen))).decode("ascii"),
            "read": read,
            "home": home,
        }
        return base64.b64encode(zlib.compress(json.dumps(state).encode("ascii"))).decode("ascii")

    def take(self) -> _Place | None:
        """Return the next page that is to be read, None where there is none."""
        if not self.waiting:
            return None
        self._taken += 1
        self.read += 1
        return self._places[self._taken - 1]

    def see(self, url: str) -> bool:
        """Note an address. Whether it was new."""
        before = len(self._seen)
        self._seen[_digest(url)] = None
        return len(self._seen) > before

    def add(self, place: _Place) -> None:
        """Line up a page that was not seen yet."""
        if self.see(place.url):
            self._places.append(place)


def _start(target: str) -> str:
    url = address_of(target.strip())
    if url is None:
        raise NotOfFormat(f"{target!r} is no address of a page, which begins with http or https")
    return url


def _sitemap(site: Polite, start: str) -> list[str]:
    """Return the pages that the sitemaps of a host list, in their order."""
    waiting = list(dict.fromkeys([*site.sitemaps(start), urljoin(start, "/sitemap.xml")]))
    pages: dict[str, None] = {}
    read = 0
    while waiting and read < _SITEMAPS:
        read += 1
        try:
            fetched = site.get(waiting.pop(0), None)
        except (Refused, HTTPError):
            continue
        listed, more = read_sitemap(fetched.body if fetched is not None else b"", start)
        waiting += more
        pages |= dict.fromkeys(listed)
    return list(pages)


def _version(fetched: Fetched) -> str:
    """What a request can name as a condition, else the digest of the page."""
    for name in ("etag", "last-modified"):
        if value := fetched.headers.get(name):
            return f"{name}: {value}"
    return f"sha256: {hashlib.sha256(fetched.body).hexdigest()}"


def _moment(value: str | None) -> int | None:
    try:
        return (
            None if value is None else round(parsedate_to_datetime(value).timestamp() * 1_000_000)
        )
    except (TypeError, ValueError, OverflowError):
        return None


def _digest(url: str) -> bytes:
    return hashlib.blake2b(url.encode("utf-8", "replace"), digest_size=8).digest()
