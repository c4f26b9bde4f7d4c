"""Communities: entities that memories mention together, told by what the actor may see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.graph.naming import named

from tallystick.errors import NotFound
from tallystick.records import Actor, ExploredCommunity, ProviderDeclaration
from tallystick.settings import Settings
from tallystick.storage.engine import containment, tables
from tallystick.storage.index import communities, graph
from tallystick.storage.index.communities import Togetherness
from tallystick.storage.text import byte_search
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick_graph.communities import group_entities

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")
BOB = Actor(user="bob")
ROOT = Actor(user="root", role="operator")
ON = Settings(graph=True)
BOATS = (
    "Anna Schmidt sails the Seeadler from Hamburg.",
    "In Hamburg we met Anna Schmidt at the harbour.",
    "The Seeadler left Hamburg with Anna Schmidt at dawn.",
)
MUSIC = (
    "Bob Miller plays cello with Clara Jones at Studio Nine.",
    "Yesterday Clara Jones recorded a song at Studio Nine.",
    "We heard Bob Miller and Clara Jones in Vienna.",
)


def communities_of(bound: BoundTally, *around: str, depth: int = 1) -> list[ExploredCommunity]:
    return list(bound.explore(*around, mode="communities", depth=depth).communities)


def told(bound: BoundTally) -> list[set[str]]:
    return [set(each.names) for each in communities_of(bound)]


def test_names_that_memories_mention_together_are_a_community(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(map(named, [*BOATS, *MUSIC, "Nothing is said here of anybody."]))
        assert told(alice) == [], "they are made by the job that reads the names"
        tally.drain()
        boats, music = sorted(communities_of(alice), key=lambda each: "Vienna" in each.names)

        assert set(boats.names) == {"Anna Schmidt", "Seeadler", "Hamburg"}
        assert set(music.names) == {"Bob Miller", "Clara Jones", "Studio Nine", "Vienna"}
        assert boats.memory_count == music.memory_count == 3
        assert "Hamburg" in boats.key_concepts
        cited = [alice.get(memory_id).content for memory_id in boats.sources]
        assert boats.summary == " ".join(cited)
        assert set(cited) <= set(BOATS)
        assert [alice.get(entity).content for entity in boats.entities] == list(boats.names)


def test_a_name_and_words_find_the_communities_that_they_are_about(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(map(named, [*BOATS, *MUSIC]))
        tally.drain()

        [by_name] = communities_of(alice, "anna schmidt")
        assert "Seeadler" in by_name.names
        assert "Studio Nine" in communities_of(alice, "recorded a song on the cello")[0].names
        assert communities_of(alice, by_name.id) == [by_name]
        with pytest.raises(NotFound, match="No community of"):
            communities_of(alice, "quarterly tax declaration")


def test_what_may_not_be_seen_is_neither_named_nor_quoted(open_tally: OpenTally) -> None:
    """Between two divisions too: what is shown is drawn from the memories at each call."""
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(map(named, BOATS))
        secret = alice.remember_many([named("Anna Schmidt met Viktor Krause in Hamburg.")])[0].id
        tally.drain()
        assert any("Viktor Krause" in names for names in told(alice))

        alice.forget(secret, reason="not needed")
        [community] = communities_of(alice)
        assert "Viktor" not in str(community.dump())
        alice.recover(secret, reason="needed again")
        assert any("Viktor Krause" in names for names in told(alice))
        assert told(tally.bind(BOB)) == [], "a scope has communities of its own"


def test_an_erased_text_leaves_no_byte_in_the_communities(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        alice.remember_many(map(named, BOATS))
        secret = alice.remember_many([named("Anna Schmidt met Viktor Krause in Hamburg.")])[0].id
        tally.drain()
        store = services_of(tally).store
        with store.database.read() as connection:
            scope_id = connection.execute(tables.communities.select()).one().scope_id
            [before] = communities.of_scopes(connection, [scope_id])
            assert before.vector is not None
        preview = root.operator.erase(secret, reason="asked for")
        root.operator.erase(
            secret, reason="asked for", mode="apply", confirm_token=preview.confirm_token
        )
        with store.database.read() as connection:
            [after] = communities.of_scopes(connection, [scope_id])
            assert after.vector is None, "it was made from the text too"
            assert len(after.members) == len(before.members) - 1
            needles = containment.needles_of(["Viktor"], ["viktor krause"])
            assert byte_search.rows_with(connection, needles) == {}
        assert "Viktor" not in str(communities_of(alice)[0].dump())


def test_a_community_keeps_its_id_while_most_of_it_stays(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(map(named, [*BOATS, *MUSIC]))
        tally.drain()
        before = {each.id: set(each.names) for each in communities_of(alice)}
        alice.remember("Then the Seeadler took Otto Lang to Hamburg.", entities=["Otto Lang"])
        tally.drain()
        after = {each.id: set(each.names) for each in communities_of(alice)}

        assert set(after) == set(before)
        assert {"Otto Lang"} in [after[name] - before[name] for name in after]


def test_large_communities_have_levels_each_within_its_parent() -> None:
    """Twelve cliques of four entities, three of which are loosely linked to one another."""
    texts = [
        Togetherness(clique * 10 + turn, tuple(clique * 4 + member for member in range(4)))
        for clique in range(12)
        for turn in range(2)
    ]
    texts += [Togetherness(1000 + clique, (clique * 4, (clique + 1) * 4)) for clique in range(11)]
    groups = group_entities(texts)

    assert groups == group_entities(texts), "the same texts give the same groups"
    for group in groups:
        if group.parent is not None:
            parent = groups[group.parent]
            assert group.members < parent.members
            assert group.level == parent.level + 1
    clique_sets = [frozenset(range(clique * 4, clique * 4 + 4)) for clique in range(12)]
    assert all(
        any(clique <= group.members for group in groups if group.level == 0)
        for clique in clique_sets
    )


def test_a_name_alone_and_a_pair_are_no_community(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(map(named, ["Anna Schmidt lives in Berlin.", "Otto Lang was here."]))
        tally.drain()
        assert told(alice) == []


def test_the_doctor_finds_communities_of_nothing_and_removes_them(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice, root = tally.bind(ALICE), tally.bind(ROOT)
        alice.remember_many(map(named, BOATS))
        tally.drain()
        store = services_of(tally).store
        store.database.write(
            lambda tx: tx.execute(tables.community_members.delete()), name="damage"
        )
        with store.database.read() as connection:
            assert len(graph.drift(connection).communities) == 1
        root.operator.doctor(repair=True, reason="r")
        with store.database.read() as connection:
            assert graph.drift(connection).communities == ()


class Scribe:
    """A summarizer that keeps what it was given."""

    def __init__(self, *, local: bool = True) -> None:
        self.declaration = ProviderDeclaration(name="scribe", model="s-1", local=local)
        self.texts: list[str] = []

    def summarize(self, text: str, *, max_tokens: int) -> str:
        self.texts.append(text)
        return f"Summary {len(self.texts)}: Anna sails."


MORE = ("Anna Schmidt painted the Seeadler.", "In Hamburg they gave Anna Schmidt a prize.")


def test_a_model_summarizes_until_what_it_read_changes(open_tally: OpenTally) -> None:
    scribe = Scribe()
    with open_tally(settings=ON, summarizer=scribe) as tally:
        alice = tally.bind(ALICE)
        ids = [each.id for each in alice.remember_many(map(named, [*BOATS, *MORE]))]
        tally.drain()
        [community] = communities_of(alice)
        assert (community.summary, community.summarized_by) == (
            "Summary 1: Anna sails.",
            "scribe:s-1",
        )
        assert set(community.sources) == set(ids)
        assert scribe.texts == ["\n".join([*BOATS, *MORE])]
        [run] = alice.recordings.runs()
        [step] = alice.recordings.steps(run.id)
        assert (run.agent_name, step.name) == ("tallystick-extract", "summarize")
        assert {memory.kind for memory in alice.memories()} == {"note"}
        assert not any("Summary" in hit.content for hit in alice.recall("Summary 1"))

        alice.forget(ids[0], reason="not needed")
        [community] = communities_of(alice)
        assert community.summarized_by is None
        assert "Summary" not in community.summary
        assert alice.memories(kinds=["community"], states=("active", "deleted")) == []


def test_the_model_that_a_setting_names_summarizes_too(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick.tally.models.named_model", lambda *_, **__: Scribe())
    with open_sqlite(settings=ON.model_copy(update={"summary_model": "any:scribe"})) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(map(named, [*BOATS, *MORE]))
        tally.drain()
        [community] = communities_of(alice)
        assert community.summarized_by == "scribe:s-1"


def test_a_community_with_more_than_a_model_is_given_is_summarized_once(
    open_tally: OpenTally,
) -> None:
    """What counts is what the model would be given now, not all that the community has."""
    scribe = Scribe()
    with open_tally(settings=ON, summarizer=scribe) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(
            named(f"{text} {turn} {'It was a long day at sea. ' * 80}")
            for turn in range(7)
            for text in BOATS
        )
        tally.drain()
        first = len(scribe.texts)
        alice.remember("In Hamburg we saw Anna Schmidt.")
        tally.drain()
        assert (first, len(scribe.texts)) == (1, 1)


def test_a_summarizer_is_given_the_newest_texts_that_it_declares_to_take(
    open_tally: OpenTally,
) -> None:
    scribe = Scribe()
    newest = [*BOATS[1:], *MORE]
    longest = len("\n".join(newest))
    scribe.declaration = scribe.declaration.model_copy(update={"longest_text": longest})
    with open_tally(settings=ON, summarizer=scribe) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(map(named, [*BOATS, *MORE]))
        tally.drain()
        assert scribe.texts == ["\n".join(newest)]
        [community] = communities_of(alice)
        assert {alice.get(each).content for each in community.sources} == set(newest)


def test_what_stays_on_this_machine_is_not_sent_away(open_tally: OpenTally) -> None:
    scribe = Scribe(local=False)
    with open_tally(settings=ON, summarizer=scribe) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(map(named, [*BOATS, *MORE]))
        alice.remember(
            "Anna Schmidt hid the key in Hamburg; sk-proj-aB3dE6gH9jK2mN5pQ8rT1vW4xY7zA0cF",
            attributes={"local_only": True},
        )
        alice.remember("In Hamburg Anna Schmidt uses ghp_aB3dE6gH9jK2mN5pQ8rT1vW4xY7zA0cF2hJk.")
        tally.drain()
        [sent] = scribe.texts
        assert "hid the key" not in sent
        assert "ghp_" not in sent


def test_a_summary_that_cannot_be_used_is_none(open_tally: OpenTally) -> None:
    class Silent(Scribe):
        def summarize(self, text: str, *, max_tokens: int) -> str:
            return " "

    scribe = Silent()
    with open_tally(settings=ON, summarizer=scribe) as tally:
        alice = tally.bind(ALICE)
        alice.remember_many(map(named, [*BOATS, *MORE]))
        tally.drain()
        [community] = communities_of(alice)
        assert community.summarized_by is None
        [job] = [job for job in tally.bind(ROOT).jobs.list() if job.kind == "summarize"]
        assert job.state not in ("done", "empty")


def test_a_memory_of_this_kind_that_somebody_remembered_is_theirs(open_tally: OpenTally) -> None:
    with open_tally(settings=ON) as tally:
        alice = tally.bind(ALICE)
        first, second = (alice.remember(text).id for text in BOATS[:2])
        own = alice.remember(
            "The rowers of the north.", kind="community", derived_from=[first, second]
        ).id
        tally.drain()
        assert own in {memory.id for memory in alice.memories()}
        alice.forget(first, reason="not needed")
        assert alice.get(own).content == "The rowers of the north."
