"""Tallies that earlier releases made, packed among the fixtures."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any


def unpacked(archive: Path, place: Path) -> Path:
    """Unpack an archive of our own into a folder, and return that."""
    with tarfile.open(archive) as packed:
        # Early releases of Python 3.11 know no filter.
        options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        packed.extractall(place, **options)
    return place
