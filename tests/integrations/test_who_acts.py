"""Who acts: one answer in every piece of every runtime, wherever the runtime carries identity.

Each cell of the matrix runs one piece in its real runtime, on a tally on which a user was named
before. What it leaves behind says who acted: ada, whom the cell names, or nobody, because the call
was refused. The owner is never among them. The table in docs/who-acts.md is the one that comes out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from agents import Agent as OpenAIAgent
from agents import RunConfig, Runner, UserError
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.store.base import BaseStore
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.workflow import Context, StartEvent, StopEvent, Workflow, step
from llama_index_instrumentation.dispatcher import instrument_tags
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    ModelResponse,
    TextPart,
)
from pydantic_ai.models.function import FunctionModel

from tallystick import Actor, CallContext, Tally
from tallystick.errors import ApprovalRequired, Denied, InvalidInput
from tallystick.kit import Binder, named_actor
from tallystick.records import PolicyConditions, PolicyRule
from tallystick_langchain import (
    TallyCallbackHandler,
    TallyMiddleware,
    ToolRules,
    compile_messages,
    memory_tools,
)
from tallystick_langgraph import TallySaver, TallyStore
from tallystick_llama_index import (
    TallyInstrumentation,
    TallyMemory,
    TallyMemoryBlock,
    TallyRetriever,
    ruled_tools,
)
from tallystick_llama_index import memory_tools as llama_memory_tools
from tallystick_openai_agents import TallyRunner, TallySession
from tallystick_openai_agents import memory_tools as openai_memory_tools
from tallystick_pydantic_ai import TallyContext, TallyPolicy, TallyRecorder, memory_toolset

from .llama_scripted import Scripted
from .runtimes.base import call
from .runtimes.openai_agents import Scripted as ScriptedAgent
from .runtimes.pydantic_ai import scripted

OpenTally = Callable[..., Tally]
OWNER = Actor(user="local", role="operator")
ADA, BOB, ZOE = Actor(user="ada"), Actor(user="bob"), Actor(user="zoe")
Cell = Literal["the user", "refused", "cannot see, refused once users were named"]

ASK = PolicyRule(
    id="ask",
    name="Ask before the ruled tool",
    effect="require_approval",
    applies_to="tool_call",
    conditions=PolicyConditions(tool=("_ruled",)),
)


def _ruled(text: str) -> str:
    """Do what a person has to approve."""
    return text


SECRET = "The salary of {} is 90,000 euros."


@dataclass(frozen=True)
class Channel:
    """One way in which a call of a runtime names who acts."""

    name: str
    configurable: dict[str, Any]
    metadata: dict[str, Any]
    context: Any = None
    deps: Any = None
    store: dict[str, Any] | None = None

    @classmethod
    def of(cls, name: str, **places: Any) -> Channel:
        return cls(name, **{"configurable": {}, "metadata": {}, **places})


@dataclass
class Deps:
    """Dependencies of a PydanticAI agent."""

    user_id: str


LANGGRAPH = (
    Channel.of('`configurable["actor"]`', configurable={"actor": ADA}),
    Channel.of('`configurable["user_id"]`', configurable={"user_id": "ada"}),
    Channel.of('`configurable["langgraph_user_id"]`', configurable={"langgraph_user_id": "ada"}),
    Channel.of("`context=Actor(…)`", context=ADA),
    Channel.of('`context={"user_id": …}`', context={"user_id": "ada"}),
    Channel.of('`metadata["user_id"]`', metadata={"user_id": "ada"}),
    Channel.of("nobody"),
)
PYDANTIC_AI = (
    Channel.of("`deps=Actor(…)`", deps=ADA),
    Channel.of("`deps.user_id`", deps=Deps("ada")),
    Channel.of('`metadata["user_id"]`', metadata={"user_id": "ada"}),
    Channel.of("nobody"),
)
OPENAI_AGENTS = (
    Channel.of("`context=Actor(…)`", context=ADA),
    Channel.of("`context.user_id`", context=Deps("ada")),
    Channel.of('`context={"user_id": …}`', context={"user_id": "ada"}),
    Channel.of("nobody"),
)
LLAMA_INDEX = (
    Channel.of('`instrument_tags({"user_id": …})`', metadata={"user_id": "ada"}),
    Channel.of('`instrument_tags({"actor": Actor(…)})`', metadata={"actor": ADA}),
    Channel.of("store of the workflow: `user_id`", store={"user_id": "ada"}),
    Channel.of("nobody"),
)


class Model(GenericFakeChatModel):
    """A chat model that plays its answers, whatever tools it is offered."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def _model(*answers: AIMessage | str) -> Model:
    return Model(messages=iter(answers))


def _config(channel: Channel, **more: Any) -> Any:
    configurable = {"thread_id": "t1", **channel.configurable}
    return {"configurable": configurable, "metadata": channel.metadata, **more}


def _graph(node: Any, **parts: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(**parts)


def _invoke(graph: Any, channel: Channel, **more: Any) -> Any:
    message = {"messages": [HumanMessage("What is my salary?", id="m1")]}
    return graph.invoke(message, _config(channel, **more), context=channel.context)


def _nothing(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage("ok")]}


# The pieces of LangChain and LangGraph


def _saver(tally: Tally, channel: Channel) -> None:
    _invoke(_graph(_nothing, checkpointer=TallySaver(tally)), channel)


def _get_state(tally: Tally, channel: Channel) -> None:
    # The thread is ada's own: whoever acts as her sees it.
    graph = _graph(_nothing, checkpointer=TallySaver(tally.bind(ADA)))
    _invoke(graph, Channel.of("ada"))
    seen = _graph(_nothing, checkpointer=TallySaver(tally)).get_state(_config(channel))
    if seen.values:
        tally.bind(ADA).remember("seen")


def _store(tally: Tally, channel: Channel) -> None:
    def node(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        store.put(("notes",), "key", {"text": "a note"})
        return {}

    _invoke(_graph(node, store=TallyStore(tally)), channel)


def _compiling(tally: Tally, channel: Channel) -> None:
    def node(state: MessagesState) -> dict[str, Any]:
        messages = compile_messages(state, tally, budget=4_000)
        return {"messages": [AIMessage(" ".join(str(message.text) for message in messages))]}

    answer = _invoke(_graph(node), channel)["messages"][-1].text
    _remember_what_was_seen(tally, str(answer))


def _middleware(tally: Tally, channel: Channel) -> None:
    agent = create_agent(_model("ok"), [], middleware=[TallyMiddleware(tally, capture="user")])
    _invoke(agent, channel)


def _handler(tally: Tally, channel: Channel) -> None:
    handler = TallyCallbackHandler(tally, capture="user")
    model = _model("ok")

    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    _invoke(_graph(node), channel, callbacks=[handler])
    _raise_if_dropped(handler.failures)


def _handler_of_a_chain(tally: Tally, channel: Channel) -> None:
    handler = TallyCallbackHandler(tally, capture="user")
    chain = RunnableLambda(lambda text: text) | _model("ok")
    chain.invoke("What is my salary?", _config(channel, callbacks=[handler]))
    _raise_if_dropped(handler.failures)


def _handler_of_a_model(tally: Tally, channel: Channel) -> None:
    handler = TallyCallbackHandler(tally, capture="user")
    _model("ok").invoke("What is my salary?", _config(channel, callbacks=[handler]))
    _raise_if_dropped(handler.failures)


def _tools(tally: Tally, channel: Channel) -> None:
    call = {"name": "memory_store", "args": {"content": "a note"}, "id": "c1"}
    agent = create_agent(_model(AIMessage("", tool_calls=[call]), "ok"), memory_tools(tally))
    result = _invoke(agent, channel)
    _raise_if_refused(str(result["messages"]))


def _tool_rules(tally: Tally, channel: Channel) -> None:
    rules = ToolRules(tally)
    node = ToolNode([langchain_tool(_ruled)], wrap_tool_call=rules.wrap_tool_call)
    call = {"name": "_ruled", "args": {"text": "now"}, "id": "c1"}
    message: Any = {"messages": [AIMessage("", tool_calls=[call])]}
    with suppress(ApprovalRequired):
        _graph(node).invoke(message, _config(channel), context=channel.context)


# The pieces of PydanticAI


def _run(agent: Agent[Any, Any], channel: Channel) -> Any:
    coroutine = agent.run("What is my salary?", deps=channel.deps, metadata=channel.metadata)
    return asyncio.run(coroutine)


def _echo() -> FunctionModel:
    return FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart(str(messages))]))


def _recorder(tally: Tally, channel: Channel) -> None:
    recorder = TallyRecorder(tally, capture="user")
    _run(Agent(_echo(), capabilities=[recorder]), channel)
    _raise_if_dropped(recorder.failures)


def _context(tally: Tally, channel: Channel) -> None:
    result = _run(Agent(_echo(), capabilities=[TallyContext(tally)]), channel)
    _remember_what_was_seen(tally, result.output)


def _toolset(tally: Tally, channel: Channel) -> None:
    agent = Agent(
        scripted([call("memory_store", content="a note")], "done"), toolsets=[memory_toolset(tally)]
    )
    _raise_if_refused(str(_run(agent, channel).all_messages()))


def _policy(tally: Tally, channel: Channel) -> None:
    agent = Agent(
        scripted([call("_ruled", text="now")], "done"),
        tools=[_ruled],
        capabilities=[TallyPolicy(tally)],
        output_type=[str, DeferredToolRequests],
    )
    _run(agent, channel)


# The pieces of the OpenAI Agents SDK


def _run_agent(runner: Any, agent: Any, channel: Channel, **more: Any) -> Any:
    quiet = RunConfig(tracing_disabled=True)
    question = "What is my salary?"
    # Attacks name who acts in metadata; a run of this SDK names it in its context alone.
    context = channel.context or channel.metadata or None
    coroutine = runner.run(agent, question, context=context, run_config=quiet, **more)
    return asyncio.run(coroutine)


def _runner(tally: Tally, channel: Channel) -> None:
    runner = TallyRunner(tally, capture="user", strict=True)
    _run_agent(runner, OpenAIAgent("a", model=ScriptedAgent("ok")), channel)


def _session(tally: Tally, channel: Channel) -> None:
    agent = OpenAIAgent("a", model=ScriptedAgent("ok"))
    _run_agent(Runner, agent, channel, session=TallySession(tally, "s"))


def _agent_tools(tally: Tally, channel: Channel) -> None:
    model = ScriptedAgent([call("memory_store", content="a note")], "done")
    agent = OpenAIAgent("a", model=model, tools=openai_memory_tools(tally))
    try:
        result = _run_agent(Runner, agent, channel)
    except UserError as error:  # the SDK's own, around what a tool raised
        raise error.__cause__ or error from None
    _raise_if_refused(str(result.new_items))


# The pieces of LlamaIndex


class Calling(Workflow):
    """A workflow that makes one call."""

    def __init__(self, call: Callable[[Context], Any]) -> None:
        super().__init__(timeout=60)
        self._call = call

    @step
    async def make(self, ctx: Context, ev: StartEvent) -> StopEvent:
        """Make the call."""
        return StopEvent(result=await self._call(ctx))


def _in_workflow(channel: Channel, call: Callable[[Context], Any]) -> Any:
    async def run() -> Any:
        workflow = Calling(call)
        ctx: Context = Context(workflow)
        for key, value in (channel.store or {}).items():
            await ctx.store.set(key, value)
        with instrument_tags(channel.metadata):
            return await workflow.run(ctx=ctx)

    return asyncio.run(run())


def _retriever(tally: Tally, channel: Channel) -> None:
    async def call(ctx: Context) -> str:
        return str(await TallyRetriever(tally).aretrieve("salary"))

    _remember_what_was_seen(tally, _in_workflow(channel, call))


def _memory(tally: Tally, channel: Channel) -> None:
    async def call(ctx: Context) -> None:
        await TallyMemory.from_defaults(tally).aput(ChatMessage("a note", role="user"))

    _in_workflow(channel, call)


def _block(tally: Tally, channel: Channel) -> None:
    async def call(ctx: Context) -> str:
        request = [ChatMessage("salary", role="user")]
        return str(await TallyMemoryBlock(tally).aget(request))

    _remember_what_was_seen(tally, _in_workflow(channel, call))


def _instrumentation(tally: Tally, channel: Channel) -> None:
    async def call(ctx: Context) -> str:
        return str(await Scripted("ok").achat([ChatMessage("What is my salary?")]))

    with TallyInstrumentation(tally) as instrumentation:
        _in_workflow(channel, call)
    _raise_if_dropped(instrumentation.failures)


def _llama_tools(tally: Tally, channel: Channel) -> None:
    [tool] = [tool for tool in llama_memory_tools(tally) if tool.metadata.name == "memory_store"]

    async def call(ctx: Context) -> str:
        return str((await tool.acall(content="a note", ctx=ctx)).raw_output)

    _raise_if_refused(_in_workflow(channel, call))


def _ruled_tools(tally: Tally, channel: Channel) -> None:
    [tool] = ruled_tools(tally, [_ruled], approval="elsewhere")

    async def call(ctx: Context) -> None:
        with suppress(ApprovalRequired):
            await tool.acall(text="now", **{str(tool.ctx_param_name): ctx})

    _in_workflow(channel, call)


@dataclass(frozen=True)
class Piece:
    """A piece of an adapter, and the channels that it cannot see, with the reason."""

    name: str
    use: Callable[[Tally, Channel], None]
    channels: tuple[Channel, ...]
    blind: frozenset[str] = frozenset()


_OUTSIDE = frozenset({"`context=Actor(…)`", '`context={"user_id": …}`'})
_METADATA_ALONE = frozenset(
    channel.name for channel in LANGGRAPH if channel.configurable or channel.context
)
_NO_STORE = frozenset({"store of the workflow: `user_id`"})

PIECES = {
    "LangGraph and LangChain": (
        Piece("`TallySaver`", _saver, LANGGRAPH),
        Piece("`TallySaver` in `get_state`", _get_state, LANGGRAPH, _OUTSIDE),
        Piece("`TallyStore`", _store, LANGGRAPH),
        Piece("`compile_messages`", _compiling, LANGGRAPH),
        Piece("`TallyMiddleware`", _middleware, LANGGRAPH),
        Piece("`TallyCallbackHandler` on a graph", _handler, LANGGRAPH),
        Piece("`TallyCallbackHandler` on a chain", _handler_of_a_chain, LANGGRAPH, _OUTSIDE),
        Piece(
            "`TallyCallbackHandler` on a model alone",
            _handler_of_a_model,
            LANGGRAPH,
            _METADATA_ALONE,
        ),
        Piece("`memory_tools`", _tools, LANGGRAPH),
        Piece("`ToolRules`", _tool_rules, LANGGRAPH),
    ),
    "PydanticAI": (
        Piece("`TallyRecorder`", _recorder, PYDANTIC_AI),
        Piece("`TallyContext`", _context, PYDANTIC_AI),
        Piece("`memory_toolset`", _toolset, PYDANTIC_AI),
        Piece("`TallyPolicy`", _policy, PYDANTIC_AI),
    ),
    "OpenAI Agents SDK": (
        Piece("`TallyRunner`", _runner, OPENAI_AGENTS),
        Piece("`TallySession`", _session, OPENAI_AGENTS),
        Piece("`memory_tools`", _agent_tools, OPENAI_AGENTS),
    ),
    "LlamaIndex": (
        Piece("`TallyRetriever`", _retriever, LLAMA_INDEX, _NO_STORE),
        Piece("`TallyMemory`", _memory, LLAMA_INDEX, _NO_STORE),
        Piece("`TallyMemoryBlock`", _block, LLAMA_INDEX, _NO_STORE),
        Piece("`TallyInstrumentation`", _instrumentation, LLAMA_INDEX, _NO_STORE),
        Piece("`memory_tools`", _llama_tools, LLAMA_INDEX),
        Piece("`ruled_tools`", _ruled_tools, LLAMA_INDEX),
    ),
}
CELLS = [
    pytest.param(piece, channel, id=f"{piece.name}-{channel.name}".replace("`", ""))
    for pieces in PIECES.values()
    for piece in pieces
    for channel in piece.channels
]


class _Dropped(Exception):
    """A recorder dropped what it could not attribute."""


def _raise_if_dropped(failures: int) -> None:
    if failures:
        raise _Dropped


def _raise_if_refused(text: str) -> None:
    if "missing_actor" in text:
        raise _Dropped


def _remember_what_was_seen(tally: Tally, text: str) -> None:
    """Leave a trace in the scope of the one whose memory a model was shown."""
    for actor in (ADA, BOB, ZOE, tally.owner):
        assert actor is not None
        if SECRET.format(actor.user) in text:
            tally.bind(actor).remember("seen")


def _traces(tally: Tally, actor: Actor | None) -> int:
    """Count what is in the scope of an actor, beside the secret that each has."""
    bound = tally.bind(actor)
    items = len(bound.items.find())
    asked = len(bound.approvals.list(state=None))
    return (
        len(bound.memories())
        - 1
        + items
        + asked
        + len(bound.recordings.runs())
        + len(bound.threads.names())
    )


def _expected(piece: Piece, channel: Channel) -> Cell:
    if channel.name == "nobody":
        return "refused"
    if channel.name in piece.blind:
        return "cannot see, refused once users were named"
    return "the user"


@pytest.fixture
def named(open_sqlite: OpenTally) -> Iterator[Tally]:
    """A tally on which a runtime has named a user."""
    with open_sqlite(rules=[ASK]) as tally:
        for actor in (ADA, BOB, ZOE, None):
            bound = tally.bind(actor)
            bound.remember(SECRET.format(bound.actor.user))
        TallyStore(tally, actor=lambda call: ZOE).get(("notes",), "none")
        yield tally


@pytest.mark.parametrize(("piece", "channel"), CELLS)
def test_every_piece_acts_as_the_user_that_its_call_names_or_is_refused(
    named: Tally, piece: Piece, channel: Channel
) -> None:
    if _expected(piece, channel) == "the user":
        piece.use(named, channel)
    else:
        with pytest.raises((Denied, _Dropped)):
            piece.use(named, channel)

    changed = {user for user, actor in _everybody(named) if _traces(named, actor)}
    if piece.use is _get_state and _expected(piece, channel) != "the user":
        changed.discard("ada")  # her own thread, made through her own view
    assert changed == ({"ada"} if _expected(piece, channel) == "the user" else set())


def _everybody(tally: Tally) -> list[tuple[str, Actor | None]]:
    return [("ada", ADA), ("bob", BOB), ("zoe", ZOE), ("the owner", None)]


def test_the_matrix_of_who_acts_is_the_table_in_the_documentation() -> None:
    page = Path(__file__).parents[2] / "docs" / "who-acts.md"
    text = page.read_text(encoding="utf-8")
    for runtime, pieces in PIECES.items():
        names = [channel.name for channel in pieces[0].channels]
        lines = [f"| {runtime} | {' | '.join(names)} |", "| --- |" + " --- |" * len(names)]
        for piece in pieces:
            cells = [_expected(piece, channel) for channel in piece.channels]
            lines.append(f"| {piece.name} | {' | '.join(cells)} |")
        table = "\n".join(lines)
        assert table in text, f"docs/who-acts.md needs this table:\n\n{table}"


# Rules of the resolver


def _call(**places: Any) -> CallContext:
    return CallContext("langgraph", "TallySaver", **places)


def test_two_places_that_name_different_users_are_refused_in_every_piece() -> None:
    with pytest.raises(
        Denied, match=r"context names bob and configurable.user_id .* \(ada\)"
    ) as no:
        named_actor(_call(configurable={"user_id": "ada"}, context=BOB))
    assert no.value.reason == "principal_mismatch"


def test_an_actor_counts_before_the_bare_id_of_its_user() -> None:
    whole = Actor(user="ada", projects={"apollo"})
    call = _call(configurable={"user_id": "ada"}, metadata={"actor": whole})
    assert named_actor(call) == whole


def test_an_agent_that_acts_for_a_user_agrees_with_the_id_of_that_user() -> None:
    agent = Actor(user="service", agent="coder", acting_for="ada")
    assert named_actor(_call(context=agent, metadata={"user_id": "ada"})) == agent


@pytest.mark.parametrize("value", [{"user": "ada", "role": "operator"}, True, 1.5, ["ada"]])
def test_what_is_neither_an_actor_nor_an_id_is_refused_and_never_ignored(value: Any) -> None:
    with pytest.raises(InvalidInput, match="Pass an Actor"):
        named_actor(_call(configurable={"actor": value}))


def test_a_number_is_the_id_of_a_user() -> None:
    assert named_actor(_call(context={"user_id": 42})) == Actor(user="42")


def test_a_piece_of_one_user_refuses_a_call_that_names_another(open_tally: OpenTally) -> None:
    with open_tally(owner=OWNER) as tally:
        graph = _graph(_nothing, checkpointer=TallySaver(tally.bind(ADA)))
        with pytest.raises(Denied, match="names another actor"):
            _invoke(graph, Channel.of("bob", configurable={"actor": BOB}))


def test_a_user_of_the_same_name_in_another_organization_is_another_user(
    open_tally: OpenTally,
) -> None:
    acme = ADA.replace(organization="acme")
    with open_tally(owner=OWNER) as tally:
        binder = Binder(tally.bind(acme), runtime="langgraph", piece="TallySaver")
        for named in (acme, ADA.user):
            assert binder.bound(_call(configurable={"actor": named})).actor.same_as(acme)
        with pytest.raises(Denied, match="names another actor"):
            binder.bound(_call(configurable={"actor": ADA.replace(organization="other")}))


def test_one_function_says_for_all_runtimes_who_acts(tmp_path: Path) -> None:
    seen: list[CallContext] = []

    def actor_from(call: CallContext) -> Actor | None:
        seen.append(call)
        return ADA

    with Tally.open(tmp_path / "t", actor_from=actor_from, background=False) as tally:
        channel = Channel.of("any", configurable={"tenant": "acme"}, deps=Deps("bob"))
        for use in (_saver, _store, _middleware, _handler, _tools, _recorder, _toolset, _memory):
            use(tally, channel)
        assert _traces(tally, None) == -1
    pieces = {call.piece for call in seen}
    assert {"TallySaver", "TallyStore", "TallyMiddleware", "TallyCallbackHandler"} <= pieces
    assert {"TallyRecorder", "memory_toolset", "TallyMemory", "memory_tools"} <= pieces
    assert {call.runtime for call in seen} == {
        "langgraph",
        "langchain",
        "pydantic_ai",
        "llama_index",
    }
    assert any(call.configurable.get("tenant") == "acme" for call in seen)
    assert any(call.deps == Deps("bob") for call in seen)


# The owner is never a user by accident


def test_before_any_user_is_named_a_call_that_names_nobody_acts_as_the_owner(
    open_tally: OpenTally,
) -> None:
    with open_tally(owner=OWNER) as tally:
        _middleware(tally, Channel.of("nobody"))
        assert [memory.content for memory in tally.bind().memories()] == ["What is my salary?"]


def test_the_first_named_user_is_journaled_once_and_doctor_says_so(open_tally: OpenTally) -> None:
    with open_tally(owner=OWNER) as tally:
        assert _finding(tally).status == "ok"
        for user in ("ada", "bob", "ada"):
            _store(tally, Channel.of(user, configurable={"user_id": user}))
        assert "users were named" in _finding(tally).text
        with pytest.raises(Denied, match="missing_actor"):
            _store(tally, Channel.of("nobody"))
        assert "1 call" in _finding(tally).text


def test_another_process_that_was_open_before_refuses_as_well(open_tally: OpenTally) -> None:
    with open_tally(owner=OWNER) as tally, open_tally(owner=OWNER) as other:
        saver = TallySaver(other)
        graph = _graph(_nothing, checkpointer=saver)
        _invoke(graph, Channel.of("nobody"))
        _store(tally, Channel.of("ada", configurable={"user_id": "ada"}))
        with pytest.raises(Denied, match="missing_actor"):
            _invoke(graph, Channel.of("nobody"))
        with pytest.raises(Denied, match="missing_actor"):
            saver.delete_thread("t1")
        assert other.bind().threads.names() == ["t1"]


def test_owner_fallback_keeps_the_owner_where_nobody_is_named(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "t", owner_fallback=True, background=False) as tally:
        _store(tally, Channel.of("ada", configurable={"user_id": "ada"}))
        _store(tally, Channel.of("nobody"))
        assert len(tally.bind().items.find()) == 1


def test_a_recorder_that_is_told_of_nobody_drops_the_run_and_counts_it(named: Tally) -> None:
    handler = TallyCallbackHandler(named)
    model = _model("ok")
    answer = _graph(lambda state: {"messages": [model.invoke(state["messages"])]}).invoke(
        {"messages": [HumanMessage("hello")]}, {"callbacks": [handler]}
    )
    assert answer["messages"][-1].text == "ok"
    assert handler.failures >= 1
    assert named.bind().recordings.runs() == []


def test_inside_a_run_of_a_user_a_call_that_names_nobody_acts_as_that_user(named: Tally) -> None:
    with named.bind(ADA).run("agent"):
        _store(named, Channel.of("nobody"))
    assert len(named.bind(ADA).items.find()) == 1


def test_two_users_on_one_thread_id_have_two_threads_and_no_common_memory(
    open_tally: OpenTally,
) -> None:
    with open_tally(owner=OWNER) as tally:
        agent = create_agent(
            _model("noted", "I do not know"),
            [],
            middleware=[TallyMiddleware(tally, capture="user")],
            checkpointer=TallySaver(tally),
            store=TallyStore(tally),
        )
        prompts: list[str] = []
        for user, text in (("ada", "My salary is 90,000 euros."), ("bob", "What is my salary?")):
            config: Any = {
                "configurable": {"thread_id": "1", "actor": Actor(user=user)},
                "callbacks": [_Prompts(prompts)],
            }
            agent.invoke({"messages": [HumanMessage(text)]}, config)
        assert "90,000" in prompts[0]
        assert "90,000" not in prompts[1]
        assert [m.content for m in tally.bind(BOB).memories()] == ["What is my salary?"]


class _Prompts(BaseCallbackHandler):
    """Collects what a model is sent."""

    def __init__(self, prompts: list[str]) -> None:
        self._prompts = prompts

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self._prompts.append(str(messages))


def _finding(tally: Tally) -> Any:
    [finding] = [
        finding for finding in tally.bind().operator.doctor() if finding.check == "who acts"
    ]
    return finding
