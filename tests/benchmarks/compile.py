"""Speed of a compile at 100 to 10,000 candidates, beside `trim_messages` and `ChatMemoryBuffer` in the same run.

Run it with `make bench-compile`. Candidates are messages of 12 to 30 words, three quarters of them older turns and a
quarter recalled notes; the budget is 4,000 tokens by the tally's own counter; the others are given a counter that
counts characters. What was learnt of a text is kept from the compile before, as it is from step to step of an agent.

recorded    a compile in a step that is closed, one after the other without a pause, so that what is serialised and
            written in the background is paid for within it
own thread  CPU that recording adds to the thread that compiles, in percent of the compile
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.recall import turns

from tallystick import Actor, BoundTally, Tally
from tallystick.compiler import compile_context
from tallystick.records import CompilationRequest, CompiledContext, ContextItem

_BUDGET = 4_000


def candidates(count: int) -> list[ContextItem]:
    """Messages and notes."""
    said = [turn.content for turn in turns(count)]
    notes = count // 4
    items = [ContextItem(id=f"note-{place:05}", kind="memory", content=text) for place, text in enumerate(said[:notes])]
    return items + [
        ContextItem(id=f"turn-{place:05}", kind=("user_msg", "assistant_msg")[place % 2], content=text)
        for place, text in enumerate(said[notes:])
    ]


def milliseconds(work: Callable[[], object], rounds: int) -> tuple[float, float]:
    """The median of some rounds, after one that warms up, and the median of this thread's CPU."""
    work()
    times, own = [], []
    for _ in range(rounds):
        began, cpu = time.perf_counter(), time.thread_time()
        work()
        times.append((time.perf_counter() - began) * 1_000)
        own.append((time.thread_time() - cpu) * 1_000)
    return statistics.median(times), statistics.median(own)


def _trim(items: Sequence[ContextItem]) -> Callable[[], object]:
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, trim_messages

    def counter(messages: list[BaseMessage]) -> int:
        return sum(-(-len(str(message.content)) // 4) for message in messages)

    kinds = {"user_msg": HumanMessage, "assistant_msg": AIMessage, "memory": HumanMessage}
    messages = [kinds[item.kind](item.content) for item in items]
    return lambda: trim_messages(messages, max_tokens=_BUDGET, strategy="last", token_counter=counter)


def _buffer(items: Sequence[ContextItem]) -> Callable[[], object]:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import ChatMemoryBuffer

    roles = {"user_msg": "user", "assistant_msg": "assistant", "memory": "user"}
    history = [ChatMessage(role=roles[item.kind], content=item.content) for item in items]

    def work() -> Any:
        return ChatMemoryBuffer.from_defaults(
            token_limit=_BUDGET, tokenizer_fn=lambda text: [0] * -(-len(text) // 4), chat_history=list(history)
        ).get()

    return work


def _pure(bound: BoundTally, items: Sequence[ContextItem]) -> Callable[[], CompiledContext]:
    """The compiler alone, its request made."""
    request = CompilationRequest(
        request_id="bench", context_items=tuple(items), token_budget=_BUDGET, as_of=1,
        relevance={item.id: 1_000 * (place % 997) for place, item in enumerate(items)},
    )  # fmt: skip
    return partial(compile_context, request, counter=bound.tally.counter(None))


def _recorded(bound: BoundTally, items: Sequence[ContextItem]) -> Callable[[], object]:
    """A compile as a hook records it: the step is closed without waiting for the disk."""
    run = bound.run("bench")

    def work() -> None:
        step = run.step("model_call")
        with step.active():
            bound.compile(items, budget=_BUDGET)
        step.close()

    return work


def measure(count: int, rounds: int) -> None:
    """Print the line of one size."""
    items = candidates(count)
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(Path(folder) / "t", owner=Actor(user="anna"), background=False) as tally,
    ):
        bound = tally.bind()
        work: list[Callable[[], object]] = [
            _pure(bound, items), partial(bound.compile, items, budget=_BUDGET), _recorded(bound, items), _trim(items),
            _buffer(items),
        ]  # fmt: skip
        times = [milliseconds(one, rounds if count < 5_000 else max(3, rounds // 4)) for one in work]
    (_, plain), (_, recorded) = times[1:3]
    own = f"{(recorded - plain) / plain:>20.1%}"
    walls = [f"{found:>20.1f}" for found, _ in times]
    print(f"{count:>10,}" + "".join([*walls[:3], own, *walls[3:]]), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    heads = ("compile_context ms", "bound.compile ms", "recorded ms", "own thread", "trim_messages ms",
             "ChatMemoryBuffer ms")  # fmt: skip
    print(f"{'candidates':>10}" + "".join(f"{head:>20}" for head in heads))
    for size in chosen.sizes:
        measure(size, chosen.rounds)


if __name__ == "__main__":
    main()
