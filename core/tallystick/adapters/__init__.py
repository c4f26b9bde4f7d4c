"""The kit for adapters: who acts, call trees, stream times, shapes of tool calls, recall."""

from tallystick.adapters.binder import Binder

__all__ = ["Binder"]
