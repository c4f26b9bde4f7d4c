"""LlamaIndex memory: conversations last, fit their budget, and stay apart; nodes are compiled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import MockLLM, mock
from llama_index.core.memory import Memory
from llama_index.core.schema import NodeWithScore, TextNode

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput
from tallystick.records.framing import OPEN
from tallystick.tally import BoundTally
from tallystick.testing.adapter_contract import AdapterContract
from tallystick_llama_index import TallyMemory, TallyMemoryBlock, TallyNodePostprocessor

OpenTally = Callable[..., Tally]
HEARD = [""]


class _Hearing(MockLLM):
    """Says nothing and keeps what it was given."""

    def chat(self, messages: Any, **kwargs: Any) -> Any:
        HEARD[0] = "\n".join(message.content or "" for message in messages)
        return super().chat(messages, **kwargs)


async def _closed(memory: Memory) -> None:
    """LlamaIndex leaves the database of its memory open."""
    engine: Any = getattr(memory.sql_store, "_async_engine")  # noqa: B009
    await engine.dispose()


class TestMemory(AdapterContract):
    """A session's turns, and what is recalled from elsewhere."""

    verbs = frozenset({"remember", "context"})

    def stored_fields(self, content: str) -> dict[str, Any]:
        message = _user(content).model_dump(mode="json")
        attributes = {"llama_index_message": message}
        return {
            "content": content,
            "kind": "turn",
            "speaker": "user",
            "conversation": "s1",
            "attributes": attributes,
        }

    def store_memories(self, bound: BoundTally, contents: Sequence[str]) -> list[str]:
        return [one.id for one in bound.remember_many(list(contents))]

    def remember(self, bound: BoundTally, content: str) -> None:
        TallyMemory.from_defaults(bound, session_id="s1").put(_user(content))

    def context(self, bound: BoundTally, query: str) -> str:
        HEARD[0] = ""
        memory = TallyMemory.from_defaults(bound, session_id="s1")
        SimpleChatEngine.from_defaults(llm=_Hearing(max_tokens=None), memory=memory).chat(query)
        return HEARD[0]


class TestMemoryBlock(TestMemory):
    """What falls out of the queue of LlamaIndex's own memory."""

    def stored_fields(self, content: str) -> dict[str, Any]:
        fields = super().stored_fields(content)
        fields["attributes"]["llama_index_message"]["additional_kwargs"] = {"session_id": "s1"}
        return fields

    def remember(self, bound: BoundTally, content: str) -> None:
        asyncio.run(TallyMemoryBlock(bound).aput([_user(content)], session_id="s1"))

    def context(self, bound: BoundTally, query: str) -> str:
        return asyncio.run(self._given(bound, query))

    async def _given(self, bound: BoundTally, query: str) -> str:
        memory = Memory.from_defaults(session_id="s1", memory_blocks=[TallyMemoryBlock(bound)])
        try:
            await memory.aput(_user(query))
            return "\n".join(message.content or "" for message in await memory.aget())
        finally:
            await _closed(memory)


ANNA, BEN = Actor(user="anna"), Actor(user="ben")


def _user(text: str) -> ChatMessage:
    return ChatMessage(text, role=MessageRole.USER)


def _assistant(text: str) -> ChatMessage:
    return ChatMessage(text, role=MessageRole.ASSISTANT)


def calling(name: str) -> ChatMessage:
    """A message that calls a tool, as this release of LlamaIndex writes it."""
    block = getattr(types, "ToolCallBlock", None)
    if block is not None:
        call_block = block(tool_call_id=name, tool_name="weigh", tool_kwargs={"boat": name})
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=[call_block])
    function = {"name": "weigh", "arguments": json.dumps({"boat": name})}
    attributes = {"tool_calls": [{"id": name, "type": "function", "function": function}]}
    return ChatMessage(role=MessageRole.ASSISTANT, additional_kwargs=attributes)


def _called(name: str) -> list[ChatMessage]:
    return [
        calling(name),
        ChatMessage("three tons", role=MessageRole.TOOL, additional_kwargs={"tool_call_id": name}),
    ]


def test_a_session_goes_on_where_it_ended(open_tally: OpenTally) -> None:
    messages = [_user("Weigh the boat."), *_called("c1"), _assistant("Three tons.")]
    with open_tally() as tally:
        TallyMemory.from_defaults(tally.bind(ANNA), session_id="one").put_messages(messages)
    with open_tally() as tally:
        memory = TallyMemory.from_defaults(tally.bind(ANNA), session_id="one")
        assert memory.get_all() == messages
        assert memory.get() == messages
        assert TallyMemory.from_defaults(tally.bind(ANNA), session_id="two").get_all() == []
        assert TallyMemory.from_defaults(tally.bind(BEN), session_id="one").get_all() == []


def test_what_was_said_elsewhere_is_recalled_before_the_request(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember("The key is under the mat.")
        memory = TallyMemory.from_defaults(anna, session_id="one")
        memory.put_messages([_user("Hello."), _assistant("Hello!"), _user("Where is the key?")])
        first, second, context, request = memory.get("Where is the key?")
        assert (first.content, second.content, request.content) == (
            "Hello.",
            "Hello!",
            "Where is the key?",
        )
        assert "under the mat" in str(context.content)
        assert str(context.content).startswith(OPEN)
        # A chat engine asks before it puts: then the request is not among the messages.
        before = memory.get("And the shed?")
        assert before[:2] == [first, second]
        assert "And the shed?" not in [message.content for message in before]


def test_a_long_session_fits_its_budget(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        memory = TallyMemory.from_defaults(tally.bind(ANNA), token_limit=600, memories=0)
        memory.put(_user("The key is under the mat, remember that."))
        for number in range(40):
            memory.put_messages(
                [
                    _user(f"River, part {number}?"),
                    *_called(f"c{number}"),
                    _assistant(f"{number} bends."),
                ]
            )
        messages = memory.get("Where is the key?")
        count = tally.count_tokens
        assert sum(count(message.content or "") + 4 for message in messages) <= 600
        assert any("under the mat" in (message.content or "") for message in messages)
        assert len(memory.get_all()) == 161
        small = memory.get("Where is the key?", initial_token_count=300)
        assert sum(count(message.content or "") + 4 for message in small) <= 300


def test_a_session_can_be_set_and_reset(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        memory = TallyMemory.from_defaults(anna)
        memory.set([_user("one"), _assistant("two")])
        memory.set([_user("one"), _assistant("two"), _user("three")])
        assert [message.content for message in memory.get_all()] == ["one", "two", "three"]
        memory.set([_user("four")])
        assert [message.content for message in memory.get_all()] == ["four"]
        memory.reset()
        assert memory.get_all() == []
        assert len(anna.memories(states=["deleted"])) == 4
        with pytest.raises(InvalidInput, match="tally"):
            TallyMemory.from_defaults()


def test_a_block_gives_nothing_again_that_was_forgotten_since(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        memory_id = anna.remember("The key is under the mat.").id
        block = TallyMemoryBlock(anna)

        def asked() -> str:
            return asyncio.run(block.aget([_user("Where is the key?")], session_id="one"))

        assert "under the mat" in asked()
        anna.forget(memory_id, reason="moved")
        assert asked() == ""


def test_a_block_recalls_anew_once_messages_have_left_the_queue(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        block = TallyMemoryBlock(anna)

        def asked() -> str:
            return asyncio.run(block.aget([_user("Where is the key?")], session_id="one"))

        assert asked() == ""
        asyncio.run(block.aput([_user("The key is under the mat.")], session_id="one"))
        assert "under the mat" in asked()


def test_the_same_words_after_a_reset_are_recalled_anew(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        memory = TallyMemory.from_defaults(anna, session_id="one")

        def asked() -> str:
            memory.put(_user("Where is the key?"))
            return " ".join(message.content or "" for message in memory.get())

        assert "under the mat" not in asked()
        memory.reset()
        anna.remember("The key is under the mat.")
        assert "under the mat" in asked()


blocks = st.one_of(
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=20
    ).map(lambda text: TextBlock(text=text)),
    st.just(ImageBlock(url="https://example.org/boat.png")),
)
messages = st.builds(
    ChatMessage,
    role=st.sampled_from([MessageRole.USER, MessageRole.ASSISTANT]),
    blocks=st.lists(blocks, min_size=1, max_size=3),
    additional_kwargs=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9), max_size=2),
)


@hypothesis_settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(messages, max_size=5))
def test_any_message_comes_back_as_it_was(open_sqlite: OpenTally, said: list[ChatMessage]) -> None:
    with open_sqlite() as tally:
        memory = TallyMemory.from_defaults(tally.bind(ANNA), session_id="one")
        memory.reset()
        memory.put_messages(said)
        assert memory.get_all() == said


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
def test_an_agent_works_with_it(open_sqlite: OpenTally) -> None:
    model = getattr(mock, "MockFunctionCallingLLM", None)
    if model is None:
        pytest.skip("this release of LlamaIndex has no model of its own that calls functions")
    seen: list[list[ChatMessage]] = []

    def answer(prompt: Any, *_: Any, **__: Any) -> ChatMessage:
        seen.append(list(prompt))
        return _assistant("Under the mat.")

    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember("The key is under the mat.")
        memory = TallyMemory.from_defaults(anna, session_id="one")
        agent = FunctionAgent(tools=[], llm=model(response_generator=answer))

        async def talk() -> str:
            return str(await agent.run("Where is the key?", memory=memory))

        assert asyncio.run(talk()) == "Under the mat."
        assert any("under the mat" in (message.content or "") for message in seen[0])
        assert [message.content for message in memory.get_all()] == [
            "Where is the key?",
            "Under the mat.",
        ]
        # What was recalled is not captured back.
        assert len(anna.memories()) == 3


def test_a_chat_engine_works_with_it(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        memory = TallyMemory.from_defaults(tally.bind(ANNA))
        engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
        engine.chat("Hello.")
        engine.chat("Hello again.")
        assert [message.role.value for message in memory.get_all()] == ["user", "assistant"] * 2


def test_a_block_recalls_once_for_a_request_and_keeps_sessions_apart(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember("The key is under the mat.")
        block = TallyMemoryBlock(anna)

        async def ask() -> list[str]:
            memory = Memory.from_defaults(
                session_id="one", token_limit=60, token_flush_size=20, memory_blocks=[block]
            )
            await memory.aput_messages(
                [_user(f"Turn {number} of the river.") for number in range(12)]
            )
            await memory.aput(_user("Where is the key?"))
            result = [await memory.aget(), await memory.aget()]
            await _closed(memory)
            return [" ".join(message.content or "" for message in messages) for messages in result]

        first, second = asyncio.run(ask())
        assert "under the mat" in first
        assert first == second
        turns = [memory for memory in anna.memories() if memory.kind == "turn"]
        assert turns
        assert {memory.conversation for memory in turns} == {"one"}


def test_nodes_are_compiled_into_a_budget(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        long = "The harbour was closed. " * 30 + "Ferries leave at noon. " + "Nobody came. " * 30
        nodes = [
            NodeWithScore(node=TextNode(id_="a", text="Trains leave at six."), score=0.9),
            NodeWithScore(node=TextNode(id_="copy", text="Trains leave at six."), score=0.8),
            NodeWithScore(node=TextNode(id_="long", text=long, metadata={"page": 7}), score=0.7),
        ]
        keep = TallyNodePostprocessor(tally.bind(ANNA), token_budget=250)
        selected_nodes = keep.postprocess_nodes(nodes, query_str="When do ferries leave?")
        assert [node.node.node_id for node in selected_nodes] == ["a", "long"]
        text = selected_nodes[1].node.get_content()
        assert "Ferries leave at noon." in text
        assert len(text) < len(long)
        assert selected_nodes[1].node.metadata["page"] == 7
        assert selected_nodes[1].score == 0.7


@pytest.mark.parametrize("limit", [1, 20, 50, 120, 400])
def test_a_small_limit_is_answered_with_the_last_turns_as_by_the_memory_of_llama_index(
    open_sqlite: OpenTally, limit: int
) -> None:
    """Nobody's agent ends because its memory is small: the last turn is there in any case."""
    history = [
        message
        for number in range(6)
        for message in (
            _user(f"Question {number}: where did the heron sleep last night?"),
            _assistant(f"Answer {number}: it slept in the reeds beside the boat house."),
        )
    ]
    with open_sqlite() as tally:
        memory = TallyMemory(tally, session_id="s", token_limit=limit)
        memory.put_messages(history)
        sent = asyncio.run(memory.aget())
        at_end = asyncio.run(memory.aget("And where did the fox sleep?"))
        count = tally.counter(None).count

    assert sent == history[-len(sent) :]
    assert sent[0].role == MessageRole.USER
    assert len(sent) >= 2
    assert at_end[-2:] == history[-2:]
    tokens = sum(count(message.content or "") for message in sent)
    assert len(sent) == 2 or tokens <= limit
    # What a limit leaves room for is used: no frame of ours takes it.
    assert limit != 120 or len(sent) >= 6


@pytest.mark.parametrize("limit", [50, 900])
def test_an_image_counts_as_in_the_memory_of_llama_index(
    open_sqlite: OpenTally, limit: int
) -> None:
    picture = ChatMessage(
        blocks=[TextBlock(text="What is this?"), ImageBlock(image=b"\x89PNG")], role="user"
    )
    with open_sqlite() as tally:
        memory = TallyMemory(tally, session_id="s", token_limit=limit)
        memory.put_messages([_user("Hello."), _assistant("Hello!"), picture])
        sent = memory.get()

    assert sent[-1] == picture
    assert (sent[0] == _user("Hello.")) == (limit == 900)


def test_a_result_in_a_small_memory_keeps_its_call(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        memory = TallyMemory(tally, session_id="s", token_limit=30)
        called = [_user("Find it. " * 20), *_called("search")]
        memory.put_messages([_user("Hello."), _assistant("Hello!"), *called])

        assert memory.get() == called


def test_instructions_of_a_session_stay_in_a_small_memory(open_sqlite: OpenTally) -> None:
    system = ChatMessage("Speak French.", role="system")
    with open_sqlite() as tally:
        memory = TallyMemory(tally, session_id="s", token_limit=25)
        memory.put_messages([system, _user("Hello. " * 20), _assistant("Salut!"), _user("More.")])

        assert memory.get() == [system, _user("More.")]
