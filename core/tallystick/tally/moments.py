"""Moments as callers give them, as the microseconds that are stored."""

from __future__ import annotations

from datetime import UTC, datetime

from tallystick.errors import InvalidInput
from tallystick.records import FIRST_MOMENT, LAST_MOMENT

__all__ = ["Moment", "microseconds"]

Moment = int | datetime
"""A point in time: microseconds since 1970 UTC, or an aware datetime."""


def microseconds(moment: Moment | None) -> int | None:
    """Return a moment as microseconds since 1970, UTC. Raises InvalidInput."""
    if moment is None:
        return None
    if isinstance(moment, int):
        if not FIRST_MOMENT <= moment <= LAST_MOMENT:
            raise InvalidInput(
                f"{moment} is no moment of the years 1 to 9999. Give microseconds since 1970, UTC."
            )
        return moment
    if moment.tzinfo is None:
        raise InvalidInput(
            "This datetime has no time zone. Give an aware one, such as datetime.now(UTC)."
        )
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
