"""One turn of an agent in each runtime: bare, with Tallystick, and with what a user would assemble
instead. One arm runs in a process of its own and prints its figures as JSON: see `turn.py`.

A turn is a message of 300 characters after 20 turns of history, five tools, one call whose result
has 2 kB, and an answer of 600 characters. A session has five such turns.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import json
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypedDict

from tests.benchmarks.core import COMMON, VOCABULARY
from tests.benchmarks.resident import resident

from tallystick import Tally
from tallystick.tally.services import services_of

HISTORY, TURNS = 20, 5
"""Turns before the first one that counts, and turns of a session."""
_ASKED, _ANSWERED, _RESULT, _SAID = 300, 600, 2_000, 200
_SINK = "BENCH_TURN_SINK"
_SYSTEM = "You keep the books of a harbour. Answer from the ledger, and say where it is silent."
_TOOLS = {
    "search_ledger": "Search the ledger for entries that contain a text.",
    "read_berth": "Read what a berth was let for, by its name.",
    "list_ships": "List the ships that are expected, by the name of the line.",
    "add_note": "Add a note to the ledger.",
    "weigh": "Weigh what stands on a quay, by its name.",
}


def said(seed: str, length: int) -> str:
    """Return made-up prose of this length, as sentences."""
    source = random.Random(seed)
    words = source.choices(VOCABULARY, cum_weights=COMMON, k=length // 4)
    sentences = [" ".join(words[at : at + 12]).capitalize() for at in range(0, len(words), 12)]
    return ". ".join(sentences)[: length - 1] + "."


class Marks:
    """When the model of a turn was entered and left."""

    current: ContextVar[Marks | None] = ContextVar("marks", default=None)

    def __init__(self) -> None:
        self.began, self.times = _now(), list[tuple[float, float]]()

    def spent(self) -> dict[str, tuple[float, float]]:
        """Return the CPU and wall seconds before the first model call, between the calls, after the
        last, and in all.
        """
        ended = _now()
        moments = [self.began, *self.times, ended]
        pieces = [
            (after[0] - before[0], after[1] - before[1])
            for before, after in zip(moments[::2], moments[1::2], strict=True)
        ]
        parts = {"before": pieces[0], "between": pieces[1], "after": pieces[2]}
        return {**parts, "all": (sum(p[0] for p in pieces), sum(p[1] for p in pieces))}


def _now() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def _model(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Note when a scripted model is called, and when it has answered."""

    @functools.wraps(answer)
    def call(*args: Any, **kwargs: Any) -> Any:
        marks = Marks.current.get()
        if marks is not None:
            marks.times.append(_now())
        found = answer(*args, **kwargs)
        if marks is not None:
            marks.times.append(_now())
        return found

    return call


Turn = Callable[[str, str, str], Any]
"""Carries out a turn: the session, its message, and the answer that the model gives."""


@dataclass
class Arm:
    """One way to carry out a turn."""

    turn: Turn
    prime: Callable[[str, list[tuple[str, str]]], Any] = lambda session, history: None
    """Gives a session its history."""
    flush: Callable[[], Any] = lambda: None
    """Waits for what happens after a turn."""
    tally: Tally | None = None
    close: Callable[[], Any] = lambda: None
    marks: dict[str, Any] = field(default_factory=dict)


def history_of(session: str) -> list[tuple[str, str]]:
    """Return the turns before a session's first one, with their roles."""
    roles = ("user", "assistant")
    return [(roles[place % 2], said(f"{session} {place}", _SAID)) for place in range(HISTORY)]


# What a user would assemble: a vector store with the same embedder


class Notes:
    """A collection of Chroma with the embedder that a tally has by default."""

    def __init__(self, folder: Path) -> None:
        import chromadb
        from chromadb.config import Settings

        from tallystick.embedding import StaticEmbedder

        self._embedder = StaticEmbedder()
        client = chromadb.PersistentClient(
            str(folder / "notes"), Settings(anonymized_telemetry=False)
        )
        self._notes: Any = client.create_collection("notes", embedding_function=None)
        self._count = 0
        self._guard = threading.Lock()

    def add(self, texts: Sequence[str]) -> None:
        """Add notes."""
        with self._guard:
            first, self._count = self._count, self._count + len(texts)
        for at in range(0, len(texts), 1_000):
            some = list(texts[at : at + 1_000])
            self._notes.add(
                ids=[str(first + at + place) for place in range(len(some))],
                documents=some,
                embeddings=self._embedder.embed(some),
            )

    def search(self, text: str) -> list[str]:
        """Return the three nearest notes."""
        if not self._count:
            return []
        found = self._notes.query(query_embeddings=self._embedder.embed([text]), n_results=3)
        return list(found["documents"][0])


def _notes(folder: Path, memories: int) -> Notes:
    notes = Notes(folder)
    if memories:
        notes.add([said(f"memory {number}", _SAID) for number in range(memories)])
    return notes


def _tally(folder: Path, memories: int) -> Tally:
    tally = Tally.open(folder / "tally", background=False)
    texts = [said(f"memory {number}", _SAID) for number in range(memories)]
    for at in range(0, memories, 1_000):
        tally.bind().remember_many(texts[at : at + 1_000])
    tally.drain()
    return tally


def _flush(tally: Tally) -> Callable[[], None]:
    return services_of(tally).store.database.flush


# LangChain and LangGraph


def _chat_model() -> Any:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
            return self.bind(
                tools=[{"type": "function", "function": {"name": one.name}} for one in tools]
            )

        def _generate(
            self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any
        ) -> ChatResult:
            return _answer(messages)

    @_model
    def _answer(messages: Any) -> ChatResult:
        usage: Any = {"input_tokens": 900, "output_tokens": 40, "total_tokens": 940}
        asked, answer = _CALL.get()
        if isinstance(messages[-1], ToolMessage):
            message = AIMessage(answer, usage_metadata=usage)
        else:
            call: Any = {"name": "search_ledger", "args": {"text": asked[:40]}, "id": asked[:9]}
            message = AIMessage("", tool_calls=[call], usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])

    return Scripted()


_CALL: ContextVar[tuple[str, str]] = ContextVar("call")
"""The message and the answer of the turn under way."""


def _answer_tool(text: str) -> str:
    return said(f"result of {text}", _RESULT)


def _lang_tools() -> list[Any]:
    from langchain_core.tools import StructuredTool

    return [
        StructuredTool.from_function(_answer_tool, name=name, description=description)
        for name, description in _TOOLS.items()
    ]


def _lang_messages(history: Sequence[tuple[str, str]]) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage

    return [(HumanMessage if role == "user" else AIMessage)(text) for role, text in history]


def _tracer() -> tuple[list[Any], Callable[[], Any]]:
    from langchain_core.tracers.langchain import LangChainTracer
    from langsmith import Client

    client = Client(api_url=os.environ[_SINK], api_key="not-a-key", info={})
    return [LangChainTracer(client=client, project_name="bench")], client.flush


def _sqlite_saver(folder: Path) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver

    return SqliteSaver(sqlite3.connect(folder / "checkpoints.sqlite", check_same_thread=False))


def _graph_arm(agent: Any, callbacks: Sequence[Any] = (), *, keeps: bool, **options: Any) -> Arm:
    """Return an arm of a graph of messages; one that keeps nothing is given the history."""
    from langchain_core.messages import HumanMessage

    given: dict[str, list[Any]] = {}

    def config(session: str) -> Any:
        return {"configurable": {"thread_id": session}, "callbacks": list(callbacks)}

    def prime(session: str, history: list[tuple[str, str]]) -> None:
        if keeps:
            agent.update_state(config(session), {"messages": _lang_messages(history)})
        else:
            given[session] = _lang_messages(history)

    def turn(session: str, asked: str, answer: str) -> None:
        before = [] if keeps else given[session]
        found = agent.invoke({"messages": [*before, HumanMessage(asked)]}, config(session))
        assert found["messages"][-1].content == answer
        if not keeps:
            given[session] = found["messages"]

    return Arm(turn, prime, **options)


def _langchain(folder: Path, memories: int, way: str) -> Arm:
    from langchain.agents import create_agent
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import SystemMessage

    make = functools.partial(create_agent, _chat_model(), _lang_tools(), system_prompt=_SYSTEM)
    if way == "bare":
        return _graph_arm(make(), keeps=False)
    if way == "tallystick":
        from tallystick_langchain import TallyMiddleware
        from tallystick_langgraph import TallySaver

        tally = _tally(folder, memories)
        agent = make(
            middleware=[TallyMiddleware(tally, capture="both")], checkpointer=TallySaver(tally)
        )
        return _graph_arm(agent, keeps=True, flush=_flush(tally), tally=tally, close=tally.close)
    notes = _notes(folder, memories)
    found: dict[str, list[str]] = {}

    class Recalling(AgentMiddleware[Any, Any, Any]):
        """Shows the nearest notes, and keeps what was said."""

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            asked = _CALL.get()[0]
            if asked not in found:
                found[asked] = notes.search(asked)
            system = SystemMessage("\n".join([_SYSTEM, *found[asked]]))
            return handler(request.override(system_message=system))

        def after_agent(self, state: Any, runtime: Any) -> None:
            users = [message for message in state["messages"] if message.type == "human"]
            notes.add([users[-1].text, state["messages"][-1].text])

    callbacks, flush = _tracer()
    agent = make(middleware=[Recalling()], checkpointer=_sqlite_saver(folder))
    return _graph_arm(agent, callbacks, keeps=True, flush=flush)


def _langgraph(folder: Path, memories: int, way: str) -> Arm:
    from langchain_core.messages import SystemMessage
    from langgraph.graph import END, START, StateGraph, add_messages
    from langgraph.prebuilt import ToolNode

    tools = _lang_tools()
    model = _chat_model().bind_tools(tools)

    # In a function its annotations could not be read.
    State: Any = TypedDict("State", {"messages": Annotated[list, add_messages], "found": list})

    def build(search: Callable[[str], list[str]], keep: Callable[[list[str]], None]) -> Any:
        def recall(state: Any) -> dict[str, Any]:
            return {"found": search(str(state["messages"][-1].text))}

        def answer(state: Any) -> dict[str, Any]:
            system = SystemMessage("\n".join([_SYSTEM, *state["found"]]))
            return {"messages": [model.invoke([system, *state["messages"]])]}

        def remember(state: Any) -> dict[str, Any]:
            users = [message for message in state["messages"] if message.type == "human"]
            keep([str(users[-1].text), str(state["messages"][-1].text)])
            return {}

        def route(state: Any) -> str:
            return "tools" if getattr(state["messages"][-1], "tool_calls", None) else "remember"

        graph = StateGraph(State)
        graph.add_node("recall", recall)
        graph.add_node("answer", answer)
        graph.add_node("tools", ToolNode(tools))
        graph.add_node("remember", remember)
        graph.add_edge(START, "recall")
        graph.add_edge("recall", "answer")
        graph.add_conditional_edges("answer", route, ["tools", "remember"])
        graph.add_edge("tools", "answer")
        graph.add_edge("remember", END)
        return graph

    if way == "bare":
        return _graph_arm(build(lambda text: [], lambda texts: None).compile(), keeps=False)
    if way == "tallystick":
        from tallystick_langchain import TallyCallbackHandler
        from tallystick_langgraph import TallySaver

        tally = _tally(folder, memories)
        bound = tally.bind()

        def search(text: str) -> list[str]:
            return [hit.memory.content for hit in bound.recall(text, limit=3)]

        def keep(texts: list[str]) -> None:
            bound.remember_many(texts)

        graph = build(search, keep).compile(checkpointer=TallySaver(tally))
        return _graph_arm(
            graph,
            [TallyCallbackHandler(tally)],
            keeps=True,
            flush=_flush(tally),
            tally=tally,
            close=tally.close,
        )
    notes = _notes(folder, memories)
    callbacks, flush = _tracer()
    graph = build(notes.search, notes.add).compile(checkpointer=_sqlite_saver(folder))
    return _graph_arm(graph, callbacks, keeps=True, flush=flush)


# PydanticAI


def _pydantic_ai(folder: Path, memories: int, way: str) -> Arm:
    from pydantic_ai import Agent, Tool
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models.function import FunctionModel

    @_model
    def answer(messages: Any, info: Any) -> ModelResponse:
        asked, said_last = _CALL.get()
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse([TextPart(said_last)])
        call = ToolCallPart("search_ledger", {"text": asked[:40]}, tool_call_id=asked[:9])
        return ModelResponse([call])

    kept: dict[str, list[Any]] = {}

    def prime(session: str, history: list[tuple[str, str]]) -> None:
        kept[session] = [
            ModelRequest([UserPromptPart(text)])
            if role == "user"
            else ModelResponse([TextPart(text)])
            for role, text in history
        ]

    tools = [
        Tool(_answer_tool, name=name, description=description, takes_ctx=False)
        for name, description in _TOOLS.items()
    ]
    make: Any = functools.partial(
        Agent, FunctionModel(answer), tools=tools, system_prompt=_SYSTEM, name="clerk"
    )

    def turns(agent: Any) -> Turn:
        def turn(session: str, asked: str, answered: str) -> None:
            found = agent.run_sync(asked, message_history=kept[session], conversation_id=session)
            assert found.output == answered
            kept[session] = found.all_messages()

        return turn

    if way == "bare":
        return Arm(turns(make()), prime)
    if way == "tallystick":
        from tallystick_pydantic_ai import Tallystick

        tally = _tally(folder, memories)
        agent = make(capabilities=[Tallystick(tally, capture="both")])
        return Arm(turns(agent), prime, _flush(tally), tally, tally.close)
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai.models.instrumented import InstrumentationSettings

    notes = _notes(folder, memories)
    provider = TracerProvider()
    spans = (folder / "spans.json").open("w")
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=spans)))
    agent = make(capabilities=_instrumented(InstrumentationSettings(tracer_provider=provider)))
    database = sqlite3.connect(folder / "messages.sqlite", check_same_thread=False)
    database.execute("CREATE TABLE messages (session, body)")
    guard = threading.Lock()

    def turn(session: str, asked: str, answered: str) -> None:
        shown = "\n".join([_SYSTEM, *notes.search(asked)])
        found = agent.run_sync(asked, message_history=kept[session], instructions=shown)
        assert found.output == answered
        kept[session] = found.all_messages()
        body = ModelMessagesTypeAdapter.dump_json(found.new_messages())
        with guard, database:
            database.execute("INSERT INTO messages VALUES (?, ?)", (session, body))
        notes.add([asked, answered])

    return Arm(turn, prime, provider.force_flush)


def _instrumented(settings: Any) -> list[Any]:
    from pydantic_ai.capabilities import Instrumentation

    return [Instrumentation(settings)]


# LlamaIndex


def _llama_index(folder: Path, memories: int, way: str) -> Arm:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import Memory
    from llama_index.core.tools import FunctionTool
    from tests.integrations.llama_scripted import Scripted, calls

    class Clerk(Scripted):
        @_model
        def says(self, messages: Any, tools: Any = ()) -> ChatMessage:
            asked, answered = _CALL.get()
            if messages[-1].role == "tool":
                return ChatMessage(answered, role="assistant")
            return calls((asked[:9], "search_ledger", {"text": asked[:40]}))

    tools = [
        FunctionTool.from_defaults(_answer_tool, name=name, description=description)
        for name, description in _TOOLS.items()
    ]
    kept: dict[str, Any] = {}

    def arm(memory: Callable[[str], Any], around: Any = None, **options: Any) -> Arm:
        def prime(session: str, history: list[tuple[str, str]]) -> None:
            kept[session] = memory(session)
            messages = [ChatMessage(text, role=role) for role, text in history]
            asyncio.run(kept[session].aput_messages(messages))

        async def run(session: str, asked: str) -> str:
            agent = FunctionAgent(
                name="clerk", tools=tools, llm=Clerk(), system_prompt=_SYSTEM, streaming=False
            )
            return str(await agent.run(asked, memory=kept[session]))

        def turn(session: str, asked: str, answered: str) -> None:
            assert asyncio.run(run(session, asked)) == answered

        return Arm(turn if around is None else around(turn), prime, **options)

    if way == "bare":
        return arm(lambda session: Memory.from_defaults(session_id=session, token_limit=100_000))
    if way == "tallystick":
        from tallystick_llama_index import TallyInstrumentation, TallyMemory

        tally = _tally(folder, memories)
        stack = ExitStack()
        stack.enter_context(TallyInstrumentation(tally))

        def close() -> None:
            stack.close()
            tally.close()

        return arm(
            lambda session: TallyMemory(tally, session_id=session, token_limit=32_000),
            flush=_flush(tally),
            tally=tally,
            close=close,
        )
    from llama_index.core.memory import InsertMethod
    from llama_index.core.memory.memory import BaseMemoryBlock

    notes = _notes(folder, memories)

    class Recalling(BaseMemoryBlock[str]):
        name: str = "notes"

        async def _aget(self, messages: Any = None, **_: Any) -> str:
            users = [message for message in messages or () if message.role == "user"]
            return "\n".join(notes.search(users[-1].content)) if users else ""

        async def _aput(self, messages: Any) -> None:
            """Notes are added after the turn."""

    def memory(session: str) -> Any:
        return Memory.from_defaults(
            session_id=session,
            token_limit=100_000,
            async_database_uri=f"sqlite+aiosqlite:///{folder / 'chats.sqlite'}",
            memory_blocks=[Recalling()],
            insert_method=InsertMethod.SYSTEM,
        )

    def around(turn: Turn) -> Turn:
        def keeping(session: str, asked: str, answered: str) -> None:
            turn(session, asked, answered)
            notes.add([asked, answered])

        return keeping

    return arm(memory, around, flush=_traced(folder))


def _traced(folder: Path) -> Callable[[], Any]:
    """Write the events of LlamaIndex to a file, as its own handlers do."""
    from llama_index.core.instrumentation import get_dispatcher
    from llama_index.core.instrumentation.event_handlers import BaseEventHandler

    file = (folder / "events.jsonl").open("w")

    class Writing(BaseEventHandler):
        def handle(self, event: Any, **_: Any) -> None:
            file.write(event.model_dump_json() + "\n")

    get_dispatcher().add_event_handler(Writing())
    return file.flush


# HTTP


def _http(folder: Path, memories: int, way: str) -> Arm:
    from tallystick import ContextItem
    from tallystick.compiler import FRAMED
    from tallystick.records import ToolSpec
    from tallystick_server import RemoteTally, serve_in_background

    if way != "tallystick":
        return _sent_alone()
    tally = _tally(folder, memories)
    stack = ExitStack()
    addresses = stack.enter_context(serve_in_background(tally, uds=folder / "serve.sock"))
    remote = stack.enter_context(RemoteTally.connect(addresses[0]))
    tools = [ToolSpec(name=name, description=text) for name, text in _TOOLS.items()]
    kept: dict[str, list[ContextItem]] = {}
    answer = _model(lambda compiled: _CALL.get()[1])

    def item(kind: Any, session: str, text: str, **fields: Any) -> ContextItem:
        return ContextItem(id=f"{session} {len(kept[session])}", kind=kind, content=text, **fields)

    def prime(session: str, history: list[tuple[str, str]]) -> None:
        kept[session] = []
        for role, text in history:
            kept[session].append(item(f"{role}_msg", session, text))

    def ask(run: Any, session: str, asked: str) -> str:
        with run.step("model_call", name="scripted") as step:
            shown = remote.working_set(asked, conversation=session, turn=f"{session} {asked}")
            compiled = remote.compile(
                [*kept[session], *shown.pieces], budget=32_000, tools=tools, target=FRAMED
            )
            request = [each.content for each in compiled.selected_items]
            step.record("request", {"messages": request})
            answered: str = answer(compiled)
            step.record("response", {"text": answered})
        return answered

    def turn(session: str, asked: str, answered: str) -> None:
        kept[session].append(item("user_msg", session, asked))
        with remote.run("clerk", metadata={"thread_id": session}) as run:
            ask(run, session, asked)
            with run.step("tool_call", name="search_ledger") as step:
                call = {"name": "search_ledger", "arguments": {"text": asked[:40]}}
                step.record("tool_call", call)
                result = _answer_tool(asked[:40])
                step.record("tool_result", {"result": result})
            called = item("assistant_msg", session, json.dumps(call))
            kept[session].append(called)
            kept[session].append(item("tool_result", session, result))
            assert ask(run, session, asked) == answered
            said_now = {"kind": "turn", "conversation": session}
            remote.remember_many([{"content": text, **said_now} for text in (asked, answered)])
        kept[session].append(item("assistant_msg", session, answered))

    def close() -> None:
        stack.close()
        tally.close()

    return Arm(turn, prime, _flush(tally), tally, close)


def _sent_alone() -> Arm:
    answer = _model(lambda: None)

    def turn(session: str, asked: str, answered: str) -> None:
        answer()
        answer()

    return Arm(turn)


RUNTIMES: dict[str, Callable[[Path, int, str], Arm]] = {
    "langchain": _langchain,
    "langgraph": _langgraph,
    "pydantic_ai": _pydantic_ai,
    "llama_index": _llama_index,
    "http": _http,
}


# Counts


class Counts:
    """What a tally does in a turn, counted at its own borders. Works on any release."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()
        self.words: Counter[int] = Counter()
        self.redactions: Counter[int] = Counter()
        self._count()

    def _count(self) -> None:
        from tallystick.embedding.guard import GuardedEmbedder
        from tallystick.policy import redaction
        from tallystick.ranking import words
        from tallystick.storage.engine import database, group_commit

        self._around(database.Database, "read", "reads")
        self._around(group_commit, "_commit", "commits")
        recall = import_module("tallystick.memory.recall")
        self._around(recall, "_recall", "recalls")
        self._around(GuardedEmbedder, "_embed_checked", "embeddings")
        self._texts(words, "_tokens", self.words)
        self._texts(words, "_surfaces", self.words)
        # An earlier release had the gate elsewhere.
        gate = getattr(redaction, "_Gate", None) or import_module("tallystick.policy.gates").Gate
        self._texts(gate, "opens", self.redactions, place=1)

    def _around(self, owner: Any, name: str, counted: str) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.of[counted] += 1
            return inner(*args, **kwargs)

        setattr(owner, name, call)

    def _texts(self, owner: Any, name: str, counted: Counter[int], place: int = 0) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args[place]) >= 100:
                counted[hash(args[place])] += 1
            return inner(*args, **kwargs)

        setattr(owner, name, call)

    def take(self) -> dict[str, float]:
        """Return the counts since the last time: `analyses` is how often a text of a sentence and
        more is split into words, `redactions` how often it is looked at for secrets.
        """
        found: dict[str, float] = {**self.of}
        for name, counted in (("analyses", self.words), ("redactions", self.redactions)):
            found[name] = sum(counted.values()) / len(counted) if counted else 0
            counted.clear()
        self.of.clear()
        return found


# A measurement


def _folder_bytes(folder: Path) -> int:
    for file in folder.rglob("*.db"):
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _pieces() -> dict[str, int]:
    """Return the microseconds of each piece of a turn, as the tally has counted them; none of a
    release that does not count.
    """
    try:
        costs = import_module("tallystick.costs")
    except ImportError:
        return {}
    return {piece: cost.cpu_us for piece, cost in costs.totals().items()}


def _sessions(arm: Arm, sessions: int, turns: int, prefix: str) -> Iterator[tuple[str, str, str]]:
    for number in range(sessions):
        session = f"{prefix}-{number}"
        arm.prime(session, history_of(session))
        arm.flush()
        for place in range(turns):
            seed = f"{session} turn {place}"
            yield session, said(seed, _ASKED), said(f"answer to {seed}", _ANSWERED)


def _carry_out(arm: Arm, session: str, asked: str, answered: str) -> Marks:
    _CALL.set((asked, answered))
    marks = Marks()
    Marks.current.set(marks)
    arm.turn(session, asked, answered)
    return marks


def measure(arm: Arm, folder: Path, sessions: int, counts: Counts | None) -> dict[str, Any]:
    """Return the medians of one arm over the turns of some sessions, after one to warm up."""
    # Texts of another pass in this process would be known already.
    prefix = "timed" if counts is None else "counted"
    for turn in _sessions(arm, 1, 2, f"{prefix}-warm"):
        _carry_out(arm, *turn)
    arm.flush()
    if counts is not None:
        counts.take()
    began_with, rss = _folder_bytes(folder), resident()
    rows: list[dict[str, float]] = []
    counted: list[dict[str, float]] = []
    gc.collect()
    pieces = _pieces()
    for turn in _sessions(arm, sessions, TURNS, prefix):
        if counts is not None:
            counts.take()
        began = time.process_time()
        spent = _carry_out(arm, *turn).spent()
        arm.flush()
        row = {
            f"{name} {kind}": spent[name][place]
            for name in spent
            for place, kind in enumerate(("cpu", "wall"))
        }
        rows.append({**row, "cpu": time.process_time() - began})
        if counts is not None:
            counted.append(counts.take())
    figures = {name: 1_000 * statistics.median(row[name] for row in rows) for name in rows[0]}
    for name in {name for row in counted for name in row}:
        figures[f"{name} a turn"] = statistics.mean(row.get(name, 0) for row in counted)
    for piece, cost in _pieces().items():
        figures[f"piece {piece}"] = (cost - pieces.get(piece, 0)) / 1_000 / len(rows)
    figures["resident MB per 1,000"] = 1_000 * (resident() - rss) / len(rows)
    arm.close()
    figures["bytes a turn"] = (_folder_bytes(folder) - began_with) / len(rows)
    return figures


def at_once(arm: Arm, users: int) -> dict[str, float]:
    """Return the CPU of a turn, and the median wall time of one, where so many come together."""
    turns = list(_sessions(arm, users, 1, "together"))
    for turn in _sessions(arm, 1, 1, "warm"):
        _carry_out(arm, *turn)

    def one(turn: tuple[str, str, str]) -> float:
        began = time.perf_counter()
        _carry_out(arm, *turn)
        return time.perf_counter() - began

    began = time.process_time()
    with ThreadPoolExecutor(users) as pool:
        times = list(pool.map(one, turns))
    arm.flush()
    cpu = (time.process_time() - began) / users
    arm.close()
    return {"cpu": 1_000 * cpu, "wall": 1_000 * statistics.median(times)}


def main() -> None:
    """Measure one arm; print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtime", choices=list(RUNTIMES))
    parser.add_argument("way", choices=("bare", "tallystick", "assembled"))
    parser.add_argument("--memories", type=int, default=0)
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--users", type=int, default=0, help="turns at once, instead")
    parser.add_argument("--profile", help="write the profile of the turns to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Counting costs time of its own: it is done in a second pass.
        arm = RUNTIMES[given.runtime](folder / "timed", given.memories, given.way)
        if given.users:
            print(json.dumps(at_once(arm, given.users)))
        elif given.profile:
            _profile(arm, given.sessions, given.profile)
        else:
            figures = measure(arm, folder / "timed", given.sessions, None)
            if given.way == "tallystick":
                counts = Counts()
                again = RUNTIMES[given.runtime](folder / "counted", given.memories, given.way)
                counted = measure(again, folder / "counted", 2, counts)
                figures |= {name: value for name, value in counted.items() if "a turn" in name}
            print(json.dumps(figures))
        sys.stdout.flush()
        os._exit(0)


_IDLE = {"wait", "_worker", "select", "get", "_wait_for_tstate_lock", "run_forever", "take"}


def _profile(arm: Arm, sessions: int, path: str) -> None:
    """Write where the processor is while turns are carried out, as a list of functions with the
    share of the samples that each is under way in.
    """
    import signal

    shares: Counter[str] = Counter()
    samples = 0

    def sample(_: int, frame: Any) -> None:
        nonlocal samples
        samples += 1
        names = set()
        if frame is not None and frame.f_code.co_name == "wait":
            # Another thread works meanwhile.
            others = [
                other
                for number, other in sys._current_frames().items()
                if number != threading.get_ident() and other.f_code.co_name not in _IDLE
            ]
            frame = others[0] if others else frame
            names.add("another thread")
        while frame is not None:
            code = frame.f_code
            names.add(f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}")
            frame = frame.f_back
        shares.update(names)

    signal.signal(signal.SIGPROF, sample)
    for place, turn in enumerate(_sessions(arm, sessions, TURNS, "session")):
        if place >= TURNS:
            signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
        _carry_out(arm, *turn)
        signal.setitimer(signal.ITIMER_PROF, 0)
    rows = [f"{100 * count / samples:6.2f} {name}" for name, count in shares.most_common()]
    Path(path).write_text("\n".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
