"""TallyStore: LangGraph's store contract on memory, and what only memory can do."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore, ToolNode
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from tallystick import Actor, Tally
from tallystick.errors import Denied, InvalidInput, StateConflict
from tallystick.tally import BoundTally
from tallystick.testing import HashEmbedder, StepClock
from tallystick.testing.adapter_contract import AdapterContract
from tallystick_langgraph import TallySaver, TallyStore

OpenTally = Callable[..., Tally]
ANNA, BEN = Actor(user="anna"), Actor(user="ben")
NOTES = ("notes", "birds")


def _keys(hits: Any) -> list[str]:
    return [item.key for item in hits]


@pytest.mark.smoke
def test_what_is_put_is_got_changed_and_deleted(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        store.put(
            NOTES,
            "heron",
            {"text": "nests in March", "seen": 3, "deep": {"list": [1, None, 2.5, True]}},
        )
        item = store.get(NOTES, "heron")
        assert item is not None
        assert (item.namespace, item.key) == (NOTES, "heron")
        assert item.value == {
            "text": "nests in March",
            "seen": 3,
            "deep": {"list": [1, None, 2.5, True]},
        }
        store.put(NOTES, "heron", {"text": "nests in April"})
        changed = store.get(NOTES, "heron")
        assert changed is not None
        assert changed.value == {"text": "nests in April"}
        assert changed.created_at == item.created_at
        assert changed.updated_at > item.updated_at
        store.delete(NOTES, "heron")
        assert store.get(NOTES, "heron") is None
        store.delete(NOTES, "heron")
        store.put(NOTES, "heron", {"text": "is back"})
        again = store.get(NOTES, "heron")
        assert again is not None
        assert again.created_at > item.created_at
    with open_tally() as tally:
        item_of_anna = TallyStore(tally.bind(ANNA)).get(NOTES, "heron")
        assert item_of_anna is not None
        assert item_of_anna.value == {"text": "is back"}


def test_an_item_is_a_memory_with_a_history(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        store = TallyStore(anna)
        store.put(NOTES, "heron", {"text": "nests in March"})
        store.put(NOTES, "heron", {"text": "nests in April"})
        (hit,) = anna.recall("When does the heron nest in April?", namespace=())
        assert '"nests in April"' in hit.memory.content
        assert [entry.event for entry in anna.history(hit.memory.id)] == ["ADD", "UPDATE"]
        assert len(hit.source_ids) == 2
        store.delete(NOTES, "heron")
        assert list(anna.recall("nests", namespace=())) == []
        anna.recover(hit.memory.id, reason="needed after all")
        item = store.get(NOTES, "heron")
        assert item is not None
        assert item.value == {"text": "nests in April"}
        anna.forget(hit.memory.id, reason="not ours")
        assert store.get(NOTES, "heron") is None


def test_equal_values_are_items_of_their_own(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        for key in ("a", "b"):
            store.put(NOTES, key, {"text": "same"})
        store.delete(NOTES, "a")
        assert _keys(store.search(NOTES)) == ["b"]


def test_items_are_found_by_the_fields_that_are_indexed(open_tally: OpenTally) -> None:
    with open_tally(embedder=HashEmbedder()) as tally:
        store = TallyStore(tally.bind(ANNA), index={"fields": ["text"]})
        store.put(NOTES, "heron", {"text": "The heron nests in reeds", "note": "pizza"})
        store.put(NOTES, "boat", {"text": "The boat is painted green", "note": "heron"})
        store.put(NOTES, "secret", {"text": "The heron sleeps"}, index=False)
        store.put(
            NOTES,
            "other",
            {"text": "nothing", "parts": [{"say": "the heron flies"}]},
            index=["parts[*].say"],
        )
        hits = store.search(NOTES, query="Where does the heron nest?", limit=4)
        assert [item.key for item in hits[:2]] == ["heron", "other"]
        scores = {item.key: item.score for item in hits}
        assert scores["secret"] is None
        assert 1.0 > (scores["heron"] or 0) > (scores["boat"] or 0)
        assert all(item.score is None for item in store.search(NOTES))
        store.put(NOTES, "heron", {"text": "The heron has moved to the museum"})
        assert store.search(NOTES, query="museum", limit=1)[0].key == "heron"
        moved = {item.key: item.score for item in store.search(NOTES, query="museum reeds")}
        assert (moved["heron"] or 0) > (scores["boat"] or 0)


def test_a_score_is_the_similarity_of_what_is_embedded(open_tally: OpenTally) -> None:
    """An application may compare it with a threshold: the best answer to nonsense is no answer."""
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        store.put(NOTES, "tea", {"text": "Anna drinks green tea in the morning"})
        store.put(NOTES, "car", {"text": "The car needs new tyres before winter"})

        def scores(query: str) -> dict[str, float]:
            return {item.key: item.score or 0.0 for item in store.search(NOTES, query=query)}

        tea, nonsense = scores("Which tea does she drink?"), scores("zzz")
        assert tea["tea"] > 2 * abs(tea["car"])
        assert tea["tea"] > 2 * max(nonsense.values(), default=0.0)
        assert scores("Anna drinks green tea in the morning")["tea"] > 0.9


@pytest.mark.parametrize("namespace", [("foo.bar",), ("foo", ""), ("foo", 1), ("\x00",)], ids=repr)
def test_a_label_that_no_namespace_may_have_is_refused_before_anything_is_written(
    open_sqlite: OpenTally, namespace: Any
) -> None:
    """LangGraph's own methods check the labels of `put` alone, and nobody those of a batch."""
    with open_sqlite() as tally:
        store = TallyStore(tally.bind(ANNA))
        good = PutOp(NOTES, "key", {"text": "fine"})
        for op in (
            PutOp(namespace, "key", {"text": "bad"}),
            GetOp(namespace, "key"),
            SearchOp(namespace),
            ListNamespacesOp(match_conditions=(MatchCondition("prefix", namespace),)),
        ):
            with pytest.raises(InvalidNamespaceError):
                store.batch([good, op])
            with pytest.raises(InvalidNamespaceError):
                asyncio.run(store.abatch([good, op]))
        assert store.list_namespaces() == []


def test_a_filter_key_with_periods_is_a_path_unless_it_is_a_key(open_tally: OpenTally) -> None:
    with open_tally(clock=StepClock()) as tally:
        store = TallyStore(tally.bind(ANNA))
        store.put(NOTES, "nested", {"user": {"level": 3, "name": "Ben"}})
        store.put(NOTES, "flat", {"user.level": 3})
        store.put(NOTES, "neither", {"user": "level"})

        assert _keys(store.search(NOTES, filter={"user.level": 3})) == ["flat", "nested"]
        assert _keys(store.search(NOTES, filter={"user.level": {"$gt": 2}})) == ["flat", "nested"]
        assert _keys(store.search(NOTES, filter={"user.name": "Ben"})) == ["nested"]
        assert _keys(store.search(NOTES, filter={"user.level": None})) == ["neither"]

        saver = TallySaver(tally.bind(ANNA))
        rows: dict[str, dict[str, Any]]
        rows = {"1": {"user": {"level": 3}}, "2": {"user.level": 3}, "3": {}}
        for id, metadata in rows.items():
            checkpoint: Any = {**empty_checkpoint(), "id": id}
            config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            stored: Any = {**metadata, "step": 1}
            saver.put(config, checkpoint, stored, {})
        for filter, ids in ({"user.level": 3, "step": 1}, ["2", "1"]), ({"user.level": 4}, []):
            found = saver.list(None, filter=filter, limit=2)
            assert [each.checkpoint["id"] for each in found] == ids


def test_a_sweeper_forgets_what_expired_and_ends_with_the_tally(open_sqlite: OpenTally) -> None:
    clock = StepClock()
    with open_sqlite(clock=clock) as tally:
        often: Any = {"default_ttl": 1, "sweep_interval_minutes": 0.0001}
        store = TallyStore(tally.bind(ANNA), ttl=often)
        assert store.index_config is None
        store.put(NOTES, "key", {"text": "gone soon"})
        swept = threading.Event()
        sweep, forgotten = store.sweep_ttl, []

        def count() -> int:
            forgotten.append(sweep())
            if sum(forgotten):
                swept.set()
            return forgotten[-1]

        store._sweeper._sweep = count
        clock.advance(seconds=120)
        future = store.start_ttl_sweeper()
        again = store.start_ttl_sweeper(sweep_interval_minutes=60)
        assert swept.wait(60)
        assert tally.bind(ANNA).memories(kinds=["store_item"]) == []
        assert store.stop_ttl_sweeper(timeout=60)
        future.result(timeout=60)
        assert not again.done()
        cancelled = store.start_ttl_sweeper()
        assert cancelled.cancel()
        assert store.stop_ttl_sweeper()
        last = store.start_ttl_sweeper()
    last.result(timeout=60)
    assert not [each for each in threading.enumerate() if each.name == "tallystick-sweeper"]
    with open_sqlite() as tally:
        store = TallyStore(tally.bind(ANNA), index={"fields": ["text"]})
        assert store.start_ttl_sweeper().done()
        assert store.index_config == {"fields": ["text"]}


def test_filters_compare_and_page(open_tally: OpenTally) -> None:
    with open_tally(clock=StepClock()) as tally:
        store = TallyStore(tally.bind(ANNA))
        for number in range(6):
            store.put(
                NOTES,
                f"n{number}",
                {"number": number, "kind": "odd" if number % 2 else "even", "at": {"x": 1}},
            )
        assert _keys(store.search(NOTES)) == ["n5", "n4", "n3", "n2", "n1", "n0"]
        assert _keys(store.search(NOTES, limit=2, offset=1)) == ["n4", "n3"]
        assert _keys(store.search(NOTES, filter={"kind": "odd", "number": {"$gte": 3}})) == [
            "n5",
            "n3",
        ]
        assert _keys(store.search(NOTES, filter={"number": {"$gt": 1, "$lt": 4}})) == ["n3", "n2"]
        assert _keys(store.search(NOTES, filter={"number": {"$ne": 0, "$lte": 1}})) == ["n1"]
        assert len(store.search(NOTES, filter={"at": {"x": 1}})) == 6
        assert store.search(NOTES, filter={"absent": {"$gt": 1}}) == []
        with pytest.raises(InvalidInput, match=r"\$near"):
            store.search(NOTES, filter={"number": {"$near": 1}})


def test_a_few_are_found_among_many_newest_first(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        store.batch([PutOp(NOTES, f"{n:03}", {"even": n % 2 == 0}) for n in range(620)])
        for n in (7, 300, 8):
            store.put(NOTES, f"{n:03}", {"even": n % 2 == 0, "again": True})
        store.delete(NOTES, "300")
        assert _keys(store.search(NOTES, limit=3)) == ["008", "007", "000"]
        assert _keys(store.search(NOTES, filter={"even": True}, limit=3)) == ["008", "000", "002"]
        assert _keys(store.search(NOTES, filter={"even": False}, limit=2, offset=308)) == [
            "617",
            "619",
        ]
        assert len(store.search(NOTES, filter={"even": True}, limit=1_000)) == 309
        assert store.search(("notes", "bird")) == []


def test_namespaces_are_listed_by_their_ends_and_depth(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        for namespace in (("a", "b", "c"), ("a", "b", "d"), ("a", "x", "c"), ("e",)):
            store.put(namespace, "k", {"v": 1})
        assert store.list_namespaces(prefix=("a", "b")) == [("a", "b", "c"), ("a", "b", "d")]
        assert store.list_namespaces(suffix=("c",)) == [("a", "b", "c"), ("a", "x", "c")]
        assert store.list_namespaces(prefix=("a", "*", "c")) == [("a", "b", "c"), ("a", "x", "c")]
        assert store.list_namespaces(max_depth=2) == [("a", "b"), ("a", "x"), ("e",)]
        assert store.list_namespaces(limit=1, offset=1) == [("a", "b", "d")]
        store.delete(("e",), "k")
        assert ("e",) not in store.list_namespaces()


WICKED = [
    "a",
    "a%",
    "a_",
    "a*",
    "a?",
    "ab",
    'a","b',
    "a]",
    "[a",
    "'a'",
    '"',
    "ä",
    "é",
    "e\u0301",
    "😀",
    "a\\",
    "A",
    "a b",
]


def test_no_label_passes_for_another(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        for label in WICKED:
            store.put((label,), label, {"label": label})
            store.put((label, "under"), label, {"label": label})
        for label in WICKED:
            hits = store.search((label,), limit=100)
            assert {item.value["label"] for item in hits} == {label}
            assert len(hits) == 2
            (got,) = [
                store.get((label,), key) for key in WICKED if store.get((label,), key) is not None
            ]
            assert got is not None
            assert got.key == label
        assert len(store.list_namespaces(limit=1_000)) == 2 * len(WICKED)
        for bad in ((), ("a.b",), ("",), ("a\x00b",)):
            with pytest.raises((InvalidNamespaceError, InvalidInput)):
                store.put(bad, "k", {"v": 1})
        with pytest.raises(InvalidInput, match="NUL"):
            store.put(("a",), "k\x00", {"v": 1})


def test_another_actors_items_are_not_there(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna, ben = TallyStore(tally.bind(ANNA)), TallyStore(tally.bind(BEN))
        anna.put(NOTES, "k", {"text": "the heron"})
        assert ben.get(NOTES, "k") is None
        assert ben.search((), query="heron") == []
        assert ben.list_namespaces() == []
        ben.delete(NOTES, "k")
        assert anna.get(NOTES, "k") is not None
        with pytest.raises(Denied):
            TallyStore(tally.bind(BEN), scope="private:anna").get(NOTES, "k")


def test_an_item_ends_when_its_time_is_over_unless_it_is_read(open_tally: OpenTally) -> None:
    clock = StepClock(step=0)
    with open_tally(clock=clock) as tally:
        anna = tally.bind(ANNA)
        store = TallyStore(anna, ttl={"default_ttl": 10, "refresh_on_read": True})
        store.put(NOTES, "read", {"text": "heron"})
        store.put(NOTES, "unread", {"text": "boat"})
        store.put(NOTES, "lasting", {"text": "stone"}, ttl=None)
        clock.advance(seconds=8 * 60)
        assert store.get(NOTES, "read") is not None
        assert store.get(NOTES, "unread", refresh_ttl=False) is not None
        clock.advance(seconds=8 * 60)
        assert store.get(NOTES, "read") is not None
        assert store.get(NOTES, "unread") is None
        assert _keys(store.search(NOTES, refresh_ttl=False)) == ["lasting", "read"]
        assert [hit.memory.content for hit in anna.recall("boat", namespace=())] == []
        assert store.sweep_ttl() == 1
        assert store.sweep_ttl() == 0
        store.put(NOTES, "unread", {"text": "boat"})
        assert store.get(NOTES, "unread") is not None
        for never in (0, -1, float("inf"), float("nan")):
            with pytest.raises(InvalidInput, match="minutes"):
                store.put(NOTES, "k", {"text": "stone"}, ttl=never)


def test_a_pinned_item_is_not_changed_by_a_store(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        store = TallyStore(anna)
        store.put(NOTES, "k", {"text": "heron"})
        anna.modify(anna.memories()[0].id, pinned=True, reason="must stay")
        with pytest.raises(StateConflict):
            store.batch([PutOp(NOTES, "other", {"text": "new"}), PutOp(NOTES, "k", None)])
        assert store.get(NOTES, "other") is None
        store.put(NOTES, "k", {"text": "heron"})


def test_a_batch_reads_what_stood_before_it_and_the_last_put_counts(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        store.put(NOTES, "k", {"v": 0})
        got, _, listed, _, hits = store.batch(
            [
                GetOp(NOTES, "k"),
                PutOp(NOTES, "k", {"v": 1}),
                ListNamespacesOp(),
                PutOp(NOTES, "k", {"v": 2}),
                SearchOp(NOTES),
            ]
        )
        assert got.value == {"v": 0}  # type: ignore[union-attr]
        assert listed == [NOTES]
        assert [item.value for item in hits] == [{"v": 0}]  # type: ignore[union-attr]
        after = store.get(NOTES, "k")
        assert after is not None
        assert after.value == {"v": 2}


def test_it_works_without_threads_of_its_callers(open_tally: OpenTally) -> None:
    async def talk(store: BaseStore) -> None:
        await store.aput(NOTES, "k", {"v": 1})
        item = await store.aget(NOTES, "k")
        assert item is not None
        assert item.value == {"v": 1}
        assert _keys(await store.asearch(NOTES, query="v")) == ["k"]
        assert await store.alist_namespaces() == [NOTES]
        await store.adelete(NOTES, "k")
        assert await store.aget(NOTES, "k") is None

    with open_tally() as tally:
        asyncio.run(talk(TallyStore(tally.bind(ANNA))))


def test_a_store_opens_its_own_tally(tmp_path: Path) -> None:
    with TallyStore.from_conn_string(str(tmp_path / "tally")) as store:
        store.put(NOTES, "k", {"v": 1})

    async def read() -> Any:
        async with TallyStore.from_conn_string(str(tmp_path / "tally")) as store:
            return await store.aget(NOTES, "k")

    assert asyncio.run(read()).value == {"v": 1}


def test_threads_that_put_the_same_key_leave_one_item(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        store = TallyStore(anna)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda n: store.put(NOTES, f"k{n % 3}", {"v": n}), range(60)))
        assert sorted(_keys(store.search(NOTES, limit=100))) == ["k0", "k1", "k2"]
        assert len(anna.memories(limit=100)) == 3


def test_a_graph_uses_it_in_nodes_and_tools(open_tally: OpenTally) -> None:
    @tool
    def note(text: str, store: Annotated[Any, InjectedStore()]) -> str:
        """Note something."""
        store.put(("noted",), "last", {"text": text})
        return "noted"

    def ask(state: MessagesState, config: RunnableConfig, *, store: BaseStore) -> dict[str, Any]:
        call: Any = {
            "name": "note",
            "args": {"text": str(state["messages"][-1].content)},
            "id": "c1",
        }
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def answer(state: MessagesState) -> dict[str, Any]:
        hits = get_store().search(("noted",), query="heron")
        return {"messages": [AIMessage(hits[0].value["text"] if hits else "nothing")]}

    with open_tally() as tally:
        builder = (
            StateGraph(MessagesState)
            .add_node(ask)
            .add_node("tools", ToolNode([note]))
            .add_node(answer)
        )
        builder.add_edge(START, "ask").add_edge("ask", "tools").add_edge("tools", "answer")
        graph: Any = builder.compile(checkpointer=TallySaver(tally), store=TallyStore(tally))
        for actor in (ANNA, BEN):
            config = {"configurable": {"thread_id": "t", "actor": actor}}
            reply = graph.invoke({"messages": [("user", f"{actor.user} saw a heron")]}, config)
            assert reply["messages"][-1].content == f"{actor.user} saw a heron"
            assert len(tally.bind(actor).memories()) == 1


def test_an_erased_item_leaves_no_address_and_an_export_brings_the_others(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    operator = Actor(user="anna", role="operator")
    with open_sqlite(owner=operator) as tally:
        anna = tally.bind(operator)
        store = TallyStore(anna)
        store.put(("private", "zanzibar"), "quetzal", {"text": "the heron"})
        store.put(NOTES, "boat", {"text": "is green"})
        (hit,) = anna.recall("heron", limit=1, namespace=())
        shown = anna.operator.erase(hit.memory.id, reason="asked for")
        anna.operator.erase(
            hit.memory.id, reason="asked for", mode="apply", confirm_token=shown.confirm_token
        )
        assert anna.operator.prove_erased(hit.memory.id, text="zanzibar").holds
        assert store.list_namespaces() == [NOTES]
        anna.operator.export(tmp_path / "export")
    with Tally.open(tmp_path / "other", owner=operator, background=False) as tally:
        tally.bind(operator).operator.import_from(tmp_path / "export")
        item = TallyStore(tally.bind(operator)).get(NOTES, "boat")
        assert item is not None
        assert item.value == {"text": "is green"}


# Against LangGraph's own

labels = st.lists(st.sampled_from(["a", "b", "a%", "c_"]), min_size=1, max_size=3).map(tuple)
keys = st.sampled_from(["k", "l", "m"])
values = st.dictionaries(
    st.sampled_from(["x", "y"]), st.integers(0, 3) | st.sampled_from(["s", None]), max_size=2
)
filters = st.none() | st.dictionaries(
    st.sampled_from(["x", "y"]), st.integers(0, 3) | st.just("s"), max_size=2
)
ops = st.one_of(
    st.tuples(labels, keys, st.none() | values).map(lambda given: PutOp(*given)),
    st.tuples(labels, keys).map(lambda given: GetOp(*given)),
    st.tuples(labels, filters, st.integers(1, 20)).map(lambda given: SearchOp(*given)),
    st.tuples(st.none() | st.integers(1, 3), st.integers(1, 20)).map(
        lambda given: ListNamespacesOp(None, *given)
    ),
)


def _plain(result: Any) -> Any:
    if isinstance(result, list):
        return sorted(map(_plain, result))
    if result is None or isinstance(result, tuple):
        return result
    return (result.namespace, result.key, repr(sorted(result.value.items())))


@hypothesis_settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(write_queue=st.lists(st.lists(ops, max_size=5), max_size=8))
def test_any_batches_do_what_langgraphs_own_store_does(
    open_sqlite: OpenTally, write_queue: list[list[Any]]
) -> None:
    with open_sqlite() as tally:
        ours, theirs = TallyStore(tally.bind(ANNA)), InMemoryStore()
        for namespace in ours.list_namespaces(limit=1_000):
            for item in ours.search(namespace, limit=1_000):
                ours.delete(item.namespace, item.key)
        for batch in write_queue:
            held = {item.namespace for item in theirs.search((), limit=1_000)}
            mine, others = ours.batch(batch), theirs.batch(batch)
            for op, got, expected in zip(batch, mine, others, strict=True):
                if isinstance(op, SearchOp):
                    # Ours are newest first, theirs oldest first: the limit chooses others.
                    assert len(got) == len(expected)  # type: ignore[arg-type]
                elif isinstance(op, ListNamespacesOp):
                    # Theirs lists a namespace from which something absent was deleted.
                    assert (
                        got == sorted({namespace[: op.max_depth] for namespace in held})[: op.limit]
                    )
                else:
                    assert _plain(got) == _plain(expected)
        every = SearchOp((), limit=1_000)
        assert _plain(ours.batch([every])[0]) == _plain(theirs.batch([every])[0])


def test_what_cannot_be_kept_is_refused_and_keeps_nothing(open_tally: OpenTally) -> None:
    deep: Any = 1
    for _ in range(9_999):
        deep = [deep]
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        for key, value in (
            ("k", {"v": object()}),
            ("k", {"v": deep}),
            ("\ud800", {"v": 1}),
            ("\x00", {"v": 1}),
        ):
            with pytest.raises(InvalidInput):
                store.put(NOTES, key, value)
            assert store.get(NOTES, key) is None
        assert store.search(NOTES) == []


class TestStore(AdapterContract):
    """What is put is a memory like any other; a store has no place for reasons, and shows what
    stands.
    """

    verbs = frozenset({"recall", "remember", "modify", "forget"})
    shows = frozenset(("active",))
    fills = True
    reasons: ClassVar[Mapping[str, str]] = {
        "modify": "put in the store",
        "forget": "deleted from the store",
    }
    keeps_recalls = True

    def stored_fields(self, content: str) -> dict[str, Any]:
        value = {"namespace": NOTES, "key": "heron", "value": {"text": content}}
        text = json.dumps(value, ensure_ascii=False)
        return {"content": text, "kind": "store_item", "attributes": {"store_index": ["$"]}}

    def store_memories(self, bound: BoundTally, contents: Sequence[str]) -> list[str]:
        store = TallyStore(bound)
        for content in contents:
            store.put(NOTES, content, {"text": content})
        return [
            item.memory.id
            for content in contents
            for item in bound.items.find(NOTES)
            if item.key == content
        ]

    def recall(self, bound: BoundTally, query: str) -> Sequence[str]:
        hits = TallyStore(bound).search(NOTES, query=query)
        ids = {item.key: item.memory.id for item in bound.items.find(NOTES)}
        return [ids[item.key] for item in hits]

    def remember(self, bound: BoundTally, content: str) -> None:
        TallyStore(bound).put(NOTES, "heron", {"text": content})

    def modify(
        self, bound: BoundTally, memory_id: str, content: str, reason: str, if_version: int
    ) -> None:
        TallyStore(bound).put(NOTES, self._key(bound, memory_id), {"text": content})

    def forget(self, bound: BoundTally, memory_id: str, reason: str) -> None:
        TallyStore(bound).delete(NOTES, self._key(bound, memory_id))

    def _key(self, bound: BoundTally, memory_id: str) -> str:
        [key] = [item.key for item in bound.items.find(NOTES) if item.memory.id == memory_id]
        return key


def test_a_store_is_refused_where_direct_calls_are_and_changes_nothing(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        member, scope = Actor(user="anna", projects={"birds"}), "project:birds"
        TallyStore(tally.bind(member, scope)).put(NOTES, "heron", {"text": "kept"})
        direct, through = tally.bind(BEN, scope), TallyStore(tally.bind(BEN, scope))
        for refused, same in (
            (
                lambda: direct.recall("heron", namespace=()),
                lambda: through.search(NOTES, query="heron"),
            ),
            (
                lambda: direct.remember("mine"),
                lambda: through.put(NOTES, "heron", {"text": "mine"}),
            ),
            (lambda: direct.remember("mine"), lambda: through.delete(NOTES, "heron")),
        ):
            reasons = []
            for call in (refused, same):
                with pytest.raises(Denied) as error:
                    call()
                reasons.append((error.value.reason, error.value.decision.operation))
                assert error.value.decision.audit_id is not None
            assert reasons[0] == reasons[1]
        item = TallyStore(tally.bind(member, scope)).get(NOTES, "heron")
        assert item is not None
        assert item.value == {"text": "kept"}


def test_what_was_recalled_stands_in_an_item_and_is_not_found_by_it(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember("The albatross sleeps on the wing.")
        pack = anna.pack("where does the albatross sleep?")
        store = TallyStore(anna)
        store.put(NOTES, "seen", {"text": pack.text, "own": "a gull"})

        item = store.get(NOTES, "seen")

        assert item is not None
        assert item.value == {"text": pack.text, "own": "a gull"}
        assert [hit.memory.kind for hit in anna.recall("albatross sleep wing", namespace=())] == [
            "note"
        ]
        assert [hit.memory.kind for hit in anna.recall("gull", namespace=())] == ["store_item"]


def test_the_history_of_what_a_graph_stores_names_its_thread(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))

        def node(state: MessagesState) -> dict[str, Any]:
            get_store().put(NOTES, "heron", {"text": "nests"})
            return {"messages": []}

        graph = (
            StateGraph(MessagesState).add_node("n", node).add_edge(START, "n").compile(store=store)
        )
        graph.invoke({"messages": []}, {"configurable": {"thread_id": "chat-7"}})
        [memory] = tally.bind(ANNA).memories()
        assert [entry.session_id for entry in tally.bind(ANNA).history(memory.id)] == ["chat-7"]


def test_a_value_of_any_depth_that_is_kept_can_be_read_from_any_depth_of_calls(
    open_tally: OpenTally,
) -> None:
    def from_below(calls: int, read: Callable[[], Any]) -> Any:
        return from_below(calls - 1, read) if calls else read()

    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        kept = 0
        for depth in (60, 500, 950, 980):
            value: Any = "heron"
            for _ in range(depth):
                value = {"in": value}
            try:
                store.put(NOTES, str(depth), value)
                kept += 1
            except InvalidInput:
                assert depth > 60
        assert len(from_below(400, lambda: store.search(NOTES))) == kept >= 1


def test_a_filter_compares_integers_of_any_size_as_they_are(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        for key, value in (("huge", 10**400), ("odd", 2**53 + 1), ("text", "12"), ("none", None)):
            store.put(NOTES, key, {"n": value})
        assert set(_keys(store.search(NOTES, filter={"n": {"$gt": 11}}))) == {"huge", "odd", "text"}
        assert set(_keys(store.search(NOTES, filter={"n": {"$gt": 2**53}}))) == {"huge", "odd"}
        assert _keys(store.search(NOTES, filter={"n": {"$gte": 10**400}})) == ["huge"]


@pytest.mark.parametrize(
    "search",
    [
        {"filter": "heron"},
        {"filter": {1: "heron"}},
        {"filter": {"n": {"$gt": 0, "other": 1}}},
        {"filter": {"n": {"deep": [{"$near": 1}]}}},
        {"limit": -1},
        {"offset": -1},
        {"limit": "3"},
        {"query": ["heron"]},
    ],
)
def test_a_search_that_means_nothing_is_refused_before_anything_is_read(
    open_tally: OpenTally, search: dict[str, Any]
) -> None:
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        store.put(NOTES, "heron", {"n": {"deep": [1]}})
        with pytest.raises(InvalidInput):
            store.search(NOTES, **search)


def test_a_page_may_be_as_long_as_anybody_says(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        store = TallyStore(tally.bind(ANNA))
        store.put(NOTES, "heron", {"text": "nests"})
        for query in (None, "nests"):
            assert _keys(store.search(NOTES, query=query, limit=2**64)) == ["heron"]
            assert store.search(NOTES, query=query, offset=2**64) == []


@pytest.mark.parametrize("ttl", ["5", True, float("nan"), -1])
def test_a_ttl_is_a_number_of_minutes(open_tally: OpenTally, ttl: Any) -> None:
    with open_tally() as tally, pytest.raises(InvalidInput, match="ttl"):
        TallyStore(tally.bind(ANNA)).put(NOTES, "heron", {"text": "nests"}, ttl=ttl)
