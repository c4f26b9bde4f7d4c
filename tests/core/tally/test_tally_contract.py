"""The tally keeps its contract on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest

from tallystick.testing.tally_contract import TallyContract


@pytest.mark.smoke
class TestTally(TallyContract):
    """The whole suite, once per database."""
