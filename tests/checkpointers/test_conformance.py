"""TallySaver passes every base capability of LangGraph's own conformance suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from tallystick_langgraph import TallySaver

BASE = (
    "put",
    "put_writes",
    "get_tuple",
    "list",
    "delete_thread",
    "delete_for_runs",
    "copy_thread",
    "prune",
)


@pytest.mark.smoke
async def test_the_saver_passes_every_base_capability(open_tally: Callable[..., Any]) -> None:
    @checkpointer_test(name="TallySaver")
    async def saver() -> AsyncIterator[TallySaver]:
        with open_tally() as tally:
            yield TallySaver(tally if tally.owner else tally.bind(_SOMEBODY))

    report = await validate(saver)

    results = {
        name: (report.results[name].detected, report.results[name].failures) for name in BASE
    }
    assert results == {name: (True, []) for name in BASE}
    assert sum(report.results[name].tests_passed for name in BASE) >= 81


from tallystick import Actor  # noqa: E402

_SOMEBODY = Actor(user="alice")
