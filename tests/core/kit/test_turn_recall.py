"""A turn is recalled once, and what was recalled is kept no longer than the text itself."""

from __future__ import annotations

import gc
from collections.abc import Callable

from tallystick.kit import recall_for_turn
from tallystick.records import Actor, Hit
from tallystick.tally import Tally

OpenTally = Callable[..., Tally]


ANNA = Actor(user="anna")


def test_a_turn_is_recalled_once_and_the_next_one_anew(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)

        def contents(turn: str | None) -> list[str]:
            hits = recall_for_turn(anna, "Where is the key?", limit=5, turn=turn)
            return [hit.memory.content for hit in hits]

        assert contents("one") == []
        anna.remember("The key is under the mat.")
        assert contents("one") == []
        assert contents("two") == contents(None) == ["The key is under the mat."]


def test_nothing_recalled_for_a_turn_stays_in_memory_after_an_erasure(
    open_sqlite: OpenTally,
) -> None:
    def kept() -> list[Hit]:
        gc.collect()
        return [one for one in gc.get_objects() if isinstance(one, Hit)]

    with open_sqlite() as tally:
        anna = tally.bind(Actor(user="anna", role="operator"))
        memory_id = anna.remember("The key is under the mat.").id
        assert recall_for_turn(anna, "Where is the key?", limit=5, turn="one")
        assert "under the mat" in str(kept())
        preview = anna.operator.erase(memory_id, reason="asked")
        anna.operator.erase(
            memory_id, reason="asked", mode="apply", confirm_token=preview.confirm_token
        )
        assert "under the mat" not in str(kept())
