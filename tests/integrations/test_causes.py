"""What a person is told of the candidates of a step: what each is, why it is there, and what would
have had to be different.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import get_args

from tallystick import CompileConfig, ContextItem, Tally
from tallystick.records.context import ItemKind
from tallystick_html import words
from tallystick_html.causes import Causes, recall_of

OpenTally = Callable[..., Tally]


def told(
    tally: Tally, budget: int, *items: ContextItem, question: str
) -> dict[str, Mapping[str, str | None]]:
    """Recall and compile in a step; return what is told of each candidate, by its heading."""
    bound = tally.bind()
    with bound.run("agent") as run, run.step("model_call") as step:
        hits = bound.recall(question, limit=2)
        ask = ContextItem(id="ask", kind="user_msg", content=question)
        bound.compile([ask, *items, *hits], budget=budget)
    _, compiled = bound.recordings.compiled(step.id)
    recall = recall_of(bound.recordings.entries(step.id))
    causes = Causes(compiled, bound.recordings.candidates(step.id), recall)
    return {
        causes.heading(each.item_id): {
            "is": causes.name(each.item_id),
            "why": causes.why(each),
            "otherwise": causes.otherwise(each),
        }
        for each in compiled.decisions
    }


def test_a_memory_says_which_words_of_the_question_brought_it_and_that_there_was_room(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        tally.bind().remember("Our flour comes from Berger,\nwho delivers on Tuesdays.")
        lines = told(tally, 2_000, question="Who delivers our flour?")

    memory = lines["Our flour comes from Berger,"]
    assert memory["is"] == "memory"
    assert str(memory["why"]).startswith(
        "recalled because you asked about delivers (words: deliver"
    )
    assert "flour" in str(memory["why"])
    assert str(memory["why"]).endswith("; there was room")
    assert memory["otherwise"] is None
    assert lines["Who delivers our flour?"]["is"] == "message of the user"


def test_what_was_left_out_says_what_would_have_held_it(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        menu = ContextItem(id="menu", kind="file", content="Soup with flour, then cake.")
        lines = told(tally, 20, menu, question="Where is our flour?")

    left = lines["Soup with flour, then cake."]
    assert left["is"] == "file"
    assert left["why"] == "did not fit the budget"
    needed = re.fullmatch(
        r"It needs (\d+) tokens and (\d+) were free: (\d+) would have held it.",
        str(left["otherwise"]),
    )
    assert needed is not None
    with open_sqlite() as tally:
        lines = told(tally, int(needed[3]), menu, question="Where is our flour?")
    assert lines["Soup with flour, then cake."]["otherwise"] is None


def test_every_kind_of_item_and_every_reason_to_leave_one_out_has_words() -> None:
    assert set(words.ITEMS) == set(get_args(ItemKind))
    left = set(words.REASONS) - {code for code in words.REASONS if code.startswith(_TAKEN)}
    assert set(words.OTHERWISE) == left


_TAKEN = (
    *("required_", "dependency_of_", "tool_pair_of_", "selected_", "compressed_"),
    "policy_redacted",
)


def test_a_turn_beside_one_with_the_words_says_which_and_how_far(open_sqlite: OpenTally) -> None:
    said = ("Our flour comes from Berger.", "Good to know.", "On Tuesdays, at six.")
    with open_sqlite() as tally:
        bound = tally.bind()
        for text in said:
            with bound.run("agent", metadata={"thread_id": "c1"}) as run:
                bound.keep_turn(run, user=text)
        with bound.run("agent") as run, run.step("model_call") as step:
            hits = bound.recall("Who brings our flour?", limit=3)
            items = [
                ContextItem(id=hit.memory.id, kind="file", content=hit.content) for hit in hits
            ]
            ask = ContextItem(id="ask", kind="user_msg", content="Who brings our flour?")
            bound.compile([ask, *items], budget=2_000, config=CompileConfig(relevance_floor=0))
        _, compiled = bound.recordings.compiled(step.id)
        recall = recall_of(bound.recordings.entries(step.id))
        causes = Causes(compiled, bound.recordings.candidates(step.id), recall)
        why = {causes.heading(each.item_id): causes.why(each) for each in compiled.decisions}

    assert sorted(recall.places.values()) == [(0, 0), (0, 1), (0, 2)]
    assert "1 turn before: “Our flour comes from Berger.”" in why["Good to know."]
    assert "2 turns before: “Our flour comes from Berger.”" in why["On Tuesdays, at six."]
