"""The model of `ruled_llm` compiles the whole request, at the last place before it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
from tests.integrations.llama_scripted import Scripted, calls
from tests.integrations.runtimes.base import Script, call
from tests.integrations.runtimes.llama_index import LlamaIndex, ReAct

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, RequestDenied
from tallystick.records import PolicyRule
from tallystick.records.framing import OPEN
from tallystick_llama_index import TallyInstrumentation, TallyMemory, llm_call, ruled_llm

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")
KEY = "The key is under the mat."
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


class Heard(Scripted):
    """A scripted model that keeps the messages and the options that it was sent."""

    def __init__(self, *script: Any, **fields: Any) -> None:
        super().__init__(*script, **fields)
        self._heard: list[tuple[list[ChatMessage], dict[str, Any]]] = []

    @property
    def heard(self) -> list[tuple[list[ChatMessage], dict[str, Any]]]:
        return self._heard

    def chat(self, messages: Any, **kwargs: Any) -> Any:
        self._heard.append((list(messages), kwargs))
        return super().chat(messages, **kwargs)

    async def achat(self, messages: Any, **kwargs: Any) -> Any:
        self._heard.append((list(messages), kwargs))
        return await super().achat(messages, **kwargs)


def _user(text: str) -> ChatMessage:
    return ChatMessage(text, role="user")


def _assistant(text: str) -> ChatMessage:
    return ChatMessage(text, role="assistant")


def weigh(boat: str) -> str:
    """Weigh a boat."""
    return "three tons"


def _compiled(bound: Any) -> list[Any]:
    return [
        bound.recordings.compiled(step.id).compiled
        for run in reversed(bound.recordings.runs())
        for step in bound.recordings.steps(run.id)
        if step.step_kind == "model_call"
    ]


def test_the_whole_request_is_compiled_and_the_memory_of_the_agent_stays(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember(KEY)
        llm = Heard([call("weigh", boat="Mary")], "Three tons.")
        history = [_user("Hello?"), _assistant("Hello!")]
        memory = ChatMemoryBuffer.from_defaults(chat_history=list(history), token_limit=10_000)
        agent = FunctionAgent(
            llm=ruled_llm(anna, llm), tools=[weigh], system_prompt="Weigh.", streaming=False
        )

        async def talk() -> str:
            return str(await agent.run("Weigh the Mary, and where is the key?", memory=memory))

        with TallyInstrumentation(anna, strict=True):
            assert asyncio.run(talk()) == "Three tons."
        first, second = _compiled(anna)
        assert {first.coverage, second.coverage} == {"whole"}
        kinds = [item.kind for item in second.selected_items]
        assert sorted(set(kinds)) == sorted(
            ["system", "tool_schema", "user_msg", "assistant_msg", "memory", "tool_result"]
        )
        before, after = (messages for messages, _ in llm.heard)
        assert [message.role.value for message in before] == (
            ["system", "user", "assistant", "user", "user"]
        )
        # A prompt goes on as the one before, and what did not change is sent as it came in.
        assert after[: len(before)] == before
        assert before[1] is history[0]
        stored = memory.get_all()
        assert stored[:2] == history
        assert not any(OPEN in (message.content or "") for message in stored)


@pytest.mark.parametrize("context", ["request", "memory"])
def test_a_memory_beside_the_model_is_recalled_once(open_sqlite: OpenTally, context: Any) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember(KEY)
        llm = Heard("Hello!", "Under the mat.", "It is.")
        agent = FunctionAgent(llm=ruled_llm(anna, llm, context=context), tools=[], streaming=False)
        # The limit of the memory is too small for the conversation.
        memory = TallyMemory(anna, session_id="s1", token_limit=250)

        async def talk() -> None:
            for prompt in ("Hello? " * 200, "Where is the key?", "Really, the key is there?"):
                await agent.run(prompt, memory=memory)

        with TallyInstrumentation(anna, strict=True):
            asyncio.run(talk())
        texts = ["\n".join(each.content or "" for each in sent) for sent, _ in llm.heard]
        assert [text.count(KEY) for text in texts] == [1, 1, 1]
        assert [text.count("Really") for text in texts] == [0, 0, 1]
        assert ("Hello?" in texts[2]) == (context == "request")
        reads = [
            entry.kind
            for run in anna.recordings.runs()
            for step in anna.recordings.steps(run.id)
            for entry in anna.recordings.entries(step.id)
            if entry.kind == "memory_read"
        ]
        assert len(reads) == 3


def test_what_cannot_be_seen_into_passes_with_its_message_and_is_counted(
    open_sqlite: OpenTally,
) -> None:
    picture = ChatMessage(
        blocks=[TextBlock(text="What colour?"), ImageBlock(image=b"\x89PNG")], role="user"
    )
    said = [picture, _assistant("Blue.")]
    thinking = getattr(types, "ThinkingBlock", None)
    if thinking is not None:
        blocks = [thinking(content="The hull is blue, is it not. " * 200), TextBlock(text="Blue.")]
        said[1] = ChatMessage(blocks=blocks, role="assistant")
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        llm = Heard("Brown.")
        with TallyInstrumentation(anna, strict=True):
            ruled_llm(anna, llm).chat([*said, _user("And the mast?")])
        assert llm.heard[0][0] == [*said, _user("And the mast?")]
        [compiled] = _compiled(anna)
        tokens = {each.item_id: each.final_tokens for each in compiled.decisions}
        assert tokens["message-0"] > 256
        assert thinking is None or tokens["message-1"] > 1_000


def test_memory_alone_is_added_before_the_request_where_that_is_wanted(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember(KEY)
        llm = Heard("Under the mat.")
        sent = [ChatMessage("Be brief.", role="system"), _user("Where is the key?")]
        with TallyInstrumentation(anna, strict=True):
            ruled_llm(anna, llm, context="memory").chat(sent)
        system, memory, request = llm.heard[0][0]
        assert [system, request] == sent
        assert KEY in (memory.content or "")
        assert [compiled.coverage for compiled in _compiled(anna)] == ["recalled"]


@pytest.mark.parametrize("way", ["complete", "acomplete"])
def test_a_completion_is_compiled_too(open_sqlite: OpenTally, way: str) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember(KEY)
        llm = ruled_llm(anna, Scripted("Under the mat."))
        with TallyInstrumentation(anna, strict=True):
            if way == "complete":
                llm.complete("Where is the key?")
            else:
                asyncio.run(llm.acomplete("Where is the key?"))
        [compiled] = _compiled(anna)
        assert [item.kind for item in compiled.selected_items] == ["memory", "user_msg"]
        step = anna.recordings.steps(anna.recordings.runs()[0].id)[0]
        [request] = [each for each in anna.recordings.entries(step.id) if each.kind == "request"]
        sent: Any = request.payload
        prompt = sent["prompt"]
        assert prompt.endswith("\n\nWhere is the key?")
        assert KEY in prompt


def test_tools_that_a_caller_gives_as_schemas_are_compiled(open_sqlite: OpenTally) -> None:
    rules = [_rule("deny", "tool_schema")]
    with open_sqlite(rules=rules) as tally:
        llm = Heard("No.")
        tools = [FunctionTool.from_defaults(weigh).metadata.to_openai_tool(), {"type": "search"}]
        ruled_llm(tally.bind(ANNA), llm).chat([_user("How heavy?")], tools=tools)
        assert llm.heard[0][1] == {"tools": []}


def test_a_denied_request_is_not_made(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[_rule("deny", "user_msg")]) as tally:
        anna = tally.bind(ANNA)
        script = Script()
        llm = ruled_llm(anna, Scripted(script))
        with TallyInstrumentation(anna, strict=True), pytest.raises(RequestDenied):
            llm.chat_with_tools([FunctionTool.from_defaults(weigh)], "How heavy?")
        assert script.sent == []
        [step] = anna.recordings.steps(anna.recordings.runs()[0].id)
        assert (step.step_kind, step.status) == ("model_call", "failed")


@pytest.mark.parametrize("way", ["chat", "stream_chat", "achat", "astream_chat", "with tools"])
def test_a_call_in_a_run_is_recorded_without_an_instrumentation(
    open_sqlite: OpenTally, way: str
) -> None:
    async def read(llm: Any) -> list[Any]:
        if way == "achat":
            return [await llm.achat([_user("Hello?")])]
        return [piece async for piece in await llm.astream_chat([_user("Hello?")])]

    ways: dict[str, Callable[[Any], Any]] = {
        "chat": lambda llm: llm.chat([_user("Hello?")]),
        "stream_chat": lambda llm: list(llm.stream_chat([_user("Hello?")])),
        "with tools": lambda llm: list(llm.stream_chat_with_tools([], "Hello?")),
    }
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        llm = ruled_llm(anna, Scripted("Good morning, harbour."))
        with anna.run("pilot") as run:
            _ = ways[way](llm) if way in ways else asyncio.run(read(llm))
        [step] = anna.recordings.steps(run.id)
        # Early releases do not say what the model is called, but its class.
        assert str(step.name).lower() == "scripted"
        assert (step.step_kind, step.status) == ("model_call", "completed")
        entries = anna.recordings.entries(step.id)
        kinds = [entry.kind for entry in entries]
        assert kinds == ["memory_read", "compile_request", "compiled", "request", "response"]
        assert "harbour." in str(entries[-1].payload)
        assert anna.recordings.verify(run.id).ok


def test_the_working_memory_of_the_run_is_compiled_too(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        llm = Heard("Next the mast.")
        with anna.run("pilot"):
            anna.working.set("plan", "First the hull, then the mast.")
            ruled_llm(anna, llm).chat([_user("Which part of the plan is next?")])
        context, _ = llm.heard[0][0]
        assert "First the hull, then the mast." in (context.content or "")


def test_a_model_that_fails_fails_its_step(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        llm = ruled_llm(anna, Scripted(ConnectionError("busy")))
        with pytest.raises(ConnectionError), anna.run("pilot") as run:
            llm.chat([_user("Hello?")])
        [step] = anna.recordings.steps(run.id)
        assert step.status == "failed"


def test_a_stream_that_breaks_or_is_left_is_recorded_as_far_as_it_came(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        llm = ruled_llm(
            anna, Scripted(("Good ", "morning.", ConnectionError("busy")), "Left alone.")
        )
        with anna.run("pilot") as run:
            with pytest.raises(ConnectionError):
                list(llm.stream_chat([_user("Hello?")]))
            left = llm.stream_chat([_user("Hello?")])
            next(left)
            left.close()
        broken, stopped = anna.recordings.steps(run.id)
        assert (broken.status, stopped.status) == ("failed", "cancelled")
        for step, words in ((broken, "Good morning."), (stopped, "Left ")):
            [answer] = [e for e in anna.recordings.entries(step.id) if e.kind == "response"]
            assert f"'{words}'" in str(answer.payload)


def test_a_replay_sends_what_was_recorded(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember(KEY)
        llm = Heard("Under the mat.", "Under the mat.")
        with TallyInstrumentation(anna, strict=True):
            ruled_llm(anna, llm).chat([_user("Where is the key?")])
        [step] = anna.recordings.steps(anna.recordings.runs()[0].id)
        anna.recordings.replay(step.id, call=llm_call(ruled_llm(anna, llm)))
        assert llm.heard[0][0] == llm.heard[1][0]


def test_steps_of_earlier_turns_of_a_react_agent_are_calls_with_results(
    open_sqlite: OpenTally,
) -> None:
    """Such an agent keeps a turn as one message of its own."""
    with open_sqlite(rules=[_rule("deny", "tool_result")]) as tally:
        anna = tally.bind(ANNA)
        script = Script([call("weigh", boat="Mary")], "Heavy.", "Yes.")
        given: dict[str, Any] = {"earlier": ["How heavy?"], "prompt": "Really?"}
        ReAct().run(script, [weigh], recorded=anna, ruled=anna, **given)
        assert not any("three tons" in sent for sent in script.sent)
        assert "Heavy." in script.sent[-1]


def test_a_call_whose_id_its_provider_does_not_say_stays_with_its_result(
    open_sqlite: OpenTally,
) -> None:
    result = ChatMessage("three tons", role="tool", additional_kwargs={"tool_call_id": "weigh"})
    with open_sqlite() as tally:
        llm = Heard("Heavy.")
        sent = [_user("How heavy?"), _assistant(""), result]
        ruled_llm(tally.bind(ANNA), llm).chat(sent)
        assert llm.heard[0][0] == sent


def test_a_redacted_message_keeps_its_calls(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[_rule("redact", "assistant_msg")]) as tally:
        llm = Heard("Heavy.")
        called = calls(("c1", "weigh", {"boat": "Mary"}))
        called.blocks = [TextBlock(text="I weigh the Mary.")]
        result = ChatMessage("three tons", role="tool", additional_kwargs={"tool_call_id": "c1"})
        ruled_llm(tally.bind(ANNA), llm).chat([_user("How heavy?"), called, result])
        message = llm.heard[0][0][1]
        assert "Mary" not in str(message)
        [kept] = message.additional_kwargs["tool_calls"]
        assert (kept["id"], kept["function"]["name"]) == ("c1", "weigh")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context": "all"}, "`context` has to be 'request' or 'memory'"),
        ({"context": "memory", "budget": 1_000}, "`budget` does nothing with context='memory'"),
        ({"history_share": 101}, "`history_share` has to be at most 100 percent"),
    ],
)
def test_arguments_that_a_mode_cannot_honour_are_refused(
    open_sqlite: OpenTally, arguments: dict[str, Any], message: str
) -> None:
    with open_sqlite() as tally, pytest.raises(InvalidInput, match=message):
        ruled_llm(tally, Scripted(), **arguments)


def test_an_agent_with_the_model_alone_recalls(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember(KEY)
        script = Script("Under the mat.")
        model = ruled_llm(anna, Scripted(script))
        LlamaIndex().run(prompt="Where is the key?", more={"llm": model})
        assert script.sent[0].count(KEY) == 1


def _rule(effect: str, kind: str) -> PolicyRule:
    conditions = {"kind": [kind]}
    return PolicyRule.load({"id": "r", "name": "r", "effect": effect, "conditions": conditions})
