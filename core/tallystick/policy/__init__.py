"""Pure policy: policy state and an actor in, a decision or a scope filter out; rules; redaction."""

from tallystick.policy.access import decide, readable_scopes

__all__ = ["decide", "readable_scopes"]
