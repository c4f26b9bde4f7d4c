"""Amounts of money as integer cents."""


def share(cents: int, per_mille: int) -> int:
    """The share of an amount, in whole cents."""
    return int(cents * per_mille / 1000 + 0.5)


def format_cents(cents: int) -> str:
    """An amount as people write it, such as -3.50."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02}"
