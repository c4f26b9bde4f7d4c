"""The tally keeps its contract on SQLite and on PostgreSQL, and however vectors are searched."""

from __future__ import annotations

import pytest
from tests.openers import EITHER_WAY, OpenTally, opener

from tallystick.testing.tally_contract import TallyContract


@pytest.fixture(params=EITHER_WAY)
def open_tally(request: pytest.FixtureRequest) -> OpenTally:
    return opener(request.param, request)


@pytest.mark.smoke
class TestTally(TallyContract):
    """The whole suite, once per database and way."""
