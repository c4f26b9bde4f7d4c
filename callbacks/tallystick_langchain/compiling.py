"""compile_messages: the best context that fits, inside a node of any graph or a runnable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.messages.utils import convert_to_messages
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from tallystick.adapters import ActorSource, Binder, recall_for_turn
from tallystick.adapters.configurable import call_of_config, namespace_for
from tallystick.adapters.frames import without_frames
from tallystick.compiler import FRAMED
from tallystick.errors import InvalidInput
from tallystick.records import CompileConfig, PolicyRule, Scope
from tallystick.tally import BoundTally, Tally
from tallystick_langchain.render import items_of, own_messages, render, tool_specs

__all__ = ["compile_messages"]


def compile_messages(
    state: Mapping[str, Any] | Sequence[Any],
    tally: Tally | BoundTally,
    *,
    budget: int,
    reserve: int = 0,
    system: str | SystemMessage | None = None,
    tools: Sequence[Any] = (),
    memories: int = 8,
    namespace: Sequence[str] | None = None,
    config: RunnableConfig | None = None,
    messages_key: str = "messages",
    model: str | None = None,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    rules: Sequence[PolicyRule] = (),
    compile_config: CompileConfig | None = None,
) -> list[BaseMessage]:
    """Return the messages to send for this state: `model.invoke(compile_messages(state, tally,
    budget=8_000))`.

    `state` is the graph's state or its messages, and is not changed. `memories` are recalled for
    the latest message of the user, with the items of the graph's store beneath `namespace`, whose
    labels may be such as `"{user_id}"`. `actor` says who acts, by default what `config` (else that
    of the node) names (docs/policy.md, "Who acts"). Inside a step of a run the compile is recorded
    with it. Raises InvalidInput, BudgetInfeasible, InvalidContext or Denied.
    """
    history = state.get(messages_key) if isinstance(state, Mapping) else state
    if history is None:
        raise InvalidInput(
            f"The state has no {messages_key!r}. Name its channel of messages with `messages_key`."
        )
    messages = convert_to_messages(history)
    if system is not None:
        first = system if isinstance(system, SystemMessage) else SystemMessage(system)
        messages = [first if first.id else first.model_copy(update={"id": "system"}), *messages]
    binder = Binder(tally, runtime="langgraph", piece="compile_messages", actor=actor, scope=scope)
    call = call_of_config(binder, ensure_config(config))
    bound = binder.bound(call)
    messages = own_messages(messages, partial(without_frames, bound))
    latest = next((message for message in reversed(messages) if message.type == "human"), None)
    query = "" if latest is None else str(latest.text)
    # The id of a message says which turn it is; one without an id is recalled anew at each call.
    turn = None if latest is None else latest.id
    items = items_of(messages, bound.tally.counter(model).count)
    compiled = bound.compile(
        [
            *(item for item, _ in items.values()),
            *recall_for_turn(
                bound,
                query,
                limit=memories,
                turn=turn,
                namespace=namespace_for(namespace, call, bound.actor),
            ),
        ],
        budget=budget,
        reserve=reserve,
        model=model,
        tools=tool_specs(tools),
        rules=rules,
        config=compile_config,
        target=FRAMED,
    )
    return render(compiled, {item_id: message for item_id, (_, message) in items.items()}).all
