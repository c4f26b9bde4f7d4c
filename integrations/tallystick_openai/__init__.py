"""OpenAI on a tally: a compiled context as the body of a Responses request. Nothing is sent."""

from tallystick_openai.render import render_responses

__all__ = ["render_responses"]
