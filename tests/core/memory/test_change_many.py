"""Many changes in one call: each is done or not by itself, and its place in the answer says
which.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.whole import whole

from tallystick.records import Actor
from tallystick.tally import Tally

ALICE = Actor(user="alice")


def test_what_is_refused_is_told_and_the_others_are_done(open_tally: Callable[..., Tally]) -> None:
    with open_tally() as tally:
        mine, his = tally.bind(ALICE), tally.bind(Actor(user="bob"))
        first, second = (mine.remember(text).id for text in ("Tabs.", "Spaces."))
        foreign = his.remember("Semicolons.").id

        results = mine.corrections.modify_many(
            [
                {"memory_id": first, "reason": "style", "tags": ("style",), "if_version": 1},
                {"memory_id": second, "reason": "late", "tags": ("style",), "if_version": 7},
                {"memory_id": foreign, "reason": "try", "content": "Mine."},
                {"memory_id": second, "reason": None, "content": "No reason."},
                {"memory_id": second, "reason": "style", "importance": 80},
            ]
        )

        assert [(one.id, one.error) for one in results] == [
            (first, None),
            (second, "VersionConflict"),
            (foreign, "NotFound"),
            (second, "InvalidInput"),
            (second, None),
        ]
        assert (results[1].expected, results[1].actual) == (7, 1)
        assert [len(mine.history(one)) for one in (first, second)] == [2, 2]
        assert his.get(foreign).content == "Semicolons."
        assert "Semicolons" not in whole(results)


def test_two_calls_whose_long_keys_begin_alike_are_two_calls(
    open_tally: Callable[..., Tally],
) -> None:
    with open_tally() as tally:
        mine = tally.bind(ALICE)
        memory = mine.remember("Tabs.").id
        for place, content in enumerate(("Spaces.", "Both.")):
            change = {"memory_id": memory, "reason": "style", "content": content}
            key = "k" * 999 + str(place)
            [changed] = mine.corrections.modify_many([change], idempotency_key=key)
            assert changed.error is None
        assert mine.get(memory).content == "Both."
