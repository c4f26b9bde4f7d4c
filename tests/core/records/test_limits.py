"""Limits: what one call cannot hand over is refused at the door, by an error of ours that says what
to do, and nothing is stored of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput
from tallystick.memory import Put
from tallystick.operations import MEMORY_TOOLS, OPERATIONS
from tallystick.records import _base as limits
from tallystick.records import require_json_size
from tallystick.settings import Settings
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")


def _nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"inner": value}
    return value


def _cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = [value, value]
    return value


UNSTORABLE = {
    "an integer of 5,000 digits": {"a": 10**5_000},
    "depth": _nested(500),
    "great depth": _nested(100_000),
    "a cycle": _cyclic(),
}


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("content", "x" * (1_024 * 1_024 + 1)),
        ("content", "ä" * (512 * 1_024 + 1)),
        *((name, "x" * 1_001) for name in ("speaker", "subject", "category", "conversation")),
        ("idempotency_key", "x" * 1_001),
        ("tags", ["x" * 1_001]),
        ("tags", [f"tag {number}" for number in range(1_001)]),
        ("attributes", {"text": "x" * 1_000_001}),
        *(("attributes", value) for value in UNSTORABLE.values()),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_a_memory_beyond_a_limit_is_refused_whole(
    open_sqlite: OpenTally, argument: str, value: Any
) -> None:
    with open_sqlite(embedder=HashEmbedder()) as tally:
        anna = tally.bind(ANNA)
        new = {"content": "The heron nests in March.", argument: value}
        with pytest.raises(InvalidInput) as refused:
            anna.remember(**new)
        assert refused.value.argument == argument
        assert anna.memories() == []
        if argument not in ("conversation", "idempotency_key"):
            kept = anna.remember("The owl nests in April.")
            with pytest.raises(InvalidInput):
                anna.modify(kept.id, **{argument: value}, reason="more")
            assert anna.get(kept.id).version == 1


def test_the_longest_memory_is_a_setting(open_sqlite: OpenTally) -> None:
    with open_sqlite(embedder=HashEmbedder(), settings=Settings(longest_memory_kb=2)) as tally:
        anna = tally.bind(ANNA)
        kept = anna.remember("a\ud800" * 512)
        for refuse in (
            lambda: anna.remember("x" * 2_049),
            lambda: anna.remember_many(["The heron.", "x" * 2_049]),
            lambda: anna.modify(kept.id, content="x" * 2_049, reason="more"),
            lambda: anna.items.put([Put(("notes",), "k", {"text": "x" * 2_049})]),
            lambda: MEMORY_TOOLS["memory_store"].operation.call(anna, {"content": "x" * 2_049}),
        ):
            with pytest.raises(InvalidInput, match="longest_memory_kb"):
                refuse()
        assert len(anna.memories()) == 1


def test_the_results_and_the_wait_of_every_verb_are_bounded(open_sqlite: OpenTally) -> None:
    """In Python and in the table from which the surfaces are made."""
    bounds = {"limit": 1_000, "timeout_ms": 60_000}
    with open_sqlite(embedder=HashEmbedder()) as tally:
        operator = tally.bind(Actor(user="root", role="operator"))
        for operation in OPERATIONS.values():
            for name in bounds.keys() & operation.arguments.model_fields.keys():
                required = {
                    field: "x"
                    for field, about in operation.arguments.model_fields.items()
                    if about.is_required()
                }
                for value in (bounds[name] + 1, 0):
                    with pytest.raises(InvalidInput, match=name):
                        operation.bind(operator)(**{**required, name: value})
                    with pytest.raises(InvalidInput, match=name):
                        operation.validate({**required, name: value})
        assert operator.recall("heron", limit=1_000).hits == ()
        for tool, most in (("memory_search", 50), ("memory_list", 100)):
            asked = {"query": "heron"} if tool == "memory_search" else {}
            refused = MEMORY_TOOLS[tool].function(operator, **asked, limit=most + 1)
            assert (refused["error"], f"1 to {most}" in refused["message"]) == (
                "InvalidInput",
                True,
            )


def test_a_memory_at_its_limits_is_stored_and_found(open_tally: OpenTally) -> None:
    with open_tally(embedder=HashEmbedder()) as tally:
        anna = tally.bind(ANNA)
        stored = anna.remember(
            "The heron nests in March.",
            speaker="s" * 1_000,
            subject="s" * 1_000,
            conversation="c" * 1_000,
            tags=[f"{number}{'t' * 100}" for number in range(1_000)],
            attributes={"texts": _nested(50), "number": 10**900, "half": "\ud800"},
        )
        assert anna.get(stored.id).attributes["number"] == 10**900
        assert anna.recall("heron")[0].memory.id == stored.id


def test_too_many_items_are_refused_before_anything_is_done(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_ITEMS", 3)
    with open_sqlite(embedder=HashEmbedder()) as tally:
        with pytest.raises(InvalidInput, match="several calls"):
            tally.bind(ANNA).remember_many(["a", "b", "c", "d"])
        assert tally.bind(ANNA).memories() == []


@pytest.mark.parametrize("name", UNSTORABLE)
def test_a_step_goes_on_after_what_cannot_be_recorded(open_sqlite: OpenTally, name: str) -> None:
    value = UNSTORABLE[name]
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        with pytest.raises(InvalidInput):
            anna.run("coder", metadata=value)
        with anna.run("coder", goal="half a sign: \ud83d, none: \x00") as run:
            with pytest.raises(InvalidInput):
                run.step("model_call", metadata=value)
            step = run.step("model_call")
            step.record("request", {"prompt": "Mend it."})
            if name != "depth":  # a payload may be as deep as a message is
                with pytest.raises(InvalidInput):
                    step.record("response", value)
            if "digits" not in name:
                with pytest.raises(InvalidInput):
                    step.record("response", {}, summary=value)
            receipt = step.end()
        assert receipt.entries[0].kind == "request"
        assert anna.recordings.verify(run.id).ok
        assert anna.recordings.run(run.id).goal == "half a sign: ?, none: \ufffd"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_ordinary_json_is_within_the_limits(value: dict[str, Any]) -> None:
    require_json_size("attributes", value)


@pytest.mark.parametrize(
    "name",
    ["user", "agent", "acting_for", "organization", "surface", "request_id", "session_id"],
)
def test_an_actor_has_no_name_that_nothing_could_be_remembered_under(name: str) -> None:
    """The speaker of a captured turn is the user, and a speaker has a limit."""
    fields = {"user": "ada", name: "x" * 1_001}
    with pytest.raises(InvalidInput, match=f"{name}: has 1,001 characters, and may have 1,000"):
        Actor(**fields)  # type: ignore[arg-type]
    assert Actor.load({**fields, name: "x" * 1_000})


def test_an_actor_has_no_project_or_delegation_with_a_name_too_long() -> None:
    for name in ("projects", "delegations"):
        with pytest.raises(InvalidInput, match=f"{name}: has 1,001 characters"):
            Actor.load({"user": "ada", name: ["apollo", "x" * 1_001]})
