"""Values are split and joined again; the quick bytes of messages are LangGraph's own; an edit is
always noticed.
"""

from __future__ import annotations

import copy
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tallystick.checkpoints import ListValue, Value
from tallystick.checkpoints.codec import Codec
from tallystick.checkpoints.values import share_with_base
from tallystick_langgraph.serde import TallySerializer
from tallystick_langgraph.splitting import ElementSplitter

CODEC = Codec(b"k" * 32)
SPLITTER = ElementSplitter(TallySerializer())
OFFICIAL = JsonPlusSerializer(allowed_msgpack_modules=None)

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_scalars = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | _text
)
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)
_bags = st.dictionaries(_text, _json, max_size=3)
_ids = st.none() | st.text(string.hexdigits, min_size=1, max_size=8)
_contents = _text | st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, _text), max_size=3
)
_calls = st.lists(
    st.builds(
        lambda name, args: {"name": name, "args": args, "id": "c", "type": "tool_call"},
        _text,
        _bags,
    ),
    max_size=2,
)
messages = st.one_of(
    st.builds(HumanMessage, content=_contents, id=_ids, additional_kwargs=_bags),
    st.builds(SystemMessage, content=_text, id=_ids),
    st.builds(AIMessage, content=_contents, id=_ids, tool_calls=_calls, response_metadata=_bags),
    st.builds(ToolMessage, content=_text, tool_call_id=_text, artifact=_json, id=_ids),
    st.builds(AIMessageChunk, content=_text, id=_ids),
)
values = st.recursive(
    _scalars | messages | st.binary(max_size=200) | st.text("x", min_size=90, max_size=200),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)


def official(value: Any) -> Any:
    return OFFICIAL.loads_typed(OFFICIAL.dumps_typed(value))


@given(st.lists(messages, min_size=1, max_size=5))
def test_the_quick_bytes_of_messages_are_those_of_the_serializer(drawn: list[Any]) -> None:
    value = SPLITTER.split(drawn, None)

    assert isinstance(value, ListValue)
    assert list(value.elements) == [OFFICIAL.dumps_typed([message])[1][1:] for message in drawn]


@given(values)
def test_a_split_value_joins_to_what_the_serializer_reads(value: Any) -> None:
    tree = share_with_base(SPLITTER.split(value, None), None, CODEC)

    joined = SPLITTER.join(tree, "state")
    assert repr(joined) == repr(official(value))


@given(st.lists(messages, min_size=1, max_size=4))
def test_a_message_read_again_and_again_is_what_it_was_at_first(drawn: list[Any]) -> None:
    """The third time it is made without validation: equal, with the same fields set, and shared
    with nobody.
    """
    serde = TallySerializer()
    stored = serde.dumps_typed(drawn)
    read = [serde.loads_typed(stored) for _ in range(4)]

    for again in read:
        assert repr(again) == repr(OFFICIAL.loads_typed(stored))
        assert [message.model_fields_set for message in again] == [
            message.model_fields_set for message in OFFICIAL.loads_typed(stored)
        ]
    read[2][0].additional_kwargs["edited"] = True
    read[2][0].content = "edited"
    assert repr(read[3]) == repr(OFFICIAL.loads_typed(stored)) == repr(serde.loads_typed(stored))


def test_a_large_dict_keeps_its_entries_and_their_order() -> None:
    value = {f"file {number}": {"text": "x" * number} for number in range(200)}

    tree = share_with_base(SPLITTER.split(value, None), None, CODEC)
    assert list(SPLITTER.join(tree, "files").items()) == list(value.items())


@pytest.mark.soak
@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_every_edit_in_place_is_seen(drawn: list[Any], data: st.DataObject) -> None:
    """Long lists, whose stretches are compared at once, with one field of one message changed under
    the same object.
    """
    current = [copy.deepcopy(drawn[number % len(drawn)]) for number in range(140)]
    before = share_with_base(SPLITTER.split(current, None), None, CODEC)
    again = share_with_base(SPLITTER.split(current, before), before, CODEC)

    place = data.draw(st.integers(0, len(current) - 1))
    message = current[place]
    kind = data.draw(st.sampled_from(["content", "id", "nested", "type of a number", "element"]))
    if kind == "content":
        message.content = data.draw(_contents)
    elif kind == "id":
        message.id = data.draw(_ids)
    elif kind == "nested":
        message.additional_kwargs["edited"] = data.draw(_json)
    elif kind == "type of a number":
        message.additional_kwargs["n"] = 1
        before = share_with_base(SPLITTER.split(current, before), before, CODEC)
        message.additional_kwargs["n"] = data.draw(st.sampled_from([True, 1.0, 2]))
    else:
        current[place] = data.draw(messages)
    after = share_with_base(
        SPLITTER.split(current, again if kind != "type of a number" else before), before, CODEC
    )

    assert repr(SPLITTER.join(after, "state")) == repr(official(current))


def test_a_field_that_a_message_does_not_declare_is_kept() -> None:
    current = [HumanMessage("hi", id=str(number)) for number in range(80)]
    before = share_with_base(SPLITTER.split(current, None), None, CODEC)
    current[70].extra_field = "new"  # type: ignore[attr-defined]

    joined = SPLITTER.join(share_with_base(SPLITTER.split(current, before), before, CODEC), "state")
    assert joined[70].extra_field == "new"


def _chunks(value: Value) -> set[bytes]:
    from tallystick.checkpoints.values import all_chunks

    return {chunk.digest for chunk in all_chunks(value)}


@pytest.mark.parametrize(
    "edit", ["append", "replace one", "drop the first", "insert in the middle"]
)
def test_a_small_change_to_a_long_list_makes_few_new_chunks(edit: str) -> None:
    current: list[Any] = [
        HumanMessage(f"message {number}", id=str(number)) for number in range(5000)
    ]
    before = share_with_base(SPLITTER.split(current, None), None, CODEC)
    if edit == "append":
        current.append(HumanMessage("more", id="more"))
    elif edit == "replace one":
        current[2500] = HumanMessage("other", id="other")
    elif edit == "drop the first":
        del current[0]
    else:
        current.insert(2500, HumanMessage("other", id="other"))

    after = share_with_base(SPLITTER.split(current, before), before, CODEC)
    assert SPLITTER.join(after, "state") == current
    assert len(_chunks(after) - _chunks(before)) <= 4


@given(
    st.lists(st.binary(max_size=3), max_size=150),
    st.lists(
        st.tuples(
            st.integers(0, 200), st.integers(0, 40), st.lists(st.binary(max_size=3), max_size=70)
        ),
        max_size=8,
    ),
)
def test_any_sequence_of_splices_gives_the_elements_that_a_list_has(
    start: list[bytes], splices: list[tuple[int, int, list[bytes]]]
) -> None:
    from tallystick.checkpoints.values import PersistentList

    current = list(start)
    version = PersistentList().update(list(current), CODEC)
    for place, removed, added in splices:
        current[place : place + removed] = added
        version = version.update(list(current), CODEC)
        assert [element for span in version.spans for element in span.elements()] == current
        assert b"".join(version.contents()) == b"".join(current)
        assert len(version) == len(current)


def test_a_snapshot_of_a_delta_channel_shares_with_the_one_before() -> None:
    from langgraph.checkpoint.serde.types import _DeltaSnapshot

    current: list[Any] = [
        HumanMessage(f"message {number}", id=str(number)) for number in range(400)
    ]
    first = share_with_base(SPLITTER.split(_DeltaSnapshot(current), None), None, CODEC)
    more = [*current, HumanMessage("more", id="more")]
    second = share_with_base(SPLITTER.split(_DeltaSnapshot(more), None), None, CODEC)

    assert (
        SPLITTER.join(second, "messages") == official(_DeltaSnapshot(more)) == _DeltaSnapshot(more)
    )
    assert len(_chunks(second) - _chunks(first)) == 1
