"""The extension: what work adds to a tally."""

from __future__ import annotations

from tallystick.extension import Extension
from tallystick.operations import Operation

EXTENSION: Extension[Operation] = Extension()
