"""One turn of an agent in each runtime: bare, with Tallystick, and with what a user would assemble
instead: a saver on SQLite, a tracer, a vector store. What they cost is measured by `turn.py`.

A turn is a message of 300 characters after 20 turns of history, five tools, one call whose result
has 2 kB, and an answer of 600 characters. A session has five such turns.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

from tests.benchmarks.core import COMMON, VOCABULARY

from tallystick import Tally
from tallystick.records import JsonObject
from tallystick.tally.services import services_of

HISTORY, TURNS = 20, 5
"""Turns before the first one that counts, and turns of a session."""
ASKED, ANSWERED, _RESULT, _SAID = 300, 600, 2_000, 200
SINK = "BENCH_TURN_SINK"
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
            answered: ChatResult = _answer(messages)
            return answered

    @_model
    def _answer(messages: Any) -> ChatResult:
        usage: Any = {"input_tokens": 900, "output_tokens": 40, "total_tokens": 940}
        asked, answer = CALL.get()
        if isinstance(messages[-1], ToolMessage):
            message = AIMessage(answer, usage_metadata=usage)
        else:
            call: Any = {"name": "search_ledger", "args": {"text": asked[:40]}, "id": asked[:9]}
            message = AIMessage("", tool_calls=[call], usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])

    return Scripted()


CALL: ContextVar[tuple[str, str]] = ContextVar("call")
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

    client = Client(api_url=os.environ[SINK], api_key="not-a-key", info={})
    return [LangChainTracer(client=client, project_name="bench")], client.flush


def _sqlite_saver(folder: Path) -> Any:
    module: Any = importlib.import_module("langgraph.checkpoint.sqlite")
    return module.SqliteSaver(
        sqlite3.connect(folder / "checkpoints.sqlite", check_same_thread=False)
    )


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
            asked = CALL.get()[0]
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
    State: Any = TypedDict(
        "State", {"messages": Annotated[list[Any], add_messages], "found": list[Any]}
    )

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
        asked, said_last = CALL.get()
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
            asked, answered = CALL.get()
            if messages[-1].role == "tool":
                return ChatMessage(answered, role="assistant")
            return calls((asked[:9], "search_ledger", {"text": asked[:40]}))

    tools: list[Any] = [
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
    from llama_index.core.instrumentation.event_handlers import BaseEventHandler
    from llama_index_instrumentation import get_dispatcher

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
    answer = _model(lambda compiled: CALL.get()[1])

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
                call: JsonObject = {"name": "search_ledger", "arguments": {"text": asked[:40]}}
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
