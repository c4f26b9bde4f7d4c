"""The folder of this user for what no tally holds: losses of databases that were away, and the
settings files that the user trusts.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from tallystick.errors import SettingsError

_TRUSTED = "trusted"


def user_state() -> Path | None:
    """Return the folder; None for a user without a home, as in some containers."""
    base = os.environ.get("XDG_STATE_HOME")
    try:
        state = Path(base) if base else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return state / "tallystick"


def is_trusted(file: Path, content: bytes) -> bool:
    """Return whether the user has trusted this file with this content."""
    state = user_state()
    return state is not None and (state / _TRUSTED / _digest(file, content)).exists()


def trust_file(file: Path, content: bytes) -> str:
    """Trust a file at its place, with the content that was looked at; return the digest that is
    kept. Raises SettingsError.
    """
    state = user_state()
    if state is None:
        raise SettingsError(
            "There is no home in which to keep what you trust. Set XDG_STATE_HOME to a folder of "
            "yours."
        )
    try:
        digest = _digest(file, content)
        (state / _TRUSTED).mkdir(mode=0o700, parents=True, exist_ok=True)
        (state / _TRUSTED / digest).write_text(f"{file.resolve()}\n", encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{error.filename}: {error.strerror}.") from error
    return digest


def _digest(file: Path, content: bytes) -> str:
    place = os.fsencode(file.resolve())
    return hashlib.sha256(b"%d:%s%s" % (len(place), place, content)).hexdigest()
