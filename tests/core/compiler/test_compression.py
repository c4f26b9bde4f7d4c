"""Shortening: what may be shortened, how, and what is wished for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.compiler.shorten import GAP, cut, largest_that_fits, omit_code, shorten, unwrap
from tallystick.ranking import query_terms
from tallystick.records import (
    CompileConfig,
    CompiledContext,
    ContextItem,
    SourceRef,
    SummaryWish,
    text_digest,
)

Compile = Callable[..., CompiledContext]

STORY = (
    "The harbour was closed in winter. Nobody came. The lighthouse keeper painted the boats green. "
    "Snow fell for nine days. In spring the ferry came back. Children waved from the pier. "
    "The mayor gave a speech about fish. Afterwards there was soup for everyone."
)


def words(text: str) -> int:
    return len(text.split())


def item(name: str, content: str, kind: str = "retrieval_doc", **fields: object) -> ContextItem:
    return ContextItem.load({"id": name, "kind": kind, "content": content, **fields})


def small(**changes: Any) -> CompileConfig:
    return CompileConfig(min_compressed_tokens=3, **changes)


def test_the_sentences_that_share_words_with_the_request_stay_in_their_order(
    compile_items: Compile,
) -> None:
    request = item("u", "Which colour did the keeper paint the boats?", kind="user_msg")
    compiled = compile_items(
        [request, item("story", STORY, source_ref=SourceRef(title="Harbour"))],
        token_budget=words(request.content) + 17,
        compile_config=small(),
    )
    shown = compiled.selected_items[0]
    decision = compiled.decision("story")

    assert shown.content == (
        "The harbour was closed in winter. Nobody came. The lighthouse keeper painted the boats "
        "green. […]"
    )
    assert (decision.decision, decision.reason_code, decision.pass_name) == (
        "compress",
        "compressed_extractive",
        "compression",
    )
    assert (decision.original_tokens, decision.final_tokens) == (
        words(STORY) + 1,
        17,
    )  # with its title
    assert shown.source_ref == SourceRef(title="Harbour")
    whole = compile_items([item("story", STORY)]).selected_items[0]
    assert shown.metadata == {"compressed_from": whole.stable_hash}
    assert shown.stable_hash != whole.stable_hash


def test_room_is_kept_for_a_relevant_item_too_large_to_go_in_whole(compile_items: Compile) -> None:
    filler = [item(f"f{n:02}", f"{n} x y") for n in range(60)]
    compiled = compile_items(
        [item("story", STORY * 5), *filler],
        token_budget=150,
        relevance={"story": 900_000},
        compile_config=small(),
        task_summary="the ferry",
    )
    assert compiled.decision("story").reason_code == "compressed_extractive"
    assert compiled.token_allocation["free"] <= 4


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "code_diff"},
        {"kind": "plan"},
        {"kind": "task"},
        {"kind": "assistant_msg"},
        {"kind": "constraint"},
        {"kind": "handoff"},
        {"kind": "file", "tags": ["approval"]},
        {"kind": "file", "tags": ["evidence"]},
        {"kind": "file", "source_ref": {"source_type": "human_approval"}},
    ],
)
def test_what_must_stand_as_it_is_goes_in_whole_or_not_at_all(
    compile_items: Compile, fields: dict[str, Any]
) -> None:
    compiled = compile_items(
        [item("x", STORY, **fields)],
        token_budget=30,
        compile_config=small(),
        relevance={"x": 1_000_000},
    )
    assert compiled.decision("x").reason_code == "over_budget"
    assert compiled.wishes == ()


def test_nothing_is_shortened_when_compression_is_off(compile_items: Compile) -> None:
    compiled = compile_items(
        [item("x", STORY)],
        token_budget=30,
        compile_config=small(compression=False),
        relevance={"x": 1_000_000},
    )
    assert compiled.decision("x").reason_code == "over_budget"
    assert compiled.wishes == ()


def test_a_remnant_that_says_too_little_is_left_out(compile_items: Compile) -> None:
    compiled = compile_items([item("x", STORY)], token_budget=20, compile_config=CompileConfig())
    assert compiled.decision("x").reason_code == "over_budget"


def test_a_recorded_summary_is_taken_before_anything_is_cut(compile_items: Compile) -> None:
    key = text_digest("summary-input", STORY)
    compiled = compile_items(
        [item("x", STORY)], token_budget=30, summaries={key: "A year in a harbour."}
    )
    (shown,) = compiled.selected_items
    assert shown.content == "A year in a harbour."
    assert compiled.decision("x").reason_code == "compressed_summary"
    assert compiled.decision("x").final_tokens == 5


def test_a_summary_is_left_aside_when_the_item_fits_or_the_summary_does_not(
    compile_items: Compile,
) -> None:
    key = text_digest("summary-input", STORY)
    assert (
        compile_items([item("x", STORY)], summaries={key: "Short."}).decision("x").decision
        == "include"
    )
    long = compile_items(
        [item("x", STORY)], token_budget=4, summaries={key: "A year in a harbour."}
    )
    assert long.decision("x").reason_code == "over_budget"


def test_relevant_items_that_were_left_out_or_cut_become_wishes(compile_items: Compile) -> None:
    items = [item(f"x{n:02}", f"{STORY} {n}") for n in range(20)]
    relevance = {name.id: 1_000_000 - n * 30_000 for n, name in enumerate(items)}
    compiled = compile_items(items, token_budget=30, compile_config=small(), relevance=relevance)

    assert [wish.item_id for wish in compiled.wishes] == [f"x{n:02}" for n in range(8)]
    tokens = words(items[0].content)
    assert compiled.wishes[0] == SummaryWish(
        item_id="x00",
        input_digest=text_digest("summary-input", items[0].content),
        max_tokens=tokens // 4,
    )
    granted = {wish.input_digest: "Soup." for wish in compiled.wishes}
    after = compile_items(
        items, token_budget=30, compile_config=small(), relevance=relevance, summaries=granted
    )
    assert after.decision("x00").reason_code == "compressed_summary"
    assert {wish.item_id for wish in after.wishes}.isdisjoint(
        wish.item_id for wish in compiled.wishes
    )


def test_of_a_summary_by_its_own_sentences_the_request_chooses_them(compile_items: Compile) -> None:
    text = f"{STORY} The pilot was called Petri. {STORY}"
    first = f"{STORY} […]"
    compiled = compile_items(
        [item("x", text)],
        token_budget=words(first) + 4,
        query="Who was the pilot?",
        summaries={text_digest("summary-input", text): first},
        compile_config=small(),
    )
    assert compiled.decision("x").reason_code == "compressed_extractive"
    assert "Petri" in compiled.selected_items[0].content


def test_what_is_not_relevant_is_not_wished_for(compile_items: Compile) -> None:
    compiled = compile_items(
        [item("x", STORY)], token_budget=5, relevance={"x": 499_999}, compile_config=small()
    )
    assert compiled.wishes == ()


# How


def test_json_loses_white_space_first_and_its_numbers_stay_as_written() -> None:
    text = '{\n  "price": 1.10,\n  "note": "two  spaces",\n  "big": 12345678901234567890\n}'
    assert shorten(text, target=1, query=(), count=lambda t: t.count("\n") + 1) == (
        "compressed_structural",
        '{"price":1.10,"note":"two  spaces","big":12345678901234567890}',
    )


def test_long_json_keeps_its_shape_and_says_what_was_cut() -> None:
    text = json.dumps({"rows": [{"id": n, "text": "x" * 900} for n in range(100)]})
    form = shorten(text, target=1_000, query=(), count=len)
    assert form is not None
    rows = json.loads(form[1])["rows"]
    assert form[0] == "compressed_structural"
    assert len(form[1]) <= 1_000
    assert [row["id"] for row in rows[:-1]] == list(range(len(rows) - 1))
    assert rows[-1] == f"[…{100 - (len(rows) - 1)} more]"


def test_json_nested_too_deeply_to_cut_is_left_alone() -> None:
    text = "[" * 600 + '"a"' + "]" * 600
    assert shorten(text, target=10, query=(), count=len) is None


def test_what_only_looks_like_json_is_read_as_text() -> None:
    form = shorten(
        "[see above] It rained. It snowed. It rained again.", target=5, query=(), count=words
    )
    assert form == ("compressed_extractive", "[see above] It rained. […]")


def test_a_log_folds_lines_that_differ_only_in_numbers() -> None:
    lines = [f"2026-01-01 10:00:{n:02} INFO tick {n}" for n in range(30)]
    log = "\n".join([*lines, "2026-01-01 10:01:00 ERROR disk full"])
    assert shorten(log, target=20, query=(), count=words) == (
        "compressed_structural",
        "2026-01-01 10:00:00 INFO tick 0\n[…29 more like this]\n2026-01-01 10:01:00 ERROR disk "
        "full",
    )


def test_a_traceback_keeps_its_head_and_more_of_its_tail() -> None:
    frames = [f'  File "a.py", line {n}, in f{chr(97 + n % 26)}' for n in range(60)]
    text = "\n".join(["Traceback (most recent call last):", *frames, "ValueError: no such boat"])
    form = shorten(text, target=50, query=(), count=words)
    assert form is not None
    reason, short = form
    assert reason == "compressed_structural"
    assert short.startswith("Traceback (most recent call last):\n")
    assert short.endswith("\nValueError: no such boat")
    assert " lines]\n" in short
    assert words(short) <= 50


def test_sentences_of_scripts_without_spaces_are_told_apart() -> None:
    text = "港口在冬天关闭。没有人来。看守人把船漆成绿色。"
    form = shorten(text, target=14, query=query_terms("漆成什么颜色"), count=len)
    assert form == ("compressed_extractive", "[…] 看守人把船漆成绿色。")


@given(
    st.lists(st.text("abc .!?\n。", max_size=30), max_size=12).map(" ".join),
    st.integers(1, 40),
    st.lists(st.sampled_from("abc"), max_size=2),
)
def test_an_extract_is_made_of_pieces_of_the_text_in_their_order(
    text: str, target: int, query: list[str]
) -> None:
    form = shorten(text, target=target, query=query, count=words)
    if form is None or form[0] != "compressed_extractive":
        return
    assert words(form[1]) <= target
    whole, start = unwrap(text), 0
    for piece in form[1].split(GAP.strip()):
        at = whole.find(piece.strip(), start)
        assert at >= 0
        start = at + len(piece.strip())


@given(st.text(max_size=300), st.integers(1, 20))
def test_any_text_is_shortened_to_fit_or_not_at_all(text: str, target: int) -> None:
    form = shorten(text, target=target, query=("a",), count=words)
    assert form is None or words(form[1]) <= target


CODE = '''import os
from pathlib import Path


@cached
def harbour(name: str) -> Path:
    """Where a harbour is."""
    place = Path(name)
    if not place.exists():
        raise LookupError(name)
    return place


class Boat:
    def weigh(self) -> int:
        total = 0
        for plank in self.planks:
            total += plank.weight
        return total

    def paint(self, colour: str) -> None:
        self.colour = colour
        self.brush.clean()
'''

DIFF = """diff --git a/boat.py b/boat.py
--- a/boat.py
+++ b/boat.py
@@ -1,9 +1,9 @@
 class Boat:
     def weigh(self):
         total = 0
-        for plank in planks:
+        for plank in self.planks:
             total += plank.weight
         return total
"""


def test_code_keeps_its_outline_and_the_lines_that_are_asked_for(compile_items: Compile) -> None:
    request = item("u", "Which colour is the brush cleaned for?", kind="user_msg")
    compiled = compile_items(
        [request, item("boat.py", CODE, kind="file")],
        token_budget=words(request.content) + 48,
        compile_config=small(),
    )
    shown = compiled.selected_items[0].content
    assert compiled.decision("boat.py").reason_code == "compressed_structural"
    for line in (
        "import os",
        "@cached",
        "def harbour(name: str) -> Path:",
        "class Boat:",
        "    def weigh(self) -> int:",
    ):
        assert line in shown.splitlines()
    assert "        self.brush.clean()" in shown
    assert "total += plank.weight" not in shown
    assert "lines]" in shown


def test_a_diff_keeps_what_changed(compile_items: Compile) -> None:
    compiled = compile_items(
        [item("u", "Why?", kind="user_msg"), item("d", DIFF, kind="artifact")],
        token_budget=32,
        compile_config=small(),
    )
    shown = compiled.selected_items[0].content
    assert compiled.decision("d").reason_code == "compressed_structural"
    assert "-        for plank in planks:\n+        for plank in self.planks:" in shown
    assert "total = 0" not in shown


@pytest.mark.parametrize(
    "line",
    [
        "def handle_{0}(self):\n    token = read({0})\n    return post(token, {0})\n\n",
        "2026-03-01 10:00:07 INFO worker[{0}] request {0} took {0} ms for {0}\nother {0}a\n",
        "The harbour number {0} was closed in winter. ",
    ],
    ids=["code", "log", "prose"],
)
def test_a_long_text_is_not_counted_for_each_try(line: str) -> None:
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return len(text) // 4

    content = "".join(line.format(number) for number in range(2_000))
    short = shorten(content, target=500, query=["harbour"], count=count)
    assert counted <= 1.5 * len(content)
    assert short is not None
    assert count(short.content) <= 500


@given(st.integers(0, 200), st.integers(0, 300), st.integers(0, 20), st.integers(1, 5))
def test_the_largest_form_that_fits_is_chosen(
    target: int, most: int, least: int, size: int
) -> None:
    def form(parts: int) -> str:
        return "x" * (parts * size + parts % 2)

    fitting = [form(parts) for parts in range(least, most + 1) if len(form(parts)) <= target]
    chosen = largest_that_fits(form, most, least, target, len)
    assert chosen == (fitting[-1] if fitting else None)


MESSAGE = """My kiln stops at 900 degrees. The glaze is new.

```python
import kiln
for step in kiln.schedule:
    print(step.target, step.ramp)
kiln.fire(hold_minutes=20)
```

I never changed the thermocouple. What is wrong?"""


def test_of_a_message_that_shows_code_what_it_says_stays_first() -> None:
    form = shorten(MESSAGE, target=20, query=query_terms("print the target"), count=words)
    assert form == (
        "compressed_extractive",
        "My kiln stops at 900 degrees. The glaze is new. […] print(step.target, step.ramp) […] "
        "I never changed the thermocouple. […]",
    )
    assert shorten(MESSAGE, target=20, query=query_terms("Is the kiln hot?"), count=words) == (
        "compressed_extractive",
        "My kiln stops at 900 degrees. The glaze is new. […] "
        "I never changed the thermocouple. What is wrong?",
    )


def test_of_a_message_that_shows_a_traceback_its_end_stays() -> None:
    frames = [f'  File "a.py", line {n}, in f{chr(97 + n % 26)}' for n in range(60)]
    trace = "\n".join(["Traceback (most recent call last):", *frames, "ValueError: no such boat"])
    message = f"The ferry does not load.\n```\n{trace}\n```\nWhat now?"
    form = shorten(message, target=24, query=(), count=words)
    assert form is not None
    assert form.content.startswith("The ferry does not load. […] ")
    assert form.content.endswith("ValueError: no such boat […] What now?")


@given(
    st.lists(
        st.sampled_from(["Why? ", "It fails.\n", "kiln\n", "\n", "\n```\nx = 1\ny = 2\n```\n"])
    ).map("".join)
)
def test_what_a_message_says_beside_its_code_has_room_where_that_is_counted(text: str) -> None:
    said = omit_code(text)
    if said == text:
        return
    form = cut(text, target=len(said), query=(), count=len)
    code = {"x", "=", "1", "y", "2", GAP.strip(), "```"}
    assert [word for word in form.content.split() if word not in code] == [
        word for word in text.split() if word not in code
    ]


def test_a_long_message_takes_no_more_room_than_what_it_says_beside_its_code(
    compile_items: Compile,
) -> None:
    code = "```python\n" + "step.ramp = step.target / 2\n" * 200 + "```"
    asked = " ".join(f"Kiln {n} stops at {n} degrees." for n in range(30))
    talk = [
        item(
            f"t{n:02}",
            f"{asked}\n{code}" if n % 2 == 0 else f"Answer {n}.",
            kind="user_msg" if n % 2 == 0 else "assistant_msg",
        )
        for n in range(40)
    ]
    talk.append(item("now", "And the glaze?", kind="user_msg"))
    compiled = compile_items(talk, token_budget=4_000)
    shown = {each.id: each.content for each in compiled.selected_items}
    assert shown["t30"] == f"{asked} […]"
    assert compiled.decision("t30").final_tokens == words(asked) + 1
