"""Pages of a step: what was compiled and why, each candidate, each entry, and where words come
from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from tallystick.errors import InvalidInput, NotFound
from tallystick.kit import closed_to, journal_opened
from tallystick.records import (
    CompilationDecision,
    CompiledContext,
    ContextCandidate,
    PrefixReuse,
    Receipt,
    RunRecord,
    StepEntry,
    StepRecord,
)
from tallystick_html import words
from tallystick_html.causes import Causes, recall_of
from tallystick_server.dashboard.figures import figures_of
from tallystick_server.dashboard.messages import messages_of
from tallystick_server.dashboard.runs import neighbours, replayed_step
from tallystick_server.dashboard.visits import Visit, page

_ORDER = {"include": 0, "compress": 1, "redact": 2, "exclude": 3}
_OWN_VIEW = ("compile_request", "compiled")
"""Entries that the page shows as decisions. Their payloads are not shown: they contain what policy
withheld.
"""
_LOOKED_BACK = 50
_SHOWN = 2_400
"""Characters of an entry that the page of its step shows."""


@dataclass(frozen=True)
class CandidateRow:
    """One candidate, as a row."""

    number: int
    item: ContextCandidate
    causes: Causes

    @property
    def decision(self) -> CompilationDecision:
        """The decision about it."""
        return self.item.decision

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return self.causes.name(self.item.item_id)

    @property
    def heading(self) -> str:
        """Its first line."""
        return self.causes.heading(self.item.item_id)

    @property
    def why(self) -> str:
        """Why it went in or not."""
        return self.causes.why(self.decision)

    @property
    def otherwise(self) -> str | None:
        """What would have had to be different, where it was left out."""
        return self.causes.otherwise(self.decision)

    @property
    def source(self) -> str | None:
        """The name of its origin, where somebody stated one."""
        source = self.item.source
        return None if source is None else source.title or source.uri or source.source_type


@dataclass(frozen=True)
class Share:
    """One part of the budget, with its place in the bar in thousandths."""

    name: str
    title: str
    tokens: int
    start: float
    width: float


@dataclass(frozen=True)
class Context:
    """A compile as a page shows it."""

    compiled: CompiledContext
    rows: list[CandidateRow]
    shares: list[Share]
    counts: dict[str, int]

    @property
    def budget(self) -> int:
        """The tokens that it had."""
        return self.compiled.token_allocation.get("budget", 0)

    @property
    def used(self) -> int:
        """The tokens that it took."""
        return self.compiled.token_allocation.get("used", 0)


def _step(visit: Visit) -> Response:
    step: StepRecord = visit.call("step", step_id=visit.path("step_id"))
    run = visit.call("run", run_id=step.run_id)
    entries: list[StepEntry] = visit.call("entries", step_id=step.id)
    receipt = _receipt(visit, step.id)
    before, after = neighbours(visit, step)
    prefix = _prefix(receipt)
    only = visit.text("show")
    if only not in ("", *words.DECISIONS):
        raise InvalidInput(f"show: candidates are {', '.join(words.DECISIONS)}.", argument="show")
    owner = closed_to(visit.bound, run.scope)
    context = _context(visit, step.id, entries, closed=owner)
    return visit.page(
        "step.html",
        owner=owner,
        run=run,
        step=step,
        before=before,
        after=after,
        entries=[
            (entry, [] if owner else _readable(entry))
            for entry in entries
            if entry.kind not in _OWN_VIEW or entry.payload_state in ("not_kept", "erased")
        ],
        receipt=receipt,
        figures=None if receipt is None else figures_of(receipt.entries),
        prefix=prefix,
        context=context,
        only=only,
        has_state=isinstance(step.metadata.get("langgraph_checkpoint_ns"), str),
        has_earlier=_has_earlier(visit, step),
        replayed=replayed_step(step.metadata),
    )


def _has_earlier(visit: Visit, step: StepRecord) -> bool:
    """Return True if a step of the same kind is among those shortly before."""
    after = step.step_index - _LOOKED_BACK - 1
    before = visit.call(
        "steps", run_id=step.run_id, after=after if after >= 0 else None, limit=_LOOKED_BACK
    )
    return any(
        each.step_index < step.step_index and each.step_kind == step.step_kind for each in before
    )


def _receipt(visit: Visit, step_id: str) -> Receipt | None:
    try:
        receipt: Receipt = visit.call("receipt", step_id=step_id)
    except NotFound:  # it is running
        return None
    return receipt


def _context(
    visit: Visit, step_id: str, entries: list[StepEntry], closed: str | None = None
) -> Context | None:
    """Return the compile of a step, or None where it compiled or kept nothing."""
    payload = next((entry.payload for entry in entries if entry.kind == "compiled"), None)
    if payload is None or not any(
        entry.kind == "compile_request" and entry.payload is not None for entry in entries
    ):
        return None
    compiled = CompiledContext.load(payload)
    candidates = visit.bound.recordings.candidates(step_id)
    return context_of(compiled, Causes(compiled, candidates, recall_of(entries), closed=closed))


def context_of(compiled: CompiledContext, causes: Causes) -> Context:
    """Return a compile with its candidates as rows: first what went in, in the order of its
    layout, then what was left out, the best first.
    """
    layout = {item.id: place for place, item in enumerate(compiled.selected_items)}
    numbers = {decision.item_id: place for place, decision in enumerate(compiled.decisions)}
    ordered = sorted(
        causes.candidates,
        key=lambda item: (
            item.decision.decision == "exclude",
            layout.get(item.item_id, 0),
            -item.decision.score_breakdown.get("total", 0),
            item.item_id,
        ),
    )
    rows = [CandidateRow(numbers[item.item_id], item, causes) for item in ordered]
    counts = dict.fromkeys(_ORDER, 0)
    for row in rows:
        counts[row.decision.decision] += 1
    return Context(compiled, rows, _shares(compiled.token_allocation), counts)


def _shares(allocation: dict[str, int]) -> list[Share]:
    """Return the parts of the bar, in their order. They fill it to the budget."""
    budget = max(allocation.get("budget", 0), 1)
    parts = [(name, title, allocation.get(name, 0)) for name, title in words.CLASSES.items()]
    other = allocation.get("used", 0) - sum(tokens for _, _, tokens in parts)
    parts += [
        ("overhead", "overhead of the call", max(other, 0)),
        ("reserve", "kept for the answer", allocation.get("response_reserve", 0)),
        ("free", "free", allocation.get("free", 0)),
    ]
    shares, start = [], 0.0
    for name, title, tokens in parts:
        if tokens > 0:
            width = tokens * 1000 / budget
            shares.append(Share(name, title, tokens, round(start, 1), round(width, 1)))
            start += width
    return shares


def _prefix(receipt: Receipt | None) -> PrefixReuse | None:
    for entry in receipt.entries if receipt is not None else ():
        prefix = entry.summary.get("prefix")
        if isinstance(prefix, dict):
            return PrefixReuse.load(prefix)
    return None


def _readable(entry: StepEntry, most: int = _SHOWN) -> list[Any]:
    """Return the messages of an entry, cut after `most` characters in all; none for what is no
    message.
    """
    left, shown = most, []
    for message in messages_of(entry.kind, entry.payload):
        if left <= 0:
            break
        shown.append((message.role, message.text[:left], message.calls, len(message.text) > left))
        left -= len(message.text) + sum(len(arguments) for _, arguments in message.calls)
    return shown


def _item(visit: Visit) -> Response:
    """One candidate: its text, its score, and its way from the raw source."""
    step: StepRecord = visit.call("step", step_id=visit.path("step_id"))
    context = _context(visit, step.id, visit.call("entries", step_id=step.id))
    row = (
        next((row for row in context.rows if str(row.number) == visit.path("number")), None)
        if context is not None
        else None
    )
    if context is None or row is None:
        raise NotFound(f"Step {step.id} has no such candidate.")
    run = visit.call("run", run_id=step.run_id)
    _note_opened(visit, step, run, [row.item])
    return visit.page(
        "item.html",
        step=step,
        run=run,
        row=row,
        sources=[_source(visit, source_id) for source_id in row.item.source_ids],
        related=next(
            (each for each in context.rows if each.item.item_id == row.decision.related_id), None
        ),
    )


def _note_opened(
    visit: Visit, step: StepRecord, run: RunRecord, items: Sequence[ContextCandidate]
) -> None:
    """Journal that memories of somebody else are opened, before they are shown."""
    if closed_to(visit.bound, run.scope) is not None:
        journal_opened(visit.bound, run.scope, items, step_id=step.id)


def _source(visit: Visit, source_id: str) -> Any:
    """Return a source that the caller may see, or its id alone."""
    try:
        return visit.call("source", source_id=source_id)
    except NotFound:
        return source_id


def _entry(visit: Visit) -> Response:
    """One entry in full."""
    step: StepRecord = visit.call("step", step_id=visit.path("step_id"))
    entries: list[StepEntry] = visit.call("entries", step_id=step.id)
    entry = next((each for each in entries if str(each.position) == visit.path("number")), None)
    if entry is None or entry.kind in _OWN_VIEW:
        raise NotFound(f"Step {step.id} has no such entry to show.")
    run = visit.call("run", run_id=step.run_id)
    if any(each.kind == "compiled" for each in entries):
        # A request and its answer may say what any memory in it says.
        _note_opened(visit, step, run, visit.bound.recordings.knew(step.id))
    return visit.page(
        "entry.html",
        step=step,
        run=run,
        entry=entry,
        messages=_readable(entry, most=10_000_000),
    )


def _trace(visit: Visit) -> Response:
    """Where a sentence of the context comes from."""
    step: StepRecord = visit.call("step", step_id=visit.path("step_id"))
    text = visit.text("text")
    origins, problem = [], None
    if text:
        try:
            origins = visit.call("trace", step_id=step.id, text=text)
        except InvalidInput as error:
            problem = str(error)
    return visit.page(
        "trace.html",
        step=step,
        run=visit.call("run", run_id=step.run_id),
        text=text,
        origins=origins,
        problem=problem,
    )


def _state(visit: Visit) -> Response:
    """The checkpoints that the graph task of a step wrote."""
    step: StepRecord = visit.call("step", step_id=visit.path("step_id"))
    run = visit.call("run", run_id=step.run_id)
    thread, namespace = step.metadata.get("thread_id"), step.metadata.get("langgraph_checkpoint_ns")
    if not isinstance(thread, str) or not isinstance(namespace, str):
        raise NotFound(f"Step {step.id} belongs to no task of a graph.")
    threads = visit.within(run.scope).threads
    task = namespace.rpartition(":")[2]
    checkpoint_ids = {identity for _, identity in threads.places_of_task(thread, task)}
    checkpoints = [each for each in threads.history(thread) if each.id in checkpoint_ids]
    return visit.page(
        "state.html", step=step, run=run, thread=thread, task=task, checkpoints=checkpoints
    )


ROUTES = [
    page("/steps/{step_id}", _step),
    page("/steps/{step_id}/items/{number}", _item),
    page("/steps/{step_id}/entries/{number}", _entry),
    page("/steps/{step_id}/trace", _trace),
    page("/steps/{step_id}/state", _state),
]
