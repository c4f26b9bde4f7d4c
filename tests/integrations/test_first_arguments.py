"""A wrong first argument fails where it is written, with the line to write instead.

One list names every public piece of every adapter, so that a new one is not forgotten.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import MockLLM

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, InvalidScope
from tallystick.testing import HashEmbedder
from tallystick_anthropic import MessagesProvider, TallyAsyncMemoryTool, TallyMemoryTool
from tallystick_anthropic import memory_tools as messages_tools
from tallystick_claude_agent import TallyHooks, TallySessionStore
from tallystick_langchain import (
    TallyCallbackHandler,
    TallyMiddleware,
    TapeChatModel,
    ToolRules,
    chat_model_call,
    compile_messages,
)
from tallystick_langchain import TapeLLM as LangChainTapeLLM
from tallystick_langchain import ingest as langchain_ingest
from tallystick_langchain import memory_tools as langchain_tools
from tallystick_langchain import tape_tools as langchain_tape_tools
from tallystick_langgraph import TallySaver, TallySerializer, TallyStore, import_checkpoints
from tallystick_llama_index import (
    TallyInstrumentation,
    TallyMemory,
    TallyMemoryBlock,
    TallyNodePostprocessor,
    TallyRetriever,
    TallySink,
    TapeLLM,
    llm_call,
    ruled_llm,
    ruled_tools,
    tape_tools,
)
from tallystick_llama_index import ingest as llama_ingest
from tallystick_llama_index import memory_tools as llama_tools
from tallystick_openai import ResponsesProvider
from tallystick_openai import memory_tools as responses_tools
from tallystick_openai_agents import TallyRunner, TallySession, TapeRunner
from tallystick_openai_agents import memory_tools as agent_tools
from tallystick_openai_agents import model_call as agents_model_call
from tallystick_pydantic_ai import (
    TallyContext,
    TallyPolicy,
    TallyRecorder,
    Tallystick,
    TapeCapability,
    memory_toolset,
    model_call,
)
from tallystick_pydantic_ai import TallyMemory as MemoryCapability
from tallystick_server import RemoteTally

OpenTally = Callable[..., Tally]
Make = Callable[..., Any]


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tally]:
    """One tally for all that stores nothing."""
    with Tally.open(tmp_path_factory.mktemp("tally"), background=False) as tally:
        yield tally


PIECES: dict[str, tuple[Make, str]] = {
    "tallystick_langgraph.TallySaver": (TallySaver, "TallySaver({})"),
    "tallystick_langgraph.TallyStore": (TallyStore, "TallyStore({})"),
    "tallystick_langchain.TallyCallbackHandler": (
        TallyCallbackHandler,
        "TallyCallbackHandler({})",
    ),
    "tallystick_langchain.TallyMiddleware": (TallyMiddleware, "TallyMiddleware({})"),
    "tallystick_langchain.ToolRules": (ToolRules, "ToolRules({})"),
    "tallystick_langchain.compile_messages": (
        lambda tally, **options: compile_messages(
            {"messages": [("user", "hi")]}, tally, **{"budget": 1_000, **options}
        ),
        "compile_messages(state, {}, budget=8_000)",
    ),
    "tallystick_langchain.ingest": (
        lambda tally, **options: langchain_ingest(tally, [], **options),
        "ingest({}, loader)",
    ),
    "tallystick_llama_index.TallySink": (TallySink, "TallySink({})"),
    "tallystick_llama_index.ingest": (
        lambda tally, **options: llama_ingest(tally, [], **options),
        "ingest({}, reader)",
    ),
    "tallystick_langchain.memory_tools": (langchain_tools, "memory_tools({})"),
    "tallystick_pydantic_ai.TallyContext": (TallyContext, "TallyContext({})"),
    "tallystick_pydantic_ai.TallyMemory": (MemoryCapability, "TallyMemory({})"),
    "tallystick_pydantic_ai.TallyPolicy": (TallyPolicy, "TallyPolicy({})"),
    "tallystick_pydantic_ai.TallyRecorder": (TallyRecorder, "TallyRecorder({})"),
    "tallystick_pydantic_ai.Tallystick": (Tallystick, "Tallystick({})"),
    "tallystick_pydantic_ai.memory_toolset": (memory_toolset, "memory_toolset({})"),
    "tallystick_llama_index.TallyInstrumentation": (
        TallyInstrumentation,
        "TallyInstrumentation({})",
    ),
    "tallystick_llama_index.TallyMemory": (TallyMemory, "TallyMemory({}, session_id='chat-1')"),
    "tallystick_llama_index.TallyMemoryBlock": (TallyMemoryBlock, "TallyMemoryBlock({})"),
    "tallystick_llama_index.TallyNodePostprocessor": (
        lambda tally, **options: TallyNodePostprocessor(tally, **{"token_budget": 100, **options}),
        "TallyNodePostprocessor({}, token_budget=2_000)",
    ),
    "tallystick_llama_index.TallyRetriever": (TallyRetriever, "TallyRetriever({})"),
    "tallystick_llama_index.memory_tools": (llama_tools, "memory_tools({})"),
    "tallystick_openai.memory_tools": (responses_tools, "memory_tools({})"),
    "tallystick_anthropic.memory_tools": (messages_tools, "memory_tools({})"),
    "tallystick_openai_agents.TallyRunner": (TallyRunner, "TallyRunner({})"),
    "tallystick_openai_agents.TallySession": (
        lambda tally, **options: TallySession(tally, "chat-1", **options),
        "TallySession({}, 'chat-1')",
    ),
    "tallystick_openai_agents.memory_tools": (agent_tools, "memory_tools({})"),
    "tallystick_claude_agent.TallySessionStore": (TallySessionStore, "TallySessionStore({})"),
    "tallystick_claude_agent.TallyHooks": (TallyHooks, "TallyHooks({})"),
    "tallystick_llama_index.ruled_llm": (
        lambda tally, **options: ruled_llm(tally, MockLLM(), **options),
        "ruled_llm({}, llm)",
    ),
    "tallystick_llama_index.ruled_tools": (
        lambda tally, **options: ruled_tools(tally, [], **options),
        "ruled_tools({}, tools)",
    ),
}
"""Every public piece that takes a tally, and the line that makes it."""

WORK_BEHIND_A_SERVER = {
    "tallystick_langgraph.TallyStore",
    "tallystick_langchain.memory_tools",
    "tallystick_pydantic_ai.memory_toolset",
    "tallystick_llama_index.TallyRetriever",
    "tallystick_llama_index.memory_tools",
    "tallystick_openai.memory_tools",
    "tallystick_anthropic.memory_tools",
    "tallystick_openai_agents.memory_tools",
}
"""The pieces that record nothing, and so take a tally behind a server too."""

PLAYERS: dict[str, Make] = {
    "tallystick_langchain.TapeChatModel": TapeChatModel,
    "tallystick_langchain.TapeLLM": LangChainTapeLLM,
    "tallystick_langchain.tape_tools": lambda player: langchain_tape_tools(player, []),
    "tallystick_openai.ResponsesProvider": lambda player: ResponsesProvider().on_tape(player),
    "tallystick_anthropic.MessagesProvider": lambda player: MessagesProvider().on_tape(player),
    "tallystick_llama_index.TapeLLM": TapeLLM,
    "tallystick_llama_index.tape_tools": lambda player: tape_tools(player, []),
    "tallystick_pydantic_ai.TapeCapability": TapeCapability,
    "tallystick_openai_agents.TapeRunner": TapeRunner,
}
"""Every public piece that takes the player of a tape."""

MODELS: dict[str, tuple[Make, str]] = {
    "tallystick_langchain.chat_model_call": (chat_model_call, "init_chat_model('gpt-5')"),
    "tallystick_pydantic_ai.model_call": (model_call, "infer_model('gpt-5')"),
    "tallystick_llama_index.llm_call": (llm_call, "llm_call(OpenAI(…))"),
    "tallystick_openai_agents.model_call": (
        agents_model_call,
        "OpenAIProvider().get_model('gpt-5')",
    ),
}
"""Every public piece that takes a model."""

OTHERS = {
    "tallystick_langgraph.Imported",
    "tallystick_langgraph.TallySerializer",
    "tallystick_langgraph.import_checkpoints",
    "tallystick_langchain.CompiledMessages",
    "tallystick_langchain.LearningModel",
    "tallystick_langchain.render_chat",
    "tallystick_llama_index.LearningModel",
    "tallystick_pydantic_ai.LearningModel",
    "tallystick_openai.ResponsesMemoryTools",
    "tallystick_openai.TapedProvider",
    "tallystick_openai.ToolQuestion",
    "tallystick_openai.LearningModel",
    "tallystick_openai.check_request",
    "tallystick_openai.embedding_model",
    "tallystick_openai.conversation_context",
    "tallystick_openai.parse_response",
    "tallystick_openai.render_responses",
    "tallystick_openai.tap",
    "tallystick_anthropic.MessagesMemoryTools",
    "tallystick_anthropic.TallyMemoryTool",
    "tallystick_anthropic.TallyAsyncMemoryTool",
    "tallystick_anthropic.LearningModel",
    "tallystick_anthropic.check_request",
    "tallystick_anthropic.conversation_context",
    "tallystick_anthropic.parse_message",
    "tallystick_anthropic.render_messages",
    "tallystick_anthropic.tap",
}
"""Public names that take neither: records, types, a saver, a compiled context, a bound tally."""

PACKAGES = (
    "tallystick_langgraph",
    "tallystick_langchain",
    "tallystick_pydantic_ai",
    "tallystick_llama_index",
    "tallystick_openai",
    "tallystick_anthropic",
    "tallystick_openai_agents",
    "tallystick_claude_agent",
)


def test_the_lists_name_every_public_piece_of_every_adapter() -> None:
    public = {
        f"{package}.{name}"
        for package in PACKAGES
        for name in importlib.import_module(package).__all__
    }
    assert PIECES.keys() | PLAYERS.keys() | MODELS.keys() | OTHERS == public


@pytest.mark.parametrize("name", PIECES)
def test_what_is_no_tally_is_refused_with_the_line_to_write(name: str) -> None:
    make, line = PIECES[name]
    for wrong, place in (
        (".tally", "'.tally'"),
        (Path("notes"), "'notes'"),
        ("postgresql://ann:secret@db/tally", "'postgresql://…'"),
        (None, "'.tally'"),
        (Actor(user="ann"), "'.tally'"),
        (Tally, "'.tally'"),
    ):
        with pytest.raises(InvalidInput) as error:
            make(wrong)
        assert line.format(f"Tally.open({place})") in str(error.value)
        assert "secret" not in str(error.value)


@pytest.mark.parametrize("name", PIECES)
def test_a_tally_behind_a_server_is_taken_or_refused_with_what_works_there(name: str) -> None:
    make, _ = PIECES[name]
    with RemoteTally.connect("unix:/nowhere") as remote:
        if name in WORK_BEHIND_A_SERVER:
            assert make(remote)
        else:
            with pytest.raises(InvalidInput, match=r"behind a server.*Memory tools"):
                make(remote)


@pytest.mark.parametrize("name", PIECES)
def test_what_is_no_actor_or_scope_is_refused_with_the_line_to_write(
    tally: Tally, name: str
) -> None:
    async def ask(call: Any) -> Actor:
        return Actor(user="ann")

    make, _ = PIECES[name]
    for wrong, line in (
        ("ann", "actor=Actor(user='ann')"),
        (7, "actor=Actor(user='7')"),
        ({"user": "ann"}, "actor=Actor(user='ann')"),
        (Actor, "the class Actor"),
        (ask, "async"),
    ):
        with pytest.raises(InvalidInput) as error:
            make(tally, actor=wrong)
        assert line in str(error.value)
    with pytest.raises(InvalidScope, match="scope='project:apollo'"):
        make(tally, scope="apollo")
    with pytest.raises(InvalidScope):
        make(tally, scope=7)


@pytest.mark.parametrize("name", PLAYERS)
def test_what_is_no_player_is_refused_with_the_line_to_write(name: str) -> None:
    for wrong in ("run-1", None):
        with pytest.raises(InvalidInput, match=r"bound\.recordings\.player\(run_id\)"):
            PLAYERS[name](wrong)


@pytest.mark.parametrize("name", MODELS)
def test_the_name_of_a_model_is_refused_where_the_model_is_meant(name: str) -> None:
    make, line = MODELS[name]
    with pytest.raises(InvalidInput) as error:
        make("gpt-5")
    assert line in str(error.value)


def test_an_import_goes_through_a_saver(tally: Tally) -> None:
    for source, saver in (("old.sqlite", tally), (7, TallySaver(tally))):
        wrong: Any = (source, saver)
        with pytest.raises(
            InvalidInput, match=r"import_checkpoints\('checkpoints\.sqlite', TallySaver"
        ):
            import_checkpoints(*wrong)


WRONG: dict[str, tuple[Callable[[Tally], Any], str]] = {
    "who is captured, of a middleware": (lambda t: TallyMiddleware(t, capture="all"), "'both'"),  # type: ignore[arg-type]
    "who is captured, of a handler": (lambda t: TallyCallbackHandler(t, capture=True), "'both'"),  # type: ignore[arg-type]
    "who is captured, of an instrumentation": (
        lambda t: TallyInstrumentation(t, capture="USER"),  # type: ignore[arg-type]
        "'both'",
    ),
    "who is captured, of a capability": (lambda t: Tallystick(t, capture="assistant"), "'both'"),  # type: ignore[arg-type]
    "a budget in words": (lambda t: TallyMiddleware(t, budget="8k"), "budget=8000"),  # type: ignore[arg-type]
    "a budget of recalled text": (lambda t: Tallystick(t, budget="2_000"), "budget=2000"),  # type: ignore[arg-type]
    "a budget of messages": (
        lambda t: compile_messages([("user", "x")], t, budget="8k"),  # type: ignore[arg-type]
        "budget=8000",
    ),
    "a budget of tokens": (lambda t: TallyMemory(t, token_limit="8k"), "token_limit"),
    "a budget of nodes": (
        lambda t: TallyNodePostprocessor(t, token_budget=0),
        "token_budget",
    ),
    "fewer hits than one": (lambda t: TallyRetriever(t, similarity_top_k=0), "at least 1"),
    "one kind as a text": (lambda t: TallyRetriever(t, kinds="note"), r"kinds=\['note'\]"),
    "a memory of a session alone": (lambda t: TallyMemory(session_id="x"), "takes a tally"),
    "an argument that there is not": (lambda t: TallyMemory(t, budget=5), "token_limit"),
    "how long a thread lives, in minutes": (
        lambda t: TallySaver(t, ttl=30),  # type: ignore[arg-type]
        r"ttl=timedelta\(minutes=30\)",
    ),
    "how long a thread lives, as a store says it": (
        lambda t: TallySaver(t, ttl={"default_ttl": 60}),  # type: ignore[arg-type]
        r"ttl=timedelta\(minutes=60\)",
    ),
    "a thread that lives no time": (lambda t: TallySaver(t, ttl=timedelta(0)), "more than 0"),
    "a type by its name": (lambda t: TallySaver(t, allow=["app.State"]), "class itself"),
    "threads as one text": (lambda t: TallySaver(t).prune("chat-1"), r"thread_ids=\['chat-1'\]"),
    "runs as one text": (
        lambda t: TallySaver(t).delete_for_runs("run-1"),
        r"run_ids=\['run-1'\]",
    ),
    "fields of an item as one text": (
        lambda t: TallyStore(t).put(("a",), "k", {"text": "x"}, index="text"),  # type: ignore[arg-type]
        r"index=\['text'\]",
    ),
    "types as one text": (lambda t: TallySerializer("app.State"), "sequence"),
    "a serializer that is none": (lambda t: TallySaver(t, serde="json"), "dumps_typed"),  # type: ignore[arg-type]
    "how long an item lives, as a saver says it": (
        lambda t: TallyStore(t, ttl=timedelta(hours=1)),  # type: ignore[arg-type]
        r"\{'default_ttl': 60\}",
    ),
    "how long an item lives, as a number": (lambda t: TallyStore(t, ttl=60), "default_ttl"),  # type: ignore[arg-type]
    "a key of how long items live": (lambda t: TallyStore(t, ttl={"minutes": 5}), "no key"),  # type: ignore[arg-type]
    "an interval that is no number": (
        lambda t: TallyStore(t, ttl={"sweep_interval_minutes": "5"}),  # type: ignore[arg-type]
        "sweep_interval_minutes",
    ),
    "expired items that are read": (
        lambda t: TallyStore(t, ttl={"omit_expired": False}),
        "never read",
    ),
    "another embedder": (
        lambda t: TallyStore(t, index={"dims": 1536, "embed": "openai:text-embedding-3-small"}),
        r"Tally\.open\(…, embedder=…\)",
    ),
    "other dimensions": (lambda t: TallyStore(t, index={"dims": 1536}), "dimensions"),
    "a key of the index": (lambda t: TallyStore(t, index={"field": ["x"]}), "no key"),  # type: ignore[arg-type]
    "one field as a text": (
        lambda t: TallyStore(t, index={"fields": "text"}),  # type: ignore[arg-type]
        "sequence",
    ),
    "where a person is asked": (lambda t: llama_tools(t, approval="never"), "'event'"),  # type: ignore[arg-type]
    "where a person is asked, of a graph": (
        lambda t: langchain_tools(t, approval="event"),  # type: ignore[arg-type]
        "'interrupt'",
    ),
    "where a person is asked, of a toolset": (
        lambda t: memory_toolset(t, approval="never"),  # type: ignore[arg-type]
        "'deferred'",
    ),
    "words to remember without a record": (
        lambda t: Tallystick(t, record=False, capture="user"),
        "record=False",
    ),
    "a capability that does nothing": (
        lambda t: Tallystick(t, record=False, tools=False, context=False, rules=False),
        "nothing",
    ),
    "a model that is none": (lambda t: ruled_llm(t, "gpt-5"), "A model is meant"),  # type: ignore[type-var]
    "tools as a text": (lambda t: ruled_tools(t, "search"), "list"),
    "rules as a text": (lambda t: TallyMiddleware(t, rules="deny"), "PolicyRule"),  # type: ignore[arg-type]
    "a namespace as a text": (lambda t: TallyMiddleware(t, namespace="notes"), r"\['notes'\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_piece_cannot_honour_is_refused_when_it_is_made(tally: Tally, name: str) -> None:
    make, reason = WRONG[name]
    with pytest.raises(InvalidInput, match=reason):
        make(tally)


def test_a_connection_string_is_not_opened_for_arguments_that_are_wrong(tmp_path: Path) -> None:
    place = tmp_path / "tally"
    for make in (TallySaver.from_conn_string, TallyStore.from_conn_string):
        with pytest.raises(InvalidInput, match="Actor"):
            make(str(place), actor="ann")  # type: ignore[arg-type]
        with pytest.raises(InvalidScope):
            make(str(place), scope="apollo")
    with (
        pytest.raises(InvalidInput, match="timedelta"),
        TallySaver.from_conn_string(str(place), ttl=5),  # type: ignore[arg-type]
    ):
        pass
    # What failed has let go of the tally.
    with TallySaver.from_conn_string(str(place)) as saver:
        assert list(saver.list(None)) == []


def test_an_index_may_name_the_embedder_of_the_tally(open_sqlite: OpenTally) -> None:
    embedder = HashEmbedder()
    with open_sqlite(embedder=embedder) as tally:
        index: Any = {"dims": embedder.dimension, "embed": embedder, "fields": ["text"]}
        store = TallyStore(tally, index=index)
        store.put(("notes",), "a", {"text": "The heron nests.", "hidden": "A gate."})
        assert [item.key for item in store.search(("notes",), query="heron")] == ["a"]

        class Embeddings:
            """As LangChain's are."""

            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                vectors: list[list[float]] = embedder.embed(texts).tolist()
                return vectors

            def embed_query(self, text: str) -> list[float]:
                return self.embed_documents([text])[0]

    foreign = Embeddings()
    with open_sqlite(embedder=foreign) as tally:
        named: Any = {"embed": foreign}
        assert TallyStore(tally, index=named)
        other: Any = {"embed": Embeddings()}
        with pytest.raises(InvalidInput, match="embedder of this tally"):
            TallyStore(tally, index=other)


def test_a_function_that_names_no_actor_is_refused_in_the_call(open_sqlite: OpenTally) -> None:
    def ask(call: Any) -> Any:
        return "ann"

    with open_sqlite() as tally, pytest.raises(InvalidInput, match="Return an Actor"):
        TallyRetriever(tally, actor=ask).retrieve("gate")


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in PIECES
        if name.rpartition(".")[2]
        not in {"compile_messages", "ingest", "memory_tools", "ruled_llm", "ruled_tools"}
    ],
)
def test_a_piece_shows_its_tally_actor_and_scope(tally: Tally, name: str) -> None:
    make, _ = PIECES[name]
    shown = repr(make(tally.bind(Actor(user="ann")), scope="project:apollo"))
    assert shown.startswith(f"{name.rpartition('.')[2]}({tally.location!r}, actor='ann', ")
    assert "scope='project:apollo'" in shown
    assert len(shown) < len(tally.location) + 120


@pytest.mark.parametrize("tool", [TallyMemoryTool, TallyAsyncMemoryTool])
def test_the_memory_tool_is_refused_what_is_no_tally_with_the_line_to_write(tool: Any) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"{tool.__name__}(Tally.open('.tally'))")):
        tool(".tally")
