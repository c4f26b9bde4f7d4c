"""Embedding: the offline table, other people's embedders, and the guard around them."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from chromadb.api.types import Documents, EmbeddingFunction, Embeddings
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding
from llama_index.core.embeddings import MockEmbedding
from numpy.typing import NDArray
from pydantic_ai import Embedder as PydanticAIEmbedder
from pydantic_ai.embeddings import TestEmbeddingModel

from tallystick.embedding import GuardedEmbedder, StaticEmbedder, as_embedder, static
from tallystick.errors import (
    DimensionMismatch,
    EmbedderUnavailable,
    EmbeddingError,
    InsideTransaction,
    InvalidInput,
)
from tallystick.ports import Embedder, write_transaction

STATIC = StaticEmbedder()


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is in a process that has not embedded yet."""
    monkeypatch.setattr(static, "_tables", [])
    monkeypatch.setattr(static, "_fingerprint", cache(static._fingerprint.__wrapped__))


def vector_of(text: str, dimension: int = 12) -> list[float]:
    """A vector that belongs to the text, of no particular length."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    values: list[float] = (np.random.default_rng(seed).normal(size=dimension) * 7).tolist()
    return values


class Recording:
    """A plain function from texts to vectors that keeps what it was asked."""

    def __init__(self, answer: Callable[[list[str]], Any] | None = None) -> None:
        self.asked: list[list[str]] = []
        self._answer = answer or (lambda texts: [vector_of(text) for text in texts])

    def __call__(self, texts: list[str]) -> Any:
        self.asked.append(list(texts))
        return self._answer(texts)


class ChromaFunction(EmbeddingFunction[Documents]):
    """A Chroma embedding function as an application would write it."""

    def __init__(self) -> None:
        self.model_name = "tiny-1"

    def __call__(self, input: Documents) -> Embeddings:
        return [np.array(vector_of(text), dtype=np.float32) for text in input]

    @staticmethod
    def name() -> str:
        return "tiny"


class UnnamedChromaFunction(EmbeddingFunction[Documents]):
    """One that does not name itself, at which Chroma's own base class would warn."""

    def __init__(self) -> None:
        pass

    def __call__(self, input: Documents) -> Embeddings:
        return [np.array(vector_of(text), dtype=np.float32) for text in input]


def is_unit(vectors: NDArray[np.float32]) -> bool:
    return bool(np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5))


# The static table


def test_the_default_embedder_agrees_with_the_package_whose_table_it_reads() -> None:
    texts = [
        "hello",
        "The refund was approved.",
        "日本語のテスト",
        "naïve café 😀",
        "def f(x):\n    return x",
        "<s> </s>",
    ]
    texts.append("tally sticks " * 1_000)
    spec = importlib.util.find_spec("wordllama")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    script = (
        "import sys, json; from wordllama import WordLlama;"
        f"model = WordLlama.load(cache_dir={spec.submodule_search_locations[0]!r}, "
        f"disable_download=True);"
        "print(json.dumps(model.embed(json.load(sys.stdin), norm=True, batch_size=1).tolist()))"
    )

    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )

    theirs = np.array(json.loads(result.stdout), dtype=np.float32)
    assert STATIC.embed(texts) == pytest.approx(theirs, abs=1e-5)


def test_the_default_embedder_puts_like_near_like() -> None:
    cat, kitten, invoice = STATIC.embed(
        ["a cat sleeps", "the kitten is sleeping", "pay the overdue invoice"]
    )

    assert cat @ kitten > cat @ invoice + 0.2


@given(st.lists(st.text(max_size=50), max_size=6))
def test_the_default_embedder_gives_unit_vectors_or_zero_for_blank_text(texts: list[str]) -> None:
    vectors = STATIC.embed(texts)

    assert vectors.shape == (len(texts), STATIC.dimension)
    assert vectors.dtype == np.float32
    for text, vector in zip(texts, vectors, strict=True):
        assert np.linalg.norm(vector) == pytest.approx(1.0 if text.strip() else 0.0, abs=1e-5)


def test_a_text_has_the_same_vector_alone_and_in_company() -> None:
    texts = [f"note {number} about the tally" for number in range(30)]

    together = STATIC.embed(texts)

    assert all(
        STATIC.embed([text])[0].tobytes() == row.tobytes()
        for text, row in zip(texts, together, strict=True)
    )


_PIECES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            " ",
            "  ",
            "<s>",
            "</s>",
            "a",
            "\u2581",
            "\n",
            "the heron",
            " \t",
            " ",
            "heron ",
            "don't",
            "日本",
            "x/y.py",
        ]
    ),
)


@given(st.lists(_PIECES, max_size=8).map("".join))
def test_a_text_has_the_pieces_of_its_words(text: str) -> None:
    """Pieces are kept in mind by the word; the tokenizer, given the whole text, cuts it the same
    way.
    """
    table = static._get_table()
    text = text.encode("utf-8", "replace").decode()
    assert table.pieces(text) == table.tokenizer.encode(text, add_special_tokens=False).ids


def test_a_text_longer_than_one_slice_means_what_its_parts_mean() -> None:
    short, long = STATIC.embed(
        ["a tally has two halves " * 500, "a tally has two halves " * 20_000]
    )

    assert short @ long == pytest.approx(1.0, abs=1e-4)


def test_the_default_embedder_takes_a_lone_surrogate() -> None:
    assert is_unit(STATIC.embed(["broken \ud800 text"]))


def test_the_fingerprint_names_the_table_and_stays_the_same() -> None:
    name, digest, dimension = STATIC.fingerprint.split(":")

    assert (name, dimension) == ("wordllama-l2-supercat-256", "256")
    assert len(digest) == 12
    assert set(digest) <= set("0123456789abcdef")
    assert StaticEmbedder().fingerprint == STATIC.fingerprint


def test_threads_share_one_table_from_its_first_use(nothing_loaded: None) -> None:
    embedder = StaticEmbedder()
    seen: list[bytes] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        seen.append(embedder.embed(["one tally, two halves"]).tobytes())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == [STATIC.embed(["one tally, two halves"]).tobytes()] * 4
    assert len(static._tables) == 1


def test_a_missing_package_is_an_error_that_says_what_to_install(
    nothing_loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "wordllama" else find_spec(name)
    )

    with pytest.raises(EmbedderUnavailable, match="pip install 'wordllama"):
        StaticEmbedder().embed(["text"])
    with pytest.raises(EmbedderUnavailable, match="pip install 'wordllama"):
        _ = StaticEmbedder().fingerprint


def test_using_the_table_neither_imports_its_package_nor_touches_logging() -> None:
    script = (
        "import sys, logging; from tallystick.embedding import StaticEmbedder;"
        "e = StaticEmbedder(); e.embed(['x']); e.fingerprint;"
        "sys.exit(int('wordllama' in sys.modules or bool(logging.getLogger().handlers)))"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# Other people's embedders


FOREIGN: list[tuple[Callable[[], Any], str, int]] = [
    (ChromaFunction, "chroma:tiny:tiny-1:", 12),
    (UnnamedChromaFunction, "chroma:UnnamedChromaFunction:", 12),
    (lambda: DeterministicFakeEmbedding(size=24), "langchain:DeterministicFakeEmbedding:", 24),
    (lambda: MockEmbedding(embed_dim=6), "llama-index:MockEmbedding:", 6),
    (
        lambda: MockEmbedding(embed_dim=6, model_name="mock-2"),
        "llama-index:MockEmbedding:mock-2:",
        6,
    ),
    (
        lambda: PydanticAIEmbedder(TestEmbeddingModel("small", dimensions=5)),
        "pydantic-ai:test:small:",
        5,
    ),
    (lambda: TestEmbeddingModel("bare", dimensions=5), "pydantic-ai:test:bare:", 5),
    (Recording, "callable:Recording:", 12),
]


@pytest.mark.parametrize(("make", "name", "dimension"), FOREIGN)
def test_an_embedder_of_each_runtime_becomes_ours(
    make: Callable[[], Any], name: str, dimension: int
) -> None:
    embedder = as_embedder(make())

    vectors = embedder.embed(["one", "", "two", "one"])

    assert isinstance(embedder, Embedder)
    assert embedder.fingerprint.startswith(name)
    assert embedder.fingerprint.endswith(f":{dimension}")
    assert embedder.dimension == dimension
    assert vectors.dtype == np.float32
    assert vectors.shape == (4, dimension)
    assert is_unit(vectors[[0, 2, 3]])
    assert not vectors[1].any()
    assert vectors[0].tobytes() == vectors[3].tobytes()
    assert as_embedder(make()).fingerprint == embedder.fingerprint


def test_vectors_are_those_of_the_foreign_embedder_at_unit_length() -> None:
    theirs = DeterministicFakeEmbedding(size=24)

    ours = as_embedder(theirs).embed(["alpha", "beta"])

    expected = np.array(theirs.embed_documents(["alpha", "beta"]))
    assert ours == pytest.approx(
        expected / np.linalg.norm(expected, axis=1, keepdims=True), abs=1e-6
    )


def test_our_own_embedders_pass_through() -> None:
    guarded = GuardedEmbedder(STATIC)

    assert as_embedder(STATIC) is STATIC
    assert as_embedder(guarded) is guarded


@pytest.mark.parametrize(
    "thing", [None, 7, "openai:text-embedding-3-small", ChromaFunction, [0.1], {}]
)
def test_what_is_no_embedder_is_refused(thing: Any) -> None:
    with pytest.raises(InvalidInput, match="Hand in an instance of"):
        as_embedder(thing)


def test_an_embedder_that_is_asynchronous_works_inside_a_running_loop() -> None:
    embedder = as_embedder(PydanticAIEmbedder(TestEmbeddingModel(dimensions=3)))

    async def inside() -> NDArray[np.float32]:
        return embedder.embed(["called where a loop is running"])

    assert is_unit(asyncio.run(inside()))


def test_a_pydantic_ai_override_of_the_caller_reaches_its_embedder() -> None:
    theirs = PydanticAIEmbedder(TestEmbeddingModel("a", dimensions=3))

    with theirs.override(model=TestEmbeddingModel("b", dimensions=4)):
        assert as_embedder(theirs).dimension == 4
    assert as_embedder(theirs).dimension == 3


def test_texts_go_out_in_batches_without_the_blank_ones() -> None:
    theirs = Recording()
    embedder = as_embedder(theirs, batch_size=2)
    _ = embedder.fingerprint
    theirs.asked.clear()

    vectors = embedder.embed(["a", " ", "b", "c", "", "d", "e"])

    assert theirs.asked == [["a", "b"], ["c", "d"], ["e"]]
    assert vectors[3] == pytest.approx(as_embedder(Recording()).embed(["c"])[0])


def test_nothing_to_embed_asks_nothing() -> None:
    theirs = Recording()
    embedder = as_embedder(theirs)
    _ = embedder.dimension
    theirs.asked.clear()

    assert embedder.embed([]).shape == (0, 12)
    assert embedder.embed([" "]).shape == (1, 12)
    assert theirs.asked == []


def test_wrapping_alone_makes_no_call() -> None:
    theirs = Recording()

    as_embedder(theirs)

    assert theirs.asked == []


def test_two_models_of_one_name_have_two_fingerprints() -> None:
    first = as_embedder(Recording(lambda texts: [vector_of(text) for text in texts]))
    other = as_embedder(Recording(lambda texts: [vector_of("other " + text) for text in texts]))

    assert first.fingerprint != other.fingerprint


def test_a_fingerprint_survives_answers_that_differ_in_their_last_places() -> None:
    noise = np.random.default_rng(3)

    def jittery(texts: list[str]) -> NDArray[np.float64]:
        exact = np.array([vector_of(text, 256) for text in texts])
        return exact * (1 + noise.normal(size=exact.shape) * 1e-5)

    assert len({as_embedder(Recording(jittery)).fingerprint for _ in range(50)}) == 1


def test_a_failure_is_an_embedding_error_with_its_cause_and_without_the_text() -> None:
    def refuse(texts: list[str]) -> Any:
        raise RuntimeError(f"cannot embed {texts}")

    with pytest.raises(EmbeddingError, match="RuntimeError") as caught:
        as_embedder(Recording(refuse)).embed(["my private note"])

    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "cannot embed" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        [],
        [[1.0, 2.0], [1.0, 2.0]],
        [1.0, 2.0],
        [[]],
        [["a", "b"]],
        None,
        [[float("nan"), 1.0]],
        [[float("inf"), 1.0]],
        [[1.0], [1.0, 2.0]],
    ],
)
def test_an_answer_that_is_not_one_vector_per_text_is_an_error(answer: Any) -> None:
    with pytest.raises(EmbeddingError):
        as_embedder(Recording(lambda texts: answer)).embed(["a"])


def test_a_changed_dimension_is_an_error() -> None:
    sizes = iter([4, 4, 5])
    embedder = as_embedder(Recording(lambda texts: [[1.0] * next(sizes) for _ in texts]))

    embedder.embed(["a"])

    with pytest.raises(DimensionMismatch) as caught:
        embedder.embed(["b"])
    assert (caught.value.expected, caught.value.got) == (4, 5)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_components_of_any_size_become_unit_vectors(size: float) -> None:
    vectors = as_embedder(Recording(lambda texts: [[3 * size, -4 * size] for _ in texts])).embed(
        ["a"]
    )

    assert vectors[0] == pytest.approx([0.6, -0.8])


def test_foreign_embedders_are_remote_unless_the_developer_says_otherwise() -> None:
    assert GuardedEmbedder(STATIC).local
    assert not GuardedEmbedder(as_embedder(Recording())).local
    assert GuardedEmbedder(as_embedder(Recording(), local=True)).local


# The guard


class Counting:
    """An embedder of ours that keeps what it was asked."""

    fingerprint = "counting:1:12"
    dimension = 12

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.append(list(texts))
        return np.array([vector_of(text) for text in texts], dtype=np.float32)


def test_the_guard_embeds_each_text_once() -> None:
    inner = Counting()
    guarded = GuardedEmbedder(inner)

    first = guarded.embed(["a", "b", "a"])
    second = guarded.embed(["b", "c"])

    assert inner.asked == [["a", "b"], ["c"]]
    assert first == pytest.approx(
        np.array([vector_of("a"), vector_of("b"), vector_of("a")]), rel=1e-6
    )
    assert second == pytest.approx(np.array([vector_of("b"), vector_of("c")]), rel=1e-6)
    assert (guarded.fingerprint, guarded.dimension) == ("counting:1:12", 12)


def test_changing_an_answer_does_not_change_what_is_remembered() -> None:
    guarded = GuardedEmbedder(Counting())

    guarded.embed(["a"])[:] = 0

    assert guarded.embed(["a"]).any()


def test_the_guard_forgets_the_texts_used_longest_ago() -> None:
    inner = Counting()
    guarded = GuardedEmbedder(inner, cache_size=2)

    for text in ["a", "b", "a", "c", "a", "b"]:
        guarded.embed([text])

    assert inner.asked == [["a"], ["b"], ["c"], ["b"]]


def test_the_guard_works_without_remembering() -> None:
    inner = Counting()
    guarded = GuardedEmbedder(inner, cache_size=0)

    guarded.embed(["a"])
    guarded.embed(["a"])

    assert inner.asked == [["a"], ["a"]]


def test_no_text_is_embedded_inside_a_write_transaction() -> None:
    inner = Counting()
    guarded = GuardedEmbedder(inner)
    guarded.embed(["known"])

    with write_transaction("remember"):
        for texts in (["new"], ["known"], []):
            with pytest.raises(InsideTransaction):
                guarded.embed(texts)

    assert inner.asked == [["known"]]


def test_no_probing_call_is_made_inside_a_write_transaction() -> None:
    theirs = Recording()
    guarded = GuardedEmbedder(as_embedder(theirs))

    with write_transaction("remember"):
        with pytest.raises(InsideTransaction):
            _ = guarded.fingerprint
        with pytest.raises(InsideTransaction):
            _ = guarded.dimension
    assert theirs.asked == []

    fingerprint = guarded.fingerprint
    with write_transaction("remember"):
        assert guarded.fingerprint == fingerprint


def test_an_embedder_that_answers_short_or_in_another_size_is_caught() -> None:
    class Short(Counting):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return super().embed(texts[:1])

    class Narrow(Counting):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return super().embed(texts)[:, :3]

    with pytest.raises(EmbeddingError):
        GuardedEmbedder(Short()).embed(["a", "b"])
    with pytest.raises(DimensionMismatch):
        GuardedEmbedder(Narrow()).embed(["a", "b"])


def test_threads_share_one_guard() -> None:
    guarded = GuardedEmbedder(Counting(), cache_size=5)
    expected = guarded.embed([str(number) for number in range(20)]).tobytes()
    seen: list[bytes] = []

    def work() -> None:
        seen.extend(
            guarded.embed([str(number) for number in range(20)]).tobytes() for _ in range(20)
        )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == [expected] * 80


_OWN = """
import sys
from tallystick import Tally

class Own:
    def __call__(self, input):
        return [[0.1, 0.2, float(len(text))] for text in input]
    def name(self):
        return "own"

with Tally.open(":memory:", background=False, embedder=Own()) as tally:
    bound = tally.bind()
    bound.remember("The heron nests in March.")
    assert bound.recall("When does the heron nest?")
print(sorted({"wordllama", "tokenizers", "safetensors", "chromadb"} & set(sys.modules)))
"""


def test_who_brings_an_embedder_loads_neither_the_table_nor_its_libraries() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _OWN], capture_output=True, text=True, check=True, timeout=120
    )
    assert told.stdout == "[]\n"
