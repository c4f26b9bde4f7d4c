"""The pages of ADK: their code prints what they say, their tables are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from examples.harbour_desk import __main__ as harbour_desk
from tests import test_reference_docs as reference
from tests.test_docs import DOCS, blocks


def test_the_code_of_the_page_prints_what_stands_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "adk_page"}
    page = DOCS / "adk.md"

    ran = 0
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language != "python":
            continue
        exec(compile("\n" * block.line + block.code, str(page), "exec"), names)
        assert capsys.readouterr().out == block.printed
        ran += 1

    assert ran == 4


def test_the_example_prints_what_its_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    harbour_desk.main([])

    page = (DOCS / "examples" / "harbour-desk.md").read_text(encoding="utf-8")
    assert f"```text\n{capsys.readouterr().out}```" in page


def test_the_tables_of_parameters_are_those_of_the_code() -> None:
    reference.test_each_public_name_of_an_adapter_has_a_table_with_every_parameter("tallystick_adk")
    reference.test_the_tables_say_the_defaults("tallystick_adk")
