"""Characters that steer a terminal."""

from __future__ import annotations

STEERING = dict.fromkeys(
    [
        *(code for code in range(0x20) if code not in (0x09, 0x0A)),
        *range(0x7F, 0xA0),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    ]
)
"""Control characters and marks of writing direction, which no text may print."""
