"""Health: a score of each part of a tally, with the facts that it is made of.

A part begins at 100, and each fact takes off what `losses` says: the same facts give the same score
in any process.
"""

from __future__ import annotations

from typing import Any

from tallystick.records import AlertLimits, DomainHealth, Health, HealthDomain
from tallystick.records.times import DAY
from tallystick_steward.readings import Readings

WELL = 90
"""The least score of a part that needs nothing."""


def judge(readings: Readings, limits: AlertLimits) -> Health:
    """Return the health of a tally by its readings."""
    domains = (
        _queue(readings, limits),
        _storage(readings, limits),
        _index(readings),
        _provider(readings),
        _safety(readings),
    )
    return Health(score=min(each.score for each in domains), domains=domains, at=readings.now)


def is_backup_old(readings: Readings, limits: AlertLimits) -> bool:
    """Return True if the newest backup is older than asked, or there is none for so long."""
    if limits.backup_days is None:
        return False
    since = readings.last_backup or readings.made_at or readings.now
    return readings.now - since > limits.backup_days * DAY


def _domain(name: HealthDomain, **facts: tuple[Any, float]) -> DomainHealth:
    """Return a part by its facts, each with the points that it takes off."""
    losses = {fact: min(100, round(loss)) for fact, (_, loss) in facts.items() if round(loss) > 0}
    return DomainHealth(
        domain=name,
        score=max(0, 100 - sum(losses.values())),
        facts={fact: value for fact, (value, _) in facts.items()},
        losses=losses,
    )


def _queue(readings: Readings, limits: AlertLimits) -> DomainHealth:
    age, percent = readings.age_p95, readings.dead_percent
    return _domain(
        "queue",
        due=(len(readings.ages), 0),
        age_p95_seconds=(round(age, 1), min(50.0, 25 * age / limits.queue_age_seconds)),
        dead=(readings.dead, 0),
        dead_percent=(round(percent, 2), min(50.0, 10 * percent)),
        expired_leases=(readings.expired_leases, min(25, 12 * readings.expired_leases)),
    )


def _storage(readings: Readings, limits: AlertLimits) -> DomainHealth:
    busy, free = readings.busy_percent(15), readings.free_disk
    lack = 0 if free is None or free >= 0.05 else 60 if free < 0.01 else 30
    return _domain(
        "storage",
        unwritable=(readings.unwritable, 0 if readings.unwritable is None else 100),
        busy_percent=(round(busy, 2), min(40.0, 10 * busy)),
        free_disk_percent=(None if free is None else round(100 * free, 1), lack),
        erasure_pending=(readings.erasure_pending, 20 * readings.erasure_pending),
        last_backup=(readings.last_backup, 20 * is_backup_old(readings, limits)),
    )


def _index(readings: Readings) -> DomainHealth:
    missing = readings.unembedded_scopes
    return _domain(
        "index",
        scopes_without_vectors=(missing, min(40, 20 * missing)),
        embedder=(readings.has_embedder, 20 * (not readings.has_embedder)),
    )


def _provider(readings: Readings) -> DomainHealth:
    over = [each for each in readings.calls if each.outcome != "started"]
    calls = sum(each.calls for each in over)
    failed = sum(each.calls for each in over if each.outcome != "answered")
    waiting = readings.waiting
    return _domain(
        "provider",
        calls=(calls, 0),
        failed=(failed, min(60.0, 100 * failed / calls) if calls else 0),
        waiting=(waiting, min(40, 11 + waiting) if waiting else 0),
    )


def _safety(readings: Readings) -> DomainHealth:
    return _domain(
        "mutation_safety",
        delete_spikes=(len(readings.deletes), 40 * bool(readings.deletes)),
        read_spikes=(len(readings.reads), 30 * bool(readings.reads)),
        forged_speakers=(len(readings.forged), 40 * bool(readings.forged)),
        undone_changes=(readings.undone, min(40, 10 * readings.undone)),
        frozen=(list(readings.frozen), 0),
    )
