"""Rules over a tool that pays, for the contracts and the tests of one runtime."""

from __future__ import annotations

from typing import Any

from tallystick import Actor, PolicyRule, Tally
from tallystick.records import ArgumentCondition

from .base import Script, call

BOT, ANNA = Actor(user="anna", agent="bot"), Actor(user="anna")
KEY = "sk-" + "a1B2c3D4" * 5
PAY: dict[str, Any] = {"to": "ben", "euros": 5}


def rule(effect: str, applies_to: str = "tool_call", **conditions: Any) -> PolicyRule:
    """Return a rule that is named by its effect."""
    name = f"{effect}-{applies_to}"
    fields = {"id": name, "name": name, "effect": effect, "applies_to": applies_to}
    return PolicyRule.load({**fields, "conditions": conditions})


ASK = rule("require_approval", tool=("pay",))
DENY = rule("deny", tool=("pay",), arguments=(ArgumentCondition(path="$.euros", one_of=(13, 666)),))


class Bank:
    """A tool that pays, and what it paid."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.notes: list[str] = []

        def pay(to: str, euros: int, note: str = "") -> str:
            """Pay somebody."""
            self.paid.append((to, euros))
            self.notes.append(note)
            return f"paid {to}, account {KEY}"

        self.tools: list[Any] = [pay]


def paying(*payments: dict[str, Any]) -> Script:
    """Return a model that pays all of these at once."""
    return Script([call("pay", **each) for each in payments], "done")


def checks_of(tally: Tally) -> list[tuple[Any, Any, Any]]:
    """Return the policy checks of all runs, oldest first: kind of the step, outcome and rule."""
    bound = tally.bind(ANNA)
    return [
        (step.step_kind, entry.summary["outcome"], entry.summary["rule"])
        for run in reversed(bound.recordings.runs())
        for step in bound.recordings.steps(run.id)
        for entry in bound.recordings.entries(step.id)
        if entry.kind == "policy_check"
    ]
