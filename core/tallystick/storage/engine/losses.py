"""Losses: how much of each run a process could not write, in a file that was made before.

A tally on a full disk can store no word about what it loses. So a process that records makes a file
of a fixed size beside its sign of life when it begins, and writes counts over its blanks, which
takes no new space on most file systems. Whoever opens the tally next reads the file, and writes
what it says into the chains of the runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tallystick.storage.engine.private_files import open_private

_SIZE = 8_192
"""Bytes of the file: counts of some 170 runs."""


class Losses(NamedTuple):
    """What one process could not write."""

    by_run: Mapping[str, int]
    """Number of things by the id of their run."""
    further: int = 0
    """Number of things in runs that the file has no room for."""


def make_blank(file: Path) -> None:
    """Make the file, without losses. Raises OSError."""
    with open_private(file) as opened:
        opened.write(b" " * _SIZE)


def write_losses(file: Path, by_run: Mapping[str, int]) -> None:
    """Write how much of each run is lost over what the file has. Raises OSError."""
    listed: dict[str, int] = {}
    text = b""
    for run_id, count in by_run.items():
        further = sum(by_run.values()) - sum(listed.values()) - count
        body = json.dumps({"by_run": {**listed, run_id: count}, "further": further}).encode()
        if len(body) > _SIZE:
            break
        listed[run_id], text = count, body
    if text:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(text.ljust(_SIZE))


def read_losses(file: Path) -> Losses:
    """Return what the file says; nothing for one that is blank or was cut off, or that another
    process has told and removed. Raises OSError.
    """
    try:
        stored = json.loads(file.read_bytes())
        by_run = {str(run_id): int(count) for run_id, count in stored["by_run"].items()}
        return Losses(by_run, int(stored["further"]))
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return Losses({})
