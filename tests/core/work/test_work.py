"""Tasks and plans by their verbs: states, completion, estimates, order and filters."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from tallystick.errors import (
    Denied,
    IdempotencyMismatch,
    InvalidInput,
    InvalidRecord,
    NotFound,
    StateConflict,
)
from tallystick.records import Actor
from tallystick.records.work import PlanStep
from tallystick.tally import BoundTally, Tally
from tallystick_work import Work

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice", projects=frozenset({"apollo"}))
AGENT = Actor(user="alice", agent="coder", projects=frozenset({"apollo"}))


def a_task(bound: BoundTally, text: str, **attributes: object) -> str:
    return bound.remember(text, kind="task", attributes=attributes).id  # type: ignore[arg-type]


def reviewed(work: Work, task: str) -> str:
    work.start(task)
    work.submit(task)
    return task


def test_a_task_is_started_blocked_and_submitted_with_what_belongs_to_it(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        bound = tally.bind(AGENT)
        work = Work(bound)
        task = a_task(bound, "Mend the Parser: tabs & ümlauts!")
        other = a_task(bound, "Read the grammar.")

        started = work.start(task, assignee="bob", if_version=1)
        assert (started.status, started.assignees, started.version) == ("doing", ("bob",), 2)
        assert started.branch == f"task/mend-the-parser-tabs-umlauts-{task[-8:]}"
        blocked = work.block(task, other[-12:])
        assert (blocked.status, blocked.waits_for, blocked.blockers) == (
            "blocked",
            (other,),
            (other,),
        )
        assert work.unblock(task).status == "doing"
        submitted = work.submit(task, commits=["a1", "b2"], pr_url="https://x.example/1")
        assert (submitted.status, submitted.commits, submitted.pr_url) == (
            "review",
            ("a1", "b2"),
            "https://x.example/1",
        )
        with pytest.raises(StateConflict, match="From review it may become done, cancelled"):
            work.start(task)
        with pytest.raises(InvalidInput, match="no task"):
            work.start(bound.remember("A note.").id)
        with pytest.raises(NotFound):
            work.start(a_task(tally.bind(Actor(user="bob")), "His."))


def test_a_step_that_is_sent_again_gets_its_first_answer(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        work = Work(bound)
        task = a_task(bound, "Mend it.")
        first = work.start(task, assignee="bob", idempotency_key="k")
        assert work.start(task, assignee="bob", idempotency_key="k") == first
        with pytest.raises(IdempotencyMismatch):
            work.start(task, assignee="eve", idempotency_key="k")
        work.submit(task)
        done = work.complete(task, learnings=["Tabs."], idempotency_key="d")
        again = work.complete(task, learnings=["Tabs."], idempotency_key="d")
        assert again.episode_id == done.episode_id
        assert len(bound.memories(kinds=["episode"])) == 1


def test_a_completed_task_leaves_an_episode_patterns_and_progress(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(AGENT, "project:apollo")
        work = Work(bound)
        rule = bound.remember("Parsers are fuzzed.", kind="rule").id
        first = a_task(bound, "Read the grammar.")
        task = bound.remember(
            "Mend the parser.", kind="task", related_to=[rule], depends_on=[first]
        ).id
        work.start(task)
        work.block(task, "The tokenizer drops tabs.")
        work.unblock(task)
        work.submit(task, commits=["a1"])

        done = work.complete(task, hours=3.5, learnings=["Marmosets count as whitespace."])

        assert (done.task.status, done.task.hours, done.done, done.total) == ("done", 3.5, 1, 2)
        links = {
            (link.kind, link.memory_id)
            for link in bound.inspect(done.episode_id).affected.links
            if link.direction == "to"
        }
        [pattern] = done.error_patterns
        assert links == {
            ("DERIVED_FROM", task),
            ("REFERENCES", rule),
            ("REFERENCES", pattern),
            ("DEPENDS_ON", first),
        }
        assert bound.get(pattern).attributes["error"] == "The tokenizer drops tabs."
        assert done.project_id is not None
        assert bound.get(done.project_id).attributes["progress"] == {"done": 1, "open": 1}
        # The words of the learning find the episode.
        assert done.episode_id in [hit.memory.id for hit in bound.recall("marmosets")]
        # One transaction: the episode goes with its task, and is back with it.
        bound.forget(task, reason="over")
        assert len(bound.recall("marmosets", kinds=["episode"])) == 0


def test_a_completion_that_is_refused_stores_nothing(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        work = Work(bound)
        task = a_task(bound, "Mend it.", project="apollo")
        work.start(task)
        before = len(bound.memories())
        with pytest.raises(StateConflict, match="review, blocked, cancelled"):
            work.complete(task, learnings=["Nothing."])
        assert len(bound.memories()) == before
        viewer = tally.bind(Actor(user="eve"))
        with pytest.raises(NotFound):
            Work(viewer).complete(task)
        with pytest.raises(Denied):
            Work(tally.bind(Actor(user="eve"), "project:apollo")).list()


def test_what_a_person_locked_keeps_an_agent_from_a_step_and_from_the_progress(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        person = tally.bind(ALICE, "project:apollo")
        agent = Work(tally.bind(AGENT, "project:apollo"))
        task = a_task(person, "Mend it.")
        project = person.remember("apollo", kind="project", subject="apollo", pinned=True).id
        person.modify(task, attributes={"priority": "low"}, reason="mine", manual_override=True)
        with pytest.raises(StateConflict, match="manual_override"):
            agent.start(task)
        free = reviewed(agent, a_task(person, "Paint it."))
        done = agent.complete(free)
        assert done.project_id == project
        assert "pinned_memory" in done.warnings[0]
        assert "progress" not in person.get(project).attributes


def test_every_state_but_the_next_is_refused_by_modify_too(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        task = a_task(bound, "Mend it.")
        for status in ("blocked", "review", "done"):
            with pytest.raises(StateConflict, match="doing, cancelled"):
                bound.modify(task, attributes={"status": status}, reason="r")
        bound.modify(task, attributes={"status": "doing"}, reason="r")
        preview = bound.corrections.make(task, "mark_sensitive", reason="r")
        bound.corrections.make(
            task,
            "mark_sensitive",
            reason="r",
            mode="apply",
            confirm_token=preview.confirm_token,
        )
        assert bound.get(task).attributes["status"] == "doing"


def test_tasks_are_listed_by_their_filters(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        work = Work(bound)
        soon = datetime(2026, 3, 1, tzinfo=UTC)
        first = a_task(
            bound,
            "One.",
            assignee="ann",
            technologies=["python", "sql"],
            due_at=soon.isoformat(),
            project="apollo",
        )
        second = a_task(bound, "Two.", assignees=["bob", "ann"], technologies=["python"])
        third = a_task(bound, "Three.", project="artemis", due_at="2026-04-01")
        work.start(second)
        work.cancel(third, reason="no need")

        def listed(**filters: object) -> list[str]:
            return [task.id for task in work.list(**filters)]  # type: ignore[arg-type]

        assert listed() == [third, second, first]
        assert listed(statuses=["doing", "todo"]) == [second, first]
        assert listed(assignees=["bob"]) == [second]
        assert listed(assignees=["ann", "bob"]) == [second, first]
        assert listed(technologies=["python", "sql"]) == [first]
        assert listed(project="apollo") == [first]
        assert listed(due_before=soon + timedelta(days=1)) == [first]
        assert listed(due_after=soon) == [third, first]
        assert listed(due_after="2026-03-02", due_before="2026-05-01") == [third]
        work.archive(third)
        assert listed() == [second, first]
        assert listed(archived=True) == [third]
        with pytest.raises(StateConflict, match="over"):
            work.archive(first)
        for wrong, nearest in (
            ({"statuses": ["donig"]}, "doing"),
            ({"assignees": ["anne"]}, "ann"),
            ({"technologies": ["pyton"]}, "python"),
            ({"project": "appollo"}, "apollo"),
        ):
            with pytest.raises(InvalidInput, match=f"Did you mean '{nearest}'"):
                listed(**wrong)


def test_what_to_do_next_has_reasons_and_blocked_comes_last(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ALICE)
        work = Work(bound)
        low = a_task(bound, "Low.", priority="low")
        late = a_task(bound, "Late.", priority="medium", due_at="2020-01-01")
        top = a_task(bound, "Top.", priority="critical")
        blocked = a_task(bound, "Blocked.", priority="critical")
        waiting = bound.remember("Waits.", kind="task", depends_on=[low]).id
        work.start(blocked)
        work.block(blocked, "words")

        ranked = work.prioritize()

        assert [each.task.id for each in ranked] == [late, top, low, blocked, waiting]
        assert "overdue by" in ranked[0].reasons[1]
        assert ranked[2].reasons == ("priority low", "1 open task waits for it")
        assert ranked[3].reasons[-1] == "blocked"
        assert ranked[4].reasons[-1] == "it waits for 1 open task"


def test_hours_are_estimated_from_three_done_tasks_that_are_alike(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ALICE)
        work = Work(bound)
        new = a_task(bound, "Translate the manual into Danish.")
        done: list[str] = []
        for hours, language in ((2, "German"), (6, "French"), (4, "Polish")):
            if len(done) == 2:
                with pytest.raises(StateConflict, match="3 are needed"):
                    work.estimate(new)
            task = reviewed(work, a_task(bound, f"Translate the manual into {language}."))
            work.complete(task, hours=hours)
            done.append(task)
        work.complete(reviewed(work, a_task(bound, "Repair the coffee machine.")), hours=90)

        estimate = work.estimate(new)

        assert (estimate.median, estimate.low, estimate.high) == (4, 2, 6)
        assert sorted(estimate.task_ids) == sorted(done)


def test_a_plan_has_steps_with_states(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        work = Work(bound)
        plan = bound.remember(
            "Move to the new host.",
            kind="plan",
            attributes={"steps": ["Back up.", {"text": "Copy.", "state": "doing"}]},
        ).id

        assert work.plan(plan).steps == (
            PlanStep(text="Back up."),
            PlanStep(text="Copy.", state="doing"),
        )
        assert work.advance(plan, 1).status == "open"
        over = work.advance(plan, 2, state="skipped", if_version=2)
        assert (over.status, [step.state for step in over.steps]) == ("done", ["done", "skipped"])
        assert len(bound.history(plan)) == 3
        with pytest.raises(InvalidInput, match="2 steps"):
            work.advance(plan, 3)
        with pytest.raises(InvalidInput, match="no plan"):
            work.plan(a_task(bound, "A task."))


async def test_the_same_verbs_are_awaited(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ALICE)
        task = a_task(bound, "Mend it.")
        assert (await Work(bound).aio.start(task)).status == "doing"


def test_what_blocked_a_task_is_told_to_nobody_who_may_not_read_it_and_is_a_source_of_its_pattern(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE, "project:apollo")
        private = tally.bind(ALICE).remember("Karl is ill, and nobody may know.").id
        shared = bound.remember("The build machine is out of disk.").id
        work = Work(bound)
        task = a_task(bound, "Ship it.")
        work.start(task)
        for blocker in (private, shared):
            work.block(task, blocker)
            work.unblock(task)
        work.submit(task)

        [pattern] = work.complete(task).error_patterns
        assert bound.get(pattern).content == "The build machine is out of disk."
        assert pattern in bound.inspect(shared).affected.derived
        assert "Karl" not in str([each.content for each in bound.memories(limit=100)])


def test_a_blank_blocker_is_refused_and_keeps_no_task_from_its_end(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ALICE)
        work = Work(bound)
        task = a_task(bound, "Ship it.", blockers=["", " "])
        work.start(task)
        with pytest.raises(InvalidInput, match="what blocks it"):
            work.block(task, " ")
        work.submit(task, commits=[""])
        done = work.complete(task)
        assert (done.error_patterns, done.task.blockers, done.task.commits) == ((), (), ())


def test_a_task_takes_no_name_and_a_plan_no_step_that_would_keep_it_from_its_end(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ALICE)
        with pytest.raises(InvalidRecord, match="project"):
            a_task(bound, "Ship it.", project="p" * 1_001)
        with pytest.raises(InvalidRecord, match="steps"):
            bound.remember("A plan.", kind="plan", attributes={"steps": [""]})


def test_a_task_due_at_the_first_moment_is_due(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ALICE)
        task = a_task(bound, "Count the seconds.", due_at="1970-01-01T00:00:00Z")
        work = Work(bound)
        assert [each.id for each in work.list(due_before="2026-01-01")] == [task]
        assert [each.id for each in work.list(due_after="1969-12-31")] == [task]


def test_two_callers_close_no_circle_through_two_scopes_at_once(open_tally: OpenTally) -> None:
    actor = ALICE.replace(projects=frozenset({"apollo", "zeus"}))
    with open_tally() as tally:
        scopes = [tally.bind(actor, f"project:{name}") for name in ("apollo", "zeus")]
        begin = threading.Barrier(2)

        def depend(bound: BoundTally, task: str, other: str) -> bool:
            begin.wait()
            try:
                bound.modify(task, depends_on={"add": [other]}, reason="it needs it")
            except StateConflict:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            for number in range(10):
                first, second = (a_task(each, f"Task {number}") for each in scopes)
                pairs = ((first, second), (second, first))
                linked = pool.map(depend, scopes, *zip(*pairs, strict=True))
                assert sorted(linked) == [False, True]
        assert Work(scopes[0]).cycles() == ()
