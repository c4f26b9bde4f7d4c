"""What TallySaver does leaves the same journal as the direct calls it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

from tallystick import Actor, Tally
from tallystick.checkpoints import Leaf, NewCheckpoint, PendingWrite
from tallystick.testing import effects
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

        rest = {
            name: value
            for name, value in checkpoint.items()
            if name not in {"channel_values", "id"}
        }
        direct.put(
            "direct",
            NewCheckpoint(
                namespace="",
                id=str(checkpoint["id"]),
                parent_id=None,
                metadata={"step": 1},
                body=Leaf(*saver.serde.dumps_typed(rest)),
                values={"x": Leaf(*saver.serde.dumps_typed(1))},
            ),
        )
        write = PendingWrite("task", "", 0, "x", Leaf(*saver.serde.dumps_typed(2)))
        direct.put_writes(
            "direct", namespace="", checkpoint_id=str(checkpoint["id"]), writes=[write]
        )
        direct.delete("direct")
        through_calls = effects(tally)[len(through_saver) :]

    def events(entries: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        # The seal covers the name of the thread, which differs.
        own = {"seal": "", "thread": ""}
        details = [{**entry["details"], **own} for entry in entries]
        return [
            (entry["stream"], entry["event"], entry["actor"], more)
            for entry, more in zip(entries, details, strict=True)
        ]

    assert [event for _, event, *_ in events(through_saver)] == ["checkpoint.put", "thread.delete"]
    assert events(through_saver) == events(through_calls)
