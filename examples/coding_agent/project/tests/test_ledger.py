from ledger import Statement, format_cents, parse

MONTH = """
2026-01-03;Salary;20.00
2026-01-05;Coffee;-3.50
2026-01-09;Book;-14.00
"""


def test_lines_become_entries():
    assert [entry.cents for entry in parse(MONTH)] == [2000, -350, -1400]


def test_amounts_are_written_with_two_places():
    assert (format_cents(-350), format_cents(5)) == ("-3.50", "0.05")


def test_a_statement_sums_its_entries():
    assert Statement(parse(MONTH)).summary() == "3 entries, balance 2.50"


def test_interest_follows_the_rounding_convention():
    assert Statement(parse(MONTH)).interest(50) == 12
    assert Statement(parse("2026-02-01;Gift;3.50")).interest(50) == 18
