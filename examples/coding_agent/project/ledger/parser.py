"""Reads entries from lines such as `2026-01-03;Coffee;-3.50`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One line of a ledger."""

    day: str
    text: str
    cents: int


def parse(lines: str) -> list[Entry]:
    """Entries in the order of their lines; empty lines are skipped."""
    return [_entry(line) for line in lines.splitlines() if line.strip()]


def _entry(line: str) -> Entry:
    day, text, amount = line.split(";")
    whole, _, rest = amount.strip().partition(".")
    sign = -1 if whole.startswith("-") else 1
    return Entry(day, text, sign * (abs(int(whole)) * 100 + int(rest.ljust(2, "0"))))
