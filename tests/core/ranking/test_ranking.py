"""Ranking: words, text scores and vectors."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
import threading
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallystick.errors import DimensionMismatch, InvalidInput
from tallystick.ranking import (
    analyze,
    cosines,
    from_float16_bytes,
    quantise,
    query_terms,
    to_float16_bytes,
)
from tallystick.ranking.corpus import Corpus
from tallystick.ranking.languages import languages_of
from tallystick.ranking.question import ask
from tallystick.ranking.segment import Entry
from tallystick.ranking.words import indexed_words, surfaces_of

FTS5 = (
    'CREATE VIRTUAL TABLE documents USING fts5(words, tokenize="unicode61 remove_diacritics '
    "0 tokenchars '_'\")"
)


def fts5_terms(words: str) -> list[str]:
    """The words that SQLite's full-text index reads out of a stored text, in order."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(FTS5)
        connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(documents, 'instance')")
        connection.execute("INSERT INTO documents VALUES (?)", (words,))
        return [row[0] for row in connection.execute("SELECT term FROM terms ORDER BY offset")]
    finally:
        connection.close()


# Words


def test_a_path_is_found_whole_and_by_its_parts() -> None:
    assert analyze("core/tally.py") == ["core", "talli", "py", "core_tally_py"]


def test_an_identifier_is_found_whole_and_by_its_parts() -> None:
    assert analyze("parse_httpHeader2") == ["pars", "http", "header", "2", "parse_httpheader2"]
    assert analyze("HTTPServer") == ["http", "server", "httpserver"]
    assert analyze("lib.parse_header()") == [
        "lib",
        "pars",
        "header",
        "parse_header",
        "lib_parse_header",
    ]


@pytest.mark.parametrize("query", ["tally", "core/tally.py", "core", "core\\tally.py"])
def test_what_a_path_is_asked_for_by_is_among_its_tokens(query: str) -> None:
    assert set(query_terms(query)) <= set(analyze("see core/tally.py there"))


def test_forms_of_an_english_word_are_one_token() -> None:
    assert analyze("running runs run") == ["run", "run", "run"]
    assert analyze("Anna's cats") == ["anna", "cat"]


def test_text_without_spaces_becomes_pairs_of_characters() -> None:
    assert analyze("東京タワー") == ["東京", "京タ", "タワ", "ワー"]
    assert analyze("京") == ["京"]
    assert analyze("GPT東京") == ["gpt", "東京"]
    assert set(query_terms("東京")) <= set(analyze("私は東京に住む"))


def test_case_and_compatibility_forms_do_not_matter() -> None:
    assert analyze("ﬁne CAFÉ Straße ＡＢＣ") == analyze("FINE café STRASSE abc")
    assert analyze("cafe\u0301") == analyze("caf\u00e9")


def test_a_letter_that_engines_may_not_know_is_written_by_number() -> None:
    assert analyze("\U0001e900\U0001e901") == ["u1e922u1e923"]


def test_a_digest_is_one_token_and_not_its_fragments() -> None:
    digest = "3f2a9bc177de4b0c9a1b0123456789abcdef0123456789abcdef0123456789ab"

    assert analyze(digest) == [digest]


def test_a_very_long_word_is_cut() -> None:
    assert analyze("a" * 100_000) == ["a" * 128]


@pytest.mark.parametrize("text", ["", " \n\t", "…!?—", "____", "\u200d\ufe0f", "😀"])
def test_text_without_letters_or_digits_has_no_tokens(text: str) -> None:
    assert analyze(text) == []
    assert query_terms(text) == []


@given(st.text())
def test_every_token_holds_only_letters_digits_and_underscores(text: str) -> None:
    for token in analyze(text):
        assert token
        assert all(char == "_" or unicodedata.category(char)[0] in "LN" for char in token)


@given(st.text(max_size=60))
def test_sqlite_reads_every_stored_token_as_one_word(text: str) -> None:
    tokens = analyze(text)

    assert len(fts5_terms(" ".join(tokens))) == len(tokens)


@pytest.mark.soak
def test_sqlite_reads_each_letter_of_unicode_as_part_of_one_word() -> None:
    letters = [
        char
        for char in map(chr, [*range(0xD800), *range(0xE000, 0x110000)])
        if unicodedata.category(char)[0] in "LN"
    ]
    stored = {token for char in letters for token in analyze(f"q{char}q")}
    connection = sqlite3.connect(":memory:")
    connection.execute(FTS5)
    connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(documents, 'instance')")
    connection.executemany(
        "INSERT INTO documents VALUES (?)", [(token,) for token in sorted(stored)]
    )

    rows = connection.execute(
        "SELECT doc, count(*) FROM terms GROUP BY doc HAVING count(*) != 1"
    ).fetchall()
    documents = connection.execute("SELECT count(DISTINCT doc) FROM terms").fetchone()[0]
    connection.close()

    assert rows == []
    assert documents == len(stored)


@given(st.text(max_size=40))
def test_asking_with_the_stored_text_finds_it(text: str) -> None:
    tokens = analyze(text)

    assert set(query_terms(text)) <= set(tokens)
    assert bool(query_terms(text)) == bool(tokens)


def test_each_thread_gives_the_same_tokens() -> None:
    expected = analyze("The runners were running through parse_httpHeader2")
    seen: list[list[str]] = []

    def work() -> None:
        seen.extend(
            analyze("The runners were running through parse_httpHeader2") for _ in range(50)
        )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == [expected] * 200


def test_a_query_drops_function_words_and_repeats() -> None:
    assert query_terms("What does Anna say about the tea, the green tea?") == [
        "anna",
        "tea",
        "green",
    ]


def test_a_query_of_function_words_only_is_kept_whole() -> None:
    assert query_terms("what is it?") == ["what", "is", "it"]


# Quantised scores


@given(st.floats(allow_nan=False))
def test_a_quantised_score_is_a_whole_number_up_to_a_million(score: float) -> None:
    value = quantise(score)

    assert type(value) is int
    assert 0 <= value <= 1_000_000
    if 0.0 <= score <= 1.0:
        assert abs(value - score * 1_000_000) <= 0.5


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInput):
        quantise(math.nan)


# Vectors


def units(count: int, dimension: int = 256, seed: int = 7) -> NDArray[np.float32]:
    """Random unit vectors."""
    rows = np.random.default_rng(seed).normal(size=(count, dimension))
    unit_rows: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(
        np.float32
    )
    return unit_rows


def test_stored_vectors_come_back_within_half_precision() -> None:
    vectors = units(20)

    blobs = to_float16_bytes(vectors)

    assert [len(blob) for blob in blobs] == [512] * 20
    assert from_float16_bytes(blobs) == pytest.approx(vectors, abs=2**-12)
    assert to_float16_bytes(from_float16_bytes(blobs)) == blobs
    assert to_float16_bytes(vectors[3]) == blobs[3:4]


def test_no_vectors_are_an_empty_matrix() -> None:
    assert from_float16_bytes([]).shape == (0, 0)
    assert cosines(units(1)[0], from_float16_bytes([])).shape == (0,)


def test_stored_vectors_of_two_sizes_are_refused() -> None:
    with pytest.raises(DimensionMismatch):
        from_float16_bytes([b"\0" * 4, b"\0" * 6])
    with pytest.raises(DimensionMismatch):
        cosines(np.ones(3, dtype=np.float32), np.ones((2, 4), dtype=np.float32))


def test_cosines_are_those_of_double_precision() -> None:
    matrix, query = units(200), units(1, seed=9)[0] * 3

    exact = (
        matrix.astype(np.float64)
        @ query.astype(np.float64)
        / np.linalg.norm(query.astype(np.float64))
    )

    assert cosines(query, matrix) == pytest.approx(exact, abs=1e-6)


def test_a_zero_vector_is_near_to_nothing() -> None:
    matrix = units(3)
    matrix[1] = 0

    assert cosines(matrix[0], matrix)[1] == 0.0
    assert not cosines(np.zeros(256, dtype=np.float32), matrix).any()


@given(st.lists(st.integers(0, 299), min_size=1, max_size=40))
def test_a_cosine_does_not_depend_on_the_other_rows(chosen: list[int]) -> None:
    matrix, query = units(300), units(1, seed=9)[0]

    assert cosines(query, matrix[chosen]).tobytes() == cosines(query, matrix)[chosen].tobytes()


def test_importing_the_light_rooms_loads_nothing_heavy() -> None:
    heavy = "{'numpy', 'tiktoken', 'tokenizers', 'safetensors', 'Stemmer', 'wordllama', 'requests'}"
    script = (
        "import sys, tallystick.embedding, tallystick.tokens, tallystick.ranking, "
        "tallystick.policy.redaction;"
        f"found = {heavy} & set(sys.modules); sys.exit(str(found) if found else 0)"
    )

    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("question", "languages"),
    [
        ("Was hat Anna über den Hund gesagt?", {"de"}),
        ("¿Dónde está la casa de mi hermana?", {"es"}),
        ("Wanneer gaat Jan naar huis?", {"nl"}),
        ("Где живёт Анна?", {"ru"}),
        ("Did anyone die in the war?", {"en"}),
        ("Die Hard, La La Land and Da Vinci", {"en"}),
        ("qwerty", set()),
    ],
)
def test_a_question_is_in_the_language_of_its_function_words(
    question: str, languages: set[str]
) -> None:
    assert set(languages_of(surfaces_of(question))) == languages


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("表哥的生日是什么时候？", ["表哥", "哥的", "的生", "生日", "日是"]),
        ("彼女はどこに住んでいますか", ["は", "に住", "住ん", "んで", "か"]),
        ("什么时候", ["什么", "么时", "时候"]),
    ],
)
def test_what_only_asks_is_left_out_of_a_question_unless_nothing_is_left(
    question: str, words: list[str]
) -> None:
    assert query_terms(question) == words


def test_words_are_compared_without_the_accents_of_latin_letters_alone() -> None:
    assert analyze("teléfono GROẞ Łódź smørrebrød") == analyze("telefono gross lodz smorrebrod")
    assert analyze("собаками") == analyze("собака")
    assert analyze("Ёлка") == analyze("елка")
    assert analyze("パパ") != analyze("ハハ")


@pytest.mark.parametrize(
    ("content", "query"),
    [
        ("Sie hat zwei Häuser besichtigt.", "Welches Haus?"),
        ("Sie hat zwei Häuser besichtigt.", "Haus"),
        ("Los ladrones rompieron dos ventanas.", "¿Qué ventana rompió el ladrón?"),
        ("Il gatto ha graffiato le poltrone.", "Chi graffiava la poltrona?"),
        ("Les chevaux sont tombés malades.", "Quel cheval était malade ?"),
        ("Соседские собаки громко лаяли.", "Какая собака лает?"),
    ],
)
def test_a_word_is_found_in_the_forms_that_its_language_gives_it(content: str, query: str) -> None:
    others = [
        "Wir haben das nicht gesehen und sind dann noch zum Bahnhof gegangen.",
        "The bakery opens at six.",
    ]
    corpus = Corpus.empty().update(
        [
            Entry(doc, indexed_words([text]), 0, None, "note", None, None, None, None, None)
            for doc, text in enumerate([*others, content])
        ]
    )
    question = ask(query, [corpus], 0)
    scores = corpus.text_scores(question.weights, average=question.average_length)
    assert scores.argmax() == 2
    assert scores[2] > 0
