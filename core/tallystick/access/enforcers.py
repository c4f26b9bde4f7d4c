"""Enforcers: the pieces that stop ruled calls at a runtime's hook, and the rules that they enforce.

Both are facts of the tally, noted in its settings, because the doctor runs in another process than
the agents. The last rules that a process was opened with count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tallystick.records import Actor, PolicyRule
from tallystick.storage import Connection, Store
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import journal, settings_rows

_RULES = "policy.call_rules"
"""Setting: the rules that the tally was last opened with."""
_ENFORCERS = "policy.enforcers"
"""Setting: the pieces that enforce them, by the subject of the rules, each with its last start."""


class EnforcedRule(NamedTuple):
    """A rule, and the pieces that enforce it."""

    rule_id: str
    applies_to: str
    pieces: tuple[str, ...]


def note_rules(store: Store, actor: Actor, rules: Iterable[PolicyRule]) -> None:
    """Note the rules that a process enforces, unless they are noted already."""
    noted = sorted([rule.id, rule.applies_to, rule.effect] for rule in rules)
    with store.database.read() as connection:
        if not noted or _get_setting(connection, _RULES, []) == noted:
            return

    def unit(tx: Connection) -> None:
        settings_rows.set_setting(tx, _RULES, json.dumps(noted))
        _journal(tx, store, actor, "policy.rules", {"rules": [rule[0] for rule in noted]})

    store.database.write_if_possible(unit, name="policy.rules", writes=Writes.of(TALLY))


def note_enforcer(store: Store, actor: Actor, applies_to: str, piece: str) -> None:
    """Note that `piece` enforces rules over `applies_to` in this process."""

    def unit(tx: Connection) -> None:
        enforcers = _get_setting(tx, _ENFORCERS, {})
        enforcers.setdefault(applies_to, {})[piece] = store.clock.now()
        settings_rows.set_setting(tx, _ENFORCERS, json.dumps(enforcers, sort_keys=True))
        details = {"applies_to": applies_to, "piece": piece}
        _journal(tx, store, actor, "policy.enforcer", details)

    # It is noted anew at each start, so that nothing has to be done where it fails.
    store.database.write_soon(
        unit, name="policy.enforcer", failed=lambda: None, writes=Writes.of(TALLY)
    )


def rules_and_enforcers(connection: Connection) -> Sequence[EnforcedRule]:
    """Return the rules with the pieces that enforce them, by the id of the rule."""
    enforcers = _get_setting(connection, _ENFORCERS, {})
    return [
        EnforcedRule(rule_id, applies_to, tuple(sorted(enforcers.get(applies_to, ()))))
        for rule_id, applies_to, _ in _get_setting(connection, _RULES, [])
    ]


def _get_setting(connection: Connection, name: str, default: Any) -> Any:
    value = settings_rows.get_setting(connection, name)
    return default if value is None else json.loads(value)


def _journal(
    tx: Connection, store: Store, actor: Actor, event: str, details: dict[str, Any]
) -> None:
    journal.append(
        tx,
        journal.Event(
            stream="tally",
            event=event,
            actor=actor,
            at=store.clock.now(),
            audit_id=store.ids.new(),
            details=details,
        ),
    )
