# ruff: noqa: T201
# pyright: strict
"""A user's file that uses what we offer, type-checked strictly by mypy and pyright. It is not run.

What a runtime leaves untyped is silenced where it is used; nothing of ours is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from langchain_core.documents import Document as LangChainDocument
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore
from llama_index.core import Document
from llama_index.core.llms import LLM
from llama_index.core.memory import BaseMemory
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.tools import FunctionTool
from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.models.test import TestModel

from tallystick import (
    Actor,
    BoundTally,
    CallContext,
    ContextItem,
    NewMemory,
    PolicyRule,
    Scope,
    SourceRef,
    Tally,
)
from tallystick.errors import Denied, InvalidInput, TallystickError
from tallystick_langchain import (
    TallyCallbackHandler,
    TallyMiddleware,
    ToolRules,
    chat_model_call,
    compile_messages,
    memory_tools,
)
from tallystick_langgraph import TallySaver, TallySerializer, TallyStore, import_checkpoints
from tallystick_llama_index import (
    TallyInstrumentation,
    TallyMemory,
    TallyMemoryBlock,
    TallyNodePostprocessor,
    TallyRetriever,
    llm_call,
    ruled_llm,
    ruled_tools,
)
from tallystick_llama_index import memory_tools as llama_tools
from tallystick_pydantic_ai import (
    TallyContext,
    TallyPolicy,
    TallyRecorder,
    Tallystick,
    memory_toolset,
    model_call,
)


def core(path: Path) -> list[str]:
    """Use the verbs of memory."""
    with Tally.open(path, owner=Actor(user="ann")) as tally:
        mine: BoundTally = tally.bind(Actor(user="ann", projects={"apollo"}), "project:apollo")
        stored = mine.remember("We indent with tabs.", kind="decision", tags=["style"])
        mine.remember_many(
            [
                NewMemory(
                    content="The gate closes at six.",
                    tags=["style"],
                    source=SourceRef(uri="gate.txt"),
                ),
                {"content": "The bell rings twice."},
                "Herons nest in March.",
            ]
        )
        hits = mine.recall("tabs", limit=3, kinds=["decision"])
        compiled = mine.compile(
            [ContextItem(id="ask", kind="user_msg", content="Tabs?"), *hits], budget=1_000
        )
        with mine.run("agent", goal="answer") as run, run.step("tool_call", name="search") as step:
            step.record("tool_result", {"found": True})
        try:
            mine.forget(stored.id, reason="changed our mind")
        except Denied as error:
            return [error.reason]
        except (InvalidInput, TallystickError) as error:
            return [str(error)]
        texts = [hit.memory.content for hit in hits]
        return [*texts, str(mine.scope), *(item.id for item in compiled.selected_items)]


def documents(
    bound: BoundTally,
    pages: list[LangChainDocument],
    whole: list[Document],
    nodes: Sequence[BaseNode],
    found: list[NodeWithScore],
) -> list[str]:
    """Remember the documents of two runtimes."""
    stored = [
        *bound.remember_many(pages),
        *bound.remember_many(whole),
        *bound.remember_many(nodes),
        *bound.remember_many(found),
    ]
    return [result.status for result in stored]


def user_of(call: CallContext) -> Actor | None:
    """Say who acts."""
    return Actor(user=str(call.deps)) if call.deps else None


@dataclass
class State:
    """The state of a graph."""

    messages: list[AnyMessage]


def langgraph(tally: Tally, state: State, config: RunnableConfig) -> list[BaseMessage]:
    """Use the pieces for LangGraph."""
    saver: BaseCheckpointSaver[Any] = TallySaver(
        tally, actor=user_of, allow=[State], ttl=timedelta(days=30)
    )
    store: BaseStore = TallyStore(
        tally, scope=Scope.parse("project:apollo"), index={"fields": ["text"]}
    )
    with (
        TallySaver.from_conn_string(".tally", serde=TallySerializer([State])) as own,
        TallyStore.from_conn_string(".tally", ttl={"default_ttl": 60}) as own_store,
    ):
        import_checkpoints("old.sqlite", own)
        own_store.sweep_ttl()
    print(saver, store)
    return compile_messages(state, tally, budget=8_000, config=config, system="You are brief.")


def langchain(tally: Tally, model: BaseChatModel, rules: Sequence[PolicyRule]) -> list[BaseTool]:
    """Use the pieces for LangChain."""
    middleware = TallyMiddleware(
        tally, budget=8_000, capture="both", namespace=("memories", "{user_id}"), rules=rules
    )
    handler = TallyCallbackHandler(tally.bind(Actor(user="ann")), capture="user", strict=True)
    checks = ToolRules(tally)
    chat_model_call(model)
    print(handler.failures + middleware.failures, checks)
    return memory_tools(tally, approval="elsewhere")


@dataclass
class Deps:
    """The dependencies of an agent."""

    customer_id: int


def pydantic_ai(tally: Tally) -> str:
    """Use the pieces for PydanticAI."""
    agent = Agent(
        TestModel(),
        deps_type=Deps,
        output_type=[str, DeferredToolRequests],
        capabilities=[Tallystick(tally, capture="both", actor=user_of)],
        toolsets=[memory_toolset(tally, approval="deferred")],
    )

    @agent.tool
    def balance(ctx: RunContext[Deps]) -> str:  # pyright: ignore[reportUnusedFunction]
        """Return a balance."""
        return str(ctx.deps.customer_id)

    parts = [TallyRecorder(tally), TallyContext(tally, budget=500), TallyPolicy(tally)]
    print(parts, model_call(TestModel()))
    output = agent.run_sync("Hello?", deps=Deps(123)).output
    return "a person is asked" if isinstance(output, DeferredToolRequests) else output


def llama_index(tally: Tally, llm: LLM, tools: Sequence[FunctionTool]) -> list[FunctionTool]:
    """Use the pieces for LlamaIndex."""
    retriever: BaseRetriever = TallyRetriever(tally, similarity_top_k=4, kinds=["note"])
    memory: BaseMemory = TallyMemory(tally, session_id="ann-1", token_limit=4_000)
    same: TallyMemory = TallyMemory.from_defaults(tally, session_id="ann-1")
    block = TallyMemoryBlock(tally, memories=4)
    shorten = TallyNodePostprocessor(tally, token_budget=2_000)
    with TallyInstrumentation(tally, capture="user") as instrumentation:
        retriever.retrieve("tabs")
    print(instrumentation.failures, memory, same, block, shorten, llm_call(llm))
    return [
        *ruled_tools(tally, tools, llm=ruled_llm(tally, llm, provider="openai")),
        *llama_tools(tally),
    ]
