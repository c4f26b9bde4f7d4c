"""Real MCP clients for tests: both protocol eras, in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp_types import ElicitResult

from tallystick_mcp import TallyServer

ERAS = ("auto", "legacy")
"""The modern protocol, and the one with a handshake."""


class Person:
    """A person behind a client: answers what the server asks, and notes it."""

    def __init__(self, answer: str = "accept", *, confirm: bool = True) -> None:
        self.answer, self.confirm = answer, confirm
        self.questions: list[str] = []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.questions.append(params.message)
        content = {"confirm": self.confirm} if self.answer == "accept" else None
        return ElicitResult(action=self.answer, content=content)  # type: ignore[arg-type]


@asynccontextmanager
async def connected(
    server: TallyServer | Any, mode: str, person: Callable[..., Any] | None = None
) -> AsyncIterator[Client]:
    """A client of a server, in one of the eras, with a person or without."""
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        yield client


def payload(result: Any) -> dict[str, Any]:
    """The structured content of an answer, which its second text repeats."""
    structured: dict[str, Any] = result.structured_content
    assert structured is not None, result
    return structured
