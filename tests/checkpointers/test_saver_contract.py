"""What the savers that LangGraph ships promise beyond its conformance suite, asked of TallySaver on
every database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput
from tallystick_langgraph import TallySaver

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")


def _config(
    thread: Any = "t", namespace: str = "", id: str | None = None, **more: Any
) -> RunnableConfig:
    named = {} if id is None else {"checkpoint_id": id}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, **named, **more}}


def _put(
    saver: TallySaver, config: RunnableConfig, id: str, values: Any, **metadata: Any
) -> RunnableConfig:
    checkpoint: Any = {**empty_checkpoint(), "id": id, "channel_values": values}
    full_metadata: Any = metadata
    return saver.put(config, checkpoint, full_metadata, {})


def _got(saver: TallySaver, config: RunnableConfig) -> CheckpointTuple:
    stored = saver.get_tuple(config)
    assert stored is not None
    return stored


def _ids(saver: TallySaver, config: RunnableConfig | None, **options: Any) -> list[str]:
    return [checkpoint.checkpoint["id"] for checkpoint in saver.list(config, **options)]


NAMESPACES = [
    "",
    "child",
    "child:1",
    "child:1|grandchild:2",
    "child:",
    "Child",
    "chil_",
    "child%",
    "%",
    "*",
    "'",
    "|",
]


def test_a_namespace_is_compared_as_a_whole(open_tally: OpenTally) -> None:
    """No wildcard, separator, quote or letter of another case makes one namespace stand for
    another.
    """
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        for number, namespace in enumerate(NAMESPACES):
            stored = _put(
                saver, _config(namespace=namespace), f"{number:02}", {"n": namespace}, step=number
            )
            saver.put_writes(stored, [("n", namespace)], "task")
        saver.prune(["t"])

        for number, namespace in enumerate(NAMESPACES):
            checkpoint = _got(saver, _config(namespace=namespace))
            assert (checkpoint.checkpoint["channel_values"], checkpoint.pending_writes) == (
                {"n": namespace},
                [("task", "n", namespace)],
            )
            assert _ids(saver, _config(namespace=namespace)) == [f"{number:02}"]
        everywhere: RunnableConfig = {"configurable": {"thread_id": "t"}}
        assert _ids(saver, everywhere) == [
            f"{number:02}" for number in reversed(range(len(NAMESPACES)))
        ]
        assert saver.get_tuple(_config(namespace="child:1|grandchild")) is None


def test_metadata_join_what_the_config_and_the_step_say(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        config: RunnableConfig = {
            "configurable": {
                "thread_id": "t",
                "checkpoint_ns": "",
                "tenant": "acme",
                "__pregel_x": "hidden",
            },
            "metadata": {"run_id": "r1", "source": "config"},
        }
        _put(saver, config, "01", {}, source="loop", step=3, writes={"a": None})

        assert _got(saver, _config()).metadata == {
            "tenant": "acme",
            "run_id": "r1",
            "source": "loop",
            "step": 3,
            "writes": {"a": None},
        }


HOSTILE = [
    "plain",
    "dotted.key",
    "key with space",
    "quote'key",
    'double"key',
    "a' OR '1'='1",
    "$.step",
    "x') --",
    "%",
    "_",
    "snowman ☃",
    "",
]


def test_a_filter_means_its_letters(open_tally: OpenTally) -> None:
    """Whatever stands in a key or a value of a filter is compared, never run or matched as a
    pattern.
    """
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        for number, key in enumerate(HOSTILE):
            _put(saver, _config(), f"{number:02}", {}, **{key: key})

        for number, key in enumerate(HOSTILE):
            assert _ids(saver, _config(), filter={key: key}) == [f"{number:02}"]
            assert _ids(saver, _config(), filter={key: key + "x"}) == []
            assert _ids(saver, _config(), filter={"missing": None, key: key}) == [f"{number:02}"]


def test_filter_before_and_limit_work_together(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        for number in range(12):
            _put(
                saver,
                _config(),
                f"{number:02}",
                {},
                source="loop" if number % 2 else "input",
                step=number,
            )
            _put(saver, _config("u"), f"{number:02}", {}, source="loop", step=number)
        odd: Mapping[str, Any] = {"source": "loop"}

        assert _ids(saver, _config(), filter=odd, before=_config(id="08"), limit=2) == ["07", "05"]
        assert _ids(saver, _config(), filter=odd, before=_config(id="07"), limit=9) == [
            "05",
            "03",
            "01",
        ]
        assert _ids(saver, _config(), before=_config(id="05x"), limit=1) == ["05"]
        assert _ids(saver, _config(), filter=odd, limit=0) == []
        assert _ids(saver, _config(id="03"), filter=odd) == ["03"]
        assert len(_ids(saver, None, filter=odd)) == 18


def test_the_last_special_write_counts_and_the_first_ordinary_one(open_tally: OpenTally) -> None:
    """Also where both come in one call, as when a node that paused goes on: its answers grow while
    it runs.
    """
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        stored = _put(saver, _config(), "01", {})
        saver.put_writes(
            stored, [("__interrupt__", "age?"), ("__resume__", ["Ann"])], "task", "path"
        )
        saver.put_writes(
            stored,
            [("__resume__", ["Ann"]), ("__resume__", ["Ann", 42]), ("log", "first")],
            "task",
            "path",
        )
        saver.put_writes(
            stored,
            [("__resume__", ["lost"]), ("__resume__", ["Ann", 43]), ("log", "2nd")],
            "task",
            "path",
        )
        saver.put_writes(stored, [("__error__", "no luck")], "task", "path")
        saver.put_writes(stored, [("__scheduled__", "soon")], "other", "")

        assert _got(saver, stored).pending_writes == [
            ("other", "__scheduled__", "soon"),
            ("task", "__resume__", ["Ann", 43]),
            ("task", "__interrupt__", "age?"),
            ("task", "__error__", "no luck"),
            ("task", "log", "first"),
        ]


def test_writes_come_in_the_order_in_which_a_step_applies_them(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        stored = _put(saver, _config(), "01", {})
        for path, task in (
            ("~__pull__, b", "1"),
            ("~__pull__, a", "2"),
            ("", "9"),
            ("~__pull__, a", "10"),
        ):
            saver.put_writes(stored, [("x", 0), ("y", 1)], task, path)

        order = [(task, channel) for task, channel, _ in _got(saver, stored).pending_writes or []]
        assert order == [
            (task, channel) for task in ("9", "10", "2", "1") for channel in ("x", "y")
        ]


@pytest.mark.parametrize("thread", ["t", 7, "with space", "a/b", "%", "☃", "x" * 2000])
def test_any_name_of_a_thread_is_its_own(open_sqlite: OpenTally, thread: Any) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally.bind(ALICE))
        _put(saver, _config("other"), "01", {"n": "other"})
        _put(saver, _config(thread), "01", {"n": "mine"})
        mine = _got(saver, _config(thread)).checkpoint["channel_values"]
        saver.delete_thread(thread)

        assert mine == {"n": "mine"}
        assert saver.get_tuple(_config(thread)) is None
        assert _got(saver, _config("other")).checkpoint["channel_values"] == {"n": "other"}


def test_odd_values_come_back_as_they_were(open_tally: OpenTally) -> None:
    """Zeros in a text, lone halves of a pair, values that are none, and a checkpoint that says
    nothing of values.
    """
    values: dict[str, Any] = {
        "nul": "a\x00b",
        "none": None,
        "empty": "",
        "list": [],
        "dict": {},
        "bytes": b"\x00\xff",
        "channel\x00name": 1,
        "false": False,
        "zero": 0,
        "minus": -0.0,
        "far": 2**63,
        "nested": {"a": [{"b": {1, 2}}]},
    }
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        _put(saver, _config(), "01", values, note="a\x00b")
        bare: Any = {
            name: value for name, value in empty_checkpoint().items() if name != "channel_values"
        }
        bare["id"] = "01"
        saver.put(_config("u"), bare, {}, {})
        stored = _got(saver, _config())

        assert repr(sorted(stored.checkpoint["channel_values"].items())) == repr(
            sorted(values.items())
        )
        assert dict(stored.metadata) == {
            "note": "ab"
        }  # LangGraph itself takes zeros out of metadata.
        assert _ids(saver, _config(), filter={"note": "ab"}) == ["01"]
        assert _got(saver, _config("u")).checkpoint["channel_values"] == {}


def test_an_empty_checkpoint_id_is_the_latest_checkpoint(open_tally: OpenTally) -> None:
    """As with the savers that LangGraph ships, wherever a config may name a checkpoint."""
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        stored = _put(saver, _config(), "01", {"n": 1})
        _put(saver, stored, "02", {"n": 2})
        empty = _config(id="")

        assert _got(saver, empty).checkpoint["id"] == "02"
        assert _ids(saver, empty) == ["02", "01"]
        assert _ids(saver, _config(), before=empty) == ["02", "01"]
        assert [each.id for each in saver.history(empty, before=empty)] == ["02", "01"]
        _put(saver, _config("new", id=""), "01", {"n": 1})
        assert _got(saver, _config("new")).parent_config is None
        delta = saver.get_delta_channel_history(config=empty, channels=["n"])
        assert delta == saver.get_delta_channel_history(config=_config(id="02"), channels=["n"])
        with pytest.raises(InvalidInput, match="names no checkpoint"):
            saver.put_writes(empty, [("n", 1)], "task")


async def test_an_empty_checkpoint_id_is_the_latest_to_async_calls_and_graphs(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        saver = TallySaver(tally.bind(ALICE))
        graph = (
            StateGraph(MessagesState)
            .add_node("answer", lambda state: {"messages": [AIMessage("Yes.")]})
            .add_edge(START, "answer")
            .compile(checkpointer=saver)
        )
        latest, empty = _config(), _config(id="")
        await graph.ainvoke({"messages": [HumanMessage("One?")]}, latest)
        await graph.ainvoke({"messages": [HumanMessage("Two?")]}, empty)

        assert len(graph.get_state(empty).values["messages"]) == 4
        assert len((await graph.aget_state(latest)).values["messages"]) == 4
        assert len(list(graph.get_state_history(empty))) == 6
        checkpoint = await saver.aget_tuple(empty)
        assert checkpoint == await saver.aget_tuple(latest)
        assert len([each async for each in saver.alist(empty, before=empty)]) == 6
        graph.update_state(empty, {"messages": [HumanMessage("Three?")]})
        assert len(graph.get_state(latest).values["messages"]) == 5
