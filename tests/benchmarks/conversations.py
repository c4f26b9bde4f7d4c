"""Conversations with labelled questions, as every evaluation of recall reads them."""

from __future__ import annotations

from dataclasses import dataclass

ADVERSARIAL = "adversarial"
"""The kind of a question whose premise is false; it is no part of any mean."""


@dataclass(frozen=True)
class Turn:
    """One thing said."""

    id: str
    session: str
    position: int
    speaker: str
    text: str
    at: int | None
    caption: str | None = None

    @property
    def content(self) -> str:
        """What was said and shown."""
        return f"{self.text}\n{self.caption}" if self.caption else self.text

    @property
    def line(self) -> str:
        """What a system without fields sees."""
        return (
            (f"{self.speaker}: " if self.speaker else "")
            + self.text
            + (f" [shares {self.caption}]" if self.caption else "")
        )


@dataclass(frozen=True)
class Query:
    """One question with the turns that answer it."""

    text: str
    kind: str
    gold: frozenset[str]
    answer: str = ""


@dataclass(frozen=True)
class Conversation:
    """Turns in order, and what is asked about them."""

    id: str
    turns: tuple[Turn, ...]
    queries: tuple[Query, ...]
    skipped: int = 0
    by_session: bool = False
    """True if the sessions that answer are looked for, and not their turns."""
    asked_at: int | None = None
    """When the questions are asked, microseconds UTC; by default an hour after the last turn."""
