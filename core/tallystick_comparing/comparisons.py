"""What stands of a comparison: one row of the tally, written with the journal, so that a restart
changes nothing.

    comparing   the settings answer; runs of 20 questions are judged
    promoted    after three green runs in a row: the candidate answers, and is still compared
    reverted    slower than the settings by a fifth, or wrong targets, for 15 minutes
    stopped     a person ended it
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystick.errors import StateConflict
from tallystick.loading import Late
from tallystick.memory import MemoryContext
from tallystick.records import ComparedRun, Comparison, JsonObject
from tallystick.records.times import MINUTE
from tallystick.storage import Connection
from tallystick.storage.rows import settings_rows
from tallystick.storage.rows.jobs import TALLY_ACTOR

if TYPE_CHECKING:
    from tallystick.upkeep.jobs import note_repair
else:
    note_repair = Late("tallystick.upkeep.jobs:note_repair")

GREEN_RUNS = 3
RUN = 20
"""Questions of a run."""
BREACH = 15 * MINUTE
_LEAST = 5
"""Questions by which a promoted candidate is judged at least; the last 20 at most."""
_KEPT_RUNS = 10
STREAM = "compare"
"""The stream of the journal that has the questions."""
_ROW = "compare"


class Pair(NamedTuple):
    """What both configurations answered to one question, as far as it is journaled."""

    counted: ComparedRun
    old_ids: tuple[str, ...]
    new_ids: tuple[str, ...]
    reasons: dict[str, int]


def read(connection: Connection) -> Comparison | None:
    """Return the comparison that was started last."""
    text = settings_rows.get_setting(connection, _ROW)
    return None if text is None else Comparison.loads(text)


def save(tx: Connection, comparison: Comparison) -> None:
    """Store what stands."""
    settings_rows.set_setting(tx, _ROW, comparison.dumps())


def conflict(comparison_id: str, state: str, reason: str) -> StateConflict:
    """Return the error for a comparison that is in another state than is asked for."""
    return StateConflict(comparison_id, state=state, reason=reason, what="Comparison")


def begin(
    context: MemoryContext, candidate: JsonObject, percent: int, tx: Connection
) -> Comparison:
    """Return a new comparison in place of the last one. Raises StateConflict while another is
    open.
    """
    comparison = read(tx)
    if comparison is not None and comparison.is_open:
        reason = "stop it before another one is started"
        raise conflict(comparison.id, comparison.state, reason)
    return Comparison(
        id=context.store.ids.new(),
        state="comparing",
        candidate=candidate,
        sample_percent=percent,
        started_at=context.store.clock.now(),
    )


def promote(tx: Connection) -> Comparison:
    """Return the comparison under way with its candidate promoted. Raises StateConflict before
    three green runs in a row.
    """
    comparison = _require(tx, "comparing")
    if comparison.green < GREEN_RUNS:
        reason = f"it has {comparison.green} green runs in a row, and needs {GREEN_RUNS}"
        raise conflict(comparison.id, comparison.state, reason)
    return comparison.replace(state="promoted", recent=(), breach_since=None)


def stop(tx: Connection) -> Comparison:
    """Return the comparison under way, stopped. Raises StateConflict where none is open."""
    return _require(tx, "comparing", "promoted").replace(state="stopped")


def _require(tx: Connection, *states: str) -> Comparison:
    comparison = read(tx)
    if comparison is None or comparison.state not in states:
        state = "none" if comparison is None else comparison.state
        raise conflict(_ROW, state, "there is no comparison under way")
    return comparison


def count_question(
    tx: Connection, context: MemoryContext, comparison: Comparison, pair: Pair | None
) -> Comparison:
    """Count a question, or one that could not be asked again, and end the run that it fills."""
    if pair is None:
        return comparison.replace(skipped=comparison.skipped + 1)
    counted = pair.counted
    details: dict[str, Any] = {
        "comparison": comparison.id,
        "old": list(pair.old_ids),
        "new": list(pair.new_ids),
        "old_us": counted.old_us,
        "new_us": counted.new_us,
        "reasons": pair.reasons,
    }
    # One for each question: among the entries of the tally they would bury alerts and repairs, of
    # which the last thousands are looked at.
    event = "compare.asked"
    note_repair(tx, context, TALLY_ACTOR, event, details, reason="sample", stream=STREAM)
    run = comparison.run.plus(counted)
    reasons = Counter(comparison.reasons) + Counter(pair.reasons)
    changed = comparison.replace(
        run=run, recent=(*comparison.recent, counted)[-RUN:], reasons=dict(sorted(reasons.items()))
    )
    if run.questions < RUN:
        return changed
    green = comparison.green + 1 if run.is_green else 0
    verdict = {"comparison": comparison.id, "green": run.is_green, "in_a_row": green}
    note_repair(tx, context, TALLY_ACTOR, "compare.judged", verdict, reason="run")
    return changed.replace(
        run=ComparedRun(), runs=(*comparison.runs, run)[-_KEPT_RUNS:], green=green
    )


def judge(tx: Connection, context: MemoryContext, comparison: Comparison) -> Comparison:
    """Return what stands after the breach of a promoted candidate was looked at: when it began,
    or that it was taken back after 15 minutes.
    """
    if comparison.state != "promoted" or len(comparison.recent) < _LEAST:
        return comparison
    now, last = context.store.clock.now(), reduce(ComparedRun.plus, comparison.recent)
    if last.is_green:
        return comparison.replace(breach_since=None)
    since = comparison.breach_since or now
    if now - since < BREACH:
        return comparison.replace(breach_since=since)
    breach = (*(["latency"] if last.is_slow else []), *(["wrong_targets"] if last.wrong else []))
    details = {"comparison": comparison.id, "breach": list(breach), "since": since}
    note_repair(tx, context, TALLY_ACTOR, "compare.reverted", details, reason="breach")
    return comparison.replace(state="reverted", breach=breach, breach_since=since)
