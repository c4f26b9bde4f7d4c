"""The example of MCP: the page that answers is taken, with where it is from; the rest is not."""

from __future__ import annotations

import pytest
from examples.mcp_ingest.__main__ import main


def test_the_page_that_answers_is_in_and_what_has_nothing_to_do_with_it_is_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main([])
    said = capsys.readouterr().out
    lines = {line.split()[1]: line.split() for line in said.splitlines() if "handbook://" in line}

    assert lines["handbook://nesting"][0] == "include"
    assert lines["handbook://parking"][0] == "exclude"
    assert "below_relevance" in lines["handbook://parking"]
    assert "receipts that verify: 1, runs: 1" in said
