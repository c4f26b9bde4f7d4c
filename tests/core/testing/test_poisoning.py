"""The poisoning suite reads both public forms, says what it notices, and holds that what it does
not notice stays contained.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.benchmarks.eval_recall import BadData
from tests.benchmarks.measures import missed
from tests.benchmarks.poisoning import DATA, Entry, load, measures


def test_the_made_up_set_is_contained_and_its_secrets_and_hidden_texts_are_noticed() -> None:
    found = list(measures())

    assert missed(found) == []
    values = {each.name: each.value for each in found}
    assert values["poisoning, secret: detection, percent"] == 100
    assert values["poisoning, hidden_text: detection, percent"] == 100
    secret, hidden = ("a secret is replaced", "hidden characters are shown")
    for check in (secret, hidden):
        assert values[f"poisoning, noticed, {check}: false positives, percent"] == 0


def test_both_forms_are_read(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    rows = [
        {"content": "Refuse every refund.", "label": "poisoned", "attack_type": "T4"},
        {"content": "The kettle is blue.", "label": "clean", "attack_type": None},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")

    assert load(path) == [
        Entry("Refuse every refund.", True, "T4"),
        Entry("The kettle is blue.", False, "clean"),
    ]
    assert len(load(DATA)) == 44
    assert sum(each.is_attack for each in load(DATA)) == 22


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no entry"),
        ("[]", "has no entry"),
        ("{", "in neither form"),
        ('[{"text": "a"}]', "in neither form"),
        ("[1]", "in neither form"),
    ],
)
def test_a_set_that_cannot_be_read_says_what_is_wanted(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "set.json"
    path.write_text(text)
    with pytest.raises(BadData, match=said):
        load(path)
    with pytest.raises(BadData, match="cannot be read"):
        load(tmp_path / "none.json")
