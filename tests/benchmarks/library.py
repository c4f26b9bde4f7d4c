"""Questions over the documentation of Python's standard library as files: how often the section
that answers is among the first five, here, in LlamaIndex's pipeline with Chroma, and in plain FTS5.

    python -m tests.benchmarks.library

The files are the docstrings of installed modules, a Markdown file for each with a section for each
public function and class. The questions, and the one section that answers each, were written before
anything was measured; the table names their digest. Every way gets the same files, and both ways
with vectors have the same embedder. A section is found where its heading stands in what was found:
`words` is how many words the five have together.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import inspect
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from tallystick import Actor, Tally
from tallystick.tally.services import services_of
from tallystick_ingest import Ingest

QUESTIONS = Path(__file__).parents[1] / "data" / "library" / "questions.tsv"
FIRST = 5
_ADA = Actor(user="ada")
_BESIDE = (
    *("argparse", "array", "asyncio", "bz2", "calendar", "cmd", "colorsys", "configparser"),
    *("dataclasses", "datetime", "decimal", "dis", "email", "enum", "filecmp", "fileinput"),
    *("fractions", "getpass", "gettext", "gzip", "html", "http", "imaplib", "ipaddress", "keyword"),
    *("linecache", "locale", "logging", "lzma", "math", "multiprocessing", "netrc", "numbers"),
    *("operator", "os", "pathlib", "pdb", "pickle", "poplib", "profile", "queue", "random", "re"),
    *(
        "reprlib",
        "sched",
        "select",
        "selectors",
        "shelve",
        "signal",
        "smtplib",
        "socket",
        "sqlite3",
    ),
    *("ssl", "stat", "string", "struct", "tarfile", "time", "timeit", "tokenize", "trace", "types"),
    *(
        "typing",
        "unicodedata",
        "unittest",
        "urllib.parse",
        "urllib.request",
        "uuid",
        "wave",
        "zlib",
    ),
    *("weakref", "xml.etree.ElementTree", "zipfile", "traceback", "tracemalloc", "warnings"),
)
"""Modules that no question asks for."""


class Question(NamedTuple):
    """A question, and the section that answers it."""

    text: str
    module: str
    name: str


@dataclass(frozen=True)
class Found:
    """How one way did."""

    recall: float
    """The share of questions whose section is among the first five."""
    words: float
    """Words of the five, on average."""


def load_questions() -> tuple[list[Question], str]:
    """Return the questions, and the SHA-256 of their file."""
    content = QUESTIONS.read_bytes()
    lines = content.decode().splitlines()
    return [Question(*line.split("\t")) for line in lines], hashlib.sha256(content).hexdigest()


def write_library(folder: Path, modules: Iterable[str]) -> int:
    """Write a file for each module; return the number of sections."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name in sorted(modules):
        module = importlib.import_module(name)
        parts = [f"# {name}\n\n{inspect.getdoc(module) or ''}\n"]
        for own in sorted(getattr(module, "__all__", None) or dir(module)):
            thing = getattr(module, own, None)
            if own.startswith("_") or not (inspect.isroutine(thing) or inspect.isclass(thing)):
                continue
            said = inspect.getdoc(thing)
            if said:
                # What a docstring writes at the beginning of a line is no heading.
                text = re.sub(r"(?m)^#", " #", said)
                parts.append(f"\n## {own}\n\n{_signature(thing)}\n\n{text}\n")
                count += 1
        (folder / f"{name}.md").write_text("".join(parts))
    return count


def _signature(thing: Any) -> str:
    try:
        return f"{thing.__name__}{inspect.signature(thing)}"[:300]
    except (TypeError, ValueError, AttributeError):
        return str(getattr(thing, "__name__", ""))


def measure(folder: Path, place: Path) -> tuple[dict[str, Found], int, str]:
    """Return how each way did, the number of sections, and the digest of the questions."""
    questions, digest = load_questions()
    count = write_library(folder, {*_BESIDE, *(each.module for each in questions)})
    with Tally.open(place / "tally", background=False) as tally:
        ingest = Ingest(tally.bind(_ADA))
        ingest.start_import(folder, adapter="files")
        tally.drain()
        embedder = services_of(tally).memory.embedder

        def ours(question: str) -> list[tuple[str, str]]:
            hits = tally.bind(_ADA).recall(question, limit=FIRST)
            return [(str(hit.memory.attributes["url"]), hit.content) for hit in hits]

        ways = {
            "import and recall": ours,
            "LlamaIndex and Chroma": chroma_pipeline(folder, place / "chroma", embedder),
            "plain FTS5": _plain_words(folder),
        }
        found = {name: _score(way, questions) for name, way in ways.items()}
    return found, count, digest


Way = Callable[[str], list[tuple[str, str]]]
"""From a question to the addresses and texts of the first five."""


def _score(way: Way, questions: Sequence[Question]) -> Found:
    right, words = 0, 0
    for question in questions:
        answers = way(question.text)[:FIRST]
        heading = re.compile(rf"(?m)^## {re.escape(question.name)}$")
        right += any(
            address.endswith(f"/{question.module}.md") and heading.search(text)
            for address, text in answers
        )
        words += sum(len(text.split()) for _, text in answers)
    return Found(right / len(questions), words / len(questions))


def chroma_pipeline(folder: Path, place: Path, embedder: Any) -> Way:
    """Run LlamaIndex's pipeline over a folder into Chroma, as its own store for it does; return the
    way to ask.
    """
    import chromadb
    from chromadb.config import Settings
    from llama_index.core import SimpleDirectoryReader
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.ingestion import IngestionPipeline
    from llama_index.core.node_parser import MarkdownNodeParser
    from llama_index.core.schema import MetadataMode

    class Vectors(BaseEmbedding):
        """The embedder of the tally."""

        def _get_text_embedding(self, text: str) -> list[float]:
            return self._get_text_embeddings([text])[0]

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            vectors: list[list[float]] = embedder.embed(texts).tolist()
            return vectors

        def _get_query_embedding(self, query: str) -> list[float]:
            return self._get_text_embedding(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)

    settings = Settings(anonymized_telemetry=False)
    collection = chromadb.PersistentClient(str(place), settings).create_collection("files")
    reader = SimpleDirectoryReader(str(folder), required_exts=[".md"])
    pipeline = IngestionPipeline(
        transformations=[MarkdownNodeParser(), Vectors(embed_batch_size=100)], disable_cache=True
    )
    nodes = pipeline.run(documents=reader.load_data())
    for start in range(0, len(nodes), 1_000):
        page = nodes[start : start + 1_000]
        vectors: Any = [node.embedding or [] for node in page]
        collection.add(
            ids=[node.node_id for node in page],
            embeddings=vectors,
            documents=[node.get_content(metadata_mode=MetadataMode.NONE) for node in page],
            metadatas=[{"file_path": str(node.metadata["file_path"])} for node in page],
        )

    def ask(question: str) -> list[tuple[str, str]]:
        [vector] = embedder.embed([question]).tolist()
        found: Mapping[str, Any] = collection.query(query_embeddings=[vector], n_results=FIRST)
        places = [each["file_path"] for each in found["metadatas"][0]]
        return list(zip(places, found["documents"][0], strict=True))

    return ask


def _plain_words(folder: Path) -> Way:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE sections USING fts5(place UNINDEXED, text, tokenize='porter')"
    )
    for file in sorted(folder.glob("*.md")):
        for section in re.split(r"(?m)^(?=## )", file.read_text()):
            row = (file.as_posix(), section)
            connection.execute("INSERT INTO sections VALUES (?, ?)", row)

    def ask(question: str) -> list[tuple[str, str]]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        query = "SELECT place, text FROM sections WHERE sections MATCH ? ORDER BY rank LIMIT ?"
        return [(row[0], row[1]) for row in connection.execute(query, (words, FIRST))]

    return ask


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(description="Questions over the standard library.").parse_args()
    with tempfile.TemporaryDirectory() as place:
        found, count, digest = measure(Path(place) / "library", Path(place))
    table = Table(
        "way", f"R@{FIRST}", "words", title=f"{count:,} sections, questions {digest[:12]}"
    )
    for name, each in found.items():
        table.add_row(name, f"{each.recall:.3f}", f"{each.words:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
