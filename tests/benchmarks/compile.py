"""Speed of a compile at 100 to 10,000 candidates, beside `trim_messages` and `ChatMemoryBuffer` in
the same run.

Run it with `make bench-compile`. Candidates are messages of 12 to 30 words, three quarters of them
older turns and a quarter recalled notes; the budget is 4,000 tokens by the tally's own counter; the
others are given a counter that counts characters. What was learnt of a text is kept from the
compile before, as it is from step to step of an agent.

recorded    a compile in a step that is being recorded: what its caller waits for behind      CPU
that the recorder's threads then take, while the model answers, until everything is committed
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

_Arm = tuple[Callable[[], object], Callable[[], object]]
"""What is measured, and what settles it, unmeasured."""


def candidates(count: int) -> list[ContextItem]:
    """Messages and notes."""
    said = [turn.content for turn in turns(count)]
    notes = count // 4
    items = [
        ContextItem(id=f"note-{place:05}", kind="memory", content=text)
        for place, text in enumerate(said[:notes])
    ]
    return items + [
        ContextItem(
            id=f"turn-{place:05}", kind=("user_msg", "assistant_msg")[place % 2], content=text
        )
        for place, text in enumerate(said[notes:])
    ]


def milliseconds(arms: Sequence[_Arm], rounds: int) -> list[list[float]]:
    """For each arm the median of some rounds, and of the CPU that other threads take until it is
    settled.

    Arms take turns, after one round that warms up.
    """
    times: list[list[tuple[float, float]]] = [[] for _ in arms]
    for _ in range(rounds + 1):
        for (work, settle), found in zip(arms, times, strict=True):
            began, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
            work()
            wall = time.perf_counter() - began
            settle()
            found.append(
                (wall * 1_000, (time.process_time() - cpu - time.thread_time() + own) * 1_000)
            )
    return [
        [statistics.median(column) for column in zip(*found[1:], strict=True)] for found in times
    ]


def _nothing() -> None:
    """Nothing to settle."""


def _trim(items: Sequence[ContextItem]) -> Callable[[], object]:
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, trim_messages

    def counter(messages: list[BaseMessage]) -> int:
        return sum(-(-len(str(message.content)) // 4) for message in messages)

    kinds = {"user_msg": HumanMessage, "assistant_msg": AIMessage, "memory": HumanMessage}
    messages = [kinds[item.kind](item.content) for item in items]
    return lambda: trim_messages(
        messages, max_tokens=_BUDGET, strategy="last", token_counter=counter
    )


def _buffer(items: Sequence[ContextItem]) -> Callable[[], object]:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import ChatMemoryBuffer

    roles = {"user_msg": "user", "assistant_msg": "assistant", "memory": "user"}
    history = [ChatMessage(role=roles[item.kind], content=item.content) for item in items]

    def work() -> Any:
        return ChatMemoryBuffer.from_defaults(
            token_limit=_BUDGET,
            tokenizer_fn=lambda text: [0] * -(-len(text) // 4),
            chat_history=list(history),
        ).get()

    return work


def _pure(bound: BoundTally, items: Sequence[ContextItem]) -> Callable[[], CompiledContext]:
    """The compiler alone, its request made."""
    request = CompilationRequest(
        request_id="bench",
        context_items=tuple(items),
        token_budget=_BUDGET,
        as_of=1,
        relevance={item.id: 1_000 * (place % 997) for place, item in enumerate(items)},
    )
    return partial(compile_context, request, counter=bound.tally.counter(None))


def _recorded(bound: BoundTally, items: Sequence[ContextItem]) -> _Arm:
    """A compile inside a step, and what ends the step and begins the next."""
    run = bound.run("bench")
    steps = [run.step("model_call")]

    def work() -> None:
        with steps[-1].active():
            bound.compile(items, budget=_BUDGET)

    def settle() -> None:
        steps[-1].end()
        steps[-1] = run.step("model_call")

    return work, settle


def measure(count: int, rounds: int) -> None:
    """Print the line of one size."""
    items = candidates(count)
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(Path(folder) / "t", owner=Actor(user="anna"), background=False) as tally,
    ):
        bound = tally.bind()
        arms: list[_Arm] = [
            (_pure(bound, items), _nothing),
            (partial(bound.compile, items, budget=_BUDGET), _nothing),
            _recorded(bound, items),
            (_trim(items), _nothing),
            (_buffer(items), _nothing),
        ]
        rounds = rounds if count < 5_000 else max(5, rounds // 4)
        (alone, _), (scored, _), (recorded, behind), (trimmed, _), (buffered, _) = milliseconds(
            arms, rounds
        )
    found = (alone, scored, recorded, behind, trimmed, buffered)
    print(f"{count:>10,}" + "".join(f"{one:>20.1f}" for one in found), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    heads = (
        "compile_context ms",
        "bound.compile ms",
        "recorded ms",
        "behind ms",
        "trim_messages ms",
        "ChatMemoryBuffer ms",
    )
    print(f"{'candidates':>10}" + "".join(f"{head:>20}" for head in heads))
    for size in chosen.sizes:
        measure(size, chosen.rounds)


if __name__ == "__main__":
    main()
