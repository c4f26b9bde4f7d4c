"""Prefix of an agent's requests: how much of each begins the next, over turns of several tool
calls.

Run it with `make bench-prefix`. One scripted agent of `create_agent` talks for 30 turns, each of
four tool calls with results of some 120 tokens; its requests are compared as they reach the model,
with LangChain's stock middleware and with ours. Tokens are characters over four.

The same agent without a framework sends its requests through our providers: there `prompt` is the
share of a request's bytes, without the marks of a cache, that begin the next.

prompt     share of a request that is the literal beginning of the next zone       the same for what
stands before the current turn: instructions and history, less what was recalled for it largest
tokens of the largest request billed     tokens a request as a provider bills them: read from the
cache 0.1, written to it 1.25
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from tallystick import Actor, ContextItem, Tally
from tallystick.compiler import FRAMED
from tallystick.kit import AGENT_CONFIG
from tallystick.records import JsonObject, ModelAnswer, ModelToolCall, ToolSpec
from tallystick.tally import BoundTally
from tallystick_anthropic import MessagesProvider
from tallystick_langchain import TallyMiddleware
from tallystick_langchain.render import CONTEXT_ID
from tallystick_openai import ResponsesProvider

_READ, _WRITE = 0.1, 1.25
_CALLS = 4
_PLACE: JsonObject = {
    "type": "object",
    "properties": {"place": {"type": "string"}},
    "required": ["place"],
}


class _Model(GenericFakeChatModel):
    asked: list[list[BaseMessage]] = []

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.asked.append(list(messages))
        return super()._generate(messages, *args, **kwargs)


@tool
def look(place: str) -> str:
    """What there is at a place."""
    chance = random.Random(place)
    words = ("reed", "heron", "boat", "stone", "river", "nest", "harbour", "lamp", "rope", "sail")
    return f"{place}: " + " ".join(chance.choice(words) for _ in range(80))


def _script(turns: int) -> Iterator[AIMessage | str]:
    for turn in range(turns):
        for call in range(_CALLS):
            asked = {
                "name": "look",
                "args": {"place": f"berth {turn}-{call}"},
                "id": f"call-{turn}-{call}",
            }
            yield AIMessage("", tool_calls=[asked])
        yield f"At berth {turn} there are boats and herons."


def _count(messages: Iterable[Any]) -> int:
    return sum(len(_said(message)) // 4 for message in messages)


def _said(message: BaseMessage) -> str:
    return f"{message.type}\n{message.content}\n{getattr(message, 'tool_calls', '')}"


def requests(turns: int, middleware: Sequence[Any]) -> list[list[BaseMessage]]:
    """Every request that reaches the model."""
    model = _Model(messages=_script(turns), asked=[])
    agent: Any = create_agent(
        model,
        [look],
        system_prompt="You watch the harbour. " * 20,
        middleware=list(middleware),
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "one"}, "recursion_limit": 100}
    for turn in range(turns):
        agent.invoke({"messages": [HumanMessage(f"What is there at berth {turn}?")]}, config)
    return model.asked


def report(name: str, asked: Sequence[Sequence[BaseMessage]]) -> None:
    """Print the line of one arm."""
    same = total = zone_same = zone_total = billed = 0.0
    before: Sequence[BaseMessage] = ()
    for request in asked:
        common = 0
        while common < min(len(before), len(request)) and _said(before[common]) == _said(
            request[common]
        ):
            common += 1
        read, size = _count(before[:common]), _count(request)
        if before:
            latest = max(place for place, message in enumerate(before) if message.type == "human")
            end = latest - 1 if latest and before[latest - 1].id == CONTEXT_ID else latest
            same, total = same + read, total + _count(before)
            zone_same += _count(before[: min(common, end)])
            zone_total += _count(before[:end])
        billed += _READ * read + _WRITE * (size - read)
        before = request
    largest = max(_count(request) for request in asked)
    print(
        f"{name:<34}{same / total:>9.3f}{zone_same / zone_total:>9.3f}"
        f"{largest:>10,}{billed / len(asked):>10,.0f}",
        flush=True,
    )


def _provider_requests(provider: Any, bound: BoundTally, turns: int, budget: int) -> list[str]:
    """Every request of the agent as a provider gets it, in the order in which it reads: tools,
    instructions, messages.
    """
    system = ContextItem(id="system", kind="system", content="You watch the harbour. " * 20)
    tools = (ToolSpec(name="look", description="What there is at a place.", parameters=_PLACE),)
    items: list[ContextItem] = []
    rendered = []
    for turn in range(turns):
        items.append(
            ContextItem(id=f"u{turn}", kind="user_msg", content=f"What is there at berth {turn}?")
        )
        for call in range(_CALLS + 1):
            compiled = bound.compile(
                [system, *items],
                budget=budget,
                tools=tools,
                target=FRAMED,
                config=AGENT_CONFIG,
            )
            body = _unmarked(provider.render(compiled))
            order = ("tools", "system", "instructions", "input", "messages")
            rendered.append(
                "\n".join(json.dumps(body[name])[1:-1] for name in order if name in body)
            )
            name, place = f"call-{turn}-{call}", f"berth {turn}-{call}"
            if call == _CALLS:
                text = f"At berth {turn} there are boats and herons."
                items.append(ModelAnswer(text=text).item(f"a{turn}"))
                continue
            asked = ModelToolCall(id=name, name="look", arguments={"place": place})
            items.append(ModelAnswer(tool_calls=(asked,)).item(f"a-{name}"))
            items.append(
                ContextItem(
                    id=f"r-{name}",
                    kind="tool_result",
                    content=look.invoke({"place": place}),
                    tool_call_id=name,
                )
            )
    return rendered


def _unmarked(value: Any) -> Any:
    """Return a request without the marks of a cache, which move and are not compared by it."""
    if isinstance(value, list):
        return [_unmarked(each) for each in value]
    if isinstance(value, dict):
        marks = ("cache_control", "prompt_cache_breakpoint")
        return {key: _unmarked(each) for key, each in value.items() if key not in marks}
    return value


def _shared(requests: Sequence[str]) -> float:
    pairs = list(pairwise(requests))
    common = sum(
        next((n for n, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), len(pair[0]))
        for pair in pairs
    )
    return common / sum(len(before) for before, _ in pairs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--budget", type=int, default=6_000)
    chosen = parser.parse_args()
    summaries = _Model(messages=iter(["The harbour was watched."] * 1_000), asked=[])
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(Path(folder) / "t", background=False) as tally,
    ):
        bound = tally.bind(Actor(user="anna"))
        bound.remember_many(
            [f"Berth {number} belongs to the harbour master." for number in range(40)]
        )
        arms: dict[str, Callable[[], list[Any]]] = {
            "nothing": list,
            "SummarizationMiddleware": lambda: [
                SummarizationMiddleware(
                    summaries,
                    trigger=("tokens", chosen.budget),
                    keep=("messages", 20),
                    token_counter=_count,
                )
            ],
            "ContextEditingMiddleware": lambda: [
                ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=chosen.budget, keep=10)])
            ],
            "TallyMiddleware": lambda: [TallyMiddleware(bound, budget=chosen.budget)],
        }
        print(f"{chosen.turns} turns of {_CALLS} tool calls, budget {chosen.budget:,}")
        print(f"{'':<34}{'prompt':>9}{'zone':>9}{'largest':>10}{'billed':>10}")
        for name, make in arms.items():
            report(name, requests(chosen.turns, make()))
        providers = (
            ("ResponsesProvider", ResponsesProvider("gpt-5")),
            ("MessagesProvider", MessagesProvider("claude-sonnet-5")),
        )
        for name, provider in providers:
            sent = _provider_requests(provider, bound, chosen.turns, chosen.budget)
            print(f"{name:<34}{_shared(sent):>9.3f}", flush=True)


if __name__ == "__main__":
    main()
