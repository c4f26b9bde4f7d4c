"""The graph: what memories mention, true whatever becomes of them, and off until turned on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.graph.naming import named, namer

from tallystick.errors import InvalidInput
from tallystick.memory import Put
from tallystick.records import Actor
from tallystick.settings import Settings
from tallystick.storage import Connection
from tallystick.storage.engine import containment, tables
from tallystick.storage.index import graph
from tallystick.storage.index.marks import forget_marks
from tallystick.storage.rows import edges, memories
from tallystick.storage.text import byte_search
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")
ROOT = Actor(user="root", role="operator")
ON = Settings(graph=True)
LEARNING = Settings(graph=True, learning="review")


def entities(bound: BoundTally, *states: str) -> dict[str, str]:
    """The entities of the bound scope, each with its state."""
    shown = states or ("active", "duplicate")
    listed = bound.memories(kinds=["entity"], states=shown)  # type: ignore[arg-type]
    return {memory.content: memory.state for memory in listed}


def erased(tally: Tally, memory_id: str, **arguments: object) -> object:
    root = tally.bind(ROOT)
    preview = root.operator.erase(memory_id, reason="asked for", **arguments)  # type: ignore[arg-type]
    return root.operator.erase(
        memory_id,
        reason="asked for",
        mode="apply",
        confirm_token=preview.confirm_token,
        **arguments,  # type: ignore[arg-type]
    )


def test_nothing_is_read_until_the_graph_is_turned_on(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        alice.remember_many([named("Anna Schmidt works at Tallystick GmbH in Berlin.")])
        tally.drain()
        assert entities(alice) == {}
        assert [job for job in tally.bind(ROOT).jobs.list() if job.kind == "graph"] == []
    with open_tally(settings=ON) as tally:
        tally.drain()
        alice = tally.bind(ALICE)
        assert set(entities(alice)) == {"Anna Schmidt", "Tallystick GmbH", "Berlin"}
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        alice.remember_many([named("Later Bob Miller came to Oslo.")])
        tally.drain()
        assert "Bob Miller" not in entities(alice)


def test_recall_without_an_entity_gives_the_same_with_the_graph_and_without(
    open_tally: OpenTally,
) -> None:
    texts = ["Anna Schmidt works in Berlin.", "Then Bob moved to Oslo.", "Tea is in the kitchen."]
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(map(named, texts))
        queries = ("Where does she work?", "tea", "who moved?", "kitchen")
        before = [[(hit.content, hit.score) for hit in alice.recall(query)] for query in queries]
        tally.drain()
        after = [[(hit.content, hit.score) for hit in alice.recall(query)] for query in queries]
        assert entities(alice)
        assert before == after
        assert [memory.content for memory in alice.memories()] == texts[::-1]


def test_an_entity_is_shown_while_an_active_memory_mentions_it(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        first = alice.remember_many([named("We met Bob Miller in Berlin.")])[0].id
        second = alice.remember_many([named("Later we flew from Berlin to Oslo.")])[0].id
        tally.drain()
        assert set(entities(alice)) == {"Bob Miller", "Berlin", "Oslo"}

        alice.forget(first, reason="not needed")
        assert set(entities(alice)) == {"Berlin", "Oslo"}
        alice.recover(first, reason="needed again")
        assert set(entities(alice)) == {"Bob Miller", "Berlin", "Oslo"}

        alice.modify(
            second,
            reason="it was another town",
            content="Later we flew to Rome.",
            attributes={"entities": ["Rome"]},
        )
        assert set(entities(alice)) == {"Bob Miller", "Berlin"}
        tally.drain()
        assert set(entities(alice)) == {"Bob Miller", "Berlin", "Rome"}
        assert entities(alice, "deleted") == {}, "what nothing mentions is removed"


@pytest.mark.parametrize("correction", ["mark_wrong", "hide", "redact", "mark_sensitive"])
def test_what_is_hidden_leaves_the_graph_with_its_names(
    open_tally: OpenTally, correction: str
) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        memory_id = alice.remember_many([named("We met Bob Miller in Berlin.")])[0].id
        tally.drain()
        preview = alice.corrections.make(memory_id, correction, reason="why")  # type: ignore[arg-type]
        alice.corrections.make(
            memory_id,
            correction,  # type: ignore[arg-type]
            reason="why",
            mode="apply",
            confirm_token=preview.confirm_token,
        )
        assert bool(entities(alice)) == (_state(tally, memory_id) == "active")


def _state(tally: Tally, memory_id: str) -> str:
    with services_of(tally).store.database.read() as connection:
        stored = memories.get(connection, memory_id)
    assert stored is not None
    return stored.memory.state


def test_what_is_erased_leaves_no_byte_in_the_graph(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        text = named("The vault is kept by Zebedee Quillfeather in Berlin.")
        secret = alice.remember_many([text])[0].id
        alice.remember_many([named("Later we flew to Berlin.")])
        tally.drain()
        assert "Zebedee Quillfeather" in entities(alice)

        result = erased(tally, secret, fragments=["Quillfeather"])

        assert all(proof.holds for proof in result.proofs)  # type: ignore[attr-defined]
        assert set(entities(alice, "active", "duplicate", "deleted")) == {"Berlin"}
        needles = containment.needles_of(["Zebedee"], ["Quillfeather", "quillfeather"])
        with services_of(tally).store.database.read() as connection:
            assert byte_search.rows_with(connection, needles) == {}


def test_relations_are_merged_by_their_triple_and_go_with_their_texts(
    open_tally: OpenTally,
) -> None:
    with open_tally(settings=LEARNING, learning_model=namer()) as tally:
        alice = tally.bind(ALICE)
        first = alice.remember("Anna Schmidt works at Acme Labs.").id
        second = alice.remember("I heard that Anna Schmidt works for Acme Labs now.").id
        tally.drain()
        assert _relations(tally) == [("works_at", 2)]
        alice.modify(first, reason="the graph reads it again", importance=90)
        tally.drain()
        assert _relations(tally) == [("works_at", 2)]
        alice.forget(first, reason="twice")
        assert _relations(tally) == [("works_at", 1)]
        alice.modify(second, reason="she left", content="Anna Schmidt left.")
        assert _relations(tally) == []


def _relations(tally: Tally) -> list[tuple[str, int]]:
    with services_of(tally).store.database.read() as connection:
        docs = [name.doc for name in graph.names_in(connection, range(1, 50))]
        return [
            (relation.name, len(relation.mentions))
            for relation in graph.relations_of(connection, docs)
        ]


def test_forms_of_a_name_are_one_entity_until_somebody_parts_them(open_tally: OpenTally) -> None:
    with open_tally(settings=LEARNING, learning_model=namer()) as tally:
        alice = tally.bind(ALICE)
        alice.remember("Yesterday Anna Schmidt came to Berlin.")
        alice.remember("We asked Anna about it.")
        tally.drain()
        assert entities(alice)["Anna"] == "active", "no text says that they are one"
        alice.remember("Anna Schmidt is back in Berlin. We asked Anna about it.")
        tally.drain()
        assert entities(alice)["Anna"] == "duplicate"

        [alias] = alice.memories(kinds=["entity"], states=["duplicate"])
        preview = alice.corrections.make(alias.id, "restore", reason="another Anna")
        alice.corrections.make(
            alias.id,
            "restore",
            reason="another Anna",
            mode="apply",
            confirm_token=preview.confirm_token,
        )
        alice.remember("Today Anna Schmidt came again. We asked Anna too.")
        tally.drain()
        assert entities(alice)["Anna"] == "active", "nobody merges again what a person parted"


def test_a_short_name_that_could_be_two_people_is_neither(open_tally: OpenTally) -> None:
    with open_tally(settings=LEARNING, learning_model=namer()) as tally:
        alice = tally.bind(ALICE)
        alice.remember("Yesterday Anna Schmidt came. We asked Anna.")
        tally.drain()
        assert entities(alice)["Anna"] == "duplicate"
        alice.remember("Today we met Anna Berg.")
        tally.drain()
        assert entities(alice)["Anna"] == "active"


def test_a_name_that_somebody_forgot_or_pinned_stays_as_it_is(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        text = alice.remember_many([named("We met Bob Miller in Berlin.")])[0].id
        tally.drain()
        ids = {memory.content: memory.id for memory in alice.memories(kinds=["entity"])}
        alice.forget(ids["Bob Miller"], reason="he asked for it")
        alice.modify(ids["Berlin"], reason="a place of ours", pinned=True)
        alice.remember_many([named("Later we saw Bob Miller again.")])
        tally.drain()
        assert set(entities(alice)) == {"Berlin"}
        alice.forget(text, reason="over")
        assert set(entities(alice)) == {"Berlin"}


def test_scopes_have_graphs_of_their_own(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice, bob = tally.bind(ALICE), tally.bind(Actor(user="bob"))
        alice.remember_many([named("We met Zebedee Quill in Berlin.")])
        bob.remember_many([named("Then we flew to Berlin.")])
        tally.drain()
        assert set(entities(bob)) == {"Berlin"}
        mine = {memory.id for memory in bob.memories(kinds=["entity"])}
        hers = {memory.id for memory in alice.memories(kinds=["entity"])}
        assert not mine & hers


def test_an_import_has_the_graph_of_its_export(
    open_tally: OpenTally, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("export") / "out"
    with open_tally(settings=LEARNING, learning_model=namer(), owner=ROOT) as tally:
        root = tally.bind()
        root.remember("Anna Schmidt works at Acme Labs. Later we asked Anna.")
        tally.drain()
        before, relations = entities(root), _relations(tally)
        root.operator.export(folder)
    with Tally.open(
        tmp_path_factory.mktemp("import") / "t", owner=ROOT, background=False, settings=ON
    ) as other:
        root = other.bind()
        root.operator.import_from(folder)
        assert entities(root) == before
        assert _relations(other) == relations
        other.drain()
        assert entities(root) == before
        assert _graph_finding(root)[0] == "ok"


def _graph_finding(root: BoundTally, *, repair: bool = False) -> tuple[str, str]:
    [finding] = [
        each for each in root.operator.doctor(repair=repair, reason="r") if each.check == "graph"
    ]
    return finding.status, finding.text


def test_the_doctor_finds_and_mends_a_graph_that_drifted(open_tally: OpenTally) -> None:
    with open_tally(settings=LEARNING, learning_model=namer(), owner=ROOT) as tally:
        root = tally.bind()
        texts = ["Anna Schmidt works at Acme Labs.", "Then we met Bob Miller in Oslo."]
        first, second = (root.remember(text).id for text in texts)
        tally.drain()
        assert _graph_finding(root) == ("ok", "4 entities, each with a memory that mentions it")

        def damage(tx: Connection) -> None:
            stored, other = memories.get(tx, first), memories.get(tx, second)
            assert stored is not None
            assert other is not None
            tx.execute(tables.edges.delete().where(tables.edges.c.from_doc == stored.doc))
            tx.execute(tables.relation_mentions.delete())
            edges.add(
                tx,
                edge_id="stray",
                kind="MENTIONS",
                scope_id=other.scope_id,
                from_doc=stored.doc,
                to_doc=other.doc,
                at=1,
            )
            tx.execute(
                tables.memories.update()
                .where(tables.memories.c.doc == other.doc)
                .values(state="hidden")
            )

        services_of(tally).store.database.write(damage, name="damage")
        status, text = _graph_finding(root)
        assert status == "problem"
        for problem in (
            "2 entities that nothing mentions",
            "1 links that end",
            "2 entities shown though",
            "1 relations that no text says",
        ):
            assert problem in text
        assert _graph_finding(root, repair=True)[0] == "repaired"
        assert _graph_finding(root)[0] == "ok"
        assert entities(root) == {}


def test_a_job_that_is_cut_off_is_carried_on_without_a_second_link(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many([named("We met Bob Miller in Berlin.")])
        tally.drain()
        before = entities(alice)
        services = services_of(tally)

        def unread_again(tx: Connection) -> None:
            forget_marks(tx, graph.NAME)

        services.store.database.write(unread_again, name="test")
        tally.drain()
        assert entities(alice) == before
        with services.store.database.read() as connection:
            docs = [name.doc for name in graph.names_in(connection, range(1, 50))]
            assert set(graph.living_mentions(connection, docs).values()) == {1}


def test_items_of_a_store_are_not_read(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        alice.items.put([Put(("users", "7"), "a", {"text": "We met Bob Miller in Berlin."})])
        tally.drain()
        assert entities(alice) == {}


def test_no_name_is_read_while_autonomous_work_is_suspended(open_sqlite: OpenTally) -> None:
    with open_sqlite(settings=ON, owner=ROOT) as tally:
        root = tally.bind()
        root.operator.freeze(reason="a look first", what="autonomy")
        root.remember_many([named("We met Bob Miller in Berlin.")])
        tally.drain()
        assert entities(root) == {}
        root.operator.thaw(reason="looked", what="autonomy")
        tally.drain()
        assert set(entities(root)) == {"Bob Miller", "Berlin"}


def test_a_known_name_is_found_where_a_text_writes_it_exactly(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        alice.remember("She came by sea.", entities=["May", "Anna Schmidt", "王芳"])
        texts: dict[str, set[str]] = {
            "We met May in the harbour.": {"May"},
            "You may go; Maybe mayday.": set(),
            "Is Anna\n Schmidt here, with Anna?": {"Anna Schmidt"},
            "我昨天见了王芳。": {"王芳"},
        }
        ids = {alice.remember(text).id: names for text, names in texts.items()}
        tally.drain()
        for memory_id, names in ids.items():
            links = alice.explore(memory_id).links
            linked = {alice.get(each.to_id).content for each in links if each.kind == "MENTIONS"}
            assert linked == names


def test_names_are_kept_as_an_attribute_and_given_once(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        alice = tally.bind(ALICE)
        kept = alice.remember("She came.", entities=["Anna"], attributes={"note": 1})
        assert alice.get(kept.id).attributes == {"note": 1, "entities": ["Anna"]}
        wrong: list[dict[str, object]] = [
            {"entities": ["Anna"], "attributes": {"entities": ["Bob"]}},
            {"entities": [" "]},
            {"entities": ["x" * 201]},
            {"entities": [f"name {number}" for number in range(41)]},
        ]
        for arguments in wrong:
            with pytest.raises(InvalidInput, match="entities"):
                alice.remember("They came.", **arguments)  # type: ignore[arg-type]
