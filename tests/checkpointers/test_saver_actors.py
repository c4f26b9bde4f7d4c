"""Who acts goes along with every config that TallySaver hands out, and a thread's id is nobody's
authority.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import interrupt

from tallystick import Actor, CallContext, Tally
from tallystick.errors import Denied
from tallystick_langgraph import TallySaver, TallyStore

OpenTally = Callable[..., Tally]
ADA, BOB = Actor(user="ada"), Actor(user="bob")
_reducer: Any = _messages_delta_reducer


class _Delta(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_reducer, snapshot_frequency=4)]


class _Plain(TypedDict):
    messages: Annotated[list[Any], add_messages]


@dataclass(frozen=True)
class Person:
    """The entries of a config that name a person."""

    configurable: Mapping[str, Any]
    metadata: Mapping[str, Any]

    def config(self, thread: str = "t", **places: Any) -> Any:
        return {
            "configurable": {"thread_id": thread, **self.configurable, **places},
            "metadata": dict(self.metadata),
        }


def _person(metadata: Mapping[str, Any] | None = None, **configurable: Any) -> Person:
    return Person(configurable, metadata or {})


OWNER = _person()
PEOPLE = {
    "owner": (OWNER,),
    "user_id": (_person(user_id="ada"),),
    "langgraph_auth_user_id": (_person(langgraph_auth_user_id="ada"),),
    "actor": (_person(actor=ADA),),
    "metadata": (_person({"user_id": "ada", "tag": "x"}),),
    "two users": (_person(user_id="ada"), _person(user_id="bob")),
}


def _answer(state: Any) -> dict[str, Any]:
    count = len(state["messages"])
    return {"messages": [AIMessage(f"answer {count}", id=f"a{count}")]}


def _chat(saver: TallySaver, schema: Any = _Plain, node: Any = _answer) -> Any:
    builder = StateGraph(schema).add_node("answer", node)
    return builder.add_edge(START, "answer").add_edge("answer", END).compile(checkpointer=saver)


def _said(*words: str) -> Any:
    return {"messages": [HumanMessage(word, id=word) for word in words]}


def _words(state: Any) -> list[str]:
    return [message.text for message in state.values.get("messages", [])]


class Calls:
    """The calls of a graph and of its saver, synchronous or asynchronous."""

    def __init__(self, graph: Any, *, is_async: bool) -> None:
        self._graph, self._is_async = graph, is_async

    def __getattr__(self, name: str) -> Callable[..., Any]:
        owner = self._graph if hasattr(self._graph, name) else self._graph.checkpointer

        def call(*args: Any, **options: Any) -> Any:
            if not self._is_async:
                result = getattr(owner, name)(*args, **options)
                return list(result) if isinstance(result, Iterator) else result
            return asyncio.run(_awaited(getattr(owner, f"a{name}")(*args, **options)))

        return call


async def _awaited(result: Any) -> Any:
    if isinstance(result, AsyncIterator):
        return [each async for each in result]
    return await result


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("schema", [_Plain, _Delta], ids=["plain", "delta"])
@pytest.mark.parametrize("people", PEOPLE.values(), ids=PEOPLE)
def test_state_history_changes_and_forks_work_for_whoever_is_named(
    open_sqlite: OpenTally, people: tuple[Person, ...], schema: Any, is_async: bool
) -> None:
    with open_sqlite() as tally:
        calls = Calls(_chat(TallySaver(tally), schema), is_async=is_async)
        for person in people:
            for word in ("one", "two", "three"):
                calls.invoke(_said(word), person.config())

        for person in people:
            config = person.config()
            told = ["one", "answer 1", "two", "answer 3", "three", "answer 5"]
            assert _words(calls.get_state(config)) == told
            history = calls.get_state_history(config)
            assert [len(_words(state)) for state in history] == [6, 5, 4, 4, 3, 2, 2, 1, 0]
            # Each of these goes on with what was handed out, and with nothing else.
            for state in history:
                assert _words(calls.get_state(state.config)) == _words(state)
                if state.parent_config is not None:
                    calls.get_state(state.parent_config)
            assert _words(calls.get_state(history[3].config)) == told[:4]
            forked = calls.update_state(history[3].config, _said("a fork"))
            assert _words(calls.get_state(forked)) == [*told[:4], "a fork"]
            replayed = calls.invoke(None, history[4].config)
            assert [message.text for message in replayed["messages"]] == told[:4]
            calls.update_state(config, _said("the end"))
            assert _words(calls.get_state(config))[-1] == "the end"


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("people", PEOPLE.values(), ids=PEOPLE)
def test_the_state_of_subgraphs_is_that_of_whoever_is_named(
    open_sqlite: OpenTally, people: tuple[Person, ...], is_async: bool
) -> None:
    def ask(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage(str(interrupt("Go on?")))]}

    inner = StateGraph(_Plain).add_node("ask", ask).add_edge(START, "ask").compile()
    with open_sqlite() as tally:
        calls = Calls(_chat(TallySaver(tally), _Plain, inner), is_async=is_async)
        for person in people:
            calls.invoke(_said("one"), person.config())
            [task] = calls.get_state(person.config(), subgraphs=True).tasks
            assert _words(task.state) == ["one"]
            [task] = calls.get_state(person.config()).tasks
            assert _words(calls.get_state(task.state)) == ["one"]


@pytest.mark.parametrize("name", [name for name in PEOPLE if name not in ("owner", "two users")])
def test_a_config_that_was_handed_out_has_the_keys_that_named_who_acts(
    open_sqlite: OpenTally, name: str
) -> None:
    [person] = PEOPLE[name]
    with open_sqlite() as tally:
        chat = _chat(TallySaver(tally))
        chat.invoke(_said("one"), person.config())
        saver: TallySaver = chat.checkpointer
        stored = saver.get_tuple(person.config())
        assert stored is not None
        assert stored.parent_config is not None
        listed = next(iter(saver.list(person.config())))
        keys = {**person.metadata, **person.configurable}
        keys.pop("tag", None)
        put = saver.put(person.config(checkpoint_ns="copy"), stored.checkpoint, {}, {})
        for config in (stored.config, stored.parent_config, listed.config, put):
            named = dict(config.get("configurable", {}))
            place = {named.pop(key) for key in ("thread_id", "checkpoint_ns", "checkpoint_id")}
            assert (named, len(place)) == (keys, 3)
        assert stored.metadata.get("tag") == person.metadata.get("tag")


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("schema", [_Plain, _Delta], ids=["plain", "delta"])
@pytest.mark.parametrize("people", PEOPLE.values(), ids=PEOPLE)
def test_threads_are_copied_and_deleted_and_items_found_for_whoever_is_named(
    open_sqlite: OpenTally, people: tuple[Person, ...], schema: Any, is_async: bool
) -> None:
    with open_sqlite() as tally:
        store = TallyStore(tally)

        def note(state: Any) -> dict[str, Any]:
            words = [message.text for message in state["messages"]]
            store.put(("notes",), words[-1], {"text": words[-1]})
            return {"messages": [AIMessage(f"{len(store.search(('notes',)))} notes")]}

        async def note_later(state: Any) -> dict[str, Any]:
            words = [message.text for message in state["messages"]]
            await store.aput(("notes",), words[-1], {"text": words[-1]})
            return {"messages": [AIMessage(f"{len(await store.asearch(('notes',)))} notes")]}

        node = note_later if is_async else note
        calls = Calls(_chat(TallySaver(tally), schema, node), is_async=is_async)
        for number, person in enumerate(people):
            calls.invoke(_said(f"said {number}"), person.config())
        for number, person in enumerate(people):
            user = {**person.metadata, **person.configurable}
            actor = user.pop("actor", None) or Actor(user=user.get("user_id") or "ada")
            bound = tally.bind() if person is OWNER else tally.bind(actor)
            own = Calls(_chat(TallySaver(bound), schema, node), is_async=is_async)
            own.copy_thread("t", "copy")
            own.delete_thread("t")
            assert _words(calls.get_state(person.config("copy"))) == [f"said {number}", "1 notes"]
            assert calls.get_state(person.config()).values.get("messages", []) == []
            [found] = Calls(_Held(TallyStore(bound)), is_async=is_async).search(("notes",))
            assert found.value == {"text": f"said {number}"}


@dataclass
class _Held:
    """A store where `Calls` looks for what it calls."""

    checkpointer: Any


def test_what_a_config_carries_is_a_name_and_no_credential(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        chat = _chat(TallySaver(tally))
        chat.invoke(_said("one"), {"configurable": {"thread_id": "t", "user_id": "ada"}})
        handed = chat.get_state({"configurable": {"thread_id": "t", "user_id": "ada"}}).config

        def refused(saver: TallySaver, **more: Any) -> str:
            config: Any = {"configurable": {**handed["configurable"], **more}}
            with pytest.raises(Denied) as no:
                _chat(saver).get_state(config)
            return no.value.reason

        assert refused(TallySaver(tally.bind(BOB))) == "principal_mismatch"
        assert refused(TallySaver(tally), actor=BOB) == "principal_mismatch"
        assert refused(TallySaver(tally), langgraph_auth_user_id="bob") == "principal_mismatch"
        # The id of a thread that was handed out is a text like any other.
        alone: Any = {"configurable": {"thread_id": handed["configurable"]["thread_id"]}}
        with pytest.raises(Denied, match="missing_actor"):
            chat.get_state(alone)
        alone["configurable"]["user_id"] = "bob"
        assert chat.get_state(alone).values == {}


def test_the_runtime_context_and_a_run_under_way_go_along_too(open_sqlite: OpenTally) -> None:
    seen: list[Any] = []

    def look(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage("looked")]}

    with open_sqlite() as tally:
        schema: Any = dict
        builder = StateGraph(_Plain, context_schema=schema).add_node("look", look)
        chat: Any = builder.add_edge(START, "look").compile(checkpointer=TallySaver(tally))
        for context in ({"user_id": "ada"}, ADA):
            for chunk in chat.stream(
                _said("one"),
                {"configurable": {"thread_id": "t"}},
                context=context,
                stream_mode="checkpoints",
            ):
                seen.append(chunk["config"])
        assert tally.bind(ADA).threads.names() == ["t"]
        assert _words(chat.get_state(seen[-1]))[:2] == ["one", "looked"]
        with tally.bind(BOB).run("agent"):
            chat.update_state({"configurable": {"thread_id": "t"}}, _said("from bob"))
            handed = chat.get_state({"configurable": {"thread_id": "t"}}).config
        assert _words(chat.get_state(handed)) == ["from bob"]


@pytest.mark.parametrize("schema", [_Plain, _Delta], ids=["plain", "delta"])
@pytest.mark.parametrize("place", ["configurable", "metadata"])
@pytest.mark.parametrize("of_tally", [False, True], ids=["of the saver", "of the tally"])
def test_a_function_that_falls_back_is_asked_about_the_same_call(
    open_sqlite: OpenTally, schema: Any, place: str, of_tally: bool
) -> None:
    def actor(call: CallContext) -> Actor:
        named = getattr(call, place).get("customer")
        return Actor(user=f"customer-{named}" if named else "guest")

    config: Any = {"configurable": {"thread_id": "t"}}
    config.setdefault(place, {})["customer"] = 7
    options = {"actor_from": actor} if of_tally else {}
    with open_sqlite(**options) as tally:
        chat = _chat(TallySaver(tally) if of_tally else TallySaver(tally, actor=actor), schema)
        for word in ("one", "two"):
            chat.invoke(_said(word), config)
        assert len(_words(chat.get_state(config))) == 4
        history = list(chat.get_state_history(config))
        assert [len(_words(chat.get_state(state.config))) for state in history] == [
            4,
            3,
            2,
            2,
            1,
            0,
        ]
        assert _words(chat.get_state(chat.update_state(history[0].config, _said("x"))))[-1] == "x"
        assert tally.bind(Actor(user="guest")).threads.names() == []


def test_a_function_that_answers_otherwise_for_what_was_handed_out_is_an_error(
    open_sqlite: OpenTally,
) -> None:
    request = {"user": "ada"}

    def actor(call: CallContext) -> Actor:
        return Actor(user=request.get("user", "guest"))

    with open_sqlite() as tally:
        chat = _chat(TallySaver(tally, actor=actor))
        config: Any = {"configurable": {"thread_id": "t"}}
        chat.invoke(_said("one"), config)
        handed = chat.get_state(config).config
        request.clear()
        for call in (chat.get_state, lambda given: chat.invoke(None, given)):
            with pytest.raises(Denied) as no:
                call(handed)
            assert no.value.reason == "principal_mismatch"
        # A thread of the same name that nobody handed out is another thread.
        assert chat.get_state(config).values == {}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_call_with_an_id_alone_acts_as_whom_the_saver_is_bound_to_or_is_refused(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    with open_sqlite() as tally:
        chat = _chat(TallySaver(tally))
        chat.invoke(_said("one"), {"configurable": {"thread_id": "t", "user_id": "ada"}})
        handed = chat.get_state({"configurable": {"thread_id": "t", "user_id": "ada"}}).config
        thread = handed["configurable"]["thread_id"]
        calls = Calls(chat, is_async=is_async)
        with pytest.raises(Denied, match=r"missing_actor.*tally\.bind\(Actor"):
            calls.delete_thread(thread)
        for name, arguments in (
            ("copy_thread", (thread, "copy")),
            ("prune", ([thread],)),
            ("delete_for_runs", (["r"],)),
        ):
            with pytest.raises(Denied, match="missing_actor"):
                getattr(calls, name)(*arguments)
        assert tally.bind(ADA).threads.names() == ["t"]

        own = Calls(_chat(TallySaver(tally.bind(ADA))), is_async=is_async)
        own.copy_thread("t", "copy")
        own.prune(["copy"])
        own.delete_thread("t")
        assert tally.bind(ADA).threads.names() == ["copy"]
        others = Calls(_chat(TallySaver(tally.bind(BOB))), is_async=is_async)
        others.copy_thread("copy", "mine")
        others.delete_thread("copy")
        assert (tally.bind(ADA).threads.names(), tally.bind(BOB).threads.names()) == (["copy"], [])


class _Server:
    """The part of LangGraph's server by which it says whose request is under way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._user: ContextVar[str | None] = ContextVar("user", default=None)
        module = ModuleType("langgraph_api.utils")
        module.get_auth_ctx = self._context  # type: ignore[attr-defined]
        module.get_user_id = lambda user: user.identity  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "langgraph_api.utils", module)

    def _context(self) -> Any:
        user = self._user.get()
        return None if user is None else SimpleNamespace(user=SimpleNamespace(identity=user))

    @contextmanager
    def request(self, user: str | None) -> Iterator[None]:
        token = self._user.set(user)
        try:
            yield
        finally:
            self._user.reset(token)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("schema", [_Plain, _Delta], ids=["plain", "delta"])
def test_in_a_server_whoever_is_authenticated_acts_where_a_call_names_nobody(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch, schema: Any, is_async: bool
) -> None:
    server = _Server(monkeypatch)
    with open_sqlite() as tally:
        store = TallyStore(tally)
        calls = Calls(_chat(TallySaver(tally), schema), is_async=is_async)
        config: Any = {"configurable": {"thread_id": "t"}}
        for user in ("ada", "bob"):
            with server.request(user):
                calls.invoke(_said(user), config)
                store.put(("notes",), "key", {"text": user})
        for user in ("ada", "bob"):
            with server.request(user):
                history = calls.get_state_history(config)
                assert [_words(state)[:1] for state in history] == [[user], [user], []]
                handed = history[0].config
                assert handed["configurable"]["langgraph_auth_user_id"] == user
                assert _words(calls.get_state(handed))[0] == user
                assert [item.value["text"] for item in store.search(("notes",))] == [user]
                calls.copy_thread("t", "copy")
                calls.delete_thread("t")
                other: Any = {"configurable": {"thread_id": "copy", "user_id": "zoe"}}
                with pytest.raises(Denied) as no:
                    calls.get_state(other)
                assert no.value.reason == "principal_mismatch"
            with server.request("zoe"), pytest.raises(Denied) as no:
                calls.get_state(handed)
            assert no.value.reason == "principal_mismatch"
            with server.request(user):
                other_saver = TallySaver(tally.bind(Actor(user="zoe")))
                with pytest.raises(Denied, match="another actor"):
                    other_saver.delete_thread("copy")
        assert [tally.bind(each).threads.names() for each in (ADA, BOB)] == [["copy"]] * 2
        with server.request(None), pytest.raises(Denied, match="missing_actor"):
            calls.delete_thread("copy")


def test_a_server_without_authentication_serves_the_owner(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = _Server(monkeypatch)
    with open_sqlite() as tally, server.request(None):
        chat = _chat(TallySaver(tally))
        chat.invoke(_said("one"), {"configurable": {"thread_id": "t"}})
        chat.checkpointer.copy_thread("t", "copy")
        assert tally.bind().threads.names() == ["t", "copy"]


def test_a_function_sees_whom_a_server_authenticated_also_for_an_id_alone(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = _Server(monkeypatch)

    def actor(call: CallContext) -> Actor:
        return Actor(user=f"server-{call.configurable['langgraph_auth_user_id']}")

    with open_sqlite() as tally, server.request("ada"):
        chat = _chat(TallySaver(tally, actor=actor))
        chat.invoke(_said("one"), {"configurable": {"thread_id": "t"}})
        chat.checkpointer.copy_thread("t", "copy")
        assert tally.bind(Actor(user="server-ada")).threads.names() == ["t", "copy"]


def test_a_store_search_acts_as_the_one_whose_node_asks(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        store = TallyStore(tally)
        found: list[Any] = []

        def note(state: Any, config: RunnableConfig) -> dict[str, Any]:
            user = config.get("configurable", {})["user_id"]
            store.put(("notes",), "key", {"text": f"a note of {user}"})
            found.append([item.value["text"] for item in store.search(("notes",))])
            return {}

        graph = StateGraph(_Plain).add_node("note", note).add_edge(START, "note").compile()
        for user in ("ada", "bob"):
            graph.invoke(_said("one"), {"configurable": {"user_id": user}})
        assert found == [["a note of ada"], ["a note of bob"]]
        with pytest.raises(Denied, match="missing_actor"):
            store.search(("notes",))
