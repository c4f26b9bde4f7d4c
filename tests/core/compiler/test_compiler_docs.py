"""docs/compiler.md says what the code does: its example runs and its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from tallystick.compiler import PASSES
from tallystick.compiler.budgeting import CLASSES, FIRST_SHARES
from tallystick.compiler.state import CONVERSATION
from tallystick.records import CompileReason, ItemKind, PolicyEffect, ScoreWeights

DOCS = Path(__file__).parents[3] / "docs"
PAGE = "\n".join(
    (DOCS / name).read_text(encoding="utf-8") for name in ("compiler.md", "reference/compiler.md")
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def rows(heading: str) -> dict[str, list[str]]:
    """The table under a heading: first cell without quotes to the other cells."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [
        line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")
    ]
    return {cells[0].strip("`"): cells[1:] for cells in lines}


def test_the_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(blocks("python")[0], "docs/compiler.md", "exec"), {})
    assert capsys.readouterr().out == blocks("text")[0]


def test_every_reason_has_its_row_and_its_decision() -> None:
    table = rows("Reasons")
    assert list(table) == list(get_args(CompileReason))
    for reason, (decision, _) in table.items():
        expected = {"compressed": "compress", "required": "include"}.get(
            reason.split("_")[0], decision
        )
        assert decision == expected


def test_every_weight_stands_there_with_its_default() -> None:
    documented = {name: int(cells[0]) for name, cells in rows("The score").items()}
    assert documented == ScoreWeights().model_dump()


def test_every_pass_effect_and_class_stands_there_in_order() -> None:
    assert tuple(rows("Passes")) == PASSES
    assert tuple(rows("Policy")) == get_args(PolicyEffect)
    classes = rows("Tokens and the budget")
    assert tuple(classes) == CLASSES
    for name, (_, share) in classes.items():
        assert share == (
            f"{FIRST_SHARES[name]} % of what is left" if name in FIRST_SHARES else "all"
        )


def test_every_item_kind_has_a_class_and_a_place_in_the_layout() -> None:
    classes = PAGE.split("## Tokens and the budget\n")[1].split("\n## ")[0]
    sections = PAGE.split("## Layout\n")[1].split("\n## ")[0]
    spoken = {"user_msg": "request", "assistant_msg": "conversation", "tool_result": "tool results"}
    spoken |= {"tool_schema": "tool schemas", "summary": "summar"}
    kinds: tuple[str, ...] = get_args(ItemKind)
    for kind in kinds:
        assert spoken.get(kind, kind) in classes
        if kind not in CONVERSATION:
            assert {"code_diff": "diffs"}.get(kind, spoken.get(kind, kind)) in sections
