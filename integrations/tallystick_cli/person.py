"""A person at a terminal: what destroys or grants is asked for there, and nothing skips the
question.
"""

from __future__ import annotations

import sys

import typer

from tallystick.errors import InvalidInput


def require_person(action: str) -> None:
    """Raise InvalidInput unless a person can answer: standard input is a terminal."""
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"{action} needs a person at a terminal: run the command there and answer its "
            "question. No option skips it, and nothing was done."
        )


def confirm(action: str, word: str) -> None:
    """Let the person type `word`; raise Abort for every other answer, and the command exits with
    1.
    """
    answer = typer.prompt(
        f"Type {word} to {action}; anything else leaves it",
        default="",
        show_default=False,
        err=True,
    )
    if answer.strip() != word:
        raise typer.Abort
