"""What the page of the runtimes says of each of them holds; its rows are made of what is played."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from agents import Agent, RunConfig
from langchain.agents import create_agent
from langgraph.graph import START, MessagesState, StateGraph
from llama_index.core.agent.workflow import FunctionAgent
from tests.claude_code import ask, program_in, say
from tests.integrations.llama_scripted import Scripted as LlamaScripted
from tests.integrations.runtimes import langchain, llama_index, openai_agents, pydantic_ai
from tests.integrations.runtimes.base import Runtime, Script
from tests.integrations.runtimes.llama_index import TOOLS_WAIT
from tests.integrations.runtimes.matrix import (
    COLUMNS,
    FACT,
    QUESTION,
    HarnessRow,
    Row,
    compare,
    erase,
    places_of,
)
from tests.integrations.runtimes.ruling import ASK, BOT, DENY, PAY

from tallystick import Actor, Tally
from tallystick.tally import BoundTally
from tallystick_claude_agent import TallyHooks, TallySessionStore
from tallystick_langgraph import TallySaver
from tallystick_llama_index import TallyMemory
from tallystick_openai_agents import TallyRunner, TallySession

OpenTally = Callable[..., Tally]


class LangGraph(HarnessRow):
    title, page = "LangGraph", "langgraph.md"
    packages = ("tallystick_langgraph", "tallystick_langchain")
    runtime: ClassVar[type[Runtime]] = langchain.LangGraph
    streamed, awaited = "stream", "ainvoke"
    pieces: ClassVar[dict[str, str]] = {
        "session": "TallySaver",
        "memory": "compile_messages, TallyStore",
        "context": "compile_messages",
        "recorder": "TallyCallbackHandler",
        "rules": "ToolRules, compile_messages",
        "approvals": "ToolRules",
        "streaming": "TallyCallbackHandler",
        "async": "compile_messages, TallyCallbackHandler",
    }

    def converse(self, tally: Tally | BoundTally, *turns: tuple[str, str]) -> list[str]:
        script = Script(*("So." for _ in turns))
        model = langchain.Scripted(script)
        builder = StateGraph(MessagesState)
        builder.add_node("answer", lambda state: {"messages": [model.invoke(state["messages"])]})
        builder.add_edge(START, "answer")
        graph: Any = builder.compile(checkpointer=TallySaver(tally))
        for session, text in turns:
            config: Any = {"configurable": {"thread_id": session}}
            graph.invoke({"messages": [("user", text)]}, config)
        return script.sent


class LangChain(HarnessRow):
    title, page = "LangChain", "langchain.md"
    packages = ("tallystick_langchain", "tallystick_langgraph")
    runtime: ClassVar[type[Runtime]] = langchain.LangChain
    streamed, awaited = "astream", "ainvoke"
    pieces: ClassVar[dict[str, str]] = {
        "session": "TallySaver",
        "memory": "TallyMiddleware, memory_tools",
        "context": "TallyMiddleware",
        "recorder": "TallyMiddleware, TallyCallbackHandler",
        "rules": "TallyMiddleware",
        "approvals": "TallyMiddleware",
        "streaming": "TallyMiddleware, TallyCallbackHandler",
        "async": "TallyMiddleware, TallyCallbackHandler",
    }

    def converse(self, tally: Tally | BoundTally, *turns: tuple[str, str]) -> list[str]:
        script = Script(*("So." for _ in turns))
        agent: Any = create_agent(langchain.Scripted(script), [], checkpointer=TallySaver(tally))
        for session, text in turns:
            config = {"configurable": {"thread_id": session}}
            agent.invoke({"messages": [("user", text)]}, config)
        return script.sent


class PydanticAI(HarnessRow):
    title, page = "PydanticAI", "pydantic-ai.md"
    packages = ("tallystick_pydantic_ai",)
    runtime: ClassVar[type[Runtime]] = pydantic_ai.PydanticAI
    streamed, awaited = "run_stream", "run"
    pieces: ClassVar[dict[str, str]] = {
        column: "Tallystick" for column in COLUMNS if column != "session"
    }
    without: ClassVar[dict[str, str]] = {"session": "the application keeps `message_history`"}


class LlamaIndex(HarnessRow):
    title, page = "LlamaIndex", "llama-index.md"
    packages = ("tallystick_llama_index",)
    runtime: ClassVar[type[Runtime]] = llama_index.LlamaIndex
    streamed, awaited = "streamed run", "run"
    pieces: ClassVar[dict[str, str]] = {
        "session": "TallyMemory",
        "memory": "TallyMemory, TallyRetriever, memory_tools",
        "context": "ruled_llm, TallyNodePostprocessor",
        "recorder": "TallyInstrumentation",
        "rules": "ruled_tools, ruled_llm",
        "approvals": "ruled_tools",
        "streaming": "TallyInstrumentation, ruled_llm",
        "async": "TallyInstrumentation, ruled_llm",
    }

    def converse(self, tally: Tally | BoundTally, *turns: tuple[str, str]) -> list[str]:
        script = Script(*("So." for _ in turns))
        agent = FunctionAgent(name="agent", llm=LlamaScripted(script), tools=[])

        async def talk() -> None:
            for session, text in turns:
                await agent.run(text, memory=TallyMemory(tally, session_id=session, memories=0))

        asyncio.run(talk())
        return script.sent

    def plays_approvals(self, open_tally: OpenTally) -> None:
        if not TOOLS_WAIT:
            pytest.skip("this release of LlamaIndex does not let tools of agents wait")
        super().plays_approvals(open_tally)


class OpenAIAgents(HarnessRow):
    title, page = "OpenAI Agents SDK", "openai-agents.md"
    packages = ("tallystick_openai_agents",)
    runtime: ClassVar[type[Runtime]] = openai_agents.OpenAIAgents
    streamed, awaited = "run_stream", "run"
    pieces: ClassVar[dict[str, str]] = {
        "session": "TallySession",
        **dict.fromkeys(COLUMNS[1:], "TallyRunner"),
        "memory": "TallyRunner, memory_tools",
    }

    def converse(self, tally: Tally | BoundTally, *turns: tuple[str, str]) -> list[str]:
        script = Script(*("So." for _ in turns))
        agent = Agent("agent", model=openai_agents.Scripted(script))
        runner, quiet = TallyRunner(tally, context=False), RunConfig(tracing_disabled=True)
        for session, text in turns:
            runner.run_sync(agent, text, session=TallySession(tally, session), run_config=quiet)
        return script.sent


class ClaudeAgent(Row):
    """Claude Code itself is a scripted program here, which speaks its protocol."""

    title, page = "Claude Agent SDK", "claude-agent.md"
    packages = ("tallystick_claude_agent",)
    pieces: ClassVar[dict[str, str]] = {
        "session": "TallySessionStore",
        **dict.fromkeys(
            ("memory", "recorder", "rules", "approvals", "streaming", "async"), "TallyHooks"
        ),
    }
    without: ClassVar[dict[str, str]] = {"context": "Claude Code makes its requests itself"}

    def __init__(self, program: str) -> None:
        self.program = program

    def said(self, prompt: str, *calls: dict[str, Any], **options: Any) -> Any:
        """Return the result of a prompt in which the model calls tools."""
        return asyncio.run(ask(self.program, prompt, {"calls": calls}, **options))

    def plays_session(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            store = TallySessionStore(tally.bind())
            first = self.said(FACT, session_store=store)
            for each in Path(os.environ["CLAUDE_CONFIG_DIR"]).rglob("*.jsonl"):
                each.unlink()
            again = self.said(QUESTION, session_store=store, resume=first.session_id)
        assert again.session_id == first.session_id
        assert "resumed" in again.result

    def plays_memory(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = tally.bind()
            bound.remember(FACT)
            assert FACT in self.said(QUESTION, hooks=TallyHooks(bound).hooks()).result

    def plays_recorder(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = tally.bind()
            read = {"name": "Read", "input": {"path": "a.py"}, "result": "code"}
            self.said("Read it.", read, hooks=TallyHooks(bound).hooks())
            runs = bound.recordings.runs()
            steps = [step for run in runs for step in bound.recordings.steps(run.id)]
            assert ("tool_call", "Read") in [(step.step_kind, step.name) for step in steps]
            assert all(bound.recordings.verify(run.id).ok for run in runs)

    def plays_rules(self, open_tally: OpenTally) -> None:
        with open_tally(rules=[DENY]) as tally:
            hooks = TallyHooks(tally.bind(BOT)).hooks()
            pay = {"name": "pay", "input": {**PAY, "euros": 13}}
            assert "pay ran" not in self.said("Pay.", pay, hooks=hooks).result

    def plays_approvals(self, open_tally: OpenTally) -> None:
        with open_tally(rules=[ASK]) as tally:
            bound = tally.bind(BOT)
            hooks, pay = TallyHooks(bound).hooks(), {"name": "pay", "input": PAY}
            assert "pay ran" not in self.said("Pay.", pay, hooks=hooks).result
            person = tally.user(str(BOT.user))
            [approval] = person.approvals.list()
            person.approvals.approve(approval.id, reason="It is owed.")
            assert "pay ran" in self.said("Pay.", pay, hooks=hooks).result

    def plays_streaming(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            hooks = TallyHooks(tally.bind()).hooks()
            assert len(asyncio.run(say(self.program, FACT, hooks=hooks))) > 1
            assert FACT in [each.content for each in tally.bind().memories()]

    def plays_async(self, open_tally: OpenTally) -> None:
        """Two sessions at once keep their own turns."""
        with open_tally() as tally:
            bound = tally.bind()
            hooks = TallyHooks(bound).hooks()

            async def both() -> list[Any]:
                texts = (FACT, QUESTION)
                return await asyncio.gather(
                    *(ask(self.program, text, hooks=hooks) for text in texts)
                )

            for text, result in zip((FACT, QUESTION), asyncio.run(both()), strict=True):
                kept = bound.memories(kinds=("turn",), conversation=result.session_id)
                assert text in {each.content for each in kept}


HARNESSES: list[HarnessRow] = [LangGraph(), LangChain(), PydanticAI(), LlamaIndex(), OpenAIAgents()]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("row", HARNESSES, ids=repr)
def test_a_cell_of_a_runtime_is_played(open_sqlite: OpenTally, row: Row, column: str) -> None:
    if column not in row.without:
        row.shows(column, open_sqlite)


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
@pytest.mark.parametrize("row", HARNESSES, ids=repr)
def test_a_user_who_is_erased_leaves_no_word(open_sqlite: OpenTally, row: HarnessRow) -> None:
    row.erases_a_user(open_sqlite)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_cell_of_claude_code_is_played(
    open_sqlite: OpenTally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    row = ClaudeAgent(program_in(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home"))
    if column not in row.without:
        row.shows(column, open_sqlite)


def test_a_user_who_is_erased_leaves_no_word_of_claude_code(
    open_sqlite: OpenTally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, root = ClaudeAgent(program_in(tmp_path)), Actor(user="root", role="operator")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home"))
    read = {"name": "Read", "input": {"path": "pelican1zq"}, "result": "pelican2zq"}
    words = [f"pelican{number}zq" for number in range(3)]
    with open_sqlite(owner=root) as tally:
        bound = tally.bind(BOT)
        hooks = TallyHooks(bound).hooks()
        row.said(f"Read {words[0]}.", read, hooks=hooks, session_store=TallySessionStore(bound))
        assert all(places_of(tally.bind(root), word) for word in words)
        erase(tally.bind(root), str(BOT.user))
        assert [place for word in words for place in places_of(tally.bind(root), word)] == []


def test_the_page_has_a_row_of_each_runtime() -> None:
    compare([*HARNESSES, ClaudeAgent("")], write="WRITE_MATRIX" in os.environ)
