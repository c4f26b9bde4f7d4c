"""What a month comes to."""

from ledger.money import format_cents, share
from ledger.parser import Entry


class Statement:
    """The entries of one month."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries

    def balance(self) -> int:
        """The sum of all entries, in cents."""
        return sum(entry.cents for entry in self.entries)

    def interest(self, per_mille: int) -> int:
        """Interest on the balance, in whole cents."""
        return share(self.balance(), per_mille)

    def summary(self) -> str:
        """One line for the foot of the statement."""
        return f"{len(self.entries)} entries, balance {format_cents(self.balance())}"
