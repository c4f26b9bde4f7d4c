"""Long texts in a small budget: docstrings of the standard library, as a retriever finds them."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

from tallystick import Tally
from tallystick.compiler import FRAMED
from tallystick.records import CompileConfig, ContextItem, SourceRef

_MODULES = (
    *("shutil", "os", "os.path", "glob", "pathlib", "tempfile", "subprocess", "argparse", "csv"),
    *("json", "re", "random", "statistics", "threading", "logging", "itertools", "functools"),
    *("collections", "bisect", "heapq", "difflib", "textwrap", "string", "datetime", "calendar"),
    *("zipfile", "tarfile", "socket", "asyncio", "unittest", "inspect", "ast", "typing"),
)
_NODES = 200
_QUESTIONS = 20


def _docstrings() -> Iterator[tuple[str, str]]:
    """Yield functions and their docstrings under a line with their name and signature."""
    for module_name in _MODULES:
        module = importlib.import_module(module_name)
        for name, function in sorted(vars(module).items()):
            if name.startswith("_") or not inspect.isroutine(function):
                continue
            doc = inspect.getdoc(function) or ""
            if len(doc) < 200 or function.__module__ is None:
                continue
            try:
                signature = str(inspect.signature(function))
            except (TypeError, ValueError):
                signature = "(...)"
            yield f"{module_name}.{name}", f"{module_name}.{name}{signature}\n\n{doc}"


def _nodes() -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, text in _docstrings():
        if text not in texts.values() and len(texts) < _NODES:
            texts[name] = text
    return texts


NODES = _nodes()
QUESTIONS = sorted(NODES, key=lambda name: len(NODES[name]))[-_QUESTIONS:]
"""The functions whose docstrings are longest."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tally]:
    with Tally.open(tmp_path_factory.mktemp("library") / "tally", background=False) as tally:
        bound = tally.bind(None)
        bound.remember_many(
            [{"content": text, "source": {"uri": f"doc:{name}"}} for name, text in NODES.items()]
        )
        yield tally


@pytest.mark.parametrize("budget", [300, 600])
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_best_of_what_was_found_is_in_and_its_sentences_are_whole(
    library: Tally, name: str, budget: int
) -> None:
    bound = library.bind(None)
    summary = NODES[name].split("\n\n")[1].split(".")[0]
    question = f"How do I {summary[0].lower()}{summary[1:]}?"
    hits = bound.recall(question, limit=6)
    items = [
        ContextItem(
            id=hit.memory.id,
            kind="retrieval_doc",
            content=hit.memory.content,
            source_ref=SourceRef(source_type="retrieval", uri=f"node:{hit.memory.id}"),
        )
        for hit in hits
    ]

    compiled = bound.compile(
        items,
        budget=budget,
        query=question,
        config=CompileConfig(relevance_floor=0),
        target=FRAMED,
    )

    shown = {item.id: item.content for item in compiled.selected_items}
    decisions = {each.item_id: each for each in compiled.decisions}
    best = max(items, key=lambda item: decisions[item.id].score_breakdown["total"])
    assert best.id in shown
    for item in items:
        # Of an example the lines may be lines of anything.
        text = shown.get(item.id, item.content)
        if text != item.content and ">>>" not in item.content:
            assert text.startswith(item.content.partition("\n")[0])
            _check_sentences(text, item.content)


def _check_sentences(shown: str, content: str) -> None:
    """Each piece begins where a sentence, a paragraph or an item of `content` begins, and ends
    where one ends.
    """
    whole = " ".join(content.split())
    ends = {len(" ".join(part.split())) for part in _prefixes(content)}
    for piece in shown.split("[…]"):
        text = " ".join(piece.split())
        if text:
            start = whole.find(text)
            assert start >= 0, text
            assert start == 0 or start - 1 in ends, (text, whole[start - 30 : start])
            assert start + len(text) in ends, text


def _prefixes(content: str) -> Iterator[str]:
    """Yield what stands before each place where prose may end: after a sentence or a colon, at an
    empty line, and at a line that does not go on in small letters.
    """
    yield content
    for match in re.finditer(r"[.!?:)](?=\s)|\n\s*\n|\n(?![a-z])", content):
        yield content[: match.end()]
        yield content[: match.start()]
