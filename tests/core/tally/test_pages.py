"""Lists of runs, approvals and jobs, page by page: each once, whatever is added meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tallystick import Actor, BoundTally, PolicyRule, Tally
from tallystick.errors import ApprovalRequired, NotFound
from tallystick.testing import HashEmbedder, StepClock

OpenTally = Callable[..., Tally]
ANNA, BEN = Actor(user="anna"), Actor(user="ben")
ROOT = Actor(user="root", role="operator")
ASK = PolicyRule(id="ask", name="Ask", effect="require_approval", applies_to="tool_call")


def _run(bound: BoundTally, number: int) -> str:
    with bound.run(f"agent {number}") as run:
        return run.id


def _approval(bound: BoundTally, number: int) -> str:
    with pytest.raises(ApprovalRequired) as blocked:
        bound.check_tool_call("ring", {"bell": number})
    return str(blocked.value.approvals[0].id)


def _job(bound: BoundTally, number: int) -> str:
    stored = bound.remember(f"Heron {number} of {bound.actor.user}.")
    assert stored.job_id is not None
    return stored.job_id


LISTS: dict[str, tuple[Callable[[BoundTally, int], str], str, str]] = {
    "runs": (_run, "recordings.runs", "id"),
    "approvals": (_approval, "approvals.list", "id"),
    "jobs": (_job, "jobs.list", "id"),
}


def _verb(bound: Any, path: str) -> Callable[..., Sequence[Any]]:
    for part in path.split("."):
        bound = getattr(bound, part)
    verb: Callable[..., Sequence[Any]] = bound
    return verb


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_read_page_by_page_while_it_grows(open_tally: OpenTally, name: str) -> None:
    make, path, key = LISTS[name]
    # A clock that stands: all are of one moment, and none is lost between two pages.
    clock = StepClock(step=0)
    with open_tally(clock=clock, rules=[ASK], embedder=HashEmbedder(local=False)) as tally:
        anna, ben = tally.bind(ANNA), tally.bind(BEN)
        made = [make(anna, number) for number in range(5)]
        make(ben, 0)
        listed = _verb(anna, path)
        pages = [listed(limit=2)]
        later = [make(anna, 7)]
        while pages[-1]:
            pages.append(listed(limit=2, before=getattr(pages[-1][-1], key)))

        assert [getattr(each, key) for page in pages for each in page] == made[::-1]
        assert [getattr(each, key) for each in listed(limit=9)] == [*later, *made[::-1]]
        # The end of an id is enough, as everywhere.
        assert [getattr(each, key) for each in listed(before=made[1][-12:])] == made[:1]
        awaited: list[Any] = asyncio.run(_verb(anna.aio, path)(before=made[2]))  # type: ignore[arg-type]
        assert [getattr(each, key) for each in awaited] == made[:2][::-1]


@pytest.mark.parametrize("name", LISTS)
def test_a_cursor_of_others_is_absent(open_tally: OpenTally, name: str) -> None:
    make, path, _ = LISTS[name]
    with open_tally(rules=[ASK], embedder=HashEmbedder(local=False)) as tally:
        hidden = make(tally.bind(ANNA), 1)
        listed = _verb(tally.bind(BEN), path)
        with pytest.raises(NotFound) as foreign:
            listed(before=hidden)
        with pytest.raises(NotFound) as absent:
            listed(before="01900000-0000-7000-8000-000000000000")

        told = str(foreign.value).replace(hidden, "X")
        assert told == str(absent.value).replace("01900000-0000-7000-8000-000000000000", "X")


def test_a_page_of_what_waits_goes_on_after_one_that_was_decided(open_tally: OpenTally) -> None:
    with open_tally(rules=[ASK]) as tally:
        anna = tally.bind(ANNA)
        made = [_approval(anna, number) for number in range(3)]
        [newest] = anna.approvals.list(limit=1)
        anna.approvals.deny(newest.id, reason="no")

        assert [each.id for each in anna.approvals.list(before=newest.id)] == made[:2][::-1]


def test_jobs_of_every_scope_are_one_list_for_an_operator(open_tally: OpenTally) -> None:
    with open_tally(embedder=HashEmbedder(local=False)) as tally:
        made = [_job(tally.bind(actor), 0) for actor in (ANNA, BEN, ANNA.replace(user="cleo"))]
        root = tally.bind(ROOT)
        [first] = root.jobs.list(limit=1)
        rest = root.jobs.list(before=first.id)

        assert [first.id, *(job.id for job in rest)] == made[::-1]


def test_runs_are_listed_before_a_time_too(open_tally: OpenTally) -> None:
    with open_tally(clock=StepClock()) as tally:
        anna = tally.bind(ANNA)
        made = [_run(anna, number) for number in range(3)]
        started = anna.recordings.run(made[2]).started_at
        listed = anna.recordings.runs_of([anna.scope], before=started)

        assert [run.id for run in listed] == made[:2][::-1]
