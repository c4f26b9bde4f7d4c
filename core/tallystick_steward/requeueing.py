"""Requeueing without a person: of the jobs that one cause failed, one at a time asks whether the
cause lasts, and the rest start anew once a job of their kind has ended well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tallystick.jobs import TALLY_ACTOR
from tallystick.records import Job, JournalEntry
from tallystick.records.times import HOUR, MINUTE
from tallystick.storage import Connection
from tallystick.storage.rows import job_list, jobs, journal, measures
from tallystick_steward.readings import OF_THE_TEXT
from tallystick_steward.repairs import END, Act

_MOST_ANEW = 3
"""Times that a job is started anew without a person."""
_FIRST_PAUSE, _LONGEST_PAUSE = MINUTE, 5 * MINUTE
"""Microseconds from one probe of a cause to the next, doubled with each that failed."""
_MOST_JOBS = 1_000


def requeue_stuck(connection: Connection, now: int) -> list[Act]:
    """Return what may be started anew at this moment, of the jobs that failed by something around
    them: nothing of a cause of which a probe is under way. What failed again as often as is allowed
    is for a person.
    """
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in job_list.list_jobs(connection, states=("failed", "dead"), limit=_MOST_JOBS):
        code = job.error_code or "unknown"
        if code != job_list.CANCELLED and code not in OF_THE_TEXT:
            groups.setdefault((job.kind, code), []).append(job)
    ended = journal.of_tally(connection, END, since=now - HOUR)
    acts: list[Act] = []
    used_up = 0
    for (kind, code), failed in groups.items():
        cause = f"{kind}:{code}"
        allowed = sorted((job for job in failed if _lives(job) < _MOST_ANEW), key=_lives)
        used_up += len(failed) - len(allowed)
        ids = [job.id for job in allowed]
        probes = [
            each
            for each in ended
            if each.details.get("probe") and each.details.get("cause") == cause
        ]
        failed_at = max(job.updated_at for job in failed)
        requeue = partial(Act, TALLY_ACTOR, "requeue", cause=cause)
        if ids and measures.last_success(connection, kind) > failed_at:
            text = f"{len(ids)} jobs failed by what has passed: {cause}"
            acts.append(requeue(text, target=cause, jobs=ids))
        elif ids and _is_time(connection, probes, now):
            text = f"one job asks whether the cause lasts: {cause}"
            acts.append(requeue(text, target=ids[0], jobs=ids[:1], is_probe=True))
    if used_up:
        text = f"{used_up} jobs failed again as often as they may be requeued"
        acts.append(Act(TALLY_ACTOR, "requeue", text, is_for_person=True))
    return acts


def _is_time(connection: Connection, probes: Sequence[JournalEntry], now: int) -> bool:
    """Return True unless the last probe, of those of a cause, is under way or was just now."""
    if not probes:
        return True
    last = job_list.find(connection, str(probes[0].details.get("target")))
    if last is not None and last.state in jobs.OPEN:
        return False
    pause = min(_LONGEST_PAUSE, _FIRST_PAUSE << min(len(probes) - 1, 10))
    return now >= probes[0].at + pause


def _lives(job: Job) -> int:
    """Return how often a job was started anew: a long trail keeps its ends, and not each start."""
    starts = sum(each.code == "requeued" for each in job.trail)
    ends = sum(each.state in ("failed", "dead") for each in job.trail)
    return max(starts, ends - 1)
