"""Errors of the sources that documents are imported from."""

from __future__ import annotations

from tallystick.errors.base import InvalidInput, TallystickError


class NotOfFormat(InvalidInput):
    """A target is not what its adapter reads. The message says what was found."""

    code = "not_of_format"


class AuthorizationNeeded(TallystickError):
    """A source refuses the credential, or it has run out: an import pauses until there is one."""

    code = "authorization_needed"


class RateLimitReached(TallystickError):
    """A source asks to wait; an import goes on from its last checkpoint after that."""

    code = "source_rate_limited"
    _facts = ("retry_after",)

    def __init__(self, message: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds, where the source says how long."""
