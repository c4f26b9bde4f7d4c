"""Extracting: the text of what arrived, by its media type."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick_ingest.contract import SkipReason

_PLAIN = ("text/", "application/json", "application/xml")


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a body."""

    text: str
    """Markdown-like: headings begin with `#`."""
    title: str = ""
    transforms: tuple[str, ...] = ()
    """What was done to the body, as name/version."""


class Unextractable(Exception):
    """A body of which no text can be read."""

    def __init__(self, reason: SkipReason, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason
        self.detail = detail


def extract(body: str | bytes, media_type: str, name: str = "") -> Extracted:
    """Return the text of a body. Raises Unextractable."""
    if isinstance(body, str):
        return Extracted(body)
    if not media_type.startswith(_PLAIN):
        raise Unextractable("unsupported_type", media_type)
    try:
        return Extracted(body.decode("utf-8-sig"), transforms=("utf-8/1",))
    except UnicodeDecodeError as error:
        raise Unextractable("unreadable", "This is no UTF-8.") from error
