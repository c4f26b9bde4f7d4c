"""Anthropic on a tally: a compiled context as the body of a Messages request. Nothing is sent."""

from tallystick_anthropic.render import render_messages

__all__ = ["render_messages"]
