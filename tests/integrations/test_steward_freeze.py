"""A freeze of autonomy, from wherever a person asks for it, acts before the next action."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.core.steward.jobs_of_tests import add_jobs, set_jobs
from tests.terminals import invoke

from tallystick.settings import Settings
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of
from tallystick_steward.loop import Loop

from .dashboard import Browser
from .served import ROOT, Served, served


def _from_the_command_line(there: Served, folder: Path) -> None:
    asked = ["freeze", "--what", "autonomy", "-r", "a look first"]
    result = invoke(asked, env={"TALLYSTICK_TALLY": str(folder / "tally")})
    assert result.exit_code == 0, result.output


def _from_the_dashboard(there: Served, folder: Path) -> None:
    with Browser(there.tcp, there.token(ROOT, token_class="session")) as browser:
        form = browser.get("stewardship").form("/stewardship/freeze")
        assert browser.send(form, reason="a look first").status == 200


def _from_http(there: Served, folder: Path) -> None:
    with there.remote(ROOT) as root:
        root.operator.freeze(reason="a look first", what="autonomy")


@pytest.mark.parametrize("freeze", [_from_the_command_line, _from_the_dashboard, _from_http])
def test_a_freeze_during_an_action_lets_no_other_begin(
    tmp_path: Path, freeze: Callable[[Served, Path], None]
) -> None:
    with served(tmp_path, settings=Settings(autonomy="execute")) as there:
        texts = [f"Fact {number} of many." for number in range(4)]
        ids = [each.id for each in there.tally.bind(ROOT).remember_many(texts)]
        dead = add_jobs(there.tally, ids[:2], ROOT)
        set_jobs(there.tally, state="dead", error_code="lease_expired", due_at=None)
        services = services_of(there.tally)
        gone = {"state": "leased", "leased_by": "a-worker-that-is-gone", "due_at": 1}
        add_jobs(there.tally, ids[2:], ROOT)
        set_jobs(there.tally, only=("pending",), **gone)
        # The first action wakes the workers once it has acted: there a person comes in.
        services.background.wake = lambda: freeze(there, tmp_path)  # type: ignore[method-assign]
        turn = Loop(services.memory, services.background, services.windows, "test").turn()
        assert turn is not None
        assert [each.action for each in turn.repairs] == ["release_lease"]
        with services.store.database.read() as connection:
            entries = list(journal.entries(connection, "tally"))
        events = [each.event for each in entries]
        assert events.index("repair.begin") < events.index("tally.freeze")
        assert "repair.begin" not in events[events.index("tally.freeze") :]
        assert {job.id for job in there.tally.bind(ROOT).jobs.list(state=["dead"])} == set(dead)
