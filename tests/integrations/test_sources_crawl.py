"""A site is read politely, within its rules, and never behind a wall."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from tallystick.errors import InvalidInput
from tallystick.testing.source_contract import Source, SourceContract
from tallystick_ingest.contract import (
    Checkpoint,
    RateLimitReached,
    Skipped,
    SourceRecord,
    Unchanged,
    Yielded,
)
from tallystick_ingest.imports import next_due
from tallystick_sources import polite
from tallystick_sources.crawl import CrawlSource
from tallystick_sources.polite import is_public


class Pace:
    """A clock that moves only by what somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Let time go by."""
        self.waits.append(round(seconds, 3))
        self.now += seconds

    def open(self, **options: Any) -> CrawlSource:
        """Return a crawler on this clock that may read the loopback."""
        given = {"allow_private": True, "clock": lambda: self.now, "sleep": self.sleep, **options}
        return CrawlSource(**given)


@pytest.fixture(scope="module")
def site() -> Iterator[HTTPServer]:
    with HTTPServer(host="127.0.0.1", threaded=True) as server:
        yield server


@pytest.fixture
def server(site: HTTPServer) -> HTTPServer:
    """A site without a page: what is not there is not found."""
    site.clear()
    return site


def _page(title: str, *links: str, head: str = "") -> str:
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    return f"<html><head><title>{title}</title>{head}</head><body><p>{title}</p>{anchors}</body>"


def _serve(server: HTTPServer, pages: dict[str, str | Callable[[Request], Response]]) -> None:
    for path, page in pages.items():
        expected = server.expect_request(path)
        if callable(page):
            expected.respond_with_handler(page)
        else:
            expected.respond_with_data(page, content_type="text/html; charset=utf-8")
    server.expect_request("/robots.txt").respond_with_data("", 404)
    server.expect_request("/sitemap.xml").respond_with_data("", 404)


def _redirect(place: str, status: int = 302) -> Callable[[Request], Response]:
    return lambda _: Response(status=status, headers={"Location": place})


def _read(
    server: HTTPServer, source: CrawlSource | None = None, path: str = "/", **known: str
) -> dict[str, Yielded]:
    items = (source or Pace().open()).records(server.url_for(path), None, known.get)
    return {
        item.record_id.removeprefix(server.url_for("/").rstrip("/")): item
        for item in items
        if not isinstance(item, Checkpoint)
    }


def _paths(items: dict[str, Yielded]) -> list[str]:
    return [path for path, item in items.items() if isinstance(item, SourceRecord)]


def _reasons(items: dict[str, Yielded]) -> dict[str, str]:
    return {path: item.reason for path, item in items.items() if isinstance(item, Skipped)}


def _asked(server: HTTPServer) -> list[str]:
    return [request.path for request, _ in server.log]


class TestContract(SourceContract):
    @pytest.fixture
    def source(self, server: HTTPServer) -> Source:
        pages: dict[str, Any] = {
            f"/{number}": _page(f"Page {number}", "/deep") for number in range(120)
        }
        _serve(
            server,
            {
                "/": _page("Home", *pages, "/gone", "/moved"),
                "/gone": lambda _: Response(status=404),
                "/moved": _redirect("/0"),
                "/deep": lambda _: Response("deep", headers={"ETag": '"1"'}, mimetype="text/plain"),
                **pages,
            },
        )
        return Source(
            lambda: Pace().open(),
            server.url_for("/"),
            not_of_format=("ftp://example.org", "no address", "http://", "http://u:p@example.org/"),
            skipped=frozenset({server.url_for("/gone")}),
        )


def test_pages_are_read_to_a_depth_with_where_they_were_found(server: HTTPServer) -> None:
    _serve(
        server,
        {
            "/": _page("Home", "/a#part", "a", "http://elsewhere.example/", "mailto:x@y.z"),
            "/a": _page("A", "/a/b", head='<link rel="canonical" href="/A">'),
            "/a/b": _page("B", "/a/b/c"),
            "/a/b/c": _page("C"),
        },
    )

    items = _read(server)

    assert _paths(items) == ["/", "/a", "/a/b"]
    record = items["/a"]
    assert isinstance(record, SourceRecord)
    assert (record.title, record.parent_url, record.url) == (
        "A",
        server.url_for("/"),
        server.url_for("/A"),
    )


def test_a_crawl_goes_on_from_each_of_its_checkpoints(server: HTTPServer) -> None:
    paths = [f"/{number}" for number in range(40)]
    following = {f"/{number}": [f"/{number}/a", f"/{number - 1}"] for number in range(1, 40)}
    leaves = [f"{path}/a" for path in following]
    pages = {path: _page(path, *following.get(path, ())) for path in paths}
    _serve(server, {"/": _page("home", *paths), **pages, **{each: _page(each) for each in leaves}})
    start, known = server.url_for("/"), dict[str, str]()
    whole = list(Pace().open().records(start, None, known.get))

    places = [place for place, each in enumerate(whole) if isinstance(each, Checkpoint)]
    assert len(places) == 4
    assert sum(isinstance(each, SourceRecord) for each in whole) == 80
    for place in places:
        checkpoint = whole[place]
        assert isinstance(checkpoint, Checkpoint)
        rest = list(Pace().open().records(start, checkpoint.cursor, known.get))
        records = [each for each in rest if isinstance(each, SourceRecord)]
        assert records == [each for each in whole[place:] if isinstance(each, SourceRecord)]


def test_patterns_say_which_pages_are_wanted(server: HTTPServer) -> None:
    links = ("/docs/a", "/docs/b.pdf", "/blog/c")
    _serve(server, {"/": _page("Home", *links), **{link: _page(link) for link in links}})

    items = _read(server, Pace().open(include=["*/docs/*"], exclude=["*.pdf"]))

    assert _paths(items) == ["/", "/docs/a"]


def test_robots_are_obeyed_and_their_delay_is_kept(server: HTTPServer) -> None:
    server.expect_request("/robots.txt").respond_with_data(
        "User-agent: *\nDisallow: /private\nAllow: /private/open\nCrawl-delay: 3\n"
    )
    links = ("/private/x", "/private/open", "/fine", "/to-private")
    _serve(
        server,
        {
            "/": _page("Home", *links),
            "/to-private": _redirect("/private/y"),
            **{link: _page(link) for link in links[:3]},
        },
    )
    pace = Pace()

    items = _read(server, pace.open())

    assert _paths(items) == ["/", "/private/open", "/fine"]
    assert _reasons(items) == {
        "/private/x": "refused_by_robots",
        "/to-private": "refused_by_robots",
    }
    assert not {"/private/x", "/private/y"} & set(_asked(server))
    assert pace.waits[1:] == [3.0] * (len(pace.waits) - 1)


def test_a_page_may_ask_not_to_be_kept_or_followed(server: HTTPServer) -> None:
    kept_out = '<meta name="Robots" content="NOINDEX, nofollow">'
    _serve(
        server,
        {
            "/": _page("Home", "/a", "/b"),
            "/a": _page("A", "/c", head=kept_out),
            "/b": lambda _: Response(
                _page("B"), headers={"X-Robots-Tag": "noindex"}, mimetype="text/html"
            ),
            "/c": _page("C"),
        },
    )

    items = _read(server)

    assert _reasons(items) == {"/a": "refused_by_robots", "/b": "refused_by_robots"}
    assert _paths(items) == ["/"]


def test_a_host_that_cannot_say_its_rules_is_not_read(server: HTTPServer) -> None:
    server.expect_request("/robots.txt").respond_with_data("", 500)
    _serve(server, {"/": _page("Home")})

    assert _reasons(_read(server)) == {"/": "refused_by_robots"}


def test_at_most_two_requests_a_second_go_to_a_host(server: HTTPServer) -> None:
    links = [f"/{number}" for number in range(10)]
    _serve(server, {"/": _page("Home", *links), **{link: _page(link) for link in links}})
    pace = Pace()

    _read(server, pace.open())

    assert pace.waits == [0.5] * (len(server.log) - 1)


def test_the_pages_of_a_sitemap_are_read_too(server: HTTPServer) -> None:
    index = (
        f"<sitemapindex><sitemap><loc>{server.url_for('/more.xml')}</loc></sitemap></sitemapindex>"
    )
    pages = f"<urlset><url><loc>{server.url_for('/listed')}</loc></url></urlset>"
    server.expect_request("/robots.txt").respond_with_data(f"Sitemap: {server.url_for('/i.xml')}")
    server.expect_request("/i.xml").respond_with_data(index, content_type="text/xml")
    server.expect_request("/more.xml").respond_with_data(pages, content_type="text/xml")
    _serve(server, {"/": _page("Home"), "/listed": _page("Listed")})

    assert _paths(_read(server)) == ["/", "/listed"]


def test_five_redirects_are_followed_and_a_page_is_read_once(server: HTTPServer) -> None:
    chain = {f"/r{number}": _redirect(f"/r{number + 1}") for number in range(5)}
    _serve(
        server,
        {
            "/": _page("Home", "/r0", "/loop", "/script", "/twice"),
            **chain,
            "/r5": _page("End"),
            "/loop": _redirect("/loop"),
            "/script": _redirect("javascript:alert(1)"),
            "/twice": _redirect("/r5"),
        },
    )

    items = _read(server)

    assert _paths(items) == ["/", "/r0"]
    assert _reasons(items) == {"/loop": "unreadable", "/script": "outside"}


def test_a_page_that_is_too_large_or_expands_too_far_is_skipped(server: HTTPServer) -> None:
    bomb = gzip.compress(b"a" * 50_000_000)
    packed = gzip.compress(_page("Packed").encode())
    kinds = {"Content-Encoding": "gzip", "Content-Type": "text/html"}
    _serve(
        server,
        {
            "/": _page("Home", "/large", "/bomb", "/packed", "/other", "/image"),
            "/large": lambda _: Response(b"a" * 10_000_001, mimetype="text/plain"),
            "/bomb": lambda _: Response(bomb, headers=kinds),
            "/packed": lambda _: Response(packed, headers=kinds),
            "/other": lambda _: Response(b"x", headers={"Content-Encoding": "br"}),
            "/image": lambda _: Response(b"\x89PNG\r\n\x1a\n", mimetype="text/html"),
        },
    )

    items = _read(server)

    assert _paths(items) == ["/", "/packed"]
    assert _reasons(items) == {
        "/large": "too_large",
        "/bomb": "expands_too_far",
        "/other": "unreadable",
        "/image": "unsupported_type",
    }


def test_a_page_without_links_of_its_own_is_asked_with_its_tag(server: HTTPServer) -> None:
    def tagged(request: Request) -> Response:
        is_same = request.headers.get("If-None-Match") == '"7"'
        return Response("" if is_same else _page("Leaf"), 304 if is_same else 200, {"ETag": '"7"'})

    def dated(request: Request) -> Response:
        moment = "Mon, 02 Mar 2026 10:00:00 GMT"
        is_same = request.headers.get("If-Modified-Since") == moment
        return Response(
            "" if is_same else "text", 304 if is_same else 200, {"Last-Modified": moment}
        )

    _serve(server, {"/": _page("Home", "/leaf", "/dated"), "/leaf": tagged, "/dated": dated})
    first = _read(server, Pace().open(depth=1))
    stored = {
        item.record_id: item.version for item in first.values() if isinstance(item, SourceRecord)
    }
    server.clear_log()

    again = _read(server, Pace().open(depth=1), **stored)

    assert all(isinstance(item, Unchanged) for item in again.values())
    assert list(again) == ["/", "/leaf", "/dated"]
    statuses = {request.path: response.status_code for request, response in server.log}
    assert (statuses["/leaf"], statuses["/dated"]) == (304, 304)


def test_copies_of_a_page_are_one(server: HTTPServer) -> None:
    canonical = '<link rel="canonical" href="/one">'
    _serve(
        server,
        {
            "/": _page("Home", "/one", "/one?a=1", "/one?a=2"),
            "/one": _page("One", head=canonical),
        },
    )

    assert _paths(_read(server)) == ["/", "/one"]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.5.5",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "::7f00:1",
        "no address",
    ],
)
def test_an_address_of_a_private_network_is_none_of_the_internet(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07::1"])
def test_an_address_of_the_internet_is_one(address: str) -> None:
    assert is_public(address)


def test_a_private_address_is_refused_before_a_byte_is_sent(server: HTTPServer) -> None:
    _serve(server, {"/": _page("Home")})
    pace = Pace()
    refused = {"/": "private_address"}

    assert _reasons(_read(server, pace.open(allow_private=False))) == refused
    assert server.log == []


def test_a_name_that_leads_into_a_private_network_is_refused(server: HTTPServer) -> None:
    source = Pace().open(
        allow_private=False, resolve=lambda host, port: ["93.184.215.14", "10.0.0.7"]
    )

    [skipped] = [
        item
        for item in source.records("http://rebound.example/", None, lambda _: None)
        if isinstance(item, Skipped)
    ]

    assert skipped.reason == "private_address"


def test_a_redirect_into_a_private_network_is_refused(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first host counts as public here, though it is a server of this test."""
    inner = server.url_for("/inner").replace("127.0.0.1", "inner.example")
    _serve(server, {"/": _page("Home", "/out"), "/out": _redirect(inner), "/inner": _page("In")})
    monkeypatch.setattr(polite, "is_public", lambda address: address == "127.0.0.1")
    names = {"127.0.0.1": "127.0.0.1", "inner.example": "127.0.0.2"}
    source = Pace().open(allow_private=False, resolve=lambda host, port: [names[host]])

    items = _read(server, source)

    assert _reasons(items) == {"/out": "private_address"}
    assert "/inner" not in _asked(server)


def test_the_address_that_was_checked_is_the_one_that_is_asked(server: HTTPServer) -> None:
    """A name that is resolved a second time may lead elsewhere: it is resolved once a request."""
    answers: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        answers.append(host)
        return ["127.0.0.1"]

    _serve(server, {"/": _page("Home")})
    url = server.url_for("/").replace("127.0.0.1", "site.example")

    items = list(Pace().open(resolve=resolve).records(url, None, lambda _: None))

    assert any(isinstance(item, SourceRecord) for item in items)
    assert len(answers) == len(server.log)
    assert {request.headers["Host"].partition(":")[0] for request, _ in server.log} == {
        "site.example"
    }


def test_a_site_that_asks_to_wait_is_left_in_peace(server: HTTPServer) -> None:
    wait = Response(status=429, headers={"Retry-After": "120"})
    _serve(server, {"/": lambda _: wait})

    with pytest.raises(RateLimitReached) as refused:
        _read(server)

    assert refused.value.retry_after == 120.0


def test_a_broken_page_is_skipped_and_a_broken_site_is_tried_again(server: HTTPServer) -> None:
    broken = Response(status=500)
    _serve(server, {"/": _page("Home", "/broken", "/fine"), "/broken": lambda _: broken})
    server.expect_request("/fine").respond_with_data(_page("Fine"), content_type="text/html")
    _serve(server, {"/all": lambda _: broken})

    assert _reasons(_read(server)) == {"/broken": "unreadable"}
    with pytest.raises(Exception, match="the first page of the site"):
        _read(server, path="/all")


@pytest.mark.parametrize(
    ("schedule", "due"),
    [("0 3 * * *", (2026, 3, 3, 3, 0)), ("*/15 * * * *", (2026, 3, 2, 10, 15))],
)
def test_a_schedule_says_when_a_sync_is_due(
    schedule: str, due: tuple[int, int, int, int, int]
) -> None:
    after = datetime(2026, 3, 2, 10, 0, 30, tzinfo=UTC)

    moment = next_due(schedule, round(after.timestamp() * 1_000_000))

    assert datetime.fromtimestamp(moment / 1_000_000, UTC) == datetime(*due, tzinfo=UTC)
    with pytest.raises(InvalidInput, match="none of cron"):
        next_due("every day", 0)


def test_the_certificates_of_authorities_are_read_once_for_a_host(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading them takes longer than a page does."""
    made: list[object] = []

    class Counted(httpx2.HTTPTransport):
        def __init__(self, **options: Any) -> None:
            made.append(self)
            super().__init__(**options)

    monkeypatch.setattr(httpx2, "HTTPTransport", Counted)
    _serve(server, {"/": _page("Home", "/a", "/b"), "/a": _page("A"), "/b": _page("B")})

    assert _paths(_read(server)) == ["/", "/a", "/b"]
    assert len(made) == 1
