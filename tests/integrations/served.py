"""A tally that is served: on a Unix socket and on a port, with tokens of every class."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tallystick import Actor, Tally
from tallystick.records import PolicyRule
from tallystick.testing import HashEmbedder
from tallystick_server import RemoteTally, serve_in_background

ROOT = Actor(user="root", role="operator")
ADA = Actor(user="ada", projects={"apollo"})
BOB = Actor(user="bob")
ASKING = PolicyRule(
    id="ask",
    name="Ask",
    description="A person looks at deploys.",
    effect="require_approval",
    applies_to="tool_call",
)


@dataclass
class Served:
    """A served tally, and what calls it."""

    tally: Tally
    unix: str
    tcp: str
    clients: list[httpx2.Client] = field(default_factory=list)

    def token(self, actor: Actor = ADA, **options: Any) -> str:
        made = self.tally.bind(ROOT).tokens.make("test", actor=actor, **options)
        assert made.secret is not None
        return made.secret

    def http(self, secret: str | None = None, **headers: str) -> httpx2.Client:
        """A plain client of the port."""
        if secret is not None:
            headers["authorization"] = f"Bearer {secret}"
        client = httpx2.Client(base_url=self.tcp, headers=headers, trust_env=False, timeout=30)
        self.clients.append(client)
        return client

    def socket(self) -> httpx2.Client:
        """A plain client of the socket."""
        path = self.unix.removeprefix("unix:")
        client = httpx2.Client(
            base_url="http://localhost",
            transport=httpx2.HTTPTransport(uds=path),
            trust_env=False,
            timeout=30,
        )
        self.clients.append(client)
        return client

    def remote(self, actor: Actor = ADA, **options: Any) -> RemoteTally:
        return RemoteTally.connect(self.tcp, token=self.token(actor, **options))


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[Served]:
    """Serve a new tally in a folder, in this process."""
    options.setdefault("embedder", HashEmbedder())
    with (
        Tally.open(folder / "tally", owner=ROOT, background=False, **options) as tally,
        serve_in_background(tally, uds=folder / "s", port=0) as (unix, tcp),
    ):
        there = Served(tally, unix, tcp)
        try:
            yield there
        finally:
            for client in there.clients:
                client.close()


def problem(response: httpx2.Response) -> Mapping[str, Any]:
    """The problem in an answer, which is always of one shape."""
    assert response.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = json.loads(response.content)
    assert told.keys() == {"type", "title", "status", "detail", "code", "facts"}
    assert told["status"] == response.status_code
    return told
