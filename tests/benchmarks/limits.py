"""How the time of a call grows with the text that it is given, and what a text takes on the disk.

Run it with `make bench-limits`. Recall, remember, compile and one turn of an agent of each runtime
are given 1 kB to 1 MB of prose, a log, a table, code, and text made to be slow. `growth` is the
exponent between the two largest sizes: 1 is linear, 2 quadratic, 0 no growth. One that is above
1.35, where the largest took a tenth of a second and more, is called out. Then turns of
several lengths are written, prose of Python's own documentation, and the folder is weighed.

    python -m tests.benchmarks.limits [--quick] [--only recall,langchain] [--texts log,code]
"""

from __future__ import annotations

import argparse
import math
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import MockLLM
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from rich.console import Console
from rich.table import Table

from tallystick import ContextItem, Tally
from tallystick.tally import BoundTally
from tallystick_langchain import TallyMiddleware
from tallystick_langgraph import TallySaver
from tallystick_llama_index import TallyMemory
from tallystick_pydantic_ai import Tallystick

SIZES = (1_000, 10_000, 100_000, 1_000_000)
_STEEP, _LONG = 1.35, 0.1
_ON_DISK = {130: 5_000, 300: 5_000, 600: 4_000, 1_000: 2_000, 4_000: 500}
"""Turns by their length."""
_QUESTION = "What was decided about the harbour budget?"
_WORDS = [
    "harbour",
    "budget",
    "meeting",
    "river",
    "invoice",
    "customer",
    "release",
    "server",
    "database",
    "memory",
    "plan",
    "report",
    "approval",
    "contract",
    "design",
    "review",
    "question",
    "answer",
    "because",
    "later",
    "with",
    "from",
    "about",
    "into",
]


def _filled(size: int, line: Callable[[int], str]) -> str:
    lines: list[str] = []
    length = 0
    while length < size:
        lines.append(line(len(lines)))
        length += len(lines[-1])
    return "".join(lines)[:size]


def _prose(size: int) -> str:
    source = random.Random(size)
    return _filled(size, lambda _: " ".join(source.choices(_WORDS, k=12)).capitalize() + ". ")


def _log(size: int) -> str:
    return _filled(
        size,
        lambda n: (
            f"2026-03-{n % 28 + 1:02d} {n % 24:02d}:{n % 60:02d}:07,{n % 1000:03d} INFO worker[{n}]"
            f" request {n * 2654435761 % 2**32:08x} took {n % 900} ms on host-{n % 9}\n"
        ),
    )


def _csv(size: int) -> str:
    return _filled(
        size,
        lambda n: f"{n},{1950 + n % 90},{n * 7 % 1000}.5,Bonn,{n % 12 + 1}/3/{1990 + n % 40}\n",
    )


def _code(size: int) -> str:
    return _filled(
        size,
        lambda n: (
            f"def handleRequest_{n}(self, payload):\n    token = os.environ['API_KEY_{n}']\n"
            f"    return self.client.post_json(f'/v{n}/items', auth=token)\n\n"
        ),
    )


def _repeated(text: str) -> Callable[[int], str]:
    return lambda size: _filled(size, lambda _: text)


KINDS: dict[str, Callable[[int], str]] = {
    "prose": _prose,
    "log": _log,
    "csv": _csv,
    "code": _code,
    "dates": _repeated("last week 2019 1/1/2020 3 days ago "),
    "secrets": _repeated("PASS=PASS="),
    "joints": _repeated("a-b.c_"),
    "brackets": _repeated('[({"'),
    "scripts": _repeated("先週e\u0301\u200b \u0130"),
}


class _Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def _replies() -> Iterator[AIMessage]:
    while True:
        yield AIMessage("Noted.")


def _langchain(bound: BoundTally) -> Callable[[str], object]:
    agent = create_agent(
        _Scripted(messages=_replies()), [], middleware=[TallyMiddleware(bound, budget=4_000_000)]
    )
    return lambda text: agent.invoke({"messages": [HumanMessage(text)]})


def _langgraph(bound: BoundTally) -> Callable[[str], object]:
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [AIMessage("Noted.")]})
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    chat = graph.compile(checkpointer=TallySaver(bound))

    def turn(text: str) -> object:
        config: RunnableConfig = {"configurable": {"thread_id": str(time.monotonic_ns())}}
        return chat.invoke({"messages": [HumanMessage(text)]}, config)

    return turn


def _pydantic_ai(bound: BoundTally) -> Callable[[str], object]:
    agent = Agent(TestModel(call_tools=[]), capabilities=[Tallystick(bound)])
    return agent.run_sync


def _llama_index(bound: BoundTally) -> Callable[[str], object]:
    def turn(text: str) -> object:
        memory = TallyMemory.from_defaults(
            bound, session_id=str(time.monotonic_ns()), token_limit=4_000_000
        )
        return SimpleChatEngine.from_defaults(llm=MockLLM(max_tokens=8), memory=memory).chat(text)

    return turn


def _compile(bound: BoundTally) -> Callable[[str], object]:
    def call(text: str) -> object:
        items = [
            ContextItem(id="request", kind="user_msg", content=_QUESTION),
            ContextItem(id="result", kind="retrieval_doc", content=text),
        ]
        return bound.compile(items, budget=4_000)

    return call


CALLS: dict[str, Callable[[BoundTally], Callable[[str], object]]] = {
    "recall": lambda bound: bound.recall,
    "remember": lambda bound: bound.remember,
    "compile": _compile,
    "langchain": _langchain,
    "langgraph": _langgraph,
    "pydantic_ai": _pydantic_ai,
    "llama_index": _llama_index,
}
"""What is given the text: a verb, or one turn of an agent with its runtime's own test model."""


@contextmanager
def _tally() -> Iterator[BoundTally]:
    """A tally of a hundred memories, warm."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(Path(folder) / "tally", background=False) as tally,
    ):
        bound = tally.bind()
        bound.remember_many([f"note {number}: {_prose(200 + number)}" for number in range(100)])
        bound.recall("last week, letzte Woche, 先週")
        yield bound


def growth(call: str, kind: str, sizes: tuple[int, ...]) -> list[float]:
    """Return the seconds of a call on a text of each size, each on a tally of its own; the better
    of two, because other work disturbs a short one.
    """
    seconds = []
    for size in sizes:
        text = KINDS[kind](size)
        seconds.append(min(_timed(call, text) for _ in range(2 if size < SIZES[-1] else 1)))
    return seconds


def _timed(call: str, text: str) -> float:
    with _tally() as bound:
        run = CALLS[call](bound)
        run(_QUESTION)
        began = time.perf_counter()
        run(text)
        return time.perf_counter() - began


def disk(length: int, count: int) -> tuple[int, int]:
    """Return the bytes of `count` turns of English prose of this length, and those of the folder
    that they were written to, without Chroma and without what an empty tally takes.
    """
    prose = re.sub(r"\s+", " ", " ".join(topics.values()))
    source = random.Random(7)
    begins = [source.randrange(len(prose) - length) for _ in range(count)]
    texts = [prose[begin : begin + length] for begin in begins]
    empty, full = (_folder_size(turns) for turns in ((), texts))
    return sum(len(text.encode()) for text in texts), full - empty


def _folder_size(turns: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        with Tally.open(Path(folder) / "tally", background=False) as tally:
            bound = tally.bind()
            for number, text in enumerate(("The first.", *turns)):
                bound.remember(text, kind="turn", conversation="c", position=number)
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        return sum(path.stat().st_size for path in files if "chroma" not in path.parts)


def _exponent(seconds: list[float], sizes: tuple[int, ...]) -> float:
    return math.log(seconds[-1] / seconds[-2]) / math.log(sizes[-1] / sizes[-2])


def main() -> None:
    """Print both tables; exit with 1 where something grows faster than its text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 100 kB, and less on the disk")
    parser.add_argument(
        "--only", default=",".join(CALLS), help="calls, separated by commas; none: the disk alone"
    )
    parser.add_argument("--texts", default=",".join(KINDS), help="kinds, separated by commas")
    options = parser.parse_args()
    sizes = SIZES[:-1] if options.quick else SIZES
    console = Console()
    steep = 0
    console.print("milliseconds by the size of the text; its growth between the two largest")
    for call in filter(None, options.only.split(",")):
        table = Table(call, *(f"{size // 1_000:,} kB" for size in sizes), "growth", "")
        for kind in options.texts.split(","):
            seconds = growth(call, kind, sizes)
            exponent = _exponent(seconds, sizes)
            is_steep = exponent > _STEEP and seconds[-1] > _LONG
            steep += is_steep
            times = (f"{1_000 * value:,.0f}" for value in seconds)
            verdict = "NOT LINEAR" if is_steep else "linear"
            table.add_row(kind, *times, f"{exponent:.2f}", verdict)
        console.print(table)
    weights = Table("characters", "bytes of text", "bytes on the disk", "times", title="Disk")
    for length, count in _ON_DISK.items():
        text, written = disk(length, count // 5 if options.quick else count)
        weights.add_row(f"{length:,}", f"{text:,}", f"{written:,}", f"{written / text:.1f}")
    console.print(weights)
    raise SystemExit(1 if steep else 0)


if __name__ == "__main__":
    main()
