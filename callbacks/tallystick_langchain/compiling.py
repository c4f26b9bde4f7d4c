"""compile_messages: the best context that fits, inside a node of any graph or a runnable."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.messages.utils import convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from tallystick.errors import InvalidInput
from tallystick.kit import (
    MEMORIES,
    MEMORY_BUDGET,
    ActorSource,
    Binder,
    ContextMode,
    RequestCompiler,
    RequestParts,
    check_names,
    describe_value,
    note_unsent,
)
from tallystick.kit.binder import call_of_config, namespace_for
from tallystick.kit.rendering import without_frames
from tallystick.records import Compaction, CompileConfig, PolicyRule, Scope
from tallystick.tally import BoundTally, Candidate, Tally
from tallystick_langchain.render import (
    items_of,
    own_messages,
    render,
    tool_name,
    tool_specs,
    with_memory,
)


class CompiledMessages(list[BaseMessage]):
    """The messages to send, and the tools to offer with them."""

    def __init__(self, messages: Iterable[BaseMessage], tools: Sequence[Any]) -> None:
        super().__init__(messages)
        self.tools = list(tools)
        """The tools that may be offered: `model.bind_tools(sent.tools).invoke(sent)`."""


def compile_messages(
    state: Any,
    tally: Tally | BoundTally,
    *,
    context: ContextMode = "request",
    budget: int | None = None,
    reserve: int = 0,
    memory_budget: int = MEMORY_BUDGET,
    memories: int = MEMORIES,
    history_share: int | None = None,
    turn_share: int | None = None,
    compile_config: CompileConfig | None = None,
    compaction: Compaction = "cut",
    system: str | SystemMessage | None = None,
    tools: Sequence[Any] = (),
    items: Iterable[Candidate] = (),
    namespace: Sequence[str] | None = None,
    query: str | None = None,
    config: RunnableConfig | None = None,
    messages_key: str = "messages",
    model: str | None = None,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    rules: Sequence[PolicyRule] = (),
) -> CompiledMessages:
    """Return the messages to send for this state: `model.invoke(compile_messages(state, tally,
    budget=8_000))`. Their `tools` are those of `tools` that the rules let the model have.

    The arguments up to `compaction` are those of TallyMiddleware; `budget` is 32,000 unless it
    is given. `state` is the messages, or a state that has them under `messages_key`: a dict,
    TypedDict, dataclass or pydantic model. It is not changed. `items` are candidates of your own
    beside the messages: files, documents, a diff. `memories` are recalled for the latest message of
    the user, with the items of the graph's store beneath `namespace`, whose labels may be such as
    `"{user_id}"`. Relevance is measured against `query`, by default that message. `actor` says who
    acts, by default what `config` (else that of the node) names (docs/who-acts.md).
    Inside a step of a run the compile is recorded with it, else by a TallyCallbackHandler in the
    step of the model that is called with these messages. Raises InvalidInput,
    BudgetInfeasible, InvalidContext or Denied.
    """
    binder = Binder(
        tally,
        runtime="langgraph",
        piece="compile_messages",
        actor=actor,
        scope=scope,
        usage="compile_messages(state, {}, budget=8_000)",
    )
    compiler = RequestCompiler(
        context=context,
        budget=budget,
        reserve=reserve,
        memory_budget=memory_budget,
        memories=memories,
        history_share=history_share,
        turn_share=turn_share,
        compile_config=compile_config,
        compaction=compaction,
        rules=rules,
    )
    check_names("namespace", namespace)
    items = tuple(items)
    if items and not compiler.is_whole:
        raise InvalidInput(
            "`items` are candidates of a whole request. Leave them out, or write context='request'."
        )
    messages = _messages_in(state, messages_key)
    if system is not None:
        first = system if isinstance(system, SystemMessage) else SystemMessage(system)
        messages = [first if first.id else first.model_copy(update={"id": "system"}), *messages]
    call = call_of_config(binder, ensure_config(config))
    bound = binder.bound(call)
    messages = own_messages(messages, partial(without_frames, bound))
    latest = next((message for message in reversed(messages) if message.type == "human"), None)
    request = "" if latest is None else str(latest.text)
    # The id of a message says which turn it is; one without an id is recalled anew at each call.
    turn = None if latest is None else latest.id
    spoken = items_of(messages, bound.tally.counter(model).count)
    parts = RequestParts(
        items=[*(item for item, _ in spoken.values()), *items],
        tools=tool_specs(tools),
        text=request,
        turn=turn,
        conversation=call.session,
        namespace=namespace_for(namespace, call, bound.actor),
        query=query,
        model=model,
    )
    compiled = compiler.compile(bound, parts)
    offered = list(tools)
    if compiler.is_whole:
        rendered = render(compiled, {item_id: each for item_id, (_, each) in spoken.items()})
        messages = rendered.all
        denied = {spec.name for spec in parts.tools} - rendered.tools
        offered = [tool for tool in tools if tool_name(tool) not in denied]
    else:
        messages = with_memory(messages, compiled)
    note_unsent(bound, messages, compiled)
    return CompiledMessages(messages, offered)


def _messages_in(state: Any, key: str) -> list[BaseMessage]:
    """Return the messages of a state. Raises InvalidInput for what is none and has none."""
    if isinstance(state, PromptValue):
        return state.to_messages()
    if isinstance(state, str | bytes | BaseMessage | type):
        raise InvalidInput(
            f"The state is {describe_value(state)}. Give the state of the graph, or a list of "
            f"messages: compile_messages([HumanMessage(…)], tally, budget=8_000)."
        )
    if isinstance(state, Mapping):
        # A mapping may make up what it is not asked for, which `get` does not.
        messages = state.get(key)
        fields = [str(name) for name in state]
    elif isinstance(state, Sequence):
        messages, fields = state, []
    else:
        messages = getattr(state, key, None)
        fields = _fields(state)
    if messages is None:
        raise InvalidInput(
            f"{_describe_state(state, fields)} has no {key!r}. Name its channel of messages with "
            f"`messages_key`, or give the list of messages.",
            argument="messages_key",
        )
    if isinstance(messages, str | BaseMessage) or not isinstance(messages, Sequence):
        raise InvalidInput(
            f"{key!r} of the state is {describe_value(messages)}, where a list of messages is "
            f"meant."
        )
    try:
        return convert_to_messages(messages)
    except (NotImplementedError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(
            "The messages hold what LangChain cannot read as one: give messages, (role, text) "
            "pairs or dicts of the form {'role': …, 'content': …}."
        ) from error


def _fields(state: Any) -> list[str]:
    """Return the names of the fields of a dataclass or a pydantic model."""
    if dataclasses.is_dataclass(state):
        return [each.name for each in dataclasses.fields(state)]
    return list(getattr(type(state), "model_fields", ()))


def _describe_state(state: Any, fields: Sequence[str]) -> str:
    kind = "The state" if isinstance(state, Mapping) else f"The state, a {type(state).__name__},"
    return f"{kind} (with {', '.join(fields)})" if fields else kind
