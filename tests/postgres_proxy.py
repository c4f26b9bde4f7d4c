"""A proxy before a PostgreSQL server: counts the ways there and back, makes each take longer, and
cuts a connection at one of them.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from sqlalchemy import make_url

_FLUSH = b"H\x00\x00\x00\x04"
_ENDING = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
_ENDING = b"E" + (len(_ENDING) + 4).to_bytes(4, "big") + _ENDING
Cut = Literal["before", "after", "told"]


class PostgresProxy:
    """Listens on a port of this machine and forwards to the server of a URL. Thread-safe."""

    def __init__(self, url: str, *, delay: float = 0.0) -> None:
        """Begin to listen; each way to the server and back takes `delay` seconds longer."""
        self._target = make_url(url)
        self._folder = parse_qs(urlsplit(url).query).get("host", [""])[0]
        self._delay = delay
        self._guard = threading.Lock()
        self.rounds = 0
        """Ways to the server and back, of all connections."""
        self._cut_at: tuple[int, Cut] | None = None
        self.was_cut = False
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The URL by which a client reaches the server through this proxy."""
        port = self._listener.getsockname()[1]
        through = self._target.set(host="127.0.0.1", port=port, query={})
        return through.set(drivername="postgresql").render_as_string(hide_password=False)

    def cut(self, number: int, when: Cut) -> None:
        """Cut the connection at way `number` from now, from 1: before the server is sent anything,
        after it has answered and before the client is told, or so that the client is told that the
        server ends the connection, some time before it is ended.
        """
        with self._guard:
            self._cut_at = (self.rounds + number, when)
            self.was_cut = False

    def mend(self) -> None:
        """Take back a cut that has not come yet."""
        with self._guard:
            self._cut_at = None

    def close(self) -> None:
        """Stop listening, and cut every connection."""
        self._listener.close()
        for each in list(self._open):
            _end(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._folder:
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{self._folder}/.s.PGSQL.{self._target.port or 5432}")
            else:
                server = socket.create_connection((self._target.host, self._target.port or 5432))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Pair(self, client, server).start()


class _Pair:
    def __init__(self, proxy: PostgresProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._asking = False
        self._drop_answer = False
        proxy._open |= {client, server}

    def start(self) -> None:
        for work in (self._ask, self._answer):
            threading.Thread(target=self._guarded, args=(work,), daemon=True).start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            with suppress(OSError):
                work()
        finally:
            for each in (self._client, self._server):
                _end(each)
                self._proxy._open.discard(each)

    def _ask(self) -> None:
        proxy = self._proxy
        while data := self._client.recv(65_536):
            # A flush that psycopg sends after its pipeline is a question to nobody.
            if not self._asking and data != _FLUSH:
                self._asking = True
                with proxy._guard:
                    proxy.rounds += 1
                    cut = None
                    if proxy._cut_at is not None and proxy.rounds >= proxy._cut_at[0]:
                        cut, proxy._cut_at, proxy.was_cut = proxy._cut_at[1], None, True
                if cut == "told":
                    self._client.sendall(_ENDING)
                    time.sleep(0.05)
                if cut in ("before", "told"):
                    return
                self._drop_answer = cut == "after"
                if proxy._delay:
                    time.sleep(proxy._delay)
            self._server.sendall(data)

    def _answer(self) -> None:
        while data := self._server.recv(65_536):
            if self._drop_answer:
                return
            self._asking = False
            self._client.sendall(data)


def _end(each: socket.socket) -> None:
    with suppress(OSError):  # it is closed already
        each.shutdown(socket.SHUT_RDWR)
    each.close()
