"""A small ledger: parse entries, sum them up, pay interest."""

from ledger.money import format_cents, share
from ledger.parser import Entry, parse
from ledger.statement import Statement

__all__ = ["Entry", "Statement", "format_cents", "parse", "share"]
