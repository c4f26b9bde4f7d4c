"""Health: a score of each part of a tally, with the facts that it is made of.

A part begins at 100, and each fact takes off what `losses` says: the same facts give the same score
in any process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from tallystick.errors import InvalidInput
from tallystick.records import AlertLimits, DomainHealth, Health, HealthDomain
from tallystick_steward.readings import DAY, QUARTER, SECOND, Readings

DOMAINS: tuple[HealthDomain, ...] = get_args(HealthDomain)
WELL = 90
"""The least score of a part that needs nothing."""


def require_domain(name: str) -> HealthDomain:
    """Return a domain by its name. Raises InvalidInput, which lists them."""
    for domain in DOMAINS:
        if domain == name:
            return domain
    raise InvalidInput(f"There is no domain {name!a}: {', '.join(DOMAINS)}.", argument="domain")


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


def _domain(
    name: HealthDomain, facts: Mapping[str, Any], losses: Mapping[str, float]
) -> DomainHealth:
    taken = {fact: min(100, round(loss)) for fact, loss in losses.items() if round(loss) > 0}
    return DomainHealth(
        domain=name, score=max(0, 100 - sum(taken.values())), facts=dict(facts), losses=taken
    )


def _queue(readings: Readings, limits: AlertLimits) -> DomainHealth:
    age = readings.age_p95
    return _domain(
        "queue",
        {
            "due": len(readings.ages),
            "age_p95_seconds": round(age, 1),
            "dead": readings.dead,
            "dead_percent": round(readings.dead_percent, 2),
            "expired_leases": readings.expired_leases,
        },
        {
            "age_p95_seconds": min(50.0, 25 * age / limits.queue_age_seconds),
            "dead_percent": min(50.0, 10 * readings.dead_percent),
            "expired_leases": min(25, 12 * readings.expired_leases),
        },
    )


def _storage(readings: Readings, limits: AlertLimits) -> DomainHealth:
    busy, free = readings.busy_percent(QUARTER // (60 * SECOND)), readings.free_disk
    return _domain(
        "storage",
        {
            "unwritable": readings.unwritable,
            "busy_percent": round(busy, 2),
            "free_disk_percent": None if free is None else round(100 * free, 1),
            "erasure_pending": readings.erasure_pending,
            "last_backup": readings.last_backup,
        },
        {
            "unwritable": 100 if readings.unwritable is not None else 0,
            "busy_percent": min(40.0, 10 * busy),
            "free_disk_percent": 0 if free is None or free >= 0.05 else 60 if free < 0.01 else 30,
            "erasure_pending": 20 if readings.erasure_pending else 0,
            "last_backup": 20 if is_backup_old(readings, limits) else 0,
        },
    )


def _index(readings: Readings) -> DomainHealth:
    return _domain(
        "index",
        {
            "scopes_without_vectors": readings.unembedded_scopes,
            "embedder": readings.has_embedder,
        },
        {
            "scopes_without_vectors": min(40, 20 * readings.unembedded_scopes),
            "embedder": 0 if readings.has_embedder else 20,
        },
    )


def _provider(readings: Readings) -> DomainHealth:
    calls = sum(each.calls for each in readings.calls if each.outcome != "started")
    failed = sum(
        each.calls for each in readings.calls if each.outcome not in ("answered", "started")
    )
    return _domain(
        "provider",
        {"calls": calls, "failed": failed, "waiting": readings.waiting},
        {
            "failed": min(60.0, 100 * failed / calls) if calls else 0,
            "waiting": min(40, 11 + readings.waiting) if readings.waiting else 0,
        },
    )


def _safety(readings: Readings) -> DomainHealth:
    return _domain(
        "mutation_safety",
        {
            "delete_spikes": len(readings.deletes),
            "read_spikes": len(readings.reads),
            "forged_speakers": len(readings.forged),
            "undone_changes": readings.undone,
            "frozen": list(readings.frozen),
        },
        {
            "delete_spikes": 40 if readings.deletes else 0,
            "read_spikes": 30 if readings.reads else 0,
            "forged_speakers": 40 if readings.forged else 0,
            "undone_changes": min(40, 10 * readings.undone),
        },
    )
