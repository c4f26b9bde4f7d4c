"""Access: decisions about access with their journal, spaces, visibility, tokens, approvals, frame
keys.
"""

from typing import TYPE_CHECKING

from tallystick.loading import late_names

if TYPE_CHECKING:
    from tallystick.access.access_tokens import AccessTokens, authenticate
    from tallystick.access.approvals import Answer, Approvals, GuardedCall
    from tallystick.access.confirm import Confirmation, ConfirmToken
    from tallystick.access.frame_keys import FrameKeys
    from tallystick.access.gate import (
        UNREADABLE,
        Gate,
        full_id,
        is_expired,
        is_recallable,
        replacements,
        visible_docs,
    )
    from tallystick.access.spaces import Spaces, readers_of, require_no_widening, widens
else:
    __getattr__ = late_names(
        __name__,
        {
            "access_tokens": "AccessTokens authenticate",
            "approvals": "Answer Approvals GuardedCall",
            "confirm": "Confirmation ConfirmToken",
            "frame_keys": "FrameKeys",
            "gate": "UNREADABLE Gate full_id is_expired is_recallable replacements visible_docs",
            "spaces": "Spaces readers_of require_no_widening widens",
        },
    )

__all__ = [
    "full_id",
    "UNREADABLE",
    "AccessTokens",
    "authenticate",
    "Answer",
    "Approvals",
    "ConfirmToken",
    "Confirmation",
    "FrameKeys",
    "Gate",
    "GuardedCall",
    "Spaces",
    "is_expired",
    "is_recallable",
    "readers_of",
    "replacements",
    "require_no_widening",
    "visible_docs",
    "widens",
]
