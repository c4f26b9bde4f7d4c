"""Values become trees and come back; the quick bytes of messages are LangGraph's own; an edit is
always seen.
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

from tallystick.checkpoints import Run, Value
from tallystick.checkpoints.codec import Codec
from tallystick.checkpoints.values import planted
from tallystick_langgraph.serde import TallySerializer
from tallystick_langgraph.splitting import Split

CODEC = Codec(b"k" * 32)
SPLIT = Split(TallySerializer())
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
def test_the_quick_bytes_of_messages_are_those_of_the_serializer(found: list[Any]) -> None:
    run = SPLIT.planted(found, None)

    assert isinstance(run, Run)
    assert list(run.elements) == [OFFICIAL.dumps_typed([message])[1][1:] for message in found]


@given(values)
def test_what_is_planted_grows_to_what_the_serializer_reads(value: Any) -> None:
    tree = planted(SPLIT.planted(value, None), None, CODEC)

    grown = SPLIT.grown(tree, "state")
    assert repr(grown) == repr(official(value))


@given(st.lists(messages, min_size=1, max_size=4))
def test_a_message_read_again_and_again_is_what_it_was_at_first(found: list[Any]) -> None:
    """The third time it is made without validation: equal, with the same fields set, and shared
    with nobody.
    """
    serde = TallySerializer()
    stored = serde.dumps_typed(found)
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

    tree = planted(SPLIT.planted(value, None), None, CODEC)
    assert list(SPLIT.grown(tree, "files").items()) == list(value.items())


@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_every_edit_in_place_is_seen(drawn: list[Any], data: st.DataObject) -> None:
    """Long lists, whose stretches are compared at once, with one field of one message changed under
    the same object.
    """
    held = [copy.deepcopy(drawn[number % len(drawn)]) for number in range(140)]
    before = planted(SPLIT.planted(held, None), None, CODEC)
    again = planted(SPLIT.planted(held, before), before, CODEC)

    place = data.draw(st.integers(0, len(held) - 1))
    message = held[place]
    kind = data.draw(st.sampled_from(["content", "id", "nested", "type of a number", "element"]))
    if kind == "content":
        message.content = data.draw(_contents)
    elif kind == "id":
        message.id = data.draw(_ids)
    elif kind == "nested":
        message.additional_kwargs["edited"] = data.draw(_json)
    elif kind == "type of a number":
        message.additional_kwargs["n"] = 1
        before = planted(SPLIT.planted(held, before), before, CODEC)
        message.additional_kwargs["n"] = data.draw(st.sampled_from([True, 1.0, 2]))
    else:
        held[place] = data.draw(messages)
    after = planted(
        SPLIT.planted(held, again if kind != "type of a number" else before), before, CODEC
    )

    assert repr(SPLIT.grown(after, "state")) == repr(official(held))


def test_a_field_that_a_message_does_not_declare_is_kept() -> None:
    held = [HumanMessage("hi", id=str(number)) for number in range(80)]
    before = planted(SPLIT.planted(held, None), None, CODEC)
    held[70].extra_field = "new"  # type: ignore[attr-defined]

    grown = SPLIT.grown(planted(SPLIT.planted(held, before), before, CODEC), "state")
    assert grown[70].extra_field == "new"


def _parts(value: Value) -> set[bytes]:
    from tallystick.checkpoints.values import all_parts

    return {part.digest for part in all_parts(value)}


@pytest.mark.parametrize(
    "edit", ["append", "replace one", "drop the first", "insert in the middle"]
)
def test_a_small_change_to_a_long_list_makes_few_new_pieces(edit: str) -> None:
    held: list[Any] = [HumanMessage(f"message {number}", id=str(number)) for number in range(5000)]
    before = planted(SPLIT.planted(held, None), None, CODEC)
    if edit == "append":
        held.append(HumanMessage("more", id="more"))
    elif edit == "replace one":
        held[2500] = HumanMessage("other", id="other")
    elif edit == "drop the first":
        del held[0]
    else:
        held.insert(2500, HumanMessage("other", id="other"))

    after = planted(SPLIT.planted(held, before), before, CODEC)
    assert SPLIT.grown(after, "state") == held
    assert len(_parts(after) - _parts(before)) <= 4


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
    from tallystick.checkpoints.ropes import PersistentList

    held = list(start)
    rope = PersistentList().changed(list(held), CODEC)
    for place, removed, added in splices:
        held[place : place + removed] = added
        rope = rope.changed(list(held), CODEC)
        assert [element for segment in rope.segments for element in segment.elements()] == held
        assert b"".join(rope.contents()) == b"".join(held)
        assert len(rope) == len(held)


def test_a_snapshot_of_a_delta_channel_shares_with_the_one_before() -> None:
    from langgraph.checkpoint.serde.types import _DeltaSnapshot

    held: list[Any] = [HumanMessage(f"message {number}", id=str(number)) for number in range(400)]
    first = planted(SPLIT.planted(_DeltaSnapshot(held), None), None, CODEC)
    more = [*held, HumanMessage("more", id="more")]
    second = planted(SPLIT.planted(_DeltaSnapshot(more), None), None, CODEC)

    assert SPLIT.grown(second, "messages") == official(_DeltaSnapshot(more)) == _DeltaSnapshot(more)
    assert len(_parts(second) - _parts(first)) == 1
