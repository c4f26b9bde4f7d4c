"""docs/writing-a-renderer.md is followed to the letter: the renderer built from it prints what the
page says.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tallystick.compiler import FRAMED, compile_context
from tallystick.ports import TokenCounter
from tallystick.records import CompilationRequest, ContextItem, Json
from tallystick.records.framing import without_codes

PAGE = (Path(__file__).parents[3] / "docs" / "writing-a-renderer.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_renderer_of_the_page_prints_what_the_page_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: TokenCounter,
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,), (printed,) = _blocks("python"), _blocks("text")
    namespace: dict[str, object] = {}
    exec(compile(code, "docs/writing-a-renderer.md", "exec"), namespace)
    tally = namespace["tally"]
    tally.close()  # type: ignore[attr-defined]
    assert without_codes(capsys.readouterr().out) == without_codes(printed)

    render = namespace["render_text"]
    calls: list[Json] = [{"id": "c", "name": "map", "args": {"place": "Oslo"}}]
    talk = [
        ContextItem(id="u", kind="user_msg", content="Show it."),
        ContextItem(
            id="a",
            kind="assistant_msg",
            content="",
            tool_call_ids=("c",),
            metadata={"tool_calls": calls},
            token_estimate=5,
        ),
        ContextItem(id="r", kind="tool_result", content="shown", tool_call_id="c"),
    ]
    before = ""
    for end in (1, 3):
        request = CompilationRequest(
            request_id="r",
            context_items=tuple(talk[:end]),
            token_budget=500,
            as_of=1,
            target=FRAMED,
        )
        text = render(compile_context(request, counter=words))  # type: ignore[operator]
        assert text.startswith(before)
        before = text.removesuffix("ASSISTANT")
    assert text.splitlines() == [
        "USER Show it.",
        "CALL c map {'place': 'Oslo'}",
        "RESULT c: shown",
        "ASSISTANT",
    ]
