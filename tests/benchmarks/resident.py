"""The memory of a process."""

from __future__ import annotations

from pathlib import Path


def resident(process: int | None = None) -> float:
    """Return the resident set of a process, by default of this one, megabytes."""
    status = Path(f"/proc/{process or 'self'}/status").read_text(encoding="utf-8")
    [size] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    return int(size) / 1_024
