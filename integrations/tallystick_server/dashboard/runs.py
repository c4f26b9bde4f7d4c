"""Pages of runs: the list, one run as a timeline, its conversation, and its proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from starlette.responses import Response

from tallystick.errors import InvalidInput, NotFound
from tallystick.records import ExploredScope, RunRecord, Scope, StepRecord, StepStatus
from tallystick_html import first_lines, opening_lines, words
from tallystick_server.dashboard.figures import Figures, RunFigures, Summarized, figures_of
from tallystick_server.dashboard.messages import Message, messages_of
from tallystick_server.dashboard.plots import Plot, bars_of, budget_of_steps
from tallystick_server.dashboard.visits import Visit, page

_PAGE = 25
_STEPS = 200
_SCANNED = 2_000
"""Runs that a filter looks through for one page."""
_CONVERSED = 60
"""Steps of a run that are read for one page of its conversation."""
_SEARCHED = 1_000
"""Steps that a search within a run reads at once."""
_FILTERS = ("agent", "domain", "status", "q", "within", "user", "thread")
_SAID = ("request", "response", "tool_result", "error")
STATUSES: tuple[str, ...] = get_args(StepStatus)


@dataclass(frozen=True)
class RunRow:
    """One run in the list."""

    run: RunRecord
    steps: int
    figures: RunFigures | None
    mark: Any

    @property
    def words(self) -> str:
        """The first words of what was asked; of a run without a goal its agent."""
        return self.run.goal or self.run.agent_name


@dataclass(frozen=True)
class Conversation:
    """Runs of one thread of one user that stand together in the list; a run without a thread stands
    by itself.
    """

    user: str
    thread: str | None
    rows: list[RunRow]


@dataclass(frozen=True)
class StepRow:
    """One step in the timeline, with its bar in thousandths of the width."""

    step: StepRecord
    depth: int
    start: int
    width: int
    figures: RunFigures | None
    facts: str


def figures(visit: Visit) -> Figures:
    """Return the figures that this server keeps."""
    figures_of_app: Figures = visit.request.app.state.figures
    return figures_of_app


def scopes_of(visit: Visit) -> tuple[ExploredScope, ...]:
    """Return the scopes that the caller may look into, with counts of a moment ago."""
    token = visit.caller.token
    return figures(visit).scopes(visit.within(None), "" if token is None else token.id)


def _runs(visit: Visit) -> Response:
    filters = {name: visit.text(name) for name in _FILTERS}
    if filters["status"] not in ("", *STATUSES):
        raise InvalidInput(f"status: a run is {', '.join(STATUSES)}.", argument="status")
    bound = visit.bound
    scopes = visit.tally.scopes()
    if filters["within"]:
        scopes = [scope for scope in scopes if str(scope) == filters["within"]]
    before = visit.text("before") or None
    listed, more = _matching(
        lambda position: (
            bound.recordings.runs_of(scopes, limit=_SCANNED // 4, before=position)
            if any(filters.values())
            else bound.recordings.runs_of(scopes, limit=_PAGE + 1, before=position)
        ),
        lambda run: _answers(run, filters),
        before,
    )
    counts = bound.recordings.step_counts(listed)
    cache = figures(visit)
    rows = [
        RunRow(
            run,
            counts.get(run.id, 0),
            cache.of(bound, run, counts.get(run.id, 0)),
            cache.mark(run.id),
        )
        for run in listed
    ]
    return visit.page(
        "runs.html",
        rows=rows,
        conversations=_conversations(rows),
        first_lines=lines_to_paste(visit),
        plots=_plots(rows),
        wanted=filters,
        is_filtered=any(filters.values()),
        statuses=STATUSES,
        older=visit.again(before=listed[-1].id) if more and listed else None,
        is_first=before is None,
        is_live=any(run.status == "running" for run in listed),
    )


def _conversations(rows: Sequence[RunRow]) -> list[Conversation]:
    """Return the rows of a page by their conversations, that with the newest run first."""
    grouped: dict[tuple[str, ...], Conversation] = {}
    for row in rows:
        user, thread = user_of(row.run.scope), thread_of(row.run)
        key = (
            (str(row.run.scope), row.run.id) if thread is None else (str(row.run.scope), "", thread)
        )
        grouped.setdefault(key, Conversation(user, thread, [])).rows.append(row)
    return list(grouped.values())


def lines_to_paste(visit: Visit) -> Mapping[str, str]:
    """Return the first lines of each runtime, with the place of this tally."""
    opening = opening_lines(visit.tally.location)
    return {name: f"{opening}\n\n{lines}" for name, lines in first_lines().items()}


def user_of(scope: Scope) -> str:
    """Return whose a scope is: of a private one its user."""
    return scope.key if scope.kind == "private" else str(scope)


def thread_of(run: RunRecord) -> str | None:
    """Return the conversation that a run belongs to."""
    thread = run.metadata.get("thread_id")
    return thread if isinstance(thread, str) else None


def _plots(rows: Sequence[RunRow]) -> list[tuple[str, Plot]]:
    """Return the plots of tokens and cost over the runs of a page, the oldest first."""
    tokens, costs = [], []
    for row in reversed(rows):
        if row.figures is None:
            continue
        link = f"/runs/{row.run.id}"
        name = row.run.agent_name
        title = f"{name}: {row.figures.tokens:,} tokens"
        tokens.append((float(row.figures.tokens), 0.0, title, link))
        if row.figures.cost is not None:
            title = f"{name}: {row.figures.cost:.4f} {row.figures.currency}"
            costs.append((float(row.figures.cost), 0.0, title, link))
    plots = (
        ("Tokens", bars_of("Tokens of each run, the oldest first", tokens)),
        ("Cost", bars_of("Cost of each run, the oldest first", costs)),
    )
    return [(name, plot) for name, plot in plots if plot is not None]


def _matching(
    read: Callable[[str | None], Sequence[RunRecord]],
    answers: Callable[[RunRecord], bool],
    before: str | None,
) -> tuple[list[RunRecord], bool]:
    """Return a page of the runs that answer a filter, and whether there may be more."""
    matching: list[RunRecord] = []
    scanned = 0
    while scanned < _SCANNED:
        runs = read(before)
        if not runs:
            return matching, False
        for run in runs:
            if answers(run):
                matching.append(run)
                if len(matching) > _PAGE:
                    return matching[:_PAGE], True
        scanned, before = scanned + len(runs), runs[-1].id
    return matching, True


def _answers(run: RunRecord, filters: dict[str, str]) -> bool:
    query = filters["q"].casefold()
    return (
        (not filters["agent"] or run.agent_name == filters["agent"])
        and (not filters["domain"] or run.domain == filters["domain"])
        and (not filters["status"] or run.status == filters["status"])
        and (not filters["user"] or user_of(run.scope) == filters["user"])
        and (not filters["thread"] or thread_of(run) == filters["thread"])
        and (
            not query
            or any(
                query in (text or "").casefold()
                for text in (
                    *(run.agent_name, run.domain, run.goal, run.id),
                    *(user_of(run.scope), thread_of(run)),
                )
            )
        )
    )


def _run(visit: Visit) -> Response:
    run_id = visit.path("run_id")
    bound = visit.bound
    run = visit.call("run", run_id=run_id)
    scale = visit.text("time", "linear")
    if scale not in ("linear", "log"):
        raise InvalidInput("time: the bars are linear or log.", argument="time")
    after, query = visit.number("after"), visit.text("q")
    steps = _steps(visit, run.id, after, query)
    has_more, steps = len(steps) > _STEPS, steps[:_STEPS]
    count = bound.recordings.step_counts([run]).get(run.id, 0)
    summaries = {} if query else bound.recordings.summaries(run.id, after=after, limit=_STEPS)
    totals = figures(visit).of(bound, run, count)
    return visit.page(
        "run.html",
        run=run,
        budgets=budget_of_steps(steps, summaries),
        rows=_rows(run, steps, summaries, scale, visit.tally.now()),
        count=count,
        failed=sum(step.status in ("failed", "blocked") for step in steps),
        totals=totals,
        mark=figures(visit).mark(run.id),
        foil=bound.recordings.foil(run.id),
        scale=scale,
        query=query,
        user=user_of(run.scope),
        thread=thread_of(run),
        replayed=replayed_step(run.metadata),
        earlier=None if after is None else visit.again(after=_page_before(after)),
        later=visit.again(after=steps[-1].step_index) if has_more else None,
        is_live=run.status == "running",
    )


def _steps(visit: Visit, run_id: str, after: int | None, query: str) -> list[StepRecord]:
    """Return a page of steps and one more: with a query those whose name, kind or status has it, or
    in whose payloads it comes up.
    """
    if not query:
        steps: list[StepRecord] = visit.call("steps", run_id=run_id, after=after, limit=_STEPS + 1)
        return steps
    saying = set(visit.bound.recordings.steps_saying(run_id, query))
    matching: list[StepRecord] = []
    while len(matching) <= _STEPS:
        steps = visit.call("steps", run_id=run_id, after=after, limit=_SEARCHED)
        matching += [step for step in steps if step.id in saying or _says(step, query.casefold())]
        if len(steps) < _SEARCHED:
            break
        after = steps[-1].step_index
    return matching[: _STEPS + 1]


def _says(step: StepRecord, query: str) -> bool:
    kind = words.KINDS.get(step.step_kind, step.step_kind)
    return any(query in (text or "").casefold() for text in (step.name, kind, step.status, step.id))


def _page_before(after: int) -> int | None:
    return None if after < _STEPS else after - _STEPS


def _totals(visit: Visit) -> Response:
    """The figures of a long run, which take a moment."""
    run = visit.call("run", run_id=visit.path("run_id"))
    return visit.page("totals.html", run=run, totals=figures(visit).add_up(visit.bound, run))


def _rows(
    run: RunRecord,
    steps: Sequence[StepRecord],
    summaries: Mapping[str, Sequence[Summarized]],
    scale: str,
    now: int,
) -> list[StepRow]:
    """Return the rows of a timeline. A step lasts until those that it contains have ended."""
    ends = {step.id: step.ended_at or now for step in steps}
    parents = {step.id: step.parent_step_id for step in steps}
    depths: dict[str, int] = {}
    for step in steps:
        parent = step.parent_step_id
        depths[step.id] = depths.get(parent, -1) + 1 if parent in parents else 0
    for step in reversed(steps):
        parent = step.parent_step_id
        if parent in ends:
            ends[parent] = max(ends[parent], ends[step.id])
    begin = run.started_at
    end = max([run.ended_at or now, *ends.values()], default=begin)

    def place(moment: int) -> float:
        span, passed = max(end - begin, 1), min(max(moment - begin, 0), end - begin)
        if scale == "linear":
            return passed / span
        return math.log1p(passed / 1_000) / math.log1p(span / 1_000)

    rows = []
    for step in steps:
        start, stop = place(step.started_at), place(ends[step.id])
        entries = summaries.get(step.id, ())
        rows.append(
            StepRow(
                step=step,
                depth=min(depths[step.id], 8),
                start=round(start * 1000),
                width=max(round((stop - start) * 1000), 3),
                figures=figures_of(entries),
                facts=_facts(entries),
            )
        )
    return rows


def _facts(entries: Sequence[Summarized]) -> str:
    """Return in a few words what a step did, from the summaries of its entries."""
    facts: list[str] = []
    for entry in entries:
        summary = entry.summary
        if entry.kind == "memory_read" and summary.get("memories"):
            facts.append(f"read {_count(summary.get('memories'), 'memory', 'memories')}")
        elif entry.kind == "memory_write":
            facts.append("wrote memory")
        elif entry.kind == "compiled":
            decisions = summary.get("decisions")
            if isinstance(decisions, list):
                left = sum(
                    isinstance(decision, list) and len(decision) > 1 and decision[1] == "exclude"
                    for decision in decisions
                )
                facts.append(f"{len(decisions) - left} in, {left} left out")
        elif entry.kind == "policy_check" and summary.get("outcome") == "blocked":
            facts.append("waited for a person")
        elif entry.kind == "error":
            facts.append("an error")
        elif entry.kind == "gap":
            facts.append("a gap")
        if entry.redactions:
            facts.append(f"{sum(entry.redactions.values())} redacted")
    return " · ".join(dict.fromkeys(facts))


def _count(things: object, singular: str, plural: str) -> str:
    number = len(things) if isinstance(things, list) else 0
    return f"{number} {singular if number == 1 else plural}"


def _conversation(visit: Visit) -> Response:
    """The conversation in one column: the last request, and what was answered at each step."""
    run = visit.call("run", run_id=visit.path("run_id"))
    after = visit.number("after")
    steps = visit.call("steps", run_id=run.id, after=after, limit=_CONVERSED + 1)
    has_more, steps = len(steps) > _CONVERSED, steps[:_CONVERSED]
    recorded = visit.bound.recordings.summaries(run.id, after=after, limit=_CONVERSED)
    turns: list[tuple[StepRecord, Message]] = []
    shown: set[tuple[str, str]] = set()
    for step in steps:
        if not any(entry.kind in _SAID for entry in recorded.get(step.id, ())):
            continue
        for entry in visit.call("entries", step_id=step.id):
            if entry.kind not in _SAID:
                continue
            for message in messages_of(entry.kind, entry.payload):
                mark = (message.role, message.text)
                if (message.text or message.calls) and mark not in shown:
                    shown.add(mark)
                    turns.append((step, message))
    return visit.page(
        "conversation.html",
        run=run,
        turns=turns,
        later=visit.again(after=steps[-1].step_index) if has_more else None,
    )


def _working(visit: Visit) -> Response:
    """The values that a run and its thread keep beside its memories, and the memories that the
    session is shown.
    """
    run: RunRecord = visit.call("run", run_id=visit.path("run_id"))
    thread = run.metadata.get("thread_id")
    of_thread = thread if isinstance(thread, str) else None
    working = visit.within(run.scope).working.of(run.id, thread=of_thread)
    return visit.page("working.html", run=run, values=working.all(), shown=working.shown())


def _verify(visit: Visit) -> Response:
    run = visit.call("run", run_id=visit.path("run_id"))
    verified = visit.call("verify", run_id=run.id)
    figures(visit).note(verified, visit.tally.now())
    return visit.page("verified.html", run=run, verified=verified)


def replayed_step(metadata: Mapping[str, Any]) -> str | None:
    """Return the id of the step that a run or step replays, as its metadata says."""
    origin = metadata.get("replay_of")
    step_id = origin.get("step_id") if isinstance(origin, dict) else None
    return step_id if isinstance(step_id, str) else None


def neighbours(visit: Visit, step: StepRecord) -> tuple[StepRecord | None, StepRecord | None]:
    """Return the steps of the run before and after one."""
    index = step.step_index
    after = index - 2 if index >= 2 else None
    around: Iterable[StepRecord] = visit.call("steps", run_id=step.run_id, after=after, limit=4)
    by_index = {each.step_index: each for each in around}
    return by_index.get(index - 1), by_index.get(index + 1)


def _find(visit: Visit) -> Response:
    """The page of whatever an id, or a part of one, names."""
    fragment = visit.text("id")
    if len(fragment) < 6:
        raise InvalidInput("Give at least 6 characters of the id.")
    try:
        record = visit.bound.recordings.find(fragment)
    except NotFound:
        return visit.go(f"/memories/{fragment}")
    if isinstance(record, RunRecord):
        return visit.go(f"/runs/{record.id}")
    return visit.go(f"/steps/{record.id}")


ROUTES = [
    page("/runs", _runs),
    page("/find", _find),
    page("/runs/{run_id}", _run),
    page("/runs/{run_id}/totals", _totals),
    page("/runs/{run_id}/conversation", _conversation),
    page("/runs/{run_id}/working", _working),
    page("/runs/{run_id}/verify", _verify),
]
