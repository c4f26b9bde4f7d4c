"""What TallySaver does leaves the same journal as the direct calls it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

from tallystick import Actor, Tally
from tallystick.testing import effects
from tallystick.threads import PendingWrite
from tallystick_langgraph import TallySaver

ALICE = Actor(user="alice")


def test_the_saver_has_the_effects_of_direct_calls(open_tally: Callable[..., Tally]) -> None:
    with open_tally() as tally:
        saver, direct = TallySaver(tally.bind(ALICE)), tally.bind(ALICE).threads
        checkpoint = {**empty_checkpoint(), "channel_values": {"x": 1}}
        config: Any = {"configurable": {"thread_id": "saver", "checkpoint_ns": ""}}

        stored: Any = saver.put(config, checkpoint, {"step": 1}, {})  # type: ignore[arg-type]
        saver.put_writes(stored, [("x", 2)], "task")
        saver.delete_thread("saver")
        through_saver = effects(tally)

        rest = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        direct.put(
            "direct", namespace="", checkpoint_id=str(checkpoint["id"]), parent_id=None, metadata={"step": 1},
            body=saver.serde.dumps_typed(rest), values={"x": saver.serde.dumps_typed(1)},
        )  # fmt: skip
        write = PendingWrite("task", "", 0, "x", *saver.serde.dumps_typed(2))
        direct.put_writes("direct", namespace="", checkpoint_id=str(checkpoint["id"]), writes=[write], replace=False)
        direct.delete("direct")
        through_calls = effects(tally)[len(through_saver) :]

    def events(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [(one["stream"], one["event"], one["actor"], one["details"]) for one in found]

    assert [event for _, event, *_ in events(through_saver)] == ["checkpoint.put", "thread.delete"]
    assert events(through_saver) == events(through_calls)
