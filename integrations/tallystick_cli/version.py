"""What `tally --version` prints, which is answered before anything else is loaded."""

from __future__ import annotations

from tallystick import __version__

VERSION_LINE = f"tallystick {__version__}"
