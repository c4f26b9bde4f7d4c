"""`make bench-learning DATA=everyday.json`: what learning costs per 1,000 turns of users, beside
mem0, by scripted models that know the labels: no answer is better, so that what is compared is what
a model is sent.

mem0 learns as its own pages say, from each exchange when it is over; the second row gives it a
session at once, as ours does. Nothing of it is sent to its makers. Tokens are estimated by the same
counter for all.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from tests.benchmarks.agents.world import DIMENSIONS, SharedEmbeddings
from tests.benchmarks.eval_learning import Figures, run

from tallystick.tokens.estimate import PiecesCounter

Exchange = list[dict[str, str]]


class Script(BaseChatModel):
    """A model that says the facts of the turns that it was last given, in mem0's form."""

    facts: dict[str, list[str]] = {}
    """The facts of each text of a user."""
    told: list[str] = []
    calls: list[int] = []
    """The tokens of each call."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: Any, *args: Any, **options: Any) -> ChatResult:
        counter = PiecesCounter()
        self.calls.append(sum(counter.count(str(each.content)) for each in messages))
        memories = [{"text": fact} for text in self.told for fact in self.facts.get(text, ())]
        answer = AIMessage(json.dumps({"memory": memories}))
        return ChatResult(generations=[ChatGeneration(message=answer)])


def exchanges(dialogue: Mapping[str, Any], *, whole: bool) -> Iterator[tuple[str, Exchange]]:
    """Yield what is learned from at once, with its user: each exchange, or each session."""
    for session in sorted(dialogue["sessions"], key=lambda each: each["date"]):
        said: Exchange = []
        for turn in session["turns"]:
            if turn["role"] == "user" and said and not whole:
                yield session["user"], said
                said = []
            said.append({"role": turn["role"], "content": turn["text"]})
        yield session["user"], said


def mem0(dialogues: list[dict[str, Any]], *, whole: bool) -> tuple[int, int]:
    """Return the calls and tokens in of dialogues."""
    script = Script()
    for dialogue in dialogues:
        texts = {
            turn["id"]: turn["text"] for each in dialogue["sessions"] for turn in each["turns"]
        }
        script.facts.clear()
        for fact in dialogue["facts"]:
            script.facts.setdefault(texts[fact["turn"]], []).append(fact["fact"])
        with tempfile.TemporaryDirectory() as folder:
            os.environ["MEM0_TELEMETRY"], os.environ["MEM0_DIR"] = "False", folder
            config = {
                "llm": {"provider": "langchain", "config": {"model": script}},
                "embedder": {
                    "provider": "langchain",
                    "config": {"model": SharedEmbeddings(), "embedding_dims": DIMENSIONS},
                },
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "path": str(Path(folder) / "qdrant"),
                        "embedding_model_dims": DIMENSIONS,
                        "on_disk": True,
                    },
                },
                "history_db_path": str(Path(folder) / "mem0.db"),
            }
            memory: Any = importlib.import_module("mem0").Memory.from_config(config)
            for user, said in exchanges(dialogue, whole=whole):
                script.told[:] = [each["content"] for each in said if each["role"] == "user"]
                memory.add(said, user_id=user)
    return len(script.calls), sum(script.calls)


def main() -> None:
    """Print a row for each way."""
    dialogues = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["dialogues"]
    turns = sum(
        turn["role"] == "user"
        for dialogue in dialogues
        for session in dialogue["sessions"]
        for turn in session["turns"]
    )
    rows: dict[str, tuple[int, int]] = {}
    for learn_at in ("session", "exchange", "turn"):
        counts = run(dialogues, Figures(), learn_at=learn_at)
        rows[f"ours, at each {learn_at}"] = counts["calls"], counts["tokens"]
    rows["mem0, at each exchange"] = mem0(dialogues, whole=False)
    rows["mem0, given a session at once"] = mem0(dialogues, whole=True)
    print("| per 1,000 turns of users | calls | tokens in |\n| --- | ---: | ---: |")
    for name, (calls, tokens) in rows.items():
        print(f"| {name} | {1_000 * calls / turns:,.0f} | {1_000 * tokens / turns:,.0f} |")


if __name__ == "__main__":
    main()
