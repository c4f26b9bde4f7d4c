"""Krippendorff's alpha gives the values of worked examples that were published."""

from __future__ import annotations

import pytest
from tests.benchmarks.agreement import (
    FIXTURES,
    LABELS,
    agreement_measures,
    alpha,
    evidence_units,
)
from tests.benchmarks.measures import missed

_BINARY = ("0100000010", "1110010000")
_NOMINAL = ("aabbdcccedda", "babbbccceddd")
_FOUR = ("123321412***", "1233224125*3", "*3332342251*", "12332441251*")


def _units(rows: tuple[str, ...]) -> list[list[str | None]]:
    return [[None if each == "*" else each for each in unit] for unit in zip(*rows, strict=True)]


@pytest.mark.parametrize(
    ("rows", "order", "expected"),
    [
        (_BINARY, "", 0.095),
        (_NOMINAL, "", 0.692),
        (_FOUR, "", 0.743),
        (_FOUR, "12345", 0.815),
    ],
    ids=["binary", "nominal", "nominal with gaps", "ordinal with gaps"],
)
def test_published_examples_come_out_the_same(
    rows: tuple[str, ...], order: str, expected: float
) -> None:
    """Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), examples A to C."""
    assert alpha(_units(rows), order=order) == pytest.approx(expected, abs=0.0006)


def test_perfect_agreement_is_one_and_systematic_disagreement_is_below_chance() -> None:
    assert alpha([("a", "a"), ("b", "b")]) == 1.0
    assert alpha([("a", "b"), ("b", "a")]) < 0
    assert alpha([("a", "a"), ("a", "a")]) == 1.0


def test_items_with_one_label_say_nothing() -> None:
    assert alpha([("a", "a"), ("b", "b"), ("a", None)]) == 1.0
    with pytest.raises(ValueError, match="two labels"):
        alpha([("a", None)])


@pytest.mark.parametrize("gate", LABELS)
def test_the_labels_of_our_sets_have_a_second_pass_of_every_item(gate: str) -> None:
    assert all(path.is_file() for path in LABELS[gate])
    values = {each.name: each.value for each in agreement_measures(gate)}
    assert values
    assert all(0.5 < value <= 1 for value in values.values())


def test_the_labels_of_every_set_are_accepted() -> None:
    assert not missed([each for gate in LABELS for each in agreement_measures(gate)])


def test_the_labels_of_the_traces_of_tools_are_those_of_the_pass_by_the_written_rules() -> None:
    traces = FIXTURES / "recall" / "tool_traces.json"
    assert all(
        one == other for one, other in evidence_units(traces, traces.parent / "third" / traces.name)
    )
