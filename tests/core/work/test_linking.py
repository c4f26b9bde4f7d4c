"""A memory is linked with the patterns, rules and templates that it is like: 200 labelled tasks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from tallystick.records import Actor
from tallystick.tally import Tally
from tallystick_work import Work

FIXTURES = Path(__file__).parents[2] / "fixtures" / "work"
ALICE = Actor(user="alice")


def test_of_the_links_to_200_labelled_tasks_more_than_85_percent_are_right(
    open_sqlite: Callable[..., Tally],
) -> None:
    body = (FIXTURES / "linked_tasks.json").read_bytes()
    sums = (FIXTURES / "SHA256SUMS").read_text(encoding="utf-8")
    assert f"{hashlib.sha256(body).hexdigest()}  linked_tasks.json" in sums, "labelled before"
    labelled = json.loads(body)
    assert len(labelled["tasks"]) == 200
    with open_sqlite() as tally:
        bound = tally.bind(ALICE)
        targets = [
            each.id
            for each in bound.remember_many(
                {"content": each["text"], "kind": each["kind"]} for each in labelled["targets"]
            )
        ]
        stored = bound.remember_many(
            {"content": each["text"], "kind": "task"} for each in labelled["tasks"]
        )
        right = [
            targets.index(link.id) in task["links"]
            for task, new in zip(labelled["tasks"], stored, strict=True)
            for link in Work(bound).link_alike(new.id).links
        ]

    assert sum(right) / len(right) > 0.85
    assert sum(right) / sum(len(task["links"]) for task in labelled["tasks"]) > 0.6


def test_links_are_previewed_made_with_their_likeness_and_removed(
    open_tally: Callable[..., Tally],
) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        work = Work(bound)
        rule = bound.remember("Write a failing test before fixing a bug", kind="rule").id
        bound.remember("Write a failing test before fixing a bug, says a note.")
        tally.bind(Actor(user="bob")).remember(
            "Write a failing test before fixing bugs", kind="rule"
        )
        task = bound.remember("Write a failing test before fixing the bug", kind="task").id

        preview = work.link_alike(task)
        assert [link.id for link in preview.links] == [rule]
        assert bound.inspect(task).affected.links == ()
        made = work.link_alike(task, mode="apply")
        assert (made.links, made.version) == (preview.links, 2)
        [link] = bound.inspect(task).affected.links
        assert (link.kind, link.memory_id) == ("REFERENCES", rule)
        assert bound.history(task)[-1].event == "LINK"
        assert work.link_alike(task, mode="apply").links == ()

        bound.modify(task, related_to={"remove": [rule]}, reason="it is another matter")
        assert bound.inspect(task).affected.links == ()
