"""What is blocked, open, decided and learned in a project comes first in a new session."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.records import Actor, NewMemory
from tallystick.tally import BoundTally, Tally
from tallystick_hooks.handling import handle
from tallystick_work import Work

OpenTally = Callable[..., Tally]
AGENT = Actor(user="alice", agent="coder", projects=frozenset({"apollo"}))
ALICE = Actor(user="alice", projects=frozenset({"apollo"}))


def a_session(bound: BoundTally) -> dict[str, str]:
    """Leave behind what a first session does; return the ids."""
    work = Work(bound)
    ids = {
        name: bound.remember(text, kind="task", attributes={"priority": priority}).id
        for name, text, priority in (
            ("done", "Mend the tokenizer.", "high"),
            ("blocked", "Publish the parser.", "high"),
            ("low", "Tidy the readme.", "low"),
            ("urgent", "Close the hole in the login.", "critical"),
        )
    }
    ids["decided"] = bound.remember("We keep SQLite for tests.", kind="decision").id
    bound.remember("Lunch is at noon.")
    work.start(ids["done"], assignee="coder")
    work.submit(ids["done"], commits=["abc123"])
    done = work.complete(ids["done"], hours=2, learnings=["Tabs are tokens of their own."])
    ids["learned"] = done.episode_id
    work.start(ids["blocked"])
    work.block(ids["blocked"], "The registry refuses the name.")
    return ids


def test_a_handover_tells_what_is_blocked_open_decided_and_learned_within_its_budget(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        project = tally.bind(AGENT, "project:apollo")
        ids = a_session(project)
        tally.bind(ALICE).remember("Another matter.", kind="task")

        pack = tally.bind(ALICE).wake(project="apollo")

        told = [(item.chosen_as, item.id) for item in pack.items]
        assert told == [
            ("blocked", ids["blocked"]),
            ("open", ids["urgent"]),
            ("open", ids["low"]),
            ("decided", ids["decided"]),
            ("learned", ids["learned"]),
        ]
        assert all(item.source_ids for item in pack.items)
        assert pack.tokens <= pack.budget_tokens == 1_200
        assert "The registry refuses the name." in pack.text
        assert "Lunch" not in pack.text
        assert "Another matter" not in pack.text
        assert tally.bind(ALICE).wake(project="artemis").items == ()


def test_many_things_to_hand_over_stay_within_the_budget(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        project = tally.bind(AGENT, "project:apollo")
        for kind in ("task", "decision", "episode"):
            project.remember_many(
                {"content": f"{kind} {number}: {'word ' * 40}", "kind": kind}
                for number in range(30)
            )
        pack = project.wake(project="apollo")
        assert 800 < pack.tokens <= 1_200
        assert {item.chosen_as for item in pack.items} == {"open", "decided", "learned"}


def test_a_new_session_of_a_coding_agent_begins_with_the_handover(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        project = tally.bind(AGENT, "project:apollo")
        a_session(project)
        project.remember("The user wants short answers.", kind="preference")

        told = handle(project, "session-start", {"session": "second", "agent": "coder"})["context"]

        assert told.index("Publish the parser.") < told.index("short answers")
        assert "Tabs are tokens of their own." in told
        # The folder of a session names its project where the scope does not.
        own = tally.bind(ALICE)
        payload = {"hook_event_name": "SessionStart", "session_id": "s", "cwd": "/home/a/apollo"}
        mine = handle(own, None, payload, "claude-code")["hookSpecificOutput"]
        assert "Publish the parser." in mine["additionalContext"]


def test_what_another_project_holds_is_not_handed_over(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        a_session(tally.bind(AGENT, "project:apollo"))
        bob = tally.bind(Actor(user="bob"))
        assert bob.wake(project="apollo").items == ()


def test_no_number_of_newer_tasks_hides_what_is_blocked_or_open(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ALICE, "project:apollo")
        opened = bound.remember("Order the timber.", kind="task").id
        blocked = bound.remember(
            "Paint the boat.", kind="task", attributes={"status": "blocked"}
        ).id
        for status in ("done", "todo", "blocked"):
            bound.remember_many(
                [
                    NewMemory(content=f"{status} {n}", kind="task", attributes={"status": status})
                    for n in range(60)
                ]
            )
            chosen = {item.chosen_as for item in bound.wake(project="apollo").items}
            assert chosen >= {"blocked", "open"}
            if status == "done":
                ids = {item.id for item in bound.wake(project="apollo").items}
                assert ids == {opened, blocked}
