"""Polite requests: a pace for each host, robots.txt, redirects, no private networks."""

from __future__ import annotations

import ipaddress
import socket
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

from tallystick.errors import require
from tallystick_ingest.contract import RateLimitReached, SkipReason
from tallystick_sources.answers import retry_after

require("httpx2", extra="crawl")

import httpx2  # noqa: E402 - behind the guard

AGENT = "tallystick"
LARGEST_PAGE = 10_000_000
"""Bytes of a page, as it is sent and as it is read."""
REDIRECTS = 5
SECONDS_BETWEEN = 0.5
"""Between two requests to a host."""
_LARGEST_ROBOTS = 500_000
_LONGEST_ANSWER = 60.0
"""Seconds that an answer may take."""
_LONGEST_DELAY = 60.0
"""Seconds between two requests that a robots.txt may ask for."""

Resolve = Callable[[str, int], list[str]]
"""The addresses of a host."""


class Refused(Exception):
    """A page that is not read, by a reason of the contract."""

    def __init__(self, reason: SkipReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: SkipReason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page as it came."""

    url: str
    """Where it was in the end."""
    headers: Mapping[str, str]
    media_type: str
    body: bytes


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def is_public(address: str) -> bool:
    """Whether an address is on the internet: neither private, loopback nor link-local, in no way of
    writing an address of IPv4 within one of IPv6.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        within = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
        if ip in ipaddress.ip_network("64:ff9b::/96") or int(ip) >> 32 == 0:
            within.append(ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF))
        inner = [each for each in within if each is not None]
        if inner:
            return all(each.is_global and not each.is_multicast for each in inner)
    return ip.is_global and not ip.is_multicast


class _CheckedTransport(httpx2.BaseTransport):
    """Connects to the very address that was checked: a name that is resolved a second time may lead
    elsewhere. The name stays in the request and in the certificate that is asked for.
    """

    def __init__(self, resolve: Resolve, allow_private: bool) -> None:
        self._resolve, self._allow_private = resolve, allow_private
        # One pool for each host, because a pool knows a connection by its address alone.
        self._pools: dict[tuple[str, str], httpx2.HTTPTransport] = {}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        address = self._address(host, port)
        return self._pool(host, address).handle_request(
            httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
        )

    def _pool(self, host: str, address: str) -> httpx2.HTTPTransport:
        pool = self._pools.get((host, address))
        if pool is None:
            # Each reads the certificates of all authorities, which takes longer than a page.
            pool = httpx2.HTTPTransport(trust_env=False, retries=0)
            self._pools[host, address] = pool
        return pool

    def _address(self, host: str, port: int) -> str:
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise Refused("not_found", f"no address of {host}") from error
        if not addresses:
            raise Refused("not_found", f"no address of {host}")
        if not self._allow_private and not all(map(is_public, addresses)):
            raise Refused("private_address", f"{host} leads into a private network")
        return addresses[0]

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()


class Polite:
    """Asks hosts for pages, one after another. Close it, or use it as a context."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        resolve: Resolve = resolve,
        allow_private: bool = False,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._last: dict[str, float] = {}
        self._robots: dict[str, Any] = {}
        self._client = httpx2.Client(
            transport=_CheckedTransport(resolve, allow_private),
            headers={"User-Agent": AGENT, "Accept-Encoding": "gzip"},
            timeout=30,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.close()

    def get(self, url: str, condition: str | None) -> Fetched | None:
        """Return a page; None where it still is what `condition`, `etag: …` or `last-modified: …`,
        says. Raises Refused for a page that cannot be taken, RateLimitReached, errors of httpx2.
        """
        for _ in range(REDIRECTS + 1):
            rules = self._rules(url)
            if not rules.can_fetch(url, AGENT):
                raise Refused("refused_by_robots", "robots.txt of the host asks not to read it")
            self._wait(url, rules.crawl_delay(AGENT))
            response, body = self._send(url, condition, LARGEST_PAGE)
            if response.status_code == 304:
                return None
            if not _is_redirect(response):
                _check(response)
                kind = response.headers.get("content-type", "")
                return Fetched(url, response.headers, kind, body)
            url = _next_address(url, response)
        raise Refused("unreadable", f"more than {REDIRECTS} redirects")

    def sitemaps(self, url: str) -> list[str]:
        """Return the sitemaps that the robots.txt of a host names."""
        return list(self._rules(url).sitemaps)

    def _rules(self, url: str) -> Any:
        """Return the robots.txt of a host: without one all is allowed, and nothing while the host
        cannot say.
        """
        from protego import Protego

        host = _host(url)
        if host not in self._robots:
            self._robots[host] = Protego.parse(self._robots_text(f"{host}/robots.txt"))
        return self._robots[host]

    def _robots_text(self, url: str) -> str:
        for _ in range(REDIRECTS + 1):
            self._wait(url, None)
            try:
                response, body = self._send(url, None, _LARGEST_ROBOTS)
            except Refused as refused:
                if refused.reason in ("private_address", "not_found"):
                    raise
                return "User-agent: *\nDisallow: /"
            if _is_redirect(response):
                url = _next_address(url, response)
            elif response.status_code == 429:
                raise RateLimitReached("the site asks to wait", retry_after(response.headers))
            elif response.status_code >= 500:
                return "User-agent: *\nDisallow: /"
            else:
                return "" if response.status_code >= 400 else body.decode("utf-8", "replace")
        return ""

    def _wait(self, url: str, delay: float | None) -> None:
        host = urlsplit(url).netloc
        between = max(SECONDS_BETWEEN, min(delay or 0.0, _LONGEST_DELAY))
        last = self._last.get(host)
        if last is not None and (left := last + between - self._clock()) > 0:
            self._sleep(left)
        self._last[host] = self._clock()

    def _send(self, url: str, condition: str | None, largest: int) -> tuple[httpx2.Response, bytes]:
        headers = {}
        name, _, value = (condition or "").partition(": ")
        if name in ("etag", "last-modified"):
            headers["If-None-Match" if name == "etag" else "If-Modified-Since"] = value
        try:
            address = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise Refused("not_found", "an address that cannot be asked") from error
        try:
            began = self._clock()
            with self._client.stream("GET", address, headers=headers) as response:
                raw = bytearray()
                for piece in response.iter_raw(65_536):
                    raw += piece
                    if self._clock() - began > _LONGEST_ANSWER:
                        raise Refused("too_slow", f"an answer of more than {_LONGEST_ANSWER:.0f} s")
                    if len(raw) > largest:
                        raise Refused("too_large", f"a page of more than {largest} bytes")
        except httpx2.UnsupportedProtocol as error:
            raise Refused("not_found", "an address that cannot be asked") from error
        except httpx2.InvalidURL as error:
            # The client reads where a redirect leads before anybody follows it.
            raise Refused("outside", "a redirect to what is no page") from error
        except httpx2.ProtocolError as error:
            raise Refused("unreadable", "an answer that is no HTTP") from error
        return response, _unpacked(bytes(raw), response, largest)


def _unpacked(raw: bytes, response: httpx2.Response, largest: int) -> bytes:
    """Return the bytes of a page that came packed, to the same limit: a few may stand for many."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", "") or not raw:
        return raw
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Refused("unreadable", f"an answer packed as {encoding[:40]!r}")
    unpacker = zlib.decompressobj(wbits=47)
    try:
        body = unpacker.decompress(raw, largest + 1)
    except zlib.error as error:
        raise Refused("unreadable", "an answer whose packing is broken") from error
    if len(body) > largest:
        raise Refused("expands_too_far", f"a page that expands to more than {largest} bytes")
    return body


def _check(response: httpx2.Response) -> None:
    status = response.status_code
    if status == 429 or (status == 503 and "retry-after" in response.headers):
        raise RateLimitReached("the site asks to wait", retry_after(response.headers))
    if status in (404, 410):
        raise Refused("not_found", f"the site answered {status}")
    if status >= 400:
        raise Refused("unreadable", f"the site answered {status}")


def _is_redirect(response: httpx2.Response) -> bool:
    return response.status_code in (301, 302, 303, 307, 308) and "location" in response.headers


def _next_address(url: str, response: httpx2.Response) -> str:
    target = ""
    try:
        target = urljoin(url, response.headers["location"]).partition("#")[0]
        parts = urlsplit(target)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        raise Refused("outside", "a redirect to what is no page")
    return target


def _host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
