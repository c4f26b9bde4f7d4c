"""The first page for people who keep memory: what waits, what was captured, and who has read; and
the days of a scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from tallystick.errors import Denied, InvalidInput
from tallystick.records import Activity, LoggedRead, Memory, Proposal, RunRecord, Scope
from tallystick.records.times import moment_text
from tallystick_html import words
from tallystick_server.dashboard.runs import lines_to_paste, scopes_of, user_of
from tallystick_server.dashboard.visits import Visit, page

_SHOWN = 8
_SCOPES = 20
"""Scopes that one page looks into."""
_LISTED = 100
_DAY = 300
"""Events of one page of a day."""
_RUNS = 200
_IMPORTED, _REFLECTED = "memory.imported", "memory.reflected"


@dataclass(frozen=True)
class Reader:
    """An agent or a person that has read, with its reads in the part of the log that is shown."""

    user: str
    agent: str | None
    reads: int
    last: LoggedRead


@dataclass(frozen=True)
class Noted:
    """An event with numbers, and where it happened."""

    scope: Scope
    event: Activity


@dataclass(frozen=True)
class Happened:
    """One line of a day."""

    at: int
    says: str
    link: str | None
    name: str
    who: str
    reason: str | None = None


def readable(visit: Visit) -> list[Scope]:
    """Return the scopes that a page looks into: the one that is named, else the caller's home and
    the others that it may read.
    """
    home: Scope = visit.bound.scope
    if visit.text("scope"):
        return [home]
    others = [each.scope for each in scopes_of(visit) if each.readable]
    return list(dict.fromkeys((home, *others)))[:_SCOPES]


def _overview(visit: Visit) -> Response:
    scopes = readable(visit)
    captured: list[Memory] = []
    waiting: list[Proposal] = []
    for scope in scopes:
        try:
            captured += visit.call("memories", at=scope, limit=_SHOWN)
            waiting += visit.call("reviews", at=scope, limit=_SHOWN)
        except Denied:  # the caller's home may be closed to it, as by a token for other scopes
            continue
    approvals = [
        each
        for scope in scopes
        for each in visit.call("approvals", at=scope, state="pending", limit=_SHOWN)
    ]
    noted = _list_events(visit, (_IMPORTED, _REFLECTED))
    reads = visit.bound.recordings.reads(limit=_LISTED)
    recalls = visit.bound.recordings.reads(operation="recall", limit=_SHOWN)
    return visit.page(
        "overview.html",
        captured=sorted(captured, key=lambda memory: -memory.created_at)[:_SHOWN],
        waiting=sorted(waiting, key=lambda proposal: proposal.created_at)[:_SHOWN],
        approvals=sorted(approvals, key=lambda approval: approval.created_at)[:_SHOWN],
        recalls=recalls,
        imports=[each for each in noted if each.event.event == _IMPORTED][:_SHOWN],
        reflections=[each for each in noted if each.event.event == _REFLECTED][:_SHOWN],
        readers=_readers(reads),
        runs=visit.bound.recordings.runs_of(visit.tally.scopes(), limit=_SHOWN),
        today=_day_of(visit.tally.now()),
        user_of=user_of,
        first_lines=lines_to_paste(visit),
    )


def _list_events(visit: Visit, events: Sequence[str]) -> list[Noted]:
    """Return the newest of some events in the scopes of the caller, newest first."""
    noted = []
    for scope in readable(visit):
        try:
            happened = visit.within(scope).recordings.activity(
                events=events, newest=True, limit=_LISTED
            )
        except Denied:  # to look into a scope is not to inspect it
            continue
        noted += [Noted(scope, event) for event in happened]
    return sorted(noted, key=lambda each: -each.event.at)[:_LISTED]


def _imports(visit: Visit) -> Response:
    """What was imported from other products."""
    return visit.page("imports.html", imports=_list_events(visit, (_IMPORTED,)))


def _reflections(visit: Visit) -> Response:
    """When was reflected, and what came of it."""
    return visit.page("reflections.html", reflections=_list_events(visit, (_REFLECTED,)))


def _readers(reads: Sequence[LoggedRead]) -> list[Reader]:
    """Return those who have read, the last one first."""
    by_reader: dict[tuple[str, str | None], list[LoggedRead]] = {}
    for each in reads:
        by_reader.setdefault((each.user, each.agent), []).append(each)
    return [
        Reader(user, agent, len(lines), lines[0]) for (user, agent), lines in by_reader.items()
    ][:_SHOWN]


def _reads(visit: Visit) -> Response:
    """Who has read, line by line."""
    operation = visit.text("operation")
    lines = visit.bound.recordings.reads(
        operation=operation or None, limit=_LISTED, before=visit.number("before")
    )
    last = lines[-1].number if len(lines) == _LISTED else None
    return visit.page(
        "reads.html",
        lines=lines,
        operation=operation,
        operations=("recall", "get", "inspect", "explore"),
        older=visit.again(before=last) if last is not None else None,
        is_first=not visit.text("before"),
    )


def _diary(visit: Visit) -> Response:
    """A day of a scope in the order of time: captures, runs, decisions."""
    day = visit.text("day") or _day_of(visit.tally.now())
    start = _start_of(day)
    following = start + timedelta(days=1)
    since, until = _micros(start), _micros(following)
    bound = visit.bound
    events = bound.recordings.activity(
        since=_moment(since), until=_moment(until), after=visit.number("after"), limit=_DAY
    )
    has_more = len(events) == _DAY
    end = events[-1].at if has_more else until
    runs = [
        run
        for run in bound.recordings.runs_of([bound.scope], limit=_RUNS, before=end)
        if run.started_at >= (visit.number("past") or since)
    ]
    lines = [*map(_event_line, events), *map(_run_line, runs)]
    return visit.page(
        "diary.html",
        day=day,
        scope=bound.scope,
        scopes=[each for each in scopes_of(visit) if each.readable],
        lines=sorted(lines, key=lambda line: line.at),
        before=_address_of_day(visit, start - timedelta(days=1)),
        following=None if until > visit.tally.now() else _address_of_day(visit, following),
        later=visit.again(after=events[-1].position, past=end) if has_more else None,
    )


def _event_line(event: Activity) -> Happened:
    link = None
    if event.is_memory:
        link = f"/memories/{event.subject_id}"
    elif event.event.startswith("proposal."):
        link = f"/reviews/{event.subject_id}"
    elif event.event.startswith("approval."):
        link = f"/approvals/{event.subject_id}"
    who = event.user if event.agent is None else f"{event.user} by {event.agent}"
    name = event.preview or ("not shown" if event.is_memory else "")
    return Happened(
        event.at,
        words.HAPPENED.get(event.event, event.event.replace(".", " ")),
        link,
        name,
        who,
        event.reason,
    )


def _run_line(run: RunRecord) -> Happened:
    name = f"{run.agent_name}: {run.goal}" if run.goal else run.agent_name
    return Happened(run.started_at, "ran", f"/runs/{run.id}", name, run.agent_name)


def _day_of(micros: int) -> str:
    return moment_text(micros, "%Y-%m-%d", None)


def _start_of(day: str) -> datetime:
    """Return the beginning of a day in the server's zone. Raises InvalidInput."""
    try:
        return datetime.strptime(day, "%Y-%m-%d").astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(
            "day: a day is needed here, such as 2026-11-22.", argument="day"
        ) from error


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def _moment(micros: int) -> Any:
    return datetime.fromtimestamp(micros / 1_000_000).astimezone()


def _address_of_day(visit: Visit, start: datetime) -> str:
    return visit.again(day=start.strftime("%Y-%m-%d"), after=None, past=None)


ROUTES = [
    page("/overview", _overview),
    page("/reads", _reads),
    page("/imports", _imports),
    page("/reflections", _reflections),
    page("/diary", _diary),
]
