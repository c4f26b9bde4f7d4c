"""What a graph keeps under a namespace reaches a call for that namespace, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda

from tallystick import Actor, Tally
from tallystick.errors import Denied, InvalidInput
from tallystick.operations import MEMORY_TOOLS
from tallystick.tally import BoundTally
from tallystick_langchain import TallyMiddleware, compile_messages
from tallystick_langgraph import TallyStore

OpenTally = Callable[..., Tally]
OWNER = Actor(user="local", role="operator")
ALLERGY = "Alice has a peanut allergy."


class Model(GenericFakeChatModel):
    """Plays its answers and keeps what it was sent."""

    sent: list[str] = []

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.sent.append("\n".join(str(message.text) for message in messages))
        return super()._generate(messages, *args, **kwargs)


def _with_items(tally: Tally) -> BoundTally:
    store = TallyStore(tally)
    store.put(("memories", "alice"), "k1", {"text": ALLERGY})
    store.put(("memories", "alicent"), "k2", {"text": "Alicent has a walnut allergy."})
    return tally.bind()


def _prompt(tally: Tally, **options: Any) -> str:
    model = Model(messages=iter(["ok"]), sent=[])
    agent = create_agent(model, [], middleware=[TallyMiddleware(tally, **options)])
    message: Any = {"messages": [HumanMessage("What allergy is there?", id="m1")]}
    config: Any = {"configurable": {"who": "alice"}}
    agent.invoke(message, config)
    return model.sent[0]


def test_no_call_without_a_namespace_is_given_an_item(open_tally: OpenTally) -> None:
    with open_tally(owner=OWNER) as tally:
        bound = _with_items(tally)
        assert list(bound.recall("allergy")) == []
        assert "allergy." not in _prompt(tally)
        messages = compile_messages([HumanMessage("allergy?", id="m1")], tally, budget=2_000)
        assert [message.text for message in messages] == ["allergy?"]
        assert "peanut" not in bound.pack("allergy", budget_tokens=500).text
        [memory_id, _] = [memory.id for memory in bound.memories()]
        bound.modify(memory_id, pinned=True, reason="important")
        assert "allergy" not in bound.wake(budget_tokens=500).text


def test_the_memory_tools_of_a_model_never_show_an_item(open_tally: OpenTally) -> None:
    with open_tally(owner=OWNER) as tally:
        bound = _with_items(tally)
        memory_id = bound.memories()[0].id
        for tool, arguments in (
            ("memory_search", {"query": "allergy"}),
            ("memory_list", {}),
            ("memory_get", {"memory_id": memory_id}),
            (
                "memory_modify",
                {"memory_id": memory_id, "content": "x", "reason": "x", "if_version": 1},
            ),
            ("memory_forget", {"memory_id": memory_id, "reason": "x"}),
        ):
            answer = MEMORY_TOOLS[tool].function(bound, **arguments)
            assert "allergy." not in str(answer)
            assert answer.get("memories", []) == []
        assert len(bound.items.find(("memories",))) == 2


def test_a_call_for_a_namespace_is_given_the_values_beneath_it_alone(
    open_tally: OpenTally,
) -> None:
    with open_tally(owner=OWNER) as tally:
        bound = _with_items(tally)
        [hit] = bound.recall("allergy", namespace=("memories", "alice"))
        assert ALLERGY in hit.memory.content
        assert len(bound.recall("allergy", namespace=("memories",))) == 2
        assert len(bound.recall("allergy", namespace=())) == 2
        assert list(bound.recall("allergy", namespace=("memories", "ali"))) == []
        assert len(bound.memories(namespace=("memories", "alice"))) == 1
        assert bound.memories(namespace=None) == []


def test_a_model_is_given_the_value_and_not_its_address(open_tally: OpenTally) -> None:
    with open_tally(owner=OWNER) as tally:
        _with_items(tally)
        prompt = _prompt(tally, namespace=("memories", "{who}"))
        assert ALLERGY in prompt
        assert "walnut" not in prompt
        assert "namespace" not in prompt
        assert "k1" not in prompt


TIMES = {"created_at": "2026-01-02T03:04:05+00:00", "modified_at": "2026-01-02T03:04:05+00:00"}


@pytest.mark.parametrize(
    ("value", "prompted"),
    [
        (
            {"content": f"# Notes\n{ALLERGY}", "encoding": "utf-8", **TIMES},
            f"- # Notes\n    {ALLERGY}",
        ),
        ({"content": ["# Notes", ALLERGY], **TIMES}, f"- # Notes\n    {ALLERGY}"),
        ({"content": ALLERGY, "since": TIMES["created_at"]}, '"since": "2026-01-02T'),
        ({"content": ALLERGY, "encoding": "utf-8", "place": "school"}, '"place": "school"'),
        ({"content": ["# Notes", ALLERGY]}, '["# Notes", "Alice'),
    ],
)
def test_of_a_file_a_model_is_given_its_text_and_of_anything_else_all_of_it(
    open_sqlite: OpenTally, value: dict[str, Any], prompted: str
) -> None:
    with open_sqlite(owner=OWNER) as tally:
        TallyStore(tally).put(("memories", "alice"), "/allergies.md", value)
        prompt = _prompt(tally, namespace=("memories", "{who}"))
        assert prompted in prompt
        assert ("encoding" in prompt, "modified_at" in prompt) == (
            "place" in value,
            False,
        )


def test_a_namespace_that_a_call_cannot_fill_is_refused(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        _with_items(tally)
        with pytest.raises(InvalidInput, match="tenant"):
            _prompt(tally, namespace=("memories", "{tenant}"))
        with pytest.raises(InvalidInput, match="`namespace` takes a list"):
            tally.bind().recall("allergy", namespace="memories")
        with pytest.raises(InvalidInput, match="Name the `namespace`"):
            tally.bind().recall("allergy", kinds=["store_item"])


# A namespace that names a user is that user's

ADA, BOB = Actor(user="ada"), Actor(user="bob")


def _refusals(store: TallyStore, namespace: tuple[str, ...]) -> list[str]:
    """Return the reasons for which each operation is refused."""
    reasons = []
    for operation in (
        lambda: store.put(namespace, "k", {"text": "a note"}),
        lambda: store.get(namespace, "k"),
        lambda: store.search(namespace),
        lambda: store.delete(namespace, "k"),
        lambda: asyncio.run(store.aput(namespace, "k", {"text": "a note"})),
    ):
        with pytest.raises(Denied) as no:
            operation()
        reasons.append(no.value.reason)
    return reasons


def _as_user(user: str, call: Callable[[], Any]) -> Any:
    """Make a call as code of a graph does whose config names a user."""
    config: Any = {"configurable": {"langgraph_user_id": user}}
    return RunnableLambda(lambda _: call()).invoke(None, config)


def test_beneath_a_template_each_reaches_the_items_of_their_own_label(
    open_tally: OpenTally,
) -> None:
    with open_tally(owner=OWNER) as tally:
        store = TallyStore(tally, namespace=("memories", "{langgraph_user_id}"))
        # Nobody has named ada to this tally before, and the owner would act.
        assert set(_refusals(store, ("memories", "ada"))) == {"principal_mismatch"}
        assert tally.bind().items.find() == []
        store.put(("facts", "ada"), "k", {"text": "a fact"})
        store.put(("memories", "local"), "k", {"text": "the owner's"})

        _as_user("ada", lambda: store.put(("memories", "ada"), "k", {"text": "ada's"}))
        with pytest.raises(Denied, match="another user"):
            _as_user("bob", lambda: store.put(("memories", "ada"), "k", {"text": "bob's"}))
        found = _as_user("ada", lambda: store.search(("memories",)))
        assert [item.value["text"] for item in found] == ["ada's"]
        assert tally.bind(BOB).items.find() == []
        bobs = TallyStore(tally.bind(BOB), namespace=("memories", "{user_id}"))
        with pytest.raises(Denied, match="another user"):
            bobs.get(("memories", "ada"), "k")


def test_a_call_that_names_nobody_leaves_a_users_namespace_to_the_user(
    open_tally: OpenTally,
) -> None:
    with open_tally(owner=OWNER) as tally:
        tally.bind(ADA).remember("I live in Oslo.")
        assert set(_refusals(TallyStore(tally), ("memories", "ada"))) == {"principal_mismatch"}
        assert set(_refusals(TallyStore(tally), ("ada", "memories"))) == {"principal_mismatch"}
        assert tally.bind().items.find() == []

        TallyStore(tally).put(("memories", "travel"), "k", {"text": "a note"})
        # Whoever is named, or bound, has a namespace for whatever they like.
        TallyStore(tally.bind()).put(("people", "ada"), "k", {"text": "the owner on ada"})
        TallyStore(tally.bind(ADA)).put(("memories", "ada"), "k", {"text": "ada's"})
        tally.bind(BOB).remember("I live in Bergen.")
        store = TallyStore(tally)
        _as_user("ada", lambda: store.put(("people", "bob"), "k", {"text": "ada on bob"}))
        assert [item.namespace for item in tally.bind(ADA).items.find()] == [
            ("people", "bob"),
            ("memories", "ada"),
        ]


def test_what_is_no_template_is_refused_when_it_is_given(open_tally: OpenTally) -> None:
    with open_tally(owner=OWNER) as tally:
        template: Any = "memories"
        with pytest.raises(InvalidInput, match="namespace"):
            TallyStore(tally, namespace=template)
