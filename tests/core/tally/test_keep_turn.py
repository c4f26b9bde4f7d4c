"""What is said in a run becomes memories where that is asked for: marked with its step, without
what we put there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, NotFound
from tallystick.kit import Speakers
from tallystick.recorder import Run
from tallystick.tally import BoundTally
from tallystick.testing import HashEmbedder
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware
from tallystick_llama_index import TallyInstrumentation, TallyRetriever
from tallystick_pydantic_ai import Tallystick

OpenTally = Callable[..., Tally]
Play = Callable[[BoundTally, Speakers], None]
SECRET = "ghp_aB3dE6gH9jK2mN5pQ8rT1vW4xY7zA0cF2hJk"
ASKED, ANSWERED = "I live in Graz.", "Noted."


def _says(text: str) -> GenericFakeChatModel:
    answers: Iterator[AIMessage | str] = iter([text])
    return GenericFakeChatModel(messages=answers)


def _handler(bound: BoundTally, capture: Speakers) -> None:
    watching = TallyCallbackHandler(bound, capture=capture, strict=True, agent_name="agent")
    (RunnableLambda(str) | _says(ANSWERED)).invoke(ASKED, config={"callbacks": [watching]})


def _model(bound: BoundTally, capture: Speakers) -> None:
    watching = TallyCallbackHandler(bound, capture=capture, strict=True, agent_name="agent")
    _says(ANSWERED).invoke(ASKED, config={"callbacks": [watching]})


def _middleware(bound: BoundTally, capture: Speakers) -> None:
    watching = TallyMiddleware(bound, capture=capture, strict=True, agent_name="agent")
    agent: Any = create_agent(_says(ANSWERED), middleware=[watching])
    agent.invoke({"messages": [("user", ASKED)]})


def _capability(bound: BoundTally, capture: Speakers) -> None:
    model = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart(ANSWERED)]))
    watching = Tallystick(bound, capture=capture, strict=True, agent_name="agent", context=False)
    asyncio.run(Agent(model, capabilities=[watching]).run(ASKED))


@pytest.mark.parametrize("play", [_handler, _model, _middleware, _capability])
@pytest.mark.parametrize("capture", ["off", "user", "both"])
def test_a_run_remembers_what_was_said_by_whom_it_is_told_to(
    open_sqlite: OpenTally, play: Play, capture: Speakers
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(Actor(user="anna"))
        play(anna, capture)
        kept = sorted((memory.speaker, memory.content) for memory in anna.memories())
        assert (
            kept
            == {
                "off": [],
                "user": [("anna", ASKED)],
                "both": [("agent", ANSWERED), ("anna", ASKED)],
            }[capture]
        )
        [run] = anna.recordings.runs()
        [asked] = [step for step in anna.recordings.steps(run.id) if step.step_kind == "model_call"]
        conversation = run.metadata.get("thread_id", run.id)
        for memory in anna.memories():
            assert (memory.kind, memory.conversation) == ("turn", conversation)
            assert (memory.source_run_id, memory.source_step_ids) == (run.id, (asked.id,))


def test_llama_index_remembers_what_its_root_was_asked_and_answered(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        engine = RetrieverQueryEngine.from_args(TallyRetriever(tally), llm=MockLLM(max_tokens=2))
        with TallyInstrumentation(tally, capture="both", strict=True):
            tally.bind().remember("The heron nests in March.")
            said = str(engine.query("When does the heron nest?"))
        turns = [memory.content for memory in tally.bind().memories() if memory.kind == "turn"]
        assert sorted(turns) == ["When does the heron nest?", said]


def test_a_thread_is_one_conversation_and_each_turn_is_remembered_once(
    open_sqlite: OpenTally,
) -> None:
    answers: Iterator[AIMessage | str] = iter(["One.", "Two."])
    with open_sqlite() as tally:
        watching = TallyCallbackHandler(tally, capture="both", strict=True)
        agent: Any = create_agent(
            GenericFakeChatModel(messages=answers), checkpointer=InMemorySaver()
        )
        for said in ("First.", "Second."):
            config = {"configurable": {"thread_id": "t"}, "callbacks": [watching]}
            agent.invoke({"messages": [("user", said)]}, config)
        turns = tally.bind().memories()
        assert sorted(memory.content for memory in turns) == ["First.", "One.", "Second.", "Two."]
        assert {memory.conversation for memory in turns} == {"t"}


def test_what_a_tally_gave_is_never_remembered_again(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        me = tally.bind()
        me.remember("The heron nests in March.")
        frame, pasted = me.wake().text, "What does <tallystick-context>x</tallystick-context> mean?"
        with me.run("agent") as run:
            [kept] = me.keep_turn(run, user=f"{frame}\nAnd the stork?")
            [skipped] = me.keep_turn(run, user=frame)
            [whole] = me.keep_turn(run, user=pasted)
        assert [result.status for result in (kept, skipped, whole)] == [
            "created",
            "skipped",
            "created",
        ]
        turns = me.memories(kinds=["turn"])
        assert [memory.content for memory in turns] == [pasted, "And the stork?"]


def test_a_turn_that_may_not_be_remembered_breaks_no_run(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        watching = TallyCallbackHandler(tally, capture="user")
        with tally.bind().run("agent"):
            tally.bind().operator.freeze(reason="audit")
            chain = RunnableLambda(str) | _says(ANSWERED)
            assert chain.invoke(ASKED, config={"callbacks": [watching]}).content == ANSWERED
        assert watching.failures == 1
        assert tally.bind().recordings.runs()[0].gaps == 1


def test_what_a_tool_returned_is_kept_with_its_step_as_the_source(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(Actor(user="ada"))
        with ada.run("pilot") as run:
            with run.step("tool_call", name="depth") as step:
                step.record("tool_result", {"result": f"12.5 m. Key {SECRET}"})
            with run.step("tool_call", name="berths") as other:
                other.record("tool_result", {"result": {"free": ["Süd 3"]}})
        kept = ada.keep_tool_output(step, reason="the pilot relies on it")
        memory = ada.get(kept.id)
        assert memory.content.startswith("12.5 m. Key [redacted")
        assert (memory.kind, memory.source_run_id) == ("artifact", run.id)
        hits = ada.recall("Which key and how many m?")
        [source] = next(hit.sources for hit in hits if hit.memory.id == kept.id)
        assert (source.source_type, source.uri) == ("tool", f"step:{step.id}")
        assert source.metadata["reason"] == "the pilot relies on it"
        text = ada.get(ada.keep_tool_output(other.id, reason="it changes daily").id).content
        assert text == '{"free": ["Süd 3"]}'


def test_a_tool_output_that_is_not_there_is_refused(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada, ben = tally.bind(Actor(user="ada")), tally.bind(Actor(user="ben"))
        root = tally.bind(Actor(user="root", role="operator"))
        with ada.run("pilot") as run:
            with run.step("model_call") as silent:
                silent.record("response", {"text": "no tool"})
            with run.step("tool_call", name="depth") as step:
                step.record("tool_result", {"result": "12.5 m"})
        with ada.run("pilot", retention="metadata_only") as run, run.step("tool_call") as quiet:
            quiet.record("tool_result", {"result": "12.5 m"})
        for bound, each, what in (
            (ada, silent, "no tool output"),
            (ada, quiet, "not_kept"),
            (ben, step, "no run or step|no step|may see"),
        ):
            with pytest.raises(NotFound, match=what):
                bound.keep_tool_output(each, reason="because")
        with pytest.raises(InvalidInput, match="was recorded in"):
            root.keep_tool_output(step, reason="because")
        with pytest.raises(InvalidInput, match="reason"):
            ada.keep_tool_output(step, reason=" ")
        run_id = ada.recordings.step(step.id).run_id
        root.operator.erase_recorded(run_id, reason="asked for", mode="apply")
        with pytest.raises(NotFound, match="erased"):
            ada.keep_tool_output(step, reason="because")


class _Ending(HashEmbedder):
    """Ends a run while a text is embedded, as another thread may."""

    run: Run | None = None

    def embed(self, texts: Sequence[str]) -> Any:
        if self.run is not None:
            self.run.end(wait=False)
        return super().embed(texts)


@pytest.mark.parametrize("in_step", [False, True])
def test_what_is_remembered_while_its_run_ends_is_stored_and_a_counted_gap(
    open_sqlite: OpenTally, in_step: bool
) -> None:
    embedder = _Ending()
    with open_sqlite(embedder=embedder) as tally:
        anna = tally.bind(Actor(user="anna"))
        with anna.run("clerk") as run, run.step("other") if in_step else nullcontext():
            embedder.run = run
            assert anna.remember(ASKED).status == "created"
        embedder.run = None
        assert [memory.content for memory in anna.memories()] == [ASKED]
        assert anna.recordings.run(run.id).gaps == 1
        assert anna.recordings.verify(run.id).ok
