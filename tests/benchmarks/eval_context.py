"""Context on conversations in the LoCoMo format: what survives a budget, and what a provider's
cache can reuse.

Run it with `make eval-context DATA=path.json`. All arms are held to one counter, a token for each
four characters, and see the same turns, each a line `[when] speaker: text`.

evidence   share of the turns that answer a question which are in the prompt, mean over questions; a
           turn that is shortened counts where the words of the answer that it has are in it, or
           else 400 characters
prefix     the conversation is played two turns at a time, each prompt asked with the last turn:
share of a prompt
           that is the literal beginning of the next one
billed     tokens of those prompts as a provider bills them, each in units of a fresh input token:
read from the
           cache 0.1, written to it 1.25; every prompt is written whole
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.conversations import ADVERSARIAL, Conversation
from tests.benchmarks.eval_recall import is_carried, load

from tallystick import compiler
from tallystick.embedding import GuardedEmbedder, StaticEmbedder
from tallystick.ranking import WorkingSets
from tallystick.records import (
    CompilationRequest,
    CompileConfig,
    ContextItem,
    ItemKind,
    TargetProfile,
)

_STEP = 2
_READ, _WRITE = 0.1, 1.25
_WORD = re.compile(r"\w+")
_STOP = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "to",
        "and",
        "in",
        "is",
        "it",
        "i",
        "you",
        "he",
        "she",
        "we",
        "they",
        "that",
        "this",
        "was",
        "were",
        "be",
        "been",
        "do",
        "did",
        "does",
        "have",
        "has",
        "had",
        "for",
        "on",
        "at",
        "with",
        "as",
        "my",
        "your",
        "his",
        "her",
        "their",
        "our",
        "me",
        "so",
        "but",
        "not",
        "what",
        "when",
        "where",
        "who",
        "which",
        "how",
        "why",
        "would",
        "could",
        "about",
        "from",
        "or",
        "if",
        "by",
        "are",
    ]
)


@dataclass(frozen=True)
class Line:
    """One turn as every arm sees it."""

    id: str
    role: str
    text: str

    @property
    def tokens(self) -> int:
        """A token for each four characters."""
        return -(-len(self.text) // 4)


Arm = Callable[[Sequence[Line], str], list[Line]]
"""Turns and a query to those that are kept, as they are shown, in the order of the prompt."""


def lines(conversation: Conversation) -> list[Line]:
    """The turns of a conversation."""
    first = conversation.turns[0].speaker
    return [
        Line(
            turn.id,
            "user" if turn.speaker == first else "assistant",
            f"[{_when(turn.at)}] {turn.line}",
        )
        for turn in conversation.turns
    ]


def _when(at: int | None) -> str:
    if at is None:
        return "undated"
    return f"{datetime.fromtimestamp(at / 1_000_000, tz=UTC):%-d %B %Y, %H:%M}"


# Arms


class _Quarter:
    method, exact = "characters / 4", True

    def count(self, text: str) -> int:
        return -(-len(text) // 4)


def ours(budget: int, *, share: int | None = None, vectors: bool = True) -> Arm:
    """The compiler with its defaults."""
    sets = WorkingSets(_EMBEDDER if vectors else None)
    config = CompileConfig() if share is None else CompileConfig(history_share=share)
    kinds: dict[str, ItemKind] = {"user": "user_msg", "assistant": "assistant_msg"}
    known: dict[Line, ContextItem] = {}

    def arm(said: Sequence[Line], query: str) -> list[Line]:
        for line in said:
            if line not in known:
                known[line] = ContextItem(id=line.id, kind=kinds[line.role], content=line.text)
        request = CompilationRequest(
            request_id="eval",
            query=query,
            context_items=tuple(known[line] for line in said),
            token_budget=budget,
            as_of=_NOW,
            target=TargetProfile(per_item=0, per_tool=0, per_request=0),
            compile_config=config,
        )
        texts = compiler.searchable_texts(
            compiler.visible_items(compiler.prepare(request)), request
        )
        relevance = sets.relevance(query, texts, now=_NOW, most=budget // 20)
        compiled = compiler.compile_context(
            request.model_copy(update={"relevance": relevance}), counter=_Quarter()
        )
        roles = {line.id: line.role for line in said}
        return [Line(item.id, roles[item.id], item.content) for item in compiled.selected_items]

    return arm


_EMBEDDER = GuardedEmbedder(StaticEmbedder())
_NOW = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


def _packed(order: Sequence[Line], said: Sequence[Line], budget: int) -> list[Line]:
    kept, left = set(), budget
    for line in order:
        if line.tokens <= left:
            kept.add(line.id)
            left -= line.tokens
    return [line for line in said if line.id in kept]


def _by_bm25(said: Sequence[Line], query: str) -> list[Line]:
    """By BM25 (k1 1.2, b 0.75), each turn lending 60 % of its score to the turns beside it; then
    the newest.
    """
    words = [
        [word for word in _WORD.findall(line.text.lower()) if word not in _STOP] for line in said
    ]
    average = sum(map(len, words)) / max(1, len(words))
    often = [Counter(found) for found in words]
    scores = [0.0] * len(said)
    for term in set(_WORD.findall(query.lower())) - _STOP:
        holding = [place for place, counts in enumerate(often) if term in counts]
        weight = math.log(1 + (len(said) - len(holding) + 0.5) / (len(holding) + 0.5))
        for place in holding:
            count = often[place][term]
            scores[place] += (
                weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(words[place]) / average))
            )
    lent = [
        max(
            score,
            *(
                0.6 * scores[beside]
                for beside in (place - 1, place + 1)
                if 0 <= beside < len(scores)
            ),
            0.0,
        )
        for place, score in enumerate(scores)
    ]
    return [
        said[place] for place in sorted(range(len(said)), key=lambda place: (-lent[place], -place))
    ]


def bm25(budget: int) -> Arm:
    """BM25 with neighbours."""
    return lambda said, query: _packed(_by_bm25(said, query), said, budget)


def split(budget: int) -> Arm:
    """Half for the newest turns, cut to half of that when it is full; half for BM25 with
    neighbours, after them.
    """
    half = budget // 2

    def arm(said: Sequence[Line], query: str) -> list[Line]:
        start = used = 0
        for place, line in enumerate(said):
            used += line.tokens
            if used > half:
                while used > half // 2 and start < place:
                    used -= said[start].tokens
                    start += 1
        head = list(said[start:])
        rest = [line for line in _by_bm25(said, query) if line not in set(head)]
        return head + _packed(rest, said, budget - sum(line.tokens for line in head))

    return arm


def trim(budget: int) -> Arm:
    """LangChain's `trim_messages(strategy="last")`."""
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, trim_messages

    def counter(messages: list[BaseMessage]) -> int:
        return sum(-(-len(str(message.content)) // 4) for message in messages)

    def arm(said: Sequence[Line], _: str) -> list[Line]:
        kinds = {"user": HumanMessage, "assistant": AIMessage}
        messages = [kinds[line.role](line.text, id=line.id) for line in said]
        kept = trim_messages(messages, max_tokens=budget, strategy="last", token_counter=counter)
        ids = {str(message.id) for message in kept}
        return [line for line in said if line.id in ids]

    return arm


def llama_memory(budget: int, **options: Any) -> Arm:
    """LlamaIndex's `Memory`; every turn is put once."""
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import Memory

    loop = asyncio.new_event_loop()
    fed: list[str] = []
    memory: list[Any] = []

    async def feed(said: Sequence[Line]) -> list[Line]:
        ids = [line.id for line in said]
        if not fed or ids[: len(fed)] != fed:
            memory[:] = [
                Memory.from_defaults(
                    session_id="eval",
                    token_limit=budget,
                    tokenizer_fn=lambda text: [0] * -(-len(text) // 4),
                    **options,
                )
            ]
            fed.clear()
        for line in said[len(fed) :]:
            message = ChatMessage(
                role=line.role, content=line.text, additional_kwargs={"id": line.id}
            )
            await memory[0].aput(message)
            fed.append(line.id)
        by_id = {line.id: line for line in said}
        return [by_id[message.additional_kwargs["id"]] for message in await memory[0].aget()]

    return lambda said, _: loop.run_until_complete(feed(said))


ARMS: dict[str, Callable[[int], Arm]] = {
    "ours": ours,
    "ours, no vectors": lambda budget: ours(budget, vectors=False),
    "ours, no history": lambda budget: ours(budget, share=0),
    "trim_messages": trim,
    "LlamaIndex Memory": llama_memory,
    "LlamaIndex Memory, tuned": lambda budget: llama_memory(
        budget, chat_history_token_ratio=1.0, token_flush_size=budget // 20
    ),
    "BM25, neighbours": bm25,
    "half newest, half BM25": split,
}


# Measures


def survival(
    conversations: Sequence[Conversation], make: Callable[[int], Arm], budget: int
) -> tuple[float, float, int]:
    """Share of evidence kept, share of the budget used, prompts over the budget."""
    kept_shares, fills, over = [], [], 0
    for conversation in conversations:
        arm, said = make(budget), lines(conversation)
        whole = {line.id: line.text for line in said}
        for query in conversation.queries:
            if query.kind == ADVERSARIAL:
                continue
            kept = arm(said, query.text)
            used = sum(line.tokens for line in kept)
            shown = {line.id: line.text for line in kept}
            carried = sum(
                shown.get(name) == whole[name]
                or is_carried(query, whole[name], shown.get(name, ""))
                for name in query.gold
            )
            kept_shares.append(carried / len(query.gold))
            fills.append(used / budget)
            over += used > budget
    return statistics.mean(kept_shares), statistics.mean(fills), over


def reuse(
    conversations: Sequence[Conversation], make: Callable[[int], Arm], budget: int
) -> tuple[float, float]:
    """Share of a prompt that begins the next one, and billed tokens a prompt; both by tokens."""
    same = total = billed = prompts = 0.0
    for conversation in conversations:
        arm, said = make(budget), lines(conversation)
        before: list[Line] = []
        for end in range(_STEP, len(said) + 1, _STEP):
            kept = arm(said[:end], said[end - 1].text)
            common = 0
            while common < min(len(before), len(kept)) and before[common] == kept[common]:
                common += 1
            read = sum(line.tokens for line in before[:common])
            size = sum(line.tokens for line in kept)
            if before:
                same += read
                total += sum(line.tokens for line in before)
            billed += _READ * read + _WRITE * (size - read)
            prompts += 1
            before = kept
    return same / total, billed / prompts


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="conversations in the LoCoMo format, as JSON")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--budgets", type=int, nargs="+", default=[2_000, 4_000])
    parser.add_argument("--replayed", type=int, default=3, help="conversations played turn by turn")
    chosen = parser.parse_args()
    conversations = load(chosen.data)
    asked = sum(
        query.kind != ADVERSARIAL
        for conversation in conversations
        for query in conversation.queries
    )
    print(
        f"{len(conversations)} conversations, {asked} questions of categories 1 to 4; prefix and "
        f"billed at "
        f"{max(chosen.budgets):,}, {chosen.replayed} conversations"
    )
    heads = [f"{f'evidence {budget:,}':>16}{'fill':>7}{'over':>6}" for budget in chosen.budgets]
    print(f"{'':<26}" + "".join(heads) + f"{'prefix':>9}{'billed':>9}")
    for name in chosen.arms:
        cells = ""
        for budget in chosen.budgets:
            evidence, fill, over = survival(conversations, ARMS[name], budget)
            cells += f"{evidence:>16.1%}{fill:>7.2f}{over:>6}"
        share, billed = reuse(conversations[: chosen.replayed], ARMS[name], max(chosen.budgets))
        print(f"{name:<26}{cells}{share:>9.2f}{billed:>9,.0f}", flush=True)


if __name__ == "__main__":
    main()
