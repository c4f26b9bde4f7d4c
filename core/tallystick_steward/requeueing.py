"""Requeueing without a person: of the jobs that one cause failed, one at a time asks whether the
cause lasts, and the rest start anew once a job of their kind has ended well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tallystick.records import Job, JournalEntry
from tallystick.records.times import HOUR, MINUTE
from tallystick.storage import Connection
from tallystick.storage.rows import job_list, jobs, journal, measures
from tallystick_steward.readings import OF_THE_TEXT

_MOST_ANEW = 3
"""Times that a job is started anew without a person."""
_FIRST_PAUSE, _LONGEST_PAUSE = MINUTE, 5 * MINUTE
"""Microseconds from one probe of a cause to the next, doubled with each that failed."""
_MOST_JOBS = 1_000


class Choice(NamedTuple):
    """Jobs that one cause failed, and that may be started anew."""

    cause: str
    """The kind of the jobs and the code of their failure."""
    jobs: Sequence[str]
    is_probe: bool
    """True for the one job that asks whether the cause lasts."""


class Stuck(NamedTuple):
    """What failed by something around it, which may have passed."""

    choices: Sequence[Choice]
    """What may be started anew at this moment: nothing of a cause of which a probe is under way."""
    used_up: Sequence[str]
    """Jobs that failed again as often as is allowed without a person."""


def find_stuck(connection: Connection, now: int) -> Stuck:
    """Return which jobs may be started anew now, and which are a person's."""
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in job_list.list_jobs(connection, states=("failed", "dead"), limit=_MOST_JOBS):
        code = job.error_code or "unknown"
        if code != job_list.CANCELLED and code not in OF_THE_TEXT:
            groups.setdefault((job.kind, code), []).append(job)
    probes = _probes(connection, now) if groups else []
    choices: list[Choice] = []
    used_up: list[str] = []
    for (kind, code), failed in groups.items():
        cause = f"{kind}:{code}"
        allowed = sorted((job for job in failed if _lives(job) < _MOST_ANEW), key=_lives)
        used_up += [job.id for job in failed if _lives(job) >= _MOST_ANEW]
        if not allowed:
            continue
        failed_at = max(job.updated_at for job in failed)
        if measures.last_success(connection, kind) > failed_at:
            choices.append(Choice(cause, [job.id for job in allowed], is_probe=False))
            continue
        of_cause = [entry for entry in probes if entry.details.get("cause") == cause]
        if _is_time(connection, of_cause, now):
            choices.append(Choice(cause, [allowed[0].id], is_probe=True))
    return Stuck(choices, used_up)


def _is_time(connection: Connection, probes: Sequence[JournalEntry], now: int) -> bool:
    """Return True unless the last probe, of those of a cause, is under way or was just now."""
    if not probes:
        return True
    last = job_list.find(connection, str(probes[0].details.get("target")))
    if last is not None and last.state in jobs.OPEN:
        return False
    pause = min(_LONGEST_PAUSE, _FIRST_PAUSE << min(len(probes) - 1, 10))
    return now >= probes[0].at + pause


def _probes(connection: Connection, now: int) -> list[JournalEntry]:
    """Return the probes of the last hour, newest first."""
    ended = journal.of_tally(connection, "repair.end", since=now - HOUR)
    return [each for each in ended if each.details.get("probe")]


def _lives(job: Job) -> int:
    """Return how often a job was started anew: a long trail keeps its ends, and not each start."""
    starts = sum(each.code == "requeued" for each in job.trail)
    ends = sum(each.state in ("failed", "dead") for each in job.trail)
    return max(starts, ends - 1)
