"""Ports: what stays here never reaches a model that is far away, whichever of our own calls could
take it there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tallystick import ports
from tallystick.errors import NotFound
from tallystick.memory import Put
from tallystick.records import Actor, JsonObject
from tallystick.tally import Tally
from tallystick.testing import HashEmbedder, StepClock

ALICE = Actor(user="alice", projects={"apollo"})
ROOT = Actor(user="root", role="operator")

HERE = {"Clock", "Ids", "TokenCounter"}
"""Ports that are given no text, or count it in this process."""
GOVERNED = {"Drafter", "Embedder", "Learner", "Reranker", "StructuredModel", "Summarizer"}
"""Ports that may be far away and that we call: the tests below watch them."""
ASKED = {"ModelProvider", "ModelResponseStream"}
"""Ports of the agent's own model: it is handed compiled contexts, by rules over model calls."""


STORAGE = {"BlobStore"}
"""A part of the tally itself, where its operator put it, as the database is."""


def test_every_port_is_known_to_stay_here_or_to_be_governed() -> None:
    declared = {
        name
        for name, value in vars(ports).items()
        if inspect.isclass(value)
        and getattr(value, "_is_protocol", False)
        and value.__module__ == ports.__name__
    }
    assert declared == HERE | GOVERNED | ASKED | STORAGE


class _FarEmbedder(HashEmbedder):
    """An embedder that is far away, offers vectors of single words, and writes down what it was
    given.
    """

    def __init__(self) -> None:
        super().__init__(local=False)
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.seen += texts
        return super().embed(texts)

    def embed_words(self, words: Sequence[str]) -> Any:
        self.seen += words
        return super().embed(words)


class _FarReranker:
    """A reranker that is far away and writes down what it was given."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def rerank(self, query: str, texts: Sequence[str], *, deadline_ms: int) -> list[float]:
        self.seen += [query, *texts]
        return [0.0] * len(texts)


def test_what_stays_here_reaches_no_port_that_is_far_away(
    open_tally: Callable[..., Tally], tmp_path: Path
) -> None:
    embedder, reranker = _FarEmbedder(), _FarReranker()
    options: dict[str, Any] = {"embedder": embedder, "reranker": reranker, "clock": StepClock()}
    with open_tally(**options) as tally:
        mine, apollo, root = (
            tally.bind(ALICE),
            tally.bind(ALICE, scope="project:apollo"),
            tally.bind(ROOT),
        )
        for number in range(4):
            mine.remember(f"The heron nests in reed {number}.")
        ways: tuple[JsonObject, ...] = (
            {"local_only": True},
            {"sensitivity": "restricted"},
            {"sensitivity": "secret"},
        )
        kept = [
            mine.remember(f"pelican {n} nests near the heron", attributes=way).id
            for n, way in enumerate(ways)
        ]
        [first, second, third] = kept
        tally.drain()
        mine.modify(first, content="pelican again, near the heron", reason="r")
        mine.items.find(query="heron")
        for operation in (mine.corrections.promote, mine.corrections.share):
            preview = operation(second, "project:apollo", reason="r")
            if not apollo.memories():
                operation(
                    second,
                    "project:apollo",
                    reason="r",
                    mode="apply",
                    confirm_token=preview.confirm_token,
                )
        found = mine.recall("where does the heron nest?")
        assert set(kept) <= {hit.memory.id for hit in found}
        mine.pack("where does the heron nest?")
        mine.wake()
        mine.explore("private:alice")
        mine.inspect(first)
        with mine.run("coder") as run, run.step("model_call"):
            mine.compile(list(found), budget=2_000, query="where does the heron nest?")
        mine.corrections.forget_matching("heron", reason="r")
        mine.forget(third, reason="r")
        assert mine.operator.prove_unreachable(third).holds
        mine.recover(third, reason="r")
        mine.forget(third, reason="r")
        preview_erase = root.operator.erase(third, reason="r")
        root.operator.erase(
            third, reason="r", mode="apply", confirm_token=preview_erase.confirm_token
        )
        tally.drain()
        root.operator.doctor()
        mine.operator.export(tmp_path / "out")
    with Tally.open(
        tmp_path / "other", background=False, embedder=embedder, reranker=reranker
    ) as other:
        other.bind(ROOT).operator.import_from(tmp_path / "out")
        other.drain()
        assert len(list(other.bind(ALICE).recall("heron"))) >= 5
        with pytest.raises(NotFound):
            other.bind(ALICE).get(third)

    told = " ".join([*embedder.seen, *reranker.seen])
    assert "heron nests in reed 3" in " ".join(embedder.seen)
    assert "heron nests in reed 3" in " ".join(reranker.seen)
    assert "pelican" not in told


SECRETS = {
    "postgres://bob:hunter2wombat@db.internal/x what is it": "hunter2wombat",
    "AKIAIOSFODNN7EXAMPLE where is it used": "AKIAIOSFODNN7EXAMPLE",
    "which key is sk-ant-api03-" + "qZ7Kp4" * 14: "qZ7Kp4" * 14,
    "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8 used where?": "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8",
    "who is rosalind.pfeiffer@quellwasser.at and what is it": "rosalind.pfeiffer@quellwasser.at",
    "card 4111 1111 1111 1111 is used where?": "4111 1111 1111 1111",
}
"""Queries with the secrets, or personal data, in them."""


def _folded(text: str) -> str:
    """A text as analysis leaves it, whatever the place at which it was split."""
    return "".join(sign for sign in text.casefold() if sign.isalnum())


def _parts(secret: str, length: int = 5) -> set[str]:
    folded = _folded(secret)
    return {folded[start : start + length] for start in range(len(folded) - length + 1)}


@pytest.mark.parametrize("query", SECRETS)
def test_no_part_of_a_secret_in_a_query_reaches_a_port_that_is_far_away(
    open_sqlite: Callable[..., Tally], query: str
) -> None:
    embedder, reranker = _FarEmbedder(), _FarReranker()
    with open_sqlite(embedder=embedder, reranker=reranker) as tally:
        mine = tally.bind(ALICE)
        note = mine.remember(f"Where it is used: {query}")
        mine.remember("The heron is used to it, whatever it is.")
        mine.remember("Which key the heron sang in.", speaker="Bob")
        mine.items.put([Put(("notes",), "heron", {"text": "which key is used"})])
        tally.drain()
        for text in (query, f"  {query}\n", f"was Bob asked: {query}"):
            assert note.id in {hit.memory.id for hit in mine.recall(text)}
        mine.pack(query)
        mine.items.find(query=query)
        mine.corrections.forget_matching(query, reason="r")
        mine.modify(note.id, content=f"{query} again", reason="r")
        tally.drain()
        with mine.run("coder") as run, run.step("model_call"):
            mine.compile(list(mine.recall(query)), budget=2_000, query=query)
        mine.forget(note.id, reason="r")
        mine.operator.prove_unreachable(note.id)

    assert len(embedder.seen) > 5
    assert reranker.seen
    for text in (*embedder.seen, *reranker.seen):
        assert {part for part in _parts(SECRETS[query]) if part in _folded(text)} == set()
