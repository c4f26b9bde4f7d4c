"""One call of each kind with a real model, and what it cost: `make live ARGS=openai`.

Needs the key of the provider in the environment. Nothing of it runs in the tests.
"""

from __future__ import annotations

import argparse
import tempfile
from decimal import Decimal
from typing import Any

from tallystick import Actor, ContextItem, Tally
from tallystick.errors import TallystickError
from tallystick.tally import BoundTally, ModelCall
from tallystick_anthropic import MessagesProvider
from tallystick_anthropic import memory_tools as messages_tools
from tallystick_openai import ResponsesProvider
from tallystick_openai import memory_tools as responses_tools

_PROVIDERS: dict[str, tuple[Any, Any, str]] = {
    "openai": (ResponsesProvider, responses_tools, "gpt-5-mini"),
    "anthropic": (MessagesProvider, messages_tools, "claude-haiku-4-5"),
}


def main() -> None:
    """Call, and print what happened. Exits with 1 where a call is refused or fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("provider", choices=sorted(_PROVIDERS))
    parser.add_argument("--model")
    chosen = parser.parse_args()
    make, tools_of, default = _PROVIDERS[chosen.provider]
    provider = make(chosen.model or default, wire=True)
    with tempfile.TemporaryDirectory() as folder, Tally.open(folder, background=False) as tally:
        bound = tally.bind(Actor(user="ann"))
        try:
            calls = _calls(bound, provider, tools_of(bound, ask=lambda _: False))
        except TallystickError as error:
            raise SystemExit(f"Nothing more was sent: {error}") from error
    spent = sum((Decimal(call.cost.amount or 0) for call in calls), Decimal(0))
    unknown = sum(call.cost.amount is None for call in calls)
    print(f"{len(calls)} calls, {spent} {calls[0].cost.currency}, {unknown} of unknown cost")


def _calls(bound: BoundTally, provider: Any, tools: Any) -> list[ModelCall]:
    bound.remember("Ann is allergic to nuts.")
    system = ContextItem(id="system", kind="system", content="Answer in one short sentence.")

    def asked(text: str, *items: ContextItem) -> Any:
        question = ContextItem(id="question", kind="user_msg", content=text)
        return bound.compile(
            [system, question, *items], budget=4_000, tools=tools.specs, reserve=1_024
        )

    calls = []
    with bound.run("live") as run:
        compiled = asked("Say hello.")
        count = provider.count_tokens(provider.render(compiled))
        print(f"count_tokens: {count}; ours: {compiled.token_allocation['used']}")
        calls.append(bound.call_model(compiled, provider=provider))
        print(f"call_model: {calls[-1].text!r}, {calls[-1].usage}, {calls[-1].cost}")
        with bound.stream_model(asked("Count to five."), provider=provider) as stream:
            print("stream_model:", *stream.texts())
        calls.append(stream.call)
        items: list[ContextItem] = []
        for _ in range(4):
            call = bound.call_model(
                asked("Search your memory: what may Ann not eat?", *items), provider=provider
            )
            calls.append(call)
            if not call.tool_calls:
                break
            items += [call.item(), *tools.results(call.tool_calls)]
        print(f"tools: {calls[-1].text!r} after {len(items)} items")
    print(f"recorded and verified: {bound.recordings.verify(run.id).ok}")
    return calls


if __name__ == "__main__":
    main()
