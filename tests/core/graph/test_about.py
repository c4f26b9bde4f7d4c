"""Everything about a name, and what must come before what: every hop is asked of policy again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.graph.naming import named, namer

from tallystick.errors import Denied, InvalidInput, NotFound, StateConflict
from tallystick.memory.dependencies import in_order
from tallystick.records import Actor, Explored
from tallystick.settings import Settings
from tallystick.storage import Connection
from tallystick.storage.engine.writes import EVERYTHING
from tallystick.storage.rows import edges, memories
from tallystick.tally import Tally
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ALICE, BOB = Actor(user="alice"), Actor(user="bob", projects=frozenset({"apollo"}))
ANNA = Actor(user="anna", projects=frozenset({"apollo"}))
ON = Settings(graph=True)


def texts(explored: Explored) -> list[str | None]:
    """The previews of what was explored, in order."""
    return [memory.preview for memory in explored.memories]


def test_everything_about_a_name_by_any_of_its_forms(open_tally: OpenTally) -> None:
    learning = Settings(graph=True, learning="review")
    with open_tally(settings=learning, learning_model=namer()) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(
            [
                "Anna Schmidt works at Acme Labs. We like Anna.",
                "Yesterday we asked Anna about Lisbon.",
                "Later Bob Miller flew to Lisbon.",
            ]
        )
        tally.drain()

        near = alice.explore("anna schmidt", mode="about")
        assert texts(near) == [
            "Anna Schmidt",
            "Anna",
            "Yesterday we asked Anna about Lisbon.",
            "Anna Schmidt works at Acme Labs. We like Anna.",
            "Acme Labs",
        ]
        ids = {memory.preview: memory.id for memory in near.memories}
        [relation] = near.relations
        assert (relation.from_id, relation.relation, relation.to_id, relation.mentions) == (
            ids["Anna Schmidt"],
            "works_at",
            ids["Acme Labs"],
            (ids["Anna Schmidt works at Acme Labs. We like Anna."],),
        )
        assert texts(alice.explore("Anna", mode="about")) == texts(near)
        assert texts(alice.explore("A. Schmidt", mode="about")) == texts(near)
        assert texts(alice.explore(ids["Anna"], mode="about")) == texts(near)

        assert "Later Bob Miller flew to Lisbon." not in texts(near)
        far = alice.explore("Anna", mode="about", depth=3)
        assert {"Lisbon", "Later Bob Miller flew to Lisbon."} <= set(texts(far))
        assert alice.explore("Anna", mode="about", limit=2).more


def test_nobody_else_and_nothing_forgotten_is_reached_about_a_name(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice, anna = tally.bind(ALICE), tally.bind(ANNA)
        [secret, _] = [
            each.id
            for each in alice.remember_many(
                [
                    named("Then Zebedee Quill moved to Lisbon."),
                    named("Later we flew to Lisbon."),
                ]
            )
        ]
        anna.remember("Today I am in Lisbon.", entities=["Lisbon"])
        tally.drain()
        [quill] = [
            memory.id
            for memory in alice.memories(kinds=["entity"])
            if memory.content == "Zebedee Quill"
        ]

        for around in ("Zebedee Quill", quill, "Quill"):
            with pytest.raises(NotFound):
                anna.explore(around, mode="about", depth=3)
        assert texts(anna.explore("Lisbon", mode="about", depth=3)) == [
            "Lisbon",
            "Today I am in Lisbon.",
        ]

        alice.forget(secret, reason="over")
        assert texts(alice.explore("Lisbon", mode="about", depth=3)) == [
            "Lisbon",
            "Later we flew to Lisbon.",
        ]
        for around in ("Zebedee Quill", quill):
            with pytest.raises(NotFound):
                alice.explore(around, mode="about")


def test_about_needs_a_name(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        alice = tally.bind(ALICE)
        with pytest.raises(InvalidInput, match="takes a name"):
            alice.explore(mode="about")
        with pytest.raises(NotFound, match="setting `graph`"):
            alice.explore("Anna", mode="about")


def test_what_a_memory_points_to_and_depends_on_is_linked(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        first = alice.remember("Buy the boat.", kind="task").id
        second = alice.remember("Paint the boat.", kind="task", depends_on=[first]).id
        third = alice.remember(
            "Sail.", kind="task", depends_on=[second], related_to=[first[-8:]]
        ).id
        done = alice.remember("Get a loan.", kind="task", attributes={"status": "done"}).id
        alice.remember("Buy the boat.", kind="task", depends_on=[done])

        explored = alice.explore(third, mode="dependencies")

        assert [memory.id for memory in explored.memories] == [done, first, second, third]
        assert explored.cycles == ()
        assert explored.unfinished == (first, second, third)
        links = {(link.kind, link.to_id) for link in alice.explore(third).links}
        assert ("REFERENCES", first) in links
        assert [memory.id for memory in alice.explore(mode="dependencies").memories] == [
            done,
            first,
            second,
            third,
        ]
        assert len(alice.explore(third, depth=3).memories) == 4


def _link_as_before(tally: Tally, from_id: str, to_id: str) -> None:
    """Make a dependency as an older release did, which asked for no circle."""
    store = services_of(tally).store

    def unit(tx: Connection) -> None:
        first, second = (memories.get(tx, each) for each in (from_id, to_id))
        assert first is not None
        assert second is not None
        edges.add(
            tx,
            edge_id=store.ids.new(),
            kind="DEPENDS_ON",
            scope_id=first.scope_id,
            from_doc=first.doc,
            to_doc=second.doc,
            at=store.clock.now(),
        )

    store.database.write(unit, name="test.link", writes=EVERYTHING)


def test_circles_of_dependencies_are_named(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        egg = alice.remember("An egg.", kind="task").id
        hen = alice.remember("A hen.", kind="task", depends_on=[egg]).id
        with pytest.raises(StateConflict, match=f"{egg} → {hen} → {egg}"):
            alice.remember("An egg.", kind="task", depends_on=[hen])
        _link_as_before(tally, egg, hen)
        explored = alice.explore(hen, mode="dependencies")
        assert explored.cycles == ((egg, hen),)
        with pytest.raises(InvalidInput, match="itself"):
            alice.remember("A hen.", kind="task", depends_on=[hen])


def test_no_link_leads_to_what_the_actor_may_not_see(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice, bob = tally.bind(ALICE), tally.bind(BOB)
        project = tally.bind(BOB, scope="project:apollo")
        hidden = bob.remember("Bob's own step.", kind="task").id
        shared = project.remember("A step of all.", kind="task", depends_on=[hidden]).id

        with pytest.raises(NotFound):
            alice.remember("Mine.", depends_on=[hidden])
        with pytest.raises(NotFound):
            alice.remember("Mine.", related_to=["no such memory"])
        assert alice.memories() == []
        with pytest.raises(NotFound):
            alice.explore(shared, mode="dependencies")
        with pytest.raises(Denied):
            alice.explore("project:apollo", mode="dependencies")

        seen = tally.bind(ANNA, scope="project:apollo").explore(shared, mode="dependencies")
        assert [memory.id for memory in seen.memories] == [shared]
        assert (seen.links, seen.elsewhere) == ((), 1)
        assert hidden not in seen.dumps()


def test_what_was_forgotten_is_no_way_on_and_not_named(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        first = alice.remember("One.").id
        second = alice.remember("Two.", related_to=[first], depends_on=[first]).id
        third = alice.remember("Three.", related_to=[second], depends_on=[second]).id
        alice.forget(second, reason="over")
        for explored in (
            alice.explore(third, depth=3),
            alice.explore(third, mode="dependencies"),
        ):
            assert [memory.id for memory in explored.memories] == [third]
            assert second not in explored.dumps()


def test_a_retry_without_links_is_the_request_that_it_was(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        other = alice.remember("Other.").id
        first = alice.remember("Once.", idempotency_key="k", depends_on=[other])
        assert alice.remember("Once.", idempotency_key="k", depends_on=[other]) == first


@pytest.mark.parametrize("way", ["recall", "memories"])
def test_recall_and_lists_filter_by_label(open_tally: OpenTally, way: str) -> None:
    with open_tally() as tally:
        bob = tally.bind(BOB)
        project = tally.bind(BOB, scope="project:apollo")
        task = bob.remember(
            "Paint the boat.", kind="task", attributes={"assignee": "Ann", "project": "boat"}
        ).id
        bob.remember("Paint the boat red.", attributes={"language": "en"})
        bob.remember('Paint "assignee": "Ann".', attributes={"note": '"assignee": "Ann"'})
        project.remember("Paint the rocket.")

        def found(view: object = bob, **labels: str) -> list[str]:
            call = getattr(view, way)
            hits = call("paint the boat", **labels) if way == "recall" else call(**labels)
            return sorted(getattr(hit, "content", "") for hit in hits)

        assert found(assignee="Ann") == ["Paint the boat."]
        assert found(status="todo") == ["Paint the boat."]
        assert found(project="boat") == ["Paint the boat."]
        assert found(language="en") == ["Paint the boat red."]
        assert found(project, project="apollo") == ["Paint the rocket."]
        assert found(assignee="Ann", language="en") == []
        attributes = {"assignee": "Ann", "status": "doing"}
        bob.modify(task, reason="started", attributes=attributes, replace_attributes=True)
        assert found(status="doing") == ["Paint the boat."]
        assert found(status="todo") == found(project="boat") == []
        bob.forget(task, reason="over")
        assert found(status="doing") == []


def test_an_order_puts_each_after_what_it_needs() -> None:
    assert in_order({1: [2], 2: [3], 3: [], 4: []}) == ([3, 2, 1, 4], [])
    assert in_order({1: [2], 2: [1], 3: [1], 5: [5]}) == ([1, 2, 3, 5], [(1, 2), (5,)])


def test_a_name_of_marks_is_looked_for_as_any_other(open_sqlite: OpenTally) -> None:
    with open_sqlite(settings=ON) as tally:
        bound = tally.bind(ALICE)
        bound.remember("Anna Schmidt wrote C++ and a ~.", entities=["Anna Schmidt"])
        tally.drain()
        for marks in ("'", "-", ".", "’s"):
            with pytest.raises(NotFound):
                bound.explore(marks, mode="about")
