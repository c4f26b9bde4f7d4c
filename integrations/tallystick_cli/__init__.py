"""The `tally` command: read, recall and verify a tally from the terminal."""

from tallystick.errors import require

require("typer", extra="cli")
require("rich", extra="cli")

from tallystick_cli.app import app, main  # noqa: E402

__all__ = ["app", "main"]
