"""Access: decisions about access with their journal, spaces, visibility, confirm tokens."""

from tallystick.access.confirm import Confirmation, ConfirmToken
from tallystick.access.gate import Gate
from tallystick.access.spaces import Spaces
from tallystick.access.visibility import (
    UNREADABLE,
    is_expired,
    is_recallable,
    replacements,
    visible_docs,
)

__all__ = [
    "UNREADABLE",
    "ConfirmToken",
    "Confirmation",
    "Gate",
    "Spaces",
    "is_expired",
    "is_recallable",
    "replacements",
    "visible_docs",
]
