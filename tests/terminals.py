"""Terminals: a pseudo-terminal on which a test types what a person would."""

from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

import typer
import typer.testing
from typer.testing import CliRunner

from tallystick_cli.app import build_command, main


def invoke(arguments: Sequence[str], **options: Any) -> Any:
    """Run `tally` with arguments as `CliRunner` runs an application of typer; its commands are
    built once in a process, which takes longer than running one.
    """
    with patch.object(typer.testing, "_get_command", lambda app: build_command()):
        return CliRunner().invoke(typer.Typer(), arguments, **options)


@contextmanager
def at_terminal(typed: str) -> Iterator[None]:
    """Let standard input be a real terminal on which `typed` was typed."""
    person, program = pty.openpty()
    try:
        os.write(person, f"{typed}\n".encode())
        with os.fdopen(os.dup(program)) as stdin, patch.object(sys, "stdin", stdin):
            yield
    finally:
        os.close(person)
        os.close(program)


def run_piped(*arguments: str, piped: str = "", columns: int = 80) -> tuple[int, str, str]:
    """Run `tally` without a terminal; return its code, and what it printed as output and as
    errors.
    """
    out, errors = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["tally", *arguments]),
        patch.object(sys, "stdin", io.StringIO(piped)),
        patch.dict(os.environ, {"COLUMNS": str(columns)}),
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return code, out.getvalue(), errors.getvalue()


def run_at_terminal(typed: str, *arguments: str) -> tuple[int, str, str]:
    """Run `tally` at a terminal; return its code, and what it printed as output and as errors."""
    out, errors = io.StringIO(), io.StringIO()
    with (
        at_terminal(typed),
        patch.object(sys, "argv", ["tally", *arguments]),
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return code, out.getvalue(), errors.getvalue()
